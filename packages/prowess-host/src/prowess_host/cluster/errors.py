"""The exceptions of the engine.

ProwessError
└── EngineError       the engine is down, did not answer in time, or refused
    └── NoSubscriber   the subject has no subscriber
"""

from __future__ import annotations

from prowess.errors import ProwessError

__all__ = ["EngineError", "NoSubscriber"]


class EngineError(ProwessError):
    """A request to the engine failed. It may have been carried out all the same."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the engine at {address}: {reason}")


class NoSubscriber(EngineError):
    """The subject has no subscriber. The engine reports that at once."""
