"""Which worker runs which call, and what becomes of it when that worker stops, goes or ends. The door to the workers.

Knows calls as bytes to send and as somebody to tell; knows no protocol of any client.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prowess.description import Description
from prowess.jsontypes import JsonObject
from prowess.link import Frame, Kind
from prowess.memory import LARGE, give_back_soon
from prowess.settings import Settings
from prowess_host.crew import Crew, Worker
from prowess_host.describing import Describing
from prowess_host.jobs import LAST, NOT_SAID, TELLING, Job, tell_lost, tell_timeout
from prowess_host.timeouts import Timeouts
from prowess_host.workers import describe_exit

__all__ = ["Successor", "Supervisor"]

_MOST_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Successor:
    """A worker of the next generation, and what it can do."""

    worker: Worker
    description: Description


class Supervisor:
    """The workers of one host, and their jobs."""

    def __init__(self, root: Path, settings: Settings, flags: Mapping[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._crew = Crew(
            root,
            settings,
            flags,
            on_start=self._on_start,
            on_frame=self._on_frame,
            on_exit=self._on_exit,
            on_unbegun=self._take_back,
        )
        self._timeouts = Timeouts(self._crew, settings.own.host, jobs=self._jobs, on_overdue=self._overdue)
        self._running: dict[Job, Worker] = {}
        self._waiting: list[Job] = []
        self._number = 0
        self.on_live: Callable[[Mapping[str, str]], None] = _nobody_compares
        """Hears the digests of skills that an active worker has just imported."""

    def start(self) -> None:
        """Have a worker come up, so that the first call finds one."""
        self._crew.fill()

    def configure(self, settings: Settings) -> None:
        """Go by other settings from now on."""
        self._crew.configure(settings)
        self._timeouts.configure(settings.own.host)

    async def close(self) -> None:
        """End all workers. What still runs is answered for."""
        self._timeouts.close()
        self._crew.dismiss_all()
        for job in self._waiting:
            if not job.over:
                self._fail(job, self._crew.why_none(), started=False)
        self._waiting.clear()
        await self._crew.wait()

    # Jobs

    def submit(self, job: Job) -> None:
        """Run a job; its listener hears of the end exactly once, unless it is cancelled."""
        self._timeouts.start_clock(job)
        self._dispatch(job)

    def cancel(self, job: Job) -> None:
        """Nobody wants to hear of this job any more."""
        self._give_up(job)

    def answer(self, job: Job, told: JsonObject) -> None:
        """What a person answered, as `{"answers": ...}`, or why nobody did, as `{"error": ...}`."""
        worker = self._running.get(job)
        if worker is not None:
            self._timeouts.resume_clock(job)
            worker.process.send(Kind.ANSWERS, job.number, json.dumps(told).encode())

    @property
    def busy(self) -> int:
        """How many jobs are not over."""
        return len(self._running) + len(self._waiting)

    def _jobs(self) -> list[Job]:
        return [*self._waiting, *self._running]

    def _dispatch(self, job: Job) -> None:
        contract = job.contract
        if contract.policies.concurrency is not None and self._held_back(job):
            self._waiting.append(job)
            return
        worker = self._crew.worker_for(contract)
        if worker is None:
            self._fail(job, self._crew.why_none(contract.skill), started=False)
            return
        self._running[job] = worker
        self._number = number = worker.take(job, self._number)
        job.tries += 1
        worker.process.send(Kind.CALL, number, job.head, job.arguments, more=len(worker.jobs) > 1)

    def _held_back(self, job: Job) -> bool:
        """Whether `concurrency` would be broken across generations: workers keep it among their own calls only."""
        most = job.contract.policies.concurrency
        command = job.contract.id
        if any(other.contract.id == command and other is not job for other in self._waiting):
            return True
        active = self._crew.active
        elsewhere = sum(worker.running(command) for worker in self._crew.workers if worker not in active)
        if most is None or not elsewhere:
            return False
        return elsewhere + sum(worker.running(command) for worker in active) >= most

    def _release(self) -> None:
        """Dispatch what was held back, as far as it goes now."""
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            if not job.over:
                self._dispatch(job)

    def _move(self, job: Job) -> None:
        """Give a job that was never begun to another worker."""
        self._running.pop(job).drop(job)
        if job.tries < _MOST_TRIES:
            self._dispatch(job)
        else:
            self._fail(job, "every worker it was given to went away", started=False)

    def _take_back(self, job: Job) -> None:
        """Its worker was retired before it began: that is because of us, and through no fault of its own."""
        job.tries -= 1
        self._move(job)

    def _finish(self, job: Job) -> None:
        """The job is over, whatever came of it."""
        job.over = True
        if len(job.arguments) >= LARGE:
            give_back_soon()
        worker = self._running.pop(job, None)
        if worker is not None:
            worker.drop(job)
            worker.process.forget(job.number)
            if worker.retired and not worker.jobs:
                self._loop.call_soon(self._crew.dismiss, worker)
        if self._waiting:
            self._loop.call_soon(self._release)

    def _fail(self, job: Job, reason: str, *, started: bool) -> None:
        self._finish(job)
        tell_lost(job, reason, started=started)

    def _give_up(self, job: Job) -> None:
        """Have a worker stop a job, and see to it that it does."""
        worker = self._running.get(job)
        self._finish(job)
        if worker is not None:
            worker.process.send(Kind.CANCEL, job.number)
            self._timeouts.give_up(worker, job.contract)

    def _overdue(self, job: Job) -> None:
        """The worker did not answer in time, so it is stuck: the host answers, and sees to the worker."""
        self._give_up(job)
        tell_timeout(job)

    # What workers say

    def _on_frame(self, worker: Worker, frame: Frame) -> None:
        worker.heard = self._now()
        worker.pinged = None
        worker.stalled = False
        if frame.kind not in TELLING:
            self._hear(worker, frame)
            return
        job = worker.jobs.get(frame.number)
        if job is not None:
            worker.proven = True
            self._pass_on(job, frame)

    def _pass_on(self, job: Job, frame: Frame) -> None:
        """Tell a listener what its worker says."""
        kind = frame.kind
        if kind in LAST:
            self._finish(job)
        elif kind == Kind.QUESTIONS:
            self._timeouts.stop_clock(job)
        told = TELLING[kind](job, frame)
        if not told and kind == Kind.QUESTIONS:
            self.answer(job, {"error": NOT_SAID})

    def _hear(self, worker: Worker, frame: Frame) -> None:
        """What a worker says of itself."""
        kind = frame.kind
        if kind == Kind.UNBEGUN:
            self._hear_unbegun(worker, frame.number)
        elif kind == Kind.PONG:
            if self._timeouts.hear_pong(worker, frame.number):
                self._release()
        elif kind == Kind.LINGERING:
            self._timeouts.doubt(worker)
        elif kind == Kind.READY:
            worker.ready = True
        elif kind == Kind.LIVE:
            self._hear_live(worker, json.loads(frame.head))
        elif kind == Kind.CATALOG:
            self._crew.hear_description(worker, Description.from_json(json.loads(frame.head)))
        elif kind == Kind.FAILED:
            worker.reason = frame.head.decode("utf-8", "replace")
            if worker.describing is not None:
                worker.describing.fail(ChildProcessError(worker.reason))

    def _hear_unbegun(self, worker: Worker, number: int) -> None:
        """A call that looked begun when its worker was retired, and was not."""
        job = worker.jobs.get(number)
        if job is not None:
            self._take_back(job)
            if not worker.jobs:
                self._loop.call_soon(self._crew.dismiss, worker)

    def _hear_live(self, worker: Worker, digests: dict[str, str]) -> None:
        worker.loaded.update(digests)
        if worker in self._crew.active:
            self.on_live(digests)

    # What becomes of workers

    def _on_start(self, worker: Worker) -> None:
        self._timeouts.watch(worker)

    def _on_exit(self, worker: Worker, begun: list[Job]) -> None:
        """Answer for the calls that went down with a worker, and give those it never began to another."""
        ended = f"its worker ended ({describe_exit(worker.process.exit_code)})"
        for job in begun:
            self._fail(job, "the host is leaving" if self._crew.closing else ended, started=True)
        importing = worker.process.importing
        for job in [job for job in worker.jobs.values() if importing and job.contract.skill == importing.skill]:
            self._fail(job, f"{ended} while it was loaded", started=False)  # it would end the next worker as well
        for job in list(worker.jobs.values()):
            self._move(job)
        self._release()

    # The catalog, and new generations

    async def describe(self, known: Collection[str] = ()) -> Description:
        """The skills but for the known ones, as an active worker sees them; one at a time.

        A `ChildProcessError` says why that cannot be had, and a `LostImport` whose fault it was.
        """
        self._crew.fill()
        if not self._crew.active:
            raise ChildProcessError(self._crew.why_none())
        return await self._described(self._crew.active[0], known)

    async def next_generation(self, known: Collection[str] = ()) -> Successor:
        """A worker that has loaded the code as it is now, but for the known skills. It runs nothing until it is adopted.

        Fails as `describe` does.
        """
        worker = self._crew.spawn_successor()
        if worker is None:
            raise ChildProcessError(self._crew.why_none())
        try:
            return Successor(worker, await self._described(worker, known))
        except BaseException:
            self._crew.discard(worker)
            raise

    async def _described(self, worker: Worker, known: Collection[str]) -> Description:
        describing = worker.describing = Describing(worker.process, known)
        try:
            return await describing.answer()
        except ChildProcessError:
            if describing.open:  # it takes too long
                self._crew.drain(worker)
            raise

    @property
    def loaded(self) -> set[str]:
        """The skills that workers of today have imported, so that they run on whatever becomes of their files."""
        return self._crew.loaded

    def adopt(self, successor: Successor, keeping: Collection[str]) -> None:
        """New calls go to the new generation, but for those of skills in `keeping`: their last good version goes on."""
        self._crew.adopt(successor.worker, keeping)
        self._release()

    def give_up(self, skills: Collection[str]) -> None:
        """These do not load any more, and no worker has a version of them that did."""
        self._crew.give_up(skills)

    def discard(self, successor: Successor) -> None:
        """It is not wanted after all."""
        self._crew.discard(successor.worker)


def _nobody_compares(_digests: Mapping[str, str]) -> None:
    """Where nothing was known before, nothing can differ."""
