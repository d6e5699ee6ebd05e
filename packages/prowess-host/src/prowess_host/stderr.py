"""Writes to stderr without waiting for a reader: the log of the host, and what workers print."""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import os
import select
import socket
import stat
import threading
from collections import deque
from typing import Final

__all__ = ["Complaints", "Room", "complaints", "write_all", "write_some"]


def write_all(fd: int, view: memoryview) -> None:
    """Write everything, however long that takes, also where the client made the descriptor non-blocking."""
    while view:
        view = view[write_some(fd, view) :]


def write_some(fd: int, view: memoryview) -> int:
    """Wait until something can be written; gives how many bytes were. Small pieces, so that progress can be seen."""
    try:
        return os.write(fd, view[: select.PIPE_BUF])
    except BlockingIOError:
        select.select([], [fd], [])
        return 0


class Room:
    """Writes to a pipe as much as it takes without waiting, although it is a blocking one."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def fill(self, data: bytes | memoryview) -> int:
        """How many of the bytes have been written. A pipe that is ready takes `PIPE_BUF` of them whole."""
        done = 0
        while done < len(data) and self._poll.poll(0):
            done += os.write(self._fd, data[done : done + select.PIPE_BUF])
        return done


_LAST_COMPLAINTS: Final = 1.5
"""Seconds that whoever reads stderr gets to take the last lines."""
_MOST_TURNS: Final = 10
"""So often a slow reader gets that time, if it has read something. Then the rest is dropped, and counted."""
_MOST_COMPLAINTS: Final = 8 * 1024 * 1024
"""Bytes that wait for whoever should read stderr. Beyond it the oldest lines are dropped: the newest tell most."""


class Complaints(io.TextIOBase):
    """A text stream to stderr that never waits for whoever should read it.

    What does not fit at once waits in a thread. Of what waits too long the oldest is dropped, and how much that was is
    told as soon as there is room. The descriptor stays as it is: others may share it.
    """

    def __init__(self, fd: int = 2, most: int = _MOST_COMPLAINTS) -> None:
        self._fd = fd
        self._most = most
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._taken = 0
        """Bytes that somebody has read, of what waited."""
        self._dropped = 0
        self._draining = False
        self._gives_up = False
        """Whether the rest of what is being written is dropped as well."""
        self._is_line_whole = True
        """Whether what was written last ended a line: the rest of it may be dropped."""

    def writable(self) -> bool:
        """It is for writing only."""
        return True

    def write(self, text: str, /) -> int:
        """Write a text."""
        self.send(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def send(self, data: bytes) -> None:
        """Write bytes, after all that were sent before."""
        with self._changed:
            if not self._draining and (done := self._write_at_once(data)):
                self._is_line_whole = data[done - 1 : done] == b"\n"
                data = data[done:]
            if data:
                self._keep(data)

    def finish(self, seconds: float) -> None:
        """Wait until everything is written, but not for a reader that takes nothing for so long.

        A reader that is slow for ever gets the last line only: how many lines were dropped.
        """
        with self._changed:
            for _ in range(_MOST_TURNS):
                before = self._taken
                if self._changed.wait_for(lambda: not self._draining, seconds) or self._taken == before:
                    return
            self._dropped += sum(_lines(data) for data in self._waiting)
            self._waiting.clear()
            self._size = 0
            self._gives_up = True
            self._changed.wait_for(lambda: not self._draining, seconds)

    def _write_at_once(self, data: bytes) -> int:
        """How many of the bytes could be written without waiting, or never will be."""
        try:
            mode = os.fstat(self._fd).st_mode
            if stat.S_ISFIFO(mode):
                return Room(self._fd).fill(data)
            if stat.S_ISSOCK(mode):
                with socket.socket(fileno=os.dup(self._fd)) as sock:
                    return sock.send(data, socket.MSG_DONTWAIT)
            if stat.S_ISREG(mode):
                write_all(self._fd, memoryview(data))
        except BlockingIOError:
            return 0
        except OSError:  # whoever should read has left, or the disk is full
            return len(data)
        return len(data) if stat.S_ISREG(mode) else 0  # a terminal may be halted

    def _keep(self, data: bytes) -> None:
        self._waiting.append(data)
        self._size += len(data)
        while self._size > self._most:
            dropped = self._waiting.popleft()
            self._size -= len(dropped)
            self._dropped += _lines(dropped)
        if not self._draining:
            self._draining = True
            threading.Thread(target=self._drain, name="prowess-stderr", daemon=True).start()

    def _drain(self) -> None:
        while True:
            with self._changed:
                if not self._waiting and not self._dropped:
                    self._draining = False
                    self._changed.notify_all()
                    return
                data = self._waiting.popleft() if self._waiting else b""
                self._size -= len(data)
                if self._dropped:
                    start = b"" if self._is_line_whole else b"\n"
                    data = b"%bprowess: %d lines were dropped: nobody read stderr\n%b" % (start, self._dropped, data)
                    self._dropped = 0
                self._is_line_whole = data.endswith(b"\n")
            with contextlib.suppress(OSError):  # as above
                self._write_on(memoryview(data))

    def _write_on(self, view: memoryview) -> None:
        """Write all of it, unless whoever waits for that gives up meanwhile."""
        done = 0
        while done < len(view):
            size = write_some(self._fd, view[done:])
            done += size
            with self._changed:
                self._taken += size
                if self._gives_up:
                    self._gives_up = False
                    rest = bytes(view[done:])
                    self._dropped += _lines(rest)
                    self._is_line_whole = bytes(view[:done]).endswith(b"\n")
                    return


def _lines(data: bytes) -> int:
    """How many lines these bytes are, with one that has no end."""
    return data.count(b"\n") + (data[-1:] not in b"\n")


@functools.cache
def complaints() -> Complaints:
    """The one to the stderr of this process: all that is said there goes through it, so that lines stay whole."""
    stream = Complaints()
    atexit.register(stream.finish, _LAST_COMPLAINTS)
    return stream
