"""The labels of the agents that run a command, by the settings and its decorator; empty for a command that runs here."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from prowess.contracts.contract import Contract
from prowess.settings.keys import OwnSettings
from prowess.skills.discovery import Source
from prowess.skills.stamps import read

__all__ = ["labels_of_command", "labels_of_skill"]

_DECORATORS: Final = ("skill_command", "resource", "prompt")


def labels_of_command(contract: Contract, own: OwnSettings) -> str:
    """The labels for a command: in the settings by its id, else by a pattern, else from its decorator."""
    given = own.run_on
    if not given:
        return contract.policies.run_on
    found = (labels for pattern, labels in given.items() if fnmatchcase(contract.id, pattern))
    return given.get(contract.id, next(found, contract.policies.run_on))


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
            tree = ast.parse(read(str(file)))
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
