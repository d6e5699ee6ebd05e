"""Rooms: a module imports from its own folder and from the folders before it, in every package."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The one table; CONTRIBUTING.md draws it. A word is a folder or a module at the top of a package. A line may import from
# the lines above it; what stands in one line does not know each other. A new folder has to choose its place here.
ROOMS: dict[str, str] = {
    "prowess": """
        errors jsontypes frozen patterns daemons
        settings
        schemas
        contracts
        logs
        profiles
        results
        calls
        hookspecs
        plugins installed
        injection telemetry
        skills
        runtime
        decorating
        command served mcp_schema
        envelopes worker
        (door)
    """,
    "prowess_host": """
        protocol stderr confinement threads
        transports workers
        long_results
        files environments
        review
        catalog
        cluster
        clients records
        tasks
        tool_calls direct_calls
        served_calls
        project
        connection
        stdio http
        dev doctor packaging
        cli
        (door)
    """,
    "prowess_testkit": """
        errors
        person toml
        client project
        listing process
        memory snapshots
        fixtures
        plugin
        (door)
    """,
}
BEFORE = {"prowess": (), "prowess_host": ("prowess",), "prowess_testkit": ("prowess", "prowess_host")}
"""The other packages that each may import."""


def folder_of(package: str) -> Path:
    return next(ROOT.glob(f"packages/*/src/{package}"))


def module_name(path: Path, package: str) -> str:
    parts = path.relative_to(folder_of(package).parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] in ("__init__", "__main__") else parts)


PATHS = {path: package for package in ROOMS for path in sorted(folder_of(package).rglob("*.py"))}
MODULES = {module_name(path, package) for path, package in PATHS.items()}
LINE = {
    f"{package}.{room}": number
    for package, rooms in ROOMS.items()
    for number, line in enumerate(rooms.strip().splitlines())
    for room in line.split()
}


def room_of(module: str) -> str:
    """The folder at the top of a package that a module is in, or the module itself where it is at the top."""
    package, _, rest = module.partition(".")
    return f"{package}.{rest.partition('.')[0] or '(door)'}"


@functools.cache
def import_nodes(source: str) -> list[ast.Import | ast.ImportFrom]:
    """Every import of a source, wherever it stands."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]


def imports(source: str, module: str, *, package: bool, known: set[str]) -> Iterator[tuple[int, str]]:
    """The line and the name of each module of ours that a source imports, also inside functions and TYPE_CHECKING."""
    for node in import_nodes(source):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        else:
            wanted = [f"{origin(node, module, package=package)}.{alias.name}" for alias in node.names]
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


def found_in(path: Path) -> list[tuple[int, str]]:
    """What the module at a path imports of ours, outside of itself."""
    module = module_name(path, PATHS[path])
    source, is_package = path.read_text(encoding="utf-8"), path.name in ("__init__.py", "__main__.py")
    return [it for it in imports(source, module, package=is_package, known=MODULES) if it[1] != module]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: module_name(path, PATHS[path]))
def test_module_is_in_a_room(path: Path) -> None:
    """Every folder is in the table: a new one has to say where it belongs."""
    room = room_of(module_name(path, PATHS[path]))

    assert room in LINE, f"add {room.partition('.')[2]} to ROOMS"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: module_name(path, PATHS[path]))
def test_module_imports_only_from_rooms_before_its_own(path: Path) -> None:
    """So every room can be read knowing only what comes before it."""
    package = PATHS[path]
    room = room_of(module_name(path, package))
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {room} imports {target}"
        for line, target in found_in(path)
        if target.partition(".")[0] == package and room_of(target) != room and LINE[room_of(target)] >= LINE[room]
    ]

    assert [] == wrong


@pytest.mark.parametrize("path", PATHS, ids=lambda path: module_name(path, PATHS[path]))
def test_package_imports_only_packages_before_it(path: Path) -> None:
    """And of those only public names."""
    package = PATHS[path]
    others = [(line, target) for line, target in found_in(path) if target.partition(".")[0] != package]
    source = path.read_text(encoding="utf-8")
    private = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {alias.name}"
        for node in import_nodes(source)
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in BEFORE[package]
        for alias in node.names
        if alias.name.startswith("_")
    ]

    assert [] == [
        f"{path.relative_to(ROOT)}:{line}: {target}"
        for line, target in others
        if target.partition(".")[0] not in BEFORE[package]
    ]
    assert [] == private


def test_table_names_a_room_once() -> None:
    """A room in two lines would be in none."""
    for rooms in ROOMS.values():
        named = rooms.split()
        assert sorted(set(named)) == sorted(named)


def test_every_room_is_there() -> None:
    """The table holds nothing that was removed."""
    assert LINE.keys() == {room_of(module) for module in MODULES}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import prowess.errors", ["prowess.errors"]),
        ("import prowess.errors as e, json", ["prowess.errors"]),
        ("from prowess import errors, skill_command", ["prowess.errors", "prowess"]),
        ("from prowess.schemas.walk import visit", ["prowess.schemas.walk"]),
        ("from prowess.schemas import walk, close", ["prowess.schemas.walk", "prowess.schemas"]),
        ("from .. import errors", ["prowess.errors"]),
        ("from ..errors import LoadError", ["prowess.errors"]),
        ("def f():\n    from prowess.errors import LoadError", ["prowess.errors"]),
        ("if TYPE_CHECKING:\n    from prowess.errors import LoadError", ["prowess.errors"]),
        ("import json, other.errors", []),
    ],
)
def test_reader_of_imports_sees_every_form(source: str, expected: list[str]) -> None:
    """The guard above is worth what it can see."""
    known = {"prowess", "prowess.errors", "prowess.schemas", "prowess.schemas.walk", "prowess.contracts.contract"}

    assert expected == [
        target for _, target in imports(source, "prowess.contracts.contract", package=False, known=known)
    ]
