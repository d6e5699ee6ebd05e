"""Calls in flight, and a place where they wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import anyio
from patience import PATIENCE
from tests.prowess.embedded import call

from prowess import Outcome, Runtime
from prowess.command import Command

AT_ONCE = {"retry": {"initial": 0.0}}


@contextlib.asynccontextmanager
async def calling(runtime: Runtime, *calls: tuple[Command, Any]) -> AsyncIterator[list[asyncio.Task[Outcome]]]:
    """Calls in flight, each begun before the next; whatever still runs at the end is cancelled."""
    tasks: list[asyncio.Task[Outcome]] = []
    try:
        for command, arguments in calls:
            tasks.append(asyncio.ensure_future(call(runtime, command, arguments)))
            await settle()
        with anyio.fail_after(PATIENCE):
            yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def settle() -> None:
    """Let everything that can go on go on."""
    for _ in range(10):
        await asyncio.sleep(0)


@dataclass
class Gate:
    """A place where runs of a command wait, and what happened to them."""

    runs: list[Any] = field(default_factory=list)
    cancelled: list[Any] = field(default_factory=list)
    open: anyio.Event = field(default_factory=anyio.Event)

    async def pass_(self, what: Any = None) -> Any:
        self.runs.append(what)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(what)
            raise
        return what
