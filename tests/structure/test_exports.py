"""What is public says so: `__all__` of every public module is what it defines publicly, and the door opens to it."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What a skill imports from `prowess`, and what an embedder or a test adds.
DOOR = {
    *(
        "skill_command",
        "Context",
        "Settings",
        "ConfigPaths",
        "Inject",
        "SkillError",
        "Image",
        "Audio",
        "File",
        "hookimpl",
    ),
    *("get_script_config", "get_tool_annotations", "is_skill_command"),
    *("Runtime", "Outcome", "Catalog", "mcp_schema"),
}

# Modules that, like a package's `__init__`, also show what others define: public doors of their own.
FACADES = {"prowess.mcp_schema"}


def public_modules() -> dict[Path, str]:
    """The public modules of all packages: no part of the name starts with an underscore."""
    found = {}
    for path in sorted(ROOT.glob("packages/*/src/**/*.py")):
        inside = path.relative_to(ROOT / "packages").parts[2:]
        parts = [*inside[:-1], path.stem] if path.stem != "__init__" else [*inside[:-1]]
        if not any(part.startswith("_") for part in parts):
            found[path] = ".".join(parts)
    return found


MODULES = public_modules()


def defined(body: list[ast.stmt]) -> Iterator[str]:
    """The public names that statements define, also inside `if` and `try`; imports define nothing."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar" | "ParamSpec" | "TypeVarTuple"))):
                pass  # the scaffolding of a signature, and no name of ours
            case ast.Assign(targets=targets):
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If(body=inner, orelse=other):
                yield from defined([*inner, *other])
            case ast.Try(body=inner, handlers=handlers, orelse=other, finalbody=last):
                yield from defined([*inner, *(line for handler in handlers for line in handler.body), *other, *last])


def own_definitions(source: str) -> set[str]:
    return {name for name in defined(ast.parse(source).body) if not name.startswith("_")}


@pytest.mark.parametrize("path", MODULES, ids=MODULES.get)
def test_all_is_what_a_module_defines_publicly(path: Path) -> None:
    """`__all__` holds every public definition and nothing else; a package's `__init__` may also show what is inside it."""
    module = importlib.import_module(MODULES[path])
    public = own_definitions(path.read_text(encoding="utf-8"))
    listed = set(getattr(module, "__all__", ()))  # an `__init__` with nothing in it needs none

    assert set() == public - listed, "public, but not in __all__ (list it, or give it an underscore)"
    if path.stem != "__init__" and MODULES[path] not in FACADES:
        assert set() == listed - public, "in __all__, but not defined here"
    assert [] == [name for name in listed if not hasattr(module, name)], "in __all__, but not there"


def test_door_opens_to_all_that_is_promised() -> None:
    """`from prowess import …` gives every name that the documentation promises to authors and embedders."""
    door = importlib.import_module("prowess")

    assert set() == DOOR - set(getattr(door, "__all__", ()))


def test_lazy_door_shows_what_is_behind_it() -> None:
    """`dir(prowess)` lists every public name before any of them was used."""
    code = "import prowess; print(*sorted(set(prowess.__all__) - set(dir(prowess))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stdout.strip()), done.stderr


def test_reader_of_definitions_sees_every_form() -> None:
    """The guard above is worth what it can see."""
    source = """
import json
from os import path
a, (b, _c) = 1, (2, 3)
d: int = 4
T = TypeVar("T")
def e(): hidden = 1
async def f(): ...
class G:
    inner = 1
if True:
    h = 1
else:
    i = 2
try:
    j = 1
except ImportError:
    k = 2
"""

    assert set("abdefhijk") | {"G"} == own_definitions(source)
