"""Compares the contracts of a skill with the allowed ones. Changed contracts need permission again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from prowess.contracts.catalog import Failure
from prowess.settings.limits import Sandbox
from prowess.skills.description import SkillFacts

__all__ = ["contract_digest", "skill_of", "withheld"]

_LENGTH = 16
_SHORT: Final = 24
"""Characters of the longest JSON Schema keyword: text up to this length cannot carry instructions to a model."""


def contract_digest(facts: Iterable[SkillFacts]) -> str:
    """A fingerprint of contracts, without the wire names, which a setting can change.

    A limited worker also sends the views for clients. Texts in them that no contract has are part of the fingerprint.
    """
    facts = tuple(facts)
    digests = sorted(replace(contract, wire_name="").digest for each in facts for contract in each.contracts)
    known = {text for each in facts for contract in each.contracts for text in _texts(contract.to_json())}
    shown = {text for each in facts for view in each.views.values() for text in _texts(view.to_json())}
    digests += sorted(shown - known)
    return hashlib.sha256("".join(digests).encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


def _texts(value: Any) -> Iterator[str]:
    """The texts in JSON data that a model could read as instructions: all except short keywords."""
    if isinstance(value, str):
        if len(value) > _SHORT:
            yield value
    elif isinstance(value, Mapping):
        for name, item in cast("Mapping[str, Any]", value).items():
            yield from _texts(name)
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in cast("list[Any]", value):
            yield from _texts(item)


def skill_of(key: str) -> str:
    """The name of a skill in command ids. In a description, the skill of a package has a longer name."""
    return key.split(":")[1] if key.startswith("package:") else key


def withheld(skills: Mapping[str, SkillFacts], sandbox: Sandbox) -> dict[str, SkillFacts]:
    """The skills that differ from what was allowed, without their commands and with a failure each."""
    found: dict[str, SkillFacts] = {}
    for key, facts in skills.items():
        name = skill_of(key)
        verdict = sandbox[name]
        if verdict is None or not verdict.contract or not facts.contracts:
            continue
        if verdict.contract != contract_digest([facts]):
            reason = (
                f"its commands have changed since you allowed them: `prowess trust {name}` shows them and asks again, and "
                "`prowess check` shows the differences to the committed catalog"
            )
            found[key] = replace(facts, contracts=(), failures=(*facts.failures, Failure(name, reason)))
    return found
