"""Importing skills under names of their own: never by `sys.path`, never in the way of another module, never stale.

Every module of a runtime lives below one synthetic package, in which each folder of skills is a package. Sources are read
without bytecode files: those are trusted by a whole second, and a skill edited twice within one would run as it was before.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import math
import os
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from prowess.closure import module_files, relative_imports
from prowess.discovery import Source
from prowess.fingerprints import ABSENT, Stamp, stamp

__all__ = ["Modules", "distrust_bytecode_of", "package_files", "project_files"]

_INIT: Final = "__init__.py"
_FOREIGN: Final = frozenset({"site-packages", "dist-packages", "node_modules"})
_SAME_TIME: Final = 2.0
"""Seconds within which two saves may look alike."""
_counter = itertools.count(1)


class Modules:
    """The modules of one runtime."""

    def __init__(self) -> None:
        self.package = f"prowess_skills_{next(_counter)}"
        self._finder = _Finder(self.package)
        sys.meta_path.insert(0, self._finder)

    def load(self, source: Source, file: Path) -> ModuleType:
        """Import a file of a skill; a module that is there already is given as it is."""
        name = self.name(source, file)
        self._finder.files[name] = file
        if source.is_folder:
            self._finder.files[self.name(source, source.path)] = source.path
        return importlib.import_module(name)

    def name(self, source: Source, path: Path) -> str:
        """The module name of a file or a folder of a skill."""
        parts = path.relative_to(source.root).with_suffix("").parts
        return ".".join([self.package, self._finder.name_folder(source.root), *parts])

    @property
    def read(self) -> dict[str, str]:
        """Every source that was read, with a digest of what it said."""
        return {str(file): digest for file, digest in self._finder.read.items()}

    def stale(self) -> set[Path]:
        """The files that are not any more what was imported, and those that import such a file relatively."""
        stale = self._finder.changed()
        folders = set(self._finder.folders.values())
        imports = {file: set(relative_imports(file, folders)) for file in self._finder.read} if stale else {}
        grown = True
        while grown:
            dependent = {file for file, imported in imports.items() if imported & stale} - stale
            stale |= dependent
            grown = bool(dependent)
        return stale

    def drop(self, files: Collection[Path]) -> dict[str, ModuleType]:
        """Forget the modules of some files, so that they are imported anew. Gives them, for `restore`."""
        dropped: dict[str, ModuleType] = {}
        for name, module in self._all():
            file = getattr(module, "__file__", None)
            if file is not None and Path(file) in files:
                dropped[name] = module
                del sys.modules[name]
                self._finder.read.pop(Path(file), None)
                self._finder.files.pop(name, None)
                parent, leaf = _parent(name)
                if getattr(parent, leaf, None) is module:
                    delattr(parent, leaf)  # `from . import leaf` looks there first
        return dropped

    def restore(self, modules: Mapping[str, ModuleType], own: Iterable[Path]) -> frozenset[Path]:
        """Put dropped modules back: those of the files in `own`, and others that nobody has imported anew.

        Gives the files that run on as they were, whatever they say now.
        """
        mine = {str(file) for file in own}
        restored: set[Path] = set()
        for name, module in modules.items():
            if module.__file__ in mine or name not in sys.modules:
                sys.modules[name] = module
                parent, leaf = _parent(name)
                setattr(parent, leaf, module)
                restored.add(Path(str(module.__file__)))
        return frozenset(restored)

    def close(self) -> None:
        """Take everything out of the interpreter again."""
        sys.meta_path.remove(self._finder)
        for name, _ in self._all():
            del sys.modules[name]

    def _all(self) -> list[tuple[str, ModuleType]]:
        return [item for item in list(sys.modules.items()) if _is_inside(item[0], self.package)]


def project_files(root: Path, beside: str = "") -> dict[str, Stamp]:
    """The files of the project that have been imported by now, each with what tells one version from another.

    Modules of the package `beside` do not count.
    """
    prefix = f"{root}{os.sep}"
    found: dict[str, Stamp] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if beside and _is_inside(name, beside):
            continue
        if not isinstance(file, str) or not file.startswith(prefix) or not _FOREIGN.isdisjoint(Path(file).parts):
            continue
        found[file] = stamp(file)
    return {file: seen for file, seen in found.items() if seen != ABSENT}


def distrust_bytecode_of(root: Path) -> None:
    """Have the modules of a project read from their sources wherever bytecode could be that of an earlier save.

    Its installed packages are not meant.
    """
    prefix, standard = f"{root}{os.sep}", os.path.dirname(os.__file__)

    def hook(path: str) -> importlib.machinery.FileFinder:
        inside = f"{path}{os.sep}".startswith(prefix) and not path.startswith(standard)
        if not inside or not os.path.isdir(path) or not _FOREIGN.isdisjoint(Path(path).parts):
            raise ImportError(path)
        return importlib.machinery.FileFinder(path, *_KINDS)

    sys.path_hooks.insert(0, hook)
    for path in [path for path in sys.path_importer_cache if f"{path}{os.sep}".startswith(prefix)]:
        del sys.path_importer_cache[path]


def package_files(package: str) -> list[Path]:
    """The source files of an installed package that have been imported by now."""
    files = [
        getattr(module, "__file__", None) for name, module in list(sys.modules.items()) if _is_inside(name, package)
    ]
    return [Path(file) for file in files if isinstance(file, str) and file.endswith(".py")]


def _parent(name: str) -> tuple[ModuleType | None, str]:
    parent, _, leaf = name.rpartition(".")
    return sys.modules.get(parent), leaf


def _is_inside(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules below the synthetic package of one runtime, and remembers what it read."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.folders: dict[str, Path] = {}
        """The folders of skills, each with the name of its package."""
        self.files: dict[str, Path] = {}
        """The modules of skills: they are the files they were found in, whatever else might have their name."""
        self.read: dict[Path, str] = {}
        """Every source that was read, with a digest of what it said."""
        self.missing: set[Path] = set()
        """What was looked for in vain, without a suffix."""

    def name_folder(self, folder: Path) -> str:
        for name, known in self.folders.items():
            if known == folder:
                return name
        name = f"f{len(self.folders)}"
        self.folders[name] = folder
        return name

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - our packages know their folders
        target: ModuleType | None = None,  # noqa: ARG002 - importlib.reload is not for skills
    ) -> importlib.machinery.ModuleSpec | None:
        if not _is_inside(fullname, self.package):
            return None
        if fullname == self.package:
            return _namespace(fullname, [])
        _, folder, *parts = fullname.split(".")
        if folder not in self.folders:
            return None
        place = self.folders[folder].joinpath(*parts)
        spec = self._spec(fullname, place)
        if spec is None:
            self.missing.add(place)
        return spec

    def _spec(self, fullname: str, place: Path) -> importlib.machinery.ModuleSpec | None:
        """Python's own order: a package, a module, a folder without `__init__.py`. A skill is what it was found to be."""
        skill, file = self.files.get(fullname), place.with_name(f"{place.name}.py")
        if skill != file and (place / _INIT).is_file():
            return self._from_file(fullname, place / _INIT, [str(place)])
        if (skill is None or skill == file) and file.is_file():
            return self._from_file(fullname, file, None)
        return _namespace(fullname, [str(place)]) if place.is_dir() else None

    def _from_file(
        self, fullname: str, file: Path, locations: list[str] | None
    ) -> importlib.machinery.ModuleSpec | None:
        loader = _FreshLoader(fullname, str(file), self.read)
        return importlib.util.spec_from_file_location(
            fullname, file, loader=loader, submodule_search_locations=locations
        )

    def changed(self) -> set[Path]:
        """The files that say something else than what was read, are gone, or have appeared where one was missed."""
        changed = {file for file, digest in list(self.read.items()) if _digest_of(file) != digest}
        for place in list(self.missing):
            if place.exists() or place.with_name(f"{place.name}.py").exists():
                self.missing.discard(place)
                changed.update(module_files(place))
        return changed


def _namespace(fullname: str, locations: list[str]) -> importlib.machinery.ModuleSpec:
    spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
    spec.submodule_search_locations = locations
    return spec


class _CarefulLoader(importlib.machinery.SourceFileLoader):
    """Uses bytecode only where it cannot be of an earlier save: Python tells saves apart by whole seconds and sizes."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        stats = super().path_stats(path)
        saved = max(stats["mtime"], os.stat(path).st_ctime)  # the one can be set at will, the other cannot
        if time.time() - saved < _SAME_TIME or _written_at(importlib.util.cache_from_source(path)) - saved < _SAME_TIME:
            raise OSError(path)  # no stats, no bytecode file: none is read, and none is written
        return stats


def _written_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return math.inf


_KINDS: Final[tuple[tuple[Any, list[str]], ...]] = (
    (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
    (_CarefulLoader, importlib.machinery.SOURCE_SUFFIXES),
    (importlib.machinery.SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
)
"""What a module may be, in Python's own order."""


class _FreshLoader(importlib.machinery.SourceFileLoader):
    """Reads a source file as it is now, and remembers what it said."""

    def __init__(self, fullname: str, path: str, read: dict[Path, str]) -> None:
        super().__init__(fullname, path)
        self._read = read

    def path_stats(self, path: str) -> dict[str, float]:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise OSError(path)  # no stats, no bytecode file

    def source_to_code(self, data: Any, path: Any, *more: Any, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._read[Path(path)] = _digest(data)
        return super().source_to_code(data, path, *more, **options)


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _digest_of(file: Path) -> str | None:
    try:
        return _digest(file.read_bytes())
    except OSError:
        return None
