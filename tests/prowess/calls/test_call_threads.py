"""What is bound to a thread: made, used and closed in one, whatever happens to the call."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE, time_is_up
from tests.prowess.embedded import call, injectables, until

from prowess import Runtime, skill_command
from prowess.calls.threads import Inline, Raised, Threads
from prowess.command import Command
from prowess.contracts.declaration import declaration_of
from prowess.injection import scopes as module

AT_ONCE = {"retry": {"initial": 0.0}}


class Bound:
    """A thing that may only be touched in the thread that made it, like a connection of sqlite3."""

    def __init__(self, seen: list[Any] | None = None) -> None:
        self.thread = threading.get_ident()
        self.seen = seen if seen is not None else []

    def touch(self, what: str) -> str:
        if threading.get_ident() != self.thread:
            raise RuntimeError("made in one thread, used in another")
        self.seen.append(what)
        return what


class Other(Bound):
    """Another one."""


def connection() -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(":memory:")
    yield made
    made.close()


# Sync commands


async def test_fifty_calls_at_once_have_a_connection_each(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Opened, used and closed in one thread, whichever threads are free."""

    @skill_command
    def ask(db: sqlite3.Connection) -> int:
        return db.execute("select 42").fetchone()[0]

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(sqlite3.Connection, connection, lifetime="call")
        outcomes = await asyncio.gather(*(call(runtime, ask) for _ in range(50)))
    assert [42] * 50 == [outcome.value for outcome in outcomes]
    assert [] == caplog.records


@pytest.mark.parametrize("threads", [1, 2])
async def test_a_few_threads_are_enough(tmp_path: Path, threads: int):
    """A call that keeps a thread waits for nothing that needs another one."""

    @skill_command
    def both(bound: Bound, other: Other) -> list[str]:
        return [bound.touch("bound"), other.seen[0]]

    def shared() -> Other:
        made = Other()
        made.touch("made")
        return made

    async with Runtime.open(tmp_path, flags={"threads": threads}) as runtime:
        injectables(runtime).provide(Bound, Bound, lifetime="call")
        injectables(runtime).provide(Other, shared)
        outcomes = await asyncio.gather(*(call(runtime, both) for _ in range(10)))
    assert [["bound", "made"]] * 10 == [outcome.value for outcome in outcomes]


async def test_all_attempts_run_in_the_thread_of_the_call(tmp_path: Path):
    """And so does the generator that one of them returns."""
    seen: list[str] = []

    def opened() -> Iterator[Bound]:
        bound = Bound(seen)
        try:
            yield bound
        finally:
            bound.touch("close")

    @skill_command(retry_on=ValueError, max_attempts=3)
    def trying(bound: Bound) -> Iterator[str]:
        if len(seen) < 2:
            raise ValueError(bound.touch("failed"))
        yield bound.touch("first")
        yield bound.touch("second")

    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime:
        injectables(runtime).provide(Bound, opened, lifetime="call")
        outcomes = [await call(runtime, trying)]
    assert [(3, ["first", "second"])] == [(outcome.attempts, outcome.value) for outcome in outcomes]
    assert ["failed", "failed", "first", "second", "close"] == seen


async def test_a_sync_command_on_the_loop_has_its_things_there(tmp_path: Path):
    """`thread=False` is for factories, too; and what an async factory makes is at home there."""
    seen: list[str] = []

    def opened() -> Iterator[Bound]:
        bound = Bound(seen)
        yield bound
        bound.touch("close")

    async def opened_async() -> AsyncIterator[Other]:
        other = Other(seen)
        yield other
        other.touch("close other")

    @skill_command(thread=False)
    def on_loop(bound: Bound, other: Other) -> Iterator[str]:
        yield bound.touch("use")
        yield other.touch("use other")

    def failing() -> Other:
        raise ValueError("no power")

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Bound, opened, lifetime="call")
        injectables(runtime).provide(Other, opened_async, lifetime="call")
        assert ["use", "use other"] == (await call(runtime, on_loop)).value
        injectables(runtime).forget([Other])
        injectables(runtime).provide(Other, failing, lifetime="call")
        assert "ValueError: no power (while Other was being provided)" in (await call(runtime, on_loop)).text
    assert ["use", "use other", "close other", "close", "close"] == seen


class Hanging:
    """A sync command that runs until it is told to end, with a thing that is bound to its thread."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.seen: list[Any] = []

    def command(self, timeout: float | None = None) -> Command:
        @skill_command(timeout=timeout)
        def hang(bound: Bound, other: Other) -> str:
            self.begun.set()
            self.go_on.wait(PATIENCE)
            return bound.touch("used")

        return hang

    async def run_out_of_time(self, runtime: Runtime) -> None:
        """Call it until it is left behind: where the machine is busy, a little time is up before it has begun."""
        seconds = 0.05
        while not self.begun.is_set():
            self.seen.clear()
            assert "timeout" == (await call(runtime, self.command(seconds))).kind
            await until(lambda: self.begun.is_set() or not runtime.abandoned)
            seconds *= 4

    def open_bound(self) -> Iterator[Bound]:
        bound = Bound(self.seen)
        yield bound
        bound.touch("close bound")

    async def open_other(self) -> AsyncIterator[Other]:
        other = Other(self.seen)
        yield other
        other.touch("close other")

    def provide(self, runtime: Runtime) -> None:
        injectables(runtime).provide(Bound, self.open_bound, lifetime="call")
        injectables(runtime).provide(Other, self.open_other, lifetime="call")


@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_what_was_left_behind_is_closed_when_it_has_ended(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
):
    """The answer waits for nothing; closing waits for the body, in its thread, in reverse order."""
    hanging = Hanging()
    async with Runtime.open(tmp_path) as runtime:
        hanging.provide(runtime)
        if how == "timeout":
            await hanging.run_out_of_time(runtime)
        else:
            task = asyncio.ensure_future(call(runtime, hanging.command()))
            await until(hanging.begun.is_set)
            task.cancel()
            await asyncio.wait([task])
        await until(hanging.begun.is_set)
        assert [] == hanging.seen
        assert 1 == len(runtime.abandoned)
        hanging.go_on.set()
        await until(lambda: not runtime.abandoned)
    assert ["used", "close other", "close bound"] == hanging.seen
    assert [] == caplog.records


async def test_a_runtime_waits_for_what_is_just_closing(tmp_path: Path):
    """The body has ended: what it used is closed before the runtime is."""
    hanging = Hanging()
    closing, may_close = threading.Event(), threading.Event()

    def opened() -> Iterator[Bound]:
        bound = Bound(hanging.seen)
        yield bound
        if hanging.begun.is_set():  # else the time was up before the command began, and it is called again
            closing.set()
            may_close.wait(PATIENCE)
        bound.touch("close")

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Bound, opened, lifetime="call")
        injectables(runtime).provide(Other, hanging.open_other, lifetime="call")
        await hanging.run_out_of_time(runtime)
        hanging.go_on.set()
        await until(closing.is_set)
        asyncio.get_running_loop().call_soon(may_close.set)
    assert ["used", "close other", "close"] == hanging.seen


def test_a_loop_that_ends_first_leaves_the_closing_to_the_thread(tmp_path: Path):
    """What is the loop's own is closed at its end; the rest when the body has ended, where it was made."""
    hanging = Hanging()
    ended = threading.Event()

    def opened() -> Iterator[Bound]:
        bound = Bound(hanging.seen)
        yield bound
        bound.touch("close bound")
        ended.set()

    async def run() -> None:
        async with Runtime.open(tmp_path) as runtime:
            injectables(runtime).provide(Bound, opened, lifetime="call")
            injectables(runtime).provide(Other, hanging.open_other, lifetime="call")
            await hanging.run_out_of_time(runtime)

    asyncio.run(run())
    assert ["close other"] == hanging.seen
    hanging.go_on.set()
    assert ended.wait(PATIENCE)
    assert ["close other", "used", "close bound"] == hanging.seen


async def test_what_is_opened_too_late_is_closed_where_it_was(tmp_path: Path):
    """A factory that outlasts the call: its thing first, and then those that were there."""
    hanging = Hanging()
    seen, opening, go_on = hanging.seen, threading.Event(), threading.Event()

    class Slow(Bound):
        def __enter__(self) -> Slow:
            opening.set()
            go_on.wait(PATIENCE)
            self.touch("open slow")
            return self

        def __exit__(self, *_: object) -> None:
            self.touch("close slow")

    @skill_command(timeout=PATIENCE)
    def wanting(bound: Bound, slow: Slow) -> None:
        """Never runs."""

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Bound, hanging.open_bound, lifetime="call")
        injectables(runtime).provide(Slow, lambda: Slow(seen), lifetime="call")
        runtime_entry = runtime.entry_of(declaration_of(wanting))  # type: ignore[arg-type]
        outcome = asyncio.ensure_future(runtime_entry.call({}))
        await until(opening.is_set)
        time_is_up()
        assert "timeout" == (await outcome).kind
        go_on.set()
        await until(lambda: len(seen) == 3)
    assert ["open slow", "close slow", "close bound"] == seen


async def test_a_close_that_hangs_gives_its_thread_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The answer comes, and what is left is closed in another thread."""
    monkeypatch.setattr(module, "_CLOSING", 0.05)
    seen: list[str] = []
    go_on = threading.Event()

    def opened() -> Iterator[Bound]:
        yield Bound()
        seen.append("close")

    def stuck() -> Iterator[Other]:
        yield Other()
        monkeypatch.setattr(module, "_CLOSING", PATIENCE)  # the next one may need its time on a busy machine
        go_on.wait(PATIENCE)
        seen.append("unstuck")

    @skill_command
    def both(bound: Bound, other: Other) -> int:
        return 7

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Bound, opened, lifetime="call")
        injectables(runtime).provide(Other, stuck, lifetime="call")
        assert 7 == (await call(runtime, both)).value
        assert ["close"] == seen
        assert 1 == len(runtime.abandoned)
        go_on.set()
        await until(lambda: not runtime.abandoned)
    assert ["close", "unstuck"] == seen
    (warning,) = caplog.messages
    assert "closing what was provided for test_call_threads.both took more than" in warning


# Async commands, and what is in the wrong place


async def test_an_async_factory_serves_an_async_command(tmp_path: Path):
    """Both are on the loop, also where the factory gives a context manager."""

    async def connect() -> sqlite3.Connection:
        return sqlite3.connect(":memory:")

    async def opened() -> AsyncIterator[Bound]:
        bound = Bound()
        yield bound
        bound.touch("close")

    @skill_command
    async def ask(db: sqlite3.Connection, bound: Bound) -> int:
        bound.touch("use")
        with contextlib.closing(db):
            return db.execute("select 42").fetchone()[0]

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(sqlite3.Connection, connect, lifetime="call")
        injectables(runtime).provide(Bound, opened, lifetime="call")
        outcomes = await asyncio.gather(*(call(runtime, ask) for _ in range(20)))
    assert [42] * 20 == [outcome.value for outcome in outcomes]


class Query:
    """Something that needs a connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
async def test_what_is_in_the_wrong_thread_is_named_with_the_remedy(tmp_path: Path):
    """The parameter, and what was made where; whichever side is async."""

    async def connect_async() -> AsyncIterator[sqlite3.Connection]:
        made = sqlite3.connect(":memory:")
        yield made
        made.close()

    @skill_command
    async def on_loop(db: sqlite3.Connection) -> None:
        db.execute("select 42")

    @skill_command
    async def deep(query: Query) -> None:
        query.db.execute("select 42")

    @skill_command
    def in_thread(db: sqlite3.Connection) -> None:
        db.execute("select 42")

    @skill_command
    async def at_fault_itself(db: sqlite3.Connection) -> None:
        raise ValueError("nothing of the kind")

    async def query_on_loop(db: sqlite3.Connection) -> Query:
        return Query(db)

    async def told(command: Command, factory: Any, lifetime: Any = "call") -> str:
        async with Runtime.open(tmp_path) as runtime:
            injectables(runtime).provide(sqlite3.Connection, factory, lifetime=lifetime)
            injectables(runtime).provide(Query, Query, lifetime="call")
            return (await call(runtime, command)).text

    remedy = "make the factory async, or the command sync"
    assert "the parameter 'db' was made in another thread by a sync factory" in await told(on_loop, connection)
    assert remedy in await told(on_loop, connection)
    assert "the parameter 'query' was made in another thread" in await told(deep, connection)
    assert "the parameter 'db' was made on the event loop by an async factory" in await told(in_thread, connect_async)
    assert "make the factory sync, or the command async" in await told(in_thread, connect_async)
    managed = await told(in_thread, contextlib.asynccontextmanager(connect_async))
    assert "the parameter 'db' was made on the event loop by an async factory" in managed
    shared = await told(on_loop, connection, "singleton")
    assert "the parameter 'db' is shared by all threads: provide it with lifetime='call'" in shared
    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(sqlite3.Connection, connection)
        injectables(runtime).provide(Query, query_on_loop, lifetime="call")
        text = (await call(runtime, deep)).text
    assert "the parameter 'query' needs Connection, which is shared by all threads" in text
    assert "the parameter" not in await told(at_fault_itself, connection)
    gc.collect()  # Python 3.13 warns of each connection that its thread has not closed


# Lanes


async def test_a_lane_that_gets_no_thread_gives_up_its_turn():
    """Whoever waits for one and is cancelled takes nothing from the others."""
    threads = Threads(1)
    go_on = threading.Event()
    first = asyncio.ensure_future(threads.run(lambda: go_on.wait(PATIENCE)))
    await asyncio.sleep(0)
    lane = threads.lane("late")
    second = asyncio.ensure_future(lane.run(lambda: 2))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    lane.release()
    assert not lane.is_abandoned
    go_on.set()
    await first
    assert 3 == await threads.run(lambda: 3)
    assert 0 == len(threads.abandoned)


async def test_what_is_cancelled_before_its_turn_is_not_run():
    """Nor is its thread given up for it a second time."""
    threads = Threads(4)
    lane = threads.lane("calls")
    go_on, seen = threading.Event(), list[int]()
    first = asyncio.ensure_future(lane.run(lambda: go_on.wait(PATIENCE)))
    second = asyncio.ensure_future(lane.run(lambda: seen.append(2)))
    await asyncio.sleep(0)
    for task in (second, first):
        task.cancel()
        await asyncio.wait([task])
    lane.post(lambda: seen.append(3))
    lane.release()
    go_on.set()
    await until(lambda: seen and not threads.abandoned)
    assert [3] == seen


async def test_a_result_that_is_cancelled_on_its_way_is_taken_care_of():
    """In the thread that made it."""
    lane = Threads(1).lane("calls")
    late: list[tuple[str, int]] = []
    done = threading.Event()

    def make() -> str:
        asyncio.run_coroutine_threadsafe(cancel(), loop)
        return "made"

    async def cancel() -> None:
        await asyncio.sleep(0)

    loop = asyncio.get_running_loop()

    def dispose(value: str) -> None:
        late.append((value, threading.get_ident()))
        done.set()

    thread = await lane.run(threading.get_ident)
    task = asyncio.ensure_future(lane.run(make, late=dispose))
    await asyncio.sleep(0)
    ended = threading.Event()
    lane.post(ended.set)
    while not ended.wait(0.001):  # the loop is not asked: the result is there, and nobody has been told
        pass
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await until(done.is_set)
    assert [("made", thread)] == late
    lane.release()


async def test_near_the_end_a_lane_starts_no_thread(caplog: pytest.LogCaptureFixture):
    """It runs everything where it is asked for; what fails for nobody is logged."""
    threads = Threads(1)
    threads.stay_inline()
    lane = threads.lane("end")
    assert threading.get_ident() == await lane.run(threading.get_ident)
    lane.post(lambda: 1 / 0)
    lane.release()
    assert "cleaning up after end failed" in caplog.text
    with pytest.raises(Raised):
        await Inline().run(lambda: 1 / 0)


async def test_only_what_is_in_the_wrong_thread_is_named(tmp_path: Path):
    """A parameter beside it that is where it belongs is not blamed."""

    async def query() -> Query:
        return Query.__new__(Query)

    @skill_command
    async def run(query: Query, db: sqlite3.Connection) -> None:
        db.execute("select 42")

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(sqlite3.Connection, connection, lifetime="call")
        injectables(runtime).provide(Query, query, lifetime="call")
        text = (await call(runtime, run)).text
    assert "the parameter 'db' was made in another thread" in text
    assert "'query'" not in text
