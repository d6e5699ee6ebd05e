"""An event loop to which everything comes late, as on a busy machine: what can be read, timers, and results of threads.

What comes on one way keeps its order. The order between two ways is by chance.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any

__all__ = ["LateLoop"]

OFTEN = 0.3
LONGEST = (0.005, 0.02, 0.3)
"""A link of the host counts as dead after 0.2 seconds."""
LOOK = 0.001


def pause(chance: Random) -> float:
    """Seconds that something is late: mostly none."""
    return chance.choice(LONGEST) * chance.random() if chance.random() < OFTEN else 0.0


class LateSelector(selectors.DefaultSelector):
    """Finds out late that something can be read or written."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance
        self._held: dict[int, float] = {}
        """Until when each descriptor seems not to be ready."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout)
        now = time.monotonic()
        for key, _ in ready:
            if self._held.get(key.fd, 0.0) <= now:
                self._held[key.fd] = now + pause(self._chance)
        found = [each for each in ready if self._held[each[0].fd] <= now]
        if ready and not found:
            time.sleep(LOOK)
        return found


class LateLoop(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        super().__init__(LateSelector(chance))

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when + pause(self._chance), callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        before, after = pause(self._chance), pause(self._chance)

        def late() -> Any:
            time.sleep(before)
            try:
                return func(*args)
            finally:
                time.sleep(after)

        return super().run_in_executor(executor, late)
