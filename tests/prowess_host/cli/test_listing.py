"""`prowess list` on terminals of different widths."""

from __future__ import annotations

import os
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
