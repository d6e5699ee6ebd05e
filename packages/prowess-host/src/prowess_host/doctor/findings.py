"""The result of one check. Plain data."""

from __future__ import annotations

from dataclasses import asdict

from prowess.frozen import frozen
from prowess.jsontypes import JsonObject

__all__ = ["Finding"]


@frozen
class Finding:
    """The result, its place and the remedy."""

    area: str
    """`python`, `settings`, `project`, `environments`, `cluster`, `skills`, `manifest`, `clients` or `runs`."""
    level: str
    """`ok`, `note`, `warning` or `error`."""
    message: str
    remedy: str = ""

    def to_json(self) -> JsonObject:
        """As plain data."""
        return asdict(self)
