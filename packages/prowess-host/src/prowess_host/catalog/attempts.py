"""Further attempts to describe skills, for failures that no save ends: at once if a worker was lost, later after growing pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from prowess_host.workers.describe import LostImport, LostWorker

__all__ = ["LaterAttempts", "repeated"]

_MOST: Final = 3
"""Workers that are started for one description, if they are lost."""
_PAUSES: Final = (5.0, 20.0, 80.0, 320.0)
"""Seconds before each further attempt to describe what could not be described. A save starts over. The last pause repeats while
the host is behind as a whole: then nothing else would end that."""
_T = TypeVar("_T")


async def repeated(describe: Callable[[], Awaitable[_T]], *, imports: bool = True) -> _T:
    """Describe skills, again at once if a worker is lost: it may have been killed from outside, and no save will follow.

    Without `imports`, an import that ended its worker is not repeated.
    """
    for _ in range(1, _MOST):
        try:
            return await describe()
        except LostWorker as error:
            if isinstance(error, LostImport) and not (imports or error.killed):
                raise
    return await describe()


class LaterAttempts:
    """The timer of the next attempt. `attempt` is called after the pause, and calls `begin`."""

    def __init__(self, attempt: Callable[[], None]) -> None:
        self._attempt = attempt
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._begun = 0
        """The number of attempts since the last save."""

    @property
    def is_planned(self) -> bool:
        """Whether there will be another attempt."""
        return self._timer is not None

    def plan(self, *, is_behind: bool, is_lost: bool, anew: bool = False) -> None:
        """Plan the next attempt, or none if neither the host is behind nor a skill is lost. With `anew`, the pauses start over."""
        if anew:
            self._begun = 0
        self.cancel()
        if is_behind or (is_lost and self._begun < len(_PAUSES)):
            pause = _PAUSES[min(self._begun, len(_PAUSES) - 1)]
            self._timer = self._loop.call_later(pause, self._attempt)

    def begin(self) -> None:
        """Count an attempt, which begins now."""
        self._timer = None
        self._begun += 1

    def cancel(self) -> None:
        """Make no further attempt."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
