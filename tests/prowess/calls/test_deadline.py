"""Deadlines: one timer for all on a loop, and each may move."""

from __future__ import annotations

import asyncio
import gc
import math
import weakref
from collections.abc import Callable

import anyio
from patience import PATIENCE

from prowess.calls.deadline import Deadline, Deadlines


class Timers:
    """A loop that only remembers its timers."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: dict[float, Callable[[], None]] = {}

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, check: Callable[[], None]) -> Timers.Handle:
        self.due[when] = check
        return Timers.Handle(self, when)

    class Handle:
        """Of one of them."""

        def __init__(self, timers: Timers, when: float) -> None:
            self.timers, self.when = timers, when

        def cancel(self) -> None:
            self.timers.due.pop(self.when, None)

    def pass_to(self, when: float) -> None:
        self.now = when
        for each in sorted(due for due in self.due if due <= when):
            self.due.pop(each)()


def begun(*seconds: float) -> tuple[Timers, Deadlines, list[Deadline]]:
    timers = Timers()
    deadlines = Deadlines(timers)  # type: ignore[arg-type]
    return timers, deadlines, [deadlines.begin(each) for each in seconds]


async def test_many_deadlines_have_one_timer():
    """For the next of them; and what is over is not cancelled."""
    timers, deadlines, (late, soon, ended) = begun(30, 10, 20)
    assert [110] == list(timers.due)
    deadlines.end(ended)
    timers.pass_to(110)
    assert (True, False) == (soon.is_over, late.is_over)
    assert [130] == list(timers.due)
    timers.pass_to(130)
    assert (True, False, {}) == (late.is_over, ended.is_over, timers.due)


async def test_a_timer_without_calls_ends():
    """It is set again for the next call."""
    timers, deadlines, (only,) = begun(10)
    deadlines.end(only)
    timers.pass_to(110)
    assert {} == timers.due
    deadlines.begin(5)
    assert [115] == list(timers.due)


async def test_a_deadline_can_be_moved():
    """Out of reach, later and sooner; not when the call is over."""
    timers, deadlines, (moved, ended) = begun(10, 20)
    moved.move(math.inf)
    timers.pass_to(110)
    assert not moved.is_over
    assert [120] == list(timers.due)
    moved.move(115)
    assert [115] == list(timers.due)
    deadlines.end(ended)
    ended.move(112)
    timers.pass_to(115)
    assert (True, False) == (moved.is_over, ended.is_over)


async def test_a_loop_has_its_own():
    """And what runs there is cancelled in time."""
    loop = asyncio.get_running_loop()
    deadlines = Deadlines.of(loop)
    assert deadlines is Deadlines.of(loop)
    deadline = deadlines.begin(0.01)
    with anyio.fail_after(PATIENCE), deadline.scope:
        await anyio.sleep_forever()
    assert deadline.is_over


def test_a_loop_that_is_closed_is_not_kept():
    """A program may make a loop for each call."""
    loop = asyncio.new_event_loop()
    deadlines = Deadlines.of(loop)
    deadlines.end(deadlines.begin(1000))
    known = weakref.ref(loop)
    loop.close()
    del loop, deadlines
    gc.collect()
    assert known() is None
