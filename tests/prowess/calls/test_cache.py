"""The cache, seen from outside: by how often and when a command runs."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from patience import PATIENCE, time_is_up
from tests.prowess.calls.gates import AT_ONCE, Gate, calling, settle
from tests.prowess.embedded import call, injectables, until

from prowess import Context, Inject, Runtime, skill_command
from prowess.calls.channel import Arguments, Call, Channel
from prowess.calls.policies import Cache, Expired, with_cache, with_concurrency
from prowess.results.normalize import Result


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

    step = with_cache(run, Cache(60, 1000, time.monotonic), lambda call: "key", 60, abandoned=set())

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
        await until(lambda: not runtime.abandoned)
    assert [False, True] == seen


async def test_a_run_that_swallows_its_cancellation_is_counted(tmp_path: Path):
    """Nobody waits for it any more, and its host must not take it for ended."""
    gate = Gate()

    @skill_command(cache_ttl=60)
    async def stubborn():
        try:
            await gate.pass_()
        except asyncio.CancelledError:
            await gate.open.wait()

    async with Runtime.open(tmp_path) as runtime, calling(runtime, (stubborn, None)) as (task,):
        task.cancel()
        await asyncio.wait([task])
        await settle()
        assert (1, 1) == (len(gate.cancelled), len(runtime.abandoned))
        gate.open.set()
        await until(lambda: not runtime.abandoned)


async def test_a_run_closes_its_objects_undisturbed(tmp_path: Path):
    """Although nobody waits for it any more. Its result is cached."""
    gate, runs = Gate(), []

    class Thing:
        pass

    async def opened() -> AsyncIterator[Thing]:
        yield Thing()
        await gate.pass_("closed")

    @skill_command(cache_ttl=60)
    async def cached(thing: Thing) -> int:
        runs.append(1)
        return 7

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Thing, opened, lifetime="call")
        async with calling(runtime, (cached, None)) as (task,):
            await until(lambda: gate.runs)
            task.cancel()
            await asyncio.wait([task])
            gate.open.set()
            await until(lambda: not runtime.abandoned)
            assert [] == gate.cancelled
        assert (True, 7) == ((outcome := await call(runtime, cached)).cached, outcome.value)
    assert [1] == runs


async def test_the_others_go_on_where_the_first_call_is_withdrawn():
    """It was cancelled while the run that it had started waited for its turn."""
    gate, withdrawn = Gate(), set[str]()

    async def run(call: Call) -> Result:
        return Result(text=await gate.pass_(call.command))

    step = with_cache(
        with_concurrency(run, 1), Cache(60, 10_000, time.monotonic), lambda call: call.command, 60, abandoned=set()
    )

    async def begin(command: str, name: str) -> Result:
        channel = Channel(goes_on=lambda: name not in withdrawn)
        return await step(Call(command, Arguments({}), channel))

    tasks = []
    for command, name in (("busy", "a"), ("shared", "b"), ("shared", "c")):
        tasks.append(asyncio.ensure_future(begin(command, name)))
        await settle()
    withdrawn.add("b")
    tasks[1].cancel()
    gate.open.set()
    with anyio.fail_after(PATIENCE):
        assert ["busy", "shared"] == [(await task).text for task in (tasks[0], tasks[2])]
    assert ["busy", "shared"] == gate.runs


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
