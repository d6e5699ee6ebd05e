"""Calls of commands that a test defines, in a runtime of its own."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable
from pathlib import Path
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


def write(folder: Path, **skills: str) -> Path:
    """Write skills by name, with `__` for a slash."""
    (folder / "skills").mkdir(exist_ok=True)
    for name, text in skills.items():
        path = folder / "skills" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder
