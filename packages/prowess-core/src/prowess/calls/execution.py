"""Runs a function once, on the loop or in a thread, and distinguishes its exceptions from cancellation."""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import CoroutineType
from typing import Any, Final, TypeAlias, cast

from prowess.calls.channel import Call
from prowess.calls.threads import Raised, Threads, stuck
from prowess.contracts.signature import Style
from prowess.errors import InputRequired

__all__ = ["Run", "apart", "is_cancellation", "runner"]

Run: TypeAlias = Callable[[Call, "list[Any]", "dict[str, Any]"], Awaitable[Any]]
"""Runs a function once with positional and named arguments, and returns its value."""
_VALUES: Final = frozenset({str, int, float, bool, type(None), dict, list})
"""Types that are certainly values: neither generators nor awaitables."""
_EXPIRED: Final = object()
"""What a thread returns instead of running the function of an overdue call."""


def runner(style: Style, function: Callable[..., Any], threads: Threads, *, thread: bool, final: bool = False) -> Run:
    """How to run a function: async functions on the loop, sync ones in a thread, or on the loop without `thread`.

    `final` says that the result of a generator is what it returns, even if that is `None`.
    """
    if style in ("async", "async generator"):
        return functools.partial(_on_loop, function, threads, final=final)
    return functools.partial(_in_thread if thread else _inline, function, threads, final=final)


async def _on_loop(
    function: Callable[..., Any], threads: Threads, call: Call, args: list[Any], kwargs: dict[str, Any], *, final: bool
) -> Any:
    if call.is_overdue:
        await call.expire()
    try:
        value = function(*args, **kwargs)
        if type(value) is CoroutineType:
            value = await cast("Awaitable[Any]", value)
        return await _finished(value, call, threads, final=final) if _is_unfinished(value) else value
    except BaseException as error:
        if is_cancellation(error):
            raise
        raise apart(error) from error


async def _in_thread(
    function: Callable[..., Any], threads: Threads, call: Call, args: list[Any], kwargs: dict[str, Any], *, final: bool
) -> Any:
    """Run in a thread, which is abandoned if the call is cancelled."""

    def body() -> Any:
        if not call.enter_thread():
            return _EXPIRED
        try:
            return _collected(function(*args, **kwargs), call, final=final)
        finally:
            call.leave_thread()

    try:
        value = await (call.lane or threads).run(body, late=_discard, label=call.id)
        if value is _EXPIRED:
            await call.expire()
    except Raised as error:
        raise apart(error) from error
    except asyncio.CancelledError:
        call.hang_up()
        raise
    return await _on_loop(lambda: value, threads, call, [], {}, final=final) if _is_unfinished(value) else value


async def _inline(
    function: Callable[..., Any], threads: Threads, call: Call, args: list[Any], kwargs: dict[str, Any], *, final: bool
) -> Any:
    if call.is_overdue:
        await call.expire()
    try:
        with stuck():
            value = _collected(function(*args, **kwargs), call, final=final)
    except BaseException as error:  # raised by the body, since nothing was awaited here
        raise apart(error) from error
    return await _on_loop(lambda: value, threads, call, [], {}, final=final) if _is_unfinished(value) else value


# Generators and awaitables, which a plain function may return too


def _is_unfinished(value: object) -> bool:
    if type(value) in _VALUES:
        return False
    return _has(value, "__await__") or _has(value, "__anext__") or _has(value, "__next__")


def _has(value: object, method: str) -> bool:
    return hasattr(type(value), method)


async def _finished(value: Any, call: Call, threads: Threads, *, final: bool) -> Any:
    """Await awaitables and collect generators: async ones on the loop, sync ones in a thread."""
    while True:
        if _has(value, "__await__"):
            value = await cast("Awaitable[Any]", value)
        elif _has(value, "__anext__"):
            value = await _collected_async(value, call)
        elif _has(value, "__next__"):
            value = await _in_thread(_itself, threads, call, [value], {}, final=final)
        else:
            return value


def _itself(value: Any) -> Any:
    return value


def _collected(value: Any, call: Call, *, final: bool) -> Any:
    """The items of an iterator, the content of a buffer or a binary file, or the return value of a generator.

    A generator without a return value gives its items, unless it is `final`. Other values are unchanged.
    """
    if not _has(value, "__next__"):
        return value
    if isinstance(value, (io.BytesIO, io.StringIO)):
        return value.getvalue()  # whatever its position is
    if isinstance(value, io.IOBase) and not isinstance(value, io.TextIOBase):
        with value:
            return cast("Any", value).read()  # lines of bytes say nothing
    iterator = cast("Iterator[Any]", value)
    items: list[Any] = []
    try:
        while True:
            if call.cancelled:
                raise InterruptedError("the caller of this call no longer waits for it")
            items.append(next(iterator))
            _report(call, items[-1])
    except StopIteration as stop:
        return items if stop.value is None and not final else stop.value
    finally:
        _discard(iterator)


async def _collected_async(iterator: AsyncIterator[Any], call: Call) -> list[Any]:
    items: list[Any] = []
    try:
        async for item in iterator:
            items.append(item)
            _report(call, item)
    finally:
        if inspect.isasyncgen(iterator):
            await iterator.aclose()
    return items


def _report(call: Call, item: Any) -> None:
    """Report a yielded item as one step of progress, with the item as the message if it is a text."""
    call.report(None, None, item if isinstance(item, str) else None)


def _discard(value: object) -> None:
    """Close a generator or coroutine that will not be finished."""
    if inspect.isgenerator(value) or inspect.iscoroutine(value):
        value.close()


# Cancellation or exception


def is_cancellation(error: BaseException) -> bool:
    """Whether an exception in a coroutine is a real cancellation, or the closing of the coroutine."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    # Closing a coroutine from outside raises this at its `await`, after the inner frames have ended.
    return isinstance(error, GeneratorExit) and error.__traceback__ is not None and error.__traceback__.tb_next is None


def apart(error: BaseException) -> BaseException:
    """The exception to raise for an exception of the body: control flow unchanged, everything else wrapped."""
    if isinstance(error, Raised):
        error = error.error
    questions = {key: question for control in _controls(error) for key, question in control.questions.items()}
    if questions:
        return InputRequired(questions)
    while len(parts := _parts(error)) == 1:  # a task group wraps an ordinary error
        error = parts[0]
    return Raised(error)


def _controls(error: BaseException) -> list[InputRequired]:
    if isinstance(error, InputRequired):
        return [error]
    return [found for part in _parts(error) for found in _controls(part)]


def _parts(error: BaseException) -> tuple[BaseException, ...]:
    """The exceptions of a group; none for any other exception."""
    group = cast("BaseExceptionGroup[BaseException]", error) if isinstance(error, BaseExceptionGroup) else None
    return group.exceptions if group is not None else ()
