"""Running a function once: where, to which value, and whose exception it is."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from patience import PATIENCE, time_is_up
from tests.prowess.embedded import call, until

from prowess import Outcome, Runtime, SkillError, skill_command
from prowess.calls.channel import Channel
from prowess.command import Command
from prowess.contracts.declaration import declaration_of

AT_ONCE = {"retry": {"initial": 0.0}}


async def call_that_begins(runtime: Runtime, command: Command, begun: threading.Event) -> Outcome:
    """The same, but its time is not up before a thread has begun to run it: the loop stands still until then."""
    task = asyncio.ensure_future(call(runtime, command))
    await asyncio.sleep(0)
    assert begun.wait(PATIENCE)
    return await task


def listening() -> tuple[list[Any], Channel]:
    heard: list[Any] = []
    return heard, Channel(progress=lambda done, total, message: heard.append((done, message)))


# Where


@pytest.mark.parametrize("thread, elsewhere", [(None, True), (True, True), (False, False)])
async def test_sync_code_runs_in_a_thread_unless_told_otherwise(tmp_path: Path, thread: bool | None, elsewhere: bool):
    """`thread=False` is for what is quick, or must stay on the loop."""

    @skill_command(thread=thread)
    def where() -> int:
        return threading.get_ident()

    async with Runtime.open(tmp_path) as runtime:
        assert elsewhere == ((await call(runtime, where)).value != threading.get_ident())


async def test_async_code_runs_on_the_loop(tmp_path: Path):
    """In the task of the call."""

    @skill_command
    async def where() -> int:
        return threading.get_ident()

    async with Runtime.open(tmp_path) as runtime:
        assert threading.get_ident() == (await call(runtime, where)).value


async def test_a_thread_sees_the_context_of_the_call_and_may_run_a_loop_of_its_own(tmp_path: Path):
    """Sync code that wraps async code uses `asyncio.run` or `anyio.run`."""

    async def inner() -> str:
        return "inner"

    @skill_command
    def outer() -> list[str]:
        return [asyncio.run(inner()), anyio.run(inner)]

    async with Runtime.open(tmp_path) as runtime:
        assert ["inner", "inner"] == (await call(runtime, outer)).value


async def test_many_sleepers_do_not_starve_another_call(tmp_path: Path):
    """200 sync calls that block leave room for the 201st."""
    may_end, begun = threading.Event(), threading.Semaphore(0)

    @skill_command
    def sleeper():
        begun.release()
        may_end.wait(PATIENCE)

    @skill_command
    def quick() -> str:
        return "here"

    async with Runtime.open(tmp_path) as runtime:
        sleeping = [asyncio.ensure_future(call(runtime, sleeper)) for _ in range(200)]
        await asyncio.sleep(0)
        assert all(begun.acquire(timeout=PATIENCE) for _ in sleeping)
        assert "here" == (await call(runtime, quick)).value
        may_end.set()
        assert {"ok"} == {outcome.kind for outcome in await asyncio.gather(*sleeping)}


# Generators


def numbers(n: int) -> Generator[int]:
    yield from range(n)


async def async_numbers(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


@skill_command
def sync_generator(n: int) -> Iterator[int]:
    yield from range(n)


@skill_command(thread=False)
def inline_generator(n: int) -> Iterator[int]:
    yield from range(n)


@skill_command
async def async_generator(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


@skill_command
def returns_generator(n: int) -> Iterator[int]:
    return numbers(n)


@skill_command(thread=False)
def returns_generator_inline(n: int) -> Iterator[int]:
    return numbers(n)


@skill_command
async def async_returns_generator(n: int) -> Iterator[int]:
    return numbers(n)


@skill_command
def returns_async_generator(n: int) -> AsyncIterator[int]:
    return async_numbers(n)


@skill_command(thread=False)
def returns_async_generator_inline(n: int) -> AsyncIterator[int]:
    return async_numbers(n)


@skill_command
async def async_returns_async_generator(n: int) -> AsyncIterator[int]:
    return async_numbers(n)


@skill_command
def returns_map(n: int) -> Iterator[int]:
    return map(int, range(n))


class Counting:
    """An async iterator that is no generator."""

    def __init__(self, n: int) -> None:
        self.numbers = iter(range(n))

    def __aiter__(self) -> Counting:
        return self

    async def __anext__(self) -> int:
        for number in self.numbers:
            return number
        raise StopAsyncIteration


@skill_command
def returns_async_iterator(n: int) -> AsyncIterator[int]:
    return Counting(n)


GENERATORS = [
    sync_generator,
    inline_generator,
    async_generator,
    returns_generator,
    returns_generator_inline,
    async_returns_generator,
    returns_async_generator,
    returns_async_generator_inline,
    async_returns_async_generator,
    returns_map,
    returns_async_iterator,
]


@pytest.mark.parametrize("command", GENERATORS, ids=lambda command: command.__name__)
async def test_what_is_yielded_becomes_a_list_and_progress(tmp_path: Path, command: Command):
    """Sync or async, from a generator function or from one that returns a generator."""
    heard, channel = listening()
    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, command, {"n": 3}, channel)
    assert ([0, 1, 2], "[0, 1, 2]") == (outcome.value, outcome.text)
    assert [(1, None), (2, None), (3, None)] == heard


async def test_a_yielded_text_is_shown_with_the_progress(tmp_path: Path):
    """So that a client can say what is going on."""

    @skill_command
    def steps() -> Iterator[str]:
        yield "reading"
        yield "writing"

    heard, channel = listening()
    async with Runtime.open(tmp_path) as runtime:
        await call(runtime, steps, channel=channel)
    assert [(1, "reading"), (2, "writing")] == heard


async def test_a_generator_that_returns_something_gives_that(tmp_path: Path):
    """What was yielded on the way was progress only."""

    @skill_command
    def steps() -> Generator[str, None, int]:
        yield "reading"
        return 7

    async with Runtime.open(tmp_path) as runtime:
        assert 7 == (await call(runtime, steps)).value


async def test_a_generator_that_may_return_something_can_return_none(tmp_path: Path):
    """Its type says whether the result is what it returns or what it yields. `Any` says neither."""

    def steps() -> Generator[str, None, Any]:
        yield "reading"

    @skill_command
    def only_yields() -> Generator[str, None, None]:
        yield "reading"

    @skill_command
    def in_thread() -> Generator[str, None, int | None]:
        return (yield from steps())

    @skill_command(thread=False)
    def on_loop() -> Generator[str, None, int | None]:
        return (yield from steps())

    @skill_command
    async def made_by_a_coroutine() -> Generator[str, None, int | None]:
        return steps()

    @skill_command
    def made_by_a_function() -> Awaitable[Generator[str, None, int | None]]:
        return made_by_a_coroutine.raw()

    async with Runtime.open(tmp_path) as runtime:
        for command in (in_thread, on_loop, made_by_a_coroutine, made_by_a_function):
            assert ("ok", None) == ((outcome := await call(runtime, command)).kind, outcome.value)
        for command in (only_yields, skill_command(steps)):
            assert ["reading"] == (await call(runtime, command)).value


@pytest.mark.parametrize("is_async", [True, False])
async def test_progress_grows_from_one_attempt_to_the_next(tmp_path: Path, is_async: bool):
    """A client must never see it go back."""
    attempts = itertools.count(1)

    @skill_command(retry_on=ValueError)
    def steps() -> Iterator[int]:
        attempt = next(attempts)
        yield attempt
        yield attempt
        if attempt < 3:
            raise ValueError

    @skill_command(retry_on=ValueError)
    async def async_steps() -> AsyncIterator[int]:
        attempt = next(attempts)
        yield attempt
        yield attempt
        if attempt < 3:
            raise ValueError

    heard, channel = listening()
    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime:
        outcome = await call(runtime, async_steps if is_async else steps, channel=channel)
    assert ([3, 3], 3) == (outcome.value, outcome.attempts)
    assert [1, 2, 3, 4, 5, 6] == [done for done, _ in heard]


async def test_an_abandoned_generator_stops_at_its_next_yield(tmp_path: Path):
    """It is closed, so that its clean-up runs."""
    begun, go_on, closed = (threading.Event() for _ in range(3))

    @skill_command(timeout=0.5)
    def endless() -> Iterator[int]:
        begun.set()
        try:
            while True:
                go_on.wait(PATIENCE)
                yield 1
        finally:
            closed.set()

    async with Runtime.open(tmp_path) as runtime:
        assert "timeout" == (await call_that_begins(runtime, endless, begun)).kind
        go_on.set()
        assert await asyncio.to_thread(closed.wait, PATIENCE)


async def test_a_cancelled_async_generator_is_closed(tmp_path: Path):
    """Its clean-up runs before the call is answered."""
    closed = []

    @skill_command(timeout=PATIENCE)
    async def endless() -> AsyncIterator[int]:
        try:
            yield 1
            time_is_up()
            await anyio.sleep_forever()
        finally:
            closed.append(1)

    async with Runtime.open(tmp_path) as runtime:
        assert "timeout" == (await call(runtime, endless)).kind
    assert [1] == closed


# Awaitables that a function returns


async def value_of(n: int) -> int:
    await asyncio.sleep(0)
    return n


class Later:
    """Something that can be awaited."""

    def __await__(self) -> Generator[Any, Any, int]:
        return value_of(5).__await__()


@pytest.mark.parametrize("thread", [True, False])
@pytest.mark.parametrize("make", [lambda: value_of(5), Later, lambda: numbers(5), lambda: async_numbers(5)])
async def test_a_function_may_return_what_is_still_to_be_awaited(tmp_path: Path, make: Callable[[], Any], thread: bool):
    """It is finished where it belongs, as often as it takes."""

    async def twice() -> Any:
        return make()

    @skill_command(thread=thread)
    def plain():
        return twice()

    @skill_command
    async def awaiting():
        return twice()

    async with Runtime.open(tmp_path) as runtime:
        expected = 5 if make is Later or (await call(runtime, awaiting)).value == 5 else [0, 1, 2, 3, 4]
        assert expected == (await call(runtime, plain)).value == (await call(runtime, awaiting)).value


async def test_an_awaitable_that_fails_fails_the_call(tmp_path: Path):
    """Like any other exception of the body."""

    async def broken() -> int:
        raise SystemExit(3)

    def breaks() -> Iterator[int]:
        yield 1
        raise KeyError("inside")

    @skill_command
    def returns_awaitable() -> Any:
        return broken()

    @skill_command
    async def returns_generator_() -> Any:
        return breaks()

    async with Runtime.open(tmp_path) as runtime:
        assert (await call(runtime, returns_awaitable)).text.startswith("SystemExit: 3")
        assert (await call(runtime, returns_generator_)).text.startswith("KeyError: 'inside'")


async def test_a_coroutine_that_nobody_awaits_any_more_is_closed(tmp_path: Path):
    """An abandoned thread that returns one leaves no warning behind."""
    begun, go_on = threading.Event(), threading.Event()

    @skill_command(timeout=0.5)
    def late():
        begun.set()
        go_on.wait(PATIENCE)
        return value_of(1)

    async with Runtime.open(tmp_path) as runtime:
        assert "timeout" == (await call_that_begins(runtime, late, begun)).kind
        go_on.set()
        await until(lambda: not runtime.abandoned)
    gc.collect()


# Whose exception it is

EXITS = [SystemExit(2), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), StopIteration(1)]


@pytest.mark.parametrize("how", ["async", "thread", "inline", "generator", "async generator"])
@pytest.mark.parametrize("error", EXITS, ids=lambda error: type(error).__name__)
async def test_an_exit_of_the_body_is_a_crash_of_its_call_only(tmp_path: Path, error: BaseException, how: str):
    """Whatever a body raises, the runtime lives on, and says what it was."""

    @skill_command(name="c")
    async def on_loop():
        raise error

    @skill_command(name="c", thread=how == "thread")
    def sync():
        raise error

    @skill_command(name="c")
    def generator():
        yield 1
        raise error

    @skill_command(name="c")
    async def async_generator_():
        yield 1
        raise error

    commands = {"async": on_loop, "generator": generator, "async generator": async_generator_}
    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, commands.get(how, sync))
    assert "crashed" == outcome.kind
    name = (
        "RuntimeError" if isinstance(error, StopIteration) and how not in ("thread", "inline") else type(error).__name__
    )
    assert outcome.text.startswith(name)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_real_cancellation_passes_through(tmp_path: Path, is_async: bool):
    """It is no outcome: nobody is there to be answered."""
    begun, go_on = threading.Event(), threading.Event()

    @skill_command
    async def on_loop():
        begun.set()
        await anyio.sleep_forever()

    @skill_command
    def in_thread():
        begun.set()
        go_on.wait(PATIENCE)

    async with Runtime.open(tmp_path) as runtime:
        task = asyncio.ensure_future(call(runtime, on_loop if is_async else in_thread))
        await until(begun.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()


@pytest.mark.parametrize("thread", [True, False])
async def test_a_group_of_one_is_unwrapped(tmp_path: Path, thread: bool):
    """However deep; a group of several stays one."""

    def group(*errors: Exception) -> ExceptionGroup:
        return ExceptionGroup("outer", [ExceptionGroup("inner", list(errors))])

    @skill_command(thread=thread)
    def grouped(n: int):
        raise group(*map(ValueError, range(n)))

    @skill_command
    async def async_grouped():
        async with anyio.create_task_group():
            raise KeyError("one")

    async with Runtime.open(tmp_path) as runtime:
        assert (await call(runtime, grouped, {"n": 1})).text.startswith("ValueError: 0")
        assert (await call(runtime, grouped, {"n": 2})).text.startswith("ExceptionGroup: inner (2 sub-exceptions)")
        assert "sub-exceptions): ValueError: 0; ValueError: 1 (call " in (await call(runtime, grouped, {"n": 2})).text
        assert "; ValueError: 4 and 3 more (call " in (await call(runtime, grouped, {"n": 8})).text
        assert (await call(runtime, async_grouped)).text.startswith("KeyError: 'one'")


async def test_skill_errors_of_several_tasks_are_one_for_the_model(tmp_path: Path):
    """All of them say something to it. One crash among them makes a crash, whose message names all."""

    @skill_command
    async def together(crashes: bool):
        first = SkillError("no milk", retryable=True, retry_after=3, data={"shelf": 1})
        second = SkillError("no bread", retryable=True, retry_after=math.nan)
        raise ExceptionGroup(
            "g", [ExceptionGroup("h", [first, second]), ValueError() if crashes else SkillError("no milk")]
        )

    @skill_command
    async def later(shelves: int):
        errors = [SkillError(f"{n}", retryable=True, retry_after=n, data=n) for n in range(shelves)]
        raise ExceptionGroup("g", [*errors, SkillError("", retryable=True)])

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, together, {"crashes": False})
        assert ("failed", "no milk\nno bread") == (outcome.kind, outcome.text)
        assert ({"shelf": 1}, 3) == (outcome.data, outcome.retry_after)
        outcome = await call(runtime, later, {"shelves": 2})
        assert ("retryable", "0\n1\nSkillError", [0, 1], 1) == (
            outcome.kind,
            outcome.text,
            outcome.data,
            outcome.retry_after,
        )
        outcome = await call(runtime, together, {"crashes": True})
    assert "crashed" == outcome.kind
    assert "g (2 sub-exceptions): SkillError: no milk; SkillError: no bread; ValueError (call" in outcome.text


async def test_the_data_of_an_error_loses_no_entry(tmp_path: Path):
    """Two keys of one text would be one, so the data is sent as a text."""

    @skill_command
    def fail():
        raise SkillError("no", data={1: "a", "1": "b"})

    async with Runtime.open(tmp_path) as runtime:
        assert "{1: 'a', '1': 'b'}" == (await call(runtime, fail)).data


async def test_a_call_whose_loop_ends_ends_quietly(tmp_path: Path):
    """A coroutine that is closed from outside is not told of as a crash."""
    begun = []

    @skill_command
    async def waiting():
        begun.append(1)
        await asyncio.get_running_loop().create_future()

    async with Runtime.open(tmp_path) as runtime:
        coroutine = runtime.call_direct(declaration_of(waiting), (), {})
        while not begun:
            coroutine.send(None)
        with contextlib.closing(coroutine):
            pass
    gc.collect()
