"""Chooses the worker for each call, and moves or fails the calls of a worker that stalls, leaves or dies.

The entrance to this room. A call is a sequence of bytes and a callback, independent of the client's protocol.
`pools` has the workers by placement, `admission` the calls that wait, and `generations` the versions of the skills.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from prowess.jsontypes import JsonObject
from prowess.settings.settings import Settings
from prowess.worker.heap import LARGE, give_back_soon
from prowess.worker.link import Frame
from prowess.worker.messages import LAST, CancelHead, FailedHead, Kind, LiveHead, RefusedHead, SecretsHead
from prowess_host.workers.admission import Admission
from prowess_host.workers.backoff import BackOff
from prowess_host.workers.clock import Clock
from prowess_host.workers.describe import LostImport
from prowess_host.workers.generations import Generations
from prowess_host.workers.jobs import (
    DELIVER,
    NOT_SAID,
    Job,
    Results,
    Witness,
    answer_busy,
    answer_lost,
    answer_timeout,
    deliver,
    leave_place,
    report_waiting,
)
from prowess_host.workers.lifecycle import State
from prowess_host.workers.linked import LinkedWorker
from prowess_host.workers.placement import Placement, Unplaced
from prowess_host.workers.pool import Pool
from prowess_host.workers.pools import Pools
from prowess_host.workers.process import Spawn, WorkerProcess, describe_exit
from prowess_host.workers.timeouts import Timeouts
from prowess_host.workers.worker import Worker

__all__ = ["Supervisor"]

_log = logging.getLogger("prowess.host")
_LATE: Final = json.dumps(CancelHead(late=True)).encode()
_MOST_DEATHS: Final = 3
"""After this many workers have ended before they began a call, the call fails."""
_KILLS: Final = (-signal.SIGKILL, -signal.SIGTERM)
_MOST_STRAYS: Final = 10_000
"""Frames of a limited worker about unknown calls. A cancelled command may report for a while."""
_OF_A_CALL: Final = frozenset({*DELIVER, Kind.UNBEGUN, Kind.BEGUN})
_MOST_MOVES: Final = 10
"""How often a call may move. A person may save ten times while a skill is imported."""


class Supervisor:
    """The workers of one host, and their jobs."""

    def __init__(self, root: Path, settings: Settings, flags: Mapping[str, Any], spawn: Spawn = WorkerProcess) -> None:
        self._root = root
        self._flags = flags
        self._loop = asyncio.get_running_loop()
        self._settings = settings.own.host
        self._now = self._loop.time
        self.mark = os.urandom(4).hex()
        """The first part of call ids."""
        self.pools = Pools(settings, spawn, self._made_pool)
        """The workers, by placement."""
        self._backoff = BackOff(self._now)
        self._timeouts = Timeouts(
            self.pools, settings.own.host, jobs=self._jobs, arrives=self._arrives, on_overdue=self._overdue
        )
        self.admission = Admission(self.pools, settings.own.host, dispatch=self._dispatch, refuse=self._refuse)
        """The calls that wait for places."""
        self.generations = Generations(self.pools, self._timeouts, self._backoff, on_adopted=self.admission.release)
        """The versions of the skills in the workers."""
        self._running: dict[Job, Worker] = {}
        self._unplaced: list[Job] = []
        """Jobs whose placement is being prepared."""
        self._number = 0
        self.results: Results | None = None
        """Shared results of other hosts."""
        self.witness: Witness | None = None
        """Records all jobs."""
        self.on_updated: Callable[[str, str], None] = _ignore_updates
        """Hears the URIs of resources that commands have changed, with the only skill whose resources these may be."""

    def _made_pool(self, placement: Placement, settings: Settings, spawn: Spawn) -> Pool:
        pool = Pool(
            self._root,
            settings,
            self._flags,
            spawn,
            on_start=self._on_start,
            on_frame=self._on_frame,
            on_exit=self._on_exit,
            on_print=self._on_print,
            on_unbegun=self._move,
            on_overdue_import=self._answer_import,
            on_preparing=self._on_preparing,
            later=self._timeouts.after,
            placement=placement,
            mark=self.mark,
        )
        pool.on_room = self.admission.release_soon
        return pool

    def start(self) -> None:
        """Start a worker, so that the first call need not wait."""
        self.pools.own.fill()

    def clock(self) -> Clock:
        """A clock for those who wait for calls."""

        def busy() -> list[LinkedWorker]:
            return [worker.process for worker in self.pools.workers if worker.is_busy]

        return Clock(busy, self._now)

    def configure(self, settings: Settings) -> None:
        """Use other settings from now on."""
        self._settings = settings.own.host
        self.pools.configure(settings)
        self._timeouts.configure(settings.own.host)
        self.admission.configure(settings.own.host)

    async def close(self) -> None:
        """End all workers and answer the running jobs."""
        self.pools.dismiss_all()
        for job in (*self.admission.waiting(), *self._unplaced):
            if not job.over:
                self._fail(job, self.pools.own.why_none(), started=False)
        self._unplaced.clear()
        try:
            await self.pools.wait()
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

    def answer(self, job: Job, answers: JsonObject, *, more: bool = False) -> None:
        """Pass on the answers of a person (`{"answers": ...}`), or why there are none (`{"error": ...}`).

        `more` says that other questions are still open.
        """
        worker = self._running.get(job)
        if worker is not None:
            if not more:
                self._timeouts.resume_clock(job)
            try:
                body = json.dumps(answers)
            except RecursionError:  # since Python 3.12, the parser goes deeper than the writer
                body = json.dumps({"error": "the answer is nested too deeply"})
            worker.process.send(Kind.ANSWERS, job.number, body.encode())

    def is_unbegun(self, job: Job) -> bool:
        """Whether a job waits for the start of a worker, or for an import."""
        worker = self._running.get(job)
        return worker is not None and not worker.process.has_begun(job.number)

    def _jobs(self) -> list[Job]:
        return [*self.admission.waiting(), *self._unplaced, *self._running]

    def _dispatch(self, job: Job) -> None:
        contract = job.contract
        pool = self.pools.pool_for(contract)
        if isinstance(pool, Unplaced):
            self._dispatch_later(job, pool.reason)
            return
        worker = (pool.importer_of(contract.skill) if job.alone else None) or pool.worker_for(contract)
        why_not = self._backoff.refusal(contract.skill)
        if worker is None or why_not:
            self._fail(job, why_not or pool.why_none(contract.skill), started=False)
            return
        is_bounded = contract.policies.concurrency is not None
        may_wait = is_bounded or pool.queues or len(worker.jobs) >= pool.few[contract.in_thread]
        if may_wait and job.place is None and not self.admission.admits(job, pool, worker):
            return
        self._running[job] = worker
        if contract.skill not in worker.sourced:
            self.generations.give_source(worker, contract.skill)
        self._number = number = worker.take(job, self._number)
        if not worker.process.shows_begun:
            worker.process.limit(number, min(job.due - self._now(), job.remaining))
        worker.process.send(Kind.CALL, number, job.head, job.arguments, more=len(worker.jobs) > 1)

    def _dispatch_later(self, job: Job, reason: str) -> None:
        """Let a job wait for its placement, without a timeout, or fail it with the reason."""
        if reason or self.pools.own.closing:
            self._fail(job, reason or self.pools.own.why_none(), started=False)
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

    def _move(self, job: Job) -> None:
        """Give an unbegun job to another worker, within bounds, because the same may happen there."""
        worker = self._running.pop(job)
        worker.drop(job)
        leave_place(job)
        self.admission.release_soon()
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

    def _finish(self, job: Job, *, may_run: bool = False) -> None:
        """Clean up after a finished job."""
        job.over = True
        if len(job.arguments) >= LARGE:
            give_back_soon()
        worker = self._running.pop(job, None)
        self.admission.leave(job, worker, may_run=may_run)
        if worker is not None:
            worker.drop(job)
            if job.number not in worker.withdrawn:
                worker.process.forget(job.number)
            if worker.state is not State.READY or worker.pool.importers:
                self._loop.call_soon(worker.pool.check_calls, worker)

    def _refuse(self, job: Job, waiting: int, seconds: int) -> None:
        """Refuse a job because too many wait already."""
        self._finish(job)
        answer_busy(job, waiting, seconds)

    def _fail(self, job: Job, reason: str, *, started: bool) -> None:
        self._finish(job)
        answer_lost(job, reason, started=started)

    def _give_up(self, job: Job, head: bytes = b"") -> bool:
        """Tell a worker to stop a job, or not to begin it, and check that it does. Returns whether it may have begun."""
        worker = self._running.get(job)
        has_begun = worker is not None and not worker.forbid(job)
        self._finish(job, may_run=worker is not None)
        if worker is None:
            return False
        worker.process.send(Kind.CANCEL, job.number, head)
        self._timeouts.watch_given_up(worker, job, partial(self.admission.free_slot, job), has_begun=has_begun)
        # A cached call may wait for the run of another one; without shared memory, nobody knows yet.
        return has_begun or bool(job.contract.policies.cache_ttl) or not worker.process.shows_begun

    def _arrives(self, job: Job) -> bool:
        """Whether a part of the answer to a job has arrived."""
        worker = self._running.get(job)
        return worker is not None and worker.process.link.is_receiving(job.number)

    def _overdue(self, job: Job) -> None:
        """Answer a job that is overdue, and check its worker."""
        answer_timeout(job, may_have_begun=self._give_up(job, _LATE))

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
                bounded = job.contract.policies.concurrency is not None
                may_run = bounded and frame.kind == Kind.RESULT and _may_run(job, frame)
                self._pass_on(job, frame, may_run=may_run)
                if may_run:
                    self._timeouts.watch_given_up(worker, job, partial(self.admission.free_slot, job), has_begun=True)
        if worker.withdrawn and frame.kind in LAST:
            worker.release(frame.number)

    def _gives_again(self, worker: Worker, job: Job, frame: Frame) -> bool:
        """Dispatch a call once more, with the last good source, if its skill is broken in the worker.

        The worker may have imported the skill before the host sent a source: for a description, or during a save.
        """
        refused: RefusedHead = json.loads(frame.head)
        skill = job.contract.skill
        if not refused.get("broken") or job.was_broken or self.generations.source_of(skill) is None:
            return False
        job.was_broken = True
        worker.sourced.discard(skill)
        worker.process.forget(job.number)
        del self._running[job]
        worker.drop(job)
        self._dispatch(job)
        self._loop.call_soon(worker.pool.check_calls, worker)
        return True

    def _pass_on(self, job: Job, frame: Frame, *, may_run: bool) -> None:
        """Pass a frame to the listener of its job."""
        kind = frame.kind
        if kind in LAST:
            self._finish(job, may_run=may_run)
        elif kind == Kind.QUESTIONS:
            self._timeouts.stop_clock(job)
        delivered = deliver(job, frame)
        if not delivered and kind == Kind.QUESTIONS:
            self.answer(job, {"error": NOT_SAID})

    def _on_worker_frame(self, worker: Worker, frame: Frame) -> None:  # noqa: PLR0912 - a table of kinds
        """Handle a frame about the worker itself."""
        kind = frame.kind
        if kind == Kind.UNBEGUN:
            self._on_unbegun(worker, frame.number)
        elif kind == Kind.PONG:
            if self._timeouts.on_pong(worker, frame.number):
                self.admission.release()
        elif kind == Kind.LINGERING:
            self._timeouts.on_lingering(worker, frame.number)
        elif kind == Kind.READY:
            worker.pool.on_ready(worker, json.loads(frame.head or b"{}"))
        elif kind == Kind.LIVE:
            head: LiveHead = json.loads(frame.head)
            self.generations.note_imports(worker, head["digests"])
        elif kind == Kind.SECRETS:
            self._on_secrets(worker, json.loads(frame.head))
        elif kind == Kind.UPDATED:
            self._on_updated(worker, json.loads(frame.head))
        elif kind == Kind.FIND:
            self._find(worker, frame)
        elif kind == Kind.KEEP and self.results is not None and worker.pool.placement.limits is None:
            self.results.keep(worker.process, frame.number, frame.head, frame.body)
        elif kind == Kind.CATALOG:
            self.generations.receive(worker, frame)
        elif kind == Kind.FAILED:
            failed: FailedHead = json.loads(frame.head)
            worker.reason = failed["message"]
            if worker.describing is not None:
                worker.describing.fail(ChildProcessError(worker.reason))

    def _on_print(self, worker: Worker, number: int, line: bytes) -> None:
        if self.witness is not None:
            self.witness.printed(worker.jobs.get(number), number, line)

    def _on_unbegun(self, worker: Worker, number: int) -> None:
        """Handle UNBEGUN for a withdrawn call, which moves now unless it has moved before, or for an overdue one."""
        job = worker.jobs.get(number)
        if job is not None and job.due <= self._now():
            self._overdue(job)
        elif job is not None:
            self._move(job)
            self._loop.call_soon(worker.pool.check_calls, worker)
        worker.release(number)

    def _on_secrets(self, worker: Worker, head: SecretsHead) -> None:
        """Keep secrets out of the record; of a limited worker only those that it was sent, since others could hide its actions."""
        texts = [text for text in list[object](head.get("texts") or ()) if isinstance(text, str)]
        placement = worker.pool.placement
        if placement.limits is not None:
            passed = placement.limits.passed_texts(self.pools.share_of(placement).get("flags"))
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

    # Ends of workers

    def _on_start(self, worker: Worker) -> None:
        self._timeouts.watch()
        self.generations.give_hooks(worker)

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
        for each in worker.given_up:
            each.over()
        ended = f"its worker ended ({worker.violation or worker.process.verdict or describe_exit(worker.process.exit_code)})"
        for job in begun:
            self._fail(job, "the host is shutting down" if self.pools.own.closing else ended, started=True)
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
        self.admission.release()

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


def _may_run(job: Job, frame: Frame) -> bool:
    """Whether a call may still run in a thread after its result: its worker has noticed that its time is up."""
    if not job.contract.in_thread or b'"timeout"' not in frame.head:
        return False
    return json.loads(frame.head).get("prowess/kind") == "timeout"


def _ignore_updates(_uri: str, _skill: str) -> None:
    """The default: no client subscribes to resources."""
