"""`pytest -n`: what happens in a test process reaches the report, also where the process dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ODD = """
import os, sys
import pytest

KEPT = sys.stderr
def test_prints(): print("kept", file=KEPT)
def test_dies(): os._exit(3)
def test_after(tmp_path): tmp_path.joinpath("file").touch()
def test_fails(): print("said"); assert 1 == 2
@pytest.mark.skip(reason="tired")
def test_skipped(): ...
"""


def test_every_test_runs_and_is_reported(tmp_path: Path):
    """A process that dies costs the test it was running, and the tests after it run in another one."""
    (tmp_path / "conftest.py").write_text("from parallel import pytest_addoption, pytest_runtestloop\n")
    (tmp_path / "test_odd.py").write_text(ODD)
    (tmp_path / "test_even.py").write_text("def test_good(): ...\n")
    command = f"import sys, pytest; sys.path.append({str(ROOT / 'tests')!r}); sys.exit(pytest.main())"
    options = ["--rootdir=.", "-n", "2", "-ra", "-p", "no:cacheprovider", "--disable-plugin-autoload"]
    done = subprocess.run(
        [sys.executable, "-c", command, *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    told = f"{done.stdout}{done.stderr}"
    assert 1 == done.returncode, told
    assert "2 failed, 3 passed, 1 skipped" in told
    assert "the process that ran this test ended with exit code 3" in told
    assert "Captured stdout call" in told
    assert "SKIPPED [1] test_odd.py:10: tired" in told
