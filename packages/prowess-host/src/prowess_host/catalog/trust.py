"""Compares the contracts of a skill with the allowed ones. Changed contracts need permission again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from prowess.contracts.catalog import Failure
from prowess.contracts.contract import Contract
from prowess.settings.limits import Sandbox
from prowess.skills.description import SkillFacts

__all__ = ["contract_digest", "skill_of", "withheld"]

_LENGTH = 16


def contract_digest(contracts: Iterable[Contract]) -> str:
    """A fingerprint of contracts, without the wire names, which a setting can change."""
    digests = sorted(replace(contract, wire_name="").digest for contract in contracts)
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:_LENGTH]


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
        if verdict.contract != contract_digest(facts.contracts):
            reason = (
                f"its commands have changed since you allowed them: `prowess trust {name}` shows them and asks again, and "
                "`prowess check` shows the differences to the committed catalog"
            )
            found[key] = replace(facts, contracts=(), failures=(*facts.failures, Failure(name, reason)))
    return found
