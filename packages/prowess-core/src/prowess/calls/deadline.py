"""The deadlines of calls: each is a cancel scope, and all deadlines of an event loop share one timer.

Most calls end long before their deadline, so starting one only notes its time.
"""

from __future__ import annotations

import asyncio
from functools import cache
from math import inf
from typing import Final

import anyio

__all__ = ["TIMED_OUT", "Deadline", "Deadlines", "prepare"]

_NAME: Final = "_prowess_deadlines"
"""The attribute of a loop that holds its deadlines, so that they end with it."""
TIMED_OUT: Final = "timed out"
"""The message of a cancellation by the host after a timeout."""


class Deadline:
    """The deadline of one call, which can be moved."""

    __slots__ = ("_deadlines", "scope", "when")

    def __init__(self, deadlines: Deadlines, when: float) -> None:
        """`when` is a time of the event loop."""
        self._deadlines = deadlines
        self.when = when
        """A time of the event loop; infinite while the clock is stopped."""
        self.scope = _scope_class()()
        """The scope that is cancelled."""

    @property
    def is_over(self) -> bool:
        """Whether the time has passed."""
        return self.scope.cancel_called

    def move(self, when: float) -> None:
        """Set another time. Has no effect if the call is over."""
        self.when = when
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
        """The deadlines of an event loop."""
        found = getattr(loop, _NAME, None)
        if found is None:
            found = cls(loop)
            setattr(loop, _NAME, found)
        return found

    def begin(self, seconds: float) -> Deadline:
        """Start a deadline this many seconds from now."""
        when = self._loop.time() + seconds
        deadline = Deadline(self, when)
        self._running.add(deadline)
        if when < self._next:
            self._check_at(when)
        return deadline

    def end(self, deadline: Deadline) -> None:
        """Remove the deadline of a finished call. The timer stays for the next call."""
        self._running.discard(deadline)

    def moved(self, deadline: Deadline) -> None:
        """Called when a deadline has moved."""
        if deadline in self._running and deadline.when < self._next:
            self._check_at(deadline.when)

    def _check_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next = None, when
        if when < inf:
            self._timer = self._loop.call_at(when, self._check)

    def _check(self) -> None:
        now = self._next  # not the current time, because timers fire slightly early
        for deadline in [each for each in self._running if each.when <= now]:
            self._running.discard(deadline)
            deadline.scope.cancel()
        self._check_at(min((each.when for each in self._running), default=inf))


def prepare() -> None:
    """Import the modules for the first deadline, which takes 9 ms. Call it in a task."""
    _scope_class()


@cache
def _scope_class() -> type[anyio.CancelScope]:
    """The class that anyio uses for `CancelScope` on asyncio. Looking it up in every call takes longer than the scope itself."""
    return type(anyio.CancelScope())
