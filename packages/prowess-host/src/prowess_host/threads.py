"""Threads beside those of asyncio, which are few and may all wait, for example for a disk that hangs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from prowess.daemons import start_thread

__all__ = ["in_own_thread"]

T = TypeVar("T")


async def in_own_thread(function: Callable[..., T], *args: object) -> T:
    """Like `asyncio.to_thread`, for what must not wait for the work of others."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(settled: Callable[..., None], value: object) -> None:
        if not outcome.done():  # nobody waits any more
            settled(value)

    def run() -> None:
        try:
            ended = outcome.set_result, function(*args)
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            ended = outcome.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, *ended)

    if start_thread(f"prowess-{function.__name__}", run) is None:
        run()
    return await outcome
