"""One call in progress: the data that policies, injection and context share. Independent of skills and protocols."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, Protocol, TypeAlias, cast

from prowess.calls.deadline import Deadline
from prowess.jsontypes import Json, JsonObject, encodable, new_object

__all__ = ["Arguments", "Call", "Channel", "Questions", "SharedResults", "Withdrawn"]

Questions: TypeAlias = "Mapping[str, JsonObject]"
"""The questions by key: for a form its `message` and `schema`."""

_SHORTEST_SECRET: Final = 4
_MOST_QUEUED: Final = 1000
"""Reports of threads that wait for a busy event loop. Beyond that, a new report replaces the previous one."""
_PROCESS: Final = os.urandom(4).hex()
_numbers: Final = itertools.count(1)


def _ignore(*_: Any) -> None:
    """The default of `Channel`, for a caller that ignores events."""


def _always() -> bool:
    """The default of `Channel`, for a caller that never withdraws a call."""
    return True


class Withdrawn(BaseException):
    """The caller withdrew the call while it waited for its turn, so the command has not run."""


class SharedResults(Protocol):
    """Results of cached commands that several hosts share. A key covers everything that a result depends on."""

    async def find(self, key: str) -> bytes:
        """A result. If it is empty, there is none: the asking call runs the command and calls `keep` with its result."""
        ...

    def keep(self, key: str, result: bytes, seconds: int) -> None:
        """Share a result for this many seconds; an empty one means that there is none."""
        ...


@dataclass(slots=True, kw_only=True, eq=False, repr=False)  # both would take time at every start, and nobody uses them
class Channel:
    """The way back from a running call to its caller. By default the caller does not listen."""

    call_id: str = ""
    """The id that the caller gave to the call. Without one, the call generates its own."""
    client_name: str = ""
    capabilities: JsonObject = field(default_factory=new_object)
    trace_id: str = ""
    metadata: JsonObject = field(default_factory=new_object)
    """The metadata that the caller sent for the command."""
    context: JsonObject = field(default_factory=new_object)
    """The caller's description of the task that the call belongs to."""
    progress: Callable[[float, float | None, str | None], None] = _ignore
    log: Callable[[str, Any], None] = _ignore
    ask: Callable[[Questions], Awaitable[Mapping[str, JsonObject]]] | None = None
    """Sends questions to the client and waits. `None` if the client does not support them."""
    asks: frozenset[str] = frozenset({"form"})
    """The kinds of questions that the client supports: see `prowess.calls.questions`."""
    url_done: Callable[[str], None] = _ignore
    """Called with the key of a page question when the page is finished."""
    background: Callable[[], None] | None = None
    """Continues the call in the background. `None` if the caller has to wait."""
    secrets: Callable[[list[str]], None] = _ignore
    """Called with the injected texts, which must not be shown."""
    wire: Mapping[str, str] = field(default_factory=new_object)
    """The connection of the client: `protocol`, the MCP revision, and `transport`. Empty for calls without MCP."""
    request_id: str = ""
    """The JSON-RPC id of the request, if it is known."""
    trace_context: Mapping[str, str] = field(default_factory=new_object)
    """`traceparent`, `tracestate` and `baggage`, as the client sent them."""
    answers: Mapping[str, JsonObject] | None = None
    """The answers of earlier runs, if a question ends the run; `None` if the call waits for answers."""
    uri: str = ""
    """For a resource: the requested URI."""
    updated: Callable[[str], None] = _ignore
    """Called with the URIs of changed resources."""
    waits: Callable[[], None] = _ignore
    """Called when the call begins to wait for its turn. Until `goes_on`, the caller may withdraw it."""
    goes_on: Callable[[], bool] = _always
    """Called when its turn has come; false if the caller has withdrawn it."""
    scopes: str = ""
    """The scopes that the caller is limited to, if any. Callers with different scopes share no cached results."""
    shared: SharedResults | None = None
    """The results of other hosts, in a cluster."""
    caller: Hashable = None
    """The identity of the caller, by which a host divides its capacity between callers."""


@dataclass(slots=True, eq=False, repr=False)  # as above
class Arguments:
    """Validated arguments for the function."""

    named: dict[str, Any]
    extra_args: tuple[Any, ...] = ()
    injected: dict[str, Any] = field(default_factory=new_object)
    """Injected parameters that the Python caller passed itself."""
    decoded: tuple[str, ...] = ()
    """Paths of arguments that were decoded from JSON text."""


class Call:
    """The state of one call. It belongs to one event loop; a command in a thread uses it from there."""

    attempts: int = 0
    cached: bool = False
    over: bool = False
    """Whether the call has an outcome or was cancelled. Later progress and logs are dropped."""
    uri: str = ""
    """For a resource: the requested URI."""
    time: Deadline | None = None
    """The deadline, once it has started."""
    lane: Any = None
    """The threads for the sync code of the call, if injected objects bind it to one."""
    _done: float | None = None
    """The last reported progress, which never decreases, even in another attempt."""
    _people: int = 0
    """The number of questions that wait for a person."""
    _left: float = 0.0
    """The remaining time when the first of them was asked."""
    _skipped: int = 0
    """Dropped steps of progress from threads. The next step includes them."""
    _lost_logs: int = 0
    """Dropped log messages from threads."""
    _in_background: bool = False
    why_late: str = ""
    """What the message of a timeout adds: the last attempt that failed, or what the call waited for."""

    def __init__(
        self, command: str, arguments: Arguments, channel: Channel | None = None, *, may_ask: bool = True
    ) -> None:
        self.command = command
        self.arguments = arguments
        self.channel = channel or Channel()
        self.id = self.channel.call_id or f"{_PROCESS}{next(_numbers):x}"
        self.may_ask = may_ask
        self.asked: set[str] = set()
        self.provided: dict[str, Any] = {}
        self.secrets: list[str] = []
        self.loop = asyncio.get_running_loop()
        self.task: asyncio.Task[Any] = asyncio.current_task(self.loop)  # pyright: ignore[reportAttributeAccessIssue] - a cast costs a call
        self.thread = threading.get_ident()
        self.started = time.perf_counter()
        self._queued: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """Reports of threads that the loop has not passed on yet."""
        self._lock = threading.Lock()
        """Protects these reports."""
        self._waits: set[Any] = set()
        """The tasks that threads of the call wait for."""
        self._in_threads = 0
        """The functions of the call that run in threads."""
        self._at_end: Callable[[], None] | None = None
        """Called when the last of them has ended, because nobody waits for them."""

    def again(self) -> Call:
        """The same call once more, for a plugin that repeats it. Only its progress goes on."""
        again = Call(self.command, self.arguments, replace(self.channel, call_id=self.id), may_ask=self.may_ask)
        again.uri, again.secrets, again._done = self.uri, self.secrets, self._done
        return again

    @property
    def cancelled(self) -> bool:
        """Whether the caller has stopped waiting. Works in any thread, and before the cancellation arrives."""
        return self.over or self.task.cancelling() > 0 or (self.time is not None and self.time.is_over)

    @property
    def is_overdue(self) -> bool:
        """Whether the deadline has passed, even if the loop, without a processor, has not noticed yet. Works in any thread."""
        return self.time is not None and self.loop.time() >= self.time.when

    async def expire(self) -> None:
        """End an overdue call instead of beginning its command: its caller may know already that the time is up."""
        cast("Deadline", self.time).scope.cancel()
        await self.loop.create_future()

    def enter_thread(self) -> bool:
        """In a thread: note that a function begins. Returns `False` if it must not: the call is over, and the thread is late."""
        with self._lock:
            if self._at_end is not None or self.is_overdue:
                return False
            self._in_threads += 1
            return True

    def leave_thread(self) -> None:
        """In a thread: note that the function has ended."""
        with self._lock:
            self._in_threads -= 1
            at_end = None if self._in_threads else self._at_end
        if at_end is not None:
            at_end()

    def when_idle(self, then: Callable[[], None]) -> None:
        """Call `then` when no thread runs a function of the call: a thread that is left behind goes on."""
        with self._lock:
            self._at_end = then
            if self._in_threads:
                return
        then()

    @property
    def on_its_loop(self) -> bool:
        """Whether this runs in the thread of the event loop."""
        return threading.get_ident() == self.thread

    @property
    def deadline(self) -> float | None:
        """The deadline on the clock of `time.monotonic`, or `None`."""
        if self.time is None or self.time.when == inf:
            return None
        return time.monotonic() + self.time.when - self.loop.time()

    def take_turn(self) -> None:
        """Continue after `waits` of the channel."""
        if not self.channel.goes_on():
            raise Withdrawn

    # Reports to the caller

    def report(self, done: float | None, total: float | None, message: str | None) -> None:
        """Pass progress on; `None` for `done` means one more step.

        A number that does not grow is not sent, as the protocol requires.
        """
        self._run_on_loop(self._advance, done, total, message)

    def log(self, level: str, message: Any) -> None:
        """Pass a log message on."""
        self._run_on_loop(self.channel.log, level, message)

    def updated(self, uri: str) -> None:
        """Report that a resource has changed."""
        self._run_on_loop(self.channel.updated, uri)

    def url_done(self, key: str) -> None:
        """Report that a page is finished."""
        self._run_always(self.channel.url_done, key)

    def go_into_background(self) -> bool:
        """Continue in the background; false if the caller has to wait. A second call has no effect."""
        leave = self.channel.background
        if leave is None or self.over:
            return False
        if not self._in_background:
            self._in_background = True
            self._run_always(leave)
        return True

    def _advance(self, done: float | None, total: float | None, message: str | None) -> None:
        before = self._done
        if done is None:
            with self._lock:
                steps, self._skipped = 1 + self._skipped, 0
            done = steps if before is None else int(before) + steps
        if before is None or done > before:
            self._done = done
            self.channel.progress(done, total, message)

    def _run_on_loop(self, function: Callable[..., None], *args: Any) -> None:
        if self.on_its_loop:
            self._unless_over(function, *args)
            return
        with self._lock:
            is_first = not self._queued
            if len(self._queued) == _MOST_QUEUED:  # the loop cannot keep up: replace the last one
                self._drop(*self._queued.pop())
            self._queued.append((function, args))
        if is_first:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._pass_on)

    def _run_always(self, function: Callable[..., None], *args: Any) -> None:
        """Like `_tell`, for messages that must not be dropped."""
        if self.on_its_loop:
            self._unless_over(function, *args)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._unless_over, function, *args)

    def _drop(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        if function != self._advance:
            self._lost_logs += 1
        elif args[0] is None:
            self._skipped += 1

    def _pass_on(self) -> None:
        """In the loop: pass on the reports of threads, in order."""
        with self._lock:
            queued, self._queued = self._queued, []
            lost, self._lost_logs = self._lost_logs, 0
        for function, args in queued:
            self._unless_over(function, *args)
        if lost:
            note = f"{lost} log messages were dropped: they came faster than the event loop could pass them on"
            self._unless_over(self.channel.log, "warning", note)

    def _unless_over(self, function: Callable[..., None], *args: Any) -> None:
        if not self.over:
            function(*args)

    async def off_the_clock(self, wait: Callable[[], Awaitable[Any]]) -> Any:
        """Wait for a person, with the deadline stopped."""
        deadline = self.time
        if deadline is None:
            return await wait()
        if not self._people:
            self._left = deadline.when - self.loop.time()
            deadline.move(inf)
        self._people += 1
        try:
            return await wait()
        finally:
            self._people -= 1
            if not self._people:
                deadline.move(self.loop.time() + self._left)

    def wait_for(self, asking: Coroutine[Any, Any, Any]) -> Any:
        """In a thread: run a coroutine on the loop of the call, and wait for it until the call ends."""
        waiting = self._wait_for(asking)
        try:
            future = asyncio.run_coroutine_threadsafe(waiting, self.loop)
        except RuntimeError:  # the loop is closed
            waiting.close()
            asking.close()
            raise
        return future.result()

    async def _wait_for(self, asking: Coroutine[Any, Any, Any]) -> Any:
        if self.cancelled:
            asking.close()
            raise asyncio.CancelledError
        task = asyncio.current_task()
        self._waits.add(task)
        try:
            return await asking
        finally:
            self._waits.discard(task)

    def hang_up(self) -> None:
        """Cancel the tasks that threads of the call wait for, because the call has ended."""
        for task in self._waits:
            task.cancel()

    # Secrets

    def keep_secret(self, value: object) -> None:
        """Note the texts in an injected value, which must not be shown."""
        found = [text for text in _texts(value) if len(text) >= _SHORTEST_SECRET]
        self.secrets.extend(found)
        self.secrets.sort(key=len, reverse=True)  # a secret may contain another one
        self.channel.secrets(found)

    def shown(self, text: str) -> str:
        """A text for people, models or logs, with injected secrets masked, that can be encoded."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return encodable(text)

    def shown_data(self, data: Json) -> Any:
        """The same for JSON data."""
        if isinstance(data, str):
            return self.shown(data)
        if isinstance(data, list):
            return [self.shown_data(item) for item in data]
        if isinstance(data, dict):
            return {self.shown(key): self.shown_data(item) for key, item in data.items()}
        return data


def _texts(value: object) -> Iterator[str]:
    """The texts in plain data, raw and in the form of `repr`."""
    if isinstance(value, str):
        yield value
        yield repr(value)[1:-1]
    elif isinstance(value, Mapping):
        for item in cast("Mapping[object, object]", value).values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in cast("list[object]", value):
            yield from _texts(item)
    elif callable(reveal := getattr(value, "get_secret_value", None)) and isinstance(text := reveal(), str):
        yield from _texts(text)
