"""What installed packages bring: skills, and plugins of pydantic. Both are declared as entry points.

`importlib.metadata` finds them, but its import and its search take 10 ms of a worker's start, and most environments have
none of either. So we first look whether any package mentions the group at all, which takes 1 ms.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.machinery import PathFinder
from io import FileIO
from types import ModuleType
from typing import Any, Final

from prowess.frozen import frozen

__all__ = ["Installed", "installed", "skip_search_of_pydantic"]

_GROUP: Final = "prowess.skills"
_PYDANTIC: Final = "pydantic"
_OURS: Final = frozenset({_GROUP, _PYDANTIC})
_LOADER: Final = "pydantic.plugin._loader"
_RACE: Final = 2_000_000_000
"""Nanoseconds within which two changes of a folder may have the same time."""
_searched: Final[dict[str, tuple[tuple[int, ...], frozenset[str]]]] = {}
"""The folders that were searched: their versions, and the groups that are mentioned there."""


@frozen
class Installed:
    """An entry point of an installed package."""

    name: str
    distribution: str
    module: str
    load: Callable[[], object]

    @property
    def package(self) -> str:
        """The outermost package, which contains the author's code."""
        return self.module.partition(".")[0]


def installed() -> Iterator[Installed]:
    """The installed skill packages, in the order of their names."""
    if not _may_have(_GROUP):
        return
    from importlib.metadata import entry_points

    found = [(entry, entry.dist.name if entry.dist else "") for entry in entry_points(group=_GROUP)]
    for entry, distribution in sorted(found, key=lambda item: (item[0].name, item[1])):
        module, _, _ = entry.value.partition(":")
        yield Installed(entry.name, distribution, module.strip(), entry.load)


def skip_search_of_pydantic() -> None:
    """If no plugin of pydantic is installed, keep pydantic from searching for one with its first validator.

    The module that searches for plugins is replaced by one that finds none. Whatever else is asked of it, the real one answers.
    """
    if _LOADER in sys.modules or _may_have(_PYDANTIC):
        return
    module = ModuleType(_LOADER)

    def real(name: str) -> Any:
        if name.startswith("__"):  # the import system asks for some
            raise AttributeError(name)
        del sys.modules[_LOADER]
        return getattr(import_module(_LOADER), name)

    vars(module).update(get_plugins=tuple, __getattr__=real)
    sys.modules[_LOADER] = module


def _may_have(group: str) -> bool:
    """Whether a package may declare entry points of a group. `True` wherever only the library could tell."""
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if not _searches_folders(finder)):
        return True
    folders = dict.fromkeys(map(str, sys.path))
    return any(group in _groups_in(folder or ".") for folder in folders)


def _searches_folders(finder: object) -> bool:
    """Whether a finder looks for packages only where we do: that of the library, or of its newer version from PyPI."""
    return finder is PathFinder or type(finder).__module__ == "importlib_metadata"


def _groups_in(folder: str) -> frozenset[str]:
    """Which of our groups the packages in a folder mention: all, if it is an archive or an egg.

    It is searched again when packages have come or gone: a program may have many runtimes, and a worker looks twice.
    """
    if folder.lower().endswith(".egg"):
        return _OURS
    try:
        status = os.stat(folder)  # noqa: PTH116 - as below
        version = status.st_mtime_ns, status.st_ctime_ns, status.st_ino
        before, groups = _searched.get(folder, ((), frozenset()))
        if version != before:
            groups = _search(folder)
            if time.time_ns() - max(version[:2]) > _RACE:
                _searched[folder] = version, groups
    except NotADirectoryError:
        return _OURS
    except OSError:
        return frozenset()  # the library passes over it as well
    return groups


def _search(folder: str) -> frozenset[str]:
    found: set[str] = set()
    for name in os.listdir(folder):  # noqa: PTH208 - objects for hundreds of paths take as long as the rest
        if name.lower().endswith((".dist-info", ".egg-info")):
            with contextlib.suppress(OSError), FileIO(f"{folder}/{name}/entry_points.txt") as file:
                text = file.readall()
                found.update(group for group in _OURS if f"[{group}]".encode() in text)
    return frozenset(found)
