"""Finds the project files that a file imports, directly and through others. Reads the texts, so no code runs.

If in doubt it finds too many: an import in a branch that is never taken counts.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from prowess.skills.parsing import parse
from prowess.skills.stamps import read

__all__ = ["Closure", "closure", "importers", "module_files"]

_INIT: Final = "__init__.py"
_UNSEEN_WAYS: Final = frozenset({"__import__", "import_module", "exec_module", "runpy"})
"""Names in code that imports modules by computed names."""


class Closure:
    """The files of a skill, and missing files that would be part of it."""

    def __init__(self, present: Iterable[Path], absent: Iterable[Path], *, is_open: bool = False) -> None:
        self.present = frozenset(present)
        self.absent = frozenset(absent)
        self.is_open = is_open
        """Whether it may import more than its import statements show."""


def closure(
    files: Iterable[Path], folders: Collection[Path], root: Path, trees: dict[Path, ast.AST] | None = None
) -> Closure:
    """The files and, transitively, the files of the skill folders and of the project that they import.

    `trees` caches parsed files for skills that import the same ones.
    """
    is_open = False
    known = trees if trees is not None else {}

    def imports(file: Path) -> Iterator[Path]:
        nonlocal is_open
        tree = known[file] if file in known else known.setdefault(file, _tree(file))
        is_open = is_open or any(map(_is_unseen_way, ast.walk(tree)))
        yield from _relative_imports(file, folders, tree)
        yield from _absolute_imports(tree, root)

    present, absent = _transitive(files, imports)
    return Closure(present, absent, is_open=is_open)


def importers(
    changed: Collection[str], texts: Mapping[str, bytes], folders: Collection[Path], root: Path
) -> frozenset[str]:
    """The changed files among some files with their texts, and those that import them directly or indirectly."""
    found = set(changed)
    imports: dict[str, set[str]] = {}
    for path, text in texts.items():
        tree = _parsed(text)
        modules = [*_relative_imports(Path(path), folders, tree), *_absolute_imports(tree, root)]
        imports[path] = set(map(str, modules))
    grown = True
    while grown:
        packages = {path for path in texts if _is_package_of(path, found)}
        more = {path for path, modules in imports.items() if not modules.isdisjoint(found)} | packages
        grown = not more <= found
        found |= more
    return frozenset(found)


def _is_package_of(path: str, found: Collection[str]) -> bool:
    """Whether one of the files is in the package of an `__init__.py`. A package and its modules belong together."""
    file = Path(path)
    return file.name == _INIT and any(file.parent in Path(each).parents for each in found)


def _relative_imports(file: Path, folders: Collection[Path], tree: ast.AST) -> Iterator[Path]:
    """The possible files of the packages of a file, and of its relative imports."""
    ceiling = next((folder for folder in file.parents if folder in folders), None)
    if ceiling is not None:
        for package in file.relative_to(ceiling).parents:
            yield ceiling / package / _INIT
    depth = len(file.relative_to(ceiling).parents) if ceiling is not None else len(file.parents)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and 0 < node.level <= depth:
            yield from _named(node, file.parents[node.level - 1])


def module_files(place: Path) -> tuple[Path, Path]:
    """The two possible files of a module."""
    return place.with_name(f"{place.name}.py"), place / _INIT


def _transitive(files: Iterable[Path], imports: Callable[[Path], Iterator[Path]]) -> tuple[set[Path], set[Path]]:
    present: set[Path] = set()
    absent: set[Path] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file in present or file in absent:
            continue
        if file.is_file():
            present.add(file)
            waiting.extend(imports(file))
        else:
            absent.add(file)
    return present, absent


def _is_unseen_way(node: ast.AST) -> bool:
    """Whether code imports a module by a computed name, or changes the search path."""
    if isinstance(node, ast.Attribute):
        return node.attr in _UNSEEN_WAYS or (node.attr == "path" and _is_named(node.value, "sys"))
    if isinstance(node, ast.alias):
        return node.name in _UNSEEN_WAYS
    return isinstance(node, ast.Name) and node.id in _UNSEEN_WAYS


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _absolute_imports(tree: ast.AST, root: Path) -> Iterator[Path]:
    """The possible project files of absolute imports. The project folder is last on the path."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _in_project(alias.name.split("."), root)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            parts = node.module.split(".")
            yield from _in_project(parts, root)
            for alias in node.names:
                yield from _in_project([*parts, alias.name], root)


def _in_project(parts: list[str], root: Path) -> Iterator[Path]:
    first = root / parts[0]
    if not first.is_dir() and not module_files(first)[0].is_file():
        if parts[0] not in sys.stdlib_module_names:
            yield from module_files(first)  # it may be created later
        return
    place = root
    for part in parts:
        place = place / part
        yield from module_files(place)


def _named(node: ast.ImportFrom, place: Path) -> Iterator[Path]:
    for part in (node.module or "").split("."):
        place = place / part
        yield from module_files(place)
    for alias in node.names:
        yield from module_files(place / alias.name)


def _tree(file: Path) -> ast.AST:
    try:
        return _parsed(read(str(file)))
    except OSError:
        return ast.Module([], [])


def _parsed(text: bytes) -> ast.AST:
    try:
        return parse(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.Module([], [])
