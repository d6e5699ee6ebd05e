"""A worker process: started, heard to the last word, and ended with all its children."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from anyio import fail_after
from patience import PATIENCE
from piped import make_project, until

from prowess.worker.link import Frame
from prowess.worker.messages import Kind, hello
from prowess_host.workers import process_tree
from prowess_host.workers.process import WorkerProcess, describe_exit

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

    def __init__(self, root: Path, python: str) -> None:
        self.frames: list[Frame] = []
        self.exits = 0
        self.process = WorkerProcess(python, root, SETTINGS, on_frame=self.frames.append, on_exit=self._exited)

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


async def test_a_worker_takes_frames_before_it_is_up(tmp_path: Path, python: str):
    worker = Watched(make_project(tmp_path, t=SKILL), python)
    worker.process.send(Kind.CALL, 1, json.dumps({"command": "t.say"}).encode(), b"{}")
    assert b'"x"' in (await worker.heard(Kind.RESULT)).body
    assert worker.process.has_begun(1)
    worker.process.forget(1)
    assert not worker.process.has_begun(1)
    worker.process.send(Kind.QUIT)
    assert 0 == await worker.over()


async def test_a_worker_that_is_over_can_be_told_anything(tmp_path: Path, python: str):
    """It is of no effect."""
    worker = Watched(make_project(tmp_path, t=SKILL), python)
    worker.process.send(Kind.CALL, 1, json.dumps({"command": "t.leave"}).encode(), b"{}")
    assert 7 == await worker.over()
    worker.process.kill()
    worker.process.retire()
    worker.process.forget(1)
    worker.process.send(Kind.PING)


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


def descriptors() -> list[Path]:
    """What this process holds open."""
    return sorted(Path("/proc/self/fd").iterdir())


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
