"""The fixtures that need an event loop. They request `anyio_backend`, so that anyio runs them, also for sync tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from prowess import Runtime
    from prowess_testkit.client import Client
    from prowess_testkit.project import Project

__all__ = ["client", "runtime"]


@pytest.fixture
async def runtime(project: Project, anyio_backend: object) -> AsyncGenerator[Runtime]:  # noqa: ARG001 - makes anyio run this
    """The runtime of the project. Settings are read at once, skills with the first call."""
    opened = project.runtime
    try:
        with opened.as_current():
            yield opened
    finally:
        await project.aclose()


@pytest.fixture
async def client(project: Project, wire: str, anyio_backend: object) -> AsyncGenerator[Client]:  # noqa: ARG001 - see above
    """A client in memory. The project is read at the first call, so that a test may write into it before."""
    from prowess_testkit.memory import connect

    async with connect(project, version=wire) as opened:
        yield opened
