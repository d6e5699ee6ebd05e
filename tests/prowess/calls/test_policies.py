"""Deadline and concurrency, each seen from outside: by how often and when a command runs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from patience import PATIENCE, time_is_up
from tests.prowess.calls.gates import Gate, calling, settle
from tests.prowess.embedded import call, until

from prowess import Context, Inject, Runtime, SkillError, skill_command
from prowess.calls.threads import Threads
from prowess.contracts.declaration import declaration_of

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
            assert 1 == len(runtime.abandoned)
            may_end.set()
            assert await asyncio.to_thread(told.wait, PATIENCE)
            await until(lambda: not runtime.abandoned)


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
        outcome = await tasks[1]
        assert "timeout" == outcome.kind
        assert outcome.text.endswith(" timed out after 0.5 s; it waited for its turn and never began")
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
