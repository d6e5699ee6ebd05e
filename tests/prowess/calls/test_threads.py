"""Worker threads: how many, who waits, and what becomes of those that nobody waits for."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import sys
import threading
import time
import weakref
from functools import partial
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from patience import PATIENCE
from refused import no_more_threads
from tests.prowess.embedded import until

from prowess.calls import threads as module
from prowess.calls.threads import Raised, Threads
from prowess.errors import SkillError


class Held:
    """Something that may be large."""

    def __init__(self, *others: object) -> None:
        self.others = others


class Job:
    """A function that says when it runs, and runs until it may end."""

    def __init__(self, value: Any = None) -> None:
        self.value = value
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self) -> Any:
        self.begun.set()
        assert self.may_end.wait(PATIENCE)
        return self.value


async def begun(job: Job) -> None:
    with anyio.fail_after(PATIENCE):
        await until(job.begun.is_set)


async def gone(threads: Threads) -> None:
    with anyio.fail_after(PATIENCE):
        await until(lambda: not threads.abandoned)


async def abandoned(threads: Threads, job: Job, **options: Any) -> None:
    """Begin a job and cancel who waits for it."""
    task = asyncio.ensure_future(threads.run(job, **options))
    await begun(job)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_function_runs_elsewhere_and_gives_its_value():
    """In a daemon thread, which is used again."""
    threads = Threads(4)
    first, second = [await threads.run(threading.current_thread) for _ in range(2)]
    assert first is not threading.current_thread()
    assert first.daemon
    assert first is second


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), StopIteration(), asyncio.CancelledError()])
async def test_whatever_is_raised_arrives_carried(error: BaseException):
    """So that it cannot be taken for an exit or a cancellation of the caller's."""

    def fail() -> None:
        raise error

    with pytest.raises(Raised) as caught:
        await Threads(1).run(fail)
    assert error is caught.value.error


async def test_the_context_goes_along_but_for_the_event_loop(monkeypatch: pytest.MonkeyPatch):
    """A library that asks sniffio, where that is installed, learns that there is no loop in the thread."""
    variable = contextvars.ContextVar("variable", default=0)
    library = contextvars.ContextVar[str | None]("library", default=None)
    monkeypatch.setitem(sys.modules, "sniffio", SimpleNamespace(current_async_library_cvar=library))
    variable.set(7)
    library.set("asyncio")
    assert (7, None) == await Threads(1).run(lambda: (variable.get(), library.get()))
    assert "asyncio" == library.get()
    monkeypatch.delitem(sys.modules, "sniffio")
    assert "asyncio" == await Threads(1).run(library.get)


async def test_those_that_find_no_thread_free_wait_in_order():
    """A job that is cancelled while it waits never runs."""
    threads, order = Threads(1), []
    first = Job()
    running = asyncio.ensure_future(threads.run(first))
    await begun(first)
    tasks = [asyncio.ensure_future(threads.run(lambda n=n: order.append(n))) for n in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.sleep(0)
    first.may_end.set()
    await asyncio.gather(running, *tasks, return_exceptions=True)
    assert [0, 2, 3] == order
    assert 0 == len(threads.abandoned)


async def test_a_thread_that_is_left_behind_counts_no_more():
    """Another one takes its place at once, and it is known by its label until it ends."""
    threads = Threads(1)
    stuck = Job()
    task = asyncio.ensure_future(threads.run(stuck))
    await begun(stuck)
    waiting = asyncio.ensure_future(threads.run(lambda: "free"))
    await asyncio.sleep(0)
    task.cancel()
    with anyio.fail_after(PATIENCE):
        assert "free" == await waiting
    assert 1 == len(threads.abandoned)
    stuck.may_end.set()
    await gone(threads)
    assert "again" == await threads.run(lambda: "again")


async def test_a_value_that_comes_too_late_is_taken_care_of():
    """In the thread; an error that comes too late is nobody's business."""
    threads = Threads(1)
    cared: list[Any] = []
    job = Job("late")
    await abandoned(threads, job, late=lambda value: cared.append((value, threading.current_thread().name)))
    job.may_end.set()
    await gone(threads)
    assert [("late", "prowess")] == cared

    failing = Job()
    failing.may_end = None  # type: ignore[assignment] # waiting on it raises
    task = asyncio.ensure_future(threads.run(failing, late=cared.append))
    task.cancel()
    await asyncio.wait([task])
    await gone(threads)
    assert 1 == len(cared)


async def test_a_value_that_arrives_with_the_cancellation_is_taken_care_of():
    """It was made, but whoever was to have it is cancelled before it wakes."""
    threads, cared = Threads(1), threading.Event()
    made = threading.Event()
    task = asyncio.ensure_future(threads.run(made.set, late=lambda _: cared.set()))
    await asyncio.sleep(0)
    assert made.wait(PATIENCE)
    while not threads._idle:  # until the thread has handed over
        pass
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(cared.wait, PATIENCE)


async def test_a_care_that_fails_is_logged(caplog: pytest.LogCaptureFixture):
    """The thread ends as it should."""
    threads, job = Threads(1), Job()

    def careless(_: Any) -> None:
        raise SystemExit(1)

    await abandoned(threads, job, late=careless, label="the thing")
    job.may_end.set()
    await gone(threads)
    assert ["cleaning up after the thing failed"] == caplog.messages


def test_a_job_may_outlive_the_loop_it_was_asked_on(caplog: pytest.LogCaptureFixture):
    """What it returns is then too late, too."""
    threads, job, cared = Threads(1), Job(), threading.Event()
    loop = asyncio.new_event_loop()
    task = loop.create_task(threads.run(job, late=lambda _: cared.set()))
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert job.begun.wait(PATIENCE)
    loop.close()
    job.may_end.set()
    assert cared.wait(PATIENCE)
    assert not task.done()
    gone = threading.Event()
    weakref.finalize(task, gone.set)
    del task, loop, threads, job
    end = time.monotonic() + PATIENCE
    while not gone.is_set() and time.monotonic() < end:  # its thread may still hold it
        gc.collect()
    assert "Task was destroyed" in caplog.text  # here, and not in the log of another test


async def test_idle_threads_end(monkeypatch: pytest.MonkeyPatch):
    """So that a burst of calls leaves nothing behind."""
    monkeypatch.setattr(module, "_IDLE", 0.01)
    threads = Threads(4)
    thread = await threads.run(threading.current_thread)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [] == threads._idle
    assert "again" == await threads.run(lambda: "again")


async def test_a_job_given_at_the_last_moment_is_done(monkeypatch: pytest.MonkeyPatch):
    """A thread that was about to end for idleness, and got a job meanwhile, does it."""
    threads = Threads(4)
    worker = module._Worker()
    job = module._Job(lambda: None, lambda _: None, "")
    worker.jobs.put(job)
    assert job is threads._last_chance(worker)


async def test_an_idle_thread_holds_nothing_of_what_it_did():
    """Neither what it was given, first or later, nor what it gave: both may be large."""
    threads = Threads(1)
    for _ in range(2):
        given = Held()
        value = await threads.run(partial(Held, given))
        held = [weakref.ref(given), weakref.ref(value)]
        del given, value
        await until(lambda held=held: all(each() is None for each in held))


async def test_everything_can_run_where_it_is_asked_for():
    """Near its end the interpreter starts no thread any more; those that idle are used up first."""
    threads = Threads(2)
    idle = await threads.run(threading.current_thread)
    await until(lambda: threads._idle)
    threads.stay_inline()
    assert idle is await threads.run(threading.current_thread)
    threads = Threads(2)
    threads.stay_inline()
    assert threading.current_thread() is await threads.run(threading.current_thread)


async def test_a_job_that_was_cancelled_before_its_thread_began_it_never_runs():
    """Its thread is not left behind, and goes on with the next one."""
    threads, ran, following = Threads(1), [], Job("next")
    job = module._Job(lambda: ran.append(1), ran.append, "")
    threads._running = 1
    threads._abandon(job)
    next_one = asyncio.ensure_future(threads.run(following))
    await asyncio.sleep(0)
    worker = module._Worker()
    worker.jobs.put(job)
    threading.Thread(target=threads._work, args=(worker,), daemon=True).start()
    await begun(following)
    assert ([], 0) == (ran, len(threads.abandoned))
    following.may_end.set()
    assert "next" == await next_one


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of Python 3.12: what is tested is discouraged
@pytest.mark.parametrize(
    ("error", "code"),
    [(None, 0), (SystemExit(), 0), (SystemExit(3), 3), (SystemExit("why"), 1), (ValueError("odd"), 1)],
)
async def test_a_child_that_a_function_has_forked_ends_when_the_function_does(error: BaseException | None, code: int):
    """The parent may wait for it, and no thread of ours would ever end it."""

    def fork() -> int:
        pid = os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if error is not None:
            raise error
        return -1

    assert code == await Threads(1).run(fork)


# A system that refuses threads


async def test_a_job_without_a_thread_is_refused_with_the_way_out():
    """It can be tried again. A job of a lane as well."""
    for runner in (Threads(2), Threads(2).lane("calls")):
        with no_more_threads(), pytest.raises(Raised) as raised:
            await runner.run(lambda: 1)
        assert isinstance(raised.value.error, SkillError)
        assert raised.value.error.retryable
        assert "ulimit -u" in str(raised.value.error)
        assert 1 == await runner.run(lambda: 1)


async def test_a_job_that_gets_no_thread_of_its_own_waits_for_another_one():
    threads = Threads(2)
    job = Job()
    first = asyncio.ensure_future(threads.run(job))
    await begun(job)
    with no_more_threads():
        second = asyncio.ensure_future(threads.run(lambda: 2))
        await asyncio.sleep(0)
    assert not second.done()
    job.may_end.set()
    assert [None, 2] == await asyncio.gather(first, second)


async def test_a_job_that_waits_goes_on_when_an_abandoned_thread_ends():
    """None could be started in its place."""
    threads = Threads(1)
    job = Job()
    first = asyncio.ensure_future(threads.run(job))
    await begun(job)
    second = asyncio.ensure_future(threads.run(lambda: 2))
    await asyncio.sleep(0)
    with no_more_threads():
        first.cancel()
        await asyncio.wait([first])
    job.may_end.set()
    with anyio.fail_after(PATIENCE):
        assert 2 == await second


async def test_what_is_left_over_is_cleaned_up_without_a_thread(monkeypatch: pytest.MonkeyPatch):
    """In the thread of the loop, because nothing else is there."""
    monkeypatch.setattr(module, "_IDLE", 0.001)
    threads = Threads(1)
    cleaned: list[Any] = []
    task = asyncio.ensure_future(threads.run(lambda: 1, late=cleaned.append))
    await asyncio.sleep(0)
    latest = time.monotonic() + PATIENCE
    while threads._running and time.monotonic() < latest:  # nobody hears of the result before the loop goes on
        time.sleep(0.001)  # noqa: ASYNC251 - as above
    with no_more_threads():
        task.cancel()
        await asyncio.wait([task])
        threads.lane("end").post(lambda: cleaned.append(2))
    assert [1, 2] == cleaned
