"""Calls that have not begun: they move on when their worker gives them back, and never begin once they are over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from inside import Inside, inside
from patience import PATIENCE
from piped import make_project, result, until

from prowess.settings.settings import Settings
from prowess.worker.link import Frame
from prowess.worker.messages import Kind
from prowess.worker.progress import threads_of
from prowess_host.workers.jobs import Job
from prowess_host.workers.placement import Placement
from prowess_host.workers.supervisor import Supervisor
from prowess_host.workers.worker import Worker

SKILL = """
from prowess import skill_command

@skill_command
def say(text: str) -> str:
    return text
"""


class Told:
    """Listens to one job."""

    def __init__(self) -> None:
        self.body: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def result(self, _meta: bytes, body: bytes) -> None:
        self.body.set_result(json.loads(body))


@contextlib.asynccontextmanager
async def supervised(root: Path) -> AsyncGenerator[tuple[Supervisor, Job, Told]]:
    """A supervisor, and a job for it."""
    (root / "skills").mkdir()
    (root / "skills" / "t.py").write_text(SKILL, "utf-8")
    supervisor = Supervisor(root, Settings.load(root, environ={}), {})
    try:
        with anyio.fail_after(PATIENCE):
            async with supervisor.generations.describers() as ask:
                (contract,) = (await ask(())).skills["t"].contracts
            told: Any = Told()
            yield supervisor, Job(contract, b'{"command": "t.say"}', b'{"text": "x"}', told, 30), told
    finally:
        await supervisor.close()


async def test_call_that_is_given_back_is_run_all_the_same(tmp_path: Path) -> None:
    """It is dispatched again, under a new number, and the move is counted."""
    async with supervised(tmp_path) as (supervisor, job, told):
        supervisor.submit(job)
        first, worker = job.number, supervisor.pools.own.active[0]
        supervisor._on_frame(worker, Frame(Kind.UNBEGUN, first, b"", b""))
        assert first != job.number
        assert 1 == job.moves
        assert "x" == (await told.body)["content"][0]["text"]


async def test_call_that_is_given_back_again_and_again_is_answered_in_the_end(tmp_path: Path) -> None:
    """Whatever takes it from its workers: it does not move for ever."""
    async with supervised(tmp_path) as (supervisor, job, told):
        supervisor.submit(job)
        worker = supervisor.pools.own.active[0]
        moves = 0
        while not told.body.done():
            moves += 1
            supervisor._on_frame(worker, Frame(Kind.UNBEGUN, job.number, b"", b""))
        text = (await told.body)["content"][0]["text"]
        assert 10 == moves
        assert "10 workers were replaced before they began it" in text
        assert "It never began, so trying again is safe." in text


async def test_overdue_call_that_is_given_back_is_answered(tmp_path: Path) -> None:
    """Its worker has noticed first that its time is up. It does not move."""
    async with supervised(tmp_path) as (supervisor, job, told):
        supervisor.submit(job)
        job.due = 0.0
        supervisor._on_frame(supervisor.pools.own.active[0], Frame(Kind.UNBEGUN, job.number, b"", b""))
        assert "timed out" in (await told.body)["content"][0]["text"]
        assert 0 == job.moves


async def test_call_that_moves_to_another_placement_while_the_host_leaves_starts_no_worker(tmp_path: Path) -> None:
    """Its pool is made only then. Nobody would end that worker."""
    async with supervised(tmp_path) as (supervisor, job, told):
        leaving = asyncio.ensure_future(supervisor.close())
        await until(lambda: supervisor.pools.own.closing)
        supervisor.pools.placement_of = lambda _: Placement(sys.executable)
        supervisor.submit(job)
        assert "the host is shutting down" in (await told.body)["content"][0]["text"]
        await leaving
        assert not supervisor.pools.workers


NOTED = """
    @skill_command(timeout=0.2)
    async def note(file: str) -> None:
        open(file, "a").close()

    @skill_command
    def say(text: str) -> str:
        return text
"""


@pytest.mark.parametrize("shared", ["true", "false"])
@pytest.mark.parametrize("ending", ["cancel", "timeout"])
async def test_call_that_is_over_before_it_begins_never_begins(tmp_path: Path, ending: str, shared: str) -> None:
    """Its worker got no processor in all that time, and then finds the call and its end at once."""
    settings, file = f"[host]\nstall_limit = 60\nshared_memory = {shared}\n", tmp_path / "note"
    async with inside(make_project(tmp_path, settings, t=NOTED)) as host:
        await host.text("t_say", text="x")
        [worker] = host.project.workers.pools.own.active
        os.kill(worker.process.pid, signal.SIGSTOP)
        try:
            await until(lambda: all(thread.stopped for thread in (threads_of(worker.process.pid) or {}).values()))
            call = host.start_call("t_note", file=str(file))
            await until(lambda: worker.jobs)
            if ending == "cancel":
                host.cancel(call)
                await until(lambda: not worker.jobs)
            else:
                answer = await result(call)
                assert "timeout" == answer["_meta"]["prowess/kind"]
                # Without shared memory, the host does not know it yet.
                is_told = answer["content"][0]["text"].endswith(". It never began, so trying again is safe.")
                assert is_told == (shared == "true")
        finally:
            os.kill(worker.process.pid, signal.SIGCONT)
        await never_ran(host, worker, file)


async def test_call_whose_end_arrives_much_later_than_itself_never_begins(tmp_path: Path) -> None:
    """Without shared memory: a large call is on the way between them."""
    settings, file = "[host]\nstall_limit = 60\nshared_memory = false\n", tmp_path / "note"
    async with inside(make_project(tmp_path, settings, t=NOTED)) as host:
        await host.text("t_say", text="x")
        [worker] = host.project.workers.pools.own.active
        os.kill(worker.process.pid, signal.SIGSTOP)
        try:
            await until(lambda: all(thread.stopped for thread in (threads_of(worker.process.pid) or {}).values()))
            call, large = host.start_call("t_note", file=str(file)), host.start_call("t_say", text="x" * 20_000_000)
            assert "timeout" == (await result(call))["_meta"]["prowess/kind"]
        finally:
            os.kill(worker.process.pid, signal.SIGCONT)
        await result(large)
        await never_ran(host, worker, file)


async def never_ran(host: Inside, worker: Worker, file: Path) -> None:
    """The call has left nothing behind, neither its file nor its number, and the worker goes on."""
    await until(lambda: not worker.may_linger)
    assert "x" == await host.text("t_say", text="x")
    assert not file.exists()  # noqa: ASYNC240 - the loop may wait for that
    assert not worker.withdrawn
    assert not worker.slots


STOPPED = """
    import signal
    from prowess.worker import board, stream

    def stopping(pause):
        def stop(self, number):
            if os.path.exists({flag!r}):
                os.unlink({flag!r})
                os.kill(os.getpid(), signal.SIGSTOP)
            pause(self, number)
        return stop

    for kind in (board.Board, stream.Stream):
        kind.pause = stopping(kind.pause)

    @skill_command(cache_ttl=60, read_only=True)
    async def note(file: str) -> None:
        open(file, "a").close()

    @skill_command
    def say(text: str) -> str:
        return text
"""


@pytest.mark.parametrize("shared", ["true", "false"])
async def test_call_that_is_over_before_it_waits_for_its_turn_never_runs(tmp_path: Path, shared: str) -> None:
    """Its worker stands still when the call has begun, but before it waits, and the command runs after that."""
    settings, file, flag = f"[host]\nstall_limit = 60\nshared_memory = {shared}\n", tmp_path / "note", tmp_path / "flag"
    async with inside(make_project(tmp_path, settings, t=STOPPED.format(flag=str(flag)))) as host:
        await host.text("t_say", text="x")
        [worker] = host.project.workers.pools.own.active
        pid = worker.process.pid
        flag.touch()
        call = host.start_call("t_note", file=str(file))
        await until(lambda: " T " in Path(f"/proc/{pid}/stat").read_text("utf-8"))
        try:
            host.cancel(call)
            await until(lambda: not worker.jobs)
        finally:
            os.kill(pid, signal.SIGCONT)
        await never_ran(host, worker, file)


LATE = """
    import signal
    from prowess.calls import threads as pool

    def stopping(self, job, worker, perform=pool.Threads._perform):
        if os.path.exists({flag!r}):
            os.unlink({flag!r})
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return perform(self, job, worker)

    pool.Threads._perform = stopping

    @skill_command(timeout=0.2)
    def note(file: str) -> None:
        open(file, "a").close()

    @skill_command
    def say(text: str) -> str:
        return text
"""


async def test_sync_call_whose_thread_gets_a_processor_too_late_never_runs(tmp_path: Path) -> None:
    """The caller has been told that the time is up; the thread goes on before the event loop can stop it."""
    settings, file, flag = "[host]\nstall_limit = 60\n", tmp_path / "note", tmp_path / "flag"
    async with inside(make_project(tmp_path, settings, t=LATE.format(flag=str(flag)))) as host:
        await host.text("t_say", text="x")
        [worker] = host.project.workers.pools.own.active
        flag.touch()
        try:
            answer = await host.call("t_note", file=str(file))
        finally:
            os.kill(worker.process.pid, signal.SIGCONT)
        assert "timeout" == answer["_meta"]["prowess/kind"]
        await never_ran(host, worker, file)
