"""Describes many skills at once, in an active worker and in helpers, which end afterwards.

Imports take most of the time, and one interpreter imports one module at a time. So there is a worker for each processor.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias

from prowess.skills.description import Description, combined
from prowess.worker.loops import processors
from prowess.worker.messages import DescribeHead
from prowess_host.workers.describe import LostImport
from prowess_host.workers.lifecycle import Event
from prowess_host.workers.pool import Pool
from prowess_host.workers.worker import Worker

__all__ = ["Ask", "Describers"]

_log = logging.getLogger("prowess.host")
_FEW: Final = 20
"""Up to this many skills are described by one worker, because starting another one takes longer than most imports."""
_MOST_AT_ONCE: Final = 16
_PARTS: Final = 4
"""A worker gets a quarter of its share of the remaining skills at a time, so that all workers end together."""

Ask: TypeAlias = "Callable[[Collection[str]], Awaitable[Description]]"
"""Describes all skills except the given ones."""


class Describers:
    """The workers that describe the skills of one project, for one question and its repetitions."""

    def __init__(self, pool: Pool, described: Callable[[Worker, DescribeHead], Awaitable[Description]]) -> None:
        self._pool = pool
        self._described = described
        self._helpers: list[Worker] = []
        self._parts: list[Description] = []
        self._remaining: deque[str] = deque()
        """Skills that are not assigned to a worker."""
        self._lost: list[LostImport] = []
        """Imports that have ended a worker and are not reported yet."""

    def close(self) -> None:
        """End the helpers."""
        for helper in self._helpers:
            self._pool.send(helper, Event.RETIRE)

    async def ask(self, known: Collection[str]) -> Description:
        """Describe all skills except the known ones. A repetition after a lost worker keeps the earlier descriptions."""
        self._raise_lost()
        most_workers = processors() if self._main().process.has_own_process else 1
        done = {name for part in self._parts for name in part.skills}
        request: DescribeHead = {"known": sorted({*known, *done})}
        if most_workers > 1:
            request["most"] = _FEW
        first = await self._described(self._main(), request)
        self._remaining = deque(name for name in first.names if name not in {*known, *done, *first.skills})
        if self._remaining:
            await self._share_out(min(most_workers, math.ceil(len(self._remaining) / _FEW)))
            self._raise_lost()
        return combined(first, self._parts) or await self._described(self._main(), {"known": sorted(known)})

    def _main(self) -> Worker:
        """The worker that will get calls: what it imports now is warm later."""
        self._pool.fill()
        if not self._pool.active:
            raise ChildProcessError(self._pool.why_none())
        return self._pool.active[0]

    def _raise_lost(self) -> None:
        if self._lost:
            raise self._lost.pop()

    async def _share_out(self, workers: int) -> None:
        """Describe the remaining skills with this many workers."""
        helping = {asyncio.ensure_future(self._help(workers)) for _ in range(workers - 1)}
        try:
            while self._remaining or helping:
                if self._remaining:
                    await self._describe_some(self._main(), workers)
                else:  # a skill that a helper failed to describe is back in the queue
                    done, helping = await asyncio.wait(helping, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
        finally:
            for task in helping:
                task.cancel()

    async def _help(self, workers: int) -> None:
        """Let a helper describe the remaining skills; start another one if a skill ends it."""
        while self._remaining:
            helper = self._pool.spawn_helper()
            if helper is None:
                return
            self._helpers.append(helper)
            try:
                while self._remaining and helper.gets_calls:
                    await self._describe_some(helper, workers)
            except ChildProcessError as error:  # the others go on
                _log.info("a worker that helped to describe the skills is missing: %s", error)
                return

    async def _describe_some(self, worker: Worker, workers: int) -> None:
        """Let a worker describe some of the remaining skills. Failed ones go back to the queue."""
        count = min(math.ceil(len(self._remaining) / (workers * _PARTS)), _MOST_AT_ONCE)
        names = [self._remaining.popleft() for _ in range(count)]
        try:
            self._parts.append(await self._described(worker, {"known": [], "only": names}))
        except LostImport as error:
            if error.importing.skill not in names:  # the skill has hooks, or was just called
                self._remaining.extend(names)
                raise
            self._lost.append(error)
            self._remaining.extend(name for name in names if name != error.importing.skill)
        except BaseException:
            self._remaining.extend(names)
            raise
