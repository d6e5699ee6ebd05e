"""One word for one thing: no two public classes of the product have the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGES = Path(__file__).parents[2] / "packages"
PRODUCT = ("prowess-core", "prowess-host")
"""Not the test kit: its `Client` or `Project` is what a test uses in the place of the real one."""


def classes() -> dict[str, list[str]]:
    """The modules of every public class."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for package in PRODUCT:
        source = PACKAGES / package / "src"
        for path in sorted(source.rglob("*.py")):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(source)))
    return found


def test_no_two_classes_have_the_same_name():
    """A reader who searches for a name finds the one thing that it means."""
    found = classes()
    assert len(found) > 300
    assert {} == {name: modules for name, modules in found.items() if len(modules) > 1}
