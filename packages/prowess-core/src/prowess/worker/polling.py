"""A selector that polls for input for a moment before it blocks.

A wake-up costs more than a short wait, in time and in cold caches, and the next call often follows within a moment. If it
does not, it soon stops polling.
"""

from __future__ import annotations

import math
import os
import select
import selectors
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, cast

__all__ = ["Attentive", "Ready"]

_MOMENT: Final = 150e-6
"""Seconds of polling: about the time of a small call on the other side."""
_MOST_MISSES: Final = 10
"""After so many polls without input, only one of 1023 waits begins with a poll."""
_TAKEN: Final = 1e-3
"""A delay in seconds that shows that another program needs this processor. Then sleeping is faster than yielding."""
_COST: Final = 4
"""The number of misses that such a late poll counts as, because it has cost a call milliseconds."""
_LONG: Final = 0.01
"""Seconds of a wait in which any answer would have come."""

Ready: TypeAlias = list[tuple[selectors.SelectorKey, int]]
_give_way: Final = cast("Callable[[], None]", getattr(os, "sched_yield", lambda: None))
"""Yield the processor, perhaps to the process that we wait for."""


_Base: TypeAlias = selectors.DefaultSelector
if not TYPE_CHECKING and hasattr(selectors, "EpollSelector"):  # pragma: no branch - elsewhere than on Linux

    class _Base(selectors.EpollSelector):
        """`select` in one function: those of the standard library take longer than the system call."""

        def select(self, timeout: float | None = None) -> Ready:
            keys = self._fd_to_key
            seconds = -1 if timeout is None else math.ceil(timeout * 1e3) * 1e-3 if timeout > 0 else 0
            ready: Ready = []  # calling the alias would take longer than the rest
            for fd, event in self._selector.poll(seconds, len(keys) or 1):
                key = keys.get(fd)
                if key is not None:
                    writable = selectors.EVENT_WRITE if event & ~select.EPOLLIN else 0
                    readable = selectors.EVENT_READ if event & ~select.EPOLLOUT else 0
                    ready.append((key, (readable | writable) & key.events))
            return ready


class Attentive(_Base):
    """Polls for a moment before it blocks; less often after each poll without input."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        give_way: Callable[[], None] = _give_way,
        *,
        never: bool = False,
    ) -> None:
        """`never` is for a machine with a single processor, where polling would keep the other process from running."""
        super().__init__()
        self._never = never
        self._clock = clock
        self._give_way = give_way
        self._misses = 0
        self._asleep = 0
        """The number of next waits without a poll."""
        self._by_clock = False
        """Whether a timer ended the last wait after a long time, so that no message is expected."""

    def select(self, timeout: float | None = None) -> Ready:
        """Wait like `select`, up to the timeout or a moment longer."""
        if self._never or (timeout is not None and timeout <= 0):
            return super().select(timeout)
        ready: Ready = []
        if self._asleep:
            self._asleep -= 1
        elif not self._by_clock:
            ready = self._look(_MOMENT if timeout is None else min(timeout, _MOMENT))
        if not ready:
            ready = super().select(timeout)
        self._by_clock = not ready and timeout is not None and timeout > _LONG
        return ready

    def _look(self, seconds: float) -> Ready:
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
