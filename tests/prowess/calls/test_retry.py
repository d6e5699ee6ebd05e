"""Retry, seen from outside: by how often and when a command runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from patience import PATIENCE, time_is_up
from tests.prowess.calls.gates import AT_ONCE, Gate, calling, settle
from tests.prowess.embedded import call

from prowess import Context, Runtime, SkillError, skill_command
from prowess.calls import groups
from prowess.calls.policies import Backoff


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
    """A back-off that would outlast the deadline ends with it, and the message says what it waited for."""

    @skill_command(retry_on=ValueError, timeout=PATIENCE)
    async def patient():
        asyncio.get_running_loop().call_soon(time_is_up)
        raise ValueError("busy")

    async with Runtime.open(tmp_path, flags={"retry": {"initial": PATIENCE, "maximum": PATIENCE}}) as runtime:
        with anyio.fail_after(PATIENCE):
            outcome = await call(runtime, patient)
    assert ("timeout", 1) == (outcome.kind, outcome.attempts)
    assert f"test_retry.patient timed out after {PATIENCE:g} s; attempt 1 failed: ValueError: busy" == outcome.text


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
