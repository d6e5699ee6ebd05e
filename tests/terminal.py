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

__all__ = ["Terminal", "coloured", "plain"]

PROMPT = "<<ready %s>> "
SEQUENCE = re.compile(
    r"\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_=>])|([\r\n])|([^\x1b\r\n]+)"
)


def plain(text: str) -> str:
    """What is left on the screen, as text: without colours, spinners and lines that were erased."""
    return "\n".join("".join(cell for _, cell in line).rstrip() for line in _screen(text))


def coloured(text: str) -> str:
    """The same with its colours."""
    lines: list[str] = []
    for line in _screen(text):
        shown, last = "", ""
        for style, cell in line:
            shown += cell if style == last else f"\x1b[0m{style}{cell}"
            last = style
        lines.append(f"{shown}\x1b[0m")
    return "\n".join(lines)


def _screen(text: str) -> list[list[tuple[str, str]]]:
    """The lines of a terminal after a text was written to it: each cell with the style that was set.

    Understands what programs use to draw over their own lines: carriage return, cursor up and down, erase line and below.
    """
    lines: list[list[tuple[str, str]]] = [[]]
    row, column, style = 0, 0, ""
    for arguments, action, move, written in SEQUENCE.findall(text):
        number = int(arguments) if arguments.isdigit() else 1
        if written:
            lines[row] += [("", " ")] * (column - len(lines[row]))
            lines[row][column : column + len(written)] = [(style, cell) for cell in written]
            column += len(written)
        elif move == "\r":
            column = 0
        elif move == "\n" or action == "B":
            row += number
            lines += [[] for _ in range(row + 1 - len(lines))]
        elif action == "A":
            row = max(0, row - number)
        elif action == "K":
            lines[row] = [] if arguments == "2" else lines[row][:column]
        elif action == "J":
            del lines[row + 1 :]
            lines[row] = lines[row][:column]
        elif action == "m":
            style = "" if arguments in ("", "0") else f"{style}\x1b[{arguments}m"
    return lines


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
