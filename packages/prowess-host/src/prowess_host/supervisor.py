"""Which worker runs which call: starting, replacing, draining and killing workers, and what becomes of their calls.

Knows calls as bytes to send and as somebody to tell; knows no protocol of any client.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from prowess.contract import Contract
from prowess.description import Description
from prowess.jsontypes import JsonObject
from prowess.link import Board, Frame, Kind
from prowess.memory import LARGE, give_back_soon
from prowess.settings import Settings
from prowess_host.workers import Importing, WorkerProcess, describe_exit

__all__ = ["Job", "Listener", "LostImport", "LostWorker", "Successor", "Supervisor"]

_log = logging.getLogger("prowess.host")
_LATE: Final = 0.1
"""Seconds the host leaves a worker to answer for itself when a call has run out of time."""
_LEAVING: Final = 0.5
"""Seconds an idle worker gets to close what it had opened when the host leaves."""
_STARTING: Final = 60.0
"""Seconds a worker gets until it says that it is up, and then until it has described what it can do. A skill that
imports half the world takes ten."""
_MOST_TRIES: Final = 3
_NEVER: Final = float("inf")
_NOT_SAID: Final = "the question cannot be sent to the client as it is"


class Listener(Protocol):
    """Whoever wants to know what becomes of a job. Exactly one of `result`, `input_required` and `refused` is called."""

    def result(self, meta: bytes, body: bytes) -> None:
        """The payload, ready-made: `_meta`, and the rest."""
        ...

    def input_required(self, questions: JsonObject) -> None:
        """The run has ended with questions, and wants to be repeated with the answers."""
        ...

    def refused(self, facts: JsonObject) -> None:
        """There is no result, for a reason with a `kind` and a `message`."""
        ...

    def questions(self, questions: JsonObject) -> None:
        """The run waits for answers."""
        ...

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """The command is so far."""
        ...

    def log(self, level: str, data: Any) -> None:
        """The command has something to say."""
        ...


class LostWorker(ChildProcessError):
    """A worker ended while it described, and what it was asked for need not have to do with that."""


class LostImport(LostWorker):
    """A worker ended, or did not come to an end, while it imported a skill."""

    def __init__(self, importing: Importing, reason: str, *, killed: bool = False) -> None:
        super().__init__(f"{importing.skill} ({importing.file}): {reason}")
        self.importing = importing
        self.reason = reason
        self.killed = killed
        """Whether it looks as if somebody else had ended it."""


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
    due: float = _NEVER
    """When the host answers in the place of a worker that does not."""
    left: float = _NEVER
    """Seconds until then, while the clock stands still."""
    tries: int = 0
    over: bool = False


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker process and what the supervisor knows of it."""

    generation: int
    started: float
    process: WorkerProcess = field(init=False)
    jobs: dict[int, Job] = field(default_factory=dict[int, Job])
    slots: set[int] = field(default_factory=set[int])
    ready: bool = False
    proven: bool = False
    """It has done something, so that this one can at least start."""
    retired: bool = False
    heard: float = 0.0
    pinged: float | None = None
    stalled: bool = False
    doubts: list[float] = field(default_factory=list[float])
    """When to ask whether what was given up has ended."""
    doubting: bool = False
    """The last ping was such a question."""
    asked: float = 0.0
    """When the question was sent."""
    given_up: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """Commands with a limit on calls at once that nobody waits for, and that may run on; since when."""
    reason: str = ""
    """What it said of why it cannot serve."""
    describing: asyncio.Future[Description] | None = None
    loaded: set[str] = field(default_factory=set[str])
    """The skills that it has imported."""

    @property
    def suspect(self) -> bool:
        """Whether somebody has to keep an eye on it."""
        return bool(self.jobs or self.doubts or self.doubting or not self.ready)


@dataclass(frozen=True, slots=True)
class Successor:
    """A worker of the next generation, and what it can do."""

    worker: _Worker
    description: Description


class Supervisor:
    """The workers of one host."""

    def __init__(self, root: Path, settings: Settings, flags: Mapping[str, Any]) -> None:
        self._root = root
        self._flags = dict(flags)
        self.configure(settings)
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._workers: list[_Worker] = []
        self._active: list[_Worker] = []
        self._spare: _Worker | None = None
        self._kept: dict[str, _Worker] = {}
        """By skill: the worker with the last good version of what no longer loads."""
        self._gone: set[str] = set()
        """Skills that no longer load, and whose last good version is in no worker."""
        self._generation = 1
        self._number = 0
        self._waiting: list[Job] = []
        self._deaths: list[float] = []
        self._ticking: asyncio.TimerHandle | None = None
        self._closing = False
        self.diagnosis = ""
        """Why the last worker that could not start, could not."""
        self.on_live: Callable[[Mapping[str, str]], None] = _nobody_compares
        """Hears the digests of skills that an active worker has just imported."""
        self.lost_at_once: list[int] = []
        """How many calls each death of a worker took down."""

    def start(self) -> None:
        """Have a worker come up, so that the first call finds one."""
        self._fill()

    def configure(self, settings: Settings) -> None:
        """Go by other settings from now on. Every worker is told the same ones, whatever the files say by then."""
        self._own = settings.own
        self._host = settings.own.host
        self._told = json.dumps({"flags": self._flags, "written": settings.written}).encode()

    # Jobs

    def submit(self, job: Job) -> None:
        """Run a job; its listener hears of the end exactly once, unless it is cancelled."""
        job.left = job.seconds + _LATE
        self._resume_clock(job)
        self._dispatch(job)

    def cancel(self, job: Job) -> None:
        """Nobody wants to hear of this job any more."""
        self._give_up(job)

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
        contract = job.contract
        if contract.policies.concurrency is not None and self._held_back(job):
            self._waiting.append(job)
            return
        if contract.skill in self._gone:
            lost = f"{contract.skill} no longer loads, and there is no worker with its last good version"
            self._fail(job, f"{lost}; mend the skill", started=False)
            return
        worker = self._worker_for(contract)
        if worker is None:
            self._fail(job, self._why_none(), started=False)
            return
        number = self._free_number(worker)
        job.number, job.worker = number, worker
        job.tries += 1
        worker.jobs[number] = job
        worker.process.send(Kind.CALL, number, job.head, job.arguments, more=len(worker.jobs) > 1)

    def _free_number(self, worker: _Worker) -> int:
        """The next number whose slot on the worker's board is free."""
        number = self._number + 1
        while (slot := Board.slot(number)) in worker.slots:
            number += 1
        worker.slots.add(slot)
        self._number = number
        return number

    def _held_back(self, job: Job) -> bool:
        """Whether `concurrency` would be broken across generations: workers keep it among their own calls only."""
        most = job.contract.policies.concurrency
        command = job.contract.id
        if any(other.contract.id == command and other is not job for other in self._waiting):
            return True
        running = sum(_running(worker, command) for worker in self._workers if worker not in self._active)
        if most is None or not running:
            return False
        return running + sum(_running(worker, command) for worker in self._active) >= most

    def _release(self) -> None:
        """Dispatch what was held back, as far as it goes now."""
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            if not job.over:
                self._dispatch(job)

    def _finish(self, job: Job) -> None:
        """The job is over, whatever came of it."""
        job.over = True
        if len(job.arguments) >= LARGE:
            give_back_soon()
        worker = job.worker
        if worker is not None and worker.jobs.pop(job.number, None) is not None:
            worker.slots.discard(Board.slot(job.number))
            worker.process.forget(job.number)
            if worker.retired and not worker.jobs:
                self._loop.call_soon(self._dismiss, worker)
        if self._waiting:
            self._loop.call_soon(self._release)

    def _give_up(self, job: Job) -> None:
        """Have a worker stop a job, and see to it that it does."""
        worker = job.worker
        sent = worker is not None and not job.over
        if worker is not None and sent and job.contract.policies.concurrency is not None:
            worker.given_up.append((self._now(), job.contract.id))
        self._finish(job)
        if worker is not None and sent:
            worker.process.send(Kind.CANCEL, job.number)
            self._doubt(worker)

    def _doubt(self, worker: _Worker) -> None:
        """Ask a worker, after its grace, whether what was given up has really ended."""
        worker.doubts.append(self._now() + self._host.cancel_grace)
        self._tick_by(worker.doubts[-1])

    # Time

    def _resume_clock(self, job: Job) -> None:
        now = self._now()
        job.due, job.left = min(job.due, now + job.left), _NEVER
        self._tick_by(min(job.due, now + self._host.stall_limit / 8))

    def _stop_clock(self, job: Job) -> None:
        """A person is being asked: that takes as long as it takes."""
        if job.due != _NEVER:
            job.due, job.left = _NEVER, max(job.due - self._now(), _LATE)

    def _overdue(self, job: Job) -> None:
        """The worker did not answer in time, so it is stuck: the host answers, and sees to the worker."""
        self._give_up(job)
        text = f"{job.contract.id} timed out after {job.seconds:g} s"
        self._tell(job, job.listener.result, b'{"prowess/kind":"timeout"}', _error_body(text))

    # Signs of life

    def _tick_by(self, when: float) -> None:
        """Have a look at everything at this time at the latest."""
        if self._ticking is not None:
            if self._ticking.when() <= when:
                return
            self._ticking.cancel()
        self._ticking = self._loop.call_at(when, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        now = self._now()
        due = now + self._host.stall_limit / 8
        jobs = [*self._waiting, *(job for worker in self._workers for job in worker.jobs.values())]
        for job in jobs:
            if job.due > now:
                due = min(due, job.due)
            elif not job.over:
                self._overdue(job)
        for worker in list(self._workers):
            if worker.suspect:
                self._check_alive(worker, now)
                due = min([due, *worker.doubts])
        self._see_to_spare(now)
        if self.busy or self._spare is not None or any(worker.suspect for worker in self._workers):
            self._tick_by(due)

    def _check_alive(self, worker: _Worker, now: float) -> None:
        limit = self._host.stall_limit
        if not worker.ready:
            if now - worker.started > _STARTING:
                worker.reason = f"it did not start within {_STARTING:g} s"
                worker.process.kill()
        elif worker.doubts and worker.doubts[0] <= now:
            worker.doubts = [doubt for doubt in worker.doubts if doubt > now]
            worker.doubting = True
            worker.asked = now if worker.pinged is None else worker.pinged
            if worker.stalled:
                self._drain(worker)
            elif worker.pinged is None:
                self._ping(worker, now)
        elif worker.pinged is not None:
            if now - worker.pinged > limit * 0.75 and not worker.stalled:
                self._stalled(worker)
        elif now - worker.heard >= limit / 8:
            self._ping(worker, now)

    def _ping(self, worker: _Worker, now: float) -> None:
        worker.pinged = now
        worker.process.send(Kind.PING)

    def _see_to_spare(self, now: float) -> None:
        """A worker that will probably have to be replaced has its replacement come up already."""
        wanted = any(self._is_failing(worker, now) for worker in self._active)
        if wanted and self._spare is None:
            self._spare = self._spawn()
        elif self._spare is not None and not wanted:
            spare, self._spare = self._spare, None
            self._retire(spare)

    def _is_failing(self, worker: _Worker, now: float) -> bool:
        """Whether a worker is silent, or has a thread that has used up more than half of its time."""
        if worker.pinged is not None and worker.ready and now - worker.pinged > self._host.stall_limit * 0.4:
            return True
        late = (job for job in self._begun(worker) if job.due != _NEVER and job.due - now < job.seconds / 2)
        return any(job.contract.policies.thread is not False for job in late)

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
        if worker.jobs and not worker.doubting:
            self._retire(worker)
        else:  # what blocks it was given up
            self._drain(worker)

    # Workers

    def _fill(self) -> None:
        """Have as many active workers as there should be, as far as they can be had."""
        while len(self._active) < self._host.workers:
            worker, self._spare = self._spare or self._spawn(), None
            if worker is None:
                return
            self._active.append(worker)

    def _worker_for(self, contract: Contract) -> _Worker | None:
        """The worker for a call: the least busy of the active ones; what must be one sticks to the first."""
        if self._kept and contract.skill in self._kept:
            return self._kept[contract.skill]
        if len(self._active) < self._host.workers:
            self._fill()
        if not self._active:
            return None
        if len(self._active) == 1 or contract.policies.cache_ttl or contract.policies.concurrency is not None:
            return self._active[0]
        return min(self._active, key=lambda worker: len(worker.jobs))

    def _spawn(self) -> _Worker | None:
        """A new worker, unless too many could not start: that is a diagnosis, not a loop."""
        now = self._now()
        self._deaths = [death for death in self._deaths if now - death < self._host.restart_window]
        if self._closing or len(self._deaths) > self._host.restart_limit:
            return None
        worker = _Worker(self._generation, now, heard=now)
        python = self._own.python or sys.executable
        try:
            worker.process = WorkerProcess(
                python,
                self._root,
                self._told,
                on_frame=lambda frame: self._on_frame(worker, frame),
                on_exit=lambda: self._on_exit(worker),
            )
        except OSError as error:
            self.diagnosis = f"{python} cannot be run in {self._root}: {error.strerror}; check the setting `python`"
            return None
        self._workers.append(worker)
        self._tick_by(now + self._host.stall_limit)
        return worker

    def _why_none(self) -> str:
        if self._closing:
            return "the host is leaving"
        return f"no worker can be started: {self.diagnosis or 'too many have ended lately'}"

    def _retire(self, worker: _Worker) -> None:
        """No new calls. What was never begun moves to another worker; the rest goes on."""
        if worker.retired:
            return
        worker.retired = True
        self._forget_place(worker)
        worker.process.retire()
        for job in [job for job in worker.jobs.values() if not worker.process.has_begun(job.number)]:
            job.tries -= 1  # it is moved because of us, and through no fault of its own
            self._move(job)
        if not worker.jobs:
            self._dismiss(worker)

    def _forget_place(self, worker: _Worker) -> None:
        """Nothing is given to this worker any more."""
        if worker in self._active:
            self._active.remove(worker)
            if not self._closing and worker.proven:
                self._fill()
        lost = {skill for skill, kept in self._kept.items() if kept is worker}
        self._gone |= lost
        for skill in lost:
            del self._kept[skill]

    def _move(self, job: Job) -> None:
        """Give a job that was never begun to another worker."""
        worker = job.worker
        assert worker is not None  # noqa: S101 - it was dispatched
        worker.jobs.pop(job.number)
        worker.slots.discard(Board.slot(job.number))
        job.worker = None
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
        if worker.stalled or not worker.ready or worker.doubts or worker.doubting:
            worker.process.kill()
        else:
            worker.process.send(Kind.QUIT)
            self._loop.call_later(self._host.grace, worker.process.kill)

    def _begun(self, worker: _Worker) -> Iterator[Job]:
        return (job for job in worker.jobs.values() if worker.process.has_begun(job.number))

    # What workers say

    def _on_frame(self, worker: _Worker, frame: Frame) -> None:
        worker.heard = self._now()
        worker.pinged = None
        worker.stalled = False
        kind = frame.kind
        told = _TOLD_OF_JOB.get(kind)
        if told is not None:
            job = worker.jobs.get(frame.number)
            if job is not None:
                worker.proven = True
                told(self, job, frame)
        elif kind == Kind.UNBEGUN:
            self._hear_unbegun(worker, frame.number)
        elif kind == Kind.PONG:
            self._hear_pong(worker, frame.number)
        elif kind == Kind.LINGERING:
            self._doubt(worker)
        elif kind == Kind.READY:
            worker.ready = True
        elif kind == Kind.LIVE:
            self._hear_live(worker, json.loads(frame.head))
        elif kind == Kind.CATALOG:
            self._hear_description(worker, frame.head)
        elif kind == Kind.FAILED:
            worker.reason = frame.head.decode("utf-8", "replace")
            if worker.describing is not None and not worker.describing.done():
                worker.describing.set_exception(ChildProcessError(worker.reason))

    def _hear_unbegun(self, worker: _Worker, number: int) -> None:
        """A call that looked begun when its worker was retired, and was not."""
        job = worker.jobs.get(number)
        if job is not None:
            job.tries -= 1
            self._move(job)
            if not worker.jobs:
                self._loop.call_soon(self._dismiss, worker)

    def _hear_pong(self, worker: _Worker, lingering: int) -> None:
        if worker.doubting:
            worker.doubting = False
            if lingering:
                self._drain(worker)
            else:
                worker.given_up = [it for it in worker.given_up if it[0] > worker.asked]
                if worker.given_up:
                    self._doubt(worker)
                self._release()

    def _hear_live(self, worker: _Worker, digests: dict[str, str]) -> None:
        worker.loaded.update(digests)
        if worker in self._active:
            self.on_live(digests)

    def _hear_description(self, worker: _Worker, text: bytes) -> None:
        worker.proven = True
        self.diagnosis = ""
        description = Description.from_json(json.loads(text))
        worker.loaded.update(description.skills)
        if worker.describing is not None and not worker.describing.done():
            worker.describing.set_result(description)

    def _told_result(self, job: Job, frame: Frame) -> None:
        self._finish(job)
        self._tell(job, job.listener.result, frame.head, frame.body)

    def _told_input_required(self, job: Job, frame: Frame) -> None:
        self._finish(job)
        if not self._tell(job, job.listener.input_required, json.loads(frame.head)):
            self._tell(job, job.listener.refused, {"kind": "failed", "message": _NOT_SAID})

    def _told_refused(self, job: Job, frame: Frame) -> None:
        self._finish(job)
        self._tell(job, job.listener.refused, json.loads(frame.head))

    def _told_questions(self, job: Job, frame: Frame) -> None:
        self._stop_clock(job)
        if not self._tell(job, job.listener.questions, json.loads(frame.head)):
            self.answer(job, {"error": _NOT_SAID})

    def _told_progress(self, job: Job, frame: Frame) -> None:
        self._tell(job, job.listener.progress, *json.loads(frame.head))

    def _told_log(self, job: Job, frame: Frame) -> None:
        self._tell(job, job.listener.log, *json.loads(frame.head))

    def _tell(self, job: Job, heard: Callable[..., None], *args: Any) -> bool:
        """Whatever a listener does with the news, the link to the worker must not break over it."""
        try:
            heard(*args)
        except Exception:  # noqa: BLE001 - see above
            _log.exception("a message of %s could not be passed on", job.contract.id)
            return False
        return True

    # Deaths

    def _on_exit(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        if worker is self._spare:
            self._spare = None
        expected = worker.retired or self._closing
        how = (
            worker.reason or f"the last worker ended ({describe_exit(worker.process.exit_code)}), see its log on stderr"
        )
        begun = list(self._begun(worker))
        importing = worker.process.importing
        describing = worker.describing is not None and not worker.describing.done()
        if not expected and not worker.proven and not begun and not (importing and describing):
            self._deaths.append(self._now())
            self.diagnosis = how
        if worker.describing is not None and describing:
            if importing and not begun and not worker.retired:  # else it may have been a call, or we ourselves
                worker.describing.set_exception(_lost_import(worker, importing))
            else:
                worker.describing.set_exception(LostWorker(how))
        self._forget_place(worker)
        self._redistribute(worker, begun)
        self._release()

    def _redistribute(self, worker: _Worker, lost: list[Job]) -> None:
        """Answer for the calls that went down with a worker, and give those it never began to another."""
        if lost:
            self.lost_at_once.append(len(lost))
        ended = f"its worker ended ({describe_exit(worker.process.exit_code)})"
        for job in lost:
            self._fail(job, "the host is leaving" if self._closing else ended, started=True)
        importing = worker.process.importing
        for job in [job for job in worker.jobs.values() if importing and job.contract.skill == importing.skill]:
            self._fail(job, f"{ended} while it was loaded", started=False)  # it would end the next worker as well
        for job in list(worker.jobs.values()):
            self._move(job)

    def _fail(self, job: Job, reason: str, *, started: bool) -> None:
        self._finish(job)
        text = f"{job.contract.id} was lost: {reason}. {_advice(job.contract, started=started)}"
        self._tell(job, job.listener.result, b'{"prowess/kind":"worker_lost"}', _error_body(text))

    # The catalog, and new generations

    async def describe(self, known: Collection[str] = ()) -> Description:
        """The skills but for the known ones, as an active worker sees them; one at a time.

        A `ChildProcessError` says why that cannot be had, and a `LostImport` whose fault it was.
        """
        self._fill()
        if not self._active:
            raise ChildProcessError(self._why_none())
        return await self._described(self._active[0], known)

    async def next_generation(self, known: Collection[str] = ()) -> Successor:
        """A worker that has loaded the code as it is now, but for the known skills. It runs nothing until it is adopted.

        Fails as `describe` does.
        """
        self._deaths.clear()  # what could not start may start now
        self._generation += 1
        worker = self._spawn()
        if worker is None:
            raise ChildProcessError(self._why_none())
        try:
            return Successor(worker, await self._described(worker, known))
        except BaseException:
            self._discard(worker)
            raise

    @property
    def loaded(self) -> set[str]:
        """The skills that workers of today have imported, so that they run on whatever becomes of their files."""
        return {*self._kept, *(skill for worker in self._active[:1] for skill in worker.loaded)}

    def adopt(self, successor: Successor, keeping: Collection[str]) -> None:
        """New calls go to the new generation. Old workers finish what they have; one that holds the last good version
        of a skill in `keeping` goes on serving it.
        """
        old, self._active = self._active, [successor.worker]
        if successor.worker.process.exit_code is not None:
            self._active.clear()
        spare, self._spare = self._spare, None
        before = {*self._kept.values(), *old, *([spare] if spare else [])}
        kept = {
            skill: self._kept.get(skill) or next((it for it in old if skill in it.loaded), None) for skill in keeping
        }
        self._kept = {skill: worker for skill, worker in kept.items() if worker is not None}
        self._gone = {skill for skill in keeping if skill not in self._kept}
        for worker in before - set(self._kept.values()):
            self._retire(worker)
        self._fill()
        self._release()

    def give_up(self, skills: Collection[str]) -> None:
        """These do not load any more, and no worker has a version of them that did."""
        self._gone.update(skills)

    def discard(self, successor: Successor) -> None:
        """It is not wanted after all."""
        self._discard(successor.worker)

    def _discard(self, worker: _Worker) -> None:
        worker.retired = True
        worker.process.kill()

    async def _described(self, worker: _Worker, known: Collection[str]) -> Description:
        describing = worker.describing = self._loop.create_future()
        describing.add_done_callback(lambda future: future.cancelled() or future.exception())
        worker.process.send(Kind.DESCRIBE, 0, json.dumps(sorted(known)).encode())
        before: Importing | None = None
        while not (await asyncio.wait([describing], timeout=_STARTING))[0]:
            importing = worker.process.importing
            if importing == before:
                self._drain(worker)
                raise _too_slow(importing)
            before = importing
        return describing.result()

    async def close(self) -> None:
        """End all workers. What still runs is answered for."""
        self._closing = True
        if self._ticking is not None:
            self._ticking.cancel()
        for job in self._waiting:
            if not job.over:
                self._fail(job, self._why_none(), started=False)
        self._waiting.clear()
        for worker in self._workers:
            if worker.suspect or worker.stalled:
                worker.process.kill()
            else:
                worker.process.send(Kind.QUIT)
                self._loop.call_later(_LEAVING, worker.process.kill)
        await asyncio.gather(*(worker.process.wait() for worker in list(self._workers)))


_TOLD_OF_JOB: Final[dict[int, Callable[[Supervisor, Job, Frame], None]]] = {
    Kind.RESULT: Supervisor._told_result,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    Kind.INPUT_REQUIRED: Supervisor._told_input_required,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    Kind.REFUSED: Supervisor._told_refused,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    Kind.QUESTIONS: Supervisor._told_questions,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    Kind.PROGRESS: Supervisor._told_progress,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    Kind.LOG: Supervisor._told_log,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
}


def _running(worker: _Worker, command: str) -> int:
    """How many calls of a command are in a worker, as far as anybody knows."""
    jobs = sum(job.contract.id == command for job in worker.jobs.values())
    return jobs + sum(name == command for _, name in worker.given_up)


def _nobody_compares(_digests: Mapping[str, str]) -> None:
    """Where nothing was known before, nothing can differ."""


def _too_slow(importing: Importing | None) -> ChildProcessError:
    if importing:
        return LostImport(importing, f"its import takes more than {_STARTING:g} s")
    return ChildProcessError(f"a worker has not described the skills within {2 * _STARTING:g} s")


def _lost_import(worker: _Worker, importing: Importing) -> LostImport:
    code = worker.process.exit_code
    killed = code in (-signal.SIGKILL, -signal.SIGTERM)
    return LostImport(importing, f"its import ended the process ({describe_exit(code)})", killed=killed)


def _error_body(text: str) -> bytes:
    text = text.encode("utf-8", "backslashreplace").decode()
    return json.dumps({"content": [{"type": "text", "text": text}], "isError": True}, ensure_ascii=False).encode()


def _advice(contract: Contract, *, started: bool) -> str:
    hints = contract.hints
    if not started:
        return "It never began, so trying again is safe."
    if hints.read_only or hints.idempotent:
        return "Trying again is safe."
    return "It may have taken effect before it was lost: check before trying again."
