"""A person at a terminal: a shell on a pseudo-terminal, with commands typed one after the other. Standard library only."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from patience import PATIENCE

__all__ = ["Terminal", "plain"]

PROMPT = "<<ready %s>> "
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_=>])")


def plain(text: str) -> str:
    """What is left on the screen: without colours, and of a line that was written over, its last version."""
    lines = ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


class Terminal:
    """A shell in a folder. `enter` types a command and gives what the screen shows until the next prompt."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *, columns: int = 100, rows: int = 40) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        command = ["/bin/bash", "--norc", "--noprofile", "--noediting", "-i"]
        wanted = {**environment, "PS1": PROMPT % "$?", "PS2": "", "TERM": "xterm-256color", "HISTFILE": ""}
        self._shell = subprocess.Popen(
            command, cwd=folder, env=wanted, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - a shell needs a terminal of its own
        )  # fmt: skip
        os.close(slave)
        self.seen = ""
        self._until_prompt()

    def enter(self, line: str) -> tuple[int, str]:
        """Enter a line; gives the exit code and the raw output, without the echo of the line."""
        os.write(self._master, line.encode() + b"\n")
        code, output = self._until_prompt()
        return code, output.partition("\n")[2]

    def _until_prompt(self) -> tuple[int, str]:
        """Read until the shell is ready again. The program's exit code is in the prompt."""
        text, end = "", time.monotonic() + PATIENCE
        ready = re.compile(re.escape(PROMPT % "CODE").replace("CODE", r"(\d+)"))
        while (found := ready.search(text)) is None:
            assert time.monotonic() < end, f"no prompt after {text[-2000:]!r}"
            if select.select([self._master], [], [], 1)[0]:
                text += os.read(self._master, 65536).decode(errors="replace")
        self.seen += text
        return int(found[1]), text[: found.start()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._shell.pid, signal.SIGHUP)
        os.close(self._master)
        self._shell.wait()
