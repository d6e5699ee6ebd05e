"""Whatever comes late, and in whatever order: each call is answered once and right, runs at most once, and leaves nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import pytest
from inside import Inside, inside
from late import LateLoop
from memory import MemoryClient
from piped import STATELESS, Message, make_project, result, until, write_skill

SEEDS = [int(seed) for seed in os.environ.get("LATE_SEEDS", "7").split()]
"""More of them are for those who change how calls, workers and connections work."""
ACTS = ["call"] * 20 + ["cancel"] * 4 + ["save", "kill", "stop", "visit"]
COUNT = 80
LIMIT = 2
SETTINGS = """
    [host]
    stall_limit = 0.5
    cancel_grace = 0.3
    grace = 1
"""
SKILL = """
    def note(what, notes, number):
        with open(notes, "a") as file:
            file.write(f"{what} {number}\\n")

    @skill_command
    async def say(notes: str, number: int, seconds: float) -> str:
        note("say", notes, number)
        await asyncio.sleep(seconds)
        return f"said {number}"

    @skill_command
    def say_sync(notes: str, number: int, seconds: float) -> str:
        note("say_sync", notes, number)
        time.sleep(seconds)
        return f"said {number}"

    @skill_command(timeout=0.3)
    def hasty(notes: str, number: int, seconds: float) -> str:
        note("hasty", notes, number)
        time.sleep(2 * seconds)
        return f"said {number}"

    @skill_command(concurrency=2)
    async def limited(notes: str, number: int, seconds: float) -> str:
        note("limited", notes, number)
        try:
            await asyncio.sleep(seconds)
        finally:
            note("done", notes, number)
        return f"said {number}"

    @skill_command
    async def reports(ctx: Context, notes: str, number: int, seconds: float) -> str:
        note("reports", notes, number)
        for step in range(5):
            ctx.progress(step, 5, f"{number} goes on")
            await asyncio.sleep(seconds / 5)
        return f"said {number}"

    @skill_command
    async def dies(notes: str, number: int, seconds: float) -> str:
        note("dies", notes, number)
        await asyncio.sleep(seconds)
        os._exit(3)
"""
COMMANDS = ["say", "say", "say_sync", "say_sync", "hasty", "limited", "limited", "reports", "dies"]
ENDS = {"ok", "timeout", "worker_lost"}
"""How these calls may end."""


class History:
    """What clients, people and chance do to one host."""

    def __init__(self, host: Inside, root: Path, chance: Random) -> None:
        self._host, self._root, self._chance = host, root, chance
        self._notes = root / "notes"
        self._notes.touch()
        self.answers: list[Any] = []
        """To the calls by number; `None` for those that a client has given up."""
        self._visits = 0
        host.on_message = self._hear

    async def go_on(self) -> None:
        for _ in range(COUNT):
            getattr(self, self._chance.choice(ACTS))()
            await asyncio.sleep(self._chance.choice([0.0, 0.0, 0.01, 0.05]) * self._chance.random())

    # What happens

    def call(self) -> None:
        token = {"progressToken": len(self.answers)}
        self.answers.append(self._host.request("tools/call", _meta=token, **self._next()))

    def _next(self) -> Message:
        seconds = self._chance.choice([0.0, 0.1, 0.4]) * self._chance.random()
        return {
            "name": f"t_{self._chance.choice(COMMANDS)}",
            "arguments": {"notes": str(self._notes), "number": len(self.answers), "seconds": seconds},
        }

    def cancel(self) -> None:
        waiting = [number for number, answer in enumerate(self.answers) if answer is not None and not answer.done()]
        if waiting:
            number = self._chance.choice(waiting)
            self._host.notify("notifications/cancelled", requestId=self.answers[number].number)
            self.answers[number] = None

    def visit(self) -> None:
        """Another client calls, and leaves."""
        visitor = MemoryClient(self._host.project, STATELESS)
        visitor.request("tools/call", **self._next())
        self.answers.append(None)
        asyncio.get_running_loop().call_later(0.2 * self._chance.random(), visitor.connection.close)

    def save(self) -> None:
        saved = write_skill(self._root / "saved", "t.py", f"{SKILL}# {len(self.answers)}\n")
        saved.replace(self._root / "skills" / "t.py")  # half a file would have no commands

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        pid = self._signal(signal.SIGSTOP)
        asyncio.get_running_loop().call_later(self._chance.random(), self._signal, signal.SIGCONT, pid)

    def _signal(self, number: int, pid: int = 0) -> int:
        pid = pid or self._chance.choice([*self._host.workers(), 0])
        if pid in self._host.living:
            with contextlib.suppress(ProcessLookupError):  # the host hears late of its end
                os.kill(pid, number)
        return pid

    # What is true

    def _hear(self, message: Message) -> None:
        if message["method"] == "notifications/progress":
            answer, told = self.answers[message["params"]["progressToken"]], message["params"]
            assert answer is None or not answer.done(), f"after the answer: {told}"
            assert told["message"] == f"{told['progressToken']} goes on"

    async def judge(self) -> None:
        answers = {number: await result(answer) for number, answer in enumerate(self.answers) if answer is not None}
        lines = [line.split() for line in self._notes.read_text().splitlines()]
        notes = [(what, int(number)) for what, number in lines]
        runs = Counter(number for what, number in notes if what != "done")
        assert {1} == {*runs.values()}, runs
        for number, answer in answers.items():
            text, kind = answer["content"][0]["text"], answer.get("_meta", {}).get("prowess/kind", "ok")
            assert kind in ENDS, answer
            if kind == "ok":
                assert (f"said {number}", 1) == (text, runs[number])
            elif "never began" in text:
                assert not runs[number], text
        whole = {number for what, number in notes if what == "done"}  # others may have ended with their worker
        steps = {"limited": 1, "done": -1}
        at_once = accumulate(steps.get(what, 0) for what, number in notes if number in whole)
        assert max(at_once, default=0) <= LIMIT
        workers = self._host.project.workers
        await until(lambda: not (workers._jobs() or any(worker.given_up for worker in workers.pools.workers)))
        assert (0, 0) == (self._host.connection.in_flight, self._host.connection.running)
        assert "Traceback" not in self._host.stderr, self._host.stderr


async def history(root: Path, chance: Random) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    shared = {"PROWESS_HOST__SHARED_MEMORY": chance.choice(["true", "false"])}
    async with inside(make_project(root, SETTINGS, t=SKILL), env=shared) as host:
        await host.tools()
        told = History(host, root, chance)
        await told.go_on()
        await told.judge()
    assert [] == faults


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_are_answered_once_and_right_whatever_comes_late(seed: int, tmp_path: Path) -> None:
    """Beside calls that are cancelled, clients that leave, saves, and workers that are killed or stopped."""
    with asyncio.Runner(loop_factory=lambda: LateLoop(Random(seed))) as runner:
        runner.run(history(tmp_path, Random(seed)))
