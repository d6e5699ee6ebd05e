"""The private pipe between host and worker: frames of bytes, and a board that both can see.

A frame is a kind, the number of the call it belongs to, and two byte strings: a head that the receiver reads, and a body
that it may pass on unread. Knows nothing of what the strings say.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, cast

from prowess.worker.heap import LARGE, give_back_soon
from prowess.worker.messages import Kind

__all__ = ["Board", "Frame", "FrameReader", "Importing", "Link", "encode_frame", "receive"]


class Frame(NamedTuple):
    """One message of the link."""

    kind: int
    number: int
    head: bytes
    body: bytes


_HEADER: Final = struct.Struct("!BIII")
_SIZE: Final = _HEADER.size
_CHUNK: Final = 256 * 1024
_MOST_CHUNKS: Final = 4096
"""What is drained at the end: a child of the worker may go on writing."""
_SMALL: Final = 16 * 1024
"""Bytes of a frame that may be held back: copying a larger one once more costs more than it saves."""


def encode_frame(kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"") -> bytes:
    """A frame as bytes."""
    return b"".join((_HEADER.pack(kind, number, len(head), len(body)), head, body))


def receive(sock: socket.socket) -> Frame:
    """One frame, waited for; `EOFError` if the other end is gone."""
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
    """Bytes in, whole frames out."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete."""
        if not self._rest:
            frames, used = _cut(data)
            if used < len(data):
                self._rest += data[used:]
            return frames
        self._rest += data
        with memoryview(self._rest) as view:
            frames, used = _cut(view)
        del self._rest[:used]
        return frames


def _cut(data: bytes | memoryview) -> tuple[list[Frame], int]:
    """The whole frames at the beginning, and how many bytes they are."""
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
        """Frames from before the connection was made, or that wait for the end of this turn of the loop."""
        self._receiving = False
        """Whether several frames are being handed over: what is sent meanwhile goes together."""
        self.full = False
        """Whether the other end does not read as fast as this one writes: what is only of the moment can wait."""
        self.on_room: Callable[[], None] = _nobody_waits
        """Called when it is no longer full."""

    def send(self, kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"", *, more: bool = False) -> None:
        """Put a frame on its way. After the other end is gone this does nothing: its owner hears of that elsewhere.

        `more` says that others probably follow at once, so that they may go together.
        """
        frame: bytes | memoryview = encode_frame(kind, number, head, body)
        if len(frame) >= LARGE:
            give_back_soon()
            frame = memoryview(frame)  # so that what is not sent at once is not copied twice
        if self._transport is None:
            self._held.append(frame)
        elif self._transport.is_closing():
            return
        elif (more or self._receiving) and len(frame) < _SMALL:
            if not self._held and not self._receiving:
                asyncio.get_running_loop().call_soon(self._release)
            self._held.append(frame)
        else:
            if self._held:
                self._release()
            self._transport.write(frame)

    def _release(self) -> None:
        """Send what was held back."""
        if self._held and self._transport is not None:
            self._transport.write(b"".join(self._held))
            self._held.clear()

    def close(self) -> None:
        """Send what was sent, and nothing more."""
        self._release()
        if self._transport is not None:
            self._transport.close()

    # asyncio's side

    def pause_writing(self) -> None:
        """Frames pile up."""
        self.full = True

    def resume_writing(self) -> None:
        """Most of them are sent."""
        self.full = False
        self.on_room()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what waited for this."""
        self._transport = cast("asyncio.Transport", transport)
        self._release()

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - asyncio's signature
        """One buffer for all: it is emptied at once."""
        return self._chunk

    def buffer_updated(self, nbytes: int) -> None:
        """Hand the frames over."""
        frames = self._reader.feed(bytes(memoryview(self._chunk)[:nbytes]))
        self._receiving = len(frames) > 1
        for frame in frames:
            if len(frame.head) + len(frame.body) >= LARGE:
                give_back_soon()
            self._on_frame(frame)
        if self._receiving:
            self._receiving = False
            self._release()

    def drain(self, sock: socket.socket) -> None:
        """Hand over what has arrived at the socket of this link by now."""
        for _ in range(_MOST_CHUNKS):
            try:
                size = sock.recv_into(self._chunk)
            except OSError:  # nothing more
                return
            if not size:
                return
            self.buffer_updated(size)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """The other end is gone. Whoever holds this end holds no buffers with it."""
        self._reader, self._chunk = FrameReader(), bytearray()
        self._on_lost()


def _nobody_waits() -> None:
    """Nothing was held back."""


class Importing(NamedTuple):
    """The import of one file of a skill that is going on."""

    since_ns: int
    skill: str
    file: str


class Board:
    """Memory that host and worker share, so that neither has to wait for the other to agree on one thing.

    A worker marks a call before it starts the call. A host can withdraw one call, or retire the worker, which withdraws
    all of them. Each side writes its own mark before it reads the other's. So the calls without a mark of the worker
    were never started: those, and only those, can be given to another worker without being run twice.

    Behind the marks there is a counter that a thread of the worker advances, and a note of what is being imported. The
    note outlives a worker that an import ends.
    """

    SLOTS: Final = 65536

    def __init__(self, fd: int | None = None) -> None:
        self._fd = fd if fd is not None else _shared_file(_SIZE_OF_BOARD)
        self._memory = mmap.mmap(self._fd, _SIZE_OF_BOARD)

    @property
    def fd(self) -> int:
        """What a worker inherits."""
        return self._fd

    def start(self, number: int) -> bool:
        """The worker asks: may this call start?"""
        slot = self.slot(number)
        self._memory[slot] = _STARTED
        return not self._memory[0] and not self._memory[_WITHDRAWN + slot]

    def retire(self) -> None:
        """The host says: start nothing more. After this `started` gives the final word on every call."""
        self._memory[0] = 1
        time.sleep(_VISIBLE)

    def withdraw(self, numbers: Iterable[int]) -> None:
        """The host says: do not start these calls. After this `started` gives the final word on them."""
        for number in numbers:
            self._memory[_WITHDRAWN + self.slot(number)] = 1
        time.sleep(_VISIBLE)

    def started(self, number: int) -> bool:
        """Whether the worker may have begun a call."""
        return self._memory[self.slot(number)] == _STARTED

    def forget(self, number: int) -> None:
        """Free the slot of a call that is over."""
        slot = self.slot(number)
        self._memory[slot] = self._memory[_WITHDRAWN + slot] = 0

    def beat(self) -> None:
        """A thread of the worker says: this process runs, and nothing holds its interpreter."""
        self._memory[_BEATS] = self._memory[_BEATS] % 255 + 1

    @property
    def beats(self) -> int:
        """A number that changes with every beat; 0 before the first one."""
        return self._memory[_BEATS]

    def note(self, imports: Iterable[Importing]) -> None:
        """The worker says: these imports are going on. They are cut to what fits."""
        kept = list(imports)
        while len(text := json.dumps(kept)) >= _NOTE:
            kept.pop()
        # The host looks here with every call: where nothing is imported, one byte has to say so.
        self._memory[_NOTES:] = (text if kept else "").encode().ljust(_NOTE, b"\0")

    @property
    def noted(self) -> tuple[Importing, ...]:
        """The imports that are going on, or were when the worker ended."""
        if self._memory[_NOTES] == 0:
            return ()
        try:
            noted = json.loads(self._memory[_NOTES:].partition(b"\0")[0])
            return tuple(Importing(int(since), str(skill), str(file)) for since, skill, file in noted)
        except (TypeError, ValueError):  # the worker is writing just now, or was when it ended; or it writes nonsense
            return ()

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()
        os.close(self._fd)

    @classmethod
    def slot(cls, number: int) -> int:
        """Where a call is marked. Two calls in flight must not share a slot."""
        return 1 + number % (cls.SLOTS - 1)


_STARTED: Final = 1
_WITHDRAWN: Final = Board.SLOTS
_BEATS: Final = 2 * Board.SLOTS
_NOTES: Final = _BEATS + 1
_NOTE: Final = 65536
"""Bytes for the imports that go on at one time: names of skills, and paths of files."""
_SIZE_OF_BOARD: Final = _NOTES + _NOTE
_VISIBLE: Final = 50e-6
"""Seconds after which a processor has certainly seen what another one wrote, and they are a thousand times too many."""


def _shared_file(size: int) -> int:
    """A file in memory, where there is such a thing: a full disk must not stop a worker."""
    if hasattr(os, "memfd_create"):
        import fcntl  # it is not on every system

        fd = os.memfd_create("prowess", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.truncate(fd, size)
        # A worker that made it shorter would end the host with the next look at it.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    else:  # pragma: no cover - where there is no such thing
        import tempfile  # 3 ms at the start of every host

        fd, name = tempfile.mkstemp(prefix="prowess-")
        os.unlink(name)  # noqa: PTH108 - the name was never wanted
        os.truncate(fd, size)
    return fd
