"""Who is in a cluster, for people: what `prowess list`, `status` and `doctor` show of it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import NoReturn

from prowess.settings.settings import Settings
from prowess_host.cluster.engine import Engine
from prowess_host.cluster.remote import Agents

__all__ = ["look"]

_QUIET = 0.5
"""Seconds without news after which every agent has said that it is there."""


async def look(settings: Settings) -> tuple[bool, list[str]]:
    """Whether the engine is up, and a line about it and about each agent. Takes at most some seconds."""
    engine = Engine(settings)
    agents = Agents(engine, lambda: settings, _no_code)
    try:
        is_up = await engine.ready()
        with contextlib.suppress(TimeoutError):
            while is_up:
                await asyncio.wait_for(agents.changed.wait(), _QUIET)
        lines = [f"engine {engine.place}, cluster {engine.name}: {engine.state}", *agents.in_words()]
        return is_up, lines if agents.seen or not is_up else [
            *lines,
            "no agents: start one with prowess agent --join URL",
        ]
    finally:
        agents.close()
        await engine.close()


def _no_code() -> NoReturn:
    raise NotImplementedError("nothing is run")
