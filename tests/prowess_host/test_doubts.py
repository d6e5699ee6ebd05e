"""Starts and saves that are made to go wrong: what a host knows of its skills is right in the end, and stays so."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from piped import hosted, make_project, write_skill
from test_start import imports, listed, noting

ALL = ["a_say", "b_say", "c_say"]


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


@pytest.mark.skipif(sys.platform == "darwin", reason="its file system has no such names")
@pytest.mark.parametrize("text", ["x = 1", "import prowess"])
async def test_file_whose_name_is_no_text_hides_no_skill(project: Path, text: str):
    """Whether or not it would be a skill itself."""
    (project / "skills" / os.fsdecode(b"d\xff.py")).write_text(text)
    assert ALL == [name for name in await listed(project) if name != "prowess_diagnostics"]
    imports(project)
    async with hosted(project) as host:
        assert set(ALL) <= set(await host.tools())
        if "prowess" in text:
            assert r"d\udcff.py" in await host.text("prowess_diagnostics")
    assert [] == imports(project)
