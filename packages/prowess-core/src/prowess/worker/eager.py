"""Starts tasks that run at once until they wait, instead of in the next turn of the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["start"]

_Step = tuple[Callable[..., object], contextvars.Context]


def start(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> None:  # pragma: before 3.12
    """Start a task in a callback of its loop. Most calls never wait: they are over when this returns."""
    if sys.version_info >= (3, 12):  # pragma: no cover - measured on 3.11
        asyncio.Task(coroutine, loop=loop, eager_start=True)
        return
    # A new task schedules its first step only with `call_soon` of its loop.
    steps: list[_Step] = []
    loop.call_soon = lambda step, *_, context: steps.append((step, context))  # type: ignore[method-assign]
    try:
        asyncio.Task(coroutine, loop=loop)
    finally:
        del loop.call_soon
    for step, context in steps:
        context.run(step)
