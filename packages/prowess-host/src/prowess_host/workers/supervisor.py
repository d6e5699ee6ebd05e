"""Chooses the worker for each call, and moves or fails the calls of a worker that stalls, leaves or dies.

The entrance to this room. A call is a sequence of bytes and a callback, independent of the client's protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from prowess.contracts.contract import Contract
from prowess.frozen import frozen
from prowess.jsontypes import JsonObject
from prowess.settings.settings import Settings
from prowess.skills.description import Description
from prowess.skills.texts import unpack
from prowess.worker.heap import LARGE, give_back_soon
from prowess.worker.link import Frame
from prowess.worker.messages import CancelHead, DescribeHead, FailedHead, Kind, LiveHead, RefusedHead, SecretsHead
from prowess_host.workers.backoff import BackOff
from prowess_host.workers.clock import Clock
from prowess_host.workers.describe import Describing, LostImport, LostWorker
from prowess_host.workers.describers import Ask, Describers
from prowess_host.workers.jobs import (
    DELIVER,
    LAST,
    NOT_SAID,
    Job,
    Results,
    Slots,
    Witness,
    answer_busy,
    answer_lost,
    answer_timeout,
    leave_place,
    report_waiting,
    take_place,
)
from prowess_host.workers.lifecycle import Event, State
from prowess_host.workers.linked import LinkedWorker
from prowess_host.workers.placement import OWN, Placement, Unplaced
from prowess_host.workers.pool import Pool
from prowess_host.workers.process import Spawn, WorkerProcess, describe_exit
from prowess_host.workers.queue import FairQueue
from prowess_host.workers.timeouts import Timeouts
from prowess_host.workers.worker import Worker

__all__ = ["KeptSource", "Successor", "Supervisor"]

_log = logging.getLogger("prowess.host")
_LATE: Final = json.dumps(CancelHead(late=True)).encode()
_MOST_DEATHS: Final = 3
"""After this many workers have ended before they began a call, the call fails."""
_KILLS: Final = (-signal.SIGKILL, -signal.SIGTERM)
_MOST_STRAYS: Final = 10_000
"""Frames of a limited worker about unknown calls. A cancelled command may report for a while."""
_OF_A_CALL: Final = frozenset({*DELIVER, Kind.UNBEGUN, Kind.BEGUN})
_SHORTEST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 1.0
"""Seconds after which `within` looks again, at the earliest and at the latest."""
_SLOWEST: Final = 10
"""How many times as long as its seconds `within` waits, even if no worker can run."""
_MOST_MOVES: Final = 10
"""How often a call may move. A person may save ten times while a skill is imported."""


@frozen
class Successor:
    """A worker of the next generation, with its description."""

    worker: Worker
    description: Description


@frozen
class KeptSource:
    """The source of a skill in the form for a worker."""

    head: bytes
    body: bytes


class Supervisor:
    """The workers of one host, and their jobs."""

    def __init__(  # noqa: PLR0915 - one line for each thing that it knows
        self, root: Path, settings: Settings, flags: Mapping[str, Any], spawn: Spawn = WorkerProcess
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings.own.host
        self._now = self._loop.time
        self._made_with = root, flags
        self._all_settings = settings
        self._gone: Mapping[str, str] = {}
        self._pool = self._made_pool(OWN, spawn)
        self._pools = {OWN: self._pool}
        """The project's own pool, and those that were made when needed."""
        self._backoff = BackOff(self._now)
        self._timeouts = Timeouts(self._pools.values, settings.own.host, jobs=self._jobs, on_overdue=self._overdue)
        self._running: dict[Job, Worker] = {}
        self._unplaced: list[Job] = []
        """Jobs whose placement is being prepared."""
        self._some_wait = False
        """Whether calls wait for places."""
        self._releasing = False
        self._number = 0
        self.results: Results | None = None
        """Shared results of other hosts."""
        self.slots: Slots | None = None
        """The concurrency limits over all hosts."""
        self.witness: Witness | None = None
        """Records all jobs."""
        self.on_live: Callable[[Mapping[str, str]], None] = _ignore_digests
        """Hears the digests of skills that an active worker has just imported."""
        self.on_updated: Callable[[str, str], None] = _ignore_updates
        """Hears the URIs of resources that commands have changed, with the only skill whose resources these may be."""
        self.source_of: Callable[[str], KeptSource | None] = _no_source
        """Returns the kept source of a skill."""
        self.hooks: Callable[[], Iterable[str]] = tuple
        """The skills that every worker of the project's own pool imports first."""
        self.placement_of: Callable[[str], Placement | Unplaced] = _own_placement
        """Returns the placement of a skill."""
        self.elsewhere: Callable[[Contract], Placement | Unplaced | None] = _on_this_machine
        """Returns the placement of a command that runs on agents; `None` for one that runs here."""
        self.abroad: Spawn | None = None
        """Starts workers on agents."""
        self.share_of: Callable[[Placement], Mapping[str, Any]] = _all_skills
        """Returns the skills of a placement, for its workers."""

    def _made_pool(self, placement: Placement, spawn: Spawn) -> Pool:
        root, flags = self._made_with
        pool = Pool(
            root,
            self._all_settings,
            flags,
            spawn,
            on_start=self._on_start,
            on_frame=self._on_frame,
            on_exit=self._on_exit,
            on_print=self._on_print,
            on_unbegun=self._take_back,
            on_overdue_import=self._answer_import,
            on_preparing=self._on_preparing,
            later=self._later,
            placement=placement,
            mark=self._pool.mark if placement != OWN else "",
        )
        pool.share = lambda: self.share_of(placement)
        pool.on_room = self._release_soon
        pool.gone = self._gone
        return pool

    def _later(self, worker: Worker, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` when a worker could have run for this long. The timeouts are made after the first pool."""
        self._timeouts.after(worker, seconds, act)

    def _pool_of(self, placement: Placement) -> Pool:
        """The pool of a placement, made at first use. All pools except the project's own end when idle."""
        if placement is OWN:
            return self._pool
        pool = self._pools.get(placement)
        if pool is None:
            pool = self._pools[placement] = self._made_pool(placement, self._spawn_in(placement))
        pool.used = self._now()
        if pool.resting is None:
            self._let_rest(pool)
        return pool

    def _spawn_in(self, placement: Placement) -> Spawn:
        return self.abroad if placement.place and self.abroad is not None else WorkerProcess

    def _let_rest(self, pool: Pool) -> None:
        """End the workers of an idle pool, else check again later."""
        now = self._now()
        if not pool.is_idle:
            pool.used = now
        left = pool.used + self._settings.pool_idle - now
        pool.resting = None
        if left > 0:
            pool.resting = self._loop.call_later(left, self._let_rest, pool)
        else:
            pool.rest()

    def start(self) -> None:
        """Start a worker, so that the first call need not wait."""
        self._pool.fill()

    async def within(self, tasks: Collection[asyncio.Task[None]], seconds: float) -> bool:
        """Wait for tasks while workers start or describe skills, up to so many seconds in which these could run.

        Ends after ten times these seconds, counted while this process could run. Returns whether all tasks are done.
        """
        before, left, waited = self._timeouts.loading, seconds, 0.0
        pending = {*tasks}
        while pending and left > 0:
            since, most = self._now(), min(max(left, _SHORTEST_WAIT), _LONGEST_WAIT)
            _, pending = await asyncio.wait(pending, timeout=most)
            waited += min(self._now() - since, 2 * most)
            left = min(seconds - (self._timeouts.loading - before), seconds - waited / _SLOWEST)
        return not pending

    def clock(self) -> Clock:
        """A clock for those who wait for calls."""

        def busy() -> list[LinkedWorker]:
            workers = (worker for pool in self._pools.values() for worker in pool.workers)
            return [worker.process for worker in workers if worker.is_busy]

        return Clock(busy, self._now)

    def configure(self, settings: Settings) -> None:
        """Use other settings from now on."""
        self._settings = settings.own.host
        self._all_settings = settings
        for pool in self._pools.values():
            pool.configure(settings)
        self._timeouts.configure(settings.own.host)

    async def close(self) -> None:
        """End all workers and answer the running jobs."""
        pools = list(self._pools.values())
        for pool in pools:
            pool.dismiss_all()
            if pool.resting is not None:
                pool.resting.cancel()
        for job in (*self._waiting(), *self._unplaced):
            if not job.over:
                self._fail(job, self._pool.why_none(), started=False)
        self._unplaced.clear()
        try:
            await asyncio.gather(*(pool.wait() for pool in pools))
        finally:
            self._timeouts.close()

    # Jobs

    def submit(self, job: Job) -> None:
        """Run a job. Its listener gets exactly one answer unless the job is cancelled."""
        if self.witness is not None and not job.is_private:
            self.witness.watch(job)
        self._timeouts.start_clock(job)
        self._dispatch(job)

    def cancel(self, job: Job) -> None:
        """Cancel a job; it gets no answer."""
        self._give_up(job)
        if self.witness is not None:
            self.witness.cancelled(job)

    def answer(self, job: Job, answers: JsonObject) -> None:
        """Pass on the answers of a person (`{"answers": ...}`), or why there are none (`{"error": ...}`)."""
        worker = self._running.get(job)
        if worker is not None:
            self._timeouts.resume_clock(job)
            worker.process.send(Kind.ANSWERS, job.number, json.dumps(answers).encode())

    @property
    def mark(self) -> str:
        """The first part of call ids."""
        return self._pool.mark

    @property
    def busy(self) -> int:
        """The number of unfinished jobs."""
        return len(self._jobs())

    def is_unbegun(self, job: Job) -> bool:
        """Whether a job waits for the start of a worker, or for an import."""
        worker = self._running.get(job)
        return worker is not None and not worker.process.has_begun(job.number)

    def _jobs(self) -> list[Job]:
        return [*self._waiting(), *self._unplaced, *self._running]

    def _waiting(self) -> list[Job]:
        """The jobs that wait for a place."""
        return [job for pool in self._pools.values() for queue in pool.queues.values() for job in queue]

    def _dispatch(self, job: Job) -> None:
        contract = job.contract
        placement = self.elsewhere(contract) or self.placement_of(contract.skill)
        if isinstance(placement, Unplaced):
            self._dispatch_later(job, placement.reason)
            return
        pool = self._pool_of(placement)
        worker = (pool.importer_of(contract.skill) if job.alone else None) or pool.worker_for(contract)
        why_not = self._backoff.refusal(contract.skill)
        if worker is None or why_not:
            self._fail(job, why_not or pool.why_none(contract.skill), started=False)
            return
        is_bounded = contract.policies.concurrency is not None
        may_wait = is_bounded or pool.queues or len(worker.jobs) >= pool.few[contract.in_thread]
        if may_wait and job.place is None and not self._has_place(job, pool, worker):
            return
        self._running[job] = worker
        self._give_source(worker, contract.skill)
        self._number = number = worker.take(job, self._number)
        if pool.placement.place:
            worker.process.limit(number, min(job.due - self._now(), job.left))
        worker.process.send(Kind.CALL, number, job.head, job.arguments, more=len(worker.jobs) > 1)

    def _dispatch_later(self, job: Job, reason: str) -> None:
        """Let a job wait for its placement, without a timeout, or fail it with the reason."""
        if reason or self._pool.closing:
            self._fail(job, reason or self._pool.why_none(), started=False)
            return
        self._timeouts.stop_clock(job)
        leave_place(job)
        self._unplaced.append(job)
        report_waiting(job, f"preparing the environment of {job.contract.skill}")

    def placed(self) -> None:
        """Dispatch waiting jobs, because the placement of some skills is ready or has failed."""
        unplaced, self._unplaced = self._unplaced, []
        for job in unplaced:
            if not job.over:
                self._timeouts.resume_clock(job)
                self._dispatch(job)

    def report_unplaced(self, skills: Collection[str], message: str) -> None:
        """Report the progress of a placement to the jobs that wait for it."""
        for job in self._unplaced:
            if job.contract.skill in skills and not job.over:
                report_waiting(job, message)

    def _give_source(self, worker: Worker, skill: str) -> None:
        """Send the kept source of a skill to a worker that will import it, because the files may have changed."""
        if skill in worker.sourced:
            return
        source = self.source_of(skill)
        if source is not None:
            worker.sourced.add(skill)
            worker.process.send(Kind.SOURCE, 0, source.head, source.body)

    # Places

    def _has_place(self, job: Job, pool: Pool, worker: Worker) -> bool:
        """Give a job a place, or let it wait for one. If too many wait, one is refused."""
        in_thread = job.contract.in_thread
        others_wait = bool(pool.queues.get(in_thread))
        is_held_back = others_wait or self._is_held_back(job, worker) or not self._has_room(job)
        if not is_held_back and in_thread not in pool.queues and len(worker.jobs) < pool.few[in_thread]:
            return True
        queue = pool.queue(in_thread=in_thread)
        places = pool.places(in_thread=in_thread)
        if not is_held_back and take_place(job, queue, places):
            return True
        queue.put(job.path, job, first=job.moves > 0)
        job.queue = queue
        self._some_wait = True
        if queue.running < places:
            self.release()
        if len(queue) > self._settings.max_waiting:
            self._refuse(queue)
        return False

    def _refuse(self, queue: FairQueue[Job]) -> None:
        """Refuse the newest job of the client with the most waiting jobs."""
        waiting, job = len(queue) - 1, queue.shed()
        seconds = queue.retry_after(self._now())
        job.queue = None
        self._finish(job)
        answer_busy(job, waiting, seconds)

    def _is_held_back(self, job: Job, target: Worker) -> bool:
        """Whether `concurrency` allows no further call. Workers enforce it too, but for the host a call that waits there has begun."""
        policies, command = job.contract.policies, job.contract.id
        if policies.concurrency is None:
            return False
        workers = (worker for pool in self._pools.values() for worker in pool.workers if worker is not target)
        elsewhere = sum(worker.running(command) for worker in workers)
        if elsewhere:
            return elsewhere + target.running(command) >= policies.concurrency
        if policies.cache_ttl:  # a cached result needs no slot
            return False
        return sum(other.contract.id == command for other in target.jobs.values()) >= policies.concurrency

    def _is_ready(self, job: Job) -> bool:
        """Whether a waiting job may start once there is a place."""
        if job.contract.policies.concurrency is None:
            return True
        placement = self.elsewhere(job.contract) or self.placement_of(job.contract.skill)
        worker = None if isinstance(placement, Unplaced) else self._pool_of(placement).worker_for(job.contract)
        return worker is None or (not self._is_held_back(job, worker) and self._has_room(job))

    def _has_room(self, job: Job) -> bool:
        """Whether `concurrency` over all hosts allows a job to begin."""
        return self.slots is None or job.contract.policies.concurrency is None or self.slots.admits(job.contract, job)

    def _release_soon(self) -> None:
        """Dispatch waiting jobs after this turn of the loop, in which several places may become free."""
        if self._some_wait and not self._releasing:
            self._releasing = True
            self._loop.call_soon(self.release)

    def release(self) -> None:
        """Dispatch waiting jobs, as far as there are places."""
        self._releasing = False
        for pool in list(self._pools.values()):
            for in_thread, queue in list(pool.queues.items()):
                places = pool.places(in_thread=in_thread)
                while (found := queue.take(places, self._is_ready)) is not None:
                    job, place = found
                    job.queue, job.place = None, (queue, place)
                    self._dispatch(job)
        self._some_wait = any(queue for pool in self._pools.values() for queue in pool.queues.values())

    def _move(self, job: Job) -> None:
        """Give an unbegun job to another worker, within bounds, because the same may happen there."""
        worker = self._running.pop(job)
        worker.drop(job)
        leave_place(job)
        self._release_soon()
        self._timeouts.resume_clock(job)  # which stood still if the worker was being prepared
        job.moves += 1
        if job.failure:
            self._fail(job, job.failure, started=False)
        elif job.deaths >= _MOST_DEATHS:
            why = f" ({worker.pool.diagnosis})" if worker.pool.diagnosis else ""
            self._fail(job, f"{job.deaths} workers ended before the call began{why}; see the log", started=False)
        elif job.moves >= _MOST_MOVES:
            self._fail(job, f"{job.moves} workers were replaced before they began it; see the log", started=False)
        else:
            self._dispatch(job)

    def _take_back(self, job: Job) -> None:
        """Take a job from its worker."""
        self._move(job)

    def _finish(self, job: Job) -> None:
        """Clean up after a finished job."""
        job.over = True
        if self.slots is not None and job.contract.policies.concurrency is not None:
            self.slots.over(job.contract, job)
        if len(job.arguments) >= LARGE:
            give_back_soon()
        worker = self._running.pop(job, None)
        if self._some_wait:
            self._release_soon()
        if job.place is not None:
            leave_place(job)
            if worker is not None:
                worker.pool.calm_down()
        elif job.queue is not None:
            job.queue.remove(job.path, job)
            job.queue = None
        if worker is not None:
            worker.drop(job)
            if job.number not in worker.withdrawn:
                worker.process.forget(job.number)
            if worker.state is not State.READY or worker.pool.importers:
                self._loop.call_soon(worker.pool.check_calls, worker)

    def _fail(self, job: Job, reason: str, *, started: bool) -> None:
        self._finish(job)
        answer_lost(job, reason, started=started)

    def _give_up(self, job: Job, head: bytes = b"") -> None:
        """Tell a worker to stop a job, or not to begin it, and check that it does."""
        worker = self._running.get(job)
        has_begun = worker is not None and not worker.forbid(job)
        self._finish(job)
        if worker is not None:
            worker.process.send(Kind.CANCEL, job.number, head)
            self._timeouts.give_up(worker, job, has_begun=has_begun)

    def _overdue(self, job: Job) -> None:
        """Answer a job that is overdue, and check its worker."""
        self._give_up(job, _LATE)
        answer_timeout(job)

    # Frames of workers

    def _on_frame(self, worker: Worker, frame: Frame) -> None:
        limited = worker.pool.placement.limits
        if limited is None:
            self._take(worker, frame)
            return
        if worker.violation:
            return
        job = worker.jobs.get(frame.number) if frame.kind in _OF_A_CALL else None
        if job is None and (frame.kind != Kind.PONG or worker.pinged is None):
            worker.stray_frames += 1
            if worker.stray_frames > _MOST_STRAYS:
                worker.pool.condemn(worker, f"more than {_MOST_STRAYS} messages about calls that it does not have")
                return
        elif frame.kind in LAST:
            worker.stray_frames = 0
        from prowess_host.workers.mistrust import sound  # for limited skills alone

        checked = sound(frame, limited, job)
        if checked is not None:
            self._take(worker, checked)
        else:
            worker.pool.condemn(worker, "an invalid message")

    def _take(self, worker: Worker, frame: Frame) -> None:
        if frame.kind != Kind.UNBEGUN or worker.process.shows_begun:  # otherwise a thread of the worker answers
            self._timeouts.on_frame(worker)
        if frame.kind not in DELIVER:
            self._on_worker_frame(worker, frame)
            return
        job = worker.jobs.get(frame.number)
        if job is not None:
            worker.proven = True
            if frame.kind != Kind.REFUSED or not self._gives_again(worker, job, frame):
                self._pass_on(job, frame)
                if frame.kind == Kind.RESULT and job.contract.policies.concurrency is not None and _runs_on(job, frame):
                    self._timeouts.give_up(worker, job, has_begun=True)
        if worker.withdrawn and frame.kind in LAST:
            worker.release(frame.number)

    def _gives_again(self, worker: Worker, job: Job, frame: Frame) -> bool:
        """Dispatch a call once more, with the last good source, if its skill is broken in the worker.

        The worker may have imported the skill before the host sent a source: for a description, or during a save.
        """
        refused: RefusedHead = json.loads(frame.head)
        skill = job.contract.skill
        if not refused.get("broken") or job.was_broken or self.source_of(skill) is None:
            return False
        job.was_broken = True
        worker.sourced.discard(skill)
        worker.process.forget(job.number)
        del self._running[job]
        worker.drop(job)
        self._dispatch(job)
        self._loop.call_soon(worker.pool.check_calls, worker)
        return True

    def _pass_on(self, job: Job, frame: Frame) -> None:
        """Pass a frame to the listener of its job."""
        kind = frame.kind
        if kind in LAST:
            self._finish(job)
        elif kind == Kind.QUESTIONS:
            self._timeouts.stop_clock(job)
        delivered = DELIVER[kind](job, frame)
        if not delivered and kind == Kind.QUESTIONS:
            self.answer(job, {"error": NOT_SAID})

    def _on_worker_frame(self, worker: Worker, frame: Frame) -> None:  # noqa: PLR0912 - a table of kinds
        """Handle a frame about the worker itself."""
        kind = frame.kind
        if kind == Kind.UNBEGUN:
            self._on_unbegun(worker, frame.number)
        elif kind == Kind.PONG:
            if self._timeouts.on_pong(worker, frame.number):
                self.release()
        elif kind == Kind.LINGERING:
            self._timeouts.question(worker)
        elif kind == Kind.READY:
            worker.pool.on_ready(worker, json.loads(frame.head or b"{}"))
        elif kind == Kind.LIVE:
            head: LiveHead = json.loads(frame.head)
            self._on_live(worker, head["digests"])
        elif kind == Kind.SECRETS:
            self._on_secrets(worker, json.loads(frame.head))
        elif kind == Kind.UPDATED:
            self._on_updated(worker, json.loads(frame.head))
        elif kind == Kind.FIND:
            self._find(worker, frame)
        elif kind == Kind.KEEP and self.results is not None and worker.pool.placement.limits is None:
            self.results.keep(worker.process, frame.number, frame.head, frame.body)
        elif kind == Kind.CATALOG:
            self._on_description(worker, frame)
        elif kind == Kind.FAILED:
            failed: FailedHead = json.loads(frame.head)
            worker.reason = failed["message"]
            if worker.describing is not None:
                worker.describing.fail(ChildProcessError(worker.reason))

    def _on_print(self, worker: Worker, number: int, line: bytes) -> None:
        if self.witness is not None:
            self.witness.printed(worker.jobs.get(number), number, line)

    def _on_unbegun(self, worker: Worker, number: int) -> None:
        """Handle UNBEGUN for a withdrawn call, which moves now unless it has moved before."""
        job = worker.jobs.get(number)
        if job is not None:
            self._take_back(job)
            self._loop.call_soon(worker.pool.check_calls, worker)
        worker.release(number)

    def _on_description(self, worker: Worker, frame: Frame) -> None:
        try:
            description = Description.from_json(json.loads(frame.head), unpack(frame.body))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # a worker in another language
            reason = f"a worker described the skills in a way that cannot be read: {type(error).__name__}: {error}"
            if worker.describing is not None:
                worker.describing.fail(ChildProcessError(reason))
            return
        self._backoff.clear(description.skills)
        worker.pool.on_description(worker, description)

    def _on_secrets(self, worker: Worker, head: SecretsHead) -> None:
        """Keep secrets out of the record; of a limited worker only those that it was sent, since others could hide its actions."""
        texts = [text for text in list[object](head.get("texts") or ()) if isinstance(text, str)]
        placement = worker.pool.placement
        if placement.limits is not None:
            passed = placement.limits.passed_texts(self.share_of(placement).get("flags"))
            texts = [text for text in texts if text in passed]
        if self.witness is not None:
            self.witness.keep_out(texts)

    def _find(self, worker: Worker, frame: Frame) -> None:
        """Pass on a worker's question for a shared result. Limited workers take no part."""
        if self.results is None or worker.pool.placement.limits is not None:
            worker.process.send(Kind.FOUND, frame.number)
        else:
            key: object = json.loads(frame.head).get("key")  # a worker in another language
            self.results.find(worker.process, frame.number, str(key))

    def _on_updated(self, worker: Worker, head: Mapping[str, object]) -> None:
        uri: object = head.get("uri")  # a worker in another language
        limited = worker.pool.placement.limits
        if isinstance(uri, str):
            self.on_updated(uri, limited.skill if limited is not None else "")

    def _on_live(self, worker: Worker, digests: dict[str, str]) -> None:
        worker.loaded.update(digests)
        worker.sourced.update(digests)
        self._backoff.clear(digests)
        if worker in worker.pool.active:
            at_home = {
                name: digest for name, digest in digests.items() if self.placement_of(name) == worker.pool.placement
            }
            self.on_live(at_home)

    # Ends of workers

    def _on_start(self, worker: Worker) -> None:
        self._timeouts.watch()
        if not worker.fresh and worker.pool.placement.is_common:
            for skill in self.hooks():
                self._give_source(worker, skill)

    def _on_preparing(self, worker: Worker, line: str) -> None:
        """Stop the clocks of calls while the code or environment of their worker is prepared on an agent."""
        for job in worker.jobs.values():
            if line:
                self._timeouts.stop_clock(job)
                report_waiting(job, line)
            else:
                self._timeouts.resume_clock(job)

    def _on_exit(self, worker: Worker, begun: list[Job]) -> None:
        """Answer the calls that a worker had begun before its end, and give the others to another worker."""
        if self.results is not None:
            self.results.gone(worker.process)
        ended = f"its worker ended ({worker.violation or worker.process.verdict or describe_exit(worker.process.exit_code)})"
        for job in begun:
            self._fail(job, "the host is shutting down" if self._pool.closing else ended, started=True)
        importing = worker.process.importing
        if worker.ended_itself and len(importing) == 1:  # with several imports, the cause is unknown
            skill = importing[0].skill
            waiting = [job for job in worker.jobs.values() if job.contract.skill == skill]
            # A begun call or a kill from outside may have ended the worker, so the import gets another chance.
            is_certain = not begun and worker.process.exit_code not in _KILLS
            # Without such calls it was imported to be described, and its last good version may still serve calls.
            if waiting and (is_certain or any(job.deaths + 1 >= _MOST_DEATHS for job in waiting)):
                self._backoff.note(skill, f"the import of {skill} ({importing[0].file}) ended the worker")
                for job in waiting:
                    self._fail(job, f"{ended} while it was loaded", started=False)  # it would end the next worker too
        for job in list(worker.jobs.values()):
            if worker.process.refusal and not worker.pool.active:
                self._fail(job, worker.process.refusal, started=False)
                continue
            # A call that only waits is not to blame for workers that its neighbours end.
            job.alone = any(each.skill == job.contract.skill for each in importing)
            job.deaths += (job.alone or not begun) and not worker.process.refusal
            self._move(job)
        self.release()

    def _answer_import(self, worker: Worker) -> None:
        """Answer the calls that wait for an overdue import."""
        limit = self._settings.import_limit
        for importing in [each for each, spent in worker.imports.items() if spent > limit]:
            reason = f"the import of {importing.skill} ({importing.file}) takes more than {limit:g} s"
            reason = f"{reason}, the setting host.import_limit; import slow modules inside the commands that need them"
            _log.warning("%s; worker %s is replaced", reason, worker.process.pid)
            self._backoff.note(importing.skill, reason)
            if worker.describing is not None:
                worker.describing.fail(LostImport(importing, reason))
            jobs = [job for job in worker.unbegun() if job.contract.skill == importing.skill]
            for job in jobs:
                job.failure = reason
            worker.pool.withdraw(worker, jobs)

    # The catalog, and new generations

    @contextlib.asynccontextmanager
    async def describers(self) -> AsyncGenerator[Ask]:
        """Yields a function that describes all skills except the known ones. Use one at a time.

        Many skills are divided among several workers. The function raises `ChildProcessError`; for a `LostImport`, ask
        again without that skill.
        """
        describers = Describers(self._pool, self._described)
        try:
            yield describers.ask
        finally:
            describers.close()

    async def next_generation(self, known: Collection[str] = ()) -> Successor:
        """A worker that has loaded the current files, except the known skills. It gets no calls before `adopt`.

        Fails as `describers` does.
        """
        return await self._successor(self._pool, {"known": sorted(known)})

    async def next_of(self, placement: Placement, skills: Collection[str] | None = None) -> Successor:
        """The same for some or all skills of another placement."""
        request: DescribeHead = {"known": []}
        if skills is not None:
            request["only"] = sorted(skills)
        pool = self._pool_of(placement)
        pool.describes = True
        return await self._successor(pool, request)

    async def _successor(self, pool: Pool, request: DescribeHead) -> Successor:
        worker = pool.spawn_successor()
        if worker is None:
            raise ChildProcessError(pool.why_none())
        try:
            return Successor(worker, await self._described(worker, request))
        except BaseException:
            pool.send(worker, Event.DISCARD)
            raise

    async def _described(self, worker: Worker, request: DescribeHead) -> Description:
        describing = worker.describing = Describing(worker.process, request)
        self._timeouts.watch()
        return await describing.answer()

    def give_up_imports(self, skills: Collection[str] | None) -> None:
        """Fail the descriptions that wait for the import of some skills, or of any, and replace the workers that import them.

        Fails with `LostWorker`.
        """
        for worker in [worker for pool in self._pools.values() for worker in pool.workers]:
            describing = worker.describing
            outdated = [each.skill for each in worker.importing if skills is None or each.skill in skills]
            # In a debugger, skills run in this process, and somebody may look at the import.
            if outdated and describing is not None and describing.open and worker.process.has_own_process:
                describing.fail(LostWorker(f"{', '.join(outdated)} changed while it was imported"))
                worker.pool.send(worker, Event.RETIRE)

    async def importable(self, skills: Collection[str]) -> set[str]:
        """The skills whose import does not end a worker. Each is tried in a helper."""
        found = set[str]()
        for skill in sorted(skills):
            helper = self._pool.spawn_helper()
            if helper is None:
                break
            try:
                await self._described(helper, {"known": [], "only": [skill]})
                found.add(skill)
            except ChildProcessError as error:
                _log.info("%s was tried again: %s", skill, error)
            finally:
                self._pool.send(helper, Event.RETIRE)
        return found

    @property
    def loaded(self) -> set[str]:
        """The skills that current workers have imported, and can run even if their files break."""
        return {skill for pool in self._pools.values() for skill in pool.loaded}

    def adopt(self, successor: Successor, kept: Collection[str]) -> None:
        """Send new calls to the new generation, which imports the skills in `kept` from their last good sources."""
        successor.worker.sourced.difference_update(kept)
        successor.worker.fresh = False
        pool = successor.worker.pool
        self._backoff.clear_all()
        pool.adopt(successor.worker)
        for other in list(self._pools.values()):
            if other.placement.place and not other.describes:
                other.renew()
        if pool is self._pool:
            for skill in sorted({*self.hooks()}.intersection(kept)):
                self._give_source(successor.worker, skill)
        self.release()

    def give_up(self, reasons: Mapping[str, str]) -> None:
        """Set the skills that do not load and have no last good version, each with the reason."""
        self._gone = reasons
        for pool in self._pools.values():
            pool.gone = reasons

    def discard(self, successor: Successor) -> None:
        """End a successor that is not needed."""
        successor.worker.pool.send(successor.worker, Event.DISCARD)


def _runs_on(job: Job, frame: Frame) -> bool:
    """Whether a call may still run in a thread after its result: its worker has noticed that its time is up."""
    return job.contract.in_thread and b'"timeout"' in frame.head


def _own_placement(_skill: str) -> Placement:
    """The default: all skills run in the project's placement."""
    return OWN


def _on_this_machine(_contract: Contract) -> None:
    """The default: all commands run on this machine."""


def _all_skills(_placement: Placement) -> Mapping[str, Any]:
    """The default: every worker runs all skills."""
    return {}


def _no_source(_skill: str) -> KeptSource | None:
    """The default: skills are imported from their files."""


def _ignore_updates(_uri: str, _skill: str) -> None:
    """The default: no client subscribes to resources."""


def _ignore_digests(_digests: Mapping[str, str]) -> None:
    """The default: digests are not compared."""
