"""Users' code is typed: the files of `tests/typing_tests` pass pyright in strict mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

TYPED = Path(__file__).resolve().parents[1] / "typing_tests"
SOURCE = TYPED.parents[1] / "packages" / "prowess" / "src"


def test_decorated_functions_have_the_types_that_users_expect(tmp_path: Path):
    """Every `assert_type` holds, and every `pyright: ignore` hides an error."""
    pytest.importorskip("pyright", reason="only with the group `checks`")
    settings = {
        "include": [os.path.relpath(TYPED, tmp_path)],  # pyright passes over absolute paths
        "extraPaths": [os.path.relpath(SOURCE, tmp_path)],
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",  # a call that ought to be refused and is not
        "pythonVersion": "3.11",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "-p", ".", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    report = json.loads(done.stdout)
    assert [] == [(item["range"]["start"]["line"] + 1, item["message"]) for item in report["generalDiagnostics"]]
    assert len(list(TYPED.glob("*.py"))) == report["summary"]["filesAnalyzed"]
