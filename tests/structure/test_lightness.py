"""Importing Prowess costs next to nothing: a skill pays for what it uses, and the host for almost nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pydantic", "pydantic_core", "pluggy", "anyio", "tenacity", "cachetools", "dependency_injector", "jsonschema")

# What the host reads contracts with: these stay light, each and with all that they import.
LIGHT = (
    "errors",
    "jsontypes",
    "contracts.docstrings",
    "contracts.contract",
    "profiles.profile",
    "schemas.walk",
    "schemas.steps",
    "schemas.explicit",
)

STATEMENTS = (
    "import prowess",
    "from prowess import skill_command",
    "from prowess import SkillError",
    *(f"import prowess.{module}" for module in LIGHT),
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_import_loads_nothing_heavy(statement: str) -> None:
    """In a fresh interpreter, none of the libraries that cost tens of milliseconds is loaded."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stderr
    assert [] == [name for name in done.stdout.split() if name in HEAVY]
