"""Modules that tests share have names of their own: the folders they are in come to one `sys.path`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_helpers_have_names_of_their_own() -> None:
    """Of two with the same name, the one would be imported in the place of the other, but only where both are used."""
    found = sorted(path.parent for path in ROOT.rglob("conftest.py") if "sys.path.append" in path.read_text("utf-8"))
    helpers = [path.stem for folder in {ROOT, *found} for path in folder.glob("*.py") if path.stem != "conftest"]
    names = Counter(name for name in helpers if not name.startswith("test_"))

    assert found
    assert [] == [name for name, count in names.items() if count > 1]
