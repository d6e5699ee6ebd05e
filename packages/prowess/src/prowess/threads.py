"""Worker threads for code that may block. Knows nothing of calls.

They are daemons, and are left behind when nobody waits for them any more: Python cannot stop a thread, and one that never
ends must hold up neither an answer nor the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, cast

__all__ = ["Raised", "Threads", "is_stuck", "stuck"]

_IDLE: Final = 10.0
"""Seconds after which a thread with nothing to do ends."""
_log = logging.getLogger("prowess")
_stuck: Final[set[int]] = set()


@contextlib.contextmanager
def stuck() -> Generator[None]:
    """For the thread of an event loop that enters sync code: until that returns, the loop can do nothing for anybody."""
    thread = threading.get_ident()
    if thread in _stuck:
        yield
        return
    _stuck.add(thread)
    try:
        yield
    finally:
        _stuck.discard(thread)


def is_stuck(thread: int) -> bool:
    """Whether the loop of a thread waits for sync code."""
    return thread in _stuck


class Raised(Exception):
    """Carries what foreign code raised, of whatever kind, so that it cannot be taken for a cancellation or an exit of ours."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class _Job:
    """One function to be run, and who waits for it."""

    __slots__ = ("abandoned", "begun", "context", "function", "future", "label", "late", "loop", "result")

    def __init__(self, function: Callable[[], Any], late: Callable[[Any], object], label: str) -> None:
        self.function = function
        self.late = late
        self.label = label
        self.context = _context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.result: tuple[Any, BaseException | None] | None = None
        self.begun = self.abandoned = False

    def perform(self) -> tuple[Any, BaseException | None]:
        """The value, or whatever was raised, exits included."""
        try:
            return self.context.run(self.function), None
        except BaseException as error:  # noqa: BLE001 - a thread must hand everything over
            return None, error

    def wake(self) -> None:
        """Let the one who waits go on."""
        try:
            self.loop.call_soon_threadsafe(self._arrive)
        except RuntimeError:  # the loop is closed
            self.dispose()

    def _arrive(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def dispose(self) -> None:
        """Take care of a value that nobody waits for any more."""
        value, error = cast("tuple[Any, BaseException | None]", self.result)
        if error is None:
            try:
                self.late(value)
            except BaseException:  # noqa: BLE001 - nobody is there to be told
                _log.exception("cleaning up after %s failed", self.label)


class _Worker:
    """One thread, and the way to give it its next job."""

    __slots__ = ("jobs",)

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()


def _ignore(_: object) -> None:
    """A late result that needs no care."""


class Threads:
    """At most so many threads, from whatever event loops; jobs that find none free wait in order.

    One that was left behind no longer counts, so that a few that never end cannot bring everything to a stop.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._running = 0
        self._idle: list[_Worker] = []
        self._waiting: deque[_Job] = deque()
        self._left_behind: dict[int, str] = {}
        self._lock = threading.Lock()
        self._inline = False

    async def run(
        self, function: Callable[[], Any], *, late: Callable[[Any], object] = _ignore, label: str = ""
    ) -> Any:
        """Run a function in a thread; raises `Raised` with whatever it raised.

        When the caller is cancelled the function runs on by itself. What it then returns is given to `late`.
        """
        job = _Job(function, late, label)
        self._begin(job)
        try:
            await job.future
        except asyncio.CancelledError:
            self._abandon(job)
            raise
        value, error = cast("tuple[Any, BaseException | None]", job.result)
        if error is not None:
            raise Raised(error)
        return value

    @property
    def left_behind(self) -> tuple[str, ...]:
        """The labels of the jobs that run on although nobody waits for them."""
        with self._lock:
            return tuple(self._left_behind.values())

    @property
    def count_left_behind(self) -> int:
        """How many those are: asked after every call, and so without a lock."""
        return len(self._left_behind)

    def stay_inline(self) -> None:
        """Run everything where it is asked for from now on: near its end the interpreter starts no thread any more."""
        self._inline = True

    def _begin(self, job: _Job) -> None:
        with self._lock:
            if self._idle:
                self._idle.pop().jobs.put(
                    job
                )  # the one that worked last: the others may end when they have idled enough
                return
            if not self._inline:
                if self._running < self._most:
                    self._start(job)
                else:
                    self._waiting.append(job)
                return
        job.result = job.perform()
        job.wake()

    def _start(self, job: _Job) -> None:
        worker = _Worker()
        worker.jobs.put(job)  # what is an argument of a thread is held until the thread ends
        threading.Thread(target=self._work, args=(worker,), name="prowess", daemon=True).start()
        self._running += 1

    def _abandon(self, job: _Job) -> None:
        """Nobody waits for a job any more: it is not begun, or its thread is left behind, or its value comes too late."""
        with self._lock:
            if job.result is None:
                self._give_up(job)
                return
        self._begin(_Job(job.dispose, _ignore, job.label))

    def _give_up(self, job: _Job) -> None:
        job.abandoned = True
        if job in self._waiting:
            self._waiting.remove(job)
        elif job.begun:
            self._left_behind[id(job)] = job.label
            self._running -= 1
            if self._waiting:
                self._start(self._waiting.popleft())

    def _work(self, worker: _Worker) -> None:
        job: _Job | None = worker.jobs.get()
        while job is not None:
            following, stays = self._see_to(job, worker)
            job = None  # while a thread idles it holds nothing of what it did
            if not stays:
                return
            job = following or self._next(worker)

    def _see_to(self, job: _Job, worker: _Worker) -> tuple[_Job | None, bool]:
        """Run a job; gives the one that waits for this thread, and whether the thread goes on."""
        with self._lock:
            job.begun = not job.abandoned
        result = job.perform() if job.begun else None
        with self._lock:
            job.result = result
            is_left = job.begun and job.abandoned
            following = None if is_left else self._free(worker)
        if is_left:
            self._leave(job)
        elif job.begun:
            job.wake()
        return following, not is_left

    def _free(self, worker: _Worker) -> _Job | None:
        """The job that waits for a thread. Without one the thread idles, before anybody hears of its result."""
        if self._waiting:
            return self._waiting.popleft()
        self._idle.append(worker)
        return None

    def _leave(self, job: _Job) -> None:
        """The end of a thread that was left behind."""
        job.dispose()
        with self._lock:
            del self._left_behind[id(job)]

    def _next(self, worker: _Worker) -> _Job | None:
        """What an idle thread is given to do; `None` ends it."""
        try:
            return worker.jobs.get(timeout=_IDLE)
        except queue.Empty:
            return self._last_chance(worker)

    def _last_chance(self, worker: _Worker) -> _Job | None:
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
                self._running -= 1
                return None
        return worker.jobs.get()  # it was given one in the last moment


def _context() -> contextvars.Context:
    """The context of the caller, for a thread: there is no event loop in it, also where sniffio is asked."""
    context = contextvars.copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, None)
    return context
