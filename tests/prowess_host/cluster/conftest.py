"""One engine for all tests of a test process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from uuid import uuid4

import pytest

from prowess.settings.settings import Settings
from prowess_host.cluster.engine import Engine
from prowess_host.cluster.local import LocalEngine


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

        async def connected(**more: str) -> Engine:
            made = Engine(Settings.of({**cluster_settings, **more}))
            stack.push_async_callback(made.close)
            assert await made.ready(), made.state
            return made

        yield connected
