"""Starts and saves that are made to go wrong: what a host knows of its skills is right in the end, and stays so."""

from __future__ import annotations

from pathlib import Path

import pytest
from piped import hosted, make_project, write_skill
from test_start import listed, noting


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_project(tmp_path)
    for name in ("a", "b", "c"):
        write_skill(tmp_path, f"{name}.py", noting(tmp_path, name))
    return tmp_path


# Names


async def test_alias_that_is_the_id_of_a_skill_not_yet_imported_takes_no_call_away(project: Path):
    """The id wins whichever of the two skills a worker has imported first."""
    other = "\n@skill_command(aliases=['b.say'])\ndef other(text: str = 'wrong') -> str:\n    return text\n"
    write_skill(project, "a.py", noting(project, "a") + other)
    await listed(project)
    async with hosted(project) as host:
        assert "a" == await host.text("a_say")
        assert "b" == await host.text("b_say")
