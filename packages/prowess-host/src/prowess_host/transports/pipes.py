"""The client's ends of stdin and stdout, read and written without blocking.

Transports bytes and lines. Only the `Writer` can write to the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import socket
import stat
import threading
import time
import weakref
from collections.abc import Callable
from typing import Final, cast

from prowess.daemons import start_thread
from prowess.worker.heap import LARGE, give_back_soon
from prowess.worker.output import reopened
from prowess_host.stderr import Room, write_some

__all__ = ["Reader", "Writer"]

_CHUNK: Final = 64 * 1024
"""Bytes of one read: the usual capacity of a pipe. A larger buffer would be mapped and unmapped for every request."""
_LONG_LINE: Final = 256 * 1024
"""The same in the middle of a long line: each read less saves two changes of process. With much more, client and host would take
turns instead of working at the same time."""
_MOST_BACKLOG: Final = 64 * 1024 * 1024
"""Bytes that may wait for a client. Above that, the host stops reading from the client."""
_SMALL: Final = 16 * 1024
"""Largest message that is held back to be joined with others. Copying larger ones costs more than it saves."""
_AGAIN: Final = 0.01
"""Seconds between two attempts to write to a slow client, where the system refuses a thread that waits for it."""
_LONGEST_FLUSH: Final = 60.0
"""Seconds that a client gets at the end to read the rest, if it keeps reading."""
_MOST_AT_ONCE: Final = 256 * 1024
"""Bytes of one message that are written directly; the rest of a longer one goes by the thread."""


class Reader:
    """Passes on input chunk by chunk, and an empty chunk at the end. Can be paused."""

    def __init__(self, fd: int, on_bytes: Callable[[bytes], None]) -> None:
        self._fd = fd
        self._on_bytes = on_bytes
        self._loop = asyncio.get_running_loop()
        self._active = False
        self._ended = False
        self._most = _CHUNK
        self._has_grown = False

    @property
    def has_left(self) -> bool:
        """Whether the client has closed its end, even if there is input left."""
        poll = select.poll()
        poll.register(self._fd, 0)
        return bool(poll.poll(0))

    def start(self) -> None:
        """Start or continue reading. Regular files cannot be polled, so they are read at once."""
        if self._ended or self._active:
            return
        self._active = True
        try:
            self._loop.add_reader(self._fd, self._read)
        except PermissionError:  # epoll refuses regular files
            self._loop.call_soon(self._read_file)

    def pause(self) -> None:
        """Stop reading for now, or for good."""
        if self._active:
            self._active = False
            self._loop.remove_reader(self._fd)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, self._most)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._ended = True
            self.pause()
        is_within = len(data) >= _CHUNK and b"\n" not in data
        self._most = _LONG_LINE if is_within else _CHUNK
        if is_within and not self._has_grown:
            self._has_grown = True
            _grow(self._fd)
        self._on_bytes(data)

    def _read_file(self) -> None:
        if self._active:
            self._read()
            if not self._ended:
                self._loop.call_soon(self._read_file)


def _grow(fd: int) -> None:
    """Enlarge the buffer of a pipe, where the system can and allows it."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl  # only for large messages

        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _LONG_LINE)


class Writer:
    """The only writer to the client. Never blocks: bytes that the pipe does not take wait in a thread."""

    def __init__(self, fd: int, on_broken: Callable[[], None]) -> None:
        self._fd = fd
        self._on_broken = on_broken
        self._held: list[bytes] = []
        self._queue: queue.SimpleQueue[memoryview | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.backlog = 0
        """The number of bytes that the client has not read."""
        self._thread: threading.Thread | None = None
        self._has_no_thread = False
        """Whether the system has refused a thread, so that the loop writes what waits."""
        self._left = memoryview(b"")
        """The rest of the line that is being written without a thread."""
        self._broken = False
        self._loop = asyncio.get_running_loop()
        mode = os.fstat(fd).st_mode
        self._socket = socket.socket(fileno=os.dup(fd)) if stat.S_ISSOCK(mode) else None
        self._pipe = stat.S_ISFIFO(mode)
        self._room = Room(fd)
        self._own = reopened(fd) if self._pipe else None
        """The pipe once more, without blocking: a write takes one system call instead of two."""
        if self._own is not None:
            weakref.finalize(self, os.close, self._own)

    @property
    def has_left(self) -> bool:
        """Whether the client has stopped reading."""
        poll = select.poll()
        poll.register(self._fd, 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))

    @property
    def full(self) -> bool:
        """Whether to stop reading from the client until it has read."""
        return self.backlog > _MOST_BACKLOG

    def write(self, line: bytes, *, more: bool = False) -> None:
        """Send some whole lines, after everything that was sent before.

        `more` says that others probably follow at once, so that they may go together.
        """
        if self._broken or not line:
            return
        if more and len(line) < _SMALL:
            if not self._held:
                self._loop.call_soon(self._release)
            self._held.append(line)
        else:
            if self._held:
                self._release()
            self._send(line)

    def _release(self) -> None:
        """Send the messages that were held back in this turn of the loop."""
        if self._held:
            held, self._held = self._held, []
            self._send(b"".join(held))

    def _send(self, line: bytes) -> None:
        rest = memoryview(line) if self.backlog else self._at_once(memoryview(line))
        if rest:
            with self._lock:
                self.backlog += len(rest)
            self._queue.put(rest)
            self._ensure_thread()

    def flush(self, seconds: float) -> bool:
        """Wait until the client has read everything, as long as it reads something every `seconds`.

        Returns whether it has read everything. Nothing can be written afterwards.
        """
        self._release()
        if self._thread is None:
            return self._flush_without_thread(seconds)
        self._queue.put(None)
        end, before = time.monotonic() + _LONGEST_FLUSH, -1
        while self._thread.is_alive() and self.backlog != before and time.monotonic() < end:
            before = self.backlog
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _at_once(self, line: memoryview) -> memoryview:
        """Write without waiting, and return the rest."""
        try:
            if self._socket is not None:
                return line[self._socket.send(line, socket.MSG_DONTWAIT) :]
            if self._own is not None:
                return line[os.write(self._own, line[:_MOST_AT_ONCE]) :]
            if self._pipe:
                return line[self._room.fill(line[:_MOST_AT_ONCE]) :]
        except BlockingIOError:
            return line
        except OSError:
            self._break()
            return line[:0]
        return line

    def _ensure_thread(self) -> None:
        if self._thread is None and not self._has_no_thread:
            self._thread = start_thread("prowess-writer", self._drain)
            if self._thread is None:
                self._has_no_thread = True
                self._loop.call_later(_AGAIN, self._go_on)

    def _go_on(self) -> None:
        """Without a thread: write now and then, until there is nothing left."""
        if not self.backlog:
            self._has_no_thread = False
            return
        self._write_some()
        self._loop.call_later(_AGAIN, self._go_on)

    def _write_some(self) -> None:
        line = self._left or cast("memoryview", self._queue.get_nowait())
        try:
            if self._pipe or self._socket is not None:
                self._left = self._at_once(line)
            else:
                self._left = line[write_some(self._fd, line) :]
        except OSError:
            self._break()
        self.backlog = max(self.backlog - len(line) + len(self._left), 0)

    def _flush_without_thread(self, seconds: float) -> bool:
        last = time.monotonic()
        while self.backlog and time.monotonic() < last + seconds:
            before = self.backlog
            self._write_some()
            if self.backlog < before:
                last = time.monotonic()
            else:
                time.sleep(_AGAIN)
        return not self.backlog

    def _drain(self) -> None:
        while (line := self._queue.get()) is not None:
            size = len(line)
            try:
                while line:
                    written = write_some(self._fd, line)
                    line = line[written:]
                    with self._lock:
                        self.backlog -= written
            except OSError:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._break)
                return
            del line  # frees the line, instead of holding it until the next one
            if size >= LARGE:
                with contextlib.suppress(RuntimeError):  # as above
                    self._loop.call_soon_threadsafe(give_back_soon)

    def _break(self) -> None:
        """Called when the client is gone."""
        if not self._broken:
            self._broken = True
            self.backlog = 0
            self._on_broken()
