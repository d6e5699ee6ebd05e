"""Measures how much of the passing time a process could use. Independent of workers and calls.

A process that waits for a processor is not stuck. So time in which one of its threads waited for a processor is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Progress", "Thread", "threads_of"]

_FOLDER: Final = "/proc/{}/task"
_UNKNOWN: Final = 0.1
"""How much of a time counts in which the process gave no sign at all, on systems that do not tell why."""


class Thread(NamedTuple):
    """What the system says about one thread."""

    ran: float
    """Seconds on a processor."""
    waited: float
    """Seconds in the queue for a processor, as far as these waits are over."""
    runnable: bool
    """Whether it runs, or waits for a processor."""


class Progress:
    """Tells of each stretch of time how much of it a process could use.

    `threads` reads what the system knows of the threads of the process. Where the system does not tell (it is Linux that
    does), `beats` decides: a number that a thread of the process changes as long as it gets a processor, and that
    begins at 0. It begins at 0.
    """

    def __init__(self, threads: Callable[[], Mapping[int, Thread] | None], beats: Callable[[], int]) -> None:
        self._threads = threads
        self._beats = beats
        self._before: Mapping[int, Thread] = {}
        self._beat = 0

    def start(self) -> None:
        """Begin the first stretch now."""
        self._before, self._beat = self._threads() or {}, self._beats()

    def usable(self, seconds: float) -> float:
        """How many of the seconds since the last question the process could use."""
        now = self._threads()
        if now is None:
            return self._by_beats(seconds)
        before, self._before = self._before, now
        # The thread that waited longest counts, not the sum: what one waits for (the lock of the interpreter) another
        # has, and ten threads of native code that crowd each other out must not hide a loop that is blocked.
        waits = (_waited(before.get(number), thread, seconds) for number, thread in now.items())
        return max(seconds - max(waits, default=0.0), 0.0)

    def _by_beats(self, seconds: float) -> float:
        """A process that beats gets a processor. One that stopped beating may be starved, or stuck in native code."""
        beat, self._beat = self._beat, self._beats()
        stopped = beat == self._beat and beat != 0  # a process that is still coming up has never beaten
        return seconds * _UNKNOWN if stopped else seconds


def _waited(before: Thread | None, now: Thread, seconds: float) -> float:
    """How long a thread waited for a processor."""
    if before is None:
        before = Thread(0.0, 0.0, runnable=now.runnable)
    waited = now.waited - before.waited
    if before.runnable and now.runnable:  # the system counts a wait only when it is over
        waited = max(waited, seconds - (now.ran - before.ran))
    return waited


def threads_of(pid: int) -> dict[int, Thread] | None:
    """What Linux says about the threads of a process; `None` where there is no such thing."""
    folder = _FOLDER.format(pid)
    try:
        numbers = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return None
    found: dict[int, Thread] = {}
    for number in numbers:
        try:
            thread = Path(folder, number)
            ran, waited = (thread / "schedstat").read_bytes().split()[:2]
            state = (thread / "stat").read_bytes().rpartition(b")")[2].split()[0]
        except (OSError, ValueError, IndexError):  # the thread has ended, or the kernel keeps no such figures
            continue
        found[int(number)] = Thread(int(ran) / 1e9, int(waited) / 1e9, runnable=state == b"R")
    return found or None
