"""One connection of HTTP/1.1: parses requests with httptools, with limits on bytes, headers, and the time to send and to read.

Requests are served one after the other. Each refusal closes the connection. A head that was parsed before is not parsed
again. A timer starts only when a request is incomplete, so that most requests cost none.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections import Counter, deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import unquote

import httptools

from prowess_host.http.access import client_of
from prowess_host.http.headers import Headers
from prowess_host.http.messages import UNASKED, Exchange, status_line
from prowess_host.http.proxies import Proxies

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from prowess.settings.keys import ServeSettings

__all__ = ["Http1", "http1"]

_MOST_FIELDS: Final = 100
_KEEP_ALIVE: Final = 75.0
"""Seconds that an idle connection is kept, longer than in usual proxies, so that the proxy closes it first."""
_LATE: Final = 0.5
"""Seconds after which a timer was late because this process stood still: its clients get their time again."""
_AT_ONCE_OVER: Final = struct.pack("ii", 1, 0)
_HUNG_UP: Final = 5.0
"""Seconds between two checks whether a client with further requests has disconnected."""
_RDHUP: Final[int] = getattr(select, "POLLRDHUP", 0)
"""The event of Linux for a peer that has closed its side, even if unread bytes are left."""
_VERSIONS: Final = frozenset({"1.0", "1.1"})
_UPGRADE: Final = frozenset({b"upgrade", b"http2-settings"})
_MOST_BODIES: Final = 32
"""Memory for large bodies, as a number of bodies of the largest size. A client alone gets half of it."""
_FIRST: Final = 0.1
"""Seconds that are added to the age of an upload, because the first part of a body says little about its speed."""
_MOST_UNREAD: Final = 512 * 1024 * 1024
"""Memory for responses that their clients do not read as fast as they are made, in bytes."""
_CHUNK: Final = 64 * 1024
_MOST_HEADS: Final = 500
_LONGEST_HEAD: Final = 2000
"""Bytes of the longest head that is kept for further requests."""
_END_OF_HEAD: Final = b"\r\n\r\n"


class _TooLarge(ValueError):
    """The head of a request is too large."""


class _Head(NamedTuple):
    """The head of an ordinary request: its body has a length, and another request may follow."""

    method: str
    path: str
    headers: Headers
    length: int


class _Upload(NamedTuple):
    """A large body that arrives, or whose request is served."""

    connection: Http1
    client: Hashable
    """The client that it counts for, before its credentials are known."""
    began: float


class _Bodies:
    """Limits the memory for large bodies. Each client gets as much as it leaves for others; beyond that, its slowest upload is refused."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._number = 0
        self._of: Counter[Hashable] = Counter()
        self._uploads: dict[Exchange, _Upload] = {}

    def hold(self, exchange: Exchange, connection: Http1, now: float) -> None:
        """Count the bytes of a body that have arrived until its request is answered."""
        if exchange not in self._uploads:
            self._uploads[exchange] = _Upload(connection, client_of(None, exchange.address), now)
            exchange.when_over(partial(self._let_go, exchange))
        client = self._uploads[exchange].client
        while not exchange.over:
            more = exchange.size - exchange.held
            if self._of[client] + more <= self._most - self._number:
                self._count(exchange, client, more)
                return
            self._slowest(client, now).refuse_body()

    def _slowest(self, client: Hashable, now: float) -> Http1:
        """The connection of the client's slowest upload. One that arrives is among them."""

        def rate(exchange: Exchange) -> float:
            return exchange.size / (now - self._uploads[exchange].began + _FIRST)

        arriving = (each for each in self._uploads if not each.is_whole and self._uploads[each].client == client)
        return self._uploads[min(arriving, key=rate)].connection

    def _count(self, exchange: Exchange, client: Hashable, more: int) -> None:
        exchange.held += more
        self._number += more
        self._of[client] += more
        if not self._of[client]:
            del self._of[client]

    def _let_go(self, exchange: Exchange) -> None:
        self._count(exchange, self._uploads.pop(exchange).client, -exchange.held)


class _Unread:
    """Limits the memory for unread responses. Beyond it, the client with the most of it loses the one that waits longest."""

    def __init__(self) -> None:
        self._waiting: dict[Http1, Hashable] = {}
        """The connections that wait for their clients to read, with the client that each counts for."""

    def add(self, connection: Http1, client: Hashable) -> None:
        """Count a connection whose client does not read on."""
        self._waiting[connection] = client
        sizes = Counter[Hashable]()
        for each, its in self._waiting.items():
            sizes[its] += each.unread
        while sizes.total() > _MOST_UNREAD and len(self._waiting) > 1:
            largest = max(sizes, key=lambda each: sizes[each])
            slowest = next(each for each, its in self._waiting.items() if its == largest)
            sizes[largest] -= slowest.unread
            self.remove(slowest)
            slowest.hang_up()

    def remove(self, connection: Http1) -> None:
        """Forget a connection whose client reads on, or has disconnected."""
        self._waiting.pop(connection, None)


class _Shared:
    """The state that all connections of a server share."""

    def __init__(self, serve: Callable[[Exchange], None], own: ServeSettings, state: ServerState) -> None:
        self.serve = serve
        self.own = own
        self.state = state
        self.chunk = bytearray(_CHUNK)
        """One buffer for all connections, which is always emptied at once."""
        self.room = memoryview(self.chunk)
        """The same as what to read into: asyncio slices it for each record of TLS, and would read into a copy of the array."""
        self.proxies = Proxies(own.trusted_proxies)
        self.bodies = _Bodies(_MOST_BODIES * own.max_body)
        self.unread = _Unread()
        self._heads: dict[bytes, _Head] = {}
        """Parsed heads by their bytes, because a client sends few different ones."""
        self._default_fields: list[tuple[bytes, bytes]] = []
        self._date = b""

    def known(self, head: bytes) -> _Head | None:
        """The parsed head with these bytes, if it was parsed before."""
        return self._heads.get(head)

    def remember(self, written: bytes, head: _Head) -> None:
        """Keep a parsed head for further requests."""
        if len(written) <= _LONGEST_HEAD:
            if len(self._heads) >= _MOST_HEADS:
                self._heads.clear()
            self._heads[written] = head

    @property
    def date(self) -> bytes:
        """The header line with the date, which the server updates each second."""
        if self._default_fields is not self.state.default_headers:
            self._default_fields = self.state.default_headers
            self._date = b"".join(b"%b: %b\r\n" % field for field in self._default_fields)
        return self._date


def http1(serve: Callable[[Exchange], None], own: ServeSettings) -> Callable[..., Http1]:
    """The protocol factory for uvicorn. `serve` gets each request once its head has arrived."""
    shared: _Shared | None = None

    def connect(*, server_state: ServerState, **_: object) -> Http1:
        nonlocal shared
        shared = shared or _Shared(serve, own, server_state)
        return Http1(shared)

    return connect


class Http1(asyncio.BufferedProtocol):
    """One connection."""

    _refusal: tuple[int, str, bytes] | None = None
    """Ends the connection after the answers to whole requests."""

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
        """Bytes that arrived while a head was read, or since the last part of a body, as those of trailers."""
        self._in_head = True
        self._is_between = True
        """Whether the next byte begins a request."""
        self._declines = False
        """Whether the request offers an upgrade. It is then parsed again without the offer."""
        self._waits_for = "head"
        self._exchanges: deque[Exchange] = deque()
        """The request that is served, and those that have arrived after it."""
        self._newest: Exchange | None = None
        """The request whose body is read."""
        self._serving = False
        self._takes_more = True
        """Whether further requests may follow on this connection."""
        self._arriving: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._peer = ""
        """The address of the client or the proxy at the other end."""
        self._due = 0.0
        """When the next check of this connection is due."""

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when a client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        peer: tuple[str, int] | None = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else ""
        connections = self._shared.state.connections
        connections.add(cast("Any", self))
        self._arriving = self._loop.call_later(self._own.patience, self._too_slow)
        if len(connections) > self._own.max_connections:
            self._refuse(503, "too many connections", b"retry-after: 1\r\n")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Called when the connection has ended."""
        self._shared.state.connections.discard(cast("Any", self))
        self._shared.unread.remove(self)
        self._stop()
        for timer in (self._leaving, self._looking):
            if timer is not None:
                timer.cancel()
        exchanges, self._exchanges = self._exchanges, deque()
        for exchange in exchanges:
            exchange.leave()
        self._parser = None  # which holds this

    def shutdown(self) -> None:
        """Close the connection after the current response."""
        if self._exchanges:
            self._exchanges[0].keeps_open = False
        else:
            self._transport.close()

    # Output

    def address(self, headers: Headers) -> str:
        """The address of the client of a request, which several clients of a proxy may send on one connection."""
        return self._shared.proxies.client(self._peer, headers.get("x-forwarded-for"))

    @property
    def is_blocked(self) -> bool:
        """Whether the client reads too slowly."""
        return self._leaving is not None

    def pause_writing(self) -> None:
        """Start the timeout for a slow reader, and read no more requests from it."""
        self._leaving = self._loop.call_later(self._own.patience, self._reads_too_slowly)
        self._transport.pause_reading()
        self._shared.unread.add(self, client_of(None, self._peer))

    @property
    def unread(self) -> int:
        """Bytes that the client has not read."""
        return self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        """Stop the timeout: the client has read the data."""
        self._shared.unread.remove(self)
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        self._read_or_wait()
        if self._serving:
            self._exchanges[0].pump()
        else:
            self._serve_next()

    def _reads_too_slowly(self) -> None:
        """Called after the timeout for a slow reader."""
        again = self._once_more(self._leaving, self._reads_too_slowly)
        if again is not None:  # the client may have read all that the system had
            self._leaving = again
            return
        self.hang_up()

    def hang_up(self) -> None:
        """Abort the connection and drop unsent bytes, which the system would otherwise keep for long."""
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE_OVER)
        self._transport.abort()

    # Input

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """The buffer for arriving bytes."""
        return self._shared.room

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the arrived bytes."""
        if self._transport.is_closing():
            return
        taken = self._take_known(nbytes) if self._is_between and self._takes_more else 0
        self._head += nbytes - taken
        try:
            if taken < nbytes:
                self._feed(memoryview(self._shared.chunk)[taken:nbytes])
        except httptools.HttpParserError:
            self._refuse_broken()
        else:
            if self._head > self._own.max_header:
                self._refuse(431, "the request headers are too large")
            elif self._arriving is None and (self._head or not self._in_head):
                self._arriving = self._loop.call_later(self._own.patience, self._too_slow)
        if not self._serving:
            self._serve_next()

    def _take_known(self, nbytes: int) -> int:
        """Take a whole request whose head was parsed before, and return the number of its bytes."""
        chunk = self._shared.chunk
        start = chunk.find(_END_OF_HEAD, 0, min(nbytes, _LONGEST_HEAD)) + len(_END_OF_HEAD)
        head = self._shared.known(bytes(memoryview(chunk)[:start]))
        if head is None or start + head.length > nbytes:
            return 0
        exchange = Exchange(self, head.method, head.path, head.headers)
        self._begin(exchange)
        exchange.feed(bytes(memoryview(chunk)[start : start + head.length]))
        self._stop()
        exchange.complete()
        return start + head.length

    def _feed(self, data: memoryview | bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if not self._declines:  # CONNECT: the following bytes are not HTTP
                    self._takes_more = False
                    if self._newest is not None:
                        self._newest.keeps_open = False
                    return
                data = self._without_upgrade() + bytes(data[upgrade.args[0] :])
                self._declines = False
                self._parser = httptools.HttpRequestParser(self)
                self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
            else:
                return

    def _without_upgrade(self) -> bytes:
        """The head of a request without its offer to upgrade, with which the parser would not read the body."""
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, self._parser.get_http_version().encode())]
        for name, value in self._pairs:
            kept = value
            if name.lower() == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                kept = b", ".join(token for token in tokens if token.lower() not in _UPGRADE)
            if name.lower() not in _UPGRADE and (kept or name.lower() != b"connection"):
                lines.append(b"%b: %b" % (name, kept))
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """Called at the beginning of a request."""
        self._is_between = False
        self._waits_for = "head"
        self._url = b""
        self._pairs = []

    def on_url(self, url: bytes) -> None:
        """Handle a part of the request target."""
        self._url += url
        if len(self._url) > self._own.max_header:
            raise _TooLarge

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handle one header."""
        pairs = self._pairs
        pairs.append((name, value))
        if len(pairs) > _MOST_FIELDS:
            raise _TooLarge

    def on_headers_complete(self) -> None:
        """Handle the end of the headers."""
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
            raise ValueError("this transfer encoding is not supported")
        if parser.get_http_version() not in _VERSIONS:
            raise ValueError("this version is not supported")
        path = _path_of(self._url, headers.get("host") or "")
        exchange = Exchange(self, parser.get_method().decode("ascii"), path, headers)
        if parser.get_http_version() != "1.1":
            exchange.keeps_open = exchange.chunks = False
        else:
            exchange.keeps_open = parser.should_keep_alive()
            exchange.wants_continue = (headers.get("expect") or "").lower() == "100-continue"
        length = headers.get("content-length") or ""
        if (
            exchange.keeps_open
            and not exchange.wants_continue
            and length.isdigit()
            and "transfer-encoding" not in headers
        ):
            head = _Head(exchange.method, exchange.path, headers, int(length))
            self._shared.remember(_written(head.method, self._url, self._pairs), head)
        self._begin(exchange)

    def _begin(self, exchange: Exchange) -> None:
        """Add a request to those that are served one after the other."""
        self._takes_more = exchange.keeps_open
        self._newest = exchange
        self._exchanges.append(exchange)
        if len(self._exchanges) > 1:
            self._transport.pause_reading()
            self.look_after(_HUNG_UP)

    def on_body(self, body: bytes) -> None:
        """Handle a part of the body."""
        self._head = 0
        newest = self._newest
        if newest is None:
            return
        newest.feed(body)
        if newest.size > UNASKED and not newest.over:
            self._shared.bodies.hold(newest, self, self._loop.time())

    def on_message_complete(self) -> None:
        """Handle the end of the request; another may follow."""
        if self._declines:
            return
        self._stop()
        self._in_head, self._head, self._is_between = True, 0, True
        if self._newest is not None:
            self._newest.complete()

    def read_on(self, *, needed: bool) -> None:
        """Read the rest of a body, or pause reading."""
        if needed:
            self._read_or_wait()
        else:
            self._transport.pause_reading()

    def _read_or_wait(self) -> None:
        """Read, unless requests wait already or the client reads too slowly."""
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
        """The header line with the date."""
        return self._shared.date

    def write(self, data: bytes) -> None:
        """Send bytes. TLS would encrypt all of them at once, and never say that the client does not read them."""
        if len(data) <= _CHUNK or self._transport.get_extra_info("sslcontext") is None:
            self._transport.write(data)
            return
        for start in range(0, len(data), _CHUNK):
            if not self._transport.is_closing():
                self._transport.write(memoryview(data)[start : start + _CHUNK])

    def finish(self, exchange: Exchange) -> None:
        """Serve the next request after a complete response, in the next turn of the loop."""
        self._exchanges.popleft()
        self._serving = False
        if not exchange.keeps_open:
            self._transport.close()
            return
        self.look_after(_KEEP_ALIVE)
        if self._exchanges:
            self._loop.call_soon(self._serve_next)
        elif self._refusal is not None:
            self._refuse(*self._refusal)
        elif not self._transport.is_reading():
            self._read_or_wait()

    # Time

    def look_after(self, seconds: float) -> None:
        """Check this connection in this many seconds at the latest. An earlier timer stays, and starts another one."""
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
        """Whether the client has disconnected while reading is paused, which the loop does not report."""
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

    def _once_more(self, timer: asyncio.TimerHandle | None, act: Callable[[], None]) -> asyncio.TimerHandle | None:
        """Another timer, if this one was late because this process stood still: the client gets its time again."""
        is_late = timer is not None and self._loop.time() - timer.when() > _LATE
        return self._loop.call_later(self._own.patience, act) if is_late else None

    def _too_slow(self) -> None:
        self._arriving = self._once_more(self._arriving, self._too_slow)
        if self._arriving is not None:  # the rest may have arrived
            return
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

    def refuse_body(self) -> None:
        """Refuse a large body for which there is no memory."""
        self._refuse(503, "too many large requests at once", b"retry-after: 1\r\n")

    def _refuse(self, status: int, reason: str, fields: bytes = b"") -> None:
        """Send an error and close the connection. During another response, only close it.

        Whole requests are answered before, because they may have had effects: only what follows them is refused.
        """
        self._stop()
        if self._transport.is_closing():
            return
        if len(self._exchanges) > 1 and not self._exchanges[-1].is_whole:
            self._exchanges.pop().leave()
        if self._exchanges and self._exchanges[-1].is_whole:
            self._takes_more, self._refusal = False, (status, reason, fields)
            self._transport.pause_reading()
            self.look_after(_HUNG_UP)
            return
        if not self._exchanges or not self._exchanges[0].status:
            body = reason.encode()
            head = b"%bcontent-type: text/plain\r\ncontent-length: %d\r\n" % (status_line(status), len(body))
            self._transport.write(b"%bconnection: close\r\n%b\r\n%b" % (head, fields, body))
        self._transport.close()
        for exchange in self._exchanges:
            exchange.leave()


def _written(method: str, url: bytes, pairs: list[tuple[bytes, bytes]]) -> bytes:
    """A head in its usual form, in which nearly all clients write it. Others are parsed each time."""
    lines = [b"%b %b HTTP/1.1" % (method.encode(), url), *(b"%b: %b" % pair for pair in pairs)]
    return b"\r\n".join(lines) + _END_OF_HEAD


def _path_of(url: bytes, host: str) -> str:
    """The path of a request target. Raises `HttpParserError` or `ValueError` if it has none, or is of another host."""
    if url == b"/mcp":
        return "/mcp"
    path = cast("bytes | None", httptools.parse_url(url).path)
    if path is None:
        raise ValueError(url)
    if not url.startswith(b"/") and url != b"*":  # a whole URL counts more than the header, which is checked later
        authority = url.partition(b"://")[2].partition(b"/")[0]
        if authority.lower() != host.lower().encode("latin-1"):
            raise ValueError(url)
    text = path.decode("ascii")
    return unquote(text) if "%" in text else text
