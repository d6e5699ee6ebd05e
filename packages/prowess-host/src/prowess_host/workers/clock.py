"""A clock for those who wait for running calls: it stands still while a busy worker waits for a processor."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from prowess.worker.progress import Progress
from prowess_host.workers.linked import LinkedWorker

__all__ = ["Clock"]

_STEP: Final = 0.1
"""Seconds between two measurements."""


class Clock:
    """Counts the seconds that all busy workers could use. `read` it often: a late question counts as two steps at most."""

    def __init__(self, busy: Callable[[], Collection[LinkedWorker]], now: Callable[[], float]) -> None:
        self._busy = busy
        self._now = now
        self._last = now()
        self._seconds = 0.0
        self._measured: dict[LinkedWorker, Progress] = {}
        self._measure(busy())

    def read(self) -> float:
        """The seconds so far."""
        elapsed = self._now() - self._last
        if elapsed >= _STEP:
            self._last += elapsed
            busy = self._busy()
            usable = [self._usable(self._measured[worker], elapsed) for worker in busy if worker in self._measured]
            self._measure(busy)
            self._seconds += min([2 * _STEP, elapsed, *usable])
        return self._seconds

    @staticmethod
    def _usable(progress: Progress, seconds: float) -> float:
        usable = progress.usable(seconds)
        return usable if progress.is_exact else seconds

    def _measure(self, workers: Collection[LinkedWorker]) -> None:
        self._measured = {worker: self._measured.get(worker) or _started(worker) for worker in workers}


def _started(worker: LinkedWorker) -> Progress:
    progress = Progress(worker.threads, lambda: worker.beats)
    progress.start()
    return progress
