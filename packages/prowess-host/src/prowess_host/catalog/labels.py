"""The labels of the agents that run a command, by the settings and its decorator; empty for a command that runs here."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from prowess.contracts.catalog import Catalog
from prowess.contracts.contract import Contract
from prowess.settings.keys import OwnSettings
from prowess.skills.discovery import Source
from prowess.skills.parsing import parse
from prowess.skills.stamps import read

__all__ = ["NO_CLUSTER", "labels_of_command", "labels_of_skill", "with_warnings"]

NO_CLUSTER: Final = "it runs on agents ({labels}), and the project has no cluster: set cluster.url"

_DECORATORS: Final = ("skill_command", "resource", "prompt")


def labels_of_command(contract: Contract, own: OwnSettings) -> str:
    """The labels for a command: in the settings by its id, else by a pattern, else from its decorator."""
    given = own.run_on
    if not given:
        return contract.policies.run_on
    found = (labels for pattern, labels in given.items() if fnmatchcase(contract.id, pattern))
    return given.get(contract.id, next(found, contract.policies.run_on))


def with_warnings(catalog: Catalog, own: OwnSettings) -> Catalog:
    """The catalog of a project without a cluster, with a warning for each command whose calls will fail because of that.

    Not a failure: where the commands are checked or built, there may be no cluster.
    """
    contracts = tuple(
        replace(each, warnings=(*each.warnings, NO_CLUSTER.format(labels=labels)))
        if (labels := labels_of_command(each, own))
        else each
        for each in catalog.contracts
    )
    return catalog if contracts == catalog.contracts else replace(catalog, contracts=contracts)


def labels_of_skill(source: Source, own: OwnSettings) -> str:
    """The labels of the agents that run all commands of a skill, by the settings and its source; empty if some run here."""
    if any(pattern.startswith(f"{source.name}.") and pattern != f"{source.name}.*" for pattern in own.run_on):
        return ""
    for pattern in (f"{source.name}.*", "*"):
        if pattern in own.run_on:
            return own.run_on[pattern]
    import ast  # rare: a skill with an environment in a project with a cluster

    labels: set[str] = set()
    for file in source.files:
        try:
            tree = parse(read(str(file)))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return ""
        functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
        for each in (each for function in functions for each in function.decorator_list):
            name = ast.unparse(each.func if isinstance(each, ast.Call) else each).rpartition(".")[2]
            if name in _DECORATORS:
                given = (
                    [keyword.value for keyword in each.keywords if keyword.arg == "run_on"]
                    if isinstance(each, ast.Call)
                    else []
                )
                labels.add(given[0].value if given and isinstance(given[0], ast.Constant) else "")  # pyright: ignore[reportArgumentType] - the decorator requires a string
    return labels.pop() if len(labels) == 1 else ""
