"""Measures for how much time a process could run. Independent of workers and calls.

A process that waits for a processor is not stuck, so the time in which one of its threads waited for a processor is excluded.
Somebody who stops a process (SIGSTOP) usually lets it go on soon. In case it stays stopped, a tenth of that time counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

__all__ = ["Progress", "Thread", "threads_of"]

_FOLDER: Final = "/proc/{}/task"
_UNKNOWN: Final = 0.1
"""The share that counts of the time in which a process was stopped, or gave no beats on a system that does not report why."""


class Thread(NamedTuple):
    """The system's figures about one thread."""

    ran: float
    """Seconds on a processor."""
    waited: float
    """Seconds of finished waits for a processor."""
    runnable: bool
    """Whether it runs, or waits for a processor."""
    stopped: bool = False
    """Whether a signal or a debugger has stopped it."""


class Progress:
    """Measures, between two questions, for how long a process could run.

    `threads` reads the system's figures about the threads of the process, which only Linux has. On other systems, `beats`
    decides: a number, 0 at first, that a thread of the process changes while it gets a processor.
    """

    def __init__(self, threads: Callable[[], Mapping[int, Thread] | None], beats: Callable[[], int]) -> None:
        self._threads = threads
        self._beats = beats
        self._before: Mapping[int, Thread] = {}
        self._beat = 0
        self.is_exact = True
        """Whether the system had figures for the last question."""

    def start(self) -> None:
        """Start measuring."""
        self._before, self._beat = self._threads() or {}, self._beats()

    def usable(self, seconds: float) -> float:
        """The usable part of the seconds since the last question."""
        now = self._threads()
        self.is_exact = now is not None
        if now is None:
            return self._by_beats(seconds)
        before, self._before = self._before, now
        # The longest wait of a thread counts, not the sum: a thread may wait for the interpreter lock of another one, and
        # many native threads that compete for processors must not hide a blocked loop.
        waits = (_waited(before.get(number), thread, seconds) for number, thread in now.items())
        return max(seconds - max(waits, default=0.0), 0.0)

    def _by_beats(self, seconds: float) -> float:
        """Judge by beats. A process without beats may lack a processor, or be stuck in native code."""
        beat, self._beat = self._beat, self._beats()
        stopped = beat == self._beat and beat != 0  # a starting process has no beats yet
        return seconds * _UNKNOWN if stopped else seconds


def _waited(before: Thread | None, now: Thread, seconds: float) -> float:
    """The time that a thread waited for a processor."""
    if before is None:
        before = Thread(0.0, 0.0, runnable=now.runnable)
    waited = now.waited - before.waited
    if before.runnable and now.runnable:  # the system counts only finished waits
        waited = max(waited, seconds - (now.ran - before.ran))
    if before.stopped or now.stopped:
        waited = max(waited, (seconds - (now.ran - before.ran)) * (1 - _UNKNOWN))
    return waited


def threads_of(pid: int) -> dict[int, Thread] | None:
    """Linux's figures about the threads of a process; `None` on other systems."""
    folder = _FOLDER.format(pid)
    try:
        numbers = os.listdir(folder)  # noqa: PTH208 - only the names are needed
    except OSError:
        return None
    found: dict[int, Thread] = {}
    for number in numbers:
        try:
            # Not below the folder of the process: once it ends, the kernel would look there for what its threads leave
            # behind, in a loop that takes milliseconds of whoever waits for the process.
            thread = f"{_FOLDER.format(number)}/{number}"
            ran, waited = _read(f"{thread}/schedstat").split()[:2]
            state = _read(f"{thread}/stat").rpartition(b")")[2].split()[0]
        except (OSError, ValueError, IndexError):  # the thread has ended, or the kernel lacks these figures
            continue
        found[int(number)] = Thread(int(ran) / 1e9, int(waited) / 1e9, state == b"R", state in b"Tt")
    return found or None


def _read(file: str) -> bytes:
    with open(file, "rb") as opened:  # noqa: PTH123 - half the time
        return opened.read()
