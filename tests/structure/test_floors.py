"""Floors: a module imports only from lower ones, so that every module can be read knowing only what is below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "packages/prowess/src/prowess"

# The one table. A row is a floor, the first is the ground; modules on one floor do not know each other. Add rows freely;
# a module may stand here before it is written.
# `prowess` itself is the public door: it knows everybody, and nobody inside knows it.
FLOORS: tuple[str, ...] = (
    "closure docstrings errors fingerprints jsontypes memory schemas waiting",
    "call content contract link problems published schemas.matching schemas.naming schemas.walk settings threads tracebacks",
    "catalog credentials declaration paths schemas.explicit schemas.refs",
    "discovery failures names schemas.boxes schemas.nodes schemas.nulls signature",
    "description loading schemas.strict",
    "schemas.steps",
    "adapters profiles",
    "arguments normalize",
    "outcome",
    "execution hookspecs mcp_schema",
    "builtin plugins policies resources",
    "context singletons",
    "injection",
    "compile",
    "entry",
    "skill",
    "library",
    "runtime",
    "command envelope",
    "worker",
    "",  # prowess/__init__.py
)
FLOOR = {f"prowess.{module}".rstrip("."): floor for floor, row in enumerate(FLOORS) for module in row.split() or [""]}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] in ("__init__", "__main__") else parts)


MODULES = {path: module_name(path) for path in sorted(SOURCE.rglob("*.py"))}


def imports(source: str, module: str, *, package: bool, known: set[str]) -> Iterator[tuple[int, str]]:
    """The line and the name of each module of ours that a source imports, also inside functions and TYPE_CHECKING."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            wanted = [f"{origin(node, module, package=package)}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, target) for name in wanted if (target := nearest(name, known)))


def origin(node: ast.ImportFrom, module: str, *, package: bool) -> str:
    """The absolute name of what a `from … import` starts at."""
    up = node.level - 1 if package else node.level
    base = module.split(".")[: -up or None] if node.level else []
    return ".".join([*base, *filter(None, [node.module])])


def nearest(name: str, known: set[str]) -> str | None:
    """The longest prefix of a dotted name that is a module of ours."""
    parts = name.split(".")
    prefixes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in known), None)


@pytest.mark.parametrize("path", MODULES, ids=MODULES.get)
def test_module_stands_on_a_floor(path: Path) -> None:
    """Every module is in the table: a new one has to say where it belongs."""
    assert MODULES[path] in FLOOR, f"add {MODULES[path]} to FLOORS"


@pytest.mark.parametrize("path", MODULES, ids=MODULES.get)
def test_module_imports_only_from_lower_floors(path: Path) -> None:
    """An import from the same or a higher floor makes two modules one, so there is none."""
    module = MODULES[path]
    package = path.name in ("__init__.py", "__main__.py")
    found = imports(path.read_text(encoding="utf-8"), module, package=package, known=set(MODULES.values()))

    # What is not in the table is reported above, once.
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module} (floor {FLOOR[module]}) imports {target} (floor {FLOOR[target]})"
        for line, target in found
        if target != module and module in FLOOR and target in FLOOR and FLOOR[target] >= FLOOR[module]
    ]

    assert [] == wrong


def test_table_names_a_module_once() -> None:
    """A module on two floors would be on none."""
    named = [module for row in FLOORS for module in row.split()]

    assert sorted(set(named)) == sorted(named)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import prowess.errors", ["prowess.errors"]),
        ("import prowess.errors as e, json", ["prowess.errors"]),
        ("from prowess import errors, skill_command", ["prowess.errors", "prowess"]),
        ("from prowess.schemas.walk import visit", ["prowess.schemas.walk"]),
        ("from prowess.schemas import walk, close", ["prowess.schemas.walk", "prowess.schemas"]),
        ("from . import errors", ["prowess.errors"]),
        ("from .errors import LoadError", ["prowess.errors"]),
        ("def f():\n    from prowess.errors import LoadError", ["prowess.errors"]),
        ("if TYPE_CHECKING:\n    from prowess.errors import LoadError", ["prowess.errors"]),
        ("import json, prowess_host.errors", []),
    ],
)
def test_reader_of_imports_sees_every_form(source: str, expected: list[str]) -> None:
    """The guard above is worth what it can see."""
    known = {"prowess", "prowess.errors", "prowess.schemas", "prowess.schemas.walk", "prowess.contract"}

    assert expected == [target for _, target in imports(source, "prowess.contract", package=False, known=known)]
