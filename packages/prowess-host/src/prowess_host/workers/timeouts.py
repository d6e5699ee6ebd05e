"""Watches for everything that takes too long: calls, starts, imports, answers of workers, and abandoned calls that still run.

It sends events to the pool, and the pool and the supervisor act on them.

The clock of a call is wall time. A worker is judged by the time it could use: its clocks stop while it waits for a
processor, and move by one step at most when the host itself was late (the machine slept or was busy). Whatever waits before
it ends a worker goes by these clocks too, since other calls may run in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from prowess.settings.keys import HostSettings
from prowess.worker.board import Importing
from prowess.worker.messages import Kind
from prowess_host.workers.jobs import NEVER, Job
from prowess_host.workers.lifecycle import Event, State
from prowess_host.workers.pool import Pool
from prowess_host.workers.process import STARTING
from prowess_host.workers.worker import GivenUp, Worker

__all__ = ["Timeouts"]

_log = logging.getLogger("prowess.host")
_LATE: Final = 0.1
"""Seconds that a worker gets to answer itself after a call has timed out."""
_READING: Final = 0.1
"""Seconds for reading messages that have arrived while the host stood still."""
_ARRIVING: Final = 5.0
"""Seconds that the rest of an answer gets to arrive. A long one may take some time on a busy machine."""
_SLOW: Final = 1 / 24
"""The part of the limit after which an import is reported: 5 of 120 seconds."""
_HIDDEN: Final = 4
"""How many times the grace a call may go on unnoticed, while others are cancelled all the time."""
_BLAMED: Final = 3
"""Stall limits of silence after which a call that should have ended is blamed instead of an import."""


class Timeouts:
    """The clocks of the jobs of one host, and of its workers.

    `jobs` returns the unfinished jobs, and `arrives` whether a part of the answer to one has arrived.
    """

    def __init__(
        self,
        pools: Iterable[Pool],
        host: HostSettings,
        *,
        jobs: Callable[[], Collection[Job]],
        arrives: Callable[[Job], bool],
        on_overdue: Callable[[Job], None],
    ) -> None:
        self._pools = pools
        self._jobs = jobs
        self._arrives = arrives
        self._on_overdue = on_overdue
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._timer: asyncio.TimerHandle | None = None
        self._next = NEVER
        """The time of the next check, if there is one."""
        self._stood_still = False
        """Whether the last check was late, so that no call was judged."""
        self.loading = 0.0
        """Usable seconds, so far, in which workers started or described skills."""
        self.configure(host)

    def configure(self, host: HostSettings) -> None:
        """Use other settings from now on."""
        self._host = host
        self._often = host.stall_limit / 8
        """Seconds between two checks."""

    def close(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()

    # Clocks of jobs

    def start_clock(self, job: Job) -> None:
        """Start the timeout of a job."""
        now = self._now()
        job.due = now + job.seconds + _LATE
        if job.due < self._next or self._next == NEVER:
            self._check_by(min(job.due, now + self._often))

    def stop_clock(self, job: Job) -> None:
        """Stop the clock while a person is asked."""
        if job.due != NEVER:
            job.due, job.remaining = NEVER, max(job.due - self._now(), _LATE)

    def resume_clock(self, job: Job) -> None:
        """Continue with the remaining time."""
        now = self._now()
        job.due, job.remaining = min(job.due, now + job.remaining), NEVER
        if job.due < self._next or self._next == NEVER:
            self._check_by(min(job.due, now + self._often))

    # Cancelled and overdue calls

    def watch_given_up(self, worker: Worker, job: Job, over: Callable[[], None], *, has_begun: bool) -> None:
        """Check later that a cancelled or overdue call has ended. `over` is called then."""
        worker.may_be_held |= has_begun
        until = self._question(worker)
        worker.given_up.append(GivenUp(self._now(), until, job.contract.id, job.number, over))

    def on_lingering(self, worker: Worker, lingering: int) -> None:
        """Handle the number of calls that still run although they are over. A worker gives a call up itself when its time is up.

        All of them may have ended just now, so they get a grace like other calls.
        """
        worker.given_up.append(GivenUp(self._now(), self._question(worker), "", 0, _nothing, lingering))

    def _question(self, worker: Worker) -> float:
        """After the grace, ask a worker whether cancelled calls have ended. Returns the end of the grace by its clock."""
        seconds = self._host.cancel_grace
        until = self._clock_of(worker) + seconds
        worker.questions.append(until)
        self._check_by(self._now() + min(seconds, self._often))
        return until

    def after(self, worker: Worker, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` when a worker could have run for this long, unless it ends before."""
        worker.waits.append((self._clock_of(worker) + seconds, act))
        self._check_by(self._now() + min(seconds, self._often))

    def _clock_of(self, worker: Worker) -> float:
        """The clock of a worker, which runs from now on."""
        now = self._now()
        if worker.measured is None or not worker.is_measured:
            worker.measured = now
            worker.progress.start()
        return worker.clock + now - worker.measured

    def on_frame(self, worker: Worker) -> None:
        """Called for each frame of a worker."""
        worker.last_frame = self._now()
        worker.pinged = None
        worker.silence = 0.0
        if worker.state is not State.READY:  # READY is the usual state: skip the table
            worker.pool.send(worker, Event.FRAME)

    def on_pong(self, worker: Worker, lingering: int) -> bool:
        """Handle the number of cancelled calls that still run. Returns whether it was the answer to a question, and is 0."""
        worker.pings = max(worker.pings - 1, 0)
        if not worker.questioned or worker.pings > 0:  # it answers an earlier ping, sent before the last cancellation
            return False
        worker.questioned = False
        if lingering:
            if not self._are_in_grace(worker, lingering):
                worker.pool.send(worker, Event.LINGERS)
            return False
        worker.may_be_held = False
        over = [each for each in worker.given_up if each.at <= worker.questioned_at]
        worker.given_up = worker.given_up[len(over) :]
        for each in over:
            worker.release(each.number)
            each.over()
        return True

    def _are_in_grace(self, worker: Worker, lingering: int) -> bool:
        """Whether the calls that go on may all be within their grace, after which there is another question.

        A worker tells only how many they are. Calls that are cancelled all the time must not hide one that is stuck.
        """
        if lingering > sum(each.calls for each in worker.given_up if each.until > worker.clock):
            return False
        return worker.clock < worker.given_up[0].until + self._host.cancel_grace * _HIDDEN

    # Checking

    def watch(self) -> None:
        """Start checking: a start or a description has begun."""
        self._check_by(self._now() + self._often)

    def _check_by(self, when: float) -> None:
        """Schedule the next check at this time at the latest."""
        if self._next <= when:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next = self._loop.call_at(when, self._check), when

    def _check(self) -> None:
        expected, self._next, self._timer, now = self._next, NEVER, None, self._now()
        # A host that stood still reads its messages first: the answer to an overdue call may be among them.
        self._stood_still = not self._stood_still and now > expected + self._often
        due = now + self._often
        for job in self._jobs():
            if job.due > now or self._stood_still or (now < job.due + _ARRIVING and self._arrives(job)):
                due = min(due, max(job.due, now + _READING))
            elif not job.over:
                self._on_overdue(job)
        goes_on, loading = False, 0.0
        for pool in self._pools:
            for worker in list(pool.workers):
                if worker.is_watched or worker.state is State.IMPORTING:
                    loads = worker.describes or not worker.is_up
                    usable = self._check_worker(worker, now)
                    loading = max(loading, usable) if loads else loading
                    due = min([due, *(now + pause for pause in self._pauses(worker))])
                else:
                    worker.measured = None
            pool.adjust_spare(needed=any(self._may_need_another(worker, now) for worker in pool.active))
            goes_on = goes_on or pool.spare is not None or any(worker.is_watched for worker in pool.workers)
        self.loading += loading
        if goes_on or self._jobs():
            self._check_by(due)

    def _check_worker(self, worker: Worker, now: float) -> float:
        """Check a worker. Returns its usable seconds since the last check, as far as they are measured."""
        importing = worker.importing
        usable = self._usable(worker, now) if worker.is_measured else 0.0
        self._act(worker)
        if not worker.is_up:
            self._check_start(worker, 0.0 if worker.process.is_preparing else usable)
            return usable
        self._check_imports(worker, importing, usable)
        if worker.describing is not None and worker.describes and not importing and worker.describing.spend(usable):
            worker.pool.send(worker, Event.LINGERS)
        if worker.questions and worker.questions[0] <= worker.clock:
            self._ask_what_lingers(worker, now)
        if worker.pinged is not None:
            self._check_silence(worker, usable)
        elif (worker.jobs or worker.questioned) and now - worker.last_frame >= self._often:
            self._ping(worker, now)
        return usable

    def _usable(self, worker: Worker, now: float) -> float:
        """The usable seconds of a worker since the last check."""
        before, worker.measured = worker.measured, now
        if before is None:
            worker.progress.start()
            return 0.0
        most = 2 * self._often
        usable = min(worker.progress.usable(now - before), most)
        worker.clock += usable if worker.progress.is_exact else min(now - before, most)
        return usable

    def _pauses(self, worker: Worker) -> list[float]:
        """The usable seconds until something is due for a worker."""
        questions = worker.questions if worker.is_up else ()
        return [at - worker.clock for at in (*questions, *(at for at, _ in worker.waits))]

    def _act(self, worker: Worker) -> None:
        """Do what is due for a worker."""
        if any(at <= worker.clock for at, _ in worker.waits):
            due = [act for at, act in worker.waits if at <= worker.clock]
            worker.waits = [each for each in worker.waits if each[0] > worker.clock]
            for act in due:
                act()

    def _check_start(self, worker: Worker, usable: float) -> None:
        worker.starting += usable
        if worker.starting > STARTING:
            worker.reason = f"it did not start within {STARTING:g} s"
            worker.pool.send(worker, Event.START_OVERDUE)

    def _check_imports(self, worker: Worker, importing: tuple[Importing, ...], usable: float) -> None:
        limit, before = self._host.import_limit, worker.imports
        worker.imports = {each: before.get(each, -usable) + usable for each in importing}  # a new import begins at 0
        if before.keys() - worker.imports.keys():
            worker.silence = 0.0  # an import that held the interpreter has just ended: only now can the worker answer
        if worker.state is State.IMPORTING and not importing:
            worker.pool.send(worker, Event.IMPORT_ENDED)
        for each, spent in worker.imports.items():
            if before.get(each, 0.0) <= limit * _SLOW < spent:
                told = "still importing %s (%s) after %.0f s; the setting host.import_limit ends that after %g s"
                _log.warning(told, each.skill, each.file, spent, limit)
        if any(before.get(each, 0.0) <= limit < spent for each, spent in worker.imports.items()):  # reported once
            worker.pool.send(worker, Event.IMPORT_OVERDUE)

    def _check_silence(self, worker: Worker, usable: float) -> None:
        """Send an event for a worker that has not answered for most of the stall limit: held by an import, or blocked."""
        worker.silence += usable
        if worker.silence > self._host.stall_limit * 0.4:
            worker.pool.send(worker, Event.UNANSWERED)
        if worker.silence > self._host.stall_limit * 0.75:
            if worker.importing:
                worker.pool.send(worker, Event.IMPORT_HOLDS)
                if worker.may_be_held and worker.silence > self._host.stall_limit * _BLAMED:
                    worker.pool.send(worker, Event.CALL_HOLDS)
            elif worker.questioned or not worker.jobs:  # it is blocked by a cancelled call
                worker.pool.send(worker, Event.LINGERS)
            else:
                worker.pool.send(worker, Event.BLOCKED)

    def _ask_what_lingers(self, worker: Worker, now: float) -> None:
        worker.questions = [question for question in worker.questions if question > worker.clock]
        worker.questioned = True
        worker.questioned_at = now
        if worker.state is State.STUCK:
            worker.pool.send(worker, Event.LINGERS)
        else:
            self._ping(worker, now)

    def _ping(self, worker: Worker, now: float) -> None:
        if worker.pinged is None:
            worker.pinged = now
            worker.silence = 0.0
            if not (worker.importing or worker.questions or worker.waits):
                worker.measured = None
        worker.pings += 1
        worker.process.send(Kind.PING)

    def _may_need_another(self, worker: Worker, now: float) -> bool:
        """Whether a worker is silent, or a sync call has used more than half of its time."""
        if worker.state is State.SILENT or (worker.state is State.IMPORTING and not worker.pool.stand_ins):
            return True
        late = (job for job in worker.begun() if job.due != NEVER and job.due - now < job.seconds / 2)
        return any(job.contract.policies.thread is not False for job in late)


def _nothing() -> None:
    """A call that the worker gave up itself has been answered, and counts for no limit of the host."""
