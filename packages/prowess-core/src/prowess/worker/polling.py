"""Event loops that poll for input for a moment before they block.

A wake-up costs a process more than a short wait, in time and in cold caches, and calls often follow one another within
that moment. If they do not, a loop soon stops polling.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import time
from collections.abc import Callable
from typing import Final, TypeAlias, cast

__all__ = ["Attentive", "new_loop", "new_selector", "processors"]

_MOMENT: Final = 150e-6
"""Seconds of looking: about what a small call takes on the other side of a pipe."""
_MOST_MISSES: Final = 10
"""After so many only one of 1023 waits begins with a look."""
_TAKEN: Final = 1e-3
"""Seconds late that show that others want this processor: whoever sleeps there is woken sooner than he gets his turn."""
_COST: Final = 4
"""As how many misses a look counts that was so late: it has cost a call milliseconds."""

_Ready: TypeAlias = "list[tuple[selectors.SelectorKey, int]]"
_give_way: Final = cast("Callable[[], None]", getattr(os, "sched_yield", lambda: None))
"""Let somebody else have this processor if anybody wants it: it may be the one whose word we wait for."""


class Attentive(selectors.DefaultSelector):
    """Looks again and again for a moment before it sleeps. Whenever that was in vain it does so less often."""

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, give_way: Callable[[], None] = _give_way
    ) -> None:
        super().__init__()
        self._clock = clock
        self._give_way = give_way
        self._misses = 0
        self._asleep = 0
        """How many more waits begin without a look."""

    def select(self, timeout: float | None = None) -> _Ready:
        """What is ready, after so many seconds, and at most a moment more, at the latest."""
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        if self._asleep:
            self._asleep -= 1
            return super().select(timeout)
        return self._look(_MOMENT if timeout is None else min(timeout, _MOMENT)) or super().select(timeout)

    def _look(self, seconds: float) -> _Ready:
        end = self._clock() + seconds
        while True:
            ready = super().select(0)
            late = self._clock() - end
            if ready or late > 0:
                break
            self._give_way()
        if ready and late < _TAKEN:
            self._misses = max(self._misses - 1, 0)
        else:
            self._misses = min(self._misses + (1 if late < _TAKEN else _COST), _MOST_MISSES)
            self._asleep = 2**self._misses - 2
        return ready


def new_selector(processors: int) -> selectors.BaseSelector:
    """An attentive one, unless there is a single processor: whoever looks keeps the one he waits for from working."""
    return Attentive() if processors > 1 else selectors.DefaultSelector()


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop for one end of a conversation, to be used by a process that does little else."""
    return asyncio.SelectorEventLoop(new_selector(processors()))


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
