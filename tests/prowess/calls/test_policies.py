"""Deadline, cache, concurrency and retry, each seen from outside: by how often and when a command runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import anyio
import pytest
from patience import PATIENCE, time_is_up
from tests.prowess.embedded import call, until

from prowess import Context, Inject, Outcome, Runtime, SkillError, skill_command
from prowess.calls import groups
from prowess.calls.channel import Arguments, Call, Channel
from prowess.calls.policies import Backoff, Cache, Expired, with_cache
from prowess.calls.threads import Threads
from prowess.command import Command
from prowess.contracts.declaration import declaration_of
from prowess.results.normalize import Result

AT_ONCE = {"retry": {"initial": 0.0}}


@contextlib.asynccontextmanager
async def calling(runtime: Runtime, *calls: tuple[Command, Any]) -> AsyncIterator[list[asyncio.Task[Outcome]]]:
    """Calls in flight, each begun before the next; whatever still runs at the end is cancelled."""
    tasks: list[asyncio.Task[Outcome]] = []
    try:
        for command, arguments in calls:
            tasks.append(asyncio.ensure_future(call(runtime, command, arguments)))
            await settle()
        with anyio.fail_after(PATIENCE):
            yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def settle() -> None:
    """Let everything that can go on go on."""
    for _ in range(10):
        await asyncio.sleep(0)


@dataclass
class Gate:
    """A place where runs of a command wait, and what happened to them."""

    runs: list[Any] = field(default_factory=list)
    cancelled: list[Any] = field(default_factory=list)
    open: anyio.Event = field(default_factory=anyio.Event)

    async def pass_(self, what: Any = None) -> Any:
        self.runs.append(what)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(what)
            raise
        return what


# Retry


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_named_exception_is_retried_until_it_works(tmp_path: Path, is_async: bool):
    """`max_attempts` counts all calls; three where nothing is said."""
    runs = []

    def body() -> int:
        runs.append(1)
        if len(runs) < 3:
            raise ConnectionError("not yet")
        return len(runs)

    @skill_command(retry_on=ConnectionError)
    async def slowly() -> int:
        return body()

    @skill_command(retry_on=OSError)
    def blocking() -> int:
        return body()

    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime:
        outcome = await call(runtime, slowly if is_async else blocking)
    assert (True, 3, 3) == (outcome.ok, outcome.value, outcome.attempts)
    assert {"prowess/attempts": 3} == outcome.payload()["_meta"]


@pytest.mark.parametrize("most", [1, 2, 5])
async def test_attempts_end_at_the_limit(tmp_path: Path, most: int):
    """What is exhausted is `retryable`, and says how often it was tried."""
    runs = []

    @skill_command(retry_on=(KeyError, ValueError), max_attempts=most)
    async def hopeless():
        runs.append(1)
        raise ValueError("never")

    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime:
        outcome = await call(runtime, hopeless)
    assert (most, most, "retryable") == (len(runs), outcome.attempts, outcome.kind)
    assert {"prowess/attempts": most, "prowess/kind": "retryable"} == outcome.payload()["_meta"]


@pytest.mark.parametrize(
    "error, kind",
    [(KeyError("k"), "crashed"), (SkillError("no", retryable=True), "retryable"), (TimeoutError("mine"), "crashed")],
)
async def test_nothing_else_is_retried(tmp_path: Path, error: Exception, kind: str):
    """`SkillError(retryable=True)` tells the caller to try again, and never tries by itself."""
    runs = []

    @skill_command(retry_on=ValueError)
    async def once():
        runs.append(1)
        raise error

    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime:
        outcome = await call(runtime, once)
    assert (1, kind) == (len(runs), outcome.kind)


@pytest.mark.parametrize("error", [SkillError("named"), TimeoutError("of the body")])
async def test_a_skill_error_or_a_timeout_error_is_retried_where_it_is_named(tmp_path: Path, error: Exception):
    """A `TimeoutError` of the body is an ordinary exception, and no deadline."""

    @skill_command(retry_on=type(error))
    async def named():
        raise error

    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime:
        outcome = await call(runtime, named)
    assert ("retryable", 3) == (outcome.kind, outcome.attempts)


async def test_wrong_arguments_and_wrong_results_are_never_retried(tmp_path: Path):
    """Trying again cannot mend them."""
    runs = []

    @skill_command(retry_on=Exception)
    async def wrong(n: int) -> int:
        runs.append(n)
        return "no number"  # type: ignore[return-value]

    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime:
        assert "input" == (await call(runtime, wrong, {"n": "x"})).kind
        assert [] == runs
        assert "output" == (await call(runtime, wrong, {"n": 1})).kind
        assert [1] == runs


async def test_the_one_exception_of_a_group_is_retried(tmp_path: Path):
    """A task group makes a group of an ordinary error; it is still the error that was named."""

    @skill_command(retry_on=ConnectionError)
    async def grouped():
        async with anyio.create_task_group():
            raise ConnectionError("lost")

    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime:
        outcome = await call(runtime, grouped)
    assert 3 == outcome.attempts
    assert outcome.text.startswith("ConnectionError: lost after 3 attempts")


async def test_the_deadline_covers_attempts_and_back_off(tmp_path: Path):
    """A back-off that would outlast the deadline ends with it."""

    @skill_command(retry_on=ValueError, timeout=PATIENCE)
    async def patient():
        asyncio.get_running_loop().call_soon(time_is_up)
        raise ValueError

    async with Runtime.open(tmp_path, flags={"retry": {"initial": PATIENCE, "maximum": PATIENCE}}) as runtime:
        with anyio.fail_after(PATIENCE):
            outcome = await call(runtime, patient)
    assert ("timeout", 1) == (outcome.kind, outcome.attempts)


async def test_a_back_off_can_be_cancelled(tmp_path: Path):
    """Whoever waits for the next attempt stops when told to."""
    runs = []

    @skill_command(retry_on=ValueError)
    async def patient():
        runs.append(1)
        raise ValueError

    async with (
        Runtime.open(tmp_path, flags={"retry": {"initial": 60.0, "maximum": 60.0}}) as runtime,
        calling(runtime, (patient, None)) as (task,),
    ):
        await settle()
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [1] == runs


async def test_a_cancelled_call_is_not_tried_again(tmp_path: Path):
    """A body that turns its cancellation into an error worth a retry does not get one."""
    gate = Gate()

    @skill_command(retry_on=ConnectionError)
    async def stubborn():
        try:
            await gate.pass_()
        except asyncio.CancelledError:
            raise ConnectionError("torn") from None

    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime, calling(runtime, (stubborn, None)) as (task,):
        task.cancel()
        await asyncio.wait([task])
    assert 1 == len(gate.runs)


def test_back_off_grows_and_jitters_within_bounds():
    """Exponential from `initial` to `maximum`, plus a jitter of up to `initial`."""
    wait = Backoff(0.5, 4.0).wait()
    for attempt, low in ((1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (9, 4.0)):
        waits = {wait(SimpleNamespace(attempt_number=attempt)) for _ in range(50)}
        assert all(low <= seconds <= low + 0.5 for seconds in waits)
        assert len(waits) > 1
    assert 0.0 == Backoff(0.0, 4.0).wait()(SimpleNamespace(attempt_number=3))
    assert 2.0 >= Backoff(9.0, 1.0).wait()(SimpleNamespace(attempt_number=1))


# Deadline


async def test_an_async_command_is_stopped_at_its_deadline(tmp_path: Path):
    """It is cancelled, and the outcome says how long it had."""
    gate = Gate()

    @skill_command(timeout=PATIENCE)
    async def endless():
        time_is_up()
        await gate.pass_("run")

    async with Runtime.open(tmp_path) as runtime:
        with anyio.fail_after(PATIENCE):
            outcome = await call(runtime, endless)
    assert ("timeout", ["run"]) == (outcome.kind, gate.cancelled)
    assert f"test_policies.endless timed out after {PATIENCE:g} s" == outcome.text


async def test_a_sync_command_is_answered_at_its_deadline_and_told(tmp_path: Path):
    """Its thread cannot be stopped: it is left behind, counted until it ends, and sees `ctx.cancelled`."""
    begun, may_end, told = (threading.Event() for _ in range(3))

    @skill_command(timeout=0.5)
    def endless(ctx: Context):
        begun.set()
        may_end.wait(PATIENCE)
        if ctx.cancelled:
            told.set()

    async with Runtime.open(tmp_path) as runtime:
        with anyio.fail_after(PATIENCE):
            task = asyncio.ensure_future(call(runtime, endless))
            await asyncio.sleep(0)
            assert begun.wait(PATIENCE)  # the loop stands still, so that the time is not up before the thread has begun
            assert "timeout" == (await task).kind
            assert 1 == runtime.abandoned_threads
            may_end.set()
            assert await asyncio.to_thread(told.wait, PATIENCE)
            await until(lambda: not runtime.abandoned_threads)


async def test_the_default_deadline_is_a_setting(tmp_path: Path):
    """Without `timeout=` the setting counts, and the command's own wins over it."""
    gate = Gate()

    @skill_command
    async def default():
        await gate.pass_()

    @skill_command(timeout=60)
    async def own(ctx: Context) -> bool:
        return ctx.deadline is not None

    async with Runtime.open(tmp_path, flags={"timeout": 0.01}) as runtime:
        with anyio.fail_after(PATIENCE):
            assert "timeout" == (await call(runtime, default)).kind
        assert (await call(runtime, own)).value is True


async def test_a_timeout_error_of_the_body_is_a_crash(tmp_path: Path):
    """Only the deadline of the call is a timeout; also inside a deadline that the body set itself."""

    @skill_command
    async def own():
        with anyio.fail_after(0):
            await anyio.sleep_forever()

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, own)
    assert "crashed" == outcome.kind
    assert outcome.text.startswith("TimeoutError")


async def test_a_result_beats_a_deadline_that_it_ignored(tmp_path: Path):
    """A body that swallows its cancellation and returns has returned."""

    @skill_command(timeout=PATIENCE)
    async def stubborn() -> str:
        time_is_up()
        with contextlib.suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        return "late"

    async with Runtime.open(tmp_path) as runtime:
        with anyio.fail_after(PATIENCE):
            assert "late" == (await call(runtime, stubborn)).value


@pytest.mark.parametrize("cache_ttl", [None, 60])
async def test_an_error_that_a_command_makes_of_its_deadline_is_a_timeout(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cache_ttl: float | None
):
    """Whatever a body or a cleanup raises when it is stopped, the caller learns that the time was up. The log has the error."""

    def close():
        raise ConnectionError("closed in use")

    @contextlib.asynccontextmanager
    async def connection():
        with contextlib.ExitStack() as stack:
            stack.callback(close)
            yield 1

    began: list[str] = []

    @skill_command(timeout=0.5, cache_ttl=cache_ttl, retry_on=OSError, max_attempts=3)
    async def stubborn(kind: str, held: Annotated[Any, Inject("connection")]):
        began.append(kind)
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            if kind == "error":
                raise OSError("the line is dead") from error
            if kind == "group":
                raise ExceptionGroup("two", [ValueError("a"), OSError("b")]) from None
            raise
        finally:
            if kind == "finally":
                raise LookupError(kind)

    async with Runtime.open(tmp_path) as runtime:
        runtime._services.injectables.provide("connection", connection, lifetime="call")
        with anyio.fail_after(PATIENCE):
            kinds = ("error", "group", "finally", "cleanup")
            outcomes = await asyncio.gather(*(call(runtime, stubborn, {"kind": kind}) for kind in kinds))
    for outcome in outcomes:
        assert ("timeout", 1) == (outcome.kind, outcome.attempts)
        assert "test_policies.stubborn timed out after 0.5 s" == outcome.text
    said = (
        0 if cache_ttl else len({*began} - {"cleanup"})
    )  # an execution for several calls has a deadline for each, and ends later than they do
    assert said == caplog.text.count("raised an exception after its time was up")


async def test_a_skill_error_beats_a_deadline(tmp_path: Path):
    """Whoever catches the cancellation to say something to the model says it."""

    @skill_command(timeout=0.5)
    async def polite():
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            raise SkillError("the archive is too slow today") from None

    async with Runtime.open(tmp_path) as runtime:
        with anyio.fail_after(PATIENCE):
            outcome = await call(runtime, polite)
    assert ("failed", "the archive is too slow today") == (outcome.kind, outcome.text)


# Concurrency


async def test_at_most_so_many_run_and_the_rest_wait_in_order(tmp_path: Path):
    """First come, first served; whoever is cancelled while waiting is passed over."""
    gates = [Gate() for _ in range(5)]
    order = []

    @skill_command(concurrency=2)
    async def limited(n: int):
        order.append(n)
        await gates[n].pass_()

    async with (
        Runtime.open(tmp_path) as runtime,
        calling(runtime, *((limited, {"n": n}) for n in range(5))) as tasks,
    ):
        assert [0, 1] == order
        tasks[2].cancel()
        await settle()
        gates[1].open.set()
        await tasks[1]
        await settle()
        assert [0, 1, 3] == order
        gates[0].open.set()
        await tasks[0]
        await settle()
        assert [0, 1, 3, 4] == order


async def test_a_slot_that_was_handed_to_a_cancelled_call_goes_on(tmp_path: Path):
    """Cancelling in the very moment of the hand-over loses no slot."""
    gate, order = Gate(), []

    @skill_command(concurrency=1)
    async def limited(n: int):
        order.append(n)
        if not n:
            await gate.pass_()

    async with Runtime.open(tmp_path) as runtime, calling(runtime, *((limited, {"n": n}) for n in range(3))) as tasks:
        gate.open.set()
        await until(tasks[0].done)
        tasks[1].cancel()
        assert "ok" == (await tasks[2]).kind
        assert 2 in order


async def test_a_command_whose_thread_is_late_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The thread, which got no processor, takes its work after the deadline."""
    runs = []

    @skill_command(timeout=0.01)
    def command():
        runs.append(1)

    async def late(_: Threads, function: Callable[[], Any], **_options: Any) -> Any:
        time.sleep(0.02)  # noqa: ASYNC251 - the loop stands still as well
        return function()

    monkeypatch.setattr(Threads, "run", late)
    async with Runtime.open(tmp_path) as runtime:
        assert "timeout" == (await call(runtime, command)).kind
    assert not runs


async def test_a_thread_that_is_left_behind_counts_for_concurrency(tmp_path: Path):
    """The next call begins when the thread has ended."""
    began, gate, log = threading.Event(), threading.Event(), list[str]()

    @skill_command(concurrency=1)
    def command(name: str) -> None:
        log.append(f"{name} begins")
        began.set()
        gate.wait(PATIENCE)
        log.append(f"{name} ends")

    async with Runtime.open(tmp_path) as runtime, calling(runtime, (command, {"name": "one"})) as [one]:
        await until(began.is_set)
        one.cancel()
        await settle()
        two = asyncio.ensure_future(call(runtime, command, {"name": "two"}))
        await settle()
        assert ["one begins"] == log
        gate.set()
        with anyio.fail_after(PATIENCE):
            await two
    assert ["one begins", "one ends", "two begins", "two ends"] == log


@pytest.mark.parametrize("kind", ["async", "inline", "thread"])
async def test_a_command_does_not_begin_after_its_deadline(tmp_path: Path, kind: str):
    """The loop, which got no processor meanwhile, has not noticed yet that the time is up."""
    runs = []

    async def late() -> str:
        time.sleep(0.02)  # noqa: ASYNC251 - the loop stands still
        return "late"

    async def on_loop(given: Annotated[Any, Inject("late")]):
        runs.append(given)

    def in_thread(given: Annotated[Any, Inject("late")]):
        runs.append(given)

    command = (
        skill_command(timeout=0.01)(on_loop)
        if kind == "async"
        else skill_command(timeout=0.01, thread=False if kind == "inline" else None)(in_thread)
    )
    async with Runtime.open(tmp_path) as runtime:
        runtime._services.injectables.provide("late", late, lifetime="call")
        assert "timeout" == (await call(runtime, command)).kind
    assert not runs


async def test_waiting_for_a_slot_counts_as_time(tmp_path: Path):
    """The deadline starts with the call, not with the run."""
    gate = Gate()

    @skill_command(concurrency=1, timeout=0.5)
    async def limited(wait: bool):
        if wait:
            with anyio.CancelScope(shield=True):
                await gate.pass_()

    async with (
        Runtime.open(tmp_path) as runtime,
        calling(runtime, (limited, {"wait": True}), (limited, {"wait": False})) as tasks,
    ):
        assert "timeout" == (await tasks[1]).kind
        gate.open.set()


def test_slots_are_shared_by_all_event_loops(tmp_path: Path):
    """One limit for one command, whoever calls from wherever; a loop that ended while waiting is passed over."""
    running, may_end = threading.Event(), threading.Event()

    @skill_command(concurrency=1)
    def limited(first: bool) -> bool:
        running.set()
        return may_end.wait(PATIENCE) if first else may_end.is_set()

    runtime = Runtime(tmp_path)
    declared = declaration_of(limited)
    answers = []

    def from_another_loop(first: bool) -> None:
        answers.append(runtime.call_direct_sync(declared, (first,), {})["structuredContent"]["result"])

    first = threading.Thread(target=from_another_loop, args=(True,))
    first.start()
    assert running.wait(PATIENCE)
    gone = asyncio.new_event_loop()
    waiting = gone.create_task(runtime.call_direct(declared, (False,), {}))
    gone.call_later(0, gone.stop)
    gone.run_forever()

    async def second() -> Any:
        task = asyncio.ensure_future(runtime.call_direct(declared, (False,), {}))
        await settle()
        may_end.set()
        return await task

    gone.close()
    result = asyncio.run(second())
    first.join(PATIENCE)
    assert [True] == answers
    assert result["structuredContent"]["result"] is True
    assert not waiting.done()
    runtime.close()


# Cache


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_result_is_kept_for_its_time(tmp_path: Path):
    """A hit runs nothing and shows in `_meta`; after `cache_ttl` seconds the command runs again."""
    runs, clock = [], Clock()

    @skill_command(cache_ttl=10)
    async def cached(n: int) -> int:
        runs.append(n)
        return n

    async with Runtime.open(tmp_path, timer=clock) as runtime:
        first = await call(runtime, cached, {"n": 1})
        clock.now = 9.9
        hit = await call(runtime, cached, {"n": 1})
        clock.now = 10.1
        late = await call(runtime, cached, {"n": 1})
    assert [1, 1] == runs
    assert [False, True, False] == [first.cached, hit.cached, late.cached]
    assert "_meta" not in first.payload()
    assert {"prowess/cached": True} == hit.payload()["_meta"]
    assert first.payload()["content"] == hit.payload()["content"]


async def test_equal_arguments_are_one_key(tmp_path: Path):
    """The key is made of validated arguments, with defaults filled in, in whatever order and spelling they came."""
    runs = []

    @skill_command(cache_ttl=60)
    async def cached(a: int, b: dict[str, int], c: str = "x") -> int:
        runs.append(a)
        return a

    async with Runtime.open(tmp_path) as runtime:
        for arguments in (
            {"a": 1, "b": {"p": 1, "q": 2}},
            {"b": {"q": 2, "p": 1}, "a": 1},
            {"a": "1", "b": {"p": 1, "q": "2"}, "c": "x"},
        ):
            assert 1 == (await call(runtime, cached, arguments)).value
        assert [1] == runs
        await call(runtime, cached, {"a": 1, "b": {"p": 1, "q": 2}, "c": "y"})
        assert [1, 1] == runs


async def test_further_positional_arguments_are_part_of_the_key(tmp_path: Path):
    """`*args` can only come from Python, and make another call all the same."""

    @skill_command(cache_ttl=60)
    async def cached(a: int, *rest: int) -> int:
        return a + sum(rest)

    async with Runtime.open(tmp_path):
        assert [1, 3, 4, 3] == [
            (await cached(*args))["structuredContent"]["result"] for args in ((1,), (1, 2), (1, 3), (1, 2))
        ]


@pytest.mark.parametrize("flaw", ["raise", "is_error", "output"])
async def test_only_successes_are_kept(tmp_path: Path, flaw: str):
    """A failure of whatever kind is tried anew by the next call."""
    runs = []

    @skill_command(cache_ttl=60, output_schema={"type": "integer"})
    async def failing():
        runs.append(1)
        if flaw == "raise":
            raise ValueError
        return {"content": [{"type": "text", "text": "no"}], "isError": True} if flaw == "is_error" else "no integer"

    async with Runtime.open(tmp_path) as runtime:
        kinds = [(await call(runtime, failing)).kind for _ in range(2)]
    assert 2 == len(runs)
    assert "ok" not in kinds


async def test_what_a_caller_does_to_a_result_harms_no_other(tmp_path: Path):
    """Everybody gets a copy: who ran it, who waited for it, who hit it."""
    gate = Gate()

    @skill_command(cache_ttl=60)
    async def cached() -> dict[str, list[int]]:
        await gate.pass_()
        return {"list": [1]}

    async with Runtime.open(tmp_path) as runtime, calling(runtime, (cached, None), (cached, None)) as tasks:
        gate.open.set()
        outcomes = [await tasks[0], await tasks[1], await call(runtime, cached), await call(runtime, cached)]
        for outcome in outcomes:
            assert {"list": [1]} == outcome.value
            outcome.value["list"].append(2)


async def test_content_is_copied_as_well(tmp_path: Path):
    """Blocks, structured content and `_meta` of a payload that was returned whole."""

    @skill_command(cache_ttl=60)
    async def cached():
        block = {"type": "text", "text": "hello"}
        return {"content": [block], "isError": False, "structuredContent": {"a": [1]}, "_meta": {"m": [1]}}

    async with Runtime.open(tmp_path) as runtime:
        for _ in range(3):
            payload = (await call(runtime, cached)).payload()
            assert ("hello", {"a": [1]}, [1]) == (
                payload["content"][0]["text"],
                payload["structuredContent"],
                payload["_meta"]["m"],
            )
            payload["content"][0]["text"] = "changed"
            payload["structuredContent"]["a"].append(2)
            payload["_meta"]["m"].append(2)


def test_the_cache_is_bounded_in_bytes():
    """What was used longest ago goes first, and what is larger than everything is not kept at all."""
    cache = Cache(60, 5000, Clock())
    cache.put("a", Result(text="a" * 1500))
    cache.put("b", Result(text="é" * 750))
    assert cache.get("a") is not None
    cache.put("c", Result(value=list(range(500)), blocks=({"type": "text", "text": ""},)))
    assert [True, False, True] == [cache.get(key) is not None for key in "abc"]
    cache.put("a", Result(text="x" * 9000))
    assert cache.get("a") is None
    assert cache.get("c") is not None


async def test_identical_calls_in_flight_share_one_run(tmp_path: Path):
    """One runs, the others wait for it; progress and log reach all who wait; other arguments run by themselves."""
    gate = Gate()
    heard: list[list[Any]] = [[], []]

    @skill_command(cache_ttl=60)
    async def shared(n: int, ctx: Context) -> int:
        ctx.log("info", "started")
        ctx.progress(1)
        await gate.pass_(n)
        ctx.progress(2)
        return n

    channels = [
        Channel(
            progress=lambda done, total, message, i=i: heard[i].append(done),
            log=lambda level, message, i=i: heard[i].append(message),
        )
        for i in range(2)
    ]
    async with Runtime.open(tmp_path) as runtime, calling(runtime, (shared, {"n": 2})) as (other,):
        tasks = []
        for channel in channels:
            tasks.append(asyncio.ensure_future(call(runtime, shared, {"n": 1}, channel)))
            await settle()
        assert [2, 1] == gate.runs
        gate.open.set()
        outcomes = await asyncio.gather(*tasks)
        assert [(1, False, 1), (1, True, 1)] == [(o.value, o.cached, o.attempts) for o in outcomes]
        assert 2 == (await other).value
    assert [["started", 1, 2], [2]] == heard


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_cancelling_one_of_those_who_wait_harms_no_other(tmp_path: Path, which: int):
    """Not even the one that began it."""
    gate = Gate()

    @skill_command(cache_ttl=60)
    async def shared() -> str:
        return await gate.pass_("done")

    async with Runtime.open(tmp_path) as runtime, calling(runtime, *[(shared, None)] * 3) as tasks:
        tasks.pop(which).cancel()
        await settle()
        gate.open.set()
        assert ["done", "done"] == [(await task).value for task in tasks]
        assert (1, []) == (len(gate.runs), gate.cancelled)


async def test_when_all_who_wait_are_cancelled_so_is_the_run(tmp_path: Path):
    """And the next call begins a new one, even while the old one is still ending."""
    gate = Gate()

    @skill_command(cache_ttl=60)
    async def shared() -> str:
        return await gate.pass_("done")

    async with Runtime.open(tmp_path) as runtime, calling(runtime, (shared, None), (shared, None)) as tasks:
        tasks[0].cancel()
        tasks[1].cancel()
        await asyncio.sleep(0)
        async with calling(runtime, (shared, None)) as (again,):
            assert ["done"] == gate.cancelled
            gate.open.set()
            assert "done" == (await again).value
    assert 2 == len(gate.runs)


async def test_an_error_of_a_run_that_nobody_waits_for_is_no_news(tmp_path: Path):
    """A body that answers its cancellation with an error leaves no warning behind."""
    gate = Gate()

    @skill_command(cache_ttl=60)
    async def stubborn():
        try:
            await gate.pass_("run")
        except asyncio.CancelledError:
            raise ValueError("torn") from None

    async with Runtime.open(tmp_path) as runtime, calling(runtime, (stubborn, None)) as (task,):
        task.cancel()
        await settle()
        assert ["run"] == gate.cancelled


async def test_a_failure_is_shared_too(tmp_path: Path):
    """Everybody who waited hears of it, with the attempts it took."""
    gate, runs = Gate(), []

    @skill_command(cache_ttl=60, retry_on=ValueError)
    async def failing():
        runs.append(1)
        await gate.pass_()
        raise ValueError("all")

    async with (
        Runtime.open(tmp_path, flags=AT_ONCE) as runtime,
        calling(runtime, (failing, None), (failing, None)) as tasks,
    ):
        gate.open.set()
        outcomes = [await task for task in tasks]
    assert 3 == len(runs)
    assert [("retryable", 3, False)] * 2 == [(o.kind, o.attempts, o.cached) for o in outcomes]


async def test_a_shared_run_has_a_deadline_of_its_own(tmp_path: Path):
    """It ends with it, and so do those who wait for it."""
    gate = Gate()

    @skill_command(cache_ttl=60, timeout=PATIENCE)
    async def endless():
        await gate.pass_("run")

    async with Runtime.open(tmp_path) as runtime, calling(runtime, (endless, None), (endless, None)) as tasks:
        time_is_up()
        assert ["timeout", "timeout"] == [(await task).kind for task in tasks]
        await settle()
        assert (["run"], 1) == (gate.cancelled, len(gate.runs))


async def test_whoever_joins_late_has_a_deadline_of_their_own():
    """The call that began the run times out, and the run goes on for those whose time has not passed."""
    gate, calls = Gate(), list[Call]()

    async def run(call: Call) -> Result:
        calls.append(call)
        return Result(text=await gate.pass_("done"))

    step = with_cache(run, Cache(60, 1000, time.monotonic), lambda call: "key", 60)

    async def begin() -> Result:
        calls.append(Call("skill.shared", Arguments({})))
        return await step(calls[-1])

    tasks = []
    for _ in range(3):
        tasks.append(asyncio.ensure_future(begin()))
        await settle()
    first, shared, second, third = calls
    assert shared.deadline == pytest.approx(third.deadline)
    for late, rest in ((first, third), (third, second)):
        assert late.time is not None
        late.time.move(-math.inf)
        await settle()
        assert shared.time is rest.time
        assert not shared.cancelled
    for task in (tasks[0], tasks[2]):
        with pytest.raises(Expired, match="timed out after 60 s"):
            await task
    gate.open.set()
    assert "done" == (await tasks[1]).text
    assert (1, []) == (len(gate.runs), gate.cancelled)


async def test_a_call_with_a_substitute_has_a_deadline_too(tmp_path: Path):
    """It shares no run."""

    @skill_command(cache_ttl=60, timeout=0.5)
    async def endless(ctx: Context):
        await anyio.sleep_forever()

    async with Runtime.open(tmp_path):
        assert "timeout" == (await endless(ctx=None))["_meta"]["prowess/kind"]


async def test_an_abandoned_shared_run_in_a_thread_is_told(tmp_path: Path):
    """One caller gives up, the other stays: only when both are gone is the run `cancelled`."""
    seen, go_on = [], threading.Semaphore(0)

    @skill_command(cache_ttl=60)
    def shared(ctx: Context):
        for _ in range(2):
            go_on.acquire(timeout=PATIENCE)
            seen.append(ctx.cancelled)

    async with Runtime.open(tmp_path) as runtime, calling(runtime, (shared, None), (shared, None)) as tasks:
        tasks[0].cancel()
        await settle()
        go_on.release()
        await until(lambda: seen)
        tasks[1].cancel()
        await settle()
        go_on.release()
        await until(lambda: not runtime.abandoned_threads)
    assert [False, True] == seen


async def test_injected_values_are_no_part_of_the_key(tmp_path: Path):
    """Two runtimes' worth of values, one key: it is the arguments that count."""
    runs = []

    class Numbers:
        value = 1

    @skill_command(cache_ttl=60)
    async def cached(numbers: Numbers) -> int:
        runs.append(numbers.value)
        return numbers.value

    async with Runtime.open(tmp_path, overrides={Numbers: Numbers()}) as runtime:
        assert 1 == (await call(runtime, cached)).value
        other = Numbers()
        other.value = 2
        with runtime.override(Numbers, other):
            assert 1 == (await call(runtime, cached)).value
        assert [1] == runs
        # What a Python caller passes explicitly is a substitute, and none of the cache's business.
        assert 2 == (await cached(numbers=other))["structuredContent"]["result"]
        assert 1 == (await cached())["structuredContent"]["result"]
    assert [1, 2] == runs


async def test_secrets_of_a_shared_run_are_masked_for_everybody(tmp_path: Path):
    """Who only waited did not inject anything, and must not show it either."""
    gate = Gate()

    @skill_command(cache_ttl=60, inject_settings=["api.key"])
    async def failing(api_key: str):
        await gate.pass_()
        raise ValueError(f"bad key {api_key}")

    async with (
        Runtime.open(tmp_path, flags={"api.key": "s3cr3t"}) as runtime,
        calling(runtime, (failing, None), (failing, None)) as tasks,
    ):
        gate.open.set()
        for task in tasks:
            assert (await task).text.startswith("ValueError: bad key *** (call ")


async def test_a_shared_run_that_something_else_cancels_is_a_crash(tmp_path: Path):
    """A cancellation that nobody who waits asked for is an outcome, and no cancellation of theirs."""

    @skill_command(cache_ttl=60)
    async def shared():
        asyncio.current_task().cancel()
        await anyio.sleep_forever()

    async with Runtime.open(tmp_path) as runtime:
        with anyio.fail_after(PATIENCE):
            outcome = await call(runtime, shared)
    assert "crashed" == outcome.kind


async def test_each_event_loop_has_its_own_flights_and_one_cache(tmp_path: Path):
    """A run cannot be awaited from another loop; its result can be had from everywhere."""
    runs = []

    @skill_command(cache_ttl=60)
    def cached(n: int) -> int:
        runs.append(n)
        return n

    async with Runtime.open(tmp_path) as runtime:
        assert 1 == (await call(runtime, cached, {"n": 1})).value
        payload = await asyncio.to_thread(cached, 1)
        assert {"prowess/cached": True} == payload["_meta"]
        assert "1" == json.loads(json.dumps(payload))["content"][0]["text"]
    assert [1] == runs


async def test_a_hit_opens_no_resource(tmp_path: Path):
    """Neither does a wrong argument: validation and the cache come first."""
    opened = []
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "db.py").write_text(
        "from prowess import hookimpl\nclass Db:\n    opened = []\n"
        "def make():\n    Db.opened.append(1)\n    yield Db()\n"
        "@hookimpl\ndef prowess_injectables(provide):\n    provide(Db, make, lifetime='call', name='db')\n"
    )

    @skill_command(cache_ttl=60)
    async def cached(n: int, db: Any = Inject("db")) -> int:  # noqa: B008 - a marker
        opened[:] = type(db).opened
        return n

    async with Runtime.open(tmp_path) as runtime:
        runtime.catalog()
        assert "input" == (await call(runtime, cached, {"n": "x"})).kind
        assert [] == opened
        for _ in range(2):
            assert 1 == (await call(runtime, cached, {"n": 1})).value
    assert [1] == opened


@pytest.fixture
def mended_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Task groups as in a worker."""
    monkeypatch.setattr(asyncio.TaskGroup, "__aexit__", asyncio.TaskGroup.__aexit__)  # restored at the end
    groups.mend()


@pytest.mark.usefixtures("mended_groups")
@pytest.mark.parametrize("how", [asyncio.TaskGroup, anyio.create_task_group])
@pytest.mark.parametrize("number", [1, 2])
async def test_errors_of_a_task_group_are_retried(tmp_path: Path, how: Callable[[], Any], number: int):
    """Before Python 3.13, a group that fails while its task waits for it leaves the task cancelled."""
    seen: list[bool] = []

    async def fail():
        raise ValueError

    async def fails(group: Any):
        for _ in range(number):
            group.create_task(fail()) if how is asyncio.TaskGroup else group.start_soon(fail)

    @skill_command(retry_on=ValueError, max_attempts=3)
    async def grouped(ctx: Context) -> int:
        seen.append(ctx.cancelled)
        async with how() as group:
            await fails(group)
        return 1

    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime:
        outcome = await call(runtime, grouped)
    assert ("retryable", 3) == (outcome.kind, outcome.attempts)
    assert [False] * 3 == seen


@pytest.mark.usefixtures("mended_groups")
async def test_a_task_group_that_ends_well_is_left_as_it_is(tmp_path: Path):
    """So is one whose task was cancelled from outside: that counts."""
    waits = asyncio.Event()

    @skill_command
    async def grouped(how: str) -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(0, number)) for number in (1, 2)]
            if how == "forever":
                waits.set()
                await asyncio.Event().wait()
        return [task.result() for task in tasks]

    async with Runtime.open(tmp_path) as runtime:
        assert [1, 2] == (await call(runtime, grouped, {"how": "well"})).value
        async with calling(runtime, (grouped, {"how": "forever"})) as [task]:
            await waits.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_a_group_with_another_error_is_not_retried(tmp_path: Path):
    @skill_command(retry_on=ValueError)
    def grouped():
        raise ExceptionGroup("two", [ValueError(), KeyError()])

    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime:
        outcome = await call(runtime, grouped)
    assert ("crashed", 1) == (outcome.kind, outcome.attempts)


@pytest.mark.usefixtures("mended_groups")
async def test_a_caught_error_of_a_task_group_cancels_nothing(tmp_path: Path):
    async def fail():
        raise ValueError

    @skill_command
    async def patient(ctx: Context) -> bool:
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        return ctx.cancelled

    async with Runtime.open(tmp_path) as runtime:
        assert (await call(runtime, patient)).value is False
