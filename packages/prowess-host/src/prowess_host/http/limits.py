"""uvicorn's protocol with limits for each client: bytes, fields and time of a request, and time to read a response.

Each refusal closes the connection. A timer starts only when a request is incomplete, so that most requests cost none.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from prowess.settings.keys import ServeSettings

__all__ = ["limited_protocol"]

_MOST_FIELDS: Final = 100
_AT_ONCE_OVER: Final = struct.pack("ii", 1, 0)
_AT_ONCE: Final = 64 * 1024
"""Bytes that are joined for one system call."""


class _TooLarge(ValueError):
    """The head of a request."""


class _Joined:
    """A transport that joins the writes of one turn of the loop, usually a head and its body."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Buffer bytes and send them in this turn of the loop."""
        if not self._held:
            asyncio.get_running_loop().call_soon(self.flush)
        self._held.append(data)
        self._size += len(data)
        if self._size > _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Send the buffered bytes."""
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            self._size = 0
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection after the buffered bytes."""
        self.flush()
        self._transport.close()


def limited_protocol(own: ServeSettings) -> type[HttpToolsProtocol]:
    """The protocol, with the bounds of the settings."""

    class Limited(HttpToolsProtocol):
        """One connection."""

        _head = 0
        """Bytes that arrived while a head was read, perhaps with the beginning of a body."""
        _in_head = True
        _waits_for = "head"
        _arriving: asyncio.TimerHandle | None = None
        _leaving: asyncio.TimerHandle | None = None

        # The connection

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Called when a client has connected."""
            super().connection_made(cast("asyncio.Transport", _Joined(transport)))
            self._arriving = self.loop.call_later(own.patience, self._too_slow)
            if len(self.connections) > own.max_connections:
                self._refuse(503, "too many connections", b"retry-after: 1\r\n")

        def connection_lost(self, exc: Exception | None) -> None:
            """Called when the connection has ended."""
            self._stop()
            self.resume_writing()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            """Start the timeout for a client that reads slowly."""
            super().pause_writing()
            self._leaving = self.loop.call_later(own.patience, self._abort)

        def _abort(self) -> None:
            """Abort the connection and drop unsent bytes, which the system would otherwise keep for long."""
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE_OVER)
            self.transport.abort()

        def resume_writing(self) -> None:
            """Stop the timeout: the client has read the data."""
            if self._leaving is not None:
                self._leaving.cancel()
                self._leaving = None
            super().resume_writing()

        # Input

        def data_received(self, data: bytes) -> None:
            """Some bytes of a request, or of several."""
            if self.transport.is_closing():
                return
            if self._in_head:
                self._head += len(data)
            super().data_received(data)
            if self._in_head and self._head > own.max_header:
                self._refuse(431, "the request headers are too large")
            elif self._arriving is None and (self._head or not self._in_head):
                self._arriving = self.loop.call_later(own.patience, self._too_slow)

        def on_message_begin(self) -> None:
            """A request begins."""
            self._waits_for = "head"
            super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            """A part of the target of the request."""
            super().on_url(url)
            if len(self.url) > own.max_header:
                raise _TooLarge

        def on_header(self, name: bytes, value: bytes) -> None:
            """One field of the head."""
            super().on_header(name, value)
            if len(self.headers) > _MOST_FIELDS:
                raise _TooLarge

        def on_headers_complete(self) -> None:
            """The headers are complete."""
            if self._head > own.max_header and self._size_of_head() > own.max_header:
                raise _TooLarge
            self._stop()
            self._in_head, self._head, self._waits_for = False, 0, "body"
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            """The request is complete; another may follow."""
            self._stop()
            self._in_head = True
            super().on_message_complete()

        def send_400_response(self, msg: str) -> None:
            """Refuse a malformed request, or one with too large a head."""
            if self._size_of_head() > own.max_header or len(self.headers or ()) > _MOST_FIELDS:
                self._refuse(431, "the request headers are too large")
            else:
                self._refuse(400, msg)

        def _size_of_head(self) -> int:
            fields = sum(len(name) + len(value) + 4 for name, value in self.headers or ())
            return fields + len(getattr(self, "url", b""))

        # Refusals

        def _stop(self) -> None:
            """Stop the timeout for requests."""
            if self._arriving is not None:
                self._arriving.cancel()
                self._arriving = None

        def _too_slow(self) -> None:
            self._arriving = None
            if self._head or not self._in_head:
                self._refuse(
                    408, f"the {self._waits_for} of the request did not arrive within {own.patience:g} seconds"
                )
            else:
                self.transport.close()

        def _refuse(self, status: int, reason: str, fields: bytes = b"") -> None:
            """Send an error and close the connection. During another response, only close it."""
            self._stop()
            if self.transport.is_closing():
                return
            cycle: Any = self.cycle
            if cycle is None or cycle.response_complete or not cycle.response_started:
                body = reason.encode()
                head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: text/plain\r\n"
                head += f"content-length: {len(body)}\r\nconnection: close\r\n"
                self.transport.write(b"%b%b\r\n%b" % (head.encode(), fields, body))
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True  # its response would follow ours
                cycle.message_event.set()
            self.transport.close()

    return Limited
