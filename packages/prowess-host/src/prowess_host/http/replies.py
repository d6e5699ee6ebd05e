"""Transports for one HTTP response each: they turn the lines of a connection into a response, without server or clock.

A response is JSON if it has one line, else a stream of events. The streams of a session are kept for a while, so that a
client can reconnect and continue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, NamedTuple

from prowess_host.http.binding import status_of

if TYPE_CHECKING:
    from prowess_host.http.headers import AcceptedTypes

__all__ = ["COMMENT", "JSON_TYPE", "SSE_HEADERS", "Head", "History", "PendingResponse", "PostReply", "SessionStream"]

JSON_TYPE: Final = (b"content-type", b"application/json")
SSE_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
COMMENT: Final = b":\n\n"
"""A comment that keeps a silent stream open in proxies."""


class Head(NamedTuple):
    """The head of a response. A `whole` response has its length in its headers."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes = b""
    whole: bool = False


class PendingResponse:
    """One HTTP response while it is sent: the waiting bytes, and whether they are the last."""

    __slots__ = ("_parts", "ended", "head", "news", "size")

    def __init__(self, news: Callable[[], None] | None = None) -> None:
        self.news = news or _ignore_news
        """Called when there is something to send."""
        self.head: Head | None = None
        self._parts: list[bytes] = []
        self.size = 0
        """The number of unsent bytes."""
        self.ended = False

    def begin(self, head: Head) -> None:
        """Begin the response, and end it at once if it is whole."""
        self.head = head
        self.ended = head.whole
        self.news()

    def put(self, data: bytes) -> None:
        """Add bytes."""
        self._parts.append(data)
        self.size += len(data)
        self.news()

    def end(self) -> None:
        """End the response after the added bytes."""
        self.ended = True
        self.news()

    def close(self) -> None:
        """Send nothing more, and release what was sent: the objects of a request may wait for the garbage collector."""
        self.news = _ignore_news
        self._parts.clear()
        if self.head is not None:
            self.head = self.head._replace(body=b"")

    def take(self) -> bytes:
        """Take the bytes to send."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self.size = 0
        return data


def _ignore_news() -> None:
    """The default of `PendingResponse.news`."""


class History:
    """The events of the streams of one session; those of the oldest stream are dropped first. All is numbered from 1."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._kept: dict[int, deque[tuple[int, bytes]]] = {}
        self._dropped: dict[int, int] = {}
        """The last event of each stream that is no longer kept."""
        self._last_stream = 0

    def open(self) -> int:
        """Open a new stream and return its number."""
        self._last_stream += 1
        self._kept[self._last_stream] = deque()
        return self._last_stream

    def keep(self, stream: int, number: int, event: bytes) -> None:
        """Store an event; the oldest ones are dropped at the limit."""
        self._kept.setdefault(stream, deque()).append((number, event))
        self._size += len(event)
        self.limit(self._most)

    def limit(self, most: int) -> None:
        """Set the most bytes to keep; the oldest events are dropped."""
        self._most = most
        while self._size > most:
            oldest = next(of for of, events in self._kept.items() if events)
            number, event = self._kept[oldest].popleft()
            self._size -= len(event)
            self._dropped[oldest] = number

    def after(self, stream: int, number: int) -> list[bytes] | None:
        """The events of a stream after this one; `None` if some of them are no longer kept."""
        return None if self._dropped.get(stream, 0) > number else self.kept(stream, number)

    def kept(self, stream: int, number: int) -> list[bytes]:
        """The events of a stream after this one that are still kept."""
        return [event for each, event in self._kept.get(stream, ()) if each > number]

    def forget(self, stream: int) -> None:
        """Drop a stream."""
        self._size -= sum(len(event) for _, event in self._kept.pop(stream, ()))
        self._dropped.pop(stream, None)


class _Stream:
    """Sends events to a response, and to the history if there is one."""

    def __init__(self, outlet: PendingResponse | None, history: History | None, retry: int | None) -> None:
        self._outlet = outlet
        self._history = history
        self._retry = retry
        """Milliseconds after which a client should reconnect; `None` for a client that cannot resume streams."""
        self.number = 0
        """The number in the history, once it has begun as a stream."""
        self._events = 0
        self.over = False

    @property
    def backlog(self) -> int:
        """The number of bytes that the client has not read."""
        return 0 if self._outlet is None else self._outlet.size

    def _start(self) -> None:
        """Begin a stream. A client that can resume it gets the id and the delay for that first."""
        if self._outlet is not None:
            self._outlet.begin(Head(200, SSE_HEADERS))
        if self._history is not None and not self.number:
            self.number = self._history.open()
        self._prime()

    @property
    def is_primed(self) -> bool:
        """Whether its client can resume it from its beginning, before it has got an event."""
        return self._retry is not None

    def _prime(self) -> None:
        if self._history is not None and self._retry is not None:
            self._event(b"", b"retry: %d\n" % self._retry)

    def _event(self, line: bytes, before: bytes = b"") -> None:
        named = b"event: message\n" if line else b""
        if self._history is None:
            event = b"%bdata: %b\n\n" % (named, line)
        else:
            self._events += 1
            event = b"id: %d-%d\n%b%bdata: %b\n\n" % (self.number, self._events, before, named, line)
            self._history.keep(self.number, self._events, event)
        if self._outlet is not None:
            self._outlet.put(event)

    def _end(self) -> None:
        self.over = True
        if self._outlet is not None:
            self._outlet.end()

    @property
    def attached(self) -> bool:
        """Whether a client reads the response."""
        return self._outlet is not None

    def detach(self, outlet: PendingResponse | None) -> None:
        """Called when the client has disconnected: keep further events, unless another response has resumed the stream."""
        if outlet is self._outlet:
            self._outlet = None

    def resume(self, outlet: PendingResponse, number: int) -> bool:
        """Continue in another response, after the event with this number. Returns `False` if the events are no longer kept."""
        missed = None if self._history is None else self._history.after(self.number, number)
        if missed is None:
            return False
        before, self._outlet = self._outlet, outlet
        if before is not None:
            before.end()
        outlet.begin(Head(200, SSE_HEADERS))
        for event in missed:
            outlet.put(event)
        if self.over:
            outlet.end()
        return True


class PostReply(_Stream):
    """The transport for the response of a POST, which ends with the last answer to its requests."""

    owes: Callable[[PostReply], bool]
    """Returns whether its connection still has to answer one of its requests. Set before the first write."""

    def __init__(
        self,
        outlet: PendingResponse,
        accepted: AcceptedTypes,
        *,
        stateless: bool,
        owner: Hashable = None,
        history: History | None = None,
        retry: int | None = None,
    ) -> None:
        super().__init__(outlet, history, retry)
        self._accepted = accepted
        self._stateless = stateless
        self.owner = owner
        """The caller, who owns the tasks of its calls."""
        self.started = False
        """Whether the response has begun, as JSON or as a stream."""
        self.streams = False
        self.when_over: Callable[[], None] | None = None

    def write(self, line: bytes, *, more: bool = False) -> None:  # noqa: ARG002 - the protocol's signature
        """Send whole lines. An empty one only marks that a request has ended."""
        if self.over:
            return
        last = not self.owes(self)
        lines = [each for each in line.split(b"\n") if each]
        if not self.started:
            status = status_of(lines[-1], stateless=self._stateless) if lines else 200
            as_json = status != 200 or (self._accepted.json and (len(lines) == 1 or not self._accepted.sse))
            if last and lines and as_json:
                self._say(status, lines[-1])
                return
            if lines or last:
                self.stream()
        if self.streams:
            for each in lines:
                self._event(each)
        if last:
            self._end()

    def _say(self, status: int, body: bytes) -> None:
        """Send a single line as a JSON response."""
        self.started = True
        if self._outlet is not None:
            self._outlet.begin(Head(status, (JSON_TYPE,), body, whole=True))
        self._end()

    def _end(self) -> None:
        if self._outlet is None or not self._outlet.ended:
            super()._end()
        self.over = True
        self.owes = _owes_nothing  # breaks a reference cycle, which would cost a request 5 % of its time
        if self.when_over is not None:
            self.when_over()

    def stream(self) -> None:
        """Begin a stream of events, if the client accepts one and nothing was sent yet."""
        if not self.started and self._accepted.sse and self._outlet is not None:
            self.started = self.streams = True
            self._start()


def _owes_nothing(_reply: PostReply) -> bool:
    """Replaces `PostReply.owes` when the reply is over."""
    return False


class SessionStream(_Stream):
    """The stream of a session for messages that belong to no request. Missed events are kept while the client is away."""

    def __init__(self, history: History, retry: int | None) -> None:
        super().__init__(None, history, retry)
        self.number = history.open()
        self._all = history
        self._seen = 0
        self._lost = False
        """Whether its client could not resume it, because the events that it missed are no longer kept."""

    def write(self, line: bytes, *, more: bool = False) -> None:  # noqa: ARG002 - the protocol's signature
        """Send whole lines."""
        for each in line.split(b"\n"):
            if each:
                self._event(each)

    def attach(self, outlet: PendingResponse) -> bool:
        """Send missed and further events to this response instead of the one before. Returns `False` if some are no longer kept."""
        self.detach(self._outlet)
        is_whole = not self._lost and self._all.after(self.number, self._seen) is not None
        self._lost = False
        self._outlet = outlet
        outlet.begin(Head(200, SSE_HEADERS))
        for event in self._all.kept(self.number, self._seen):
            outlet.put(event)
        self._prime()
        return is_whole

    def resume(self, outlet: PendingResponse, number: int) -> bool:
        """As above. A client that cannot go on here opens a new stream next."""
        self._lost = not super().resume(outlet, number)
        return not self._lost

    def detach(self, outlet: PendingResponse | None) -> None:
        """Called when the client has disconnected; it may reconnect."""
        if outlet is not None and outlet is self._outlet:
            self._seen = self._events
            outlet.end()
        super().detach(outlet)

    def end(self) -> None:
        """End the stream of the session."""
        self._end()
