"""A worker process: started, heard to the last word, and ended with all its children."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
import sys
import threading
from pathlib import Path

import pytest
from anyio import fail_after
from patience import PATIENCE
from piped import make_project, until

from prowess.worker.link import Frame, Link, encode_frame
from prowess.worker.messages import Kind, hello
from prowess_host.workers import process_tree
from prowess_host.workers.launch import Launched
from prowess_host.workers.process import Spawn, WorkerProcess, describe_exit, spawner

SKILL = """
    @skill_command
    def leave() -> str:
        os._exit(7)

    @skill_command
    def say() -> str:
        return "x"
"""


SETTINGS = json.dumps({**hello(), "flags": {}, "written": None}).encode()


class Watched:
    """A worker and what was heard of it."""

    def __init__(self, root: Path, python: str, *, shared: bool = True, spawn: Spawn = WorkerProcess) -> None:
        self.frames: list[Frame] = []
        self.exits = 0
        heard = self.frames.append
        self.process = spawn(python, root, SETTINGS, shared=shared, on_frame=heard, on_exit=self._exited)

    def _exited(self) -> None:
        self.exits += 1

    async def heard(self, kind: Kind) -> Frame:
        return await until(lambda: next((frame for frame in self.frames if frame.kind == kind), None))

    async def over(self) -> int | None:
        with fail_after(PATIENCE):
            await self.process.wait()
        assert 1 == self.exits
        return self.process.exit_code


@pytest.fixture
def python() -> str:
    return sys.executable


shared = pytest.mark.parametrize("shared", [True, False], ids=["shared", "sent"])


@shared
async def test_a_worker_takes_frames_before_it_is_up(tmp_path: Path, python: str, shared: bool):
    worker = Watched(make_project(tmp_path, t=SKILL), python, shared=shared)
    worker.process.send(Kind.CALL, 1, json.dumps({"command": "t.say"}).encode(), b"{}")
    assert b'"x"' in (await worker.heard(Kind.RESULT)).body
    assert worker.process.has_begun(1)
    worker.process.forget(1)
    assert not worker.process.has_begun(1)
    worker.process.send(Kind.QUIT)
    assert 0 == await worker.over()


@shared
async def test_a_worker_that_is_over_can_be_told_anything(tmp_path: Path, python: str, shared: bool):
    """It is of no effect."""
    worker = Watched(make_project(tmp_path, t=SKILL), python, shared=shared)
    worker.process.send(Kind.CALL, 1, json.dumps({"command": "t.leave"}).encode(), b"{}")
    assert 7 == await worker.over()
    worker.process.kill()
    worker.process.send(Kind.PING)


@shared
async def test_what_a_worker_had_begun_is_certain_when_it_has_ended(tmp_path: Path, python: str, shared: bool):
    """Also of the last call, and of those that it received and did not begin."""
    worker = Watched(make_project(tmp_path, t=SKILL), python, shared=shared)
    begun: dict[int, bool] = {}
    worker.process._on_exit = lambda: begun.update({number: worker.process.has_begun(number) for number in (1, 2, 3)})
    worker.process.send(Kind.CALL, 1, json.dumps({"command": "t.say"}).encode(), b"{}")
    await worker.heard(Kind.RESULT)
    worker.process.send(Kind.WITHDRAW, 0, b'{"numbers": []}')
    worker.process.send(Kind.CALL, 2, json.dumps({"command": "t.leave"}).encode(), b"{}")
    with fail_after(PATIENCE):
        await worker.process.wait()
    assert {1: True, 2: True, 3: False} == begun


@shared
async def test_a_withdrawn_call_is_given_back(tmp_path: Path, python: str, shared: bool):
    """Now, or as soon as the worker says so; and a retired worker begins nothing."""
    worker = Watched(make_project(tmp_path, t=SKILL), python, shared=shared)
    call = json.dumps({"command": "t.say"}).encode()
    worker.process.send(Kind.CALL, 1, call, b"{}")
    await worker.heard(Kind.RESULT)
    assert [] == worker.process.withdraw([])
    assert ([2] if shared else []) == worker.process.withdraw([2])
    assert [] == worker.process.withdraw([1])
    assert ([3] if shared else []) == worker.process.retire([1, 3])
    worker.process.send(Kind.CALL, 3, call, b"{}")
    assert 3 == (await worker.heard(Kind.UNBEGUN)).number
    worker.process.send(Kind.QUIT)
    assert 0 == await worker.over()


async def test_a_worker_that_was_launched_ahead_is_the_first_one(tmp_path: Path, python: str):
    """Once, and it takes calls like any other."""
    root = make_project(tmp_path, t=SKILL)
    ahead = Launched(python, root, shared=True)
    with socket.socket(socket.AF_UNIX) as usual:
        sizes = [end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) for end in (usual, ahead.link)]
    assert sizes[0] < sizes[1], "a large message fills the buffer many times"
    spawn = spawner(ahead)
    first, second = Watched(root, python, spawn=spawn), Watched(root, python, spawn=spawn)
    assert ahead.process.pid == first.process.pid != second.process.pid
    for worker in (first, second):
        worker.process.send(Kind.CALL, 1, json.dumps({"command": "t.say"}).encode(), b"{}")
        assert b'"x"' in (await worker.heard(Kind.RESULT)).body
        worker.process.send(Kind.QUIT)
        assert 0 == await worker.over()


async def test_a_worker_that_has_just_ended_is_not_killed(tmp_path: Path, python: str, monkeypatch: pytest.MonkeyPatch):
    """Another process may have its id by then."""
    ended: list[int] = []

    class KilledLate(WorkerProcess):
        async def _read_last_frames(self) -> None:
            with monkeypatch.context() as patched:
                patched.setattr(process_tree, "end", lambda pid, *_: ended.append(pid))
                self.kill()
            await super()._read_last_frames()

    worker = Watched(make_project(tmp_path, t=SKILL), python, spawn=KilledLate)
    worker.process.send(Kind.QUIT)
    assert 0 == await worker.over()
    assert [] == ended


async def test_the_end_of_a_worker_waits_for_no_other_thread(tmp_path: Path, python: str):
    """All those of asyncio may read from a disk that hangs."""
    gate, loop = threading.Event(), asyncio.get_running_loop()
    reading = [loop.run_in_executor(None, gate.wait) for _ in range(100)]
    worker = Watched(make_project(tmp_path, t=SKILL), python)
    worker.process.send(Kind.QUIT)
    try:
        assert 0 == await worker.over()
    finally:
        gate.set()
        await asyncio.gather(*reading)


@pytest.mark.parametrize("shared", [True, False])
async def test_a_worker_that_was_launched_in_another_way_is_ended(tmp_path: Path, python: str, shared: bool):
    """Whatever was started for nothing is gone, with its guard."""
    ahead = Launched(python, make_project(tmp_path / "other", t=SKILL), shared=shared)
    worker = Watched(make_project(tmp_path / "this", t=SKILL), python, spawn=spawner(ahead))
    assert ahead.process.pid != worker.process.pid
    assert None not in (ahead.process.returncode, ahead.guard.returncode)
    worker.process.send(Kind.QUIT)
    assert 0 == await worker.over()


async def test_the_last_words_are_read_although_somebody_else_holds_the_link():
    """As much as has arrived, in whole frames."""
    ours, theirs = socket.socketpair()
    heard: list[Frame] = []
    link = Link(heard.append, lambda: None)
    ours.setblocking(False)
    theirs.sendall(encode_frame(Kind.BEGUN, 7) + encode_frame(Kind.RESULT, 7, b"{}", b"x")[:-1])
    link.drain(ours)
    assert [(Kind.BEGUN, 7)] == [frame[:2] for frame in heard]
    theirs.sendall(b"x")
    theirs.close()
    link.drain(ours)
    assert [(Kind.BEGUN, 7), (Kind.RESULT, 7)] == [frame[:2] for frame in heard]
    ours.close()


async def test_where_processes_have_no_descriptors_a_thread_waits(
    tmp_path: Path, python: str, monkeypatch: pytest.MonkeyPatch
):
    """On an old kernel, or another system."""

    def refuse(pid: int) -> int:
        raise OSError(38, "not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    worker = Watched(make_project(tmp_path), python)
    worker.process.kill()
    assert -9 == await worker.over()


def descriptors() -> dict[str, str]:
    """What this process holds open. Garbage of other tests would let go of theirs at any time."""
    gc.collect()
    found: dict[str, str] = {}
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the folder itself
            found[each.name] = str(each.readlink())
    return found


@pytest.mark.parametrize("broken", ["python", "guard"])
async def test_a_worker_that_cannot_be_started_leaves_nothing_open(
    tmp_path: Path, python: str, broken: str, monkeypatch: pytest.MonkeyPatch
):
    if broken == "guard":
        monkeypatch.setattr(process_tree, "_SHELL", "/no/such/shell")
        monkeypatch.setattr(sys, "executable", "/no/such/python")
    await asyncio.sleep(0)
    before = descriptors()
    with pytest.raises(OSError):
        Watched(tmp_path, "/no/such/python" if broken == "python" else python)
    assert before == descriptors()


@pytest.mark.parametrize(
    "code, text", [(0, "exit code 0"), (-9, "killed by SIGKILL"), (-200, "exit code -200"), (None, "exit code None")]
)
def test_an_exit_is_described_for_people(code: int | None, text: str):
    assert text == describe_exit(code)
