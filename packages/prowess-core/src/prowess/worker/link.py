"""The private pipe between host and worker: frames of bytes.

A frame is a kind, the number of its call, and two byte strings: a head that the receiver reads, and a body that it may pass
on unread. Independent of the content of both.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from prowess.worker.heap import LARGE, give_back_soon
from prowess.worker.messages import Kind

__all__ = ["Frame", "FrameReader", "Link", "encode_frame", "receive"]


class Frame(NamedTuple):
    """One message of the link."""

    kind: int
    number: int
    head: bytes
    body: bytes


_HEADER: Final = struct.Struct("!BIII")
_SIZE: Final = _HEADER.size
_CHUNK: Final = 256 * 1024
_LARGE_FRAME: Final = 64 * 1024
_LARGEST_ROOM: Final = 64 * 1024 * 1024
"""Bytes of the largest frame whose buffer is allocated as soon as its header has arrived."""
_NO_ROOM: Final = memoryview(b"")
_MOST_CHUNKS: Final = 4096
"""The most chunks to drain at the end, because a child of the worker may continue writing."""
_SMALL: Final = 16 * 1024
"""Largest frame that is held back to be joined with others. Copying larger ones costs more than it saves."""
_MOST_HELD: Final = 16
"""Frames that are joined at most. Otherwise the other end would wait while this one handles all that has arrived."""


def encode_frame(kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"") -> bytes:
    """A frame as bytes."""
    return b"".join((_HEADER.pack(kind, number, len(head), len(body)), head, body))


def _without_body(kind: Kind, number: int, head: bytes, body: bytes) -> bytes:
    """The part of a frame that comes before the body."""
    return _HEADER.pack(kind, number, len(head), len(body)) + head


def receive(sock: socket.socket) -> Frame:
    """Wait for one frame. Raises `EOFError` if the other end is gone."""
    kind, number, head, body = _HEADER.unpack(_exactly(sock, _SIZE))
    return Frame(kind, number, _exactly(sock, head), _exactly(sock, body))


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


class FrameReader:
    """Splits a stream of bytes into frames."""

    __slots__ = ("_rest", "filled")

    def __init__(self) -> None:
        self._rest = bytearray()
        """The bytes of an incomplete frame; the buffer for the whole frame, if it is large."""
        self.filled = 0
        """The number of received bytes of a large frame; 0 without one."""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete."""
        if self.filled:
            part = data[: len(self._rest) - self.filled]
            self.room[: len(part)] = part
            frames = self.fill(len(part))
            return frames + self.feed(data[len(part) :]) if frames else frames
        if not self._rest:
            frames, used = _cut(data)
            if used < len(data):
                self._rest += data[used:]
        else:
            self._rest += data
            with memoryview(self._rest) as view:
                frames, used = _cut(view)
            del self._rest[:used]
        if self._rest and _LARGE_FRAME < (size := _SIZE + self.announced) <= _LARGEST_ROOM:
            rest, self._rest, self.filled = self._rest, bytearray(size), len(self._rest)
            self._rest[: len(rest)] = rest
        return frames

    @property
    def room(self) -> memoryview:
        """The buffer for the rest of a large frame, for `fill`; empty without one."""
        return memoryview(self._rest)[self.filled :] if self.filled else _NO_ROOM

    def fill(self, size: int) -> list[Frame]:
        """The large frame, if this many new bytes complete it."""
        self.filled += size
        if self.filled < len(self._rest):
            return []
        with memoryview(self._rest) as view:
            frames, _ = _cut(view)
        self._rest, self.filled = bytearray(), 0
        return frames

    @property
    def announced(self) -> int:
        """The size of an incomplete frame, according to its header."""
        if len(self._rest) < _SIZE:
            return 0
        _, _, head, body = _HEADER.unpack_from(self._rest)
        return head + body

    @property
    def number(self) -> int:
        """The number of the call of an incomplete frame; 0 without one."""
        return _HEADER.unpack_from(self._rest)[1] if len(self._rest) >= _SIZE else 0


def _cut(data: bytes | memoryview) -> tuple[list[Frame], int]:
    """The complete frames at the beginning, and their number of bytes."""
    frames: list[Frame] = []
    start, length = 0, len(data)
    while length - start >= _SIZE:
        kind, number, head, body = _HEADER.unpack_from(data, start)
        middle = start + _SIZE + head
        end = middle + body
        if end > length:
            break
        frames.append(Frame(kind, number, bytes(data[start + _SIZE : middle]), bytes(data[middle:end])))
        start = end
    return frames, start


class Link(asyncio.BufferedProtocol):
    """One end of the pipe, on a socket."""

    def __init__(self, on_frame: Callable[[Frame], None], on_lost: Callable[[], None]) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._reader = FrameReader()
        self._chunk = bytearray(_CHUNK)
        self._transport: asyncio.Transport | None = None
        self._held: list[bytes | memoryview] = []
        """Frames that wait for the connection, or for the end of this turn of the loop."""
        self._releasing = threading.Lock()
        self._receiving = False
        """Whether several received frames are being handled. Frames that are sent meanwhile are joined."""
        self._most = 0
        self._on_excess: Callable[[int], None] = _ignore_excess
        self._deaf = False
        self.full = False
        """Whether the other end reads too slowly, so that progress and logs should wait."""
        self.on_room: Callable[[], None] = _ignore_room
        """Called when it is no longer full."""

    def send(self, kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"", *, more: bool = False) -> None:
        """Send a frame. If the other end is gone, this has no effect, and the owner learns it elsewhere.

        `more` says that others probably follow at once, so that they can be joined.
        """
        if len(head) + len(body) >= LARGE:
            give_back_soon()
            self._send_large(_without_body(kind, number, head, body), body)
            return
        frame = b"".join((_HEADER.pack(kind, number, len(head), len(body)), head, body))  # `encode_frame`
        if self._transport is None:
            self._held.append(frame)
        elif self._transport.is_closing():
            return
        elif (more or self._receiving) and len(frame) < _SMALL:
            if not self._held and not self._receiving:
                asyncio.get_running_loop().call_soon(self._release)
            self._held.append(frame)
            if len(self._held) >= _MOST_HELD:
                self._release()
        else:
            if self._held:
                self._release()
            self._transport.write(frame)

    def _send_large(self, header: bytes, body: bytes) -> None:
        """Send a large frame in two parts, neither of which is copied."""
        if self._transport is None:
            self._held += [header, body]
        elif not self._transport.is_closing():
            self._release()
            self._transport.write(header)
            self._transport.write(memoryview(body))

    def _release(self) -> None:
        """Send the frames that were held back."""
        if self._held and self._transport is not None:
            with self._releasing:
                self._transport.write(b"".join(self._held))
                self._held.clear()

    def release_from_thread(self) -> None:
        """The same from a thread, as far as the system accepts it, while something blocks the loop."""
        transport = self._transport
        if not self._held or transport is None or transport.is_closing():
            return
        with self._releasing, contextlib.suppress(OSError):  # the buffer is full, or the other end is gone
            while self._held and not transport.get_write_buffer_size():
                sent = os.write(transport.get_extra_info("socket").fileno(), self._held[0])
                rest = memoryview(self._held[0])[sent:]
                self._held[:1] = [rest] if rest else []

    def bound(self, most: int, on_excess: Callable[[int], None]) -> None:
        """Limit the size of frames. A larger one ends the reading and is reported to `on_excess`."""
        self._most, self._on_excess = most, on_excess

    def hold(self) -> None:
        """Stop reading until `go_on`, so that the other end has to wait."""
        if self._transport is not None:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Read again after `hold`."""
        if self._transport is not None:
            self._transport.resume_reading()

    def is_receiving(self, number: int) -> bool:
        """Whether a frame about this call has arrived in part."""
        return self._reader.number == number

    def stop_reading(self) -> None:
        """Stop reading from the other end."""
        self._deaf = True
        self._reader = FrameReader()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close after the frames that were sent."""
        self._release()
        if self._transport is not None:
            self._transport.close()

    # Callbacks of asyncio

    def pause_writing(self) -> None:
        """Called when too many frames wait."""
        self.full = True

    def resume_writing(self) -> None:
        """Called when most of them are sent."""
        self.full = False
        self.on_room()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the waiting frames."""
        self._transport = cast("asyncio.Transport", transport)
        self._release()

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:  # noqa: ARG002 - asyncio's signature
        """The buffer for the rest of a large frame, else the common buffer, which is always emptied at once."""
        return self._reader.room if self._reader.filled else self._chunk

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on the received frames."""
        if self._deaf:
            return
        reader = self._reader
        frames = reader.fill(nbytes) if reader.filled else reader.feed(bytes(memoryview(self._chunk)[:nbytes]))
        self._receiving = len(frames) > 1
        for frame in frames:
            if len(frame.head) + len(frame.body) >= LARGE:
                give_back_soon()
            self._on_frame(frame)
        if self._receiving:
            self._receiving = False
            self._release()
        if self._most and (size := self._reader.announced) > self._most:
            self.stop_reading()
            self._on_excess(size)

    def drain(self, sock: socket.socket) -> None:
        """Pass on the frames that have already arrived at the socket."""
        for _ in range(_MOST_CHUNKS):
            try:
                size = os.readv(sock.fileno(), [self.get_buffer(_CHUNK)])
            except OSError:  # nothing more
                return
            if not size:
                return
            self.buffer_updated(size)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the buffers after the other end has closed."""
        if exc is not None and self._transport is not None:  # asyncio does not read on after a write has failed
            self.drain(self._transport.get_extra_info("socket"))
        self._reader, self._chunk = FrameReader(), bytearray()
        self._on_lost()


def _ignore_room() -> None:
    """The default of `on_room`."""


def _ignore_excess(_size: int) -> None:
    """The default without a limit."""
