"""`prowess show`, run as a person runs it."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from on_a_terminal import on_a_terminal
from pydantic import AnyUrl, TypeAdapter

from prowess_host.cli.commands import run
from prowess_host.cli.parameters import example_of

SKILL = '''
from typing import Annotated, Literal
from pydantic import Field
from prowess import ConfigPaths, skill_command

@skill_command(title="Search", read_only=True, idempotent=True, retry_on=OSError, timeout=5, concurrency=2, aliases=["grep"])
def search(
    paths: ConfigPaths, pattern: str, case: Literal["smart", "exact"] = "smart", limit: int | None = None,
    globs: Annotated[list[str], Field(examples=[["*.py"]])] = [],
) -> list[str]:
    """Search the text of files.

    Leaves out binary files.
    And more.

    - one
    - two

    Args:
        pattern: What to look for: a text, or a regular expression, or a long explanation that takes more than one line.
        limit: How many to give.
    """
    return []

@skill_command(cache_ttl=60)
def bare() -> str:
    return ""
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "text.py").write_text(SKILL, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_command_as_a_person_reads_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it does, its parameters with those first that must be given, how it is run, and a line that calls it."""
    assert 0 == run(["show", "grep"])
    told = capsys.readouterr().out
    assert told.startswith(
        "text.search  Search\n\n  Search the text of files.\n\n  Leaves out binary files. And more.\n\n  - one\n  - two\n"
    )
    lines = told.splitlines()
    assert ["PARAMETER", "pattern", "case", "limit", "globs"] == [
        line.split()[0] for line in lines[lines.index("") :] if line[:1].isalpha()
    ][:5]
    assert "case       smart | exact   smart" in told
    assert "limit      integer                   How many to give." in told
    assert "Hints     read-only, idempotent" in told
    assert "Policies  timeout 5 s, up to 3 attempts on OSError, 2 at once" in told
    assert "Injected  paths" in told
    assert "Source    skills/text.py:6" in told
    assert told.endswith("Example\n  prowess call text.search pattern=text\n")


@pytest.mark.parametrize(
    "kind", [date, datetime, time, timedelta, UUID, AnyUrl, IPv4Address, IPv6Address, int, bool, str]
)
def test_example_fits_the_type(kind: Any) -> None:
    """A person can type the example as it stands."""
    adapter = TypeAdapter(kind)
    schema = adapter.json_schema()

    assert adapter.validate_strings(example_of(schema, schema))


def test_command_with_little_to_say(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Says so."""
    assert 0 == run(["show", "text.bare"])
    told = capsys.readouterr().out
    assert "No parameters." in told
    assert "none declared: clients treat the tool as destructive" in told
    assert "cached for 60 s" in told


def test_schemas_in_profiles(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of them, several, or all of them as JSON."""
    assert 0 == run(["show", "text.search", "--profile", "full"])
    full = json.loads(capsys.readouterr().out)
    assert {"type": "null"} in full["input_schema"]["properties"]["limit"]["anyOf"]
    assert 0 == run(["show", "text.search", "--profile", "all"])
    assert "portable\n{" in capsys.readouterr().out
    assert 0 == run(["show", "text.search", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert full == told["profiles"]["full"]
    assert "anyOf" not in told["profiles"]["portable"]["input_schema"]["properties"]["limit"]
    assert 2 == run(["show", "text.search", "--profile", "nonsense"])


def test_narrow_terminal(project: Path) -> None:
    """Descriptions go on in further lines; nothing is wider than the terminal; colours can be turned off."""
    with on_a_terminal("show", "text.search", cwd=project, columns=80) as terminal:
        assert 0 == terminal.finish()
    assert "\x1b[1mtext.search\x1b[0m" in terminal.raw
    assert 80 >= max(map(len, terminal.seen.splitlines()))
    words = " ".join(terminal.seen.split())
    assert "or a long explanation that takes more than one line." in words
    with on_a_terminal("show", "text.search", "--profile", "full", cwd=project, NO_COLOR="1") as terminal:
        assert 0 == terminal.finish()
    assert "\x1b" not in terminal.raw
    with on_a_terminal("show", "text.search", "--profile", "full", cwd=project) as terminal:
        assert 0 == terminal.finish()
    assert "\x1b" in terminal.raw
    assert "input_schema" in terminal.seen
