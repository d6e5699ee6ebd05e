"""Measures which statements of a package this process runs, and those that it forks. Every process of the environment that has
the variable `STATEMENTS` begins with this module; `statements` says how that comes about.
"""

from __future__ import annotations

import marshal
import mmap
import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader

TYPE_CHECKING = False  # importing typing would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType

__all__ = ["FOLDER", "Finder", "code_file", "hits", "measure"]

FOLDER = "STATEMENTS"
"""The variable that names the folder of a measurement."""

hits: mmap.mmap
"""A byte for each statement of the package: 1 once it has run. The modules of the package import it."""


def measure() -> None:
    """Measure what this process imports from now on."""
    global hits  # noqa: PLW0603 - one measurement for a process
    folder = os.environ[FOLDER]
    try:
        with open(f"{folder}/hits", "r+b") as file:  # noqa: PTH123 - pathlib takes longer to import than all of this
            hits = mmap.mmap(file.fileno(), 0)
        with open(f"{folder}/packages", encoding="utf-8") as file:  # noqa: PTH123 - as above
            sys.meta_path.insert(0, Finder(folder, file.read().split()))  # type: ignore[arg-type] - no class method
    except OSError:  # the process is confined, or the measurement is over
        return


def code_file(folder: str, module: str) -> str:
    """Where the code of a module is that marks its statements."""
    return f"{folder}/{module}.code"


class Finder:
    """Finds the modules that are measured, and leaves all others to Python."""

    def __init__(self, folder: str, packages: Sequence[str]) -> None:
        self._folder = folder
        self._packages = packages

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module, with a loader of ours."""
        if name.partition(".")[0] not in self._packages:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec and spec.origin:
            spec.loader = _Loader(name, spec.origin, code_file(self._folder, name))
        return spec


class _Loader(SourceFileLoader):
    """Loads a module that was compiled before."""

    def __init__(self, name: str, path: str, file: str) -> None:
        super().__init__(name, path)
        self._file = file

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the signature of loaders
        """The code that marks its statements."""
        with open(self._file, "rb") as file:  # noqa: PTH123 - as above
            return marshal.loads(file.read())
