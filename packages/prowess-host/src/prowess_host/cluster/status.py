"""The state of a cluster, as `prowess list`, `status` and `doctor` show it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import NoReturn

from prowess.settings.settings import Settings
from prowess_host.cluster.engine import EngineConnection
from prowess_host.cluster.errors import EngineError
from prowess_host.cluster.remote import Agents

__all__ = ["cluster_status"]

_QUIET = 0.5
"""Seconds without another agent after which all agents are assumed to have answered."""


async def cluster_status(settings: Settings) -> tuple[bool, list[str]]:
    """Whether the engine is up, and a line about it and about each agent. Takes a few seconds at most."""
    engine = EngineConnection(settings)
    agents = Agents(engine, lambda: settings, _no_code)
    try:
        is_up = await engine.ready()
        known = -1
        while is_up and len(agents.seen) > known:
            known = len(agents.seen)
            await asyncio.sleep(_QUIET)
            with contextlib.suppress(EngineError):
                await engine.flush()  # a slow engine has passed on the answers so far
        lines = [f"engine {engine.address}, cluster {engine.name}: {engine.state}", *agents.in_words()]
        return is_up, lines if agents.seen or not is_up else [
            *lines,
            "no agents: start one with prowess agent --join URL",
        ]
    finally:
        agents.close()
        await engine.close()


def _no_code() -> NoReturn:
    raise NotImplementedError("looking at a cluster starts no worker")
