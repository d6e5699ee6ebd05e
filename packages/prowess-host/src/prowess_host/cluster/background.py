"""Background tasks that use the engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from prowess_host.cluster.errors import EngineError

__all__ = ["Background"]

_log = logging.getLogger("prowess.cluster")
_AGAIN: Final = 0.1
"""Seconds after which a task that still runs is cancelled again."""


class Background:
    """Tasks that run until they end or are cancelled. Their failures are logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.ensure_future(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def over(self) -> None:
        """Wait for all tasks."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancel all tasks, and wait for their ends: nats-py may swallow a cancellation."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=_AGAIN)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except EngineError as error:
        _log.info("%s", error)
    except Exception:  # noqa: BLE001 - a fault in one task must not end anything else
        _log.exception("a task of the cluster failed")
