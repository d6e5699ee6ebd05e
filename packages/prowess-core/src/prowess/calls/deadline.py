"""The deadlines of calls: each is a cancel scope, and all on one event loop share a timer.

Most calls end long before their time is over, so nothing is done for one of them but to note when that is.
"""

from __future__ import annotations

import asyncio
from functools import cache
from math import inf
from typing import Final
from weakref import WeakKeyDictionary

import anyio

__all__ = ["TIMED_OUT", "Deadline", "Deadlines"]

TIMED_OUT: Final = "timed out"
"""The message of a cancellation by the host after a timeout."""


class Deadline:
    """When the time of one call is over. It may be moved meanwhile."""

    __slots__ = ("_deadlines", "_when", "scope")

    def __init__(self, deadlines: Deadlines, when: float) -> None:
        """`when` is a time of the event loop."""
        self._deadlines = deadlines
        self._when = when
        self.scope = _scope_class()()
        """What is cancelled then."""

    @property
    def when(self) -> float:
        """As a time of the event loop; infinite while the clock stands still."""
        return self._when

    @property
    def is_over(self) -> bool:
        """Whether the time has passed."""
        return self.scope.cancel_called

    def move(self, when: float) -> None:
        """Another time. Of no effect when the call is over."""
        self._when = when
        self._deadlines.moved(self)


class Deadlines:
    """The deadlines of the calls that run on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._running: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._next = inf

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Deadlines:
        """Those of an event loop."""
        found = _deadlines.get(loop)
        if found is None:
            found = _deadlines[loop] = cls(loop)
        return found

    def begin(self, seconds: float) -> Deadline:
        """A deadline so many seconds from now."""
        when = self._loop.time() + seconds
        deadline = Deadline(self, when)
        self._running.add(deadline)
        if when < self._next:
            self._check_at(when)
        return deadline

    def end(self, deadline: Deadline) -> None:
        """The call is over. The timer stays: the next call needs it as well."""
        self._running.discard(deadline)

    def moved(self, deadline: Deadline) -> None:
        """A call has another deadline now."""
        if deadline in self._running and deadline.when < self._next:
            self._check_at(deadline.when)

    def _check_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next = None, when
        if when < inf:
            self._timer = self._loop.call_at(when, self._check)

    def _check(self) -> None:
        now = self._next  # and not the time: timers fire a little too early by the clock
        for deadline in [each for each in self._running if each.when <= now]:
            self._running.discard(deadline)
            deadline.scope.cancel()
        self._check_at(min((each.when for each in self._running), default=inf))


_deadlines: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Deadlines]] = WeakKeyDictionary()


@cache
def _scope_class() -> type[anyio.CancelScope]:
    """What anyio makes of a `CancelScope` on asyncio. To ask it with every call takes longer than the scope itself."""
    return type(anyio.CancelScope())
