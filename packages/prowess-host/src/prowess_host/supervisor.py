"""Which worker runs which call: starting, replacing, draining and killing workers, and what becomes of their calls.

Knows calls as bytes to send and as somebody to tell; knows no protocol of any client.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from prowess.catalog import Catalog, Failure
from prowess.contract import Contract
from prowess.jsontypes import JsonObject
from prowess.link import Frame, Kind
from prowess.settings import OwnSettings
from prowess_host.workers import WorkerProcess

__all__ = ["Job", "Listener", "Successor", "Supervisor"]

_log = logging.getLogger("prowess.host")
_LATE: Final = 0.1
"""Seconds the host leaves a worker to answer for itself when a call has run out of time."""
_MOST_TRIES: Final = 3


class Listener(Protocol):
    """Whoever wants to know what becomes of a job. Exactly one of `result`, `input_required` and `refused` is called."""

    def result(self, meta: bytes, body: bytes) -> None: ...
    def input_required(self, questions: JsonObject) -> None: ...
    def refused(self, facts: JsonObject) -> None: ...
    def questions(self, questions: JsonObject) -> None: ...
    def progress(self, done: float, total: float | None, message: str | None) -> None: ...
    def log(self, level: str, data: Any) -> None: ...


@dataclass(slots=True, eq=False)
class Job:
    """One call on its way through the workers."""

    contract: Contract
    head: bytes
    arguments: bytes
    listener: Listener
    seconds: float
    number: int = 0
    worker: _Worker | None = None
    since: float = 0.0
    left: float = 0.0
    """Seconds until the host answers in the place of a worker that does not."""
    timer: asyncio.TimerHandle | None = None
    tries: int = 0
    over: bool = False


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker process and what the supervisor knows of it."""

    process: WorkerProcess
    generation: int
    jobs: dict[int, Job] = field(default_factory=dict[int, Job])
    ready: bool = False
    retired: bool = False
    heard: float = 0.0
    pinged: float | None = None
    stalled: bool = False
    lingering: int = 0
    describing: asyncio.Future[Catalog] | None = None


@dataclass(frozen=True, slots=True)
class Successor:
    """A worker of the next generation, and what it can do."""

    worker: _Worker
    catalog: Catalog


class Supervisor:
    """The workers of one host."""

    def __init__(self, root: Path, own: OwnSettings, flags: JsonObject) -> None:
        self._root = root
        self._own = own
        self._host = own.host
        self._flags = flags
        self._loop = asyncio.get_running_loop()
        self._workers: list[_Worker] = []
        self._active: list[_Worker] = []
        self._spare: _Worker | None = None
        self._kept: dict[str, _Worker] = {}
        """By skill: the worker with the last good version of what no longer loads."""
        self._generation = 1
        self._number = 0
        self._waiting: list[Job] = []
        self._deaths: list[float] = []
        self._ticking: asyncio.TimerHandle | None = None
        self._closing = False
        self.diagnosis: str | None = None
        """Why no worker can be had, while that is so."""
        self.lost_at_once: list[int] = []
        """How many calls each death of a worker took down."""

    def start(self) -> None:
        """Have a worker come up, so that the first call finds one."""
        self._worker_for(None)

    # Jobs

    def submit(self, job: Job) -> None:
        """Run a job; its listener hears of the end exactly once, unless it is cancelled."""
        job.left = job.seconds + _LATE
        self._resume_clock(job)
        self._dispatch(job)

    def cancel(self, job: Job) -> None:
        """Nobody wants to hear of this job any more."""
        self._finish(job)
        if job.worker is not None:
            job.worker.process.send(Kind.CANCEL, job.number)
            self._loop.call_later(self._host.cancel_grace, self._check_unheard, job.worker)

    def answer(self, job: Job, told: JsonObject) -> None:
        """What a person answered, as `{"answers": ...}`, or why nobody did, as `{"error": ...}`."""
        if job.worker is not None and not job.over:
            self._resume_clock(job)
            job.worker.process.send(Kind.ANSWERS, job.number, json.dumps(told).encode())

    @property
    def busy(self) -> int:
        """How many jobs are not over."""
        return sum(len(worker.jobs) for worker in self._workers) + len(self._waiting)

    def _dispatch(self, job: Job) -> None:
        if self._held_back(job):
            self._waiting.append(job)
            return
        worker = self._worker_for(job.contract)
        if worker is None:
            self._fail(job, f"no worker could be started: {self.diagnosis}", started=False)
            return
        self._number += 1
        job.number, job.worker, job.since = self._number, worker, time.monotonic()
        job.tries += 1
        worker.jobs[job.number] = job
        worker.process.send(Kind.CALL, job.number, job.head, job.arguments)
        self._tick_soon()

    def _held_back(self, job: Job) -> bool:
        """Whether `concurrency` would be broken across generations: workers keep it among their own calls only."""
        most = job.contract.policies.concurrency
        if most is None:
            return False
        old = [worker for worker in self._workers if worker not in self._active]
        running = sum(other.contract.id == job.contract.id for worker in old for other in worker.jobs.values())
        if not running:
            return False
        new = sum(other.contract.id == job.contract.id for worker in self._active for other in worker.jobs.values())
        return running + new >= most

    def _release(self) -> None:
        """Dispatch what was held back, as far as it goes now."""
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            if not job.over:
                self._dispatch(job)

    def _finish(self, job: Job) -> None:
        """The job is over, whatever came of it."""
        job.over = True
        if job.timer is not None:
            job.timer.cancel()
        worker = job.worker
        if worker is not None and worker.jobs.pop(job.number, None) is not None:
            worker.process.forget(job.number)
            if worker.retired and not worker.jobs:
                self._loop.call_soon(self._dismiss, worker)
        if self._waiting:
            self._loop.call_soon(self._release)

    # Time

    def _resume_clock(self, job: Job) -> None:
        if job.left != float("inf"):
            job.since = time.monotonic()
            job.timer = self._loop.call_later(job.left, self._overdue, job)

    def _stop_clock(self, job: Job) -> None:
        """A person is being asked: that takes as long as it takes."""
        if job.timer is not None:
            job.timer.cancel()
            job.left = max(job.left - (time.monotonic() - job.since), _LATE)

    def _overdue(self, job: Job) -> None:
        """The worker did not answer in time, so it is stuck: the host answers, and sees to the worker."""
        worker = job.worker
        job.timer = None
        self._finish(job)
        job.listener.result(b'{"prowess/kind":"timeout"}', _error_body(f"{job.contract.id} timed out after {job.seconds:g} s"))
        if worker is not None:
            worker.process.send(Kind.CANCEL, job.number)
            self._loop.call_later(self._host.cancel_grace, self._check_unheard, worker)

    # Signs of life

    def _tick_soon(self) -> None:
        if self._ticking is None:
            self._ticking = self._loop.call_later(self._host.stall_limit / 4, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        now = time.monotonic()
        for worker in list(self._workers):
            if worker.jobs and worker.ready:
                self._check_alive(worker, now)
                self._start_ahead(worker, now)
        if self.busy:
            self._tick_soon()
        elif self._spare is not None:
            spare, self._spare = self._spare, None
            self._dismiss(spare)

    def _check_alive(self, worker: _Worker, now: float) -> None:
        limit = self._host.stall_limit
        if worker.pinged is not None:
            if now - worker.pinged > limit * 0.75 and not worker.stalled:
                self._stalled(worker)
        elif now - worker.heard > limit / 4:
            worker.pinged = now
            worker.process.send(Kind.PING)

    def _start_ahead(self, worker: _Worker, now: float) -> None:
        """A worker that will probably have to be replaced has its replacement come up already."""
        if self._spare is None and worker in self._active:
            late = (job for job in worker.jobs.values() if now - job.since > job.seconds / 2)
            if any(job.contract.policies.thread is not False for job in late):
                self._spare = self._spawn()

    def _stalled(self, worker: _Worker) -> None:
        """The worker's event loop is blocked. What it has not begun, and all that comes, goes to another one."""
        worker.stalled = True
        commands = ", ".join(sorted({job.contract.id for job in self._begun(worker)})) or "a command"
        _log.warning(
            "%s blocks the event loop of worker %s for more than %g s: blocking work belongs in a sync command",
            commands,
            worker.process.pid,
            self._host.stall_limit,
        )
        self._retire(worker)

    def _check_unheard(self, worker: _Worker) -> None:
        """After a job was given up: a worker whose thread or loop is still at it has to go."""
        if worker.process.exit_code is not None or worker not in self._workers:
            return
        if worker.lingering or worker.stalled:
            self._drain(worker)
        elif worker.pinged is None:
            worker.pinged = time.monotonic()
            worker.process.send(Kind.PING)
            self._loop.call_later(self._host.cancel_grace, self._check_answered, worker)

    def _check_answered(self, worker: _Worker) -> None:
        if worker.pinged is not None and worker.process.exit_code is None and worker.ready:
            worker.stalled = True
            self._drain(worker)

    # Workers

    def _worker_for(self, contract: Contract | None) -> _Worker | None:
        """The worker for a call: the least busy of the active ones; cached commands stick to the first."""
        while len(self._active) < self._host.workers:
            worker, self._spare = self._spare or self._spawn(), None
            if worker is None:
                break
            self._active.append(worker)
        if contract is not None and contract.skill in self._kept:
            return self._kept[contract.skill]
        if not self._active:
            return None
        if contract is not None and contract.policies.cache_ttl:
            return self._active[0]
        return min(self._active, key=lambda worker: len(worker.jobs))

    def _spawn(self) -> _Worker | None:
        """A new worker, unless too many died lately: a worker that cannot start is a diagnosis, not a loop."""
        now = time.monotonic()
        self._deaths = [death for death in self._deaths if now - death < self._host.restart_window]
        if self._closing or len(self._deaths) > self._host.restart_limit:
            return None
        python = self._own.python or sys.executable
        try:
            process = WorkerProcess(python, self._root, self._flags, on_frame=self._on_frame, on_exit=self._on_exit)
        except OSError as error:
            self.diagnosis = f"{python} cannot be run ({error.strerror}); check the setting `python`"
            return None
        worker = _Worker(process, self._generation, heard=now)
        self._workers.append(worker)
        return worker

    def _retire(self, worker: _Worker) -> None:
        """No new calls. What was never begun moves to another worker; the rest goes on."""
        if worker.retired:
            return
        worker.retired = True
        worker.process.retire()
        if worker in self._active:
            self._active.remove(worker)
        for job in [job for job in worker.jobs.values() if not worker.process.has_begun(job.number)]:
            self._move(job)
        if not self._closing:
            self._worker_for(None)
        if not worker.jobs:
            self._dismiss(worker)

    def _move(self, job: Job) -> None:
        assert job.worker is not None  # noqa: S101 - it was dispatched
        job.worker.jobs.pop(job.number)
        if job.tries < _MOST_TRIES:
            self._dispatch(job)
        else:
            self._fail(job, "every worker it was given to went away", started=False)

    def _drain(self, worker: _Worker) -> None:
        """Retire a worker that cannot be trusted to end, and kill it: at once if nothing else runs in it."""
        self._retire(worker)
        if not worker.jobs:
            worker.process.kill()
        else:
            self._loop.call_later(self._host.grace, worker.process.kill)

    def _dismiss(self, worker: _Worker) -> None:
        """Let a worker without calls go; it closes what it had opened. One that does not go is killed."""
        if worker.jobs or worker.process.exit_code is not None:
            return
        if worker.lingering or worker.stalled:
            worker.process.kill()
        else:
            worker.process.send(Kind.QUIT)
            self._loop.call_later(self._host.grace, worker.process.kill)

    def _begun(self, worker: _Worker) -> Iterator[Job]:
        return (job for job in worker.jobs.values() if worker.process.has_begun(job.number))

    # What workers say

    def _of(self, process: WorkerProcess) -> _Worker:
        return next(worker for worker in self._workers if worker.process is process)

    def _on_frame(self, process: WorkerProcess, frame: Frame) -> None:
        worker = self._of(process)
        worker.heard = time.monotonic()
        worker.pinged = None
        worker.ready = True
        if frame.kind == Kind.LINGERING:
            worker.lingering = frame.number
            if frame.number:
                self._loop.call_later(self._host.cancel_grace, self._check_unheard, worker)
        elif frame.kind == Kind.CATALOG:
            if worker.describing is not None and not worker.describing.done():
                worker.describing.set_result(_catalog(frame.head))
        elif frame.kind == Kind.READY:
            self.diagnosis = None
        elif (job := worker.jobs.get(frame.number)) is not None:
            _TOLD[frame.kind](self, job, frame)

    def _told_result(self, job: Job, frame: Frame) -> None:
        self._finish(job)
        job.listener.result(frame.head, frame.body)

    def _told_input_required(self, job: Job, frame: Frame) -> None:
        self._finish(job)
        job.listener.input_required(json.loads(frame.head))

    def _told_refused(self, job: Job, frame: Frame) -> None:
        self._finish(job)
        job.listener.refused(json.loads(frame.head))

    def _told_questions(self, job: Job, frame: Frame) -> None:
        self._stop_clock(job)
        job.listener.questions(json.loads(frame.head))

    def _told_progress(self, job: Job, frame: Frame) -> None:
        job.listener.progress(*json.loads(frame.head))

    def _told_log(self, job: Job, frame: Frame) -> None:
        job.listener.log(*json.loads(frame.head))

    # Deaths

    def _on_exit(self, process: WorkerProcess) -> None:
        worker = self._of(process)
        self._workers.remove(worker)
        if worker is self._spare:
            self._spare = None
        expected = worker.retired or self._closing
        if worker in self._active:
            self._active.remove(worker)
        self._kept = {skill: kept for skill, kept in self._kept.items() if kept is not worker}
        if not expected:
            self._deaths.append(time.monotonic())
            self.diagnosis = f"the last worker ended with exit code {process.exit_code}; its log is on stderr"
        if worker.describing is not None and not worker.describing.done():
            worker.describing.set_exception(ChildProcessError(self.diagnosis or "the worker went away"))
        self._redistribute(worker)

    def _redistribute(self, worker: _Worker) -> None:
        """Answer for the calls that went down with a worker, and give those it never began to another."""
        jobs = list(worker.jobs.values())
        lost = [job for job in jobs if worker.process.has_begun(job.number)]
        if lost:
            self.lost_at_once.append(len(lost))
        for job in jobs:
            if job in lost:
                worker.jobs.pop(job.number)
                self._fail(job, f"its worker ended unexpectedly (exit code {worker.process.exit_code})", started=True)
            elif not job.over:
                self._move(job)

    def _fail(self, job: Job, reason: str, *, started: bool) -> None:
        self._finish(job)
        text = f"{job.contract.id} was lost: {reason}. {_advice(job.contract, started=started)}"
        job.listener.result(b'{"prowess/kind":"worker_lost"}', _error_body(text))

    # The catalog, and new generations

    async def describe(self) -> Catalog:
        """The catalog as an active worker sees it."""
        worker = self._worker_for(None)
        if worker is None:
            raise ChildProcessError(self.diagnosis or "no worker")
        return await self._described(worker)

    async def next_generation(self) -> Successor:
        """A worker that has loaded the code as it is now. It runs nothing until it is adopted."""
        self._deaths.clear()  # what could not start may start now
        self._generation += 1
        worker = self._spawn()
        if worker is None:
            raise ChildProcessError(self.diagnosis or "no worker")
        try:
            return Successor(worker, await self._described(worker))
        except BaseException:
            worker.process.kill()
            raise

    def adopt(self, successor: Successor, keeping: Collection[str]) -> None:
        """New calls go to the new generation. Old workers finish what they have; one that holds the last good version
        of a skill in `keeping` goes on serving it."""
        old, self._active = self._active, [successor.worker]
        if self._spare is not None:
            self._retire(self._spare)
            self._spare = None
        kept = {skill: self._kept.get(skill) or (old[0] if old else None) for skill in keeping}
        before = {*self._kept.values(), *old}
        self._kept = {skill: worker for skill, worker in kept.items() if worker is not None}
        for worker in before - set(self._kept.values()):
            self._retire(worker)
        self._worker_for(None)

    def discard(self, successor: Successor) -> None:
        """The new generation is no better than the one there is."""
        self._retire(successor.worker)

    async def _described(self, worker: _Worker) -> Catalog:
        if worker.describing is None or worker.describing.done():
            worker.describing = self._loop.create_future()
            worker.describing.add_done_callback(lambda future: future.cancelled() or future.exception())
            worker.process.send(Kind.DESCRIBE)
        return await asyncio.shield(worker.describing)

    async def close(self) -> None:
        """End all workers."""
        self._closing = True
        if self._ticking is not None:
            self._ticking.cancel()
        for worker in list(self._workers):
            if worker.jobs or worker.lingering or worker.stalled or not worker.ready:
                worker.process.kill()
            else:
                worker.process.send(Kind.QUIT)
                self._loop.call_later(_LATE * 5, worker.process.kill)
        await asyncio.gather(*(worker.process.wait() for worker in list(self._workers)), return_exceptions=True)


_TOLD: Final[dict[int, Callable[[Supervisor, Job, Frame], None]]] = {
    Kind.RESULT: Supervisor._told_result,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    Kind.INPUT_REQUIRED: Supervisor._told_input_required,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    Kind.REFUSED: Supervisor._told_refused,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    Kind.QUESTIONS: Supervisor._told_questions,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    Kind.PROGRESS: Supervisor._told_progress,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    Kind.LOG: Supervisor._told_log,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
}


def _error_body(text: str) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text}], "isError": True}, ensure_ascii=False).encode()


def _advice(contract: Contract, *, started: bool) -> str:
    hints = contract.hints
    if not started:
        return "It never began, so trying again is safe."
    if hints.read_only or hints.idempotent:
        return "Trying again is safe."
    return "It may have taken effect before it was lost: check before trying again."


def _catalog(text: bytes) -> Catalog:
    told = json.loads(text)
    contracts = tuple(Contract.from_json(item) for item in told["contracts"])
    return Catalog(contracts, tuple(Failure(*item) for item in told["failures"]))
