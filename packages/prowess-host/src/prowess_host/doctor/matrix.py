"""The rules of each client that each command breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prowess.contracts.contract import Contract
from prowess.frozen import frozen
from prowess.jsontypes import JsonObject
from prowess.profiles.profile import Profile
from prowess_host.clients.table import CLIENTS
from prowess_host.review.lint import LintFinding, lint

__all__ = ["Matrix", "matrix_of"]


@frozen
class Matrix:
    """The broken rules by command and client."""

    commands: tuple[str, ...]
    clients: tuple[str, ...]
    cells: dict[tuple[str, str], tuple[LintFinding, ...]]
    """By command and client; the command is empty for rules about all tools together."""
    unruled: tuple[str, ...] = ()
    """The clients without known rules."""

    def to_json(self) -> JsonObject:
        """As plain data, without empty cells."""
        broken: JsonObject = {}
        for (command, client), findings in self.cells.items():
            items = [{"rule": each.rule, "level": each.level, "message": each.message} for each in findings]
            broken.setdefault(command, {})[client] = items
        return {
            "commands": list(self.commands),
            "clients": list(self.clients),
            "unruled": list(self.unruled),
            "broken": broken,
        }


def matrix_of(contracts: Sequence[Contract], profile: Callable[[Contract], Profile], server: str) -> Matrix:
    """Check every command against the rules of every client with known rules."""
    rows = [row for row in CLIENTS.values() if row.rules is not None]
    cells: dict[tuple[str, str], tuple[LintFinding, ...]] = {}
    for row in rows:
        for finding in lint(contracts, profile, server=server, clients=[row.rules or ""]):
            if finding.client is not None:
                key = (finding.command, row.name)
                cells[key] = (*cells.get(key, ()), finding)
    unruled = tuple(row.name for row in CLIENTS.values() if row.rules is None)
    return Matrix(tuple(each.id for each in contracts), tuple(row.name for row in rows), cells, unruled)
