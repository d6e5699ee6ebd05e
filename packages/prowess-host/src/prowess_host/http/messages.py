"""One HTTP request and its response: bounded bodies, complete responses, and streams that end when the client disconnects.

Streams send by callbacks, so that a request that is answered soon needs neither a task nor a timer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from prowess.jsontypes import json_bytes
from prowess_host.http.binding import RefusedRequest
from prowess_host.http.replies import COMMENT, JSON_TYPE
from prowess_host.protocol.rpc import RpcError

if TYPE_CHECKING:
    from prowess_host.http.headers import Headers
    from prowess_host.http.http1 import Http1
    from prowess_host.http.replies import PendingResponse

__all__ = ["UNASKED", "Exchange", "Field", "status_line"]

Field: TypeAlias = tuple[bytes, bytes]
_CLOSE: Final = (b"connection", b"close")
UNASKED: Final = 64 * 1024
"""Bytes of a body that are read before a handler asks for it."""
_AT_ONCE: Final = 64 * 1024
"""Bytes of the largest body that is joined with the head and written in one call."""
_SILENCE: Final = 15.0
"""Seconds without an event after which a stream sends a keep-alive."""
_UNSTREAMED: Final = 5.0
"""Seconds without an answer after which a response becomes a stream, so that proxies do not time out."""
_ODD: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_STATUS_LINES: Final[dict[int, bytes]] = {}


def status_line(status: int) -> bytes:
    """The first line of a response."""
    line = _STATUS_LINES.get(status)
    if line is None:
        line = _STATUS_LINES[status] = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
    return line


class Exchange:
    """One request and its response."""

    __slots__ = (
        "_at_end",
        "_began",
        "_body",
        "_ends",
        "_holds",
        "_most",
        "_news",
        "_outlet",
        "_seen",
        "_silent",
        "_waits",
        "_wire",
        "chunks",
        "fields",
        "gone",
        "headers",
        "held",
        "is_whole",
        "keeps_open",
        "method",
        "over",
        "path",
        "size",
        "status",
        "wants_continue",
    )

    def __init__(self, wire: Http1, method: str, path: str, headers: Headers) -> None:
        self._wire = wire
        self.method = method
        self.path = path
        self.headers = headers
        self.status = 0
        self.fields: list[Field] = []
        """Headers of every response to this request."""
        self.keeps_open = True
        """Whether another request may follow."""
        self.chunks = True
        """Whether the client supports chunked responses."""
        self.wants_continue = False
        """Whether the client waits for `100 Continue` before it sends the body."""
        self.is_whole = False
        """Whether the whole body has arrived."""
        self.gone = False
        """Whether the client disconnected before the response was complete."""
        self.over = False
        """Whether the exchange is over."""
        self._at_end: list[Callable[[], None]] = []
        self._body: bytes | bytearray = b""
        self.size = 0
        """Bytes of the body that have arrived."""
        self.held = 0
        """Bytes of the body that count for the limit of large bodies."""
        self._most: int | None = None
        """The most bytes of the body that a handler accepts; `None` until one asks."""
        self._waits: asyncio.Future[None] | None = None
        self._outlet: PendingResponse | None = None

    @property
    def address(self) -> str:
        """The address of the client."""
        return self._wire.address(self.headers)

    # The request

    def feed(self, data: bytes) -> None:
        """Add a part of the body."""
        if self.over:
            return
        self.size += len(data)
        if self._most is not None and self.size > self._most:
            self._body = b""
        elif not self._body:
            self._body = data
        else:  # in one buffer, since a body may arrive in millions of parts
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data
        if self._most is None and self.size > UNASKED:
            self._wire.read_on(needed=False)
        self._wake()

    def complete(self) -> None:
        """Mark the body as complete."""
        self.is_whole = True
        self._wake()

    def taken(self, most: int) -> bytes | RefusedRequest | None:
        """The whole body, or the refusal; `None` if more has to arrive."""
        length = self.headers.get("content-length")
        if self.size > most or (length is not None and length.isascii() and length.isdigit() and int(length) > most):
            return _too_large(most)
        if not self.is_whole:
            return None
        body, self._body = self._body, b""
        return bytes(body)

    async def body(self, most: int) -> bytes | RefusedRequest:
        """Wait for the whole body, or return the refusal. Raises `ConnectionError` if the client disconnects."""
        self._most = most
        while (body := self.taken(most)) is None:
            if self.gone:
                raise ConnectionError
            if self.wants_continue:
                self.wants_continue = False
                self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._wire.read_on(needed=True)
            await self._changed()
        return body

    async def disconnected(self) -> None:
        """Wait until the client disconnects."""
        while not self.gone:
            await self._changed()

    async def _changed(self) -> None:
        self._waits = asyncio.get_running_loop().create_future()
        await self._waits

    def _wake(self) -> None:
        if self._waits is not None and not self._waits.done():
            self._waits.set_result(None)

    def leave(self) -> None:
        """Handle the end of the connection."""
        if not self.over:
            self.gone = True
            self._close()

    # The response

    def refuse(self, refused: RefusedRequest) -> None:
        """Send a refusal."""
        body = refused.body
        self.answer(refused.status, body, *((JSON_TYPE,) if body else ()), *refused.headers)

    def json(self, status: int, value: Any, *fields: Field) -> None:
        """Answer with JSON."""
        self.answer(status, json_bytes(value), JSON_TYPE, *fields)

    def answer(self, status: int, body: bytes = b"", *fields: Field) -> None:
        """Send a complete response, unless the client has disconnected."""
        if self.over:
            return
        head = self._head(status, b"" if status in (204, 304) else b"content-length: %d\r\n" % len(body), fields)
        if self.method == "HEAD":
            body = b""
        if len(body) < _AT_ONCE:
            self._wire.write(head + body)
        else:
            self._wire.write(head)
            self._wire.write(body)
        self._end()

    def _head(self, status: int, framing: bytes, fields: tuple[Field, ...]) -> bytes:
        lines = [status_line(status), self._wire.date, framing]
        for name, value in (*fields, *self.fields):
            if _ODD.search(value):
                raise ValueError(f"the header {name.decode()} has a character that no header may have")
            if (name, value) == _CLOSE:
                self.keeps_open = False
            else:
                lines.append(b"%b: %b\r\n" % (name, value))
        if self.wants_continue and not self.is_whole:  # nobody knows whether the body still comes
            self.keeps_open = False
        lines.append(b"\r\n" if self.keeps_open else b"connection: close\r\n\r\n")
        self.status = status
        return b"".join(lines)

    @property
    def is_answered(self) -> bool:
        """Whether the response is sent or will be."""
        return self.over or self._outlet is not None

    def abandon(self) -> None:
        """Answer with an internal error. A response that has begun is cut off, so that the client notices."""
        self.keeps_open = False
        self.fields.clear()
        if not self.status:
            self.answer(500)
        elif not self.over:
            self._end()

    def _end(self) -> None:
        self._wire.finish(self)
        self._close()

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the response is complete or the client has disconnected; at once if that is over."""
        if self.over:
            callback()
        else:
            self._at_end.append(callback)

    def _close(self) -> None:
        self.over = True
        self._wake()
        if self._outlet is not None:
            self._outlet.close()
        at_end, self._at_end = self._at_end, []  # breaks a reference cycle
        for callback in at_end:
            callback()

    # Streams

    def stream(
        self,
        outlet: PendingResponse,
        *,
        silent: Callable[[], None] | None = None,
        began: Callable[[], None] | None = None,
        most: float = 0.0,
    ) -> None:
        """Send from an outlet until it ends, or until `most` seconds after the response has begun as a stream.

        `silent` is called after a while without data, and `began` when the response begins as a stream.
        """
        self._outlet = outlet
        self._silent, self._began, self._holds = silent, began, most
        self._news = False
        self._ends = float("inf")
        self._seen = asyncio.get_running_loop().time()
        outlet.news = self._on_news
        self.pump()
        if not self.over:
            self._wire.look_after(_UNSTREAMED)

    def _on_news(self) -> None:
        """Send a whole response at once, and the events of one turn of the loop together."""
        outlet = self._outlet
        if outlet is not None and outlet.head is not None and outlet.head.whole:
            self.pump()
        elif not self._news:
            self._news = True
            asyncio.get_running_loop().call_soon(self.pump)

    def pump(self) -> None:
        """Send the waiting bytes, unless the client reads too slowly."""
        self._news = False
        outlet = self._outlet
        if outlet is None or self.over:
            return
        head = outlet.head
        if head is None:
            if outlet.ended:
                self.answer(202)
        elif head.whole:
            self.answer(head.status, head.body, *head.headers)
        elif not self._wire.is_blocked:
            start = b"" if self.status else self._begin_stream(head.status, head.headers)
            ended, data = outlet.ended, outlet.take()
            self._seen = asyncio.get_running_loop().time()
            self._put(start, data, last=ended)

    def _begin_stream(self, status: int, fields: tuple[Field, ...]) -> bytes:
        if self._began is not None:
            self._began()
        if self._holds:
            self._ends = asyncio.get_running_loop().time() + self._holds
            self._wire.look_after(self._holds)
        if not self.chunks:
            self.keeps_open = False
        return self._head(status, b"transfer-encoding: chunked\r\n" if self.chunks else b"", fields)

    def _put(self, start: bytes, data: bytes, *, last: bool) -> None:
        if self.chunks and data:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self.chunks and last:
            data += b"0\r\n\r\n"
        if start or data:
            self._wire.write(start + data)
        if last:
            self._end()

    def tick(self, now: float) -> float:
        """Check whether the stream was silent or open for too long. Returns the seconds until the next check."""
        if self._outlet is None or self.over:
            return _SILENCE
        if now >= self._ends:
            self._put(b"", b"", last=True)
        elif now - self._seen >= (_SILENCE if self.status else _UNSTREAMED):
            self._seen = now
            if self.status and not self._wire.is_blocked:
                self._put(b"", COMMENT, last=False)
            elif not self.status and self._silent is not None:
                self._silent()
        quiet = self._seen + (_SILENCE if self.status else _UNSTREAMED)
        return max(min(quiet, self._ends) - now, 0.001)


def _too_large(most: int) -> RefusedRequest:
    reason = f"the body is larger than {most} bytes; serve.max_body allows more"
    return RefusedRequest(413, RpcError.invalid_request(reason), headers=(_CLOSE,))
