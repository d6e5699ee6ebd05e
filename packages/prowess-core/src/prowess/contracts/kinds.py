"""The kinds of things that are served: one row for each. The host has the other half of a row, its methods."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from prowess.contracts.contract import TOOL

__all__ = ["COMPLETION", "KINDS", "MOST_VALUES", "PROMPT", "RESOURCE", "ContractKind"]

RESOURCE: Final = "resource"
PROMPT: Final = "prompt"
COMPLETION: Final = "completion"
"""The kind of a function that completes an argument. It belongs to the prompt or resource that it completes."""
MOST_VALUES: Final = 100
"""The most values that the protocol allows in one completion."""


class ContractKind(NamedTuple):
    """The properties of a kind that authors and the runtime need."""

    noun: str
    """The noun in messages."""
    decorator: str
    """The name of the decorator."""
    default_timeout: float | None = None
    """The default timeout in seconds, if it differs from the setting `timeout`."""


KINDS: Final[Mapping[str, ContractKind]] = MappingProxyType(
    {
        TOOL: ContractKind("command", "skill_command"),
        RESOURCE: ContractKind("resource", "resource"),
        PROMPT: ContractKind("prompt", "prompt"),
        COMPLETION: ContractKind("completion", "complete", default_timeout=5.0),
    }
)
