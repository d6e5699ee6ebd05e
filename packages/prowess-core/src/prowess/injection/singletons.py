"""Objects that live as long as the runtime, each made once, at its first use. The caller supplies the factory.

An object that belongs to an event loop is made once for each loop. Its own task opens and closes it, because some objects
must be closed in the task that opened them; so it ends with its loop at the latest. All loops share all other objects.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from prowess.calls.execution import is_cancellation
from prowess.injection.scopes import Resources

__all__ = ["Make", "Singletons"]

Make: TypeAlias = Callable[[Resources], Awaitable["tuple[Any, bool]"]]
"""Makes an object with its resources, and returns whether it belongs to the event loop."""

_CLOSING: Final = 6.0
"""Seconds to wait for the task of one object: a little more than its resources get."""


@dataclass(slots=True, eq=False)
class _Thing:
    loop: asyncio.AbstractEventLoop
    """The event loop that made it."""
    resources: Resources
    ready: Future[None] = field(default_factory=Future[None])
    task: asyncio.Task[None] = field(init=False)
    value: Any = None
    error: BaseException | None = None
    bound: bool = False
    gone: bool = False
    """Whether it is closed, about to be closed, or was never made."""

    def serves(self, loop: asyncio.AbstractEventLoop) -> bool:
        return not self.gone and (self.loop is loop or not self.bound)


class Singletons:
    """Safe to use from several event loops and threads."""

    def __init__(self, resources: Callable[[], Resources]) -> None:
        self._resources = resources
        self._things: dict[Hashable, _Thing] = {}
        """Shared and unfinished objects by key, bound ones by loop and key, in the order of their making."""
        self._lock = threading.Lock()

    async def get(self, key: Hashable, make: Make) -> tuple[Any, bool]:
        """The object of a key, and whether it belongs to this event loop.

        If a caller is cancelled, the object is still made.
        """
        loop = asyncio.get_running_loop()
        while True:
            thing = self._found(loop, key) or self._begin(loop, key, make)
            if not thing.ready.done():
                if thing.loop.is_closed():
                    self._forget(thing, key)
                    continue
                await asyncio.wrap_future(thing.ready)
            if thing.error is not None:
                raise thing.error
            if thing.serves(loop):
                return thing.value, thing.bound

    def _found(self, loop: asyncio.AbstractEventLoop, key: Hashable) -> _Thing | None:
        for place in ((loop, key), key):
            thing = self._things.get(place)
            if thing is not None and not thing.gone:
                return thing
        return None

    def _begin(self, loop: asyncio.AbstractEventLoop, key: Hashable, make: Make) -> _Thing:
        with self._lock:
            thing = self._found(loop, key)  # another thread may have made it
            if thing is None:
                thing = self._things[key] = _Thing(loop, self._resources())
                thing.ready.set_running_or_notify_cancel()  # so that no waiting caller can cancel it
                # No factory makes this task: an eager one would run it here, and it needs the lock.
                thing.task = asyncio.Task(self._live(thing, key, make), loop=loop)
        return thing

    def _forget(self, thing: _Thing, key: Hashable) -> None:
        """Forget an object whose loop was closed while it was being made. Another one is made for everybody who waits."""
        with self._lock:
            if thing.gone:
                return
            thing.gone = True
            del self._things[key]
        thing.ready.set_result(None)

    async def _live(self, thing: _Thing, key: Hashable, make: Make) -> None:
        try:
            thing.value, thing.bound = await make(thing.resources)
        except GeneratorExit:  # its loop was closed, and nothing can be awaited any more
            raise
        except BaseException as error:  # noqa: BLE001 - raised in all tasks that wait
            await self._fail(thing, key, error)
            return
        place = (thing.loop, key) if thing.bound else key
        with self._lock:
            del self._things[key]
            self._things.pop(place, None)  # moves it to the end
            self._things[place] = thing
        thing.ready.set_result(None)
        if thing.bound:
            await self._stay(thing, place)

    async def _fail(self, thing: _Thing, key: Hashable, error: BaseException) -> None:
        cancelled = is_cancellation(error)
        thing.gone, thing.error = True, None if cancelled else error
        with self._lock:
            del self._things[key]
        await thing.resources.close(error)
        thing.ready.set_result(None)
        if cancelled:
            raise error

    async def _stay(self, thing: _Thing, place: Hashable) -> None:
        """Keep an object until the runtime or the loop ends. Later objects, which may need it, are closed first."""
        try:
            await thing.loop.create_future()
        finally:
            thing.gone = True
            await self._those_after(thing)
            await thing.resources.close()
            with self._lock:
                if self._things.get(place) is thing:  # unless another one was made meanwhile
                    del self._things[place]

    async def _those_after(self, thing: _Thing) -> None:
        with self._lock:
            things = list(self._things.values())
        later = [other.task for other in things[things.index(thing) + 1 :] if other.bound and other.loop is thing.loop]
        if later:
            await asyncio.wait(later, timeout=_CLOSING)

    async def aclose(self) -> None:
        """Close everything in reverse order: first the objects of event loops, then shared ones."""
        with self._lock:
            things = list(self._things.values())
        for thing in reversed(things):
            if thing.bound or not thing.ready.done():
                await self._end(thing)
        for thing in reversed(things):
            if not thing.gone:
                thing.gone = True
                await thing.resources.close()

    async def _end(self, thing: _Thing) -> None:
        """End the task of an object on its own loop. The objects of an ended loop are gone already."""
        if thing.loop is asyncio.get_running_loop():
            thing.task.cancel()
            await asyncio.wait([thing.task], timeout=_CLOSING)
        elif thing.loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._end(thing), thing.loop))
