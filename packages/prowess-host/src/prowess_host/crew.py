"""The workers of one host: which there are, which of them get calls, and how each comes up and goes.

Does not know when a worker counts as stuck, nor what becomes of the calls of one that goes.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from prowess.contract import Contract
from prowess.description import Description
from prowess.link import Board, Frame, Kind
from prowess.settings import Settings
from prowess_host.describing import Describing, LostImport, LostWorker
from prowess_host.jobs import Job
from prowess_host.workers import WorkerProcess, describe_exit

__all__ = ["Crew", "Worker"]

_LEAVING: Final = 0.5
"""Seconds an idle worker gets to close what it had opened when the host leaves."""


@dataclass(slots=True, eq=False)
class Worker:
    """A worker process and what the host knows of it."""

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
    describing: Describing | None = None
    loaded: set[str] = field(default_factory=set[str])
    """The skills that it has imported."""

    @property
    def suspect(self) -> bool:
        """Whether somebody has to keep an eye on it."""
        return bool(self.jobs or self.doubts or self.doubting or not self.ready)

    def take(self, job: Job, after: int) -> int:
        """Have it hold a job, under the next number whose slot on its board is free."""
        number = after + 1
        while (slot := Board.slot(number)) in self.slots:
            number += 1
        self.slots.add(slot)
        self.jobs[number] = job
        job.number = number
        return number

    def drop(self, job: Job) -> None:
        """It does not hold this job any more."""
        del self.jobs[job.number]
        self.slots.discard(Board.slot(job.number))

    def begun(self) -> list[Job]:
        """The jobs that it has begun, as far as one must fear."""
        return [job for job in self.jobs.values() if self.process.has_begun(job.number)]

    def unbegun(self) -> list[Job]:
        """The jobs that it has certainly not begun, if it is retired."""
        return [job for job in self.jobs.values() if not self.process.has_begun(job.number)]

    def running(self, command: str) -> int:
        """How many calls of a command are in it, as far as anybody knows."""
        jobs = sum(job.contract.id == command for job in self.jobs.values())
        return jobs + sum(name == command for _, name in self.given_up)


class Crew:
    """All workers of one host.

    `on_start` hears of each new one, `on_frame` of what they say, `on_exit` of their end, with the jobs it takes down,
    and `on_unbegun` of each job that one does not begin because it was retired.
    """

    def __init__(
        self,
        root: Path,
        settings: Settings,
        flags: Mapping[str, Any],
        *,
        on_start: Callable[[Worker], None],
        on_frame: Callable[[Worker, Frame], None],
        on_exit: Callable[[Worker, list[Job]], None],
        on_unbegun: Callable[[Job], None],
    ) -> None:
        self._root = root
        self._flags = dict(flags)
        self.configure(settings)
        self._on_start = on_start
        self._on_frame = on_frame
        self._on_exit = on_exit
        self._on_unbegun = on_unbegun
        self._loop = asyncio.get_running_loop()
        self.workers: list[Worker] = []
        """Every one that has not ended."""
        self.active: list[Worker] = []
        """Those that get new calls."""
        self.spare: Worker | None = None
        self._kept: dict[str, Worker] = {}
        """By skill: the worker with the last good version of what no longer loads."""
        self._gone: set[str] = set()
        """Skills that no longer load, and whose last good version is in no worker."""
        self._deaths: list[float] = []
        self._diagnosis = ""
        """Why the last worker that could not start, could not."""
        self.closing = False

    def configure(self, settings: Settings) -> None:
        """Go by other settings from now on. Every worker is told the same ones, whatever the files say by then."""
        self._own = settings.own
        self._host = settings.own.host
        self._told = json.dumps({"flags": self._flags, "written": settings.written}).encode()

    # Who gets a call

    def worker_for(self, contract: Contract) -> Worker | None:
        """The worker for a call: the least busy of the active ones; what must be one sticks to the first."""
        if contract.skill in self._gone:
            return None
        if contract.skill in self._kept:
            return self._kept[contract.skill]
        if len(self.active) < self._host.workers:
            self.fill()
        if not self.active:
            return None
        if len(self.active) == 1 or contract.policies.cache_ttl or contract.policies.concurrency is not None:
            return self.active[0]
        return min(self.active, key=lambda worker: len(worker.jobs))

    def why_none(self, skill: str = "") -> str:
        """Why there is no worker, or none for this skill."""
        if skill in self._gone:
            return f"{skill} no longer loads, and there is no worker with its last good version; mend the skill"
        if self.closing:
            return "the host is leaving"
        return f"no worker can be started: {self._diagnosis or 'too many have ended lately'}"

    # Coming up

    def fill(self) -> None:
        """Have as many active workers as there should be, as far as they can be had."""
        while len(self.active) < self._host.workers:
            worker, self.spare = self.spare or self._spawn(), None
            if worker is None:
                return
            self.active.append(worker)

    def see_to_spare(self, *, wanted: bool) -> None:
        """Have one come up ahead of time, or let it go again."""
        if wanted and self.spare is None:
            self.spare = self._spawn()
        elif self.spare is not None and not wanted:
            spare, self.spare = self.spare, None
            self.retire(spare)

    def spawn_successor(self) -> Worker | None:
        """A worker that loads the code as it is now. It gets no calls until it is adopted."""
        self._deaths.clear()  # what could not start may start now
        return self._spawn()

    def _spawn(self) -> Worker | None:
        """A new worker, unless too many could not start: that is a diagnosis, not a loop."""
        now = self._loop.time()
        self._deaths = [death for death in self._deaths if now - death < self._host.restart_window]
        if self.closing or len(self._deaths) > self._host.restart_limit:
            return None
        worker = Worker(now, heard=now)
        python = self._own.python or sys.executable
        try:
            worker.process = WorkerProcess(
                python,
                self._root,
                self._told,
                on_frame=partial(self._on_frame, worker),
                on_exit=partial(self._ended, worker),
            )
        except OSError as error:
            self._diagnosis = f"{python} cannot be run in {self._root}: {error.strerror}; check the setting `python`"
            return None
        self.workers.append(worker)
        self._on_start(worker)
        return worker

    def hear_description(self, worker: Worker, description: Description) -> None:
        """What a worker says it can do."""
        worker.proven = True
        self._diagnosis = ""
        worker.loaded.update(description.skills)
        if worker.describing is not None:
            worker.describing.hear(description)

    # Going

    def retire(self, worker: Worker) -> None:
        """No new calls. What was never begun moves to another worker; the rest goes on."""
        if worker.retired:
            return
        worker.retired = True
        self._forget_place(worker)
        worker.process.retire()
        for job in worker.unbegun():
            self._on_unbegun(job)
        if not worker.jobs:
            self.dismiss(worker)

    def drain(self, worker: Worker) -> None:
        """Retire a worker that cannot be trusted to end, and kill it: at once if nothing else runs in it."""
        self.retire(worker)
        if not worker.jobs:
            worker.process.kill()
        else:
            self._loop.call_later(self._host.grace, worker.process.kill)

    def dismiss(self, worker: Worker) -> None:
        """Let a worker without calls go; it closes what it had opened. One that does not go is killed."""
        if worker.jobs or worker.process.exit_code is not None:
            return
        if worker.stalled or not worker.ready or worker.doubts or worker.doubting:
            worker.process.kill()
        else:
            self._let_go(worker, self._host.grace)

    def discard(self, worker: Worker) -> None:
        """It is not wanted after all."""
        worker.retired = True
        worker.process.kill()

    def dismiss_all(self) -> None:
        """The host leaves, and so do they, whatever they do."""
        self.closing = True
        for worker in self.workers:
            if worker.suspect or worker.stalled:
                worker.process.kill()
            else:
                self._let_go(worker, _LEAVING)

    async def wait(self) -> None:
        """Until all have ended."""
        await asyncio.gather(*(worker.process.wait() for worker in list(self.workers)))

    def _let_go(self, worker: Worker, seconds: float) -> None:
        worker.process.send(Kind.QUIT)
        self._loop.call_later(seconds, worker.process.kill)

    def _forget_place(self, worker: Worker) -> None:
        """Nothing is given to this worker any more."""
        if worker in self.active:
            self.active.remove(worker)
            if not self.closing and worker.proven:
                self.fill()
        lost = {skill for skill, kept in self._kept.items() if kept is worker}
        self._gone |= lost
        for skill in lost:
            del self._kept[skill]

    def _ended(self, worker: Worker) -> None:
        """Its process is gone, as it should be or not."""
        self.workers.remove(worker)
        if worker is self.spare:
            self.spare = None
        expected = worker.retired or self.closing
        begun = worker.begun()
        cause = _cause(worker, begun)
        if not expected and not worker.proven and not begun and not isinstance(cause, LostImport):
            self._deaths.append(self._loop.time())
            self._diagnosis = str(cause)
        if worker.describing is not None:
            worker.describing.fail(cause)
        self._forget_place(worker)
        self._on_exit(worker, begun)

    # Generations

    @property
    def loaded(self) -> set[str]:
        """The skills that workers of today have imported, so that they run on whatever becomes of their files."""
        return {*self._kept, *(skill for worker in self.active[:1] for skill in worker.loaded)}

    def adopt(self, successor: Worker, keeping: Collection[str]) -> None:
        """New calls go to the new generation. Old workers finish what they have; one that holds the last good version
        of a skill in `keeping` goes on serving it.
        """
        old, self.active = self.active, [successor]
        if successor.process.exit_code is not None:
            self.active.clear()
        spare, self.spare = self.spare, None
        before = {*self._kept.values(), *old, *([spare] if spare else [])}
        kept = {
            skill: self._kept.get(skill) or next((it for it in old if skill in it.loaded), None) for skill in keeping
        }
        self._kept = {skill: worker for skill, worker in kept.items() if worker is not None}
        self._gone = {skill for skill in keeping if skill not in self._kept}
        for worker in before - set(self._kept.values()):
            self.retire(worker)
        self.fill()

    def give_up(self, skills: Collection[str]) -> None:
        """These do not load any more, and no worker has a version of them that did."""
        self._gone.update(skills)


def _cause(worker: Worker, begun: Collection[Job]) -> LostWorker:
    """Why a worker has ended, as far as can be told."""
    code = worker.process.exit_code
    how = describe_exit(code)
    importing = worker.process.importing
    describing = worker.describing is not None and worker.describing.open
    if importing and describing and not begun and not worker.retired:  # else it may have been a call, or we ourselves
        killed = code in (-signal.SIGKILL, -signal.SIGTERM)
        return LostImport(importing, f"its import ended the process ({how})", killed=killed)
    return LostWorker(worker.reason or f"the last worker ended ({how}), see its log on stderr")
