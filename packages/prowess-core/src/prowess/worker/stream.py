"""The worker's end of a link without shared memory, where frames replace the board.

Threads read and write, so that the host gets answers even while a command blocks the event loop. The host can withdraw a
waiting call until its BEGUN is sent, and the call starts only after the system has accepted its BEGUN. So when a worker
ends, the host knows which calls had begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import math
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from prowess.worker.board import Importing
from prowess.worker.link import Frame, FrameReader, encode_frame
from prowess.worker.messages import LAST, DueHead, ImportingHead, Kind, WithdrawHead

__all__ = ["Stream"]

_CHUNK: Final = 256 * 1024
_MOST_CHUNKS: Final = 16
"""Chunks that are read before a call starts, so that a host that keeps sending does not delay it for ever."""
_HIGH: Final = 64 * 1024
"""Waiting bytes above which progress and logs are held back."""


class Stream:
    """The worker's side of the `Link` and the `Board` in one object. Safe to use from several threads."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._changed = threading.Condition()
        self._unsent: deque[memoryview] = deque()
        self._size = 0
        self._gone = False
        """Whether the host is gone, so that frames are dropped."""
        self._closing = False
        self._waiting: set[int] = set()
        """Calls that have arrived and not begun."""
        self._begun: set[int] = set()
        """Begun calls that the host has not cancelled."""
        self._due: dict[int, float] = {}
        """The time after which each call that has a limit must not begin."""
        self._retired = False
        self._reading = threading.Lock()
        self._reader = FrameReader()
        self._is_over = False
        """Whether the last bytes of the host are read."""
        self._loop = asyncio.get_running_loop()
        self.full = False
        """Whether the host reads too slowly, so that progress and logs should wait."""
        self.on_room: Callable[[], None] = _ignore_room
        """Called on the loop when it is no longer full."""

    def listen(self, on_frame: Callable[[Frame], None], on_lost: Callable[[], None]) -> None:
        """Start reading and writing. Both functions are called on the running loop, in the current context."""
        self._on_frame, self._on_lost = on_frame, on_lost
        self._context = contextvars.copy_context()
        writer = threading.Thread(target=self._write, name="prowess-writer", daemon=True)
        writer.start()
        threading.Thread(target=self._read, args=(writer,), name="prowess-reader", daemon=True).start()

    # Writing

    def send(self, kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"", *, more: bool = False) -> None:  # noqa: ARG002 - nothing is gained by waiting for more
        """Send a frame. Has no effect if the host is gone."""
        self._put(memoryview(encode_frame(kind, number, head, body)))
        if kind in LAST or kind == Kind.UNBEGUN:
            self._begun.discard(number)
            self._due.pop(number, None)

    def close(self) -> None:
        """Close after the frames that were sent."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _put(self, frame: memoryview, *, wait: bool = False) -> None:
        with self._changed:
            if self._closing or self._gone:
                return
            self._unsent.append(frame)
            self._size += len(frame)
            if len(self._unsent) == 1:
                self._flush()
            if self._unsent:
                self.full = self._size > _HIGH
                self._changed.notify_all()
            while wait and self._unsent:
                self._changed.wait()

    def _flush(self) -> None:
        """Write as much as the system accepts."""
        try:
            while self._unsent:
                sent = self._sock.send(self._unsent[0], socket.MSG_DONTWAIT)
                self._size -= sent
                rest = self._unsent.popleft()[sent:]
                if rest:
                    self._unsent.appendleft(rest)
        except BlockingIOError:
            pass
        except OSError:
            self._gone = True
            self._unsent.clear()
            self._size = 0

    def _write(self) -> None:
        """Write the rest when the system accepts it."""
        writable = select.poll()
        writable.register(self._sock, select.POLLOUT)
        while self._wait_for_work():
            writable.poll()
            with self._changed:
                self._flush()
                if self.full and self._size <= _HIGH:
                    self.full = False
                    self._call_soon(self.on_room)
                self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _wait_for_work(self) -> bool:
        """Wait for something to write. Returns false at the end."""
        with self._changed:
            while not self._unsent and not self._closing and not self._gone:
                self._changed.wait()
            return bool(self._unsent)

    # Reading

    def _read(self, writer: threading.Thread) -> None:
        readable = select.poll()
        readable.register(self._sock, select.POLLIN)
        while not self._is_over:
            readable.poll()
            self._receive()
        with self._changed:
            self._gone = True
            self._unsent.clear()
            self._changed.notify_all()
        writer.join()
        self._sock.close()
        self._call_soon(self._on_lost)

    def _receive(self) -> None:
        """Handle what has arrived."""
        with self._reading:
            for _ in range(_MOST_CHUNKS):
                if self._is_over or (data := self._received()) is None:
                    return
                self._is_over = not data
                frames = [frame for frame in self._reader.feed(data) if self._is_for_the_loop(frame)]
                if frames:
                    self._call_soon(self._hand_over, frames)

    def _received(self) -> bytes | None:
        """The next bytes; `None` if there are none now, and empty at the end."""
        try:
            return self._sock.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _hand_over(self, frames: list[Frame]) -> None:
        for frame in frames:
            self._on_frame(frame)

    def _call_soon(self, callback: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, *args, context=self._context.copy())

    def _is_for_the_loop(self, frame: Frame) -> bool:
        """Handle frames about calls that must not begin. Returns whether the loop has to handle the frame."""
        kind, number = frame.kind, frame.number
        if kind == Kind.WITHDRAW:
            head: WithdrawHead = json.loads(frame.head)
            self._give_back(head["numbers"])
        elif kind == Kind.RETIRE:
            self._retired = True
            self._give_back(list(self._waiting))
        elif kind == Kind.CALL and self._retired:
            self.send(Kind.UNBEGUN, number)
        elif kind == Kind.DUE:
            due: DueHead = json.loads(frame.head)
            self._due[number] = due["at"]
        else:
            with self._changed:
                if kind == Kind.CALL:
                    self._waiting.add(number)
                elif kind == Kind.CANCEL:
                    self._waiting.discard(number)
                    self._begun.discard(number)
                    self._due.pop(number, None)
            return True
        return False

    def _give_back(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            with self._changed:
                waits = number in self._waiting
                self._waiting.discard(number)
            if waits:
                self.send(Kind.UNBEGUN, number)

    # In place of a board

    def start(self, number: int) -> bool:
        """Whether this call may start. If so, the host learns of its start even if this process ends at once."""
        self._receive()  # after a time without a processor, its end may have arrived with it
        with self._changed:
            if number not in self._waiting:
                return False
            self._waiting.discard(number)
            if self._is_overdue(number):
                return False
            self._begun.add(number)
        self._put(memoryview(encode_frame(Kind.BEGUN, number)), wait=True)
        # It may have waited long for a host that reads slowly.
        return number in self._begun and not self._is_overdue(number)

    def _is_overdue(self, number: int) -> bool:
        """Whether the time of a call is up. Its CANCEL may still be on the way."""
        return time.monotonic() > self._due.get(number, math.inf)

    def pause(self, number: int) -> None:
        """Let the host withdraw a call that waits for its turn, unless it is cancelled. `start` is called again before it runs."""
        with self._changed:
            if number not in self._begun:
                return
            self._begun.discard(number)
            self._waiting.add(number)
        if self._retired:
            self._give_back([number])

    def note(self, imports: Iterable[Importing]) -> None:
        """Report the running imports."""
        head: ImportingHead = {"imports": [list(each) for each in imports]}
        self._put(memoryview(encode_frame(Kind.IMPORTING, 0, json.dumps(head).encode())), wait=True)

    def beat(self) -> None:
        """Show that this process runs and its interpreter is free."""
        self.send(Kind.BEAT)


def _ignore_room() -> None:
    """The default of `on_room`."""
