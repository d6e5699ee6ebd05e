"""Calls of commands that a test defines, in a runtime of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
from patience import PATIENCE

from prowess import Outcome, Runtime
from prowess.calls.channel import Channel
from prowess.command import Command
from prowess.contracts.declaration import declaration_of
from prowess.injection.injectables import Injectables


async def call(runtime: Runtime, command: Command, arguments: Any = None, channel: Channel | None = None) -> Outcome:
    """Call a command like a client does."""
    declared = declaration_of(command)
    assert declared is not None
    with anyio.fail_after(PATIENCE):
        return await runtime.entry_of(declared).call(arguments or {}, channel)


def injectables(runtime: Runtime) -> Injectables:
    """The injected objects of a runtime."""
    return runtime._services.injectables  # noqa: SLF001 - they have no public door


async def until(condition: Callable[[], object]) -> None:
    """Wait for what happens in a thread."""
    with anyio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - a thread knows no event of the loop
            await asyncio.sleep(0)
