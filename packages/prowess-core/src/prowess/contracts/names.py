"""Maps names to commands, resources and prompts: ids, wire names, aliases and URIs. Light: needs only contracts.

Names are unique over all kinds, so that an id means one thing everywhere: in a call, in the record, in `hide`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import field
from pathlib import Path

from prowess.contracts.catalog import Failure
from prowess.contracts.contract import Contract
from prowess.frozen import frozen

__all__ = ["Names", "assign", "wire_forms"]


@frozen
class Names:
    """The contracts by all their names, and the clashes of names."""

    contracts: Mapping[str, Contract] = field(default_factory=dict[str, Contract])
    clashes: tuple[Failure, ...] = ()


def assign(contracts: Iterable[Contract], hide: Iterable[str], root: Path, yielding: Collection[str] = ()) -> Names:
    """Give every command its names.

    If several commands claim a name, none of them is listed, except a command whose id it is. In a clash with other commands,
    only the commands of skills in `yielding` lose.
    """
    patterns = tuple(hide)
    shown = [contract for contract in contracts if not _is_hidden(contract.id, patterns)]
    claims: dict[str, list[Contract]] = {}
    for contract in shown:
        for name in filter(None, {contract.id, contract.wire_name, contract.uri, *contract.aliases}):
            claims.setdefault(name, []).append(contract)
    refused: dict[int, Failure] = {}
    for name in sorted(name for name, claimants in claims.items() if len(claimants) > 1):
        for contract in _losers(name, claims[name], yielding):
            others = [other for other in claims[name] if other is not contract]
            refused.setdefault(id(contract), _clash(name, contract, others, root))
    named = {name: each for name, claimants in claims.items() for each in claimants if id(each) not in refused}
    left = [contract for contract in shown if id(contract) not in refused]
    return Names({**wire_forms(left, claims), **named}, tuple(refused.values()))


def wire_forms(contracts: Iterable[Contract], taken: Container[str]) -> dict[str, Contract]:
    """The commands by their aliases as clients would write these, with underscores for dots, as far as no command claims them."""
    found: dict[str, list[Contract]] = {}
    for contract in contracts:
        for name in {alias.replace(".", "_") for alias in contract.aliases}:
            found.setdefault(name, []).append(contract)
    return {name: each[0] for name, each in found.items() if len(each) == 1 and name not in taken}


def _is_hidden(command: str, patterns: Iterable[str]) -> bool:
    """Whether patterns hide a command. The last matching pattern decides."""
    hidden = False
    for pattern in patterns:
        if fnmatch.fnmatchcase(command, pattern.removeprefix("!")):
            hidden = not pattern.startswith("!")
    return hidden


def _losers(name: str, claimants: list[Contract], yielding: Collection[str]) -> list[Contract]:
    first = [contract for contract in claimants if contract.skill not in yielding]
    if len(first) == 1:
        return [contract for contract in claimants if contract is not first[0]]
    owners = [contract for contract in claimants if contract.id == name]
    return [contract for contract in claimants if len(owners) != 1 or contract is not owners[0]]


def _clash(name: str, contract: Contract, others: list[Contract], root: Path) -> Failure:
    claims = ", ".join(f"{other.id} ({other.source})" for other in others)
    file, _, line = contract.source.rpartition(":")
    at = int(line) if line.isdecimal() else None  # a worker in another language may omit it
    return Failure(contract.id, f"the name {name!r} is also claimed by {claims}; rename one", str(root / file), at)
