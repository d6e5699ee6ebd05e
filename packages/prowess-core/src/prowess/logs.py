"""The log on stderr, in which no text can forge a line or act on a terminal: messages may contain what clients have sent."""

from __future__ import annotations

import contextlib
import logging
import sys

from prowess.contracts.visible import visible

__all__ = ["log_to_stderr"]


class _Formatter(logging.Formatter):
    """Writes control and hidden characters as escapes, and indents further lines of a message."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record)).replace("\n", "\n  ")


class _Handler(logging.Handler):
    """Writes to what is `sys.stderr` at that time: something that draws on the terminal replaces it for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # nobody reads it
            sys.stderr.write(f"{self.format(record)}\n")


def log_to_stderr() -> None:
    """Write warnings and errors of this process to stderr."""
    handler = _Handler()
    handler.setFormatter(_Formatter("prowess: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
