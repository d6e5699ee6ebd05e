"""What a file imports from its project, read from the texts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from prowess.skills.closure import _tree, closure


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "skills/tool.py": "from .helper import x\nimport json\nfrom mylib.deep import thing\nimport single\n",
        "skills/helper.py": "from . import other\n",
        "skills/other.py": "",
        "skills/folder/scripts/run.py": "from .. import near\nfrom ...other import y\n",
        "skills/folder/near.py": "from . import missing\n",
        "mylib/__init__.py": "from mylib.deep import later",
        "mylib/deep.py": "def f():\n    from .later import z\n",
        "mylib/later.py": "import mylib.deep\n",
        "single.py": "from ....... import nothing\n",
        "skills/broken.py": "def (:\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path


def present(root: Path, *names: str) -> set[str]:
    found = closure([root / name for name in names], {root / "skills"}, root)
    return {path.relative_to(root).as_posix() for path in found.present}


def test_relative_and_project_imports_are_followed(root: Path) -> None:
    """Transitively, also inside functions and in circles; the standard library is no part of it."""
    expected = {
        "skills/tool.py",
        "skills/helper.py",
        "skills/other.py",
        "mylib/__init__.py",
        "mylib/deep.py",
        "mylib/later.py",
        "single.py",
    }
    assert expected == present(root, "skills/tool.py")


def test_imports_out_of_a_folder_reach_its_neighbours(root: Path) -> None:
    """As far as the folder of skills, and no further."""
    expected = {"skills/folder/scripts/run.py", "skills/folder/near.py", "skills/other.py"}
    assert expected == present(root, "skills/folder/scripts/run.py")


def test_what_is_missing_is_told(root: Path) -> None:
    """It would be part of it if it were there."""
    found = closure([root / "skills/folder/near.py"], {root / "skills"}, root)
    assert root / "skills/folder/missing.py" in found.absent


def test_file_that_cannot_be_parsed_imports_nothing(root: Path) -> None:
    """It is itself all the same."""
    assert {"skills/broken.py"} == present(root, "skills/broken.py")


def test_file_outside_of_the_folders_has_no_packages(root: Path) -> None:
    """A project module is not below a folder of skills."""
    assert {"single.py"} == present(root, "single.py")


def test_module_that_is_nowhere_may_come_to_be_in_the_project(root: Path) -> None:
    """Unless the standard library has it."""
    (root / "single.py").write_text("import json, elsewhere.deep\n")
    found = closure([root / "single.py"], {root / "skills"}, root)
    assert {root / "elsewhere.py", root / "elsewhere/__init__.py"} == found.absent


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nsys.path.append('x')",
        "import importlib\nimportlib.import_module(name)",
        "from importlib import import_module as get",
        "__import__(name)",
        "import runpy",
    ],
)
def test_imports_that_no_text_tells_of_are_told_of(root: Path, text: str) -> None:
    """Also where a module does it that is imported."""
    assert not closure([root / "skills/tool.py"], {root / "skills"}, root).is_open
    (root / "mylib/later.py").write_text(text)
    assert closure([root / "skills/tool.py"], {root / "skills"}, root).is_open


def test_file_that_has_gone_while_it_was_looked_at_imports_nothing(tmp_path: Path) -> None:
    """It was there a moment ago."""
    assert [] == list(ast.iter_child_nodes(_tree(tmp_path / "gone.py")))
