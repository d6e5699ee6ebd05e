"""Worker threads for code that may block. Independent of calls.

The threads are daemons, and a thread whose result is no longer wanted is left behind: Python cannot stop a thread, and a
stuck one must not delay an answer or keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Hashable
from typing import Any, Final, NoReturn, Protocol, cast

from prowess.calls.closing import allow_closing, end_closing
from prowess.daemons import NO_THREAD, start_thread
from prowess.errors import SkillError

__all__ = ["Inline", "Lane", "Raised", "ThreadRunner", "Threads", "is_stuck", "stuck"]

_IDLE: Final = 10.0
"""Seconds after which an idle thread ends."""
_log = logging.getLogger("prowess")
_stuck: Final[set[int]] = set()


@contextlib.contextmanager
def stuck() -> Generator[None]:
    """Mark the loop of this thread as blocked while it runs sync code."""
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
    """Whether the loop of a thread is blocked by sync code."""
    return thread in _stuck


class Raised(Exception):
    """Wraps any exception of foreign code, so that it cannot be mistaken for a cancellation or an exit."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class ThreadRunner(Protocol):
    """Runs sync code in any thread, always in the same thread, or in the thread of the event loop."""

    async def run(self, function: Callable[[], Any], *, late: Callable[[Any], object] = ..., label: str = "") -> Any:
        """Run a function; raises `Raised` with its exception. `late` gets a result that is no longer awaited."""
        ...


class _Job:
    """One function to run, with its caller."""

    __slots__ = ("abandoned", "begun", "context", "function", "future", "label", "late", "loop", "process", "result")

    def __init__(self, function: Callable[[], Any], late: Callable[[Any], object], label: str) -> None:
        self.function = function
        self.late = late
        self.label = label
        self.context = _context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.result: tuple[Any, BaseException | None] | None = None
        self.begun = self.abandoned = False
        self.process = os.getpid()

    def perform(self) -> tuple[Any, BaseException | None]:
        """The value, or the exception, including exits."""
        try:
            value = self.context.run(self.function)
        except BaseException as error:  # noqa: BLE001 - a thread must hand everything over
            if os.getpid() != self.process:
                _end_child(error, self.label)
            return None, error
        if os.getpid() != self.process:
            _end_child(None, self.label)
        return value, None

    async def wait(self, abandon: Callable[[_Job], None]) -> Any:
        """Wait for the value. `abandon` is called if the caller is cancelled."""
        try:
            await self.future
        except asyncio.CancelledError:
            abandon(self)
            raise
        value, error = cast("tuple[Any, BaseException | None]", self.result)
        if error is not None:
            raise Raised(error)
        return value

    def wake(self) -> None:
        """Wake the caller."""
        try:
            self.loop.call_soon_threadsafe(self._arrive)
        except RuntimeError:  # the loop is closed
            self.dispose()

    def _arrive(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def dispose(self) -> None:
        """Pass on a value that came too late for its caller."""
        value, error = cast("tuple[Any, BaseException | None]", self.result)
        if error is None:
            _run_logged(lambda: self.late(value), self.label)


def _end_child(error: BaseException | None, label: str) -> NoReturn:
    """End a process that a function has forked, and in which it has returned: nobody waits for the value there."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        code = 1
        _log.error("a process that %s forked has failed", label, exc_info=error)
    sys.stdout.flush()
    os._exit(code)


class _Worker:
    """One thread, with the queue for its next job."""

    __slots__ = ("jobs",)

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()


def _ignore(_: object) -> None:
    """Ignore a late result."""


class Threads:
    """A pool with a limit on threads, for any number of event loops. Without a free thread, jobs wait in order.

    An abandoned thread no longer counts, so that a few calls that never end cannot block the pool.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._running = 0
        self._idle: list[_Worker] = []
        self._waiting: deque[_Job] = deque()
        self.abandoned: set[Hashable] = set()
        """The abandoned jobs that still run, and what else nobody waits for. It is read after every call, without the lock."""
        self._lock = threading.Lock()
        self._inline = False

    async def run(
        self, function: Callable[[], Any], *, late: Callable[[Any], object] = _ignore, label: str = ""
    ) -> Any:
        """Run a function in a thread; raises `Raised` with its exception.

        If the caller is cancelled, the function continues. `late` then gets its result.
        """
        job = _Job(function, late, label)
        self._begin(job)
        return await job.wait(self._abandon)

    def lane(self, label: str = "") -> Lane:
        """One thread for all sync code of a call, taken at the first run."""
        return Lane(self, label)

    # For lanes

    @property
    def is_inline(self) -> bool:
        """Whether all code runs in the calling thread from now on."""
        return self._inline

    def reserve(self, steps: queue.SimpleQueue[Callable[[], None] | None], label: str) -> _Job:
        """Reserve a thread for the steps in a queue, until `None`."""
        host = _Job(lambda: _serve(steps), _ignore, label)
        self._begin(host)
        return host

    def perform(self, job: _Job) -> None:
        """In the thread of a lane: run a job, unless its caller was cancelled."""
        with self._lock:
            job.begun = not job.abandoned
        if not job.begun:
            return
        result = job.perform()
        with self._lock:
            job.result = result
        if job.abandoned:
            job.dispose()
        else:
            job.wake()

    def leave(self, job: _Job, host: _Job | None) -> bool:
        """Abandon a job of a lane with its thread. Returns `False` if the job has ended already."""
        with self._lock:
            if job.result is not None:
                return False
            job.abandoned = True
            if job.begun and host is not None and not host.abandoned:
                self._mark_abandoned(host)
            return True

    def withdraw(self, host: _Job) -> None:
        """Withdraw the request of a lane for a thread."""
        with self._lock:
            if host in self._waiting:
                self._waiting.remove(host)

    def stay_inline(self) -> None:
        """From now on, run everything in the calling thread, because an exiting interpreter cannot start threads."""
        self._inline = True

    def _begin(self, job: _Job) -> None:
        with self._lock:
            if self._idle:
                self._idle.pop().jobs.put(job)  # the last active one, so that the others can idle out
                return
            if not self._inline:
                if self._running < self._most and self._start(job):
                    return
                if not self._running:
                    raise Raised(SkillError(f"no thread can be started for it: {NO_THREAD}", retryable=True))
                self._waiting.append(job)
                return
        job.result = job.perform()
        job.wake()

    def _start(self, job: _Job) -> bool:
        """Start a thread for a job. Returns `False` if the system refuses it."""
        worker = _Worker()
        worker.jobs.put(job)  # as an argument of the thread, the job would be kept until the thread ends
        if start_thread("prowess", self._work, worker) is None:
            return False
        self._running += 1
        return True

    def _abandon(self, job: _Job) -> None:
        """Handle a cancelled caller: drop the job if it has not begun, abandon its thread if it runs, else dispose of its value."""
        with self._lock:
            if job.result is None:
                self._mark_abandoned(job)
                return
        try:
            self._begin(_Job(job.dispose, _ignore, job.label))
        except Raised:  # no thread can be started
            job.dispose()

    def _mark_abandoned(self, job: _Job) -> None:
        job.abandoned = True
        if job in self._waiting:
            self._waiting.remove(job)
        elif job.begun:
            self.abandoned.add(id(job))
            self._running -= 1
            self._start_waiting()

    def _start_waiting(self) -> None:
        """Start a thread in place of an abandoned one."""
        if self._waiting and self._running < self._most and self._start(self._waiting[0]):
            self._waiting.popleft()

    def _work(self, worker: _Worker) -> None:
        job: _Job | None = worker.jobs.get()
        while job is not None:
            following, stays = self._perform(job, worker)
            job = None  # an idle thread must keep no references
            if not stays:
                return
            job = following or self._next(worker)

    def _perform(self, job: _Job, worker: _Worker) -> tuple[_Job | None, bool]:
        """Run a job. Returns the next job for this thread, and whether the thread continues."""
        with self._lock:
            job.begun = not job.abandoned
        result = job.perform() if job.begun else None
        with self._lock:
            job.result = result
            is_abandoned = job.begun and job.abandoned
            following = None if is_abandoned else self._free(worker)
        if is_abandoned:
            self._leave(job)
        elif job.begun:
            job.wake()
        return following, not is_abandoned

    def _free(self, worker: _Worker) -> _Job | None:
        """The next waiting job. Without one, the thread becomes idle before its result is announced."""
        if self._waiting:
            return self._waiting.popleft()
        self._idle.append(worker)
        return None

    def _leave(self, job: _Job) -> None:
        """Handle the end of an abandoned thread."""
        job.dispose()
        with self._lock:
            self.abandoned.remove(id(job))
            self._start_waiting()  # the system may have refused it before
        end_closing(id(job))

    def _next(self, worker: _Worker) -> _Job | None:
        """Wait for the next job of an idle thread; `None` ends it."""
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
        return worker.jobs.get()  # a job was assigned just now


class Lane:
    """One thread for a series of functions, so that a thread-bound object is made, used and closed in the same thread.

    The pool lends the thread at the first run and gets it back with `release`. If a caller is cancelled, its function
    continues, and the thread counts as abandoned; later functions wait in the same thread until it has ended.
    """

    __slots__ = ("_abandoned", "_host", "_label", "_steps", "_threads")

    def __init__(self, threads: Threads, label: str) -> None:
        self._threads = threads
        self._label = label
        self._host: _Job | None = None
        """The job of the pool that keeps the thread."""
        self._abandoned: _Job | None = None
        """The last abandoned job."""
        self._steps: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    @property
    def is_abandoned(self) -> bool:
        """Whether the thread runs or ran a function whose caller was cancelled."""
        return self._host is not None and self._host.abandoned

    @property
    def is_busy(self) -> bool:
        """Whether an abandoned function still runs."""
        return self._abandoned is not None and self._abandoned.result is None

    async def run(
        self, function: Callable[[], Any], *, late: Callable[[Any], object] = _ignore, label: str = ""
    ) -> Any:
        """Run a function after the earlier ones; raises `Raised` with its exception."""
        job = _Job(function, late, label or self._label)
        self._submit(lambda: self._threads.perform(job))
        return await job.wait(self._abandon)

    def post(self, function: Callable[[], Any]) -> None:
        """Run a function after the earlier ones, without waiting for it. Its exceptions are logged."""
        try:
            self._submit(lambda: _run_logged(function, self._label))
        except Raised:  # no thread can be started
            _run_logged(function, self._label)

    def allow_closing(self, seconds: float) -> None:
        """Do not count an abandoned thread as stuck for some seconds, because its function has ended."""
        if self.is_abandoned:
            allow_closing(id(self._host), seconds)

    def replace(self) -> None:
        """Abandon a thread that hangs. Another one runs the next functions."""
        self.release()
        self._host, self._steps = None, queue.SimpleQueue()

    def release(self) -> None:
        """Return the thread after it has run everything."""
        if self._host is not None:
            self._steps.put(None)
            self._threads.withdraw(self._host)

    def _submit(self, step: Callable[[], None]) -> None:
        if self._host is None:
            if self._threads.is_inline:
                step()
                return
            self._host = self._threads.reserve(self._steps, self._label)
        self._steps.put(step)

    def _abandon(self, job: _Job) -> None:
        if self._threads.leave(job, self._host):
            self._abandoned = job
        else:
            self.post(job.dispose)


def _serve(steps: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    """In the thread of a lane: run steps until the lane is released."""
    while (step := steps.get()) is not None:
        step()
        step = None


def _run_logged(function: Callable[[], Any], label: str) -> None:
    try:
        function()
    except BaseException:  # noqa: BLE001 - there is no caller to raise it to
        _log.exception("cleaning up after %s failed", label)


class Inline:
    """The thread of the event loop, for sync commands with `thread=False` and their injected objects."""

    async def run(
        self,
        function: Callable[[], Any],
        *,
        late: Callable[[Any], object] = _ignore,  # noqa: ARG002 - the caller cannot be cancelled meanwhile
        label: str = "",  # noqa: ARG002 - nothing is left behind
    ) -> Any:
        """Run a function at once; raises `Raised` with its exception."""
        try:
            with stuck():
                return function()
        except BaseException as error:
            raise Raised(error) from error


def _context() -> contextvars.Context:
    """The context of the caller for a thread, without its event loop, also for sniffio."""
    context = contextvars.copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, None)
    return context
