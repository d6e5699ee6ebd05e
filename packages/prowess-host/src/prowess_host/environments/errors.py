"""The exceptions about environments of skills.

ProwessError
├── NeedsError    the declared dependencies cannot be read
└── BuildError    the environment cannot be made
"""

from __future__ import annotations

from pathlib import Path

from prowess.errors import ProwessError

__all__ = ["BuildError", "NeedsError"]


class NeedsError(ProwessError):
    """The declared dependencies of a skill cannot be read."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"{file}: {reason}")
        self.file = file
        self.reason = reason


class BuildError(ProwessError):
    """An environment cannot be made; the message has the reason and the remedy."""
