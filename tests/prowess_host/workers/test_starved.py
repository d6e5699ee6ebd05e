"""A worker that gets no processor has as much time as any other, but nobody waits for it without end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from anyio import fail_after
from inside import Inside, inside
from patience import PATIENCE
from piped import make_project, result, until

from prowess.settings.settings import Settings
from prowess.worker.progress import Progress, Thread
from prowess_host.workers import timeouts
from prowess_host.workers.jobs import Job
from prowess_host.workers.lifecycle import State
from prowess_host.workers.supervisor import Supervisor
from prowess_host.workers.worker import Worker

MANY = 20
"""Measurements: together they take several times as long as each grace below."""
SETTINGS = "[host]\nstall_limit = 0.2\ncancel_grace = 0.1\ngrace = 0.1\n"
SKILL = """
    import asyncio
    from pathlib import Path

    @skill_command
    def hold(gate: str, began: str) -> str:
        Path(began).touch()
        while not os.path.exists(gate):
            time.sleep(0.01)
        Path(gate + "_ended").touch()
        return "held"

    @skill_command(timeout=0.3)
    def late(gate: str) -> None:
        while not os.path.exists(gate):
            time.sleep(0.01)
        Path(gate + "_ended").touch()

    @skill_command
    async def nap(began: str) -> None:
        Path(began).touch()
        await asyncio.sleep(3600)
"""

TELL = """
    @skill_command(timeout=60)
    def tell(size: int) -> str:
        return "x" * size
"""


class Starved(Progress):
    """Says of a process that it waits for a processor all the time, until it `goes_on`."""

    def __init__(self) -> None:
        super().__init__(lambda: {1: Thread(0.0, 0.0, runnable=True)}, int)
        self.asked = 0
        self.goes_on = False

    def usable(self, seconds: float) -> float:
        self.asked += 1
        return seconds if self.goes_on else super().usable(seconds)

    async def often(self) -> None:
        """Until it was asked many times more."""
        enough = self.asked + MANY
        await until(lambda: self.asked > enough)


class Stepped(Progress):
    """Says of a process that it could run for as long as it is told."""

    def __init__(self) -> None:
        super().__init__(lambda: None, int)
        self.left = 0.0

    def usable(self, seconds: float) -> float:
        self.is_exact = True
        step = min(self.left, 0.02)
        self.left -= step
        return step


def starve(host: Inside) -> tuple[Worker, Starved]:
    """The only worker of a host, which gets no processor from now on."""
    (worker,) = host.project.workers.pools.own.active
    worker.progress = progress = Starved()
    progress.start()
    return worker, progress


async def begin(host: Inside, folder: Path, *names: str) -> list[asyncio.Future]:
    """A running call for each name, which ends when there is a file of this name."""
    calls = [host.start_call("t_hold", gate=str(folder / name), began=str(folder / f"{name}_began")) for name in names]
    await until(lambda: all((folder / f"{name}_began").exists() for name in names))
    return calls


def project(tmp_path: Path) -> Path:
    return make_project(tmp_path, SETTINGS, t=SKILL)


async def test_a_cancelled_call_has_its_grace_although_its_worker_is_starved(tmp_path: Path):
    """The worker stays, with everything that runs in it. As soon as it can run, the grace goes by."""
    async with inside(project(tmp_path)) as host:
        (call,) = await begin(host, tmp_path, "one")
        worker, progress = starve(host)
        host.cancel(call)
        await progress.often()
        assert State.READY is worker.state
        progress.goes_on = True
        await until(lambda: worker.state is State.GONE)


async def go_on(worker: Worker, progress: Stepped, seconds: float) -> None:
    """Let a worker run for so long, and answer what it was asked."""
    progress.left = seconds
    await until(lambda: (progress.left <= 0 and not worker.questioned) or not worker.gets_calls)


async def test_a_call_that_is_cancelled_later_has_its_whole_grace(tmp_path: Path):
    """A worker tells how many calls go on, when it is asked about the first one. It may be the second."""
    async with inside(project(tmp_path)) as host:
        (late,) = await begin(host, tmp_path, "late")
        nap = host.start_call("t_nap", began=str(tmp_path / "nap"))
        await until((tmp_path / "nap").exists)
        (worker,) = host.project.workers.pools.own.active
        worker.progress = progress = Stepped()

        host.cancel(nap)
        await until(lambda: len(worker.given_up) == 1)
        await go_on(worker, progress, 0.08)
        host.cancel(late)
        await until(lambda: len(worker.given_up) == 3)  # the worker reports the thread of the second one as well
        await go_on(worker, progress, 0.06)
        assert (State.READY, 3) == (worker.state, len(worker.given_up))
        (tmp_path / "late").touch()
        await until((tmp_path / "late_ended").exists)
        assert State.READY is worker.state


async def test_a_call_that_times_out_later_has_its_whole_grace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its worker gives it up by itself, and reports one more. The question about the first one must not cost it its worker."""
    monkeypatch.setattr(timeouts, "_LATE", PATIENCE)  # else the host may give it up first
    async with inside(project(tmp_path)) as host:
        nap = host.start_call("t_nap", began=str(tmp_path / "nap"))
        await until((tmp_path / "nap").exists)
        (worker,) = host.project.workers.pools.own.active
        worker.progress = progress = Stepped()

        host.cancel(nap)
        await until(lambda: len(worker.given_up) == 1)
        await go_on(worker, progress, 0.08)
        assert "timeout" == (await host.call("t_late", gate=str(tmp_path / "late")))["_meta"]["prowess/kind"]
        await until(lambda: len(worker.given_up) == 2)
        await go_on(worker, progress, 0.06)
        assert (State.READY, 2) == (worker.state, len(worker.given_up))
        (tmp_path / "late").touch()
        await until((tmp_path / "late_ended").exists)
        progress.left = 1.0
        await until(lambda: not worker.given_up)
        assert State.READY is worker.state


async def test_cancelled_calls_do_not_hide_one_that_is_stuck(tmp_path: Path):
    """However many there are: the worker tells only their number."""
    async with inside(project(tmp_path)) as host:
        (stuck,) = await begin(host, tmp_path, "stuck")
        (worker,) = host.project.workers.pools.own.active
        worker.progress = progress = Stepped()
        host.cancel(stuck)
        for number in range(40):
            if not worker.gets_calls:
                break
            file = tmp_path / f"nap{number}"
            nap = host.start_call("t_nap", began=str(file))
            await until(lambda file=file: file.exists() or not worker.gets_calls)
            host.cancel(nap)
            progress.left = 0.04
            await until(lambda: progress.left <= 0 or not worker.gets_calls)
        assert not worker.gets_calls


async def test_the_neighbours_of_a_call_that_does_not_end_have_their_grace_although_they_are_starved(tmp_path: Path):
    async with inside(project(tmp_path)) as host:
        call, neighbour = await begin(host, tmp_path, "one", "two")
        (worker,) = host.project.workers.pools.own.active
        host.cancel(call)
        await until(lambda: worker.state is State.DRAINING)
        worker.progress = progress = Starved()
        progress.start()
        await progress.often()
        (tmp_path / "two").touch()
        assert "held" == (await result(neighbour))["content"][0]["text"]


async def begin_to_tell(host: Inside, size: int) -> tuple[asyncio.Future, Worker, Job]:
    """A call whose answer has come to the host, which has not read it: that of a long one in part. Its time is up."""
    await host.text("t_tell", size=1)
    answer = host.start_call("t_tell", size=size)
    (worker,) = host.project.workers.pools.own.active
    await until(lambda: worker.jobs)
    ((_, job),) = worker.jobs.items()
    latest = time.monotonic() + PATIENCE
    while time.monotonic() < latest:
        with contextlib.suppress(BlockingIOError):
            if len(worker.process._sock.recv(size, socket.MSG_PEEK)) >= min(size, 100_000):
                break
        time.sleep(0.01)  # noqa: ASYNC251 - the loop stands still
    job.due = 0.0
    return answer, worker, job


async def test_an_answer_that_came_while_the_host_stood_still_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Although the time of its call is up when the host goes on, and it takes several reads."""
    monkeypatch.setattr(timeouts, "_ARRIVING", 0.0)
    monkeypatch.setattr(timeouts, "_READING", PATIENCE)
    async with inside(make_project(tmp_path, t=TELL)) as host:
        (worker,) = await until(lambda: host.project.workers.pools.own.active)
        worker.process.link._chunk = bytearray(1000)
        answer, worker, _ = await begin_to_tell(host, size=10_000)
        clocks = host.project.workers._timeouts
        while time.monotonic() < clocks._next + 2 * clocks._often:
            time.sleep(0.01)  # noqa: ASYNC251 - the loop stands still
        assert "x" * 10_000 == (await result(answer))["content"][0]["text"]


async def test_the_rest_of_an_answer_may_come_after_the_time_of_its_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A long one takes its time, most of all if the worker gets no processor."""
    monkeypatch.setattr(timeouts, "_ARRIVING", math.inf)
    async with inside(make_project(tmp_path, t=TELL)) as host:
        answer, worker, _ = await begin_to_tell(host, size=600_000)
        os.kill(worker.process.pid, signal.SIGSTOP)
        await until(lambda: worker.pings)  # with every ping, all calls are looked at
        assert not answer.done()
        os.kill(worker.process.pid, signal.SIGCONT)
        assert "x" * 600_000 == (await result(answer))["content"][0]["text"]


async def test_an_answer_that_does_not_go_on_ends_with_its_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A worker may stand still in the middle of it."""
    monkeypatch.setattr(timeouts, "_ARRIVING", 0.0)
    async with inside(make_project(tmp_path, t=TELL)) as host:
        answer, worker, job = await begin_to_tell(host, size=600_000)
        os.kill(worker.process.pid, signal.SIGSTOP)
        job.due = time.monotonic()
        assert "t.tell timed out after 60 s" == (await result(answer))["content"][0]["text"]
        os.kill(worker.process.pid, signal.SIGCONT)


async def test_the_first_list_does_not_wait_for_a_worker_that_never_runs(tmp_path: Path):
    """It waits ten times as long as for one that runs."""
    root = project(tmp_path)
    supervisor = Supervisor(root, Settings.load(root, environ={}), {})
    supervisor.start()
    (worker,) = supervisor.pools.own.active
    worker.progress = Starved()
    never = asyncio.ensure_future(asyncio.Event().wait())
    try:
        with fail_after(PATIENCE):
            assert not await supervisor.generations.within([never], 0.05)  # type: ignore[list-item]
    finally:
        never.cancel()
        await supervisor.close()
