"""A blocked loop is noticed, and said with the place."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from anyio import fail_after
from patience import PATIENCE
from refused import no_more_threads

from prowess.worker.progress import Thread
from prowess.worker.watchdog import Watchdog, _location


async def test_a_blocked_loop_is_said_with_the_place(caplog: pytest.LogCaptureFixture):
    """Once for each time; and it is quiet while there is nothing to do."""
    watchdog, stuck = Watchdog(0.05), threading.Event()
    watchdog.stuck = stuck.set
    watchdog.wake()  # nobody watches yet
    watchdog.start()
    watchdog.wake()
    await asyncio.sleep(0)
    patience = time.monotonic() + PATIENCE
    while not caplog.records and time.monotonic() < patience:
        time.sleep(0.01)  # noqa: ASYNC251 - this is the one that blocks
    assert ["test_watchdog.py" in record.getMessage() for record in caplog.records] == [True]
    assert stuck.is_set()
    with fail_after(PATIENCE):
        while watchdog._awake.is_set():  # noqa: ASYNC110 - a thread's event
            await asyncio.sleep(0.001)
    watchdog.wake()
    watchdog.wake()


async def test_a_watchdog_beats_until_the_board_is_closed():
    """And says nothing more after that."""
    beats: list[int] = []

    def beat() -> None:
        beats.append(1)
        if len(beats) == 3:
            raise ValueError("mmap closed or invalid")

    others = threading.enumerate()
    watchdog = Watchdog(0.01, beat)
    watchdog.busy = lambda: True
    watchdog.start()
    watchdog.wake()
    with fail_after(PATIENCE):
        while any(it.name == "prowess-watch" and it.is_alive() for it in threading.enumerate() if it not in others):  # noqa: ASYNC110 - a thread
            await asyncio.sleep(0.001)
    assert 3 == len(beats)
    watchdog.busy = bool


async def test_a_loop_that_waits_for_a_processor_is_not_blocked(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Whatever time passes: the system says that the thread of the loop was in the queue."""
    asked: list[int] = []

    def starved(_pid: int) -> dict[int, Thread]:
        asked.append(1)
        return {0: Thread(0.0, len(asked) * 1000.0, runnable=True)}

    monkeypatch.setattr("prowess.worker.watchdog.threads_of", starved)
    watchdog = Watchdog(0.01)
    watchdog.start()
    watchdog.wake()
    patience = time.monotonic() + PATIENCE
    while len(asked) < 20 and time.monotonic() < patience:
        time.sleep(0.001)  # noqa: ASYNC251 - the loop gets nowhere
    assert 20 <= len(asked)
    assert [] == caplog.records


async def test_a_watchdog_without_a_loop_in_that_thread_still_says_something(caplog: pytest.LogCaptureFixture):
    """The thread may have gone."""
    assert "an unknown place" == _location(-1)


async def test_a_watchdog_without_a_thread_says_what_is_missing():
    with no_more_threads(), pytest.raises(ChildProcessError, match="ulimit -u"):
        Watchdog().start()
