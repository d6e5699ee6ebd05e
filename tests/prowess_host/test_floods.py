"""A flood of reports: memory stays bounded, what is told grows, the newest arrives, and other calls are answered."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from anyio import fail_after
from patience import PATIENCE
from piped import hosted, make_project, result

SKILL = """
    from collections.abc import Generator

    @skill_command
    async def at_once(count: int, ctx: Context) -> str:
        for number in range(count):
            ctx.progress(number, count, "a message of some length")
        return "done"

    @skill_command
    async def politely(count: int, ctx: Context) -> str:
        for number in range(count):
            await ctx.progress(number, count, "a message of some length")
            if number % 100 == 0:
                await asyncio.sleep(0)
        return "done"

    @skill_command
    def in_thread(count: int, ctx: Context) -> str:
        for number in range(count):
            ctx.progress(number, count, "a message of some length")
        return "done"

    @skill_command
    def by_steps(count: int) -> Generator[None, None, str]:
        for _ in range(count):
            yield
        return "done"

    @skill_command
    async def logging(count: int, ctx: Context) -> str:
        for number in range(count):
            ctx.info(number)
        return "done"

    @skill_command
    async def pid() -> int:
        return os.getpid()
"""
COUNT = 100_000
MOST = 200_000
"""Kilobytes that a host or a worker may ever take."""


def peak(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def make(tmp_path: Path) -> Path:
    return make_project(tmp_path, "[host]\nstall_limit = 200\n", t=SKILL)


@pytest.mark.parametrize(
    "name, last",
    [("t_at_once", COUNT - 1), ("t_politely", COUNT - 1), ("t_in_thread", COUNT - 1), ("t_by_steps", COUNT)],
)
async def test_a_client_that_reads_hears_of_growth_and_of_the_newest(tmp_path: Path, name: str, last: int):
    async with hosted(make(tmp_path)) as host:
        worker = int((await host.call("t_pid"))["content"][0]["text"])
        flood = host.start_call(name, count=COUNT, progress="p")
        if name != "t_at_once":
            assert worker == int((await host.call("t_pid"))["content"][0]["text"])
        assert "done" == (await result(flood))["content"][0]["text"]
        assert max(peak(host.pid), peak(worker)) < MOST
        told = [note["params"]["progress"] for note in host.notes if note["method"] == "notifications/progress"]
    assert (sorted(set(told)), last) == (told, told[-1])


async def test_logs_that_come_too_fast_are_dropped_and_that_is_told(tmp_path: Path):
    async with hosted(make(tmp_path)) as host:
        await host.ask("logging/setLevel", level="debug")
        await host.call("t_logging", count=COUNT)
        worker = int((await host.call("t_pid"))["content"][0]["text"])
        await host.call("t_logging", count=1)
        transport = host.process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
        transport.pause_reading()
        flood = host.start_call("t_logging", count=COUNT)
        with fail_after(PATIENCE):
            while threads_work(worker):  # noqa: ASYNC110 - processes send no events
                await asyncio.sleep(0.2)
        transport.resume_reading()
        await result(flood)
        await host.call("t_logging", count=1)
        assert max(peak(host.pid), peak(worker)) < MOST
        told = [note["params"]["data"] for note in host.notes if note["method"] == "notifications/message"]
    numbers = [each for each in told if isinstance(each, int)]
    dropped = [int(each.split()[0]) for each in told if isinstance(each, str)]
    assert 2 * COUNT + 2 == len(numbers) + sum(dropped)


async def test_a_client_that_does_not_read_costs_no_memory(tmp_path: Path):
    """Neither the host nor the worker keeps what nobody takes."""
    async with hosted(make(tmp_path), opened=False) as host:
        await host.open()
        worker = int((await host.call("t_pid"))["content"][0]["text"])
        transport = host.process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
        transport.pause_reading()
        names = ["t_at_once", "t_politely", "t_in_thread", "t_by_steps"]
        calls = [host.start_call(name, count=COUNT, progress=name) for name in names]
        with fail_after(PATIENCE):
            while threads_work(worker):  # noqa: ASYNC110 - processes send no events
                await asyncio.sleep(0.2)
        assert max(peak(host.pid), peak(worker)) < MOST
        transport.resume_reading()
        for call in calls:
            assert "done" == (await result(call))["content"][0]["text"]
        told = {
            name: [note["params"]["progress"] for note in host.notes if note["params"].get("progressToken") == name]
            for name in names
        }
        assert [COUNT - 1, COUNT - 1, COUNT - 1, COUNT] == [told[name][-1] for name in names]
        assert worker == int((await host.call("t_pid"))["content"][0]["text"])


def threads_work(pid: int) -> bool:
    """Whether a process has used its processor just now."""
    seen = _used.get(pid)
    _used[pid] = used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return seen != used


_used: dict[int, list[str]] = {}
