"""Things that are made once: for all loops, or for each."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from patience import PATIENCE

from prowess.calls.threads import Raised, Threads
from prowess.injection.scopes import Resources
from prowess.injection.singletons import Make, Singletons


def singletons() -> Singletons:
    threads = Threads(8)
    return Singletons(lambda: Resources("the test", threads))


def making(factory: Callable[[], Any]) -> Make:
    return lambda resources: resources.open(factory)


@contextlib.contextmanager
def shared(seen: list[Any], name: str = ""):
    seen.append(f"open {name}".strip())
    try:
        yield object()
    finally:
        seen.append(f"close {name}".strip())


@contextlib.asynccontextmanager
async def bound(seen: list[Any], name: str = ""):
    task = asyncio.current_task()
    seen.append(f"open {name}".strip())
    try:
        yield object()
    finally:
        assert task is asyncio.current_task()
        seen.append(f"close {name}".strip())


@pytest.mark.parametrize("factory, is_bound", [(shared, False), (bound, True)])
async def test_a_thing_is_made_once_however_many_want_it(factory: Callable[..., Any], is_bound: bool):
    """Also at the same time; and closed at the end."""
    seen: list[Any] = []
    things = singletons()
    make = making(lambda: factory(seen))
    got = await asyncio.gather(*(things.get("a", make) for _ in range(20)))
    assert 1 == len({id(value) for value, _ in got})
    assert {is_bound} == {bound for _, bound in got}
    assert await things.get("a", make) == got[0]
    assert ["open"] == seen
    await things.aclose()
    await things.aclose()
    assert ["open", "close"] == seen


@pytest.mark.parametrize("factory", [shared, bound])
async def test_a_caller_that_is_cancelled_does_not_stop_the_making(factory: Callable[..., Any]):
    """Somebody else may be waiting, and the next one will want it."""
    seen: list[Any] = []
    go_on = anyio.Event()
    things = singletons()

    async def make(resources: Resources) -> tuple[Any, bool]:
        await go_on.wait()
        return await resources.open(lambda: factory(seen))

    tasks = [asyncio.ensure_future(things.get("a", make)) for _ in range(2)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert (await tasks[1])[0] is (await things.get("a", make))[0]
    assert tasks[0].cancelled()
    await things.aclose()
    assert ["open", "close"] == seen


async def test_a_failure_is_told_to_all_who_wait_and_not_kept():
    """What had been opened by then is closed; the next one tries anew."""
    seen: list[Any] = []
    things = singletons()

    async def make(resources: Resources) -> tuple[Any, bool]:
        await resources.open(lambda: shared(seen))
        if len(seen) == 1:
            raise Raised(ValueError("first"))
        return 7, False

    tasks = [asyncio.ensure_future(things.get("a", make)) for _ in range(3)]
    for task in tasks:
        with pytest.raises(Raised):
            await task
    assert ["open", "close"] == seen
    assert (7, False) == await things.get("a", make)
    await things.aclose()


async def test_things_close_in_reverse_first_those_of_the_loop():
    """What belongs to a loop may need what is shared, and never the other way round."""
    seen: list[Any] = []
    things = singletons()

    async def make_b(resources: Resources) -> tuple[Any, bool]:
        await things.get("a", making(lambda: shared(seen, "a")))
        return await resources.open(lambda: shared(seen, "b"))

    async def make_d(resources: Resources) -> tuple[Any, bool]:
        await things.get("c", making(lambda: bound(seen, "c")))
        return await resources.open(lambda: bound(seen, "d"))

    await things.get("d", make_d)
    await things.get("b", make_b)
    await things.aclose()
    opened, closed = ["open c", "open d", "open a", "open b"], ["close d", "close c", "close b", "close a"]
    assert opened + closed == seen


def test_what_belongs_to_a_loop_ends_with_it():
    """In order, without anybody closing the runtime; the next loop gets its own, while what is shared stays."""
    seen: list[Any] = []
    things = singletons()
    values = []

    async def make_b(resources: Resources) -> tuple[Any, bool]:
        await things.get("a", making(lambda: bound(seen, "a")))
        return await resources.open(lambda: bound(seen, "b"))

    async def use() -> None:
        values.append(
            [(await things.get("b", make_b))[0], (await things.get("c", making(lambda: shared(seen, "c"))))[0]]
        )

    asyncio.run(use())
    assert ["open a", "open b", "open c", "close b", "close a"] == seen
    asyncio.run(use())
    assert values[0][0] is not values[1][0]
    assert values[0][1] is values[1][1]
    asyncio.run(things.aclose())
    assert "close c" == seen[-1]


async def test_several_loops_at_once_share_what_can_be_shared():
    """Each has what belongs to it, and closing reaches all of them."""
    seen: list[Any] = []
    things = singletons()
    begun, go_on = threading.Event(), threading.Event()

    @contextlib.contextmanager
    def slow():
        begun.set()
        go_on.wait(PATIENCE)
        with shared(seen, "shared") as value:
            yield value

    async def get(key: str) -> Any:
        make = making(slow) if key == "shared" else making(lambda: bound(seen, "bound"))
        return (await things.get(key, make))[0]

    with start_blocking_portal() as portal:
        here = asyncio.ensure_future(get("shared"))
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        there = portal.start_task_soon(get, "shared")
        go_on.set()
        assert await here is await asyncio.wrap_future(there)
        assert await get("bound") is not await asyncio.to_thread(portal.call, get, "bound")
        await things.aclose()
    assert ["open shared", "open bound", "open bound", "close bound", "close bound", "close shared"] == seen


async def test_a_thing_made_for_another_loop_meanwhile_does_not_serve_here():
    """Whoever waited for it makes one of its own."""
    seen: list[Any] = []
    things = singletons()
    begun, go_on = threading.Event(), threading.Event()

    async def make(resources: Resources) -> tuple[Any, bool]:
        begun.set()
        await asyncio.to_thread(go_on.wait, PATIENCE)
        return await resources.open(lambda: bound(seen))

    async def get() -> Any:
        return (await things.get("a", make))[0]

    with start_blocking_portal() as portal:
        there = portal.start_task_soon(get)
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        here = asyncio.ensure_future(get())
        await asyncio.sleep(0)
        go_on.set()
        assert await asyncio.wrap_future(there) is not await here
        await things.aclose()
    assert ["open", "open", "close", "close"] == seen


async def test_what_is_being_made_when_everything_ends_is_not_made():
    """Whoever waited for it has to be told so by making it again, or by being cancelled, too."""
    things = singletons()
    made: list[int] = []

    async def make(resources: Resources) -> tuple[Any, bool]:
        made.append(1)
        if len(made) == 1:
            await anyio.sleep_forever()
        return 7, False

    waiting = asyncio.ensure_future(things.get("a", make))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await things.aclose()
    assert (7, False) == await waiting


async def test_a_loop_that_is_gone_took_its_things_along():
    """There is nothing left to close, and nobody to wait for."""
    things = singletons()
    gone = asyncio.new_event_loop()

    async def get() -> Any:
        return await things.get("a", making(lambda: bound([])))

    thread = threading.Thread(target=gone.run_until_complete, args=(get(),))
    thread.start()
    thread.join(PATIENCE)
    with anyio.fail_after(PATIENCE):
        await things.aclose()
    tasks = asyncio.all_tasks(gone)
    for task in tasks:
        task.cancel()
    runner = threading.Thread(target=gone.run_until_complete, args=(_all(tasks),))
    runner.start()
    runner.join(PATIENCE)
    gone.close()


async def _all(tasks: Any) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_two_threads_that_begin_at_once_begin_one_thing():
    """The second finds what the first has begun."""
    things = singletons()
    found = things._begin(asyncio.get_running_loop(), "a", making(lambda: 7))
    assert found is things._begin(asyncio.get_running_loop(), "a", making(lambda: 8))
    assert (7, False) == await things.get("a", making(lambda: 9))


async def test_a_thing_waits_for_those_that_may_need_it():
    """However their tasks are cancelled: what was made last is closed first."""
    seen: list[Any] = []
    things = singletons()
    for name in "abc":
        await things.get(name, making(lambda name=name: bound(seen, name)))
    tasks = [thing.task for thing in things._things.values()]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert ["close c", "close b", "close a"] == seen[3:]
    assert {} == things._things


async def test_a_thing_can_be_made_anew_while_the_old_one_is_closing():
    """The old one takes nothing along but itself."""
    things = singletons()
    closing, go_on = anyio.Event(), anyio.Event()

    @contextlib.asynccontextmanager
    async def slow():
        yield object()
        closing.set()
        await go_on.wait()

    old, _ = await things.get("a", making(slow))
    ending = asyncio.ensure_future(things.aclose())
    await closing.wait()
    new, _ = await things.get("a", making(slow))
    go_on.set()
    await ending
    assert old is not new
    assert (new, True) == await things.get("a", making(slow))
    await things.aclose()


async def test_a_loop_that_is_closed_while_it_makes_a_thing_holds_nobody_up():
    """Whoever waits gets another one."""
    things, loop, begun = singletons(), asyncio.new_event_loop(), asyncio.Event()

    async def endless() -> None:
        begun.set()
        await anyio.sleep_forever()

    async def begin() -> None:
        waiting = asyncio.ensure_future(things.get("a", making(endless)))
        await begun.wait()
        waiting.cancel()
        await asyncio.wait([waiting])

    with anyio.fail_after(PATIENCE):
        await asyncio.to_thread(loop.run_until_complete, begin())
        (thing,) = things._things.values()
        early = asyncio.ensure_future(things.get("a", making(object)))
        await asyncio.sleep(0)
        loop.close()
        assert await things.get("a", making(object)) == await early
        things._forget(thing, "a")  # as another thread may do at the same time
        assert await things.get("a", making(object)) == await early
    del thing
    gc.collect()  # the task that was making it cannot wait for anything
