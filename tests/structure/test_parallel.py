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
ALONE = """
import time
from pathlib import Path

def meet(mine, other):
    Path(mine).touch()
    while not Path(other).exists():
        time.sleep(0.01)

def test_one(): meet("one", "two")
def test_two(): meet("two", "one")
"""
SHARED = """
import os
import pytest

@pytest.fixture(scope="module")
def process(): return os.getpid()
@pytest.mark.parametrize("number", range(50))
def test_shared(process, number): assert process == os.getpid()
def test_beside(process): assert process == os.getpid()
"""


def run(folder: Path, *options: str, **modules: str) -> tuple[int, str]:
    """The exit code and the words of a run in two processes."""
    (folder / "conftest.py").write_text("from parallel import pytest_addoption, pytest_runtestloop\n")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    command = f"import sys, pytest; sys.path.append({str(ROOT / 'tests')!r}); sys.exit(pytest.main())"
    common = ["--rootdir=.", "-n", "2", "-p", "no:cacheprovider", "--disable-plugin-autoload", *options]
    done = subprocess.run(
        [sys.executable, "-c", command, *common], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, f"{done.stdout}{done.stderr}"


def test_every_test_runs_and_is_reported(tmp_path: Path):
    """A process that dies costs the test it was running, and the tests after it run in another one."""
    code, told = run(tmp_path, "-ra", test_odd=ODD, test_even="def test_good(): ...\n")
    assert 1 == code, told
    assert "2 failed, 3 passed, 1 skipped" in told
    assert "the process that ran this test ended with exit code 3" in told
    assert "Captured stdout call" in told
    assert "SKIPPED [1] test_odd.py:10: tired" in told


def test_tests_of_a_long_module_run_side_by_side_unless_they_share_something(tmp_path: Path):
    """The two of one module wait for each other; those of another use a fixture of their module, in one process."""
    code, told = run(tmp_path, test_soak=ALONE, test_supervisor=SHARED)
    assert 0 == code, told
    assert "53 passed" in told


def test_a_fixture_of_the_session_that_cannot_be_ended_fails_the_run(tmp_path: Path):
    """It lives until the process has no more tests."""
    ending = "import pytest\n@pytest.fixture(scope='session')\ndef ours():\n    yield\n    raise OSError('cannot be ended')\n"
    code, told = run(tmp_path, test_one=f"{ending}def test_uses(ours): ...\n")
    assert 0 != code, told
    assert "cannot be ended" in told
