"""Tasks that use the engine, and their end."""

from __future__ import annotations

import asyncio
import contextlib

from anyio import fail_after
from patience import PATIENCE

from prowess_host.cluster.background import Background


async def test_no_task_is_left_although_one_swallows_a_cancellation() -> None:
    """As the client of the engine may, which waits with `wait_for`."""

    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    background = Background()
    task = background.run(stubborn())
    await asyncio.sleep(0)  # it has begun
    with fail_after(PATIENCE):
        await background.close()
    assert task.done()
