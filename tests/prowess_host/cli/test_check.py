"""`prowess check`, run as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from prowess_host.cli.commands import run

SHOP = """
    from typing import Literal
    from prowess import skill_command

    @skill_command(read_only=True)
    def find(query: str, sort: Literal["name", "price"] = "name") -> list[str]:
        '''Find something.

        Args:
            query: What to look for.
            sort: The order.
        '''
        return [query]
"""
NARROWER = SHOP.replace('"name", "price"', '"name"')
WIDER = SHOP.replace('"name", "price"', '"name", "price", "age"')


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A project with a committed catalog, and the working directory in it."""
    (tmp_path / "prowess.toml").touch()
    write(tmp_path, SHOP)
    monkeypatch.chdir(tmp_path)
    assert 0 == run(["build"])
    capsys.readouterr()
    return tmp_path


def write(project: Path, source: str, name: str = "shop") -> None:
    file = project / "skills" / f"{name}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(dedent(source), "utf-8")


def test_nothing_changed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says so, and what the catalog costs."""
    assert 0 == run(["check"])
    assert (
        "No differences from schemas/catalog.json; 0 errors, 0 warnings; 1 command, about 81 tokens as portable.\n"
        == capsys.readouterr().out
    )


def test_breaking_change_fails_with_advice(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And says how to go on all the same."""
    write(project, NARROWER)

    assert 1 == run(["check"])
    told = capsys.readouterr().out
    assert (
        "shop.find\n"
        '  breaks  parameter sort: no longer "price"\n'
        "          → keep the old values, at least as other names for new ones\n" in told
    )
    assert "1 breaking and 0 compatible differences" in told
    assert "To accept these changes, run prowess build and commit schemas/catalog.json." in told


def test_compatible_change_passes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told all the same."""
    write(project, WIDER)

    assert 0 == run(["check"])
    assert '  ok      parameter sort: also "age"\n' in capsys.readouterr().out


def test_report_as_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything that the text tells, for programs."""
    write(project, NARROWER)
    assert 1 == run(["check", "--json", "--budget", "10"])
    told = json.loads(capsys.readouterr().out)

    assert [1, 1, 0, True] == [told["breaking"], told["errors"], told["warnings"], told["compared"]]
    assert ["/inputSchema/properties/sort"] == [item["where"] for item in told["differences"]]
    assert ["budget"] == [item["rule"] for item in told["findings"]]
    assert 10 == told["tokens"]["budget"]
    assert told["tokens"]["total"] == told["tokens"]["commands"]["shop.find"]


def test_what_hurts_clients_is_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning passes unless asked to be strict; what a client refuses is an error for who asked about that client."""
    write(project, "from prowess import skill_command\n@skill_command\ndef f(x: int | None): 'F.'", "other")
    run(["build"])

    assert [0, 1] == [run(["check"]), run(["check", "--strict"])]
    assert "warning the parameter x has no description" in capsys.readouterr().out
    full = ["check", "--set", "profile=full"]
    assert [0, 1] == [run(full), run([*full, "--client", "gemini", "--client", "cursor"])]
    assert "  error   gemini: a null branch is refused  /inputSchema/properties/x/anyOf/1" in capsys.readouterr().out
    long = ["check", "--server", "s" * 60]
    run(long)
    assert "  warning claude-code: 'mcp__" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["claude", "claude-code", "Claude-Code", "claude-desktop"])
def test_clients_have_the_names_of_connect(project: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also the other spellings that `connect` takes; one name is shown."""
    assert 1 == run(["check", "--server", "s" * 60, "--client", name])
    assert "  error   claude-code: 'mcp__" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name, reason",
    [
        ("cursr", "unknown client 'cursr'; did you mean \"cursor\"?"),
        ("cline", "prowess check has no rules for Cline (there are rules for: claude-code, codex, "),
    ],
)
def test_client_without_rules_is_refused(
    project: Path, name: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == run(["check", "--client", name])
    assert reason in capsys.readouterr().err


def test_clients_with_the_same_rule_share_a_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody wants to read it three times."""
    dotted = ["--set", "names=dotted"]
    run(["build", *dotted])

    assert 0 == run(["check", *dotted])
    assert (
        "  warning claude-code, codex, copilot, cursor: the name 'shop.find' may only have" in capsys.readouterr().out
    )


def test_budget_of_the_settings(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag wins over it."""
    (project / "prowess.toml").write_text("token_budget = 20")

    assert [1, 0] == [run(["check"]), run(["check", "--budget", "500"])]
    assert "the catalog\n  error   the catalog costs about" in capsys.readouterr().out


def test_nothing_to_compare_with(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What hurts clients is told all the same."""
    (project / "schemas/catalog.json").unlink()

    assert 2 == run(["check"])
    told = capsys.readouterr().out
    assert "There is no schemas/catalog.json to compare with. Run prowess build, and commit what it writes." in told
    assert "\n0 errors, 0 warnings; 1 command" in told


def test_broken_skill_fails(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its commands are gone, and the reason is told."""
    write(project, "from prowess import skill_command\n1 / 0")

    assert 1 == run(["check"])
    told = capsys.readouterr().out
    assert "breaks  the command is gone" in told
    assert "1 could not be loaded:" in told
    assert "; 1 could not be loaded; 0 errors, 0 warnings; " in told


def test_catalog_of_another_place(
    project: Path, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Say, one that was released."""
    released = tmp_path_factory.mktemp("released") / "catalog.json"
    (project / "schemas/catalog.json").rename(released)

    assert 0 == run(["check", "--catalog", str(released)])
    assert f"No differences from {released}" in capsys.readouterr().out
    released.write_text("[]")
    assert 2 == run(["check", "--catalog", str(released)])


def test_text_and_content_are_what_they_were(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The catalog keeps that a result is text, which clients are not shown as structured content."""
    source = "from prowess import Image, skill_command\n@skill_command\ndef a() -> str: 'A.'\n"
    write(project, f"{source}@skill_command\ndef b() -> tuple[str, Image]: 'B.'\n", "texts")
    assert [0, 0] == [run(["build"]), run(["check"])]
    assert "No differences" in capsys.readouterr().out


NOTES = """
    from typing import Literal
    from prowess import prompt, resource

    @resource("notes://{id}")
    def note(id: int) -> str:
        '''One note.'''
        return str(id)

    @prompt
    def review(code: str, language: Literal["python", "perl"] = "python") -> str:
        '''Review code.'''
        return code
"""


def test_resources_and_prompts_are_compared_as_well(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By what clients ask for them by; and rules about tools are for tools."""
    write(project, NOTES, "notes")
    assert 0 == run(["build"])
    assert 0 == run(["check", "--strict"])
    write(
        project,
        NOTES.replace("notes://{id}", "note://{id}").replace("-> str:\n        '''One", "-> dict:\n        '''One"),
        "notes",
    )
    capsys.readouterr()
    assert 1 == run(["check"])
    told = capsys.readouterr().out
    assert "the URI is 'note://{id}'; it was 'notes://{id}'" in told
    assert "the type is application/json; it was text/plain" in told
    write(project, NOTES.replace('@resource("notes://{id}")', "@prompt"), "notes")
    assert 1 == run(["check"])
    assert "it is a prompt now; it was a resource" in capsys.readouterr().out


def test_a_skill_file_that_breaks_the_format_is_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its line. What is only odd is a warning."""
    folder = project / "skills/field-notes"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: field-notes\ndescription: d\nauthor: me\n---\n", "utf-8")
    assert 0 == run(["check"])
    assert "skills/field-notes/SKILL.md:4 has the field 'author'" in capsys.readouterr().out
    (folder / "SKILL.md").write_text("---\nname: other\ndescription: d\n---\n", "utf-8")
    assert 1 == run(["check"])
    assert "skills/field-notes/SKILL.md:2 has the name 'other'" in capsys.readouterr().out
