"""The way back of one request of HTTP: lines of a connection in, events of a response out. No server, no clock.

A response is JSON as long as one line is all there is to say, and a stream of events otherwise. The streams of a session
are kept for a while, so that a client whose connection broke can go on where it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, NamedTuple

from prowess_host.http.binding import status_of

if TYPE_CHECKING:
    from prowess_host.http.headers import Accepted

__all__ = ["COMMENT", "JSON_TYPE", "SSE_HEADERS", "Head", "History", "Outlet", "Reply", "Standing"]

JSON_TYPE: Final = (b"content-type", b"application/json")
SSE_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
COMMENT: Final = b":\n\n"
"""A comment that keeps a silent stream open in proxies."""


class Head(NamedTuple):
    """How a response begins. A response that is `whole` has its length in its headers."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes = b""
    whole: bool = False


class Outlet:
    """One HTTP response while it is sent: the next bytes, and whether they are the last."""

    __slots__ = ("_news", "_parts", "ended", "head", "size")

    def __init__(self, news: Callable[[], None]) -> None:
        self._news = news
        self.head: Head | None = None
        self._parts: list[bytes] = []
        self.size = 0
        """The number of unsent bytes."""
        self.ended = False

    def begin(self, head: Head) -> None:
        """Begin the response, and end it at once where it is whole."""
        self.head = head
        self.ended = head.whole
        self._news()

    def put(self, data: bytes) -> None:
        """Send something more."""
        self._parts.append(data)
        self.size += len(data)
        self._news()

    def end(self) -> None:
        """End the response after what was put."""
        self.ended = True
        self._news()

    def take(self) -> bytes:
        """Take the bytes to send."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self.size = 0
        return data


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
        while self._size > self._most:
            oldest = next(of for of, events in self._kept.items() if events)
            number, event = self._kept[oldest].popleft()
            self._size -= len(event)
            self._dropped[oldest] = number

    def after(self, stream: int, number: int) -> list[bytes] | None:
        """The events of a stream that follow this one; `None` where some of them are no longer kept."""
        if self._dropped.get(stream, 0) > number:
            return None
        return [event for each, event in self._kept.get(stream, ()) if each > number]

    def forget(self, stream: int) -> None:
        """Drop a stream."""
        self._size -= sum(len(event) for _, event in self._kept.pop(stream, ()))
        self._dropped.pop(stream, None)


class _Stream:
    """Events on their way to a response, and into the history where there is one."""

    def __init__(self, outlet: Outlet | None, history: History | None, retry: int | None) -> None:
        self._outlet = outlet
        self._history = history
        self._retry = retry
        """Milliseconds after which a client shall come back; `None` where it does not know that streams are resumed."""
        self.number = 0
        """In the history, once it has begun as a stream."""
        self._events = 0
        self.over = False

    @property
    def backlog(self) -> int:
        """The number of bytes that the client has not read."""
        return 0 if self._outlet is None else self._outlet.size

    def _start(self) -> None:
        """Begin as a stream; a client that can come back is told at once how."""
        if self._outlet is not None:
            self._outlet.begin(Head(200, SSE_HEADERS))
        if self._history is not None and not self.number:
            self.number = self._history.open()
        self._prime()

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

    def detach(self, outlet: Outlet | None) -> None:
        """Nobody reads this response any more: what follows is kept, unless another one goes on already."""
        if outlet is self._outlet:
            self._outlet = None

    def resume(self, outlet: Outlet, number: int) -> bool:
        """Go on in another response, after the event with this number; `False` where that is not possible any more."""
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


class Reply(_Stream):
    """The way back of a POST: ends with the last answer that it owes."""

    owes: Callable[[Reply], bool]
    """Whether something is still to be answered by it: what its connection says. Set before anything is written."""

    def __init__(
        self,
        outlet: Outlet,
        accepted: Accepted,
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
        """Whoever calls: tasks belong to them."""
        self.started = False
        """The response has begun, as JSON or as a stream."""
        self.streams = False
        self.when_over: Callable[[], None] | None = None

    def write(self, line: bytes, *, more: bool = False) -> None:  # noqa: ARG002 - the protocol's signature
        """Send whole lines; an empty one only says that something has ended."""
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
        if self.when_over is not None:
            self.when_over()

    def stream(self) -> None:
        """Begin as a stream of events, if the client reads one and nothing was sent yet."""
        if not self.started and self._accepted.sse and self._outlet is not None:
            self.started = self.streams = True
            self._start()


class Standing(_Stream):
    """The stream of a session for what concerns no request. Its client comes and goes; what it missed is kept."""

    def __init__(self, history: History, retry: int | None) -> None:
        super().__init__(None, history, retry)
        self.number = history.open()
        self._seen = 0

    def write(self, line: bytes, *, more: bool = False) -> None:  # noqa: ARG002 - the protocol's signature
        """Send whole lines."""
        for each in line.split(b"\n"):
            if each:
                self._event(each)

    def attach(self, outlet: Outlet) -> None:
        """Send what comes, and what nobody was sent yet, to this response, and no longer to the one before."""
        self.detach(self._outlet)
        missed = self._history.after(self.number, self._seen) if self._history is not None else None
        self._outlet = outlet
        outlet.begin(Head(200, SSE_HEADERS))
        for event in missed or ():
            outlet.put(event)
        self._prime()

    def detach(self, outlet: Outlet | None) -> None:
        """The client has disconnected; it may come back."""
        if outlet is not None and outlet is self._outlet:
            self._seen = self._events
            outlet.end()
        super().detach(outlet)

    def end(self) -> None:
        """End the stream of the session."""
        self._end()
