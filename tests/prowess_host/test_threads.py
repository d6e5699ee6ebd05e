"""Threads beside those of asyncio."""

from __future__ import annotations

import asyncio
import threading

import pytest
from refused import no_more_threads

from prowess_host.threads import in_own_thread


async def test_a_thread_gives_what_its_function_gives():
    assert 3 == await in_own_thread(max, 1, 3)
    with pytest.raises(ZeroDivisionError):
        await in_own_thread(divmod, 1, 0)


async def test_nobody_has_to_wait_for_a_thread():
    """What it gives then is dropped."""
    begun, gate, over = threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        gate.wait()

    waiting = asyncio.create_task(in_own_thread(wait))
    await asyncio.to_thread(begun.wait)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    (thread,) = (each for each in threading.enumerate() if each.name == "prowess-wait")
    gate.set()
    await asyncio.to_thread(thread.join)
    asyncio.get_running_loop().call_soon(over.set)  # after what the thread has scheduled
    await asyncio.to_thread(over.wait)


async def test_without_a_thread_a_function_runs_at_once():
    with no_more_threads():
        assert threading.get_ident() == await in_own_thread(threading.get_ident)
