"""Decides whether a call may begin now. A call without a place, or above `concurrency`, waits here; above the limit, one is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prowess.settings.keys import HostSettings
from prowess_host.workers.jobs import Job, Slots, leave_place, take_place
from prowess_host.workers.placement import Unplaced
from prowess_host.workers.pool import Pool
from prowess_host.workers.pools import Pools
from prowess_host.workers.queue import FairQueue
from prowess_host.workers.worker import Worker

__all__ = ["Admission"]


class Admission:
    """The calls of one host that wait for places.

    `dispatch` sends a call to a worker once it has a place; `refuse` answers one that may not wait, with the number of
    waiting calls and the seconds until there may be places.
    """

    def __init__(
        self,
        pools: Pools,
        host: HostSettings,
        *,
        dispatch: Callable[[Job], None],
        refuse: Callable[[Job, int, int], None],
    ) -> None:
        self._pools = pools
        self._dispatch = dispatch
        self._refuse = refuse
        self._loop = asyncio.get_running_loop()
        self._some_wait = False
        """Whether calls wait for places."""
        self._releasing = False
        self.slots: Slots | None = None
        """The concurrency limits over all hosts."""
        self.configure(host)

    def configure(self, host: HostSettings) -> None:
        """Use other settings from now on."""
        self._max_waiting = host.max_waiting

    def waiting(self) -> list[Job]:
        """The jobs that wait for a place."""
        return [job for pool in self._pools for queue in pool.queues.values() for job in queue]

    def admits(self, job: Job, pool: Pool, worker: Worker) -> bool:
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
        if len(queue) > self._max_waiting:
            self._shed(queue)
        return False

    def _shed(self, queue: FairQueue[Job]) -> None:
        """Refuse the newest job of the client with the most waiting jobs."""
        waiting, job = len(queue) - 1, queue.shed()
        job.queue = None
        self._refuse(job, waiting, queue.retry_after(self._loop.time()))

    def _is_held_back(self, job: Job, target: Worker) -> bool:
        """Whether `concurrency` allows no further call. Workers enforce it too, but for the host a call that waits there has begun."""
        policies, command = job.contract.policies, job.contract.id
        if policies.concurrency is None:
            return False
        elsewhere = sum(worker.running(command) for worker in self._pools.workers if worker is not target)
        if elsewhere:
            return elsewhere + target.running(command) >= policies.concurrency
        if policies.cache_ttl:  # a cached result needs no slot
            return False
        return sum(other.contract.id == command for other in target.jobs.values()) >= policies.concurrency

    def _is_ready(self, job: Job) -> bool:
        """Whether a waiting job may start once there is a place."""
        if job.contract.policies.concurrency is None:
            return True
        pool = self._pools.pool_for(job.contract)
        worker = None if isinstance(pool, Unplaced) else pool.worker_for(job.contract)
        return worker is None or (not self._is_held_back(job, worker) and self._has_room(job))

    def _has_room(self, job: Job) -> bool:
        """Whether `concurrency` over all hosts allows a job to begin."""
        return self.slots is None or job.contract.policies.concurrency is None or self.slots.admits(job.contract, job)

    def free_slot(self, job: Job) -> None:
        """Free the slot of a job, which does not run any more."""
        if self.slots is not None and job.contract.policies.concurrency is not None:
            self.slots.over(job.contract, job)

    def leave(self, job: Job, worker: Worker | None, *, may_run: bool) -> None:
        """Free what a finished job had: its place in a worker or in the queue, and its slot, unless it may still run."""
        if self.slots is not None and not may_run:
            self.free_slot(job)
        if self._some_wait:
            self.release_soon()
        if job.place is not None:
            leave_place(job)
            if worker is not None:
                worker.pool.calm_down()
        elif job.queue is not None:
            job.queue.remove(job.path, job)
            job.queue = None

    def release_soon(self) -> None:
        """Dispatch waiting jobs after this turn of the loop, in which several places may become free."""
        if self._some_wait and not self._releasing:
            self._releasing = True
            self._loop.call_soon(self.release)

    def release(self) -> None:
        """Dispatch waiting jobs, as far as there are places."""
        self._releasing = False
        for pool in self._pools:
            for in_thread, queue in list(pool.queues.items()):
                places = pool.places(in_thread=in_thread)
                while (found := queue.take(places, self._is_ready)) is not None:
                    job, place = found
                    job.queue, job.place = None, (queue, place)
                    self._dispatch(job)
        self._some_wait = any(queue for pool in self._pools for queue in pool.queues.values())
