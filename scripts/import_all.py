"""Imports every public module of an installed package: `import_all.py <package>`. Run by `scripts/wheels.py` beside a wheel."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

OF_EXTRAS = ("opentelemetry",)
"""What only an extra installs. The modules that import it are imported where the extra is on."""


def public(package: ModuleType) -> Iterator[ModuleType]:
    """The package and all modules in it whose names have no underscore in front, imported."""
    yield package
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not found.name.rpartition(".")[2].startswith("_"):
            try:
                module = importlib.import_module(found.name)
            except ModuleNotFoundError as error:
                if str(error.name).partition(".")[0] in OF_EXTRAS:
                    continue
                raise
            yield from public(module) if found.ispkg else [module]


def main() -> None:
    """Import all, and make sure that it is the wheel that was imported, with its mark for type checkers."""
    package = importlib.import_module(sys.argv[1])
    place = Path(str(package.__file__)).parent
    if not place.is_relative_to(sys.prefix):
        sys.exit(f"{package.__name__} was imported from {place}, not from the wheel")
    if not (place / "py.typed").is_file():
        sys.exit(f"{package.__name__} has no py.typed")
    print(sum(1 for _ in public(package)))


if __name__ == "__main__":
    main()
