from __future__ import annotations

from pathlib import Path

import pytest

from prowess_host.clients.machine import Machine
from prowess_host.doctor import checks
from prowess_host.doctor.checks import CheckedProject, examine
from prowess_host.doctor.findings import Finding


async def found(root: Path, **environ: str) -> list[Finding]:
    machine = Machine("linux", root, {"XDG_CACHE_HOME": str(root / "cache"), **environ})
    return [finding async for finding in examine(CheckedProject(root, machine, {}, live=False))]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "skills").mkdir()
    return tmp_path


async def test_empty_project_is_told_what_to_do_next(root: Path) -> None:
    told = {finding.message: finding for finding in await found(root)}

    assert "@skill_command" in told["no commands"].remedy
    assert "prowess connect CLIENT" == told["connected to no client"].remedy


async def test_cache_folder_that_is_a_file_is_a_warning(root: Path) -> None:
    (root / "cache").touch()
    told = [finding for finding in await found(root) if finding.area == "manifest"]

    assert ["warning", "note"] == [finding.level for finding in told]
    assert f"the cache folder {root / 'cache/prowess'} cannot be written" in told[0].message


async def test_variable_of_another_program_is_a_warning(root: Path) -> None:
    warnings = [finding for finding in await found(root, PROWESS_HOME="/x") if finding.area == "settings"]

    assert ["ok", "warning"] == [finding.level for finding in warnings]
    assert "PROWESS_HOME" in warnings[1].message


async def test_packages_of_different_versions_are_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a missing library."""
    versions = {"prowess-core": "0.1.0", "prowess-host": "0.2.0", "pydantic": "2.12"}
    monkeypatch.setattr(checks, "_version", versions.get)
    monkeypatch.setattr("sys.executable", "/home/me/.cache/uv/archive-v0/x/bin/python")

    told = [finding for finding in await found(root) if finding.area == "python"]

    assert ["ok", "warning", "error", "error"] == [finding.level for finding in told]
    assert "uv tool install" in told[1].remedy
    assert "differ in their versions: prowess-core 0.1.0, prowess-host 0.2.0" in told[2].message
    assert "pip install prowess-core==0.2.0 prowess-host==0.2.0" == told[2].remedy
    assert "pluggy missing" in told[3].message


async def test_skills_that_cannot_be_loaded_at_all_are_an_error(root: Path) -> None:
    (root / "skills/a.py").write_text("from prowess import skill_command\n")
    (root / "prowess.toml").write_text("python = '/bin/false'\n")

    told = [finding for finding in await found(root) if finding.level == "error"]

    assert {"python", "skills"} == {finding.area for finding in told}


async def test_setting_that_names_nothing_is_a_warning(root: Path) -> None:
    """It would hide or limit nothing."""
    (root / "skills/notes.py").write_text("from prowess import skill_command\n@skill_command\ndef read() -> int: ...\n")
    (root / "prowess.toml").write_text(
        "env_file = 'gone.env'\nhide = ['*.raed', '!notes.*']\nwire_names = {'note.read' = 'x'}\nrun_on = {'*' = ''}\n"
        "[sandbox]\nNotes = false\nnotse = {}\n"
    )

    told = [finding.message for finding in await found(root) if finding.level == "warning" and finding.area != "limits"]

    assert [
        "the file gone.env, which the setting env_file names, does not exist",
        "the setting hide names '*.raed', and there is no such command",
        "the setting wire_names names 'note.read', and there is no such command; did you mean \"notes.read\"?",
        '[sandbox.notse] limits no skill: there is none of this name; did you mean "notes"?',
    ] == told
