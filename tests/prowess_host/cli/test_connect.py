"""`prowess connect`, `disconnect` and `status`, as a person types them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from on_a_terminal import on_a_terminal

from prowess_host.cli.commands import run

SKILL = '''\
from prowess import skill_command


@skill_command(inject_settings=["env:MY_TOKEN:key"])
def ask(question: str, key: str = "") -> str:
    """Ask."""
    return question
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, in a home of its own."""
    home = tmp_path / "home"
    root = home / "project"
    (root / "skills").mkdir(parents=True)
    (root / "skills/talk.py").write_text(SKILL, encoding="utf-8")
    for name, value in {"HOME": home, "XDG_CACHE_HOME": tmp_path / "cache", "MY_TOKEN": "s3cret"}.items():
        monkeypatch.setenv(name, str(value))
    for name in "XDG_STATE_HOME XDG_CONFIG_HOME CODEX_HOME CLAUDE_CONFIG_DIR COPILOT_HOME GEMINI_CLI_HOME".split():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(root)
    return root


def files_in(folder: Path) -> set[str]:
    """Without caches and what `connect` remembers."""
    files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {str(file) for file in files if file.parts[0] not in (".local", ".cache")}


def test_project_is_connected_tried_and_disconnected(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where it is the second time: nothing to do; secrets are passed on by name."""
    before = files_in(project.parent)

    assert 0 == run(["connect", "codex", "claude-code"])
    out, err = capsys.readouterr()
    assert "" == err
    assert "Codex  .codex/config.toml\n" in out
    assert '  +env_vars = ["MY_TOKEN"]\n' in out
    assert 2 == len(re.findall(r"^  works: 1 tool after [\d.]+ s, about \d+ tokens$", out, re.MULTILINE))
    assert "connected as prowess; next: start claude in the project" in out
    assert "s3cret" not in out + (project / ".mcp.json").read_text() + (project / ".codex/config.toml").read_text()

    assert 0 == run(["connect", "codex"])
    assert "nothing to change: the file already has this entry" in capsys.readouterr().out

    assert 0 == run(["status"])
    out = capsys.readouterr().out
    assert "Codex as prowess  project: .codex/config.toml\n  works: 1 tool" in out
    assert "Claude Code as prowess  project: .mcp.json\n  works: 1 tool" in out

    assert 0 == run(["disconnect", "--all"])
    out = capsys.readouterr().out
    assert 2 == out.count("disconnected: prowess; the file was created for it, and is deleted")
    assert before == files_in(project.parent)
    assert 0 == run(["disconnect", "codex"])
    assert f"nothing to do: no file of Codex contains {project}" in capsys.readouterr().out
    assert 0 == run(["status"])
    assert "is connected to no client. Connect it: prowess connect " in capsys.readouterr().out


def test_dry_run_shows_the_difference_and_writes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_in(project.parent)

    assert 0 == run(["connect", "cursor", "goose", "--dry-run"])

    out = capsys.readouterr().out
    assert "+++ " in out
    assert "works" not in out
    assert "~/.config/goose/config.yaml" in out
    assert before == files_in(project.parent)
    run(["connect", "cursor", "--no-try"])
    assert 0 == run(["disconnect", "cursor", "--dry-run"])
    assert (project / ".cursor/mcp.json").exists()


def test_host_that_does_not_start_is_not_connected(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the host said is said now, and nothing is written."""
    (project / "prowess.toml").write_text('python = "/gone/python"\n')

    assert 1 == run(["connect", "zed"])

    out, err = capsys.readouterr()
    assert "python" in out + err
    assert not (project / ".zed").exists()


def test_connection_that_broke_is_found_by_status(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["connect", "zed", "--no-try"])
    file = project / ".zed/settings.json"
    file.write_text(re.sub(r'"command": "[^"]+"', '"command": "/gone/python"', file.read_text()))
    file.write_text(file.read_text().replace('"source"', '"disabled": true,\n"source"'))
    (project / ".junie/mcp").mkdir(parents=True)
    (project / ".junie/mcp/mcp.json").write_text("{")
    capsys.readouterr()

    assert 1 == run(["status"])
    out = capsys.readouterr().out
    assert (
        "  switched off in the client: enable the server there\n  does not work\n  error the host cannot be started: /gone/python"
        in out
    )
    assert "  cannot be read " in out
    assert 1 == run(["status", "--json"])
    rows = {row["client"]: row for row in json.loads(capsys.readouterr().out)["connections"]}
    assert (False, None) == (rows["zed"]["trial"]["works"], rows["zed"]["problem"])
    assert ":1: not valid JSON" in rows["junie"]["problem"]
    assert 1 == run(["status", "--no-try"])
    assert 0 == run(["connect", "zed"])
    assert 1 == run(["disconnect", "--all"])
    assert not file.exists()


def test_broken_file_of_one_client_does_not_keep_the_others_back(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".mcp.json").write_text('{\n"a" 1}')

    assert 1 == run(["connect", "claude-code", "cursor", "--no-try"])

    assert f"{project / '.mcp.json'}:2: not valid JSON: a colon was expected" in capsys.readouterr().err
    assert (project / ".cursor/mcp.json").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["connect"],
            "name a client, for example: prowess connect claude-code. No known client is found here. There are:\n  claude-code, ",
        ),
        (["disconnect"], "name a client, for example: prowess disconnect claude-code. No known"),
        (["connect", "cursr"], "unknown client 'cursr'; did you mean \"cursor\"?"),
        (["connect", "windsurf", "--scope", "project"], "Windsurf has no settings of a project: use --scope user"),
        (["connect", "cursor", "--name", "a_b"], "--name 'a_b' must be letters, digits and -"),
        (
            ["connect", "zed", "--env", "A"],
            "Zed cannot refer to variables of its environment: write --env A=VALUE, or use .env",
        ),
        (["connect", "zed", "--env", "1X"], "--env 1X: '1X' is not the name of an environment variable; write letters"),
        (["connect", "zed", "--env", "A B=s3cret"], "--env A B: 'A B' is not the name of"),
        (["connect", "codex", "--env", "=x"], "'' is not the name of an environment variable"),
        (["connect", "zed", "--project", "/nowhere"], "/nowhere does not exist"),
        (["connect", "zed", "--project", "/usr/lib"], "/usr/lib is not a project"),
        (["connect", "zed", "--scope", "wrong"], "Invalid value for '--scope'"),
    ],
)
def test_mistake_is_told_in_words(
    project: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == run([*words, *(["--no-try"] if words[0] == "connect" else [])])

    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_variables_are_written_by_name_or_with_a_value(project: Path) -> None:
    assert 0 == run(["connect", "gemini", "zed", "--no-try", "--env", "A=1"])
    assert 0 == run(["connect", "gemini", "--no-try", "--env", "A=1", "--env", "B"])

    servers = json.loads((project / ".gemini/settings.json").read_text())["mcpServers"]
    assert {"A": "1", "B": "${B}"} == servers["prowess"]["env"]
    assert '"A": "1"' in (project / ".zed/settings.json").read_text()


def test_without_a_name_the_commands_for_the_clients_found_here_are_shown(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pipe, where nobody can choose."""
    (project.parent / ".junie").mkdir()
    (project.parent / ".config/zed").mkdir(parents=True)
    for verb in ("connect", "disconnect"):
        assert 2 == run([verb])
        told = capsys.readouterr().err
        assert (
            f"prowess: name a client. Found here:\n  prowess {verb} zed     Zed\n  prowess {verb} junie   JetBrains (Junie)\n"
            "Not found here: claude-code, "
        ) in told
    assert {"skills/talk.py"} == files_in(project)


def test_a_person_chooses_among_the_clients_found_here(project: Path) -> None:
    """By number or name; a name that is wrong is asked for again; the list names only what is found."""
    (project.parent / ".junie").mkdir()
    (project.parent / ".config/zed").mkdir(parents=True)
    with on_a_terminal("connect", "--no-try", cwd=project) as terminal:
        terminal.wait_for("Found here:\n   1  zed              Zed\n   2  junie ")
        terminal.wait_for("numbers or names, or all: ")
        for wrong, told in (("3", "type a number from 1 to 2"), ("zet", 'did you mean "zed"?')):
            terminal.type(f"{wrong}\n")
            terminal.wait_for(told)
        terminal.type("2, cursor junie\n")
        assert 0 == terminal.finish(), terminal.seen
    assert {".junie/mcp/mcp.json", ".cursor/mcp.json", "skills/talk.py"} == files_in(project)
    with on_a_terminal("connect", "--dry-run", cwd=project) as terminal:
        terminal.wait_for("or all: ")
        terminal.type("all\n")
        assert 0 == terminal.finish()
    assert "Zed  .zed/settings.json" in terminal.seen
    assert "JetBrains (Junie)  .junie/mcp/mcp.json" in terminal.seen


def test_all_means_the_clients_that_are_found(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project.parent / ".junie").mkdir()
    (project.parent / ".config/zed").mkdir(parents=True)

    assert 0 == run(["connect", "--all", "--no-try"])

    assert {".junie/mcp/mcp.json", ".zed/settings.json", "skills/talk.py"} == files_in(project)


def test_without_a_name_disconnect_shows_where_the_project_is_connected(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether that client is found on this machine or not; and a name that no server has is named."""
    (project.parent / ".config/zed").mkdir(parents=True)
    run(["connect", "claude-code", "--no-try"])
    capsys.readouterr()

    assert 2 == run(["disconnect"])
    assert (
        capsys.readouterr().err
        == "prowess: name a client. Connected:\n  prowess disconnect claude-code   Claude Code\n"
    )
    assert 0 == run(["disconnect", "claude-code", "--name", "other"])
    assert f"no file of Claude Code contains {project} as 'other'" in capsys.readouterr().out


def test_only_one_server_is_disconnected_by_its_name(project: Path) -> None:
    run(["connect", "cursor", "--no-try"])
    run(["connect", "cursor", "--no-try", "--name", "second"])
    run(["connect", "cursor", "--no-try", "--scope", "user"])

    assert 0 == run(["disconnect", "cursor", "--name", "prowess", "--scope", "project"])

    assert ["second"] == list(json.loads((project / ".cursor/mcp.json").read_text())["mcpServers"])
    assert ["prowess"] == list(json.loads((project.parent / ".cursor/mcp.json").read_text())["mcpServers"])
