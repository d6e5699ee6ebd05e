"""Deadline, cache, concurrency and retry: each wraps a step of the call, and they are composed once, at load."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import anyio
from anyio.lowlevel import RunVar
from cachetools import TTLCache

from prowess.call import Call
from prowess.execution import BodyError
from prowess.normalize import Result

__all__ = ["Backoff", "Cache", "Expired", "Step", "cache_key", "with_cache", "with_concurrency", "with_deadline", "with_retry"]

Step: TypeAlias = Callable[[Call], Awaitable[Result]]
"""One layer around the function: takes the call, gives the canonical result or raises."""

_OVERHEAD = 512


class Expired(Exception):  # noqa: N818 - turned into an outcome, never shown
    """The deadline of the call passed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s")
        self.seconds = seconds


def with_deadline(step: Step, seconds: float) -> Step:
    """One deadline over everything after validation. What the body raises by the name of `TimeoutError` is not it."""

    async def run(call: Call) -> Result:
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as call.scope:
            return await step(call)
        call.cancelled.set()
        raise Expired(seconds)

    return run


def with_concurrency(step: Step, most: int) -> Step:
    """At most so many at once on one event loop; the rest wait in order."""
    slots: RunVar[anyio.Semaphore] = RunVar("slots")

    async def run(call: Call) -> Result:
        try:
            semaphore = slots.get()
        except LookupError:
            semaphore = anyio.Semaphore(most)
            slots.set(semaphore)
        async with semaphore:
            return await step(call)

    return run


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait between attempts: exponential from `initial`, with jitter, never above `maximum` seconds."""

    initial: float
    maximum: float


def with_retry(step: Step, retry_on: tuple[type[Exception], ...], max_attempts: int, backoff: Backoff) -> Step:
    """Run again what failed with one of the named exceptions, and with no other."""
    import tenacity  # noqa: PLC0415 - 20 ms, paid only by commands that retry

    def worth_it(state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        call: Call = state.args[0]
        return isinstance(error, BodyError) and isinstance(error.error, retry_on) and not call.asked

    return tenacity.AsyncRetrying(
        sleep=anyio.sleep,
        stop=tenacity.stop_after_attempt(max_attempts),
        wait=tenacity.wait_exponential_jitter(initial=backoff.initial, max=backoff.maximum, jitter=backoff.initial),
        retry=worth_it,
        reraise=True,
    ).wraps(step)


class Cache:
    """Successful results of one command, bounded in bytes and in time."""

    def __init__(self, seconds: float, most_bytes: int, timer: Callable[[], float]) -> None:
        self._kept: TTLCache[Hashable, Result] = TTLCache(most_bytes, seconds, timer, _weight)

    def get(self, key: Hashable) -> Result | None:
        """A copy, so that nobody can change what the next one gets."""
        kept: Result | None = self._kept.get(key)
        return None if kept is None else _copied(kept)

    def put(self, key: Hashable, result: Result) -> None:
        """Keep a copy, unless it alone is larger than the whole cache."""
        if _weight(result) <= self._kept.maxsize:
            self._kept[key] = _copied(result)

    def clear(self) -> None:
        self._kept.clear()


def _weight(result: Result) -> int:
    blocks = sum(len(str(block)) for block in result.blocks or ())
    return len(result.text) + blocks + _OVERHEAD


def _copied(result: Result) -> Result:
    return replace(result, value=copy.deepcopy(result.value), blocks=copy.deepcopy(result.blocks))


@dataclass(slots=True)
class _Flight:
    """One execution that several identical calls wait for."""

    task: asyncio.Task[Result]
    call: Call
    waiting: int = 0


def with_cache(step: Step, cache: Cache, key_of: Callable[[Call], Hashable]) -> Step:
    """Answer from the cache, else share one execution among identical calls in flight."""
    flights: RunVar[dict[Hashable, _Flight]] = RunVar("flights")

    async def run(call: Call) -> Result:
        call.may_ask = False
        key = key_of(call)
        kept = cache.get(key)
        if kept is not None:
            call.cached = True
            return kept
        try:
            flying = flights.get()
        except LookupError:
            flying = {}
            flights.set(flying)
        flight = flying.get(key)
        if flight is None:
            flight = flying[key] = _depart(step, call, cache, key, flying)
        return await _wait(flight, call, key, flying)

    return run


def _depart(
    step: Step, call: Call, cache: Cache, key: Hashable, flying: dict[Hashable, _Flight]
) -> _Flight:
    """Start the execution in a task of its own: the call that began it may be cancelled, the others still wait."""

    async def fly() -> Result:
        try:
            result = await step(call)
            if not result.is_error:
                cache.put(key, result)
            return result
        finally:
            if flying.get(key) is flight:
                del flying[key]

    flight = _Flight(asyncio.ensure_future(fly()), call)
    return flight


async def _wait(flight: _Flight, call: Call, key: Hashable, flying: dict[Hashable, _Flight]) -> Result:
    flight.waiting += 1
    try:
        result = await asyncio.shield(flight.task)
    finally:
        flight.waiting -= 1
        if not flight.waiting and not flight.task.done():
            flying.pop(key, None)  # nobody may board what is about to be cancelled
            flight.task.cancel()
    call.attempts = flight.call.attempts
    if call is flight.call:
        return result
    call.cached = True
    return _copied(result)


def cache_key(values: Any) -> Hashable:
    """One text for equal arguments, in whatever order their keys came."""
    return json.dumps(values, sort_keys=True)
