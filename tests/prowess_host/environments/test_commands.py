"""`prowess sync`, `lock` and `clean`, and what `list` and `doctor` say of environments."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from piped import hosted, make_project, write_skill
from wheelhouse import small

from prowess_host.cli.commands import run
from prowess_host.clients.machine import Machine
from prowess_host.doctor.checks import CheckedProject, examine
from prowess_host.doctor.findings import Finding
from prowess_host.environments.store import EnvironmentStore, InUse

pytest.importorskip("uv")

TINY = "import tinypackage\n@skill_command\ndef version() -> str:\n    return tinypackage.version\n"


def block(*dependencies: str) -> str:
    return f"# /// script\n# dependencies = {json.dumps(dependencies)}\n# ///\n"


@pytest.fixture
def project(tmp_path: Path, wheels: Path) -> Path:
    """A project whose skill takes any version of a package."""
    (tmp_path / "links").mkdir()  # for a version that comes later
    settings = f'[environments]\nindex = ""\noffline = true\nfind_links = [{json.dumps(str(wheels))}, "links"]\n'
    return make_project(tmp_path, settings, tiny=f"{block('tinypackage')}{TINY}")


def said(capsys: pytest.CaptureFixture[str], project: Path, *command: str) -> tuple[int, str]:
    code = run([*command, "--project", str(project)])
    told = capsys.readouterr()
    return code, told.out + told.err


def test_sync_makes_what_is_missing(project: Path, capsys: pytest.CaptureFixture[str]):
    code, told = said(capsys, project, "sync")
    assert (0, True) == (code, "tiny: made, Python" in told)
    code, told = said(capsys, project, "sync", "tiny")
    assert (0, True) == (code, "tiny: is there, Python" in told)
    code, told = said(capsys, project, "sync", "--rebuild")
    assert (0, True) == (code, "tiny: made, Python" in told)
    code, told = said(capsys, project, "sync", "tinny")
    assert (2, True) == (code, "there is no skill 'tinny' with an environment of its own" in told)
    write_skill(project, "bad.py", f"{block('nowhere==1')}{TINY}")
    code, told = said(capsys, project, "sync")
    assert (1, True, True) == (code, "bad: uv says:" in told, "tiny: is there" in told)


@pytest.mark.parametrize("command", ["sync", "lock"])
def test_a_project_without_environments_needs_nothing(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert (0, "No skill has an environment of its own.\n") == said(capsys, make_project(tmp_path, t=""), command)


async def test_a_lock_is_obeyed_until_the_needs_change(project: Path, capsys: pytest.CaptureFixture[str]):
    """A newer version that comes later is not taken. A lock of other needs is a failure that names the remedy."""
    code, told = await asyncio.to_thread(said, capsys, project, "lock")
    assert (0, True) == (code, "skills/tiny.py.lock written." in told)
    text = (project / "skills/tiny.py.lock").read_text()
    assert "tinypackage==2.0" in text
    assert "prowess-core" not in text
    small(project / "links", "tinypackage", "3.0")
    code, told = await asyncio.to_thread(said, capsys, project, "sync")
    assert 0 == code, told
    async with hosted(project, forked=True) as host:
        assert "2.0" == await host.text("tiny_version")
    write_skill(project, "tiny.py", f"{block('tinypackage>2')}{TINY}")
    code, told = await asyncio.to_thread(said, capsys, project, "sync")
    assert (1, True) == (code, "run prowess lock" in told)
    await asyncio.to_thread(said, capsys, project, "lock", "tiny")
    code, told = await asyncio.to_thread(said, capsys, project, "sync")
    assert 0 == code, told


async def test_clean_deletes_what_nobody_needs_or_uses(project: Path, capsys: pytest.CaptureFixture[str]):

    await asyncio.to_thread(said, capsys, project, "sync")
    write_skill(project, "tiny.py", f"{block('tinypackage==2.0')}{TINY}")
    store = EnvironmentStore(project / "cache")
    async with hosted(project, forked=True) as host:
        assert "2.0" == await host.text("tiny_version")
        assert 2 == len(store.known())
        code, told = await asyncio.to_thread(said, capsys, project, "clean")
        assert (0, True) == (code, "1 environments deleted" in told)
        (left,) = store.known()
        with pytest.raises(InUse):
            store.remove(left.key)
        code, told = await asyncio.to_thread(said, capsys, project, "clean", "--all")
        assert "0 environments deleted" in told
    (store.folder / f"{left.key}.01234567").mkdir()
    code, told = await asyncio.to_thread(said, capsys, project, "clean", "--all", "--dry-run")
    assert ("1 environments would be deleted" in told, 1) == (True, len(store.known()))
    code, told = await asyncio.to_thread(said, capsys, project, "clean", "--all")
    assert "1 environments deleted, and 1 that were not finished" in told
    assert [] == [each for each in store.folder.iterdir() if each.is_dir()]


def test_a_call_makes_no_other_environment(project: Path, capsys: pytest.CaptureFixture[str]):
    write_skill(project, "other.py", f"{block('tinypackage==2.0')}{TINY}")
    code, told = said(capsys, project, "call", "tiny.version")
    assert (0, True) == (code, "2.0" in told)
    assert 1 == len(EnvironmentStore(project / "cache").known())


def found(project: Path) -> list[Finding]:
    """What the doctor says of environments, besides which uv there is."""

    async def run_all() -> list[Finding]:
        patient = CheckedProject(project, Machine("linux", project, {}), {}, live=False)
        return [each async for each in examine(patient) if each.area == "environments"]

    return [each for each in asyncio.run(run_all()) if not each.message.startswith("uv: ")]


def test_list_and_doctor_show_environments(project: Path, capsys: pytest.CaptureFixture[str]):
    """Before they are made, and afterwards: their size and age."""
    (finding,) = found(project)
    assert ("note", "prowess sync") == (finding.level, finding.remedy)
    code, told = said(capsys, project, "list")
    assert (1, True) == (code, "its environment does not exist yet: run prowess sync" in told)
    code, told = said(capsys, project, "call", "tiny.version")
    assert (0, True) == (code, "2.0" in told)
    (finding,) = found(project)
    assert "environment of tiny: Python" in finding.message
    code, told = said(capsys, project, "list")
    assert (0, True) == (code, "tiny.version" in told)
    assert "environment of tiny: tinypackage, Python" in told
    assert "MB, made just now" in told
