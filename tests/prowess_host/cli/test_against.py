"""`prowess check --against`, the step for CI and the hooks for pre-commit, in real repositories."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from patience import PATIENCE
from ruamel.yaml import YAML

from prowess_host.cli.commands import run

ROOT = Path(__file__).resolve().parents[3]
SOURCE = """
from typing import Literal
from prowess import skill_command

@skill_command(read_only=True, idempotent=True)
def find(query: str, sort: Literal["name", "price"] = "name", limit: int = 5) -> list[str]:
    'Find.'
    return [query]

@skill_command
def gone(x: int) -> int:
    'Go.'
    return x
"""
WORSE = """
from typing import Literal
from prowess import skill_command

@skill_command(idempotent=True)
def find(query: str, region: str, sort: Literal["name"] = "name", limit: int = 5) -> list[str] | None:
    'Find.'
    return [query]
"""


def git(folder: Path, *words: str) -> None:
    who = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b.c",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b.c",
    }
    subprocess.run(
        ["git", *words], cwd=folder, check=True, env={**os.environ, **who}, timeout=PATIENCE, capture_output=True
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A project in a folder of a repository, whose catalog is committed on `main`."""
    root = tmp_path / "below"
    (root / "skills").mkdir(parents=True)
    (root / "skills/shop.py").write_text(SOURCE, "utf-8")
    (root / "prowess.toml").touch()
    monkeypatch.chdir(root)
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "first")
    git(tmp_path, "tag", "before")
    assert 0 == run(["build"])
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    git(tmp_path, "update-ref", "refs/remotes/origin/main", "HEAD")
    capsys.readouterr()
    return root


def test_breaks_stay_red_after_the_commit(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last build knows nothing of them any more; the branch that the commit goes to does."""
    (project / "skills/shop.py").write_text(WORSE, "utf-8")
    assert 0 == run(["build"])
    git(project, "commit", "--quiet", "--all", "--message", "two")
    assert 0 == run(["check"])
    capsys.readouterr()

    assert 1 == run(["check", "--against", "origin/main"])
    told = capsys.readouterr().out
    assert 5 <= told.count("  breaks  ")
    assert "differences from schemas/catalog.json in origin/main" in told
    assert "merge them: from then on" in told
    assert 1 == run(["check", "--against", "HEAD~1", "--json"])
    assert "HEAD~1" == json.loads(capsys.readouterr().out)["against"]
    assert 0 == run(["check", "--against", "HEAD"])


def test_revisions_that_cannot_be_compared_with(
    project: Path, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each with its reason, as wrong use."""
    assert 2 == run(["check", "--against", "before"])
    assert "There is no schemas/catalog.json in before to compare with.\n" in capsys.readouterr().out
    assert 2 == run(["check", "--against", "origin/mian"])
    assert "git knows no revision 'origin/mian'; fetch it first" in capsys.readouterr().err
    assert 2 == run(["check", "--against", ""])
    assert "--against is empty: name a revision" in capsys.readouterr().err
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert 2 == run(["check", "--against", "main", "--catalog", str(elsewhere / "catalog.json")])
    assert "is outside of the repository" in capsys.readouterr().err
    (elsewhere / "skills").mkdir()
    assert 2 == run(["check", "--against", "main", "--project", str(elsewhere)])
    assert "is not in a git repository" in capsys.readouterr().err


def steps(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the workflow in the documentation runs, as in a pull request to `main`."""
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    text = (ROOT / "docs/catalog.md").read_text("utf-8")
    found = re.search(r"```yaml title=\"\.github/workflows/prowess\.yml\"\n(.*?)```", text, re.DOTALL)
    assert found
    (job,) = YAML(typ="safe").load(found[1])["jobs"].values()
    lines = [os.path.expandvars(step["run"]) for step in job["steps"] if "run" in step]
    return [shlex.split(line)[1:] for line in lines if line.startswith("prowess ")]


def hooks() -> list[list[str]]:
    return [
        shlex.split(hook["entry"])[1:]
        for hook in YAML(typ="safe").load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    ]


def test_documented_step_and_hooks(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Green on what is unchanged; red on a break that is built but not announced."""
    assert [0, 0] == [run(words) for words in steps(monkeypatch)]
    assert [0, 0] == [run(words) for words in hooks()]
    (project / "skills/shop.py").write_text(WORSE, "utf-8")
    assert [1, 1] == [run(words) for words in steps(monkeypatch)]
    assert [0, 1] == [run(words) for words in hooks()]
    assert [0, 1] == [run(words) for words in steps(monkeypatch)]


def test_hooks_look_at_the_right_files() -> None:
    """Skills, settings and the catalog itself, also of a project in a folder below."""
    for hook in YAML(typ="safe").load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")):
        for path in ("skills/a.py", "below/skills/x/scripts/a.py", "prowess.toml", "schemas/catalog.json"):
            assert re.search(hook["files"], path)
        assert not re.search(hook["files"], "README.md")


def test_no_catalog_is_built_outside_of_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong folder must not get a file."""
    monkeypatch.chdir(tmp_path)
    assert 2 == run(["build"])
    assert f"{tmp_path} is not a project" in capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())
