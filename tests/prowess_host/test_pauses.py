"""Processes that get no processor for a while: every request is answered once, and right, only later."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from piped import Client, hosted, make_project, processes, result, until

SKILL = """
    from pathlib import Path

    def ran(notes: str, number: int) -> None:
        with open(notes, "a") as file:
            file.write(f"{number}\\n")

    @skill_command
    def say(notes: str, number: int) -> str:
        ran(notes, number)
        print("printed", number)
        time.sleep(0.05)
        return f"said {number}"

    @skill_command
    async def say_async(notes: str, number: int) -> str:
        ran(notes, number)
        print("printed", number)
        await asyncio.sleep(0.05)
        return f"said {number}"

    @skill_command
    async def fill(notes: str, number: int) -> str:
        ran(notes, number)
        print("printed", number)
        return f"said {number}" + " " * 300_000

    @skill_command
    async def wait(began: str) -> None:
        Path(began).touch()
        await asyncio.Event().wait()
"""
LONGEST = 2.5
"""Seconds of a pause: much longer than the stall limit, and shorter than the time in which a stopped worker is given up."""
PAUSES = 2
AT_ONCE = 8


def paused(pids: list[int], number: int) -> None:
    """Stop processes, or let them go on, as far as they still live."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.asynccontextmanager
async def pauses(host: Client, rng: random.Random) -> AsyncGenerator[asyncio.Task[None]]:
    """Stops some processes of a host now and then, a few times. Lets them go on in any case."""

    async def pause() -> None:
        for _ in range(PAUSES):
            chosen = rng.choice([host.workers(), host.workers(), [host.pid], list(processes(host.mark))])
            paused(chosen, signal.SIGSTOP)
            await asyncio.sleep(rng.uniform(0.3, LONGEST))
            paused(chosen, signal.SIGCONT)
            await asyncio.sleep(rng.uniform(0.0, 0.2))

    pausing = asyncio.ensure_future(pause())
    try:
        yield pausing
        await pausing
    finally:
        pausing.cancel()
        paused(list(processes(host.mark)), signal.SIGCONT)


@pytest.mark.usefixtures("board")
@pytest.mark.parametrize("seed", [1])
async def test_calls_are_answered_once_and_right_although_processes_are_stopped_now_and_then(tmp_path: Path, seed: int):
    """Beside calls that are cancelled, and after the end of input. Each runs once, and nothing that it prints is missing."""
    rng, notes, done = random.Random(seed), tmp_path / "notes", 0
    async with hosted(make_project(tmp_path, t=SKILL), forked=True) as host:
        await host.tools()

        def begin() -> list[asyncio.Future]:
            nonlocal done
            names = [rng.choice(["t_say", "t_say_async", "t_fill"]) for _ in range(AT_ONCE)]
            done += AT_ONCE
            return [
                host.start_call(name, notes=str(notes), number=number)
                for number, name in enumerate(names, done - AT_ONCE)
            ]

        async def judge(answers: list[asyncio.Future]) -> None:
            said = [(await result(answer))["content"][0]["text"].rstrip() for answer in answers]
            first = int(said[0].removeprefix("said "))
            assert [f"said {number}" for number in range(first, first + AT_ONCE)] == said

        async with pauses(host, rng) as pausing:
            while not pausing.done():
                began = tmp_path / f"began{done}"
                given_up = host.start_call("t_wait", began=str(began))
                answers = begin()
                await until(began.exists)
                host.cancel(given_up)
                await judge(answers)
        async with pauses(host, rng):
            answers = begin()
            host.close_input()
            await judge(answers)
            assert 0 == await host.ended()
        assert Counter(map(str, range(done))) == Counter(notes.read_text().split())
        assert Counter(f"printed {number}" for number in range(done)) == Counter(
            line.partition("] ")[2] for line in host.stderr.splitlines() if "printed" in line
        )
        assert "blocks the event loop" not in host.stderr
