"""`prowess doctor`, as a person types it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from prowess.errors import install_command
from prowess_host.cli.commands import run

SKILL = '''\
from typing import Annotated

from prowess import skill_command


@skill_command(inject_settings=["api.key"])
def ask(question: str, api_key: str = "") -> str:
    """Ask."""
    return question
'''


@pytest.fixture
def forked_workers() -> None:
    """Workers are started here: whether they can be is what it looks at."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    root = home / "project"
    (root / "skills").mkdir(parents=True)
    (root / "skills/talk.py").write_text(SKILL, encoding="utf-8")
    (root / "prowess.toml").write_text("timeout = 60\n[api]\nurl = 'hidden-url'\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in "XDG_STATE_HOME XDG_CONFIG_HOME CODEX_HOME CLAUDE_CONFIG_DIR COPILOT_HOME GEMINI_CLI_HOME".split():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(root)
    return root


def findings(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[dict[str, Any]]:
    assert code == run(["doctor", "--json", *words])
    return json.loads(capsys.readouterr().out)["findings"]


def test_whole_chain_is_looked_at(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python to a client that is started. Secrets are named and never shown."""
    monkeypatch.setenv("PROWESS_API__KEY", "s3cret")
    monkeypatch.setenv("PROWESS_HOST_DRAIN", "3")
    (project / ".env").write_text("PROWESS_THREADS=9\n")
    assert 0 == run(["connect", "gemini", "cursor", "--no-try"])
    capsys.readouterr()

    assert 0 == run(["doctor", "--set", "kept_results=0"])
    out, err = capsys.readouterr()

    assert "" == err
    told = [line.strip() for line in out.splitlines()]
    areas = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert ["python", "settings", "limits", "project", "manifest", "skills", "clients"] == areas[:-1]
    assert f"✓ Python {sys.version.split()[0]}, {sys.executable}" in told
    assert "✓ timeout = 60.0 (prowess.toml:1)" in told
    assert "✓ host.drain = 3.0 (environment variable PROWESS_HOST_DRAIN)" in told
    assert "✓ threads = 9 (.env: PROWESS_THREADS)" in told
    assert "✓ kept_results = 0 (--set)" in told
    assert "✓ api.key is set (environment variable PROWESS_API__KEY)" in told
    assert "✓ api.url is set (prowess.toml:3)" in told
    assert "✓ 1 command in 1 skill" in told
    assert any(line.startswith("✓ Gemini CLI (.gemini/settings.json): 1 tool after") for line in told)
    assert any("Cursor is started from the desktop and does not see PROWESS_API__KEY" in line for line in told)
    assert "s3cret" not in out
    assert "hidden-url" not in out


def test_manifest_is_told_apart(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before and after the host has described the skills."""
    levels = [
        next(each["level"] for each in findings(capsys, "--no-try") if each["area"] == "manifest") for _ in range(2)
    ]

    assert ["note", "ok"] == levels


def test_failures_and_warnings_of_skills_are_told_with_their_place(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "skills/broken.py").write_text("from prowess import skill_command\nimport missing_module\n")

    [bad] = [each for each in findings(capsys, "--no-try", code=1) if each["level"] == "error"]

    assert "skills" == bad["area"]
    assert "missing_module" in bad["message"]
    assert "broken.py:2" in bad["message"]


@pytest.mark.parametrize(
    "toml, area, message",
    [
        ("timeout = 'soon'", "settings", "timeout must be a number"),
        ("python = '/gone/python'", "python", "/gone/python: No such file or directory"),
        ("python = '/bin/false'", "python", "the workers' Python /bin/false has no Prowess: no reason given"),
        ("skills = ['elsewhere']", "project", "the folder elsewhere, which the setting skills names, does not exist"),
    ],
)
def test_wrong_setting_is_an_early_finding(
    project: Path, toml: str, area: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "prowess.toml").write_text(toml + "\n")

    run(["doctor", "--json", "--no-try"])

    told = json.loads(capsys.readouterr().out)["findings"]
    assert any(each["area"] == area and message in each["message"] and each["remedy"] for each in told), told


def test_interpreter_of_the_workers_is_asked(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "prowess.toml").write_text(f"python = '{sys.executable}'\n")

    told = [each["message"] for each in findings(capsys, "--no-try")]

    assert any(each.startswith("workers: Python 3.") for each in told)


def test_folder_that_is_no_project_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    (tmp_path / "empty").mkdir()

    [bad] = [
        each for each in findings(capsys, "--project", str(tmp_path / "empty"), code=1) if each["level"] == "error"
    ]

    assert "is not a project" in bad["message"]


def test_broken_connection_is_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".mcp.json").write_text("{")
    run(["connect", "zed", "--no-try"])
    file = project / ".zed/settings.json"
    file.write_text(file.read_text().replace(sys.executable, "/gone/python"))
    capsys.readouterr()

    bad = [each["message"] for each in findings(capsys, code=1) if each["level"] == "error"]

    assert 2 == len(bad)
    assert bad[0].startswith("Claude Code (.mcp.json): ")
    assert "Zed (.zed/settings.json): the host cannot be started: /gone/python" in bad[1]


def test_matrix_shows_the_rule_that_is_broken_in_each_cell(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "x" * 55
    (project / "skills/long.py").write_text(
        f"from prowess import skill_command\n\n@skill_command\ndef {name}() -> None:\n    'Do.'\n"
    )

    assert 1 == run(["doctor", "--matrix", "--server", "a-server"])
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].split() == [
        "COMMAND",
        "claude-code",
        "claude-desktop",
        "cursor",
        "gemini",
        "copilot",
        "goose",
        "opencode",
    ]
    assert lines[1].split() == [f"long.{name}", "1!", "1!", "1!", "1", "1!", "1!", "1!"]
    assert "1 name-length  " in out
    assert "1 other command: nothing broken." in out
    assert "Nothing is broken in vscode, codex, zed, windsurf." in out

    assert 1 == run(["doctor", "--matrix", "--server", "a-server", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert ["name-length"] == [each["rule"] for each in told["broken"][f"long.{name}"]["cursor"]]
    assert [f"long.{name}", "talk.ask"] == told["commands"]


def test_matrix_without_a_fault_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run(["doctor", "--matrix"])

    assert capsys.readouterr().out.startswith("1 command: no rule of claude-code, claude-desktop, cursor")


def test_context_says_what_each_command_costs_and_what_to_shorten(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "many words of little use " * 60
    choices = ", ".join(f'"choice-{number}"' for number in range(150))
    (project / "skills/long.py").write_text(
        "from typing import Annotated, Literal\nfrom prowess import skill_command\n\n\n"
        f"@skill_command\ndef run(kind: Literal[{choices}], a: Annotated[str, '{words}'] = '') -> None:\n    '{words}'\n"
    )

    assert 0 == run(["doctor", "--context"])
    lines = capsys.readouterr().out.splitlines()
    assert ["COMMAND", "TOKENS", "DESCRIPTION", "ARGUMENTS"] == lines[0].split()
    assert ["long.run", "talk.ask"] == [line.split()[0] for line in lines[1:3]]
    advice = [line for line in lines if line.startswith("  long.run: ")]
    assert {"the type of kind", "the description (", "the description of a"} == {
        part for part in ("the type of kind", "the description (", "the description of a") if part in "".join(advice)
    }
    assert not any("talk.ask:" in line for line in lines)

    assert 0 == run(["doctor", "--context", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["tokens"] == sum(each["total"] for each in told["commands"])
    first = told["commands"][0]
    assert first["description"] + first["arguments"] <= first["total"] + 2


def test_tracing_that_cannot_work_is_told(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command that installs what lacks, for the Python of the workers."""
    with (project / "prowess.toml").open("a") as file:
        file.write("[otel]\non = true\n")
    assert not any("otel.on is set" in each["message"] for each in findings(capsys))
    lacking = project / "opentelemetry"
    lacking.mkdir()
    (lacking / "__init__.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(project))

    (found,) = [each for each in findings(capsys) if "otel.on is set" in each["message"]]

    assert "warning" == found["level"]
    assert install_command("prowess-core[otel]") == found["remedy"]
