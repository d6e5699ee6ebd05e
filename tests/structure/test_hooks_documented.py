"""Every hook is documented, with the signature it really has."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def hooks() -> dict[str, Callable[..., Any]]:
    """The functions that pluggy's marker made hooks of."""
    hookspecs = importlib.import_module("prowess.hookspecs")
    return {name: value for name, value in vars(hookspecs).items() if hasattr(value, "prowess_spec")}


def as_called(name: str, hook: Callable[..., Any]) -> str:
    return f"{name}({', '.join(inspect.signature(hook).parameters)})"


def test_every_hook_stands_in_the_documentation_with_its_signature() -> None:
    """docs/plugins.md shows `hook_name(first, second)` for each hook there is: a renamed parameter is a changed contract."""
    text = (ROOT / "docs/plugins.md").read_text(encoding="utf-8")

    assert [] == [call for name, hook in hooks().items() if (call := as_called(name, hook)) not in text]


def test_every_hook_says_what_it_is_for() -> None:
    """There are hooks, and each has a docstring."""
    assert {} != hooks()
    assert [] == [name for name, hook in hooks().items() if not inspect.getdoc(hook)]
