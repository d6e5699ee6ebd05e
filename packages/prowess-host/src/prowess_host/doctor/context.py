"""The cost of the tool list in tokens, by command, and the parts that could be shorter."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from prowess.contracts.contract import Contract
from prowess.frozen import frozen
from prowess.jsontypes import JsonObject, Schema
from prowess.profiles.profile import Profile
from prowess.schemas.walk import is_schema
from prowess_host.review.lint import count_tokens

__all__ = ["Cost", "costs_of"]

_BYTES_PER_TOKEN: Final = 4
_WORTH: Final = 150
"""Parts of at least this many tokens are reported."""
_SHARE: Final = 0.2
"""Parts of at least this share of the command are reported."""


@frozen
class Cost:
    """The cost of one command in every prompt, in estimated tokens: a quarter of the bytes."""

    command: str
    total: int
    description: int
    arguments: int
    shorten: tuple[str, ...]
    """The parts to shorten, longest first."""

    def to_json(self) -> JsonObject:
        """As plain data."""
        return {**asdict(self), "shorten": list(self.shorten)}


def costs_of(contracts: Sequence[Contract], profile: Callable[[Contract], Profile]) -> list[Cost]:
    """The commands, the most expensive first."""
    return sorted((_cost(each, profile(each)) for each in contracts), key=lambda cost: (-cost.total, cost.command))


def _cost(contract: Contract, profile: Profile) -> Cost:
    schema = profile.input_schema(contract)
    total, description = count_tokens(contract, profile), _tokens(contract.shown_description)
    parts = sorted(_parts(contract, schema), reverse=True)
    worth = [text for tokens, text in parts if tokens >= _WORTH and tokens >= total * _SHARE]
    return Cost(contract.id, total, description, _tokens(schema), tuple(worth))


def _tokens(data: Any) -> int:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / _BYTES_PER_TOKEN)


def _parts(contract: Contract, schema: Schema) -> Iterator[tuple[int, str]]:
    """The parts that can be shortened: the docstring, and each parameter with its description and type."""
    size = _tokens(contract.shown_description)
    yield size, f"the description ({size}): put first what matters, and leave out what a schema says"
    for name, held in schema.get("properties", {}).items():
        if not is_schema(held):
            continue
        tokens = _tokens(str(held.get("description", "")))
        yield tokens, f"the description of {name} ({tokens})"
        rest = _tokens({key: value for key, value in held.items() if key != "description"})
        yield rest, f"the type of {name} ({rest}): use a simpler one, or a string that the command parses"
