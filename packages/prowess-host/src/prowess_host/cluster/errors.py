"""What can go wrong with the engine.

ProwessError
└── EngineError       the engine is gone, did not answer in time, or refused
    └── NobodyThere   nobody listens to a subject
"""

from __future__ import annotations

from prowess.errors import ProwessError

__all__ = ["EngineError", "NobodyThere"]


class EngineError(ProwessError):
    """What was asked of the engine did not happen, or nobody knows whether it did."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"the engine at {place}: {reason}")
        self.reason = reason


class NobodyThere(EngineError):
    """Nobody listens to a subject. The engine says so at once."""
