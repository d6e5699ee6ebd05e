"""One engine for all tests of a test process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from patience import PATIENCE

from prowess.settings.settings import Settings
from prowess_host.cluster.agent import Agent
from prowess_host.cluster.engine import EngineConnection
from prowess_host.cluster.local import LocalEngine

sys.path.append(str(Path(__file__).parent))  # importlib mode puts nothing there


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    """A server with a port and a store of its own. Tests stay apart by the names of their clusters.

    A test that stops or kills it starts it again.
    """
    with LocalEngine(tmp_path_factory.mktemp("engine")) as running:
        yield running


@pytest.fixture
def cluster() -> str:
    """A name for the cluster of one test."""
    return f"test-{uuid4().hex[:8]}"


@pytest.fixture
def cluster_settings(engine: LocalEngine, cluster: str) -> dict[str, str]:
    """What hosts and agents of one test are told."""
    return {"cluster.url": engine.url, "cluster.name": cluster}


Connect = Callable[..., object]


@pytest.fixture
async def connect(cluster_settings: dict[str, str]) -> AsyncIterator[Connect]:
    """Connections to the engine, closed at the end of the test."""
    async with AsyncExitStack() as stack:

        async def connected(**more: str) -> EngineConnection:
            made = EngineConnection(Settings.of({**cluster_settings, **more}))
            stack.push_async_callback(made.close)
            assert await made.ready(PATIENCE), made.state
            return made

        yield connected


Start = Callable[..., Awaitable[Agent]]


@pytest.fixture
async def start(cluster_settings: dict[str, str], tmp_path: Path) -> AsyncIterator[Start]:
    """Starts agents in this process; their workers are processes."""
    running: list[tuple[Agent, EngineConnection, asyncio.Task[None]]] = []

    async def started(name: str = "one", *, locked: Any = None, url: str = "", **more: Any) -> Agent:
        own = {"agent.name": name, "agent.slots": 4, "agent.drain": 0, **({"cluster.url": url} if url else {})}
        settings = Settings.of({**cluster_settings, **own, **more})
        engine = EngineConnection(settings)
        assert await engine.ready(PATIENCE)
        agent = Agent(engine, settings, tmp_path / f"cache-{name}", locked=locked)
        running.append((agent, engine, asyncio.create_task(agent.run())))
        return agent

    yield started
    for agent, engine, task in running:
        agent.stop()
        await task
        await engine.close()


@pytest.fixture
def env(cluster_settings: dict[str, str]) -> dict[str, str]:
    """A host whose commands all run on agents."""
    return {
        "PROWESS_CLUSTER__URL": cluster_settings["cluster.url"],
        "PROWESS_CLUSTER__NAME": cluster_settings["cluster.name"],
        "PROWESS_RUN_ON": '{"*" = "any"}',
        "PROWESS_CLUSTER__PATIENCE": str(PATIENCE),  # an agent in a process of its own takes a while to join
    }
