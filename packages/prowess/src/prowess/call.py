"""One call on its way: what the policies, the injection and the context share. Knows no skill and no wire."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import anyio

from prowess.jsontypes import JsonObject

__all__ = ["Arguments", "Call", "Channel", "Questions"]

Questions: TypeAlias = "Mapping[str, JsonObject]"
"""Each key with its `message` and `schema`."""

_SHORTEST_SECRET: Final = 4


def _ignore(*_: Any) -> None:
    """Nobody listens."""


@dataclass(slots=True, kw_only=True)
class Channel:
    """The way back from a running call to whoever called. By default nobody is there."""

    client_name: str = ""
    capabilities: JsonObject = field(default_factory=dict[str, Any])
    trace_id: str = ""
    metadata: JsonObject = field(default_factory=dict[str, Any])
    """What the caller sent along for the command to see."""
    progress: Callable[[float, float | None, str | None], None] = _ignore
    log: Callable[[str, Any], None] = _ignore
    ask: Callable[[Questions], Awaitable[Mapping[str, JsonObject]]] | None = None
    """Puts questions to a person and waits. `None` where the client cannot."""
    answers: Mapping[str, JsonObject] | None = None
    """What was answered in earlier runs of this call, where a question ends the run; `None` where it does not."""


@dataclass(slots=True)
class Arguments:
    """Validated arguments as the function takes them."""

    named: dict[str, Any]
    extra_args: tuple[Any, ...] = ()
    injected: dict[str, Any] = field(default_factory=dict[str, Any])
    """Injected parameters: those the Python caller passed, and then those that were provided."""


@dataclass(slots=True)
class Call:
    """The state of one call."""

    command: str
    arguments: Arguments
    channel: Channel = field(default_factory=Channel)
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    may_ask: bool = True
    attempts: int = 0
    cached: bool = False
    asked: set[str] = field(default_factory=set[str])
    scope: anyio.CancelScope | None = None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    loop_thread: int = field(default_factory=threading.get_ident)
    cancelled: threading.Event = field(default_factory=threading.Event)
    secrets: list[str] = field(default_factory=list[str])
    done_before: float = float("-inf")
    """The progress last reported: it never goes back, also not from one attempt to the next."""

    def on_loop(self, function: Callable[..., None], *args: Any) -> None:
        """Run a function on the loop of the call, from whatever thread; at once where that is this thread."""
        if threading.get_ident() == self.loop_thread:
            function(*args)
        else:
            self.loop.call_soon_threadsafe(function, *args)

    def mask(self, text: str) -> str:
        """A text for people or logs, without the injected secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def keep_secret(self, value: object) -> None:
        """Remember an injected value that must not be shown."""
        if isinstance(value, str) and len(value) >= _SHORTEST_SECRET:
            self.secrets.append(value)

    def report(self, done: float, total: float | None, message: str | None) -> None:
        """Pass progress on, if it is any: a number that does not grow is not sent, as the protocol demands."""
        if done > self.done_before:
            self.done_before = done
            self.on_loop(self.channel.progress, done, total, message)

    async def off_the_clock(self, wait: Callable[[], Awaitable[Any]]) -> Any:
        """Wait for a person: the deadline stands still meanwhile."""
        scope = self.scope
        if scope is None:
            return await wait()
        left = scope.deadline - anyio.current_time()
        scope.deadline = float("inf")
        try:
            return await wait()
        finally:
            scope.deadline = anyio.current_time() + left

    @property
    def deadline(self) -> float | None:
        """When time runs out, on the clock of `time.monotonic`; `None` where it does not."""
        if self.scope is None or self.scope.deadline == float("inf"):
            return None
        return time.monotonic() + self.scope.deadline - self.loop.time()
