"""The log on stderr, in which no text can forge a line or act on a terminal: messages may contain what clients have sent."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from typing import Any

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


class _Onward(logging.Handler):
    """Passes records on to the handlers of the root logger."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger().handle(record)


class _Enabled(logging.Logger):
    """A logger that stays on: `logging.config` turns off all existing loggers that a configuration does not name."""

    @property
    def disabled(self) -> bool:
        """Never."""
        return False

    @disabled.setter
    def disabled(self, value: bool) -> None: ...  # pyright: ignore[reportIncompatibleVariableOverride]


def log_to_stderr() -> None:
    """Write warnings and errors of this process to stderr, until a skill configures logging itself.

    Messages of Prowess go to stderr even then.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    handler = _Handler()
    handler.setFormatter(_Formatter("prowess: %(message)s"))
    root.addHandler(handler)
    _give(logging.getLogger("prowess"), handler)
    _give(logging.getLogger("prowess.skill"), _Onward())  # the loggers of commands belong to their authors
    for name in ("prowess", "prowess.worker"):
        logging.getLogger(name).__class__ = _Enabled
    configure = logging.basicConfig

    @functools.wraps(configure)
    def configured(**given: Any) -> None:
        """The function does nothing where the root logger has a handler."""
        root.removeHandler(handler)
        try:
            configure(**given)
        finally:
            if not root.handlers:
                root.addHandler(handler)

    logging.basicConfig = configured


def _give(logger: logging.Logger, handler: logging.Handler) -> None:
    """Make a handler the only one of a logger and those below it."""
    logger.addHandler(handler)
    logger.propagate = False
