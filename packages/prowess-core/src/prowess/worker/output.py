"""Captures the output of code in a worker, labels it by call, and sends it to the host without blocking the event loop.

The worker's descriptors 1 and 2 are one pipe to the host. Python code prints through a `Printer`, which makes each line a
record with a label; native code and child processes write to the pipe directly.
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from prowess.daemons import start_thread

__all__ = [
    "END",
    "LABEL_END",
    "NUMBER_END",
    "START",
    "Outlet",
    "Printer",
    "command",
    "importing",
    "label_of_call",
    "label_output",
    "reopened",
]

START: Final = b"\x1e"
LABEL_END: Final = b"\x1f"
END: Final = b"\x1d"
"""A record is a start, a label, the end of the label, a text and an end. The marks are control characters."""
NUMBER_END: Final = b"\x1c"
"""Separates the number and the command in the label of a call."""
_CONTROL: Final = START + LABEL_END + END
_MOST_PIECE: Final = 3072
"""Bytes of text in a record. With its label, it is less than `PIPE_BUF`, so that the write is atomic."""
_MOST_LABEL: Final = 512
_MOST_WAITING: Final = 4 * 1024 * 1024
"""Bytes that wait for the host to read."""
_PATIENCE: Final = 1.0
"""Seconds that a thread waits for room in the queue. Afterwards, its output is dropped."""
_LOOP_PATIENCE: Final = 0.5
"""Seconds that the event loop waits for room, below the stall limit. The host reads all the time unless it lacks a processor."""
_MOST_FLUSHING: Final = 3.0
"""Seconds that a reading host gets for the last output before the rest is dropped. The host itself waits longer."""
_NOTICE: Final = 30.0
"""Seconds that the host then gets to read how much was dropped. It reads nothing for that long only if it is stuck or stopped,
and it may end the worker before."""
_OPEN_PIPES: Final = "/proc/self/fd"
"""The folder in which Linux lists open descriptors, so that they can be reopened."""

command: Final[ContextVar[str]] = ContextVar("prowess_command", default="")
"""The label of the running call, made by `label_of_call`."""
importing: Final[ContextVar[str]] = ContextVar("prowess_importing", default="")
"""The skill whose import goes on: its name is the label, whichever command needs the skill."""


_NUMBER_END: Final = NUMBER_END.decode()


def label_of_call(number: int, command: str) -> str:
    """The label of what a call prints."""
    return f"{number}{_NUMBER_END}{command}"


class _Group:
    """Records that a pipe takes in one piece."""

    __slots__ = ("data", "pieces")

    def __init__(self, record: bytes, pieces: int) -> None:
        self.data = bytearray(record)
        self.pieces = pieces
        """The pieces of output that are lost with it. A note about lost ones stands for these."""


class Outlet:
    """Puts records into a pipe, in order, and never blocks in it. The event loop runs in the main thread."""

    def __init__(
        self,
        fd: int,
        *,
        most: int = _MOST_WAITING,
        patience: float = _PATIENCE,
        loop_patience: float = _LOOP_PATIENCE,
    ) -> None:
        mine = reopened(fd)
        self._fd, self._asks = (fd, True) if mine is None else (mine, False)
        self._most = most
        self._patience = patience
        self._loop_patience = loop_patience
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Start with an empty queue, also in a forked child, because the parent writes the waiting output."""
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[_Group] = deque()
        self._size = 0
        self._written = 0
        """The number of written bytes that had waited."""
        self._lost = 0
        self._deaf = False
        """Whether a wait timed out. Then there are no further waits until the host has read something."""

    def send(self, record: bytes) -> None:
        """Write a record after all earlier ones."""
        with self._changed:
            if not self._waiting and self._write(record):
                return
            if self._size + len(record) > self._most:
                self._wait_for_room(len(record))
            if self._size + len(record) > self._most:
                self._lost += 1
                return
            self._report_lost()
            self._keep(_Group(record, 1))

    def flush(self, seconds: float, most: float = _MOST_FLUSHING, notice: float = _NOTICE) -> None:
        """Wait until the output so far is written, as long as the host reads something every `seconds`.

        After `most` seconds, the rest is dropped, and the host gets the number of dropped lines. It has `notice` seconds for it.
        """
        with self._changed:
            until = time.monotonic() + most
            whole = self._written + self._size
            while self._written < whole and (left := until - time.monotonic()) > 0:
                before = self._written
                if not self._changed.wait_for(lambda before=before: self._written > before, min(seconds, left)):
                    break
            if self._waiting:
                self._lost += sum(group.pieces for group in self._waiting)
                note = self._note_of_lost()
                self._waiting = deque([note])  # for the thread that already waits for room
                self._size = len(note.data)
                self._changed.wait_for(lambda: not self._waiting, notice)

    def _wait_for_room(self, size: int) -> None:
        if not self._deaf:
            is_loop = threading.current_thread() is threading.main_thread()
            seconds = self._loop_patience if is_loop else self._patience
            self._deaf = not self._changed.wait_for(lambda: self._size + size <= self._most, seconds)

    def _write(self, data: bytes | bytearray) -> bool:
        """Write up to the size of an atomic write. Returns whether there was room."""
        if self._asks and not self._poll.poll(0):
            return False
        try:
            os.write(self._fd, data)
        except BlockingIOError:
            return False
        except OSError:  # the host is gone
            return True
        return True

    def _keep(self, group: _Group) -> None:
        self._size += len(group.data)
        if self._waiting:
            last = self._waiting[-1]
            if len(last.data) + len(group.data) <= select.PIPE_BUF:
                last.data += group.data
                last.pieces += group.pieces
            else:
                self._waiting.append(group)
        else:
            self._waiting.append(group)
            if start_thread("prowess-output", self._drain) is None:  # nothing would write it
                self._waiting.clear()
                self._size -= len(group.data)
                self._lost += group.pieces

    def _report_lost(self) -> None:
        if self._lost:
            self._keep(self._note_of_lost())

    def _note_of_lost(self) -> _Group:
        lost, self._lost = self._lost, 0
        text = b"%d pieces of output were lost: the host did not read them in time\n" % lost
        return _Group(_record(b"prowess", text), lost)

    def _drain(self) -> None:
        while True:
            self._poll.poll()
            with self._changed:
                while self._waiting and self._write(self._waiting[0].data):
                    written = len(self._waiting.popleft().data)
                    self._size -= written
                    self._written += written
                    self._deaf = False
                if not self._waiting and self._lost:
                    self._report_lost()  # which starts another thread
                    return
                self._changed.notify_all()
                if not self._waiting:
                    return


def reopened(fd: int) -> int | None:
    """A non-blocking descriptor of the same pipe, to write to it; `None` where only Linux could make one.

    The given descriptor must stay blocking, because other processes share it.
    """
    try:
        return os.open(f"{_OPEN_PIPES}/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


class Printer(io.RawIOBase):
    """The raw stream of `sys.stdout` and `sys.stderr`: whole lines become records, an unfinished line waits."""

    def __init__(self, outlet: Outlet, fd: int) -> None:
        super().__init__()
        self._outlet = outlet
        self.name = ("<stdin>", "<stdout>", "<stderr>")[fd]
        self._fd = fd
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Start without an unfinished line. A forked child leaves such a line to its parent."""
        self._lock = threading.RLock()
        self._begun: dict[str, bytes] = {}

    def fileno(self) -> int:
        """The descriptor for child processes and native code."""
        return self._fd

    def writable(self) -> bool:
        """Always true."""
        return True

    def write(self, data: Any, /) -> int:
        """Write everything."""
        text = bytes(data)
        label = importing.get() or command.get()
        with self._lock:
            line = self._begun.pop(label, b"") + text
            end = line.rfind(b"\n") + 1
            if len(line) - end > _MOST_PIECE:
                end = len(line)
            if end < len(line):
                self._begun[label] = line[end:]
            if end:
                self._send(label, line[:end])
        return len(text)

    def close(self) -> None:
        """Flush only, because other code prints on. It is also closed with a text stream that a skill replaces."""
        self.flush()

    def flush(self) -> None:
        """Send an unfinished line. The host keeps it until the rest arrives."""
        label = importing.get() or command.get()
        with self._lock:
            if label in self._begun:
                self._send(label, self._begun.pop(label))

    def finish(self) -> None:
        """Send everything."""
        with self._lock:
            for label in list(self._begun):
                self._send(label, self._begun.pop(label))

    def _send(self, label: str, text: bytes) -> None:
        name = label.encode("utf-8", "backslashreplace")[:_MOST_LABEL]
        for start in range(0, len(text), _MOST_PIECE):
            self._outlet.send(_record(name, text[start : start + _MOST_PIECE]))


def _record(label: bytes, text: bytes) -> bytes:
    return b"%b%b%b%b%b" % (START, label.translate(None, _CONTROL), LABEL_END, text.translate(None, _CONTROL), END)


def label_output() -> Callable[[float], None]:
    """Label the output of `sys.stdout` and `sys.stderr`. Returns the function to call at the end, with the seconds that the
    host gets to read.

    Both are one stream for the host, so that their order is kept.
    """
    outlet = Outlet(2)
    printers = [Printer(outlet, 1), Printer(outlet, 2)]
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(printer, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True)
        for printer in printers
    )

    def finish(seconds: float) -> None:
        for printer in printers:
            printer.finish()
        outlet.flush(seconds)

    return finish
