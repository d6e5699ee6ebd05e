"""Running a function once: on the loop or in a thread, to its value. Tells exceptions of the body from being cancelled."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, cast

import anyio.to_thread

from prowess.call import Call
from prowess.errors import InputRequired
from prowess.signature import Style

__all__ = ["BodyError", "Threads", "body_error", "runner"]


class BodyError(Exception):
    """Carries what a body raised, of whatever kind, so that it cannot be taken for a cancellation or an exit of ours."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Threads:
    """Worker threads of one event loop, and how many run on although nobody waits for them any more."""

    def __init__(self, most: int) -> None:
        self.limiter = anyio.CapacityLimiter(most)
        self.abandoned = 0


def runner(style: Style, function: Callable[..., Any], *, thread: bool) -> Callable[..., Any]:
    """An async callable `(call, threads, args, kwargs)` that runs the function once and gives its value."""
    if style == "async":
        return functools.partial(_on_loop, function)
    if style == "async generator":
        return functools.partial(_on_loop_collecting, function)
    blocking = functools.partial(_collect, function) if style == "generator" else functools.partial(_plain, function)
    return functools.partial(_in_thread, blocking) if thread else functools.partial(_inline, blocking)


async def _on_loop(
    function: Callable[..., Any], _call: Call, _threads: Threads, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    try:
        return await function(*args, **kwargs)
    except BaseException as error:
        raise body_error(error) from error


async def _on_loop_collecting(
    function: Callable[..., AsyncGenerator[Any]],
    call: Call,
    _threads: Threads,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> list[Any]:
    try:
        generator = function(*args, **kwargs)
        items: list[Any] = []
        try:
            async for item in generator:
                items.append(item)
                _report(call, items)
        finally:
            await generator.aclose()
    except BaseException as error:
        raise body_error(error) from error
    return items


def _plain(function: Callable[..., Any], _call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def _collect(
    function: Callable[..., Generator[Any, None, Any]], call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """All that a generator yields, or what it returns where it returns something."""
    generator = function(*args, **kwargs)
    items: list[Any] = []
    try:
        while True:
            if call.cancelled.is_set():
                raise InterruptedError("nobody waits for this call any more")
            try:
                items.append(next(generator))
            except StopIteration as stop:
                return items if stop.value is None else stop.value
            _report(call, items)
    finally:
        generator.close()


def _report(call: Call, items: list[Any]) -> None:
    """Each yield is progress; a text that is yielded is also what the client may show."""
    newest = items[-1]
    call.report(max(len(items), call.done_before + 1), None, newest if isinstance(newest, str) else None)


async def _inline(
    blocking: Callable[..., Any], call: Call, _threads: Threads, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    try:
        return blocking(call, args, kwargs)
    except BaseException as error:
        raise body_error(error) from error


async def _in_thread(
    blocking: Callable[..., Any], call: Call, threads: Threads, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """In a worker thread, which is left behind when the call is cancelled: Python cannot stop a thread."""
    running = True

    def body() -> tuple[bool, Any]:
        nonlocal running
        try:
            return True, blocking(call, args, kwargs)
        except BaseException as error:  # noqa: BLE001 - a thread must hand everything over, exits included
            return False, error
        finally:
            running = False

    try:
        done, value = await anyio.to_thread.run_sync(body, limiter=threads.limiter, abandon_on_cancel=True)
    except BaseException:
        call.cancelled.set()
        if running:
            threads.abandoned += 1
        raise
    if done:
        return value
    error = cast("BaseException", value)
    if isinstance(error, InputRequired):
        raise error
    raise BodyError(error) from error


def body_error(error: BaseException) -> BaseException:
    """What to raise for an exception of the body: itself where it is a real cancellation or control flow."""
    control = _only(error, InputRequired)
    if control is not None:
        return control
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return error
    return BodyError(_unwrapped(error))


def _only(error: BaseException, wanted: type[BaseException]) -> BaseException | None:
    if isinstance(error, wanted):
        return error
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return next((found for item in group.exceptions if (found := _only(item, wanted))), None)
    return None


def _unwrapped(error: BaseException) -> BaseException:
    """The one exception inside a group of one: what a task group makes of an ordinary error."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        if len(group.exceptions) != 1:
            break
        error = group.exceptions[0]
    return error
