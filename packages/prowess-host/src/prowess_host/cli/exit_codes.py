"""The exit codes of every command, in one place."""

from __future__ import annotations

from typing import Final

from prowess.errors import ProwessError

__all__ = ["DONE", "FAILED", "INTERRUPTED", "TERMINATED", "UNREAD", "WRONG_USE", "NotLoaded"]

DONE: Final = 0
FAILED: Final = 1
"""The command ran, and the call or the check failed, or the project could not be loaded."""
WRONG_USE: Final = 2
"""The arguments, the settings or the folder are wrong: the same line fails again."""
INTERRUPTED: Final = 130
"""Ctrl-C: 128 + SIGINT, as shells count."""
TERMINATED: Final = 143
"""128 + SIGTERM, as shells count."""
UNREAD: Final = 141
"""The reader of the output has gone, as in `| head`: 128 + SIGPIPE, as shells count."""


class NotLoaded(ProwessError):
    """The skill of a command failed to load, or the project has none. `FAILED`, unlike other errors, which are `WRONG_USE`."""
