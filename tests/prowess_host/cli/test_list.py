"""`prowess list` on terminals of different widths."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import Terminal, plain

SKILL = """
from prowess import skill_command

@skill_command(read_only=True, idempotent=True, open_world=False)
def find() -> str:
    '''Find everything that somebody could ever want to find in a shop of this size.'''
    return ""
"""


@pytest.mark.parametrize(("columns", "shows_hints"), [(60, False), (80, False), (140, True)])
def test_lines_fit_into_the_terminal(tmp_path: Path, columns: int, shows_hints: bool) -> None:
    """A narrow terminal has no room for the hints, which `prowess show` shows as well."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/shop.py").write_text(SKILL, encoding="utf-8")
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath])}
    with Terminal(tmp_path, environment, columns=columns) as terminal:
        code, output = terminal.enter("prowess list")

    lines = plain(output).splitlines()
    assert 0 == code
    assert shows_hints == ("closed-world" in lines[1])
    assert max(map(len, lines)) <= columns
    assert lines[1].startswith("shop.find  Find")
    assert lines[1].endswith("skills/shop.py:4")


def test_a_list_that_is_known_needs_no_library(tmp_path: Path) -> None:
    """While the manifest holds, `prowess list` imports neither click nor asyncio, and prints the same."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/shop.py").write_text(SKILL, encoding="utf-8")
    (tmp_path / "prowess.toml").write_text('cache_dir = "cache"\n', encoding="utf-8")
    code = (
        "import sys; from prowess_host.cli.main import main\n"
        "try: main()\n"
        "finally: print(*sorted({'click', 'asyncio', 'pydantic'} & set(sys.modules)), file=sys.stderr)"
    )

    def listed(*more: str) -> tuple[str, str]:
        command = [sys.executable, "-c", code, "list", *more]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout, done.stderr.strip()

    first = listed("--set", "timeout=5")
    assert "click" in first[1]
    again = listed("--set", "timeout=5")
    assert (first[0], "") == again
    by_library = listed("--set=timeout=5")
    assert (first[0], True) == (by_library[0], "click" in by_library[1])
    (tmp_path / "skills/shop.py").write_text(SKILL.replace("def find", "def seek"), encoding="utf-8")
    changed = listed()
    assert "shop.seek" in changed[0]
    assert ("shop.seek" in listed()[0], "") == (True, listed()[1])


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    """Whichever way the list was made."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/shop.py").write_text(SKILL, encoding="utf-8")
    command = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", "list"]
    for _ in range(2):
        reading, writing = os.pipe()
        os.close(reading)
        with subprocess.Popen(command, cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE) as process:
            os.close(writing)
            assert b"" == process.communicate()[1]
        assert 141 == process.returncode
