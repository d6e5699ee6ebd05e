"""The result of one check. Plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from prowess.frozen import frozen
from prowess.jsontypes import JsonObject

__all__ = ["LEVELS", "Finding"]

LEVELS: Final = ("ok", "note", "warning", "error")
"""From best to worst."""


@frozen
class Finding:
    """The result, its place and the remedy."""

    area: str
    """`python`, `settings`, `project`, `environments`, `cluster`, `skills`, `manifest`, `clients` or `runs`."""
    level: str
    message: str
    remedy: str = ""

    def to_json(self) -> JsonObject:
        """As plain data."""
        return asdict(self)
