"""The pools of one host: finds the pool of a command by its placement, makes a pool at first use, and lets idle ones rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from prowess.contracts.contract import Contract
from prowess.settings.settings import Settings
from prowess_host.workers.placement import OWN, Placement, Unplaced
from prowess_host.workers.pool import Pool
from prowess_host.workers.process import Spawn, WorkerProcess
from prowess_host.workers.worker import Worker

__all__ = ["Pools"]


class Pools:
    """The project's own pool, and those of other placements. `make` makes one, and `spawn` starts the workers of the own pool."""

    def __init__(self, settings: Settings, spawn: Spawn, make: Callable[[Placement, Settings, Spawn], Pool]) -> None:
        self._settings = settings
        self._spawn = spawn
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._others: dict[Placement, Pool] = {}
        self._gone: Mapping[str, str] = {}
        self._closing = False
        self.placement_of: Callable[[str], Placement | Unplaced] = _own_placement
        """Returns the placement of a skill."""
        self.elsewhere: Callable[[Contract], Placement | Unplaced | None] = _on_this_machine
        """Returns the placement of a command that runs on agents; `None` for one that runs here."""
        self.abroad: Spawn | None = None
        """Starts workers on agents."""
        self.share_of: Callable[[Placement], Mapping[str, Any]] = _all_skills
        """Returns the skills of a placement, for its workers."""

    @cached_property
    def own(self) -> Pool:
        """The project's own pool. Its workers stay when they are idle."""
        return self._made(OWN, self._spawn)

    def __iter__(self) -> Iterator[Pool]:
        """All pools at this moment: others may be made meanwhile."""
        return iter([self.own, *self._others.values()])

    @property
    def workers(self) -> list[Worker]:
        """The workers of all pools."""
        return [worker for pool in self for worker in pool.workers]

    def pool_for(self, contract: Contract) -> Pool | Unplaced:
        """The pool that runs a command."""
        placement = self.elsewhere(contract) or self.placement_of(contract.skill)
        if placement is OWN:
            return self.own
        return placement if isinstance(placement, Unplaced) else self.of(placement)

    def of(self, placement: Placement) -> Pool:
        """The pool of a placement, made at first use."""
        if placement == OWN:
            return self.own
        pool = self._others.get(placement)
        if pool is None:
            spawn = self.abroad if placement.labels and self.abroad is not None else WorkerProcess
            pool = self._others[placement] = self._made(placement, spawn)
        pool.used = self._loop.time()
        if pool.resting is None:
            self._let_rest(pool)
        return pool

    def _made(self, placement: Placement, spawn: Spawn) -> Pool:
        pool = self._make(placement, self._settings, spawn)
        pool.share = lambda: self.share_of(placement)
        pool.gone = self._gone
        pool.closing = self._closing  # a call may move to a new pool while the others end
        return pool

    def _let_rest(self, pool: Pool) -> None:
        """End the workers of an idle pool, else check again later."""
        now = self._loop.time()
        if not pool.is_idle:
            pool.used = now
        left = pool.used + self._settings.own.host.pool_idle - now
        pool.resting = None
        if left > 0:
            pool.resting = self._loop.call_later(left, self._let_rest, pool)
        else:
            pool.rest()

    def configure(self, settings: Settings) -> None:
        """Use other settings from now on."""
        self._settings = settings
        for pool in self:
            pool.configure(settings)

    @property
    def loaded(self) -> set[str]:
        """The skills that current workers have imported, and can run even if their files break."""
        return {skill for pool in self for skill in pool.loaded}

    def mark_gone(self, reasons: Mapping[str, str]) -> None:
        """Set the skills that do not load and have no last good version, each with the reason."""
        self._gone = reasons
        for pool in self:
            pool.gone = reasons

    def dismiss_all(self) -> None:
        """End all workers, because the host ends."""
        self._closing = True
        for pool in self:
            pool.dismiss_all()
            if pool.resting is not None:
                pool.resting.cancel()

    async def wait(self) -> None:
        """Wait until all workers have ended."""
        await asyncio.gather(*(pool.wait() for pool in self))


def _own_placement(_skill: str) -> Placement:
    """The default: all skills run in the project's placement."""
    return OWN


def _on_this_machine(_contract: Contract) -> None:
    """The default: all commands run on this machine."""


def _all_skills(_placement: Placement) -> Mapping[str, Any]:
    """The default: every worker runs all skills."""
    return {}
