"""`prowess` as a person runs it: on a terminal of its own, of a given width."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from patience import PATIENCE
from shell import Command

__all__ = ["Terminal", "on_a_terminal"]

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A terminal with a program on it."""

    def __init__(self, process: Command, master: int) -> None:
        self.process = process
        self.master = master
        self.raw = ""

    @property
    def seen(self) -> str:
        """All that was written to it, without colours and the like."""
        return CODES.sub("", self.raw).replace("\r\n", "\n")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait_for(self, text: str) -> None:
        """Until a text has appeared since the last one that was waited for."""
        end = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert self._read(end), f"{text!r} did not come: {self.seen!r}"

    def finish(self) -> int:
        """Until the program has ended; gives its exit code."""
        end = time.monotonic() + PATIENCE
        while self._read(end):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, end: float) -> bool:
        """Read some of it, or notice that there is no more."""
        if not select.select([self.master], [], [], max(end - time.monotonic(), 0))[0]:
            return False
        with contextlib.suppress(OSError):  # that is the end of a terminal on Linux
            data = os.read(self.master, 65536)
            self.raw += data.decode("utf-8", "replace")
            return bool(data)
        return False


@contextlib.contextmanager
def on_a_terminal(*words: str, cwd: Path, columns: int = 100, **environ: str) -> Iterator[Terminal]:
    """Run `prowess` with these words on a terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES", "CI")}
    process = Command(*words, cwd=cwd, environ={**known, "TERM": "xterm-256color", **environ}, fds=(slave,))
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
