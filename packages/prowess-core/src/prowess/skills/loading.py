"""Imports skills under synthetic names, without `sys.path`, without hiding other modules, and always from the current source.

Every module of a runtime lives below one synthetic package, in which each folder of skills is a package. Bytecode files are
ignored: Python compares them by whole seconds, and a skill saved twice within one second would run in its old version.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import itertools
import math
import os
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from prowess.errors import LoadError, did_you_mean
from prowess.frozen import frozen
from prowess.skills.closure import importers, module_files
from prowess.skills.discovery import Source
from prowess.skills.stamps import ABSENT, Stamp, digest_of, read, stamp

__all__ = ["Given", "Modules", "distrust_bytecode_of", "imported", "package_files", "project_files"]

_FOREIGN: Final = frozenset({"site-packages", "dist-packages", "node_modules"})
_SAME_TIME: Final = 2.0
"""Seconds within which two saves may be indistinguishable."""
_MOST_KEPT: Final = 1 << 20
"""The largest source file that is kept, in bytes. A larger one can be imported, but has no last good version."""
_texts_read: Final[dict[str, bytes]] = {}
"""The texts of project modules that were imported by absolute names, which all runtimes share."""
_counter = itertools.count(1)


@frozen
class Given:
    """A skill with its sources, which are imported instead of its files."""

    source: Source
    texts: Mapping[str, bytes]
    """The texts of its files and of the project files that it imports, by path."""
    kept: bool = False
    """Whether its files have changed since and no longer load. Then it does not share its modules."""


class Modules:
    """The modules of one runtime."""

    def __init__(self, root: Path) -> None:
        self.package = f"prowess_skills_{next(_counter)}"
        self._finder = _Finder(self.package, root)
        sys.meta_path.insert(0, self._finder)

    def load(self, source: Source, file: Path) -> ModuleType:
        """Import a file of a skill, or return the existing module."""
        name = self.name(source, file)
        self._finder.files[name] = file
        if source.is_folder:
            self._finder.files[self.name(source, source.path)] = source.path
        return importlib.import_module(name)

    def name(self, source: Source, path: Path) -> str:
        """The module name for a file or a folder of a skill."""
        parts = path.relative_to(source.root).with_suffix("").parts
        parts = parts[:-1] if path.name == "__init__.py" else parts
        return ".".join([self.package, self._finder.name_folder(source.root, source.name), *parts])

    def usual_name(self, name: str) -> str:
        """The name of a module without regard to kept versions."""
        _, _, rest = name.partition(".")
        folder, _, rest = rest.partition(".")
        if not _is_inside(name, self.package) or folder not in self._finder.views:
            return name
        return f"{self.package}.{self._finder.name_folder(self._finder.folders[folder])}.{rest}"

    @property
    def read(self) -> dict[str, str]:
        """The digest of every source that was read for an import, also for one by an absolute name."""
        shared = {file: digest_of(text) for file, text in _texts_read.copy().items()}
        return {**shared, **{str(file): digest for file, digest in self._finder.read.items()}}

    def texts_of(self, files: Iterable[str]) -> dict[str, bytes]:
        """The texts of source files at the time of their import, else their current texts, without large files."""
        found: dict[str, bytes] = {}
        for file in files:
            text = self._finder.texts_read.get(file) or _texts_read.get(file) or self._finder.given.get(file)
            if text is None:
                with contextlib.suppress(OSError):
                    text = read(file)
            if text is not None and len(text) <= _MOST_KEPT:
                found[file] = text
        return found

    def give(self, given: Given) -> None:
        """Import a skill from given sources from now on."""
        skill = given.source.name
        if given.kept:
            changed = {path for path, text in given.texts.items() if self._finder.text_of(path) != text}
            changed.update(map(str, given.source.files))
            folders = {given.source.root, *self._finder.folders.values()}
            own = importers(changed, given.texts, folders, self._finder.root)
            self._finder.keep(skill, given.source.root, {path: given.texts[path] for path in own & given.texts.keys()})
        else:
            self._finder.given.update({path: text for path, text in given.texts.items() if not self._finder.has(path)})

    def takes_modules_out(self, skill: str) -> bool:
        """Whether `as_given` replaces modules during the import of this skill."""
        view = self._finder.kept.get(skill)
        return view is not None and bool(view.in_project)

    @contextlib.contextmanager
    def as_given(self, skill: str) -> Generator[None]:
        """During the import of a kept skill, replace project modules by their kept versions.

        No other import may run at the same time.
        """
        view = self._finder.kept.get(skill)
        if view is None or not view.in_project:
            yield
            return
        now = self._project_modules(view)
        _take_out(now)
        self._finder.importing = view
        try:
            yield
        finally:
            self._finder.importing = None
            _take_out(self._project_modules(view))
            for name, module in now.items():
                sys.modules[name] = module
                parent, leaf = _parent(name)
                if parent is not None:
                    setattr(parent, leaf, module)

    def close(self) -> None:
        """Remove all modules from the interpreter."""
        sys.meta_path.remove(self._finder)
        for name in list(sys.modules):
            if _is_inside(name, self.package):
                del sys.modules[name]

    def _project_modules(self, view: _View) -> dict[str, ModuleType]:
        """The modules with absolute names that come from files of a view."""
        return {
            name: module
            for name, module in sys.modules.copy().items()
            if getattr(module, "__file__", None) in view.texts and not _is_inside(name, self.package)
        }


def imported(name: str, root: Path) -> Any:
    """The object `package.module:Name` of a project module or an installed one."""
    module_name, _, attributes = name.partition(":")
    if not attributes:
        raise LoadError(f"{name!r} must name a container, for example package.module:Container")
    folder = str(root)
    added = folder not in sys.path  # already there in a worker; the path of an embedding program stays unchanged
    if added:
        sys.path.append(folder)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise LoadError(f"{name}: {error}; the module is looked for in the project and its environment") from error
    finally:
        if added:
            sys.path.remove(folder)
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise LoadError(
                f"{name}: the module {module_name} has no {attributes}{did_you_mean(attribute, dir(found))}"
            )
        found = getattr(found, attribute)
    return found


def project_files(root: Path, beside: str = "") -> dict[str, Stamp]:
    """The stamps of all imported project files, without modules of the package `beside`."""
    prefix = f"{root}{os.sep}"
    found: dict[str, Stamp] = {}
    for name, module in sys.modules.copy().items():
        file = getattr(module, "__file__", None)
        if beside and _is_inside(name, beside):
            continue
        if not isinstance(file, str) or not file.startswith(prefix) or not _FOREIGN.isdisjoint(Path(file).parts):
            continue
        found[file] = stamp(file)
    return {file: seen for file, seen in found.items() if seen != ABSENT}


def distrust_bytecode_of(root: Path) -> None:
    """Read project modules from their sources if their bytecode could be outdated.

    Installed packages are not affected.
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
    """The imported source files of an installed package."""
    files = [
        getattr(module, "__file__", None) for name, module in sys.modules.copy().items() if _is_inside(name, package)
    ]
    return [Path(file) for file in files if isinstance(file, str) and file.endswith(".py")]


def _take_out(modules: Iterable[str]) -> None:
    for name in modules:
        module = sys.modules.pop(name)
        parent, leaf = _parent(name)
        if getattr(parent, leaf, None) is module:
            delattr(parent, leaf)  # `from package import leaf` reads the attribute first


def _parent(name: str) -> tuple[ModuleType | None, str]:
    parent, _, leaf = name.rpartition(".")
    return sys.modules.get(parent), leaf


def _is_inside(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


class _View:
    """The files that a kept skill sees in another version than other skills."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.in_project = False
        """Whether some of them are imported by absolute names."""

    def add(self, texts: Mapping[str, bytes], folder: Path) -> None:
        self.texts.update(texts)
        self.in_project = self.in_project or not all(Path(path).is_relative_to(folder) for path in texts)


class _Finder:
    """Finds the modules below the synthetic package of one runtime, and keeps their digests.

    It also finds project modules with given sources.
    """

    def __init__(self, package: str, root: Path) -> None:
        self.package = package
        self.root = root
        self.folders: dict[str, Path] = {}
        """The folders of skills by package name."""
        self.files: dict[str, Path] = {}
        """The files of the modules of skills. They win over other files with the same module name."""
        self.read: dict[Path, str] = {}
        """The digests of all sources that were read."""
        self.texts_read: dict[str, bytes] = {}
        self.given: dict[str, bytes] = {}
        """Given texts of files for all skills."""
        self.views: dict[str, _View] = {}
        """The views of kept skills, by package name."""
        self.kept: dict[str, _View] = {}
        """The same by skill."""
        self.importing: _View | None = None
        """The view of the skill that is being imported."""

    def name_folder(self, folder: Path, skill: str = "") -> str:
        view = self.kept.get(skill)
        for name, known in self.folders.items():
            if known == folder and self.views.get(name) is view:
                return name
        name = f"f{len(self.folders)}"
        self.folders[name] = folder
        if view is not None:
            self.views[name] = view
        return name

    def has(self, path: str) -> bool:
        """Whether a file was imported already."""
        return path in self.texts_read or path in _texts_read

    def text_of(self, path: str) -> bytes | None:
        """The text of a file for all skills: the imported one, else the one that an import would read."""
        text = self.texts_read.get(path) or _texts_read.get(path) or self.given.get(path)
        if text is None:
            with contextlib.suppress(OSError):
                return read(path)
        return text

    def keep(self, skill: str, folder: Path, texts: Mapping[str, bytes]) -> None:
        """Let a skill see kept texts of some files. Skills with equal texts share their modules."""
        agreeing = (
            view
            for view in self.kept.values()
            if all(view.texts.get(path, text) == text for path, text in texts.items())
        )
        self.kept[skill] = view = next(agreeing, None) or _View()
        view.add(texts, folder)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - importlib.reload is not for skills
    ) -> importlib.machinery.ModuleSpec | None:
        if not _is_inside(fullname, self.package):
            return self._find_in_project(fullname, path)
        if fullname == self.package:
            return _namespace(fullname, [])
        _, folder, *parts = fullname.split(".")
        if folder not in self.folders:
            return None
        return self._spec(fullname, self.folders[folder].joinpath(*parts), self.views.get(folder))

    def _spec(self, fullname: str, place: Path, view: _View | None) -> importlib.machinery.ModuleSpec | None:
        """Search in Python's order: a package, a module, a folder without `__init__.py`. A skill keeps its own file."""
        skill, (file, init) = self.files.get(fullname), module_files(place)
        if skill != file and self._is_file(init, view):
            return self._from_file(fullname, init, [str(place)], view)
        if (skill is None or skill == file) and self._is_file(file, view):
            return self._from_file(fullname, file, None, view)
        there = place.is_dir() or (view is not None and any(path.startswith(f"{place}{os.sep}") for path in view.texts))
        return _namespace(fullname, [str(place)]) if there else None

    def _is_file(self, file: Path, view: _View | None) -> bool:
        return str(file) in self.given or (view is not None and str(file) in view.texts) or file.is_file()

    def _from_file(
        self, fullname: str, file: Path, locations: list[str] | None, view: _View | None
    ) -> importlib.machinery.ModuleSpec | None:
        path = str(file)
        loader: importlib.machinery.SourceFileLoader
        if view is None:
            loader = _FreshLoader(fullname, path, self)
        elif path in view.texts:
            loader = _GivenLoader(fullname, path, view.texts[path])
        else:
            _, folder, *parts = fullname.split(".")
            usual = ".".join([self.package, self.name_folder(self.folders[folder]), *parts])
            loader = _Alias(fullname, path, usual)
        return importlib.util.spec_from_file_location(
            fullname, file, loader=loader, submodule_search_locations=locations
        )

    def _find_in_project(self, fullname: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
        """A project module with a given source, unless another module on the path comes first."""
        texts = self.importing.texts if self.importing is not None else self.given
        if not texts:
            return None
        file, init = module_files(self.root.joinpath(*fullname.split(".")))
        found = next((each for each in (init, file) if str(each) in texts), None)
        if found is None or fullname.partition(".")[0] in sys.stdlib_module_names:
            return None
        usual = importlib.machinery.PathFinder.find_spec(fullname, path)
        if usual is not None and usual.origin not in (None, str(found)):
            return None
        loader = _GivenLoader(fullname, str(found), texts[str(found)])
        if self.importing is None:
            _texts_read[str(found)] = texts[str(found)]
        locations = [str(init.parent)] if found == init else None
        return importlib.util.spec_from_file_location(
            fullname, found, loader=loader, submodule_search_locations=locations
        )


def _namespace(fullname: str, locations: list[str]) -> importlib.machinery.ModuleSpec:
    spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
    spec.submodule_search_locations = locations
    return spec


class _CarefulLoader(importlib.machinery.SourceFileLoader):
    """Uses bytecode only if it is certainly up to date, because Python compares whole seconds and sizes."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        stats = super().path_stats(path)
        saved = max(stats["mtime"], os.stat(path).st_ctime)  # mtime can be set by programs, ctime cannot
        if time.time() - saved < _SAME_TIME or _written_at(importlib.util.cache_from_source(path)) - saved < _SAME_TIME:
            raise OSError(path)  # without stats, Python neither reads nor writes a bytecode file
        return stats

    def source_to_code(self, data: Any, path: Any, *more: Any, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        if len(data) <= _MOST_KEPT:
            _texts_read[str(path)] = bytes(data)
        return super().source_to_code(data, path, *more, **options)


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
"""The possible files of a module, in Python's order."""


class _FreshLoader(importlib.machinery.SourceFileLoader):
    """Loads the current or the given text of a source file, and keeps its digest."""

    def __init__(self, fullname: str, path: str, finder: _Finder) -> None:
        super().__init__(fullname, path)
        self._finder = finder

    def path_stats(self, path: str) -> dict[str, float]:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise OSError(path)  # no stats, no bytecode file

    def get_data(self, path: str) -> bytes:
        given = self._finder.given.get(path)
        return super().get_data(path) if given is None else given

    def source_to_code(self, data: Any, path: Any, *more: Any, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._finder.read[Path(path)] = digest_of(data)
        if len(data) <= _MOST_KEPT:
            self._finder.texts_read[str(path)] = bytes(data)
        return super().source_to_code(data, path, *more, **options)


class _GivenLoader(importlib.machinery.SourceFileLoader):
    """Loads a kept text of a source file."""

    def __init__(self, fullname: str, path: str, text: bytes) -> None:
        super().__init__(fullname, path)
        self._text = text

    def path_stats(self, path: str) -> dict[str, float]:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise OSError(path)  # no stats, no bytecode file

    def get_data(self, path: str) -> bytes:  # noqa: ARG002 - there is only one
        return self._text


class _Alias(importlib.machinery.SourceFileLoader):
    """Returns the shared module, so that its classes are the same."""

    def __init__(self, fullname: str, path: str, usual: str) -> None:
        super().__init__(fullname, path)
        self._usual = usual

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self._usual)
