"""One thing that the doctor looked at. Plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from prowess.frozen import frozen
from prowess.jsontypes import JsonObject

__all__ = ["LEVELS", "Finding"]

LEVELS: Final = ("ok", "note", "warning", "error")
"""From good to bad."""


@frozen
class Finding:
    """What was found, where, and the way out."""

    area: str
    """`python`, `settings`, `project`, `environments`, `skills`, `manifest`, `clients` or `runs`."""
    level: str
    message: str
    remedy: str = ""

    def to_json(self) -> JsonObject:
        """As plain data."""
        return asdict(self)
