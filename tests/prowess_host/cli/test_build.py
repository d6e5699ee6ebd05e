"""`prowess build`, run as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from prowess_host.cli.commands import run

SHOP = """
    from prowess import skill_command

    @skill_command(read_only=True)
    def find(query: str) -> list[str]:
        '''Find something.'''
        return [query]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one command, and the working directory in it."""
    (tmp_path / "prowess.toml").touch()
    write(tmp_path, SHOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(project: Path, source: str, name: str = "shop") -> None:
    file = project / "skills" / f"{name}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(dedent(source), "utf-8")


def catalog(project: Path) -> str:
    return (project / "schemas/catalog.json").read_text("utf-8")


def test_catalog_is_written_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second time, there is nothing to do; a check agrees."""
    assert 0 == run(["build"])
    assert "schemas/catalog.json written: 1 command.\n" == capsys.readouterr().out
    first = catalog(project)
    assert ["shop.find"] == [command["id"] for command in json.loads(first)["commands"]]

    assert [0, 0] == [run(["build"]), run(["build", "--check"])]
    assert "schemas/catalog.json is up to date: 1 command.\n" * 2 == capsys.readouterr().out
    assert first == catalog(project)
    assert str(project) not in first


def test_check_fails_with_a_short_diff(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And writes nothing."""
    assert 1 == run(["build", "--check"])
    assert "schemas/catalog.json is missing. Run prowess build" in capsys.readouterr().err
    assert not (project / "schemas").exists()

    run(["build"])
    before = catalog(project)
    write(project, SHOP.replace("query", "words"))
    assert 1 == run(["build", "--check"])
    told = capsys.readouterr().err
    assert '-            "query": {' in told
    assert '+            "words": {' in told
    assert "schemas/catalog.json is out of date." in told
    assert before == catalog(project)

    assert 0 == run(["build"])
    assert "schemas/catalog.json updated: 1 command." in capsys.readouterr().out
    write(project, "\n".join(f"    {line}" for line in ["from prowess import skill_command", *(
        f"@skill_command\n    def c{n}(a: int, b: str) -> int: ..." for n in range(9))]))  # fmt: skip
    assert 1 == run(["build", "--check"])
    assert "more lines" in capsys.readouterr().err


def test_profiles_are_remembered(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the file, as long as the project's own is among them."""
    run(["build", "--profile", "openmcp", "--profile", "portable"])
    assert ["openmcp", "portable"] == json.loads(catalog(project))["profiles"]
    assert 0 == run(["build", "--check"])
    assert 1 == run(["build", "--check", "--profile", "portable"])

    assert 0 == run(["build", "--set", "profile=full"])
    assert ["full"] == json.loads(catalog(project))["profiles"]


def test_broken_skill_is_no_reason_to_forget_its_commands(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is built, unless asked for."""
    write(project, "from prowess import skill_command\n1 / 0", "broken")

    assert 1 == run(["build"])
    assert "1 could not be loaded:\n  broken (skills/broken.py:2)" in capsys.readouterr().err
    assert not (project / "schemas").exists()
    assert 0 == run(["build", "--allow-failures"])
    assert "shop.find" in catalog(project)


def test_a_profile_of_a_plugin_is_built_and_checked_as_the_portable_one(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only workers know it. One that nobody provides is a failure, with the place of the setting."""
    plugin = """
        from prowess import hookimpl
        from prowess.profiles.profile import Profile

        @hookimpl
        def prowess_profiles(register):
            register(Profile("mine", box=None))
    """
    write(project, plugin, "plugin")
    assert 0 == run(["build", "--set", "profile=mine"])
    assert ["portable"] == json.loads(catalog(project))["profiles"]
    assert 0 == run(["check", "--set", "profile=mine"])
    assert "tokens as portable" in capsys.readouterr().out
    assert 1 == run(["build", "--set", "profile=mien"])
    assert "mien" in capsys.readouterr().err


def test_wrong_use_is_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what would have been right."""
    assert 2 == run(["build", "--profile", "portabel"])
    assert "unknown profile 'portabel'; did you mean \"portable\"?" in capsys.readouterr().err
    (project / "there").touch()
    assert 2 == run(["build", "--output", "there/catalog.json"])
    assert "cannot be written" in capsys.readouterr().err


def test_project_that_cannot_be_loaded_has_the_exit_code_of_other_commands(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line was right, and may work later."""
    assert 1 == run(["build", "--set", "python=/nowhere/python"])
    assert "prowess: the project cannot be loaded: " in capsys.readouterr().err


def test_file_may_stand_elsewhere(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be read there is written over, and fails a check."""
    file = project / "here.json"
    file.write_text("{")

    assert 2 == run(["build", "--check", "--output", "here.json"])
    assert "not JSON" in capsys.readouterr().err
    assert 0 == run(["build", "--output", "here.json"])
    assert "shop.find" in file.read_text("utf-8")


@pytest.mark.parametrize("text", ["# Read me\n", '{"name": "package"}', "[1]", "\xff"])
def test_file_of_somebody_else_is_not_written_over(
    project: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """A wrong `--output` must not cost anybody a file."""
    file = project / "README.md"
    file.write_text(text, "latin-1")
    assert 2 == run(["build", "--output", "README.md"])
    assert "README.md" in capsys.readouterr().err
    assert text == file.read_text("latin-1")


def test_catalog_with_the_marks_of_a_merge_is_written_anew(project: Path) -> None:
    """That is what one does with it."""
    run(["build"])
    file = project / "schemas/catalog.json"
    good = file.read_text("utf-8")
    file.write_text(f"<<<<<<< HEAD\n{good}=======\n{good}>>>>>>> other\n", "utf-8")
    assert 0 == run(["build"])
    assert good == file.read_text("utf-8")
