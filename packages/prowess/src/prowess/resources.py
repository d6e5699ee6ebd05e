"""Things that are opened for an owner and closed in reverse order. Knows neither types nor who needs what.

Whatever may block runs in a worker thread. Closing goes on whatever happens, and what fails there is only logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import traceback
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import PurePath
from typing import Any, Final, TypeAlias

import anyio

from prowess.execution import apart, is_cancellation
from prowess.threads import Raised, Threads

__all__ = ["Resources"]

_CLOSING: Final = 5.0
"""Seconds that one thing gets to close."""
_log = logging.getLogger("prowess")
_Close: TypeAlias = Callable[[BaseException | None], Any]


class Resources:
    """What one owner, a call or a runtime, has opened."""

    def __init__(self, owner: str, threads: Threads, shown: Callable[[str], str] = str) -> None:
        self._owner = owner
        self._threads = threads
        self._shown = shown
        self._closers: list[_Close] = []

    def __bool__(self) -> bool:
        """Whether there is anything to close."""
        return bool(self._closers)

    async def open(self, make: Callable[[], Any], *, blocks: bool = True) -> tuple[Any, bool]:
        """Make a thing, open it where it is to be opened, and say whether it belongs to this event loop.

        A generator yields the thing and then cleans up; a context manager is entered; what can be awaited is awaited.
        `blocks=False` vouches that `make` returns at once.
        """
        try:
            return await self._open(make, blocks=blocks)
        except BaseException as error:
            if is_cancellation(error):
                raise
            raise apart(error) from error

    async def _open(self, make: Callable[[], Any], *, blocks: bool) -> tuple[Any, bool]:
        if blocks:
            made, manager = await self._threads.run(lambda: _entered(make), late=_leave, label=self._owner)
            if manager is not None:
                self._closers.append(lambda error: self._threads.run(lambda: _left(manager, error)))
                return made, False
        else:
            made = make()
        if inspect.isawaitable(made):
            made = await made
        elif not (inspect.isasyncgen(made) or _is_entered(made, "__aenter__")):
            return made, False
        return await self._open_async(made), True

    async def _open_async(self, made: Any) -> Any:
        """What belongs to the event loop that it was made on."""
        manager = _of_async_generator(made) if inspect.isasyncgen(made) else made
        if _is_entered(manager, "__aenter__"):
            value = await manager.__aenter__()
            self._closers.append(lambda error: manager.__aexit__(*_triple(error)))
            return value
        return (await self._open(lambda: made, blocks=True))[0] if _is_entered(made, "__enter__") else made

    def add(self, end: Callable[[], Any]) -> None:
        """Something to do when the rest is closed; what it returns is awaited where it can be."""

        async def close(_: BaseException | None) -> None:
            ended = end()
            if inspect.isawaitable(ended):
                await ended

        self._closers.append(close)

    async def close(self, error: BaseException | None = None) -> None:
        """Close everything. What was opened sees the error that its owner came to, to roll back."""
        error = error.error if isinstance(error, Raised) else error
        cancelled: BaseException | None = None
        while self._closers:
            try:
                await self._close_one(self._closers.pop(), error)
            except (
                asyncio.CancelledError
            ) as now:  # a native one, which no shield keeps off: the rest still has to close
                cancelled = now
        if cancelled is not None:
            raise cancelled

    async def _close_one(self, close: _Close, error: BaseException | None) -> None:
        try:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLOSING) as scope:
                await close(error)
            if scope.cancelled_caught:
                _log.warning("closing what was provided for %s took more than %g s", self._owner, _CLOSING)
        except BaseException as failed:
            if is_cancellation(failed):
                raise
            cause = failed.error if isinstance(failed, Raised) else failed
            if cause is not error:  # what the owner came to passes through, and is not ours to report
                trace = self._shown("".join(traceback.format_exception(cause)))
                _log.warning("closing what was provided for %s failed\n%s", self._owner, trace)


def _entered(make: Callable[[], Any]) -> tuple[Any, Any]:
    """In a thread: a thing, and its context manager where it is one that a thread can enter."""
    made = make()
    manager = _of_generator(made) if inspect.isgenerator(made) else made
    if _is_entered(manager, "__enter__") and not _is_entered(manager, "__aenter__"):
        return manager.__enter__(), manager
    return made, None


def _leave(entered: tuple[Any, Any]) -> None:
    """In a thread: close what was opened too late, when nobody waited for it any more."""
    made, manager = entered
    if manager is not None:
        manager.__exit__(None, None, None)
    elif inspect.iscoroutine(made):
        made.close()


def _left(manager: contextlib.AbstractContextManager[Any], error: BaseException | None) -> None:
    manager.__exit__(*_triple(error))


def _is_entered(made: object, way: str) -> bool:
    """Whether a thing is to be entered. A lock is not: it would be held for good. Nor is a path, where that does nothing."""
    kind = type(made)
    return hasattr(kind, way) and not hasattr(kind, "acquire") and not isinstance(made, PurePath)


def _of_generator(generator: Generator[Any, Any, Any]) -> Any:
    return contextlib.contextmanager(lambda: generator)()


def _of_async_generator(generator: AsyncGenerator[Any, Any]) -> Any:
    return contextlib.asynccontextmanager(lambda: generator)()


def _triple(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)
