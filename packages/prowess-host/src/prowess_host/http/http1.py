"""One connection of HTTP/1.1: cuts bytes into requests, with limits for each client: bytes, fields, time to send and to read.

The parser is that of httptools. Requests are served one after the other. Each refusal closes the connection. A timer
starts only when a request is incomplete, so that most requests cost none.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

import httptools

from prowess_host.http.headers import Headers
from prowess_host.http.messages import UNASKED, Exchange, status_line

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from prowess.settings.keys import ServeSettings

__all__ = ["Http1", "http1"]

_MOST_FIELDS: Final = 100
_KEEP_ALIVE: Final = 75.0
"""Seconds that an idle connection is kept, longer than in usual proxies, so that the proxy closes it first."""
_AT_ONCE_OVER: Final = struct.pack("ii", 1, 0)
_HUNG_UP: Final = 5.0
"""Seconds between two looks whether a client has left that sent further requests."""
_RDHUP: Final[int] = getattr(select, "POLLRDHUP", 0)
"""Of Linux: the client sends nothing more, whatever has not been read yet."""
_UPGRADE: Final = frozenset({b"upgrade", b"http2-settings"})
_MOST_BODIES: Final = 16
"""Bodies of the largest size that are held at the same time."""
_CHUNK: Final = 64 * 1024


class _TooLarge(ValueError):
    """The head of a request."""


class _Shared:
    """What all connections of a server have in common."""

    def __init__(self, serve: Callable[[Exchange], None], own: ServeSettings, state: ServerState) -> None:
        self.serve = serve
        self.own = own
        self.state = state
        self.chunk = bytearray(_CHUNK)
        """One buffer for all: it is emptied at once."""
        self.bodies = 0
        """Bytes of the large bodies that are held now."""
        self._told: list[tuple[bytes, bytes]] = []
        self._date = b""

    @property
    def date(self) -> bytes:
        """The line with the date, which the server makes anew each second."""
        if self._told is not self.state.default_headers:
            self._told = self.state.default_headers
            self._date = b"".join(b"%b: %b\r\n" % field for field in self._told)
        return self._date


def http1(serve: Callable[[Exchange], None], own: ServeSettings) -> Callable[..., Http1]:
    """What uvicorn makes connections with. `serve` gets each request once its head is there."""
    shared: _Shared | None = None

    def connect(*, server_state: ServerState, **_: object) -> Http1:
        nonlocal shared
        shared = shared or _Shared(serve, own, server_state)
        return Http1(shared)

    return connect


class Http1(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        self._own = shared.own
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._url = b""
        self._pairs: list[tuple[bytes, bytes]] = []
        self._head = 0
        """Bytes that arrived while a head was read, perhaps with the beginning of a body."""
        self._in_head = True
        self._declines = False
        """Whether the request offers another protocol, which nobody here speaks: it is read again, without the offer."""
        self._waits_for = "head"
        self._exchanges: deque[Exchange] = deque()
        """The request that is served, and those that follow it already."""
        self._newest: Exchange | None = None
        """The one whose body is read."""
        self._serving = False
        self._takes_more = True
        """Whether what follows is a request: not after the last one of a connection."""
        self._arriving: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self.address = ""
        """The address of the client."""
        self._due = 0.0
        """When somebody has to look at this connection again."""

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when a client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        peer: tuple[str, int] | None = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else ""
        connections = self._shared.state.connections
        connections.add(cast("Any", self))
        self._arriving = self._loop.call_later(self._own.patience, self._too_slow)
        if len(connections) > self._own.max_connections:
            self._refuse(503, "too many connections", b"retry-after: 1\r\n")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Called when the connection has ended."""
        self._shared.state.connections.discard(cast("Any", self))
        self._stop()
        for timer in (self._leaving, self._looking):
            if timer is not None:
                timer.cancel()
        exchanges, self._exchanges = self._exchanges, deque()
        for exchange in exchanges:
            exchange.leave()
        self._parser = None  # which holds this

    def shutdown(self) -> None:
        """Close the connection, after the response that is being made."""
        if self._exchanges:
            self._exchanges[0].keeps_open = False
        else:
            self._transport.close()

    # Output

    @property
    def is_blocked(self) -> bool:
        """Whether the client does not read what is sent."""
        return self._leaving is not None

    def pause_writing(self) -> None:
        """Start the timeout for a client that reads slowly, and take no more requests from it."""
        self._leaving = self._loop.call_later(self._own.patience, self._abort)
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Stop the timeout: the client has read the data."""
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        self._read_or_wait()
        if self._serving:
            self._exchanges[0].pump()
        else:
            self._serve_next()

    def _abort(self) -> None:
        """Abort the connection and drop unsent bytes, which the system would otherwise keep for long."""
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE_OVER)
        self._transport.abort()

    # Input

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - asyncio's signature
        """The place for what arrives."""
        return self._shared.chunk

    def buffer_updated(self, nbytes: int) -> None:
        """Some bytes of a request, or of several."""
        if self._transport.is_closing():
            return
        if self._in_head:
            self._head += nbytes
        try:
            self._feed(memoryview(self._shared.chunk)[:nbytes])
        except httptools.HttpParserError:
            self._refuse_broken()
            return
        if self._in_head and self._head > self._own.max_header:
            self._refuse(431, "the request headers are too large")
        elif self._arriving is None and (self._head or not self._in_head):
            self._arriving = self._loop.call_later(self._own.patience, self._too_slow)
        if not self._serving:
            self._serve_next()

    def _feed(self, data: memoryview | bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._declines:  # CONNECT: what follows is no HTTP
                self._takes_more = False
                if self._newest is not None:
                    self._newest.keeps_open = False
                return
            head = self._without_upgrade()
            self._declines = False
            self._parser = httptools.HttpRequestParser(self)
            self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self._feed(head + bytes(data[upgrade.args[0] :]))

    def _without_upgrade(self) -> bytes:
        """The head of a request that offers another protocol, without the offer. Its body would not be read with it."""
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, self._parser.get_http_version().encode())]
        for name, value in self._pairs:
            kept = value
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                kept = b", ".join(token for token in tokens if token.lower() not in _UPGRADE)
            if name not in _UPGRADE and (kept or name != b"connection"):
                lines.append(b"%b: %b" % (name, kept))
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """A request begins."""
        self._waits_for = "head"
        self._url = b""
        self._pairs = []

    def on_url(self, url: bytes) -> None:
        """A part of the target of the request."""
        self._url += url
        if len(self._url) > self._own.max_header:
            raise _TooLarge

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field of the head."""
        pairs = self._pairs
        pairs.append((name.lower(), value))
        if len(pairs) > _MOST_FIELDS:
            raise _TooLarge

    def on_headers_complete(self) -> None:
        """The headers are complete."""
        self._declines = self._parser.should_upgrade() and self._parser.get_method() != b"CONNECT"
        if self._declines:
            return
        if self._head > self._own.max_header and self._size_of_head() > self._own.max_header:
            raise _TooLarge
        self._stop()
        self._in_head, self._head, self._waits_for = False, 0, "body"
        if not self._takes_more:
            self._newest = None
            return
        parser, headers = self._parser, Headers(self._pairs)
        if (headers.get("transfer-encoding") or "chunked").lower() != "chunked":
            raise ValueError("nobody here decodes that")
        exchange = Exchange(self, parser.get_method().decode("ascii"), _path_of(self._url), headers)
        if parser.get_http_version() != "1.1":
            exchange.keeps_open = exchange.chunks = False
        elif not parser.should_keep_alive():
            exchange.keeps_open = False
        self._takes_more = exchange.keeps_open
        exchange.wants_continue = (headers.get("expect") or "").lower() == "100-continue"
        self._newest = exchange
        self._exchanges.append(exchange)
        if len(self._exchanges) > 1:
            self._transport.pause_reading()
            self.look_after(_HUNG_UP)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        newest = self._newest
        if newest is None:
            return
        newest.feed(body)
        if newest.size > UNASKED:
            self._hold(newest)

    def _hold(self, exchange: Exchange) -> None:
        """Count the bytes of a large body until it is answered. All together are bounded: so is memory."""
        more = exchange.size - exchange.held
        if self._shared.bodies + more > _MOST_BODIES * self._own.max_body:
            self._refuse(503, "too many large requests at once", b"retry-after: 1\r\n")
        elif not exchange.over:
            if not exchange.held:
                exchange.when_over(partial(self._let_go, exchange))
            exchange.held += more
            self._shared.bodies += more

    def _let_go(self, exchange: Exchange) -> None:
        self._shared.bodies -= exchange.held

    def on_message_complete(self) -> None:
        """The request is complete; another may follow."""
        if self._declines:
            return
        self._stop()
        self._in_head = True
        if self._newest is not None:
            self._newest.complete()

    def read_on(self, *, wanted: bool) -> None:
        """Read the rest of a body, or leave it with the client for now."""
        if wanted:
            self._read_or_wait()
        else:
            self._transport.pause_reading()

    def _read_or_wait(self) -> None:
        """Read, unless requests wait already or the client does not read what is sent."""
        if len(self._exchanges) <= 1 and not self.is_blocked:
            self._transport.resume_reading()

    # One request after the other

    def _serve_next(self) -> None:
        if self._serving or not self._exchanges or self.is_blocked or self._transport.is_closing():
            return
        self._serving = True
        self._shared.serve(self._exchanges[0])

    @property
    def date(self) -> bytes:
        """The line with the date."""
        return self._shared.date

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._transport.write(data)

    def finish(self, exchange: Exchange) -> None:
        """A response is complete: the next request is served, in a turn of its own."""
        self._exchanges.popleft()
        self._serving = False
        if not exchange.keeps_open:
            self._transport.close()
            return
        self.look_after(_KEEP_ALIVE)
        if self._exchanges:
            self._loop.call_soon(self._serve_next)
        elif not self._transport.is_reading():
            self._read_or_wait()

    # Time

    def look_after(self, seconds: float) -> None:
        """Look at this connection in so many seconds. A timer that is due earlier is enough: it looks when it is due."""
        self._due = due = self._loop.time() + seconds
        looking = self._looking
        if looking is None or looking.when() > due:
            if looking is not None:
                looking.cancel()
            self._looking = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        self._looking = None
        now = self._loop.time()
        if now < self._due:
            self.look_after(self._due - now)
        elif self._has_hung_up():
            self._transport.abort()
        elif self._serving:
            self.look_after(self._exchanges[0].tick(now))
        elif self._in_head and not self._head:
            self._transport.close()

    def _has_hung_up(self) -> bool:
        """Whether the client has left while nothing is read, because further requests of it wait: the loop would not say so."""
        if self._transport.is_reading() or not _RDHUP:
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), _RDHUP)
        return bool(poll.poll(0))

    def _stop(self) -> None:
        """Stop the timeout for requests."""
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _too_slow(self) -> None:
        self._arriving = None
        if self._head or not self._in_head:
            self._refuse(
                408, f"the {self._waits_for} of the request did not arrive within {self._own.patience:g} seconds"
            )
        else:
            self._transport.close()

    # Refusals

    def _refuse_broken(self) -> None:
        """Refuse a malformed request, or one with too large a head."""
        if self._size_of_head() > self._own.max_header or len(self._pairs) > _MOST_FIELDS:
            self._refuse(431, "the request headers are too large")
        else:
            self._refuse(400, "Invalid HTTP request received.")

    def _size_of_head(self) -> int:
        return sum(len(name) + len(value) + 4 for name, value in self._pairs) + len(self._url)

    def _refuse(self, status: int, reason: str, fields: bytes = b"") -> None:
        """Send an error and close the connection. During another response, only close it."""
        self._stop()
        if self._transport.is_closing():
            return
        if not self._exchanges or not self._exchanges[0].status:
            body = reason.encode()
            head = b"%bcontent-type: text/plain\r\ncontent-length: %d\r\n" % (status_line(status), len(body))
            self._transport.write(b"%bconnection: close\r\n%b\r\n%b" % (head, fields, body))
        self._transport.close()
        for exchange in self._exchanges:
            exchange.leave()


def _path_of(url: bytes) -> str:
    """The path of a target; an `HttpParserError` or a `ValueError` where it has none."""
    if url == b"/mcp":
        return "/mcp"
    path = cast("bytes | None", httptools.parse_url(url).path)
    if path is None:
        raise ValueError(url)
    text = path.decode("ascii")
    return unquote(text) if "%" in text else text
