"""The kinds of things that are served: one row for each. The host has the other half of a row, its methods."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from prowess.contracts.contract import TOOL

__all__ = ["COMPLETION", "KINDS", "PROMPT", "RESOURCE", "Kind"]

RESOURCE: Final = "resource"
PROMPT: Final = "prompt"
COMPLETION: Final = "completion"
"""A function that completes an argument. It runs like the others, and is part of what it completes."""


class Kind(NamedTuple):
    """What its author and the runtime have to know of a kind."""

    noun: str
    """What messages call one of them."""
    decorator: str
    """The name of its decorator."""
    default_timeout: float | None = None
    """Seconds for a call, if not those of the setting `timeout`."""


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        TOOL: Kind("command", "skill_command"),
        RESOURCE: Kind("resource", "resource"),
        PROMPT: Kind("prompt", "prompt"),
        COMPLETION: Kind("completion", "complete", default_timeout=5.0),
    }
)
