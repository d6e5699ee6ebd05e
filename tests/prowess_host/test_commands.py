"""`prowess list` and `prowess call`, as a person at a shell uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SKILL = '''
from prowess import Image, SkillError, skill_command

@skill_command(read_only=True, open_world=False)
def add(a: int, b: int = 2) -> dict[str, int]:
    """Add two numbers."""
    print("noise")
    return {"sum": a + b}

@skill_command
def echo(text: str) -> str:
    """Say it again."""
    return text

@skill_command
def picture() -> Image:
    return Image(b"\\x89PNG\\r\\n\\x1a\\n")

@skill_command
def fail() -> str:
    raise SkillError("Not today.")
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "tools.py").write_text(SKILL, "utf-8")
    return tmp_path


def prowess(project: Path, *words: str, given: str = "") -> tuple[int, str, str]:
    command = [sys.executable, "-c", "from prowess_host.cli import main; main()", words[0], "--project", str(project)]
    done = subprocess.run([*command, *words[1:]], input=given, capture_output=True, text=True, check=False, timeout=50)
    return done.returncode, done.stdout, done.stderr


def test_list_shows_commands_and_then_failures(project: Path) -> None:
    """With hints and sources; what could not be loaded comes last, with its reason."""
    (project / "skills" / "broken.py").write_text("import prowess\n1/0\n", "utf-8")
    code, shown, _ = prowess(project, "list")
    lines = shown.splitlines()
    assert 0 == code
    assert ["COMMAND", "SUMMARY", "HINTS", "SOURCE"] == lines[0].split()
    assert ["tools.add", "Add two numbers.", "read-only, closed-world", "skills/tools.py:4"] == lines[1].split("  ")[
        :1
    ] + [part.strip() for part in lines[1].split("  ")[1:] if part.strip()]
    assert "ZeroDivisionError: division by zero" in lines[-1]


def test_list_as_json_has_the_contracts(project: Path) -> None:
    """For machines."""
    code, shown, _ = prowess(project, "list", "--json")
    told = json.loads(shown)
    assert 0 == code
    assert ["tools.add", "tools.echo", "tools.fail", "tools.picture"] == [each["id"] for each in told["commands"]]
    assert [] == told["failures"]


def test_list_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    """An empty table helps nobody."""
    code, shown, _ = prowess(tmp_path, "list")
    assert (0, "No commands. Put a file with a @skill_command into skills/.\n") == (code, shown)


@pytest.mark.parametrize("way", [(), ("--in-process",)])
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("tools.add", "a=1"), 0, ('{\n  "sum": 3\n}', "")),
        (("tools_add", "a=1", "b=5"), 0, ('{\n  "sum": 6\n}', "")),
        (("tools/echo", "text=12"), 0, ("12", "")),
        (("tools.picture",), 0, ("[image: image/png, 8 bytes]", "")),
        (("tools.fail",), 1, ("", "Not today.")),
        (("tools.add", "a=x"), 2, ("", 'a: expected an integer, got "x"')),
        (("tools.ad", "a=1"), 2, ("", 'did you mean "tools.add"')),
        (("tools.add", "a"), 2, ("", "'a' is not of the form key=value")),
        (("tools.add", "--json", "{"), 2, ("", "--json is no JSON")),
        (("tools.add", "--json", "[]"), 2, ("", "must be a JSON object")),
    ],
)
def test_call(words: tuple[str, ...], code: int, told: tuple[str, str], way: tuple[str, ...], project: Path) -> None:
    """The result for people on stdout, failures on stderr, and an exit code for scripts, in a worker or in this process."""
    done = prowess(project, "call", *way, *words)
    assert code == done[0], done
    assert told[0] in done[1]
    assert told[1] in done[2]


def test_call_as_json_gives_the_payload(project: Path) -> None:
    """Arguments as JSON, from the command line or the input, and the whole payload back."""
    _, one, _ = prowess(project, "call", "tools.add", "--json", '{"a": 1}')
    _, other, _ = prowess(project, "call", "tools.add", "-", "--json", given='{"a": 1}')
    assert {"sum": 3} == json.loads(one)["structuredContent"] == json.loads(other)["structuredContent"]


def test_project_that_cannot_be_loaded_is_told(project: Path) -> None:
    """In one line, and not as a traceback of ours."""
    code, _, told = prowess(project, "list", "--set", "python=/nowhere/python")
    assert 1 == code
    assert "the project cannot be loaded" in told
    assert "Traceback" not in told


def test_wrong_setting_is_wrong_use(project: Path) -> None:
    """With the exit code of it."""
    code, _, told = prowess(project, "list", "--set", "timeot=5")
    assert 2 == code
    assert 'did you mean "timeout"' in told
