"""Who answers to which name: ids, wire names and aliases. Knows contracts, and nothing of how they came to be."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prowess.catalog import Failure
from prowess.entry import Entry

__all__ = ["Names", "assign"]


@dataclass(frozen=True, slots=True)
class Names:
    """The commands by every name they answer to, and those that may not because of a clash."""

    entries: Mapping[str, Entry] = field(default_factory=dict[str, Entry])
    clashes: tuple[Failure, ...] = ()


def assign(entries: Iterable[Entry], hide: Iterable[str] = ()) -> Names:
    """Give every command its names.

    A command with a name that another one claims as well gets none at all, unless the name is its own id: then only the
    others lose.
    """
    patterns = tuple(hide)
    shown = [entry for entry in entries if not _is_hidden(entry.contract.id, patterns)]
    claims: dict[str, list[Entry]] = {}
    for entry in shown:
        for name in {entry.contract.id, entry.contract.wire_name, *entry.contract.aliases}:
            claims.setdefault(name, []).append(entry)
    refused: dict[int, Failure] = {}
    for name in sorted(claims):
        for entry in _losers(name, claims[name]):
            others = [other for other in claims[name] if other is not entry]
            refused.setdefault(id(entry), _clash(name, entry, others))
    named = {name: entry for name, claimants in claims.items() for entry in claimants if id(entry) not in refused}
    return Names(named, tuple(refused.values()))


def _is_hidden(command: str, patterns: Iterable[str]) -> bool:
    """Whether patterns take a command away; the last one that fits decides."""
    hidden = False
    for pattern in patterns:
        if fnmatch.fnmatchcase(command, pattern.removeprefix("!")):
            hidden = not pattern.startswith("!")
    return hidden


def _losers(name: str, claimants: list[Entry]) -> list[Entry]:
    if len(claimants) == 1:
        return []
    owners = [entry for entry in claimants if entry.contract.id == name]
    return [entry for entry in claimants if len(owners) != 1 or entry is not owners[0]]


def _clash(name: str, entry: Entry, others: list[Entry]) -> Failure:
    claims = ", ".join(f"{other.contract.id} ({other.contract.source})" for other in others)
    place = entry.plan.declaration.place
    reason = f"the name {name!r} is also claimed by {claims}; rename one"
    return Failure(entry.contract.id, reason, place.file, place.line)
