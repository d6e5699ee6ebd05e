"""Watches the event loop of a worker from a thread."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable

from prowess.daemons import NO_THREAD, start_thread
from prowess.worker.progress import Progress, Thread, threads_of

__all__ = ["Watchdog"]

_log = logging.getLogger("prowess.worker")


class Watchdog:
    """Prints on stderr where the event loop is blocked. Sleeps while there is nothing to do.

    The host decides what happens to the worker. For that, the thread advances the counter of the board.
    """

    def __init__(self, limit: float = 1.0, beat: Callable[[], object] = bool) -> None:
        self.busy: Callable[[], object] = bool
        """Returns whether there are calls or other work."""
        self.stuck: Callable[[], object] = bool
        """Called in a thread while the loop is blocked."""
        self._limit = limit
        self._beat = beat
        self._ticks = 0
        self._used = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._awake = threading.Event()
        self._is_awake = False
        """The same, for this loop alone."""

    def start(self) -> None:
        """Watch the running loop of this thread. Raises `ChildProcessError` if the system refuses a thread."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        if start_thread("prowess-watch", self._watch) is None:
            raise ChildProcessError(NO_THREAD)

    def wake(self) -> None:
        """Called when a call begins."""
        self._used = True
        if not self._is_awake and self._loop is not None:
            self._is_awake = True
            self._awake.set()
            self._tick()

    def _tick(self) -> None:
        assert self._loop is not None  # noqa: S101 - it was started
        self._ticks += 1
        if self._used or self.busy():
            self._used = False
            self._loop.call_later(self._limit / 4, self._tick)
        else:
            self._is_awake = False
            self._awake.clear()

    def _watch(self) -> None:
        """Measure the usable time since the last tick of the loop."""
        me = threading.get_native_id()

        def others() -> dict[int, Thread] | None:  # without this thread, which always runs when it measures
            threads = threads_of(os.getpid())
            return threads and {number: thread for number, thread in threads.items() if number != me}

        progress = Progress(others, itertools.count(1).__next__)
        step = self._limit / 4
        seen, silent = -1, 0.0
        while True:
            self._awake.wait()
            try:
                self._beat()
            except ValueError:  # the board is closed: the worker ends
                return
            time.sleep(step)
            if not self._awake.is_set() or self._ticks != seen:
                seen, silent = self._ticks, 0.0
                progress.start()
                continue
            self.stuck()
            before, silent = silent, silent + progress.usable(step)
            if before <= self._limit < silent:
                _log.warning("the event loop is blocked at %s", _location(self._thread))


def _location(thread: int) -> str:
    """The current file and line of a thread."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "an unknown place"
