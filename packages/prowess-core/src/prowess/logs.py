"""The log on stderr, in which no text can forge a line or act on a terminal: messages may contain what clients have sent."""

from __future__ import annotations

import logging
import sys

__all__ = ["log_to_stderr"]


class _Formatter(logging.Formatter):
    """Writes control and hidden characters as escapes, and indents further lines of a message."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if text.isprintable():
            return text
        from prowess.contracts.hidden import shown  # rare

        return shown(text).replace("\n", "\n  ")


def log_to_stderr() -> None:
    """Write warnings and errors of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("prowess: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
