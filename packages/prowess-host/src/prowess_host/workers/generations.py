"""The versions of the skills in the workers: descriptions, the next generation after a save, and the sources that workers import.

A worker that will import a skill gets its kept source, because the files may have changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from typing import Final

from prowess.frozen import frozen
from prowess.skills.description import Description
from prowess.skills.texts import unpack
from prowess.worker.link import Frame
from prowess.worker.messages import DescribeHead, Kind
from prowess_host.workers.backoff import BackOff
from prowess_host.workers.describe import Describing, LostWorker
from prowess_host.workers.describers import Ask, Describers
from prowess_host.workers.lifecycle import Event
from prowess_host.workers.placement import Placement
from prowess_host.workers.pool import Pool
from prowess_host.workers.pools import Pools
from prowess_host.workers.timeouts import Timeouts
from prowess_host.workers.worker import Worker

__all__ = ["Generations", "KeptSource", "Successor"]

_log = logging.getLogger("prowess.host")
_SHORTEST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 1.0
"""Seconds after which `within` looks again, at the earliest and at the latest."""
_SLOWEST: Final = 10
"""How many times as long as its seconds `within` waits, even if no worker can run."""


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


class Generations:
    """Asks workers what the skills are, and decides which version of them each worker runs.

    `on_adopted` is called when a new generation gets the calls.
    """

    def __init__(self, pools: Pools, timeouts: Timeouts, backoff: BackOff, *, on_adopted: Callable[[], None]) -> None:
        self._pools = pools
        self._timeouts = timeouts
        self._backoff = backoff
        self._on_adopted = on_adopted
        self.source_of: Callable[[str], KeptSource | None] = _no_source
        """Returns the kept source of a skill."""
        self.hooks: Callable[[], Iterable[str]] = tuple
        """The skills that every worker of the project's own pool imports first."""
        self.on_live: Callable[[Mapping[str, str]], None] = _ignore_digests
        """Hears the digests of skills that an active worker has just imported."""

    # Descriptions

    @contextlib.asynccontextmanager
    async def describers(self) -> AsyncGenerator[Ask]:
        """Yields a function that describes all skills except the known ones. Use one at a time.

        Many skills are divided among several workers. The function raises `ChildProcessError`; for a `LostImport`, ask
        again without that skill.
        """
        describers = Describers(self._pools.own, self._described)
        try:
            yield describers.ask
        finally:
            describers.close()

    async def within(self, tasks: Collection[asyncio.Task[None]], seconds: float) -> bool:
        """Wait for tasks while workers start or describe skills, up to so many seconds in which these could run.

        Ends after ten times these seconds, counted while this process could run. Returns whether all tasks are done.
        """
        now = asyncio.get_running_loop().time
        before, left, waited = self._timeouts.loading, seconds, 0.0
        pending = {*tasks}
        while pending and left > 0:
            since, most = now(), min(max(left, _SHORTEST_WAIT), _LONGEST_WAIT)
            _, pending = await asyncio.wait(pending, timeout=most)
            waited += min(now() - since, 2 * most)
            left = min(seconds - (self._timeouts.loading - before), seconds - waited / _SLOWEST)
        return not pending

    async def importable(self, skills: Collection[str]) -> set[str]:
        """The skills whose import does not end a worker. Each is tried in a helper."""
        found, pool = set[str](), self._pools.own
        for skill in sorted(skills):
            helper = pool.spawn_helper()
            if helper is None:
                break
            try:
                await self._described(helper, {"known": [], "only": [skill]})
                found.add(skill)
            except ChildProcessError as error:
                _log.info("%s was tried again: %s", skill, error)
            finally:
                pool.send(helper, Event.RETIRE)
        return found

    def end_imports(self, skills: Collection[str] | None) -> None:
        """Fail the descriptions that wait for the import of some skills, or of any, and replace the workers that import them.

        Fails with `LostWorker`.
        """
        for worker in self._pools.workers:
            describing = worker.describing
            outdated = [each.skill for each in worker.importing if skills is None or each.skill in skills]
            # In a debugger, skills run in this process, and somebody may look at the import.
            if outdated and describing is not None and describing.open and worker.process.has_own_process:
                describing.fail(LostWorker(f"{', '.join(outdated)} changed while it was imported"))
                worker.pool.send(worker, Event.RETIRE)

    async def _described(self, worker: Worker, request: DescribeHead) -> Description:
        describing = worker.describing = Describing(worker.process, request)
        self._timeouts.watch()
        return await describing.answer()

    def receive(self, worker: Worker, frame: Frame) -> None:
        """Handle the description that a worker has sent."""
        try:
            description = Description.from_json(json.loads(frame.head), unpack(frame.body))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # a worker in another language
            reason = f"a worker described the skills in a way that cannot be read: {type(error).__name__}: {error}"
            if worker.describing is not None:
                worker.describing.fail(ChildProcessError(reason))
            return
        self._backoff.clear(description.skills)
        worker.pool.on_description(worker, description)

    # The next generation

    async def next_generation(self, known: Collection[str] = ()) -> Successor:
        """A worker that has loaded the current files, except the known skills. It gets no calls before `adopt`.

        Fails as `describers` does.
        """
        return await self._successor(self._pools.own, {"known": sorted(known)})

    async def next_of(self, placement: Placement, skills: Collection[str] | None = None) -> Successor:
        """The same for some or all skills of another placement."""
        request: DescribeHead = {"known": []}
        if skills is not None:
            request["only"] = sorted(skills)
        pool = self._pools.of(placement)
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

    def adopt(self, successor: Successor, kept: Collection[str]) -> None:
        """Send new calls to the new generation, which imports the skills in `kept` from their last good sources."""
        successor.worker.sourced.difference_update(kept)
        successor.worker.fresh = False
        pool = successor.worker.pool
        self._backoff.clear_all()
        pool.adopt(successor.worker)
        for other in self._pools:
            if other.placement.labels and not other.describes:
                other.renew()
        if pool is self._pools.own:
            for skill in sorted({*self.hooks()}.intersection(kept)):
                self.give_source(successor.worker, skill)
        self._on_adopted()

    def discard(self, successor: Successor) -> None:
        """End a successor that is not needed."""
        successor.worker.pool.send(successor.worker, Event.DISCARD)

    # What workers import

    def give_source(self, worker: Worker, skill: str) -> None:
        """Send the kept source of a skill to a worker that will import it, because the files may have changed."""
        if skill in worker.sourced:
            return
        source = self.source_of(skill)
        if source is not None:
            worker.sourced.add(skill)
            worker.process.send(Kind.SOURCE, 0, source.head, source.body)

    def give_hooks(self, worker: Worker) -> None:
        """Send the kept sources of the skills that a new worker imports first."""
        if not worker.fresh and worker.pool.placement.is_common:
            for skill in self.hooks():
                self.give_source(worker, skill)

    def note_imports(self, worker: Worker, digests: Mapping[str, str]) -> None:
        """Note the skills that a worker has imported, and report those that calls get."""
        worker.loaded.update(digests)
        worker.sourced.update(digests)
        self._backoff.clear(digests)
        if worker in worker.pool.active:
            placement_of, here = self._pools.placement_of, worker.pool.placement
            self.on_live({name: digest for name, digest in digests.items() if placement_of(name) == here})


def _no_source(_skill: str) -> KeptSource | None:
    """The default: skills are imported from their files."""


def _ignore_digests(_digests: Mapping[str, str]) -> None:
    """The default: digests are not compared."""
