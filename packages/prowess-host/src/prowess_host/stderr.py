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
from collections.abc import Callable
from typing import Final

from prowess.daemons import start_thread

__all__ = ["Complaints", "Room", "complaints", "write_all", "write_some"]


def write_all(fd: int, view: memoryview) -> None:
    """Write everything, however long that takes, even if the client made the descriptor non-blocking."""
    while view:
        view = view[write_some(fd, view) :]


def write_some(fd: int, view: memoryview) -> int:
    """Wait until something can be written, and return the number of bytes. Writes small pieces to show progress."""
    try:
        return os.write(fd, view[: select.PIPE_BUF])
    except BlockingIOError:
        select.select([], [fd], [])
        return 0


class Room:
    """Writes as much as a blocking pipe takes without waiting."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def fill(self, data: bytes | memoryview) -> int:
        """Write, and return the number of bytes. A pipe that polls as ready takes `PIPE_BUF` bytes at once."""
        done = 0
        while done < len(data) and self._poll.poll(0):
            done += os.write(self._fd, data[done : done + select.PIPE_BUF])
        return done


_LAST_COMPLAINTS: Final = 1.5
"""Seconds that the reader of stderr gets for the last lines."""
_MOST_TURNS: Final = 10
"""How often a slow reader gets that time again after reading something. Then the rest is dropped and counted."""
_MOST_COMPLAINTS: Final = 8 * 1024 * 1024
"""Bytes that may wait for the reader of stderr. Beyond that, the oldest lines are dropped."""


class Complaints(io.TextIOBase):
    """A text stream to stderr that never waits for the reader.

    Text that does not fit at once waits in a thread. If too much waits, the oldest lines are dropped, and their number is
    printed as soon as there is room. The descriptor stays blocking, because other processes may share it.
    """

    def __init__(self, fd: int = 2, most: int = _MOST_COMPLAINTS) -> None:
        self.instead: Callable[[str], object] | None = None
        """What writes instead, while something is drawn on the terminal."""
        self._fd = fd
        self._most = most
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._taken = 0
        """Waiting bytes that have been read."""
        self._dropped = 0
        self._draining = False
        self._drops_rest = False
        """Whether to drop the rest of the current write too."""
        self._is_line_whole = True
        """Whether the last write ended a line. If not, the notice about dropped lines starts a new one."""

    def writable(self) -> bool:
        """Always true."""
        return True

    def write(self, text: str, /) -> int:
        """Write a text."""
        self.send(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def send(self, data: bytes) -> None:
        """Write bytes, after all that were sent before."""
        if self.instead is not None:
            self.instead(data.decode("utf-8", "backslashreplace"))
            return
        with self._changed:
            if not self._draining and (done := self._write_at_once(data)):
                self._is_line_whole = data[done - 1 : done] == b"\n"
                data = data[done:]
            if data:
                self._keep(data)

    def finish(self, seconds: float) -> None:
        """Wait until everything is written, unless the reader takes nothing for this many seconds.

        A reader that stays slow gets only the number of dropped lines at the end.
        """
        with self._changed:
            for _ in range(_MOST_TURNS):
                before = self._taken
                if self._changed.wait_for(lambda: not self._draining, seconds) or self._taken == before:
                    return
            self._dropped += sum(_lines(data) for data in self._waiting)
            self._waiting.clear()
            self._size = 0
            self._drops_rest = True
            self._changed.wait_for(lambda: not self._draining, seconds)

    def _write_at_once(self, data: bytes) -> int:
        """Write without waiting. Returns the number of bytes that are written or can never be."""
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
        except OSError:  # the reader is gone, or the disk is full
            return len(data)
        return len(data) if stat.S_ISREG(mode) else 0  # a terminal may be paused

    def _keep(self, data: bytes) -> None:
        self._waiting.append(data)
        self._size += len(data)
        while self._size > self._most:
            dropped = self._waiting.popleft()
            self._size -= len(dropped)
            self._dropped += _lines(dropped)
        if not self._draining:
            self._draining = start_thread("prowess-stderr", self._drain) is not None

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
        """Write all of it, unless `finish` drops the rest meanwhile."""
        done = 0
        while done < len(view):
            size = write_some(self._fd, view[done:])
            done += size
            with self._changed:
                self._taken += size
                if self._drops_rest:
                    self._drops_rest = False
                    rest = bytes(view[done:])
                    self._dropped += _lines(rest)
                    self._is_line_whole = bytes(view[:done]).endswith(b"\n")
                    return


def _lines(data: bytes) -> int:
    """The number of lines, including an unfinished one."""
    return data.count(b"\n") + (data[-1:] not in b"\n")


@functools.cache
def complaints() -> Complaints:
    """The stream for the stderr of this process. All messages use it, so that lines stay whole."""
    stream = Complaints()
    atexit.register(stream.finish, _LAST_COMPLAINTS)
    return stream
