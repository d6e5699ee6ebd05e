"""Opens objects for an owner and closes them in reverse order. Independent of types and of the users of an object.

A sync factory runs where its owner runs, which for a call is one thread; an async factory runs on the event loop. Each
object is closed where it was opened. Closing always continues with the next object; failures are logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import dis
import inspect
import logging
import traceback
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import PurePath
from typing import Any, Final, TypeAlias

import anyio

from prowess.calls.closing import closing
from prowess.calls.execution import apart, is_cancellation
from prowess.calls.threads import Lane, Raised, ThreadRunner, stuck

__all__ = ["Resources"]

_CLOSING: Final = 5.0
"""Seconds for closing one object."""
_HANDLER: Final = dis.opmap["PUSH_EXC_INFO"]
"""The instruction that every `except`, `finally` and `with` handler begins with."""
_log = logging.getLogger("prowess")
_Error: TypeAlias = BaseException | None
_Closer: TypeAlias = Callable[[_Error], Any]


class Resources:
    """The open objects of one owner, a call or a runtime."""

    def __init__(self, owner: str, lane: ThreadRunner, shown: Callable[[str], str] = str) -> None:
        self._owner = owner
        self._lane = lane
        self._shown = shown
        self._closers: list[tuple[_Closer, bool]] = []
        """The functions that close the objects, and whether they run in the lane, or on the loop."""

    def __bool__(self) -> bool:
        """Whether there is an object to close."""
        return bool(self._closers)

    async def open(self, make: Callable[[], Any], *, on_loop: bool = False) -> tuple[Any, bool]:
        """Make an object, open it, and return it with whether it belongs to this event loop.

        A generator yields the object and then cleans up; a context manager is entered; an awaitable is awaited. `on_loop`
        is for async factories, where `make` returns an awaitable.
        """
        try:
            made = make() if on_loop else await self._open_in_lane(make)
            if inspect.isawaitable(made):
                made = await made
            elif not on_loop and not (inspect.isasyncgen(made) or _is_entered(made, "__aenter__")):
                return made, False
            return await self._enter_on_loop(made), True
        except BaseException as error:
            if is_cancellation(error):
                raise
            raise apart(error) from error

    async def _open_in_lane(self, make: Callable[[], Any]) -> Any:
        made, manager = await self._lane.run(lambda: _entered(make), late=_leave)
        if manager is not None:
            self._closers.append((lambda error: _exit(manager, error), True))
        return made

    async def _enter_on_loop(self, made: Any) -> Any:
        manager = _managed(made)
        if _is_entered(manager, "__aenter__"):
            value = await manager.__aenter__()
            self._closers.append((lambda error: _exit_async(manager, error), False))
            return value
        if _is_entered(manager, "__enter__"):  # an async factory that returns a sync context manager
            with stuck():
                value = manager.__enter__()
            self._closers.append((lambda error: _exit_on_loop(manager, error), False))
            return value
        return made

    def add(self, end: Callable[[], Any], *, on_loop: bool) -> None:
        """Add a function to call when closing, in the lane, or on the loop, where its result is awaited."""

        async def close(_: _Error) -> None:
            ended = end()
            if inspect.isawaitable(ended):
                await ended

        self._closers.append((close, False) if on_loop else (lambda _: end(), True))

    async def close(self, error: _Error = None) -> None:
        """Close everything. The objects get the error of their owner, so that they can roll back."""
        error = error.error if isinstance(error, Raised) else error
        cancelled: BaseException | None = None
        while self._closers:
            closer, in_lane = self._closers.pop()
            try:
                await self._close_one(closer, in_lane, error)
            except asyncio.CancelledError as now:  # a native cancellation, which ignores shields: close the rest too
                cancelled = now
        if cancelled is not None:
            raise cancelled

    async def close_after(self, lane: Lane, error: _Error) -> None:
        """Close everything in the thread of a lane after its abandoned function has ended."""
        try:
            await lane.run(_nothing)
        except asyncio.CancelledError:  # the event loop ends first: the thread closes its own objects later
            closers, self._closers = self._closers, [item for item in self._closers if not item[1]]
            for closer, in_lane in reversed(closers):
                if in_lane:
                    lane.post(lambda closer=closer: closer(error))
            await self.close(error)
            raise
        else:
            await self.close(error)
        finally:
            lane.release()

    async def _close_one(self, closer: _Closer, in_lane: bool, error: _Error) -> None:
        lane = self._lane
        if isinstance(lane, Lane):
            lane.allow_closing(_CLOSING)
        try:
            with (
                closing(asyncio.current_task(), _CLOSING),
                anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLOSING) as scope,
            ):
                await (lane.run(lambda: closer(error)) if in_lane else closer(error))
            if scope.cancelled_caught:
                _log.warning("closing what was provided for %s took more than %g s", self._owner, _CLOSING)
                if in_lane and isinstance(lane, Lane):
                    lane.replace()  # its thread hangs: close the rest in another one
        except BaseException as failed:
            if is_cancellation(failed):
                raise
            cause = failed.error if isinstance(failed, Raised) else failed
            if cause is not error:  # the error of the owner passes through, and is reported elsewhere
                trace = self._shown("".join(traceback.format_exception(cause)))
                _log.warning("closing what was provided for %s failed\n%s", self._owner, trace)


def _nothing() -> None:
    """Does nothing. Running it in a thread shows that the earlier functions are done."""


def _entered(make: Callable[[], Any]) -> tuple[Any, Any]:
    """An object, with its sync context manager if it has one."""
    made = make()
    manager = _managed(made)
    if _is_entered(manager, "__enter__") and not _is_entered(manager, "__aenter__"):
        return manager.__enter__(), manager
    return made, None


def _leave(entered: tuple[Any, Any]) -> None:
    """Close an object that was opened after its caller was cancelled."""
    made, manager = entered
    if manager is not None:
        _exit(manager, None)
    elif inspect.iscoroutine(made):
        made.close()


def _managed(made: Any) -> Any:
    """The context manager of a generator; other values unchanged."""
    if inspect.isgenerator(made):
        return _of_generator(made)
    return _of_async_generator(made) if inspect.isasyncgen(made) else made


def _of_generator(generator: Generator[Any, Any, Any]) -> Any:
    return contextlib.contextmanager(lambda: generator)()


def _of_async_generator(generator: AsyncGenerator[Any, Any]) -> Any:
    return contextlib.asynccontextmanager(lambda: generator)()


def _is_entered(made: object, way: str) -> bool:
    """Whether to enter an object. A lock is not entered, because it would stay locked, nor is a path, where that has no effect."""
    kind = type(made)
    return hasattr(kind, way) and not hasattr(kind, "acquire") and not isinstance(made, PurePath)


# Closing. An exception is thrown into a generator only if a `try` or a `with` surrounds its `yield`. At a bare `yield`, it
# would only skip the clean-up below, so the generator continues there, and the error is the value of the `yield`: a factory
# can write `error = yield thing`.


def _exit(manager: Any, error: _Error) -> None:
    generator = _bare_generator(manager, error)
    if generator is None:
        manager.__exit__(*_triple(error))
        return
    try:
        generator.send(error)
    except StopIteration:
        return
    generator.close()
    raise RuntimeError(_TWICE)


async def _exit_async(manager: Any, error: _Error) -> None:
    generator = _bare_generator(manager, error)
    if generator is None:
        await manager.__aexit__(*_triple(error))
        return
    try:
        await generator.asend(error)
    except StopAsyncIteration:
        return
    await generator.aclose()
    raise RuntimeError(_TWICE)


async def _exit_on_loop(manager: Any, error: _Error) -> None:
    with stuck():
        _exit(manager, error)


_TWICE: Final = "a factory must yield once; this one yields again instead of cleaning up"


def _bare_generator(manager: object, error: _Error) -> Any:
    """The generator of a context manager of contextlib, if it must be resumed after an error; else `None`."""
    if error is None or type(manager).__module__ != "contextlib":
        return None
    generator = getattr(manager, "gen", None)
    if not (inspect.isgenerator(generator) or inspect.isasyncgen(generator)) or _is_guarded(generator):
        return None
    return generator


def _is_guarded(generator: Any) -> bool:
    """Whether the current `yield` of a generator is inside a `try` or a `with`, also in a generator that it delegates to."""
    is_async = inspect.isasyncgen(generator)
    frame, code = (generator.ag_frame, generator.ag_code) if is_async else (generator.gi_frame, generator.gi_code)
    if frame is None:  # it has ended
        return False
    # The exception table of the compiled code has the handler for each instruction.
    compiled: Any = dis.Bytecode(code)
    for entry in compiled.exception_entries:
        if entry.start <= frame.f_lasti < entry.end and code.co_code[entry.target] == _HANDLER:
            return True
    inner = None if is_async else generator.gi_yieldfrom
    return inner is not None and (not inspect.isgenerator(inner) or _is_guarded(inner))


def _triple(error: _Error) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)
