"""Importing skills under names of their own: never by `sys.path`, never in the way of another module, never stale.

Every module of a runtime lives below one synthetic package. Its finder reads sources itself, without bytecode files: those are
trusted by a whole second, and a skill that is edited twice within one would run as it was before.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from prowess.discovery import Source

__all__ = ["Modules", "dependencies"]

_ROOT: Final = "prowess_skills"
_counter = itertools.count(1)


class Modules:
    """The modules of one runtime."""

    def __init__(self) -> None:
        self._root = f"{_ROOT}.r{next(_counter)}"
        self._places: dict[Path, str] = {}
        self._finder = _Finder()
        sys.meta_path.insert(0, self._finder)

    def load(self, source: Source) -> list[ModuleType]:
        """Import every file of a skill, in order."""
        return [importlib.import_module(name) for name in self._names(source)]

    def drop(self, files: Iterable[Path]) -> dict[str, ModuleType]:
        """Forget the modules of some files, so that they are imported anew. Gives them, for `restore`."""
        gone = set(files)
        dropped: dict[str, ModuleType] = {}
        for name in list(sys.modules):
            module = sys.modules[name]
            file = getattr(module, "__file__", None)
            if name.startswith(f"{self._root}.") and file and Path(file) in gone:
                dropped[name] = sys.modules.pop(name)
        return dropped

    def restore(self, modules: dict[str, ModuleType]) -> None:
        """Put dropped modules back: the last good version goes on."""
        for name, module in modules.items():
            sys.modules[name] = module
            parent, _, leaf = name.rpartition(".")
            if parent in sys.modules:
                setattr(sys.modules[parent], leaf, module)

    def close(self) -> None:
        """Take everything out of the interpreter again."""
        sys.meta_path.remove(self._finder)
        for name in [name for name in sys.modules if name == self._root or name.startswith(f"{self._root}.")]:
            del sys.modules[name]

    def _names(self, source: Source) -> list[str]:
        base = self._base(source)
        return [f"{base}.{'.'.join(file.relative_to(source.folder).with_suffix('').parts)}" for file in source.files]

    def _base(self, source: Source) -> str:
        """The package that a skill's files are in: one for each folder."""
        if source.folder not in self._places:
            name = f"{self._root}.f{len(self._places)}"
            self._places[source.folder] = name
            self._finder.roots[name] = source.folder
            self._finder.roots.setdefault(self._root, None)
            self._finder.roots.setdefault(_ROOT, None)
        return self._places[source.folder]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules below the synthetic packages of one runtime."""

    def __init__(self) -> None:
        self.roots: dict[str, Path | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self.roots:
            folder = self.roots[fullname]
            init = folder / "__init__.py" if folder else None
            return _package(fullname, folder, init if init and init.is_file() else None)
        for root, folder in self.roots.items():
            if folder is not None and fullname.startswith(f"{root}."):
                return _below(fullname, folder.joinpath(*fullname.removeprefix(f"{root}.").split(".")))
        return None


def _below(fullname: str, path: Path) -> importlib.machinery.ModuleSpec | None:
    """The spec of a module or package inside a skill folder, or `None` so that the import fails as usual."""
    file = path.with_name(f"{path.name}.py")
    if file.is_file():
        return importlib.util.spec_from_file_location(fullname, file, loader=_FreshLoader(fullname, str(file)))
    if path.is_dir():
        init = path / "__init__.py"
        return _package(fullname, path, init if init.is_file() else None)
    return None


def _package(fullname: str, folder: Path | None, init: Path | None) -> importlib.machinery.ModuleSpec:
    if init is None:
        spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [str(folder)] if folder else []
        return spec
    loader = _FreshLoader(fullname, str(init))
    spec = importlib.util.spec_from_file_location(fullname, init, loader=loader, submodule_search_locations=[str(folder)])
    assert spec is not None  # noqa: S101 - it is None only without a loader
    return spec


class _FreshLoader(importlib.machinery.SourceFileLoader):
    """Reads a source file as it is now."""

    def path_stats(self, path: str) -> dict[str, float]:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise OSError(path)  # no stats, no bytecode file


def dependencies(source: Source) -> set[Path]:
    """The files of a skill and, transitively, those it imports relatively. Read from the text, so that nothing runs."""
    seen: set[Path] = set()
    waiting = [*source.files, source.folder / "__init__.py"]
    while waiting:
        file = waiting.pop()
        if file not in seen and file.is_file():
            seen.add(file)
            waiting.extend(_relative_imports(file))
    return seen


def _relative_imports(file: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            start = file.parents[node.level - 1] if node.level <= len(file.parents) else file.parent
            target = start.joinpath(*(node.module or "").split("."))
            names = [target, *(target / alias.name for alias in node.names)]
            for name in names:
                yield name.with_name(f"{name.name}.py")
                yield name / "__init__.py"
