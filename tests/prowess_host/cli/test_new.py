"""`prowess new`, run as a person runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

from prowess_host.cli.commands import run
from prowess_host.cli.new import TEMPLATES


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and the working directory in it."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_project_in_an_empty_folder_works(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its command can be called at once, as the last lines say."""
    assert 0 == run(["new", "--project"])
    told = capsys.readouterr().out
    for_agents = [f"{folder}/skills/write-prowess-skills/SKILL.md" for folder in (".agents", ".claude")]
    others = [".gitignore", "README.md", "prowess.toml", "skills/hello.py", "tests/test_hello.py"]
    assert sorted([*for_agents, *others]) == files(empty)
    assert "created  skills/hello.py\n" in told
    assert "  prowess call hello.greet name=Ada\n" in told
    assert "cd " not in told
    assert not [path for path in files(empty) if "{{" in (empty / path).read_text("utf-8")]
    assert 0 == run(["call", "hello.greet", "name=Ada"])
    assert "Hello, Ada!\n" == capsys.readouterr().out


def test_project_in_a_new_folder(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a skill of one's own name."""
    assert 0 == run(["new", "orders", "--project", "shop", "--from", "database"])
    assert (empty / "shop/skills/orders.py").is_file()
    told = capsys.readouterr().out
    assert "  cd shop\n  prowess call orders.add text=milk\n" in told
    assert "# shop\n" in (empty / "shop/README.md").read_text("utf-8")


def test_every_template_passes_its_own_test(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a file and as a folder. `check` has nothing to say against what it promises."""
    assert 0 == run(["new", "--project"])
    for number, template in enumerate(TEMPLATES):
        assert 0 == run(["new", f"file{number}", "--from", template])
        assert 0 == run(["new", f"folder-{number}", "--from", template, "--folder"])
    assert (empty / "skills/folder-1/SKILL.md").read_text("utf-8").startswith("---\nname: folder-1\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
    done = subprocess.run(command, cwd=empty, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert f"{2 * (2 * len(TEMPLATES) + 1)} passed" in done.stdout
    assert 0 == run(["build"])
    assert 0 == run(["check", "--strict"])


def test_nothing_is_overwritten(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not a file of a project, nor a skill in its other form; and then nothing is written at all."""
    (empty / "README.md").write_text("mine")
    assert 0 == run(["new", "--project"])
    assert "kept     README.md" in capsys.readouterr().out
    assert "mine" == (empty / "README.md").read_text()
    before = files(empty)
    for words, told in (
        (["new", "--project"], "is a project already"),
        (["new", "hello"], "skills/hello.py is there already"),
        (["new", "hello", "--folder"], "test_hello.py is there already"),
    ):
        assert 2 == run(words)
        assert told in capsys.readouterr().err
    (empty / "tests/test_other.py").touch()
    assert 2 == run(["new", "other"])
    (empty / "skills/both").mkdir()
    assert 2 == run(["new", "both"])
    assert [*before, "tests/test_other.py"] == files(empty)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("My Skill", "how about 'my_skill'?"),
        ("9x", "must be"),
        ("class", "is a word of Python: choose another one, like 'my_class'"),
        ("Über", "how about 'uber'?"),
        ("../x", "how about 'x'?"),
        ("x.py", "'x'"),
        ("test_orders", "belongs to tests and tools"),
        ("conftest", "belongs to tests and tools"),
        ("tests", "belongs to tests and tools"),
    ],
)
def test_names_are_checked(name: str, told: str, empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is to be a file and a part of a tool name."""
    assert 2 == run(["new", name, "--project"])
    assert told in capsys.readouterr().err
    assert [] == files(empty)


@pytest.mark.parametrize(
    ("name", "slug"), [("my_skill", "my-skill"), ("my-skill-", "my-skill"), ("my__skill", "my-skill")]
)
def test_folder_has_a_name_that_agents_accept(
    name: str, slug: str, empty: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A SKILL.md is offered to clients if its name is that of its folder, in words with single hyphens between them."""
    assert 0 == run(["new", name, "--project", "--folder"])
    assert f"prowess call {slug}.greet" in capsys.readouterr().out
    assert f"\nname: {slug}\n" in (empty / "skills" / slug / "SKILL.md").read_text("utf-8")
    assert 0 == run(["call", f"{slug}.greet", "name=Ada"])
    assert 0 == run(["doctor"])
    assert "must be the same" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--project"], ["orders"]], ids=["project", "skill"])
def test_all_files_are_made_or_none(words: list[str], empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second try, after what was in the way is gone, would find half of the files."""
    if words == ["orders"]:
        (empty / "prowess.toml").touch()
    (empty / "tests").touch()
    before = sorted(empty.rglob("*"))
    assert 2 == run(["new", *words])
    assert f"{empty / 'tests'}: cannot be written" in capsys.readouterr().err
    assert before == sorted(empty.rglob("*"))
    (empty / "tests").unlink()
    assert 0 == run(["new", *words])


def test_skill_needs_a_project(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What to do is told; so it is where nothing was named."""
    assert 2 == run(["new", "hello"])
    assert "`prowess new --project` makes one there" in capsys.readouterr().err
    assert 2 == run(["new"])
    assert "Name a skill, or use --project" in capsys.readouterr().err
    assert [] == files(empty)


def test_skill_goes_where_the_settings_say(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from a folder below."""
    (empty / "prowess.toml").write_text('skills = ["mine"]')
    (empty / "below").mkdir()
    monkeypatch.chdir(empty / "below")
    assert 0 == run(["new", "hello"])
    assert (empty / "mine/hello.py").is_file()
    assert "mine/hello.py" in (empty / "tests/test_hello.py").read_text("utf-8")


def test_empty_name_is_refused(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a variable that is not set: it is not the name of the first skill."""
    assert 0 == run(["new", "--project"])
    assert 2 == run(["new", ""])
    assert "the name '' must be lower-case letters" in capsys.readouterr().err
    for words in (["new", "--project", ""], ["list", "--project", ""], ["check", "--project", ""]):
        assert 2 == run(words)
        assert "--project '' names no folder" in capsys.readouterr().err


def test_next_steps_can_be_typed_as_they_stand(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also if the name of the folder has a space."""
    assert 0 == run(["new", "--project", "my tools"])
    assert "  cd 'my tools'\n" in capsys.readouterr().out
