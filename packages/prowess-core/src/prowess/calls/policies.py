"""Deadline, cache, concurrency and retry. Each wraps a step of the call; they are composed once, when a command is loaded."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

import anyio

from prowess.calls.channel import Arguments, Call, Withdrawn
from prowess.calls.closing import is_closing
from prowess.calls.deadline import Deadlines
from prowess.calls.threads import Raised
from prowess.errors import SkillError
from prowess.frozen import frozen
from prowess.jsontypes import copied
from prowess.results.normalize import Result

if TYPE_CHECKING:
    import tenacity
    from cachetools import TTLCache

__all__ = [
    "Backoff",
    "Cache",
    "Expired",
    "Sharing",
    "Step",
    "cache_key",
    "is_named",
    "with_cache",
    "with_concurrency",
    "with_deadline",
    "with_retry",
]

T = TypeVar("T")
Step: TypeAlias = Callable[[Call], Awaitable[Result]]
"""One layer around the function: takes the call, returns the canonical result or raises."""

_OVERHEAD = 512
"""Bytes of a result besides its texts, roughly."""


class Expired(Exception):
    """The deadline of the call passed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s")


def with_deadline(step: Step, seconds: float) -> Step:
    """One deadline for everything after validation. A `TimeoutError` of the body is an ordinary exception."""

    async def run(call: Call) -> Result:
        deadlines = Deadlines.of(call.loop)
        call.time = deadlines.begin(seconds)
        try:
            with call.time.scope:
                return await step(call)
        except Raised as raised:
            # The body may turn its cancellation into an error of its own. Only a `SkillError` is on purpose.
            if not call.time.is_over or isinstance(raised.error, SkillError):
                raise
            raise Expired(seconds) from raised.error
        finally:
            deadlines.end(call.time)
        raise Expired(seconds)

    return run


def with_concurrency(step: Step, most: int) -> Step:
    """Run at most this many calls at once, on all event loops together; others wait in order.

    A call that nobody waits for any more counts until its thread has ended.
    """
    slots = _Slots(most)

    async def run(call: Call) -> Result:
        await slots.take(call)
        try:
            return await step(call)
        finally:
            call.when_idle(slots.give_back)

    return run


class _Slots:
    """A semaphore for several event loops. A free slot goes to the call that has waited longest."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._lock = threading.Lock()

    async def take(self, call: Call) -> None:
        loop = call.loop
        with self._lock:
            if self._free:
                self._free -= 1
                return
            mine = loop, loop.create_future()
            self._waiting.append(mine)
        call.channel.waits()
        try:
            await mine[1]
            call.take_turn()
        except (asyncio.CancelledError, Withdrawn):
            self._leave(mine)
            call.why_late = "; it waited for its turn and never began"
            raise

    def give_back(self) -> None:
        with self._lock:
            while self._waiting:
                loop, future = self._waiting.popleft()
                try:
                    loop.call_soon_threadsafe(_wake, future)
                except RuntimeError:  # that loop is closed, and so is the waiting call
                    continue
                return
            self._free += 1

    def _leave(self, mine: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]) -> None:
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return
        self.give_back()  # the slot was assigned just before the cancellation


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@frozen
class Backoff:
    """The wait between attempts: exponential from `initial` to `maximum` seconds, with a jitter of up to `initial`."""

    initial: float
    maximum: float

    def wait(self) -> tenacity.wait.wait_base:
        """The wait for tenacity. The jitter spreads calls that failed at the same time."""
        import tenacity  # 20 ms, paid only by commands that retry

        growing = tenacity.wait_exponential(multiplier=self.initial, max=self.maximum)
        return growing + tenacity.wait_random(0, min(self.initial, self.maximum))


def with_retry(
    step: Callable[[Call], Awaitable[T]],
    retry_on: tuple[type[Exception], ...],
    max_attempts: int,
    backoff: Backoff,
    on_retry: Callable[[Call, int, BaseException], None],
) -> Callable[[Call], Awaitable[T]]:
    """Repeat a step that failed with one of the named exceptions.

    `on_retry` is called after every failed attempt that another one follows, with the call, the number and the error.
    """
    import tenacity

    def is_worth_it(error: BaseException) -> bool:
        task = asyncio.current_task()
        goes_on = task is None or not task.cancelling()  # a cancelled call must not start another attempt
        return goes_on and isinstance(error, Raised) and is_named(error.error, retry_on)

    def report_retry(state: tenacity.RetryCallState) -> None:
        error = cast("tenacity.Future", state.outcome).exception()
        on_retry(state.args[0], state.attempt_number, cast("Raised", error).error)

    retrying = tenacity.AsyncRetrying(
        sleep=anyio.sleep,
        before_sleep=report_retry,
        stop=tenacity.stop_after_attempt(max_attempts),
        wait=backoff.wait(),
        retry=tenacity.retry_if_exception(is_worth_it),
        reraise=True,
    )

    async def attempt(call: Call) -> T:  # tenacity awaits only functions declared as async
        return await step(call)

    async def run(call: Call) -> T:
        return await retrying.copy()(attempt, call)  # a copy: one keeps the state of one call

    return run


def is_named(error: BaseException, retry_on: tuple[type[Exception], ...]) -> bool:
    """Whether `retry_on` names an exception, or every exception of a group."""
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).split(retry_on)[1] is None
    return isinstance(error, retry_on)


class Cache:
    """Successful results of one command, bounded in bytes and in time. Safe to use from several threads."""

    def __init__(self, seconds: float, most_bytes: int, timer: Callable[[], float]) -> None:
        from cachetools import TTLCache

        self._kept: TTLCache[Hashable, Result] = TTLCache(most_bytes, seconds, timer, _weight)
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Result | None:
        """A copy of a result, so that a caller cannot change the cached one."""
        with self._lock:
            kept: Result | None = self._kept.get(key)
        return None if kept is None else _copied(kept)

    def put(self, key: Hashable, result: Result) -> None:
        """Store a copy, unless it is larger than the whole cache."""
        copy = _copied(result)
        with self._lock:
            try:
                self._kept[key] = copy
            except ValueError:  # too large
                self._kept.pop(key, None)


def _weight(result: Result) -> int:
    parts = () if result.blocks is None else (result.value, *result.blocks)
    return _OVERHEAD + len(result.text.encode()) + sum(len(json.dumps(part)) for part in (*parts, result.meta))


def _copied(result: Result) -> Result:
    blocks = None if result.blocks is None else tuple(copied(block) for block in result.blocks)
    return replace(result, value=copied(result.value), blocks=blocks, meta=copied(result.meta))


class _Flight:
    """One execution for several identical calls, in its own call and task.

    Each call waits until its own deadline. The execution continues while at least one call waits, even if the call that
    started it is cancelled or times out.
    """

    def __init__(
        self, first: Call, fly: Callable[[Call], Coroutine[Any, Any, Result]], abandoned: set[Hashable]
    ) -> None:
        self._abandoned = abandoned
        self.aboard: list[Call] = []
        channel = replace(
            first.channel,
            call_id=first.id,
            progress=self._progress,
            log=self._log,
            background=None,
            waits=self._waits,
            goes_on=self._goes_on,
        )
        arguments = Arguments(first.arguments.named, first.arguments.extra_args)
        self.call = Call(first.command, arguments, channel, may_ask=False)
        # No factory makes this task: an eager one would run it before anybody waits for it.
        self.task = self.call.task = asyncio.Task(fly(self.call), loop=first.loop)
        self.task.add_done_callback(_retrieve_exception)

    def _waits(self) -> None:
        for call in self.aboard:
            call.channel.waits()

    def _goes_on(self) -> bool:
        """Whether a call still waits. The one that started the execution may be withdrawn."""
        return any([call.channel.goes_on() for call in self.aboard])  # noqa: C419 - all of them begin

    def _progress(self, done: float, total: float | None, message: str | None) -> None:
        for call in self.aboard:
            call.report(done, total, message)

    def _log(self, level: str, message: Any) -> None:
        for call in self.aboard:
            call.log(level, message)

    async def board(self, call: Call, close: Callable[[], object]) -> Result:
        """Wait for the execution with the other calls. It is cancelled when the last of them leaves."""
        shared = bool(self.aboard)
        self.aboard.append(call)
        self.call.time = call.time  # the execution gets the deadline of the last call, which is the latest
        try:
            result = await asyncio.shield(self.task)
        finally:
            self.aboard = [other for other in self.aboard if other is not call]
            call.attempts, call.why_late, call.secrets = self.call.attempts, self.call.why_late, self.call.secrets
            if self.aboard:
                self.call.time = self.aboard[-1].time
            elif not self.task.done():
                close()  # no call may join an execution that is about to be cancelled
                self._give_up()
        call.cached = shared or self.call.cached
        return _copied(result) if shared else result

    def _give_up(self) -> None:
        """Cancel the execution, and count it while it runs on: the command may swallow its cancellation."""
        if not is_closing(self.task):
            self.task.cancel()
        self._abandoned.add(self.task)
        self.task.add_done_callback(self._abandoned.discard)


class Sharing(NamedTuple):
    """Shares the results of one command with other hosts."""

    key_of: Callable[[Call, Hashable], Awaitable[str]]
    """Makes the key of a call for all hosts from its local key; empty if its result must not be shared."""
    seconds: int
    """Seconds that a result is valid, in whole numbers as the engine counts them; with 0, nothing is shared."""

    async def run(self, step: Step, call: Call, key: Hashable) -> Result:
        """Take the result of another host, or wait while one computes it; else run the command and share the result."""
        others = call.channel.shared
        name = await self.key_of(call, key) if others is not None and self.seconds else ""
        if others is None or not name:
            return await step(call)
        found = Result.from_json(await others.find(name))
        if found is not None:
            call.cached = True
            return found
        kept = b""
        try:
            result = await step(call)
            if not result.is_error:
                kept = result.to_json()
            return result
        finally:
            others.keep(name, kept, self.seconds)


def with_cache(
    step: Step,
    cache: Cache,
    key_of: Callable[[Call], Hashable],
    seconds: float,
    *,
    abandoned: set[Hashable],
    sharing: Sharing | None = None,
) -> Step:
    """Answer from the cache, else share one execution among identical calls in flight, here and on other hosts.

    `step` has no deadline of its own: every call has one from its own start. `abandoned` gets the executions that run on
    after the last of their calls.
    """
    flights: dict[Hashable, _Flight] = {}

    async def run(call: Call) -> Result:
        if call.arguments.injected:  # Python code passed a substitute for an injected object: do not share the result
            return await with_deadline(step, seconds)(call)
        key = key_of(call)
        kept = cache.get(key)
        if kept is not None:
            call.cached = True
            return kept
        return await with_deadline(lambda call: share(call, key), seconds)(call)

    async def share(call: Call, key: Hashable) -> Result:
        place = call.loop, key
        flight = flights.get(place)
        joins = flight is not None
        call.channel.waits()  # for a turn of the loop, which another call may block
        if flight is None:
            flight = flights[place] = _Flight(call, lambda call: fly(call, key), abandoned)
        result = await flight.board(call, lambda: flights.pop(place))
        if joins:  # the call that started the execution took its turn there
            call.take_turn()
        return result

    async def fly(call: Call, key: Hashable) -> Result:
        place = call.loop, key
        try:
            call.take_turn()
            result = await (step(call) if sharing is None else sharing.run(step, call, key))
            if not result.is_error and not call.cached:  # the age of a result from another host is unknown here
                cache.put(key, result)
            return result
        finally:
            call.over = True
            if place in flights and flights[place].call is call:
                del flights[place]

    return run


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve an exception that no call waits for, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()


def cache_key(values: Any) -> Hashable:
    """A text that is equal for equal arguments, independent of the order of keys."""
    return json.dumps(values, sort_keys=True)
