"""The workers of one placement: starts them, chooses those that get calls, and replaces them.

The pool sends every event through the table of `lifecycle` and carries out the actions. `timeouts` decides when a worker
is stuck, and `supervisor` decides what happens to the calls of a worker that leaves.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from prowess.contracts.contract import Contract
from prowess.errors import install_command
from prowess.settings.settings import Settings
from prowess.skills.description import Description
from prowess.worker.link import Frame
from prowess.worker.messages import BeginHead, Kind, hello, mismatch
from prowess.worker.progress import Progress
from prowess_host.workers.describe import LostImport
from prowess_host.workers.jobs import Job, leave_place, take_place
from prowess_host.workers.lifecycle import ENDING, Action, Event, State, step
from prowess_host.workers.placement import Placement
from prowess_host.workers.process import Spawn
from prowess_host.workers.queue import FairQueue, certain
from prowess_host.workers.worker import Worker, cause_of_end

__all__ = ["Pool"]

_log = logging.getLogger("prowess.host")
_LEAVING: Final = 0.5
"""Seconds that an idle worker gets to close its resources when the host ends."""
_SENDING: Final = 2.0
"""The same for a worker that also sends its last traces."""
_PRINTING: Final = 5.0
"""Further seconds at most while it prints buffered output, which would be lost without notice. A worker needs less to drop
the rest and report it."""
_LACKING: Final = (
    "the Python of the workers, {python}, has no Prowess: install it there ({install}), or change the setting `python`"
)
_MORE_FILES: Final = "allow the host more open files (`ulimit -n`), or close some"
_REMEDIES: Final[Mapping[int | None, str]] = {
    errno.EMFILE: _MORE_FILES,
    errno.ENFILE: _MORE_FILES,
    errno.EAGAIN: "allow the host more processes (`ulimit -u`, or the limit of its container), or end some",
}
"""The ways out of shortages, by error."""
_REBUILD: Final = "make the environment again with `prowess sync --rebuild`"
_MOST_FRAME: Final = 256 * 1024 * 1024
"""Bytes of the largest frame from a limited worker: its skill can write to the link and announce 8 GB."""
_FULL: Final = 5.0
"""Seconds before agents are asked again for a worker, after none had a free slot."""
_ON_THE_LOOP: Final = 1200
"""Calls that one worker runs at once on its event loop: a thousand of one command, and a reserve for others. Further calls
wait in the host, whose queue is fair."""
_MOST_STAND_INS: Final = 3
"""Workers that are started while others are held by imports. Further calls wait for one of the imports."""

_MOST_IMPORTERS: Final = 3
"""Workers that import a skill alone. Further skills are imported among others again."""


class Pool:
    """All workers of one placement.

    Callbacks: `on_start` for each new worker, `on_frame` for each frame, `on_print` for each printed line with the number of
    its call, `on_exit` for the end of a worker with the jobs it had begun, `on_unbegun` for each job that was taken from a
    worker before it began, and `on_overdue_import` for an import that takes too long. `later` calls a function when a worker
    could have run for some seconds.
    """

    def __init__(  # noqa: PLR0915 - one line for each thing that it knows
        self,
        root: Path,
        settings: Settings,
        flags: Mapping[str, Any],
        spawn: Spawn,
        *,
        on_start: Callable[[Worker], None],
        on_frame: Callable[[Worker, Frame], None],
        on_exit: Callable[[Worker, list[Job]], None],
        on_print: Callable[[Worker, int, bytes], None],
        on_unbegun: Callable[[Job], None],
        on_overdue_import: Callable[[Worker], None],
        on_preparing: Callable[[Worker, str], None],
        later: Callable[[Worker, float, Callable[[], None]], None],
        placement: Placement,
        mark: str,
    ) -> None:
        self._root = root
        self._flags = dict(flags)
        self._start_process = spawn
        self.placement = placement
        self.mark = mark
        """The first part of call ids; the number of the call follows."""
        self.share: Callable[[], BeginHead | Mapping[str, Any]] = dict
        """The head of the first frame to a worker, with its skills."""
        self.used = 0.0
        """The time of the last use."""
        self.resting: asyncio.TimerHandle | None = None
        """The timer that ends an idle pool."""
        self.configure(settings)
        self._on_start = on_start
        self._on_frame = on_frame
        self._on_exit = on_exit
        self._on_unbegun = on_unbegun
        self._on_print = on_print
        self._on_preparing = on_preparing
        self._later = later
        self._loop = asyncio.get_running_loop()
        self._actions: Mapping[Action, Callable[[Worker], None]] = {
            Action.REPLACE: self._replace,
            Action.MOVE_CALLS: self._move_calls,
            Action.MOVE_OTHERS: self._move_others,
            Action.ANSWER_IMPORT: on_overdue_import,
            Action.WARN_IMPORT: self._warn_import,
            Action.WARN_BLOCKED: self._warn_blocked,
            Action.END_STAND_INS: lambda _: self._end_stand_ins(),
            Action.QUIT: lambda worker: self._let_go(worker, self._host.grace),
            Action.QUIT_SOON: lambda worker: self._let_go(worker, _SENDING if self._own.otel.on else _LEAVING),
            Action.KILL_LATER: self._kill_later,
            Action.KILL: lambda worker: worker.process.kill(),
            Action.REPORT: self._report,
        }
        self.workers: list[Worker] = []
        """All workers that have not ended."""
        self.active: list[Worker] = []
        """The workers that get new calls."""
        self.stand_ins: list[Worker] = []
        """Workers that get calls while imports hold the active ones."""
        self.importers: dict[str, Worker] = {}
        """Workers that each import one skill, and get its calls: it was imported in a worker that ended."""
        self.spare: Worker | None = None
        self.gone: Mapping[str, str] = {}
        """Skills without a last good version that do not load, each with the reason."""
        self.describes = False
        """Whether its workers describe its skills, so that each generation has a successor of its own."""
        self._full_until = 0.0
        """The time until which agents are not asked for another worker, because none had a free slot."""
        self.queues: dict[bool, FairQueue[Job]] = {}
        """The queues of calls that wait for a place, with and without a thread; empty while places are many."""
        self.on_room: Callable[[], None] = _ignore_room
        """Called when places have become free."""
        self._deaths: list[float] = []
        self.diagnosis = ""
        """Why the last worker failed to start."""
        self.closing = False

    def configure(self, settings: Settings) -> None:
        """Use other settings from now on. Workers get these settings instead of reading the files, which may change."""
        self._own = settings.own
        self._host = settings.own.host
        self._threads = settings.own.threads
        self.few = tuple(certain(self.places_of_one(in_thread=in_thread)) for in_thread in (False, True))
        """The numbers of calls, without and with a thread, below which a worker certainly has a place."""
        written = list(settings.written) if settings.written else None
        self._begin: BeginHead = {**hello(), "flags": self._flags, "written": written, "mark": self.mark}
        if settings.own.cluster.url and self.placement.limits is None:  # results of limited skills are not shared
            self._begin["shares"] = settings.fingerprint()

    @property
    def python(self) -> str:
        """The interpreter of its workers."""
        return self.placement.python or self._own.python or sys.executable

    # The lifecycle

    def send(self, worker: Worker, event: Event) -> None:
        """Carry out the step of the table for an event."""
        worker.state, actions = step(worker.state, event)
        for action in actions:
            self._actions[action](worker)
        self.check_calls(worker)

    def check_calls(self, worker: Worker) -> None:
        """End a retired worker as soon as it has no calls, and one that was started to import a single skill."""
        if worker.jobs:
            return
        if worker.state in ENDING:
            self.send(worker, Event.ABANDONED if worker.may_linger else Event.EMPTY)
        elif worker.is_up and worker in self.importers.values():
            self.send(worker, Event.RETIRE)

    def _replace(self, worker: Worker) -> None:
        """Give no new calls to a worker, and start another one. Its calls continue, and free their places for the other."""
        for job in worker.jobs.values():
            leave_place(job)
        self.on_room()
        if worker in self.stand_ins:
            self.stand_ins.remove(worker)
        self.importers = {skill: each for skill, each in self.importers.items() if each is not worker}
        if worker in self.active:
            self.active.remove(worker)
            if not self.closing and worker.proven:
                self.fill()

    def _move_calls(self, worker: Worker) -> None:
        for number in worker.process.retire(list(worker.jobs)):
            self._on_unbegun(worker.jobs[number])

    def _move_others(self, worker: Worker) -> None:
        """Move the calls that do not need the skills that a worker is importing."""
        skills = {importing.skill for importing in worker.importing}
        self.withdraw(worker, [job for job in worker.unbegun() if job.contract.skill not in skills])

    def withdraw(self, worker: Worker, jobs: Collection[Job]) -> None:
        """Forbid a worker to begin some jobs, and move them: now, or when it confirms that it has not begun them."""
        numbers = [job.number for job in jobs]
        worker.withdrawn.update(numbers)
        for number in worker.process.withdraw(numbers):
            self._on_unbegun(worker.jobs[number])

    def _end_stand_ins(self) -> None:
        if any(worker.state is State.IMPORTING for worker in self.active):
            return
        for worker in list(self.stand_ins):
            self.send(worker, Event.RETIRE)

    def _warn_import(self, worker: Worker) -> None:
        for importing in worker.importing:
            _log.warning(
                "the import of %s (%s) holds up worker %s for more than %g s: calls of other skills go to another worker; "
                "import slow modules inside the commands that need them",
                *(importing.skill, importing.file, worker.process.pid, self._host.stall_limit),
            )

    def _warn_blocked(self, worker: Worker) -> None:
        commands = ", ".join(sorted({job.contract.id for job in worker.begun()})) or "a command"
        _log.warning(
            "%s blocks the event loop of worker %s for more than %g s, so other calls go to another worker: "
            "do blocking work in a sync command, and run native code that holds the interpreter in a child process",
            *(commands, worker.process.pid, self._host.stall_limit),
        )

    def _kill_later(self, worker: Worker) -> None:
        self._later(worker, self._host.grace, partial(self.send, worker, Event.DISCARD))

    def _let_go(self, worker: Worker, seconds: float) -> None:
        worker.process.send(Kind.QUIT)
        self._end_silent(worker, seconds, worker.process.printed, worker.clock + seconds + _PRINTING)

    def _end_silent(self, worker: Worker, seconds: float, printed: int, latest: float) -> None:
        """Kill it after these seconds, or later if it prints meanwhile."""

        def look() -> None:
            so_far = worker.process.printed
            if so_far > printed and worker.clock + _LEAVING <= latest:
                self._end_silent(worker, _LEAVING, so_far, latest)
            else:
                self.send(worker, Event.DISCARD)

        self._later(worker, seconds, look)

    def condemn(self, worker: Worker, why: str) -> None:
        """Kill a limited worker for invalid messages. Its further messages are ignored."""
        skill = self.placement.limits.skill if self.placement.limits is not None else "the project"
        worker.violation = f"it sent {why}"
        _log.warning("worker %s of %s sent %s, and is killed", worker.process.pid, skill, why)
        worker.process.link.stop_reading()
        self.send(worker, Event.DISCARD)

    def _refuse_frame(self, worker: Worker, size: int) -> None:
        self.condemn(worker, f"a frame of {size} bytes; the limit is {_MOST_FRAME}")

    # Choosing a worker

    def places(self, *, in_thread: bool) -> int:
        """The number of calls that run at once in its workers."""
        return max(len(self.active), 1) * self.places_of_one(in_thread=in_thread)

    def places_of_one(self, *, in_thread: bool) -> int:
        """The same in one worker."""
        return self._threads if in_thread else _ON_THE_LOOP

    def queue(self, *, in_thread: bool) -> FairQueue[Job]:
        """The queue of calls, which is made with the places that are already in use."""
        queue = self.queues.get(in_thread)
        if queue is None:
            queue = self.queues[in_thread] = FairQueue(self._loop.time())
            for worker in (*self.active, *self.stand_ins):
                for job in worker.jobs.values():
                    if job.contract.in_thread is in_thread:
                        take_place(job, queue)
        return queue

    def calm_down(self) -> None:
        """Stop counting places when they are many again; with a delay, since they may soon be few again."""
        for in_thread, queue in list(self.queues.items()):
            if not queue and queue.running < self.few[in_thread] / 2:
                del self.queues[in_thread]

    def worker_for(self, contract: Contract) -> Worker | None:
        """The least busy active worker; the first one for commands with a cache or `concurrency`, so that it sees all calls."""
        if contract.skill in self.gone:
            return None
        if len(self.active) < self._least or (self.placement.labels and self._grows()):
            self.fill(len(self.active) + 1)
        if not self.active:
            return None
        if len(self.active) == 1 and self.active[0].state is not State.IMPORTING:
            return self.active[0]
        able = [worker for worker in self.active if worker.serves(contract.skill)]
        if not able:
            return self._stand_in(contract.skill)
        if len(able) == 1 or contract.policies.cache_ttl or contract.policies.concurrency is not None:
            return able[0]
        return min(able, key=lambda worker: (len(worker.jobs) + 1) * worker.process.slowness)

    def _stand_in(self, skill: str) -> Worker:
        """A stand-in for a call while imports of other skills hold all active workers."""
        for worker in self.stand_ins:
            if worker.serves(skill):
                return worker
        if len(self.stand_ins) < _MOST_STAND_INS and not self._is_import_of_all():
            worker, self.spare = self.spare or self._spawn(), None
            if worker is not None:
                self.stand_ins.append(worker)
                return worker
        return min((*self.active, *self.stand_ins), key=lambda worker: len(worker.jobs))

    def importer_of(self, skill: str) -> Worker | None:
        """The worker that imports this skill alone, if one can be started here."""
        if skill in self.gone:
            return None
        if skill not in self.importers and len(self.importers) < _MOST_IMPORTERS and not self.placement.labels:
            worker = self._spawn()
            if worker is not None:
                self.importers[skill] = worker
        return self.importers.get(skill)

    def _is_import_of_all(self) -> bool:
        """Whether one import holds several workers. Then it would hold a new one too, because the skill has hooks."""
        held = [{importing.skill for importing in worker.importing} for worker in (*self.active, *self.stand_ins)]
        skills = [skill for each in held for skill in each]
        return len(skills) > len(set(skills))

    def why_none(self, skill: str = "") -> str:
        """The reason why there is no worker for this skill, or for any."""
        if skill in self.gone:
            return f"{skill} no longer loads, and has no last good version; fix the skill: {self.gone[skill]}"
        if self.closing:
            return "the host is shutting down"
        return f"no worker can be started: {self.diagnosis or 'too many workers have ended recently'}"

    # Starting

    @property
    def _least(self) -> int:
        """The usual number of workers. On agents, further ones start when calls need them."""
        return 1 if self.placement.labels else self._host.workers

    def _grows(self) -> bool:
        """Whether another worker on an agent would serve a call sooner."""
        if len(self.active) >= self._own.cluster.workers:
            return False
        return self._loop.time() >= self._full_until and all(worker.jobs for worker in self.active)

    def fill(self, count: int = 0) -> None:
        """Start workers up to the usual number, or up to `count`."""
        while len(self.active) < max(self._least, count):
            worker, self.spare = self.spare or self._spawn(), None
            if worker is None:
                return
            self.active.append(worker)

    def adjust_spare(self, *, needed: bool) -> None:
        """Start a spare worker, or end it."""
        if needed and self.spare is None:
            self.spare = self._spawn()
        elif self.spare is not None and not needed:
            spare, self.spare = self.spare, None
            self.send(spare, Event.RETIRE)

    def spawn_helper(self) -> Worker | None:
        """Start a worker that describes skills and gets no calls."""
        return self._spawn()

    def spawn_successor(self) -> Worker | None:
        """Start a worker for the current files. It gets no calls before `adopt`."""
        self._deaths.clear()  # the save may have fixed the start
        return self._spawn(fresh=True)

    def _spawn(self, *, fresh: bool = False) -> Worker | None:
        """Start a worker, unless too many have failed to start."""
        now = self._loop.time()
        self._deaths = [death for death in self._deaths if now - death < self._host.restart_window]
        if self.closing or len(self._deaths) > self._host.restart_limit:
            return None
        worker = Worker(last_frame=now, fresh=fresh)
        worker.pool = self
        try:
            worker.process = self._start_process(
                self.python,
                self._root,
                json.dumps({**self._begin, **self.share()}).encode(),
                shared=self._host.shared_memory,
                placement=self.placement,
                on_frame=partial(self._on_frame, worker),
                on_exit=partial(self._ended, worker),
                on_print=partial(self._on_print, worker),
            )
        except OSError as error:
            remedy = _REMEDIES.get(error.errno) or self._remedy()
            self.diagnosis = f"{self.python} cannot be run in {self._root}: {error.strerror}; {remedy}"
            return None
        process = worker.process
        process.on_leaving = partial(self.send, worker, Event.RETIRE)
        process.on_preparing = partial(self._on_preparing, worker)
        worker.progress = Progress(process.threads, lambda: process.beats)
        if self.placement.limits is not None:
            process.link.bound(_MOST_FRAME, partial(self._refuse_frame, worker))
        self.workers.append(worker)
        self._on_start(worker)
        return worker

    def _remedy(self) -> str:
        return "check the setting `python`" if self.placement.python is None else _REBUILD

    def why_lacking(self) -> str:
        """The message if the interpreter lacks Prowess."""
        if self.placement.python is None:
            return _LACKING.format(python=self.python, install=install_command("prowess-core", self.python))
        return f"the environment of {self.python} has no Prowess; {_REBUILD}"

    def on_ready(self, worker: Worker, head: Mapping[str, Any]) -> None:
        """Handle READY."""
        worker.reason = mismatch(hello(), head, self.python)
        worker.is_up = not worker.reason
        self.send(worker, Event.UNFIT if worker.reason else Event.UP)

    def on_description(self, worker: Worker, description: Description) -> None:
        """Handle a description."""
        worker.proven = True
        self.diagnosis = ""
        worker.loaded.update(description.skills)
        worker.sourced.update(description.skills)
        if worker.describing is not None:
            worker.describing.complete(description)

    # Ending

    def dismiss_all(self) -> None:
        """End all workers, because the host ends. Calls get a moment to end and to clean up, if they can notice it."""
        self.closing = True
        for worker in self.workers:
            if not worker.is_up or (worker.jobs and not any(map(_can_notice, worker.jobs.values()))):
                self.send(worker, Event.DISCARD)
                continue
            for number in worker.jobs:
                worker.process.send(Kind.CANCEL, number)
            self.send(worker, Event.HOST_LEAVES)

    async def wait(self) -> None:
        """Wait until all workers have ended."""
        await asyncio.gather(*(worker.process.wait() for worker in list(self.workers)))

    def _ended(self, worker: Worker) -> None:
        """Handle the end of a worker."""
        expected = self.closing or not (worker.gets_calls or worker.reason)
        worker.ended_itself = not expected
        self.workers.remove(worker)
        if worker is self.spare:
            self.spare = None
        begun = worker.begun()
        cause = cause_of_end(worker, begun)
        if worker.process.refusal:
            self._full_until = self._loop.time() + _FULL
        elif not expected and not worker.proven and not begun and not isinstance(cause, LostImport):
            self._deaths.append(self._loop.time())
            self.diagnosis = str(cause)
        if worker.describing is not None:
            worker.describing.fail(cause)
        self._replace(worker)
        self._end_stand_ins()
        self.send(worker, Event.EXITED)

    def _report(self, worker: Worker) -> None:
        self._on_exit(worker, worker.begun())

    @property
    def is_idle(self) -> bool:
        """Whether all its workers are idle."""
        return not any(worker.is_busy for worker in self.workers)

    def rest(self) -> None:
        """End all workers until the next call."""
        leaving, self.active = [*self.active, *self.stand_ins, *self.importers.values()], []
        self.adjust_spare(needed=False)
        for worker in leaving:
            self.send(worker, Event.RETIRE)

    def renew(self) -> None:
        """Replace the active workers by as many new ones, which run the current code."""
        count = len(self.active)
        self.rest()
        if count and not self.closing:
            self.fill(count)

    # Generations

    @property
    def loaded(self) -> set[str]:
        """The skills that current workers have imported, and can run even if their files break."""
        return {skill for worker in self.active[:1] for skill in worker.loaded}

    def adopt(self, successor: Worker) -> None:
        """Send new calls to the new generation. Old workers finish their calls."""
        old, self.active = self.active, [successor]
        if successor.process.exit_code is not None or not successor.gets_calls:
            self.active.clear()
        spare, self.spare = self.spare, None
        for worker in [*old, *self.stand_ins, *self.importers.values(), *([spare] if spare else [])]:
            self.send(worker, Event.RETIRE)
        self.fill()


def _can_notice(job: Job) -> bool:
    """Whether a call can notice its cancellation, or has objects to close: sync code without injected objects only runs on."""
    return not job.contract.in_thread or bool(job.contract.injected)


def _ignore_room() -> None:
    """The default of `on_room`."""
