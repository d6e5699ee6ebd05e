"""Having many skills described at once: by an active worker and by helpers, which end when everything is described.

Imports take the time, and an interpreter imports one thing after the other. So there are as many workers as processors.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias

from prowess.skills.description import Description, combined
from prowess.worker.messages import DescribeHead
from prowess.worker.polling import processors
from prowess_host.workers.describe import LostImport
from prowess_host.workers.lifecycle import Event
from prowess_host.workers.pool import Pool, Worker

__all__ = ["Ask", "Describers"]

_log = logging.getLogger("prowess.host")
_FEW: Final = 20
"""So many skills are described by one worker: to start another one takes longer than most imports."""
_MOST_AT_ONCE: Final = 16
_PARTS: Final = 4
"""A worker is given a fourth of its share of what is left, so that all of them end at about the same time."""

Ask: TypeAlias = "Callable[[Collection[str]], Awaitable[Description]]"
"""Has all skills described but those that are given."""


class Describers:
    """The workers that describe the skills of one project, for one question and its repetitions."""

    def __init__(self, pool: Pool, described: Callable[[Worker, DescribeHead], Awaitable[Description]]) -> None:
        self._pool = pool
        self._described = described
        self._helpers: list[Worker] = []
        self._parts: list[Description] = []
        self._left: deque[str] = deque()
        """The skills that nobody describes yet."""
        self._lost: list[LostImport] = []
        """The skills that have ended their worker, and that nobody was told of yet."""

    def close(self) -> None:
        """Let the helpers go."""
        for helper in self._helpers:
            self._pool.send(helper, Event.RETIRE)

    async def ask(self, known: Collection[str]) -> Description:
        """All skills but the known ones. What was described before a skill ended its worker is not described again."""
        self._tell_of_lost()
        most_workers = processors() if self._main().process.is_apart else 1
        done = {name for part in self._parts for name in part.skills}
        told: DescribeHead = {"known": sorted({*known, *done})}
        if most_workers > 1:
            told["most"] = _FEW
        first = await self._described(self._main(), told)
        self._left = deque(name for name in first.names if name not in {*known, *done, *first.skills})
        if self._left:
            await self._share_out(min(most_workers, math.ceil(len(self._left) / _FEW)))
            self._tell_of_lost()
        return combined(first, self._parts) or await self._described(self._main(), {"known": sorted(known)})

    def _main(self) -> Worker:
        """The worker that will be called: what it imports for us, nobody waits for later."""
        self._pool.fill()
        if not self._pool.active:
            raise ChildProcessError(self._pool.why_none())
        return self._pool.active[0]

    def _tell_of_lost(self) -> None:
        if self._lost:
            raise self._lost.pop()

    async def _share_out(self, workers: int) -> None:
        """Describe all that is left, with so many workers."""
        helping = {asyncio.ensure_future(self._help(workers)) for _ in range(workers - 1)}
        try:
            while self._left or helping:
                if self._left:
                    await self._describe_some(self._main(), workers)
                else:  # what a helper cannot describe is left again
                    done, helping = await asyncio.wait(helping, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
        finally:
            for task in helping:
                task.cancel()

    async def _help(self, workers: int) -> None:
        """Have a helper describe as long as something is left; another one, if a skill ends it."""
        while self._left:
            helper = self._pool.spawn_helper()
            if helper is None:
                return
            self._helpers.append(helper)
            try:
                while self._left and helper.gets_calls:
                    await self._describe_some(helper, workers)
            except ChildProcessError as error:  # the others go on
                _log.info("a worker that helped to describe the skills is missing: %s", error)
                return

    async def _describe_some(self, worker: Worker, workers: int) -> None:
        """Have a worker describe some of what is left. What it could not describe is left again."""
        count = min(math.ceil(len(self._left) / (workers * _PARTS)), _MOST_AT_ONCE)
        names = [self._left.popleft() for _ in range(count)]
        try:
            self._parts.append(await self._described(worker, {"known": [], "only": names}))
        except LostImport as error:
            if error.importing.skill not in names:  # it has hooks, or was called just then
                self._left.extend(names)
                raise
            self._lost.append(error)
            self._left.extend(name for name in names if name != error.importing.skill)
        except BaseException:
            self._left.extend(names)
            raise
