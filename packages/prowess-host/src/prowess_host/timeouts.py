"""What takes too long: jobs that are out of time, workers that are silent, and calls that go on although nobody waits.

Has the crew replace such workers; does not know what becomes of such jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from prowess.contract import Contract
from prowess.link import Kind
from prowess.settings import HostSettings
from prowess_host.crew import Crew, Worker
from prowess_host.jobs import NEVER, Job
from prowess_host.workers import STARTING

__all__ = ["Timeouts"]

_log = logging.getLogger("prowess.host")
_LATE: Final = 0.1
"""Seconds the host leaves a worker to answer for itself when a call has run out of time."""


class Timeouts:
    """The clocks of the jobs of one host, and the signs of life of its workers. `jobs` gives those that are not over."""

    def __init__(
        self,
        crew: Crew,
        host: HostSettings,
        *,
        jobs: Callable[[], Collection[Job]],
        on_overdue: Callable[[Job], None],
    ) -> None:
        self._crew = crew
        self._jobs = jobs
        self._on_overdue = on_overdue
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._timer: asyncio.TimerHandle | None = None
        self.configure(host)

    def configure(self, host: HostSettings) -> None:
        """Go by other settings from now on."""
        self._host = host
        self._often = host.stall_limit / 8
        """Seconds between two looks."""

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    # Clocks of jobs

    def start_clock(self, job: Job) -> None:
        """From now on it has its time."""
        job.left = job.seconds + _LATE
        self.resume_clock(job)

    def stop_clock(self, job: Job) -> None:
        """A person is being asked: that takes as long as it takes."""
        if job.due != NEVER:
            job.due, job.left = NEVER, max(job.due - self._now(), _LATE)

    def resume_clock(self, job: Job) -> None:
        """It has the time that was left when its clock was stopped."""
        now = self._now()
        job.due, job.left = min(job.due, now + job.left), NEVER
        self._look_by(min(job.due, now + self._often))

    # What was given up

    def give_up(self, worker: Worker, contract: Contract) -> None:
        """See to it that a call ends for which nobody waits any more."""
        if contract.policies.concurrency is not None:
            worker.given_up.append((self._now(), contract.id))
        self.doubt(worker)

    def doubt(self, worker: Worker) -> None:
        """Ask a worker, after its grace, whether what was given up has really ended."""
        worker.doubts.append(self._now() + self._host.cancel_grace)
        self._look_by(worker.doubts[-1])

    def hear_pong(self, worker: Worker, lingering: int) -> bool:
        """How many calls run on in a worker although they were given up. True if it has been asked, and none does."""
        if not worker.doubting:
            return False
        worker.doubting = False
        if lingering:
            self._crew.drain(worker)
            return False
        worker.given_up = [it for it in worker.given_up if it[0] > worker.asked]
        if worker.given_up:
            self.doubt(worker)
        return True

    # Looking

    def watch(self, worker: Worker) -> None:
        """It has just been started."""
        self._look_by(worker.started + self._host.stall_limit)

    def _look_by(self, when: float) -> None:
        """Have a look at everything at this time at the latest."""
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._now()
        due = now + self._often
        for job in self._jobs():
            if job.due > now:
                due = min(due, job.due)
            elif not job.over:
                self._on_overdue(job)
        for worker in list(self._crew.workers):
            if worker.suspect:
                self._check_alive(worker, now)
                due = min([due, *worker.doubts])
        self._crew.see_to_spare(wanted=any(self._is_failing(worker, now) for worker in self._crew.active))
        if self._jobs() or self._crew.spare is not None or any(worker.suspect for worker in self._crew.workers):
            self._look_by(due)

    def _check_alive(self, worker: Worker, now: float) -> None:
        if not worker.ready:
            if now - worker.started > STARTING:
                worker.reason = f"it did not start within {STARTING:g} s"
                worker.process.kill()
        elif worker.doubts and worker.doubts[0] <= now:
            self._ask_what_lingers(worker, now)
        elif worker.pinged is not None:
            if now - worker.pinged > self._host.stall_limit * 0.75 and not worker.stalled:
                self._stalled(worker)
        elif now - worker.heard >= self._often:
            self._ping(worker, now)

    def _ask_what_lingers(self, worker: Worker, now: float) -> None:
        worker.doubts = [doubt for doubt in worker.doubts if doubt > now]
        worker.doubting = True
        worker.asked = now if worker.pinged is None else worker.pinged
        if worker.stalled:
            self._crew.drain(worker)
        elif worker.pinged is None:
            self._ping(worker, now)

    def _ping(self, worker: Worker, now: float) -> None:
        worker.pinged = now
        worker.process.send(Kind.PING)

    def _is_failing(self, worker: Worker, now: float) -> bool:
        """Whether a worker is silent, or has a thread that has used up more than half of its time."""
        if worker.pinged is not None and worker.ready and now - worker.pinged > self._host.stall_limit * 0.4:
            return True
        late = (job for job in worker.begun() if job.due != NEVER and job.due - now < job.seconds / 2)
        return any(job.contract.policies.thread is not False for job in late)

    def _stalled(self, worker: Worker) -> None:
        """The worker's event loop is blocked. What it has not begun, and all that comes, goes to another one."""
        worker.stalled = True
        commands = ", ".join(sorted({job.contract.id for job in worker.begun()})) or "a command"
        _log.warning(
            "%s blocks the event loop of worker %s for more than %g s: blocking work belongs in a sync command",
            commands,
            worker.process.pid,
            self._host.stall_limit,
        )
        if worker.jobs and not worker.doubting:
            self._crew.retire(worker)
        else:  # what blocks it was given up
            self._crew.drain(worker)
