"""One worker of a pool: its jobs, its state, and the host's knowledge about it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prowess.frozen import frozen
from prowess.worker.board import Board, Importing
from prowess.worker.progress import Progress
from prowess_host.workers.describe import Describing, LostImport, LostWorker
from prowess_host.workers.jobs import Job
from prowess_host.workers.lifecycle import GETS_CALLS, State
from prowess_host.workers.linked import LinkedWorker
from prowess_host.workers.process import describe_exit

if TYPE_CHECKING:
    from prowess_host.workers.pool import Pool

__all__ = ["GivenUp", "Worker", "cause_of_end"]


@frozen
class GivenUp:
    """A cancelled or overdue call that may still run."""

    at: float
    until: float
    """The end of its grace, by the clock of its worker."""
    command: str
    number: int
    over: Callable[[], None]
    """Called once it certainly does not run any more."""
    calls: int = 1
    """Another number if the worker has reported them, without their names."""


@dataclass(slots=True, eq=False)
class Worker:
    """A worker and the host's knowledge about it."""

    process: LinkedWorker = field(init=False)
    pool: Pool = field(init=False)
    state: State = State.STARTING
    jobs: dict[int, Job] = field(default_factory=dict[int, Job])
    slots: set[int] = field(default_factory=set[int])
    withdrawn: set[int] = field(default_factory=set[int])
    """The numbers of calls that it was forbidden to begin, without its confirmation yet."""
    is_up: bool = False
    proven: bool = False
    """Whether it has answered, which shows that it could start."""
    ended_itself: bool = False
    """Whether it ended without a message or a signal of the host."""
    reason: str = ""
    """The reason that it gave for not being able to serve."""
    violation: str = ""
    """Why the host has ended it: a violation of the link's protocol."""
    stray_frames: int = 0
    """Frames about calls that it does not have, since its last answer."""
    describing: Describing | None = None
    loaded: set[str] = field(default_factory=set[str])
    """The skills that it has imported."""
    fresh: bool = False
    """Whether it was started after the last save, to describe the current files."""
    sourced: set[str] = field(default_factory=set[str])
    """The skills that it has imported, or whose sources it has got."""
    may_be_held: bool = False
    """A call that it had begun was cancelled or overdue, and may still run."""
    given_up: list[GivenUp] = field(default_factory=list["GivenUp"])
    """Cancelled or overdue calls that may still run, and count for `concurrency`."""

    # The clocks of `timeouts`

    progress: Progress = field(init=False)
    measured: float | None = None
    """The time of the last measurement; `None` while nothing is measured."""
    starting: float = 0.0
    """Usable seconds since its start."""
    last_frame: float = 0.0
    """The time of its last frame."""
    pinged: float | None = None
    """The time of the first ping since its last frame."""
    pings: int = 0
    """The number of pings that it has not answered."""
    silence: float = 0.0
    """Usable seconds since the unanswered ping."""
    imports: dict[Importing, float] = field(default_factory=dict[Importing, float])
    """Its running imports, each with its usable seconds."""
    clock: float = 0.0
    """Its usable seconds, counted while something below depends on them."""
    questions: list[float] = field(default_factory=list[float])
    """The times, by its clock, at which to ask whether cancelled calls have ended."""
    waits: list[tuple[float, Callable[[], None]]] = field(default_factory=list[tuple[float, "Callable[[], None]"]])
    """What happens to it later, with the times by its clock."""
    questioned: bool = False
    """Whether such a question, a ping, is not answered."""
    questioned_at: float = 0.0
    """The time of the question."""

    @property
    def gets_calls(self) -> bool:
        """Whether it gets new calls."""
        return self.state in GETS_CALLS

    @property
    def may_linger(self) -> bool:
        """Whether a cancelled or overdue call may still run in it."""
        return bool(self.questions or self.questioned)

    @property
    def is_watched(self) -> bool:
        """Whether `timeouts` checks it."""
        return bool(self.jobs or self.may_linger or self.waits or not self.is_up or self.describes or self.importing)

    @property
    def is_busy(self) -> bool:
        """Whether it runs calls, starts, or describes skills."""
        return bool(self.jobs or self.describes or not self.is_up)

    @property
    def is_measured(self) -> bool:
        """Whether something depends on the time that it could use."""
        waits = self.questions or self.waits
        return bool(self.importing or self.describes or self.pinged is not None or not self.is_up or waits)

    @property
    def describes(self) -> bool:
        """Whether it has been asked for a description."""
        return self.describing is not None and self.describing.open

    @property
    def importing(self) -> tuple[Importing, ...]:
        """Its running imports."""
        return self.process.importing if self.is_up and self.state is not State.GONE else ()

    def serves(self, skill: str) -> bool:
        """Whether a call of this skill can run without waiting for the import of another one."""
        if self.state is not State.IMPORTING:
            return True
        importing = {each.skill for each in self.importing}
        return not importing or skill in importing

    def take(self, job: Job, after: int) -> int:
        """Assign a job to it, under the next number with a free slot on its board."""
        number = after + 1
        while self.slots and Board.slot(number) in self.slots:
            number += 1
        self.slots.add(Board.slot(number))
        self.jobs[number] = job
        job.number, job.worker = number, self.process.pid
        return number

    def drop(self, job: Job) -> None:
        """Remove a job from it."""
        del self.jobs[job.number]
        if job.number not in self.withdrawn:
            self.slots.discard(Board.slot(job.number))

    def forbid(self, job: Job) -> bool:
        """Forbid it to begin a job that was cancelled or is overdue: its call may arrive there later than that, on a busy machine.

        A begun call is forbidden as well, since it may be about to wait for its turn. Returns whether the job has not
        begun. Without shared memory, CANCEL forbids it, and this is what is known so far.
        """
        number, process = job.number, self.process
        if not process.shows_begun:
            return not process.has_begun(number)
        self.withdrawn.add(number)
        return bool(process.withdraw([number]))

    def release(self, number: int) -> None:
        """Called when it confirms that a call was withdrawn: the number can be used again."""
        if number in self.withdrawn:
            self.withdrawn.discard(number)
            self.slots.discard(Board.slot(number))
            self.process.forget(number)

    def begun(self) -> list[Job]:
        """Its begun jobs, as far as known. After its end, this is certain.

        If its last frames are lost, jobs that it may have begun count as begun, except those that may run twice.
        """
        process = self.process
        return [
            job
            for number, job in self.jobs.items()
            if process.has_begun(number) or (not job.contract.hints.may_repeat and process.may_have_begun(number))
        ]

    def unbegun(self) -> list[Job]:
        """Its unbegun jobs, as far as known."""
        return [job for job in self.jobs.values() if not self.process.has_begun(job.number)]

    def running(self, command: str) -> int:
        """The number of calls of a command in it, including cancelled ones that may still run."""
        jobs = sum(job.contract.id == command for job in self.jobs.values())
        return jobs + sum(each.command == command for each in self.given_up)


def cause_of_end(worker: Worker, begun: Collection[Job]) -> LostWorker:
    """The likely cause of the end of a worker."""
    code = worker.process.exit_code
    how = worker.process.verdict or describe_exit(code)
    importing = worker.process.importing
    if begun or not worker.describes or not worker.ended_itself:  # a call or the host may have ended it
        importing = ()
    for first in importing[:1]:
        killed, others = code in (-signal.SIGKILL, -signal.SIGTERM), len(importing) > 1
        return LostImport(first, f"its import ended the process ({how})", killed=killed, others=others)
    if not worker.is_up and b"No module named 'prowess" in worker.process.last_line:
        return LostWorker(worker.pool.why_lacking())
    return LostWorker(
        worker.reason or worker.process.refusal or f"the last worker ended ({how}), see its log on stderr"
    )
