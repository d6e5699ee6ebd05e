"""Growing pauses before the next import of a skill whose import ended a worker or did not finish."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["BackOff"]

_SHORTEST: Final = 1.0
_LONGEST: Final = 60.0
"""Seconds of the first pause, and of every pause after the seventh failure."""


@dataclass(slots=True)
class _Failures:
    count: int
    reason: str
    until: float


class BackOff:
    """Decides whether a skill may be imported now. There is no pause after the first failure."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures: dict[str, _Failures] = {}

    def note(self, skill: str, reason: str) -> None:
        """Note that the import of a skill has ended a worker."""
        before = self._failures.get(skill)
        count = before.count + 1 if before else 1
        pause = 0.0 if count == 1 else min(_SHORTEST * 2 ** min(count - 2, 10), _LONGEST)
        self._failures[skill] = _Failures(count, reason, self._now() + pause)

    def refusal(self, skill: str) -> str:
        """The reason not to import a skill now; empty if it may be imported."""
        failures = self._failures.get(skill)
        if failures is None or (left := failures.until - self._now()) <= 0:
            return ""
        return f"{failures.reason}, {failures.count} times in a row; it is tried again in {left:.1f} s, or when you save it"

    def clear(self, skills: Iterable[str]) -> None:
        """Forget the failures of skills that were imported."""
        for skill in skills:
            self._failures.pop(skill, None)

    def clear_all(self) -> None:
        """Forget all failures after a save."""
        self._failures.clear()
