"""The private pipe between host and worker: frames of bytes, and a board that both can see.

A frame is a kind, the number of the call it belongs to, and two byte strings: a head that the receiver reads, and a body
that it may pass on unread. Knows nothing of what the strings say.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import tempfile
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple, cast

__all__ = ["Board", "Frame", "FrameReader", "Kind", "Link", "encode_frame"]


class Kind(IntEnum):
    """What a frame is about. The first group goes to the worker, the second to the host."""

    CALL = 1
    """head: how to call; body: the arguments as JSON."""
    CANCEL = 2
    ANSWERS = 3
    """head: what a person answered, by key, or why nobody did."""
    DESCRIBE = 4
    """Load every skill and send the catalog."""
    PING = 5
    QUIT = 6

    READY = 21
    RESULT = 22
    """head: `_meta`; body: the rest of the payload."""
    QUESTIONS = 23
    """head: what to ask; the call waits for ANSWERS."""
    INPUT_REQUIRED = 24
    """head: what to ask; the call has ended and wants to be run again with the answers."""
    REFUSED = 25
    """head: why there is no result, as an object with a `kind`."""
    PROGRESS = 26
    LOG = 27
    CATALOG = 28
    PONG = 29
    LINGERING = 30
    """The number of calls whose threads run on although nobody waits for them."""


class Frame(NamedTuple):
    kind: int
    number: int
    head: bytes
    body: bytes


_HEADER: Final = struct.Struct("!BIII")
_CHUNK: Final = 256 * 1024


def encode_frame(kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"") -> bytes:
    return _HEADER.pack(kind, number, len(head), len(body)) + head + body


class FrameReader:
    """Bytes in, whole frames out."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete."""
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        start, size = 0, _HEADER.size
        while len(buffer) - start >= size:
            kind, number, head, body = _HEADER.unpack_from(buffer, start)
            middle = start + size + head
            end = middle + body
            if len(buffer) < end:
                break
            frames.append(Frame(kind, number, bytes(buffer[start + size : middle]), bytes(buffer[middle:end])))
            start = end
        if start:
            del buffer[:start]
        return frames


class Link(asyncio.BufferedProtocol):
    """One end of the pipe, on a socket."""

    def __init__(self, on_frame: Callable[[Frame], None], on_lost: Callable[[], None]) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._reader = FrameReader()
        self._chunk = bytearray(_CHUNK)
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        """Frames from before the connection was made."""

    def send(self, kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"") -> None:
        """Put a frame on its way. After the other end is gone this does nothing: its owner hears of that elsewhere."""
        frame = encode_frame(kind, number, head, body)
        if self._transport is None:
            self._early.append(frame)
        elif not self._transport.is_closing():
            self._transport.write(frame)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.writelines(self._early)
        self._early.clear()

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - asyncio's signature
        return self._chunk

    def buffer_updated(self, nbytes: int) -> None:
        for frame in self._reader.feed(bytes(memoryview(self._chunk)[:nbytes])):
            self._on_frame(frame)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._on_lost()


class Board:
    """Memory that host and worker share, so that neither has to wait for the other to agree on one thing.

    A worker marks a call before it starts it, and starts none once it is retired. A host retires a worker and then
    sees which calls were never started: those, and only those, can be given to another worker without being run twice.
    """

    SLOTS: Final = 65536

    def __init__(self, fd: int | None = None) -> None:
        self._file = None if fd is not None else tempfile.TemporaryFile(prefix="prowess-")  # noqa: SIM115 - lives with the board
        if self._file is not None:
            self._file.truncate(self.SLOTS)
        self._memory = mmap.mmap(self._file.fileno() if self._file else cast("int", fd), self.SLOTS)

    @property
    def fd(self) -> int:
        """What a worker inherits."""
        assert self._file is not None  # noqa: S101 - only the host's side is asked
        return self._file.fileno()

    def start(self, number: int) -> bool:
        """The worker's question: may this call start?"""
        self._memory[self._slot(number)] = 1
        return not self._memory[0]

    def retire(self) -> None:
        """The host's word: start nothing more."""
        self._memory[0] = 1

    def started(self, number: int) -> bool:
        """Whether the worker has begun a call, as far as the host must fear."""
        return bool(self._memory[self._slot(number)])

    def forget(self, number: int) -> None:
        """Free the slot of a call that is over."""
        self._memory[self._slot(number)] = 0

    def close(self) -> None:
        self._memory.close()
        if self._file is not None:
            self._file.close()

    def _slot(self, number: int) -> int:
        return 1 + number % (self.SLOTS - 1)
