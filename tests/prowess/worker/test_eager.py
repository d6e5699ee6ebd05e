"""Tasks that run at once."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from prowess.worker.eager import start

said: contextvars.ContextVar[str] = contextvars.ContextVar("said", default="")


async def on_loop(function: Any) -> None:
    """Call a function in a callback of the loop, as a link does."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def call() -> None:
        try:
            function(loop)
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            done.set_exception(error)
        else:
            done.set_result(None)

    loop.call_soon(call)
    await done


async def test_a_task_runs_until_it_waits():
    """It is a task like others, in a context of its own, and goes on in later turns."""
    seen: list[Any] = []
    gate, over = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        said.set("inside")
        seen.append(asyncio.current_task())
        await gate.wait()
        seen.append((asyncio.current_task() is seen[0], said.get()))
        over.set()

    def begin(loop: asyncio.AbstractEventLoop) -> None:
        start(loop, work())
        assert [True] == [isinstance(task, asyncio.Task) for task in seen]
        assert not said.get()

    await on_loop(begin)
    gate.set()
    await over.wait()
    assert [(True, "inside")] == seen[1:]


async def test_what_never_waits_is_over_at_once():
    """And the loop schedules as before."""
    seen: list[int] = []

    async def work(number: int) -> None:
        seen.append(number)

    def begin(loop: asyncio.AbstractEventLoop) -> None:
        for number in range(3):
            start(loop, work(number))
        assert [0, 1, 2] == seen
        loop.call_soon(seen.append, 3)

    await on_loop(begin)
    await asyncio.sleep(0)
    assert [0, 1, 2, 3] == seen


async def test_what_is_no_coroutine_is_refused():
    """The loop can be used on."""
    with pytest.raises(TypeError):
        await on_loop(lambda loop: start(loop, "work"))
    await asyncio.sleep(0)
