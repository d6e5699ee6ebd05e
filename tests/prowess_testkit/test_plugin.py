"""The pytest plugin, as a user's pytest runs it: in a process of its own, with the plugins that are installed there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from prowess_testkit import WIRES, Client, Project

SKILL = """
from prowess import Context, skill_command

@skill_command
def double(number: int) -> int:
    return 2 * number

@skill_command
async def sure(ctx: Context) -> bool:
    return (await ctx.ask("sure", "Sure?", bool)).value
"""
BOTH = """
import pytest
from prowess_testkit import WIRES

SKILL = '''%s'''

@pytest.fixture
def skill(project):
    project.write("skills/maths.py", SKILL)

def test_sync(project, skill):
    assert 4 == project.call("maths.double", number=2).value

def test_sync_with_runtime(project, skill, runtime):
    assert 2 == len(runtime.catalog())
    assert 4 == project.call("maths.double", number=2).value

@pytest.mark.anyio
async def test_runtime(skill, runtime):
    assert 4 == (await runtime.call("maths.double", {"number": 2})).value

@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
async def test_client(skill, client, wire):
    client.person.replies(True)
    assert wire == client.version
    assert "true" == (await client.call("maths.sure")).text
""" % SKILL  # fmt: skip


def run_pytest(folder: Path, *options: str, code: int = 0, **files: str) -> str:
    """What a pytest prints that is run in a folder with these files, as a user runs it."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    without = [word for name in ("cacheprovider", "schemathesis") for word in ("-p", f"no:{name}")]
    command = [sys.executable, "-m", "pytest", "-q", *without, *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert code == done.returncode, done.stdout + done.stderr
    return done.stdout


def test_fixtures_work_in_sync_and_async_tests(tmp_path: Path):
    """Without any configuration. Where anyio would also run trio, those variants are left out."""
    shown = run_pytest(tmp_path, test_it=BOTH)

    assert "5 passed" in shown
    assert "trio" not in shown


def test_without_anyio_the_error_says_what_to_do(tmp_path: Path):
    """Sync tests go on."""
    text = "def test_client(client): ...\n\ndef test_runtime(runtime): ...\n\ndef test_project(project): ...\n"
    shown = run_pytest(tmp_path, "-p", "no:anyio", code=1, test_it=text)

    assert "1 passed, 2 errors" in shown
    assert (
        "the fixture 'client' needs anyio's pytest plugin, which is off: run pytest with -p anyio.pytest_plugin"
        in shown
    )


SNAPSHOT = f'''
def test_contracts(project, contract_snapshot):
    project.write("skills/maths.py", """{SKILL}""")
    contract_snapshot(project)
    contract_snapshot(project, profile="full")
    contract_snapshot(project, name="named", version="2026-07-28")
'''


def test_snapshots_are_written_by_a_flag_and_compared_without(tmp_path: Path):
    """A file for each test and profile. What differs is shown as a diff."""
    assert "there is no snapshot" in run_pytest(tmp_path, code=1, test_it=SNAPSHOT)
    run_pytest(tmp_path, "--update-contracts", test_it=SNAPSHOT)
    files = sorted(path.name for path in (tmp_path / "snapshots").iterdir())
    assert ["named.2026-07-28.json", "test_it.test_contracts.full.json", "test_it.test_contracts.json"] == files
    run_pytest(tmp_path, test_it=SNAPSHOT)

    shown = run_pytest(tmp_path, code=1, test_it=SNAPSHOT.replace("number: int", "number: int = 5"))

    assert "the contracts differ from the snapshot" in shown
    assert '+          "default": 5,' in shown or '+          "default": 5' in shown
    assert "--update-contracts" in shown


def test_plugin_is_light():
    """Every run of pytest imports it, also where nobody uses it: no Prowess, no event loop."""
    code = "import sys, pytest; before = set(sys.modules); import prowess_testkit.plugin; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ["prowess_testkit", "prowess_testkit.plugin"] == done.stdout.split()


@pytest.mark.parametrize("wire", WIRES)
async def test_client_of_this_very_run(client: Client, project: Project, wire: str):
    """The fixtures as they are loaded here; the project is read at the first call."""
    project.write("skills/maths.py", SKILL)
    project.configure({"profile": "full"})
    assert "6" == (await client.call("maths.double", number=3)).text
