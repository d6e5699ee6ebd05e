"""The public door: everything that is promised is there, loaded when it is first used."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest
from patience import PATIENCE

import prowess

PROMISED = {
    *("skill_command", "Context", "Settings", "ConfigPaths", "Inject", "SkillError", "Image", "Audio", "File"),
    *("resource", "prompt", "hookimpl", "get_script_config", "get_tool_annotations", "is_skill_command"),
    *("Page", "Roots", "Sample"),
    *("Runtime", "Outcome", "Catalog", "mcp_schema"),
}


def test_the_door_holds_what_is_promised():
    """What a skill imports, and what an embedder or a test adds; nothing else."""
    assert set(prowess.__all__) == PROMISED
    assert prowess.__all__ == dir(prowess)


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_every_name_leads_to_its_object(name: str):
    """It is the very object of the module it lives in."""
    found = getattr(prowess, name)
    if name == "mcp_schema":
        assert importlib.import_module("prowess.mcp_schema") is found
    else:
        home = getattr(found, "__module__", "prowess.hookspecs")
        assert getattr(importlib.import_module(home), name, found) is found
        assert "pluggy" in home or home.startswith("prowess.")


def test_an_unknown_name_is_an_attribute_error():
    """As of any module, so that `hasattr` and `import` say the usual."""
    with pytest.raises(AttributeError, match="module 'prowess' has no attribute 'nothing'"):
        prowess.nothing
    assert not hasattr(prowess, "compile_command")


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_every_name_can_be_imported_first(name: str):
    """In a fresh interpreter, so that no order of imports is needed."""
    code = f"from prowess import {name}; import prowess; assert prowess.{name} is {name}"
    # Not measured, which takes half as long again: other tests reach all that an import reaches.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    environ = {**kept, "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environ, timeout=PATIENCE)
