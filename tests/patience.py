"""How long tests wait for something that is bound to happen.

A test waits for an event, and this is when it gives up: long enough for a machine ten times slower than yours with other
work on it. A run where everything happens never waits this long.
"""

from __future__ import annotations

import asyncio
import math

__all__ = ["PATIENCE", "time_is_up"]

PATIENCE = 240.0


def time_is_up() -> None:
    """End the time of all calls of a runtime that run on this loop, so that what a test needs has happened before."""
    from prowess.calls.deadline import Deadlines  # few tests need it

    for deadline in list(Deadlines.of(asyncio.get_running_loop())._running):  # noqa: SLF001 - only tests need them all
        deadline.move(-math.inf)
