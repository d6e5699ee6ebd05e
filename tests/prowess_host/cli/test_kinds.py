"""Resources and prompts on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prowess_host.cli.commands import run

NOTES = """
from prowess import Image, prompt, resource

@resource("notes://{id}")
def note(id: int) -> str | None:
    '''One note.'''
    return f"note {id}" if id else None

@resource("notes://all")
def everything() -> dict:
    return {"a": 1}

@prompt
def review(code: str):
    '''Review code.'''
    return [f"Review {code}", ("assistant", "Sure.")]
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory is in it."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/notes.py").write_text(NOTES, "utf-8")
    (tmp_path / "prowess.toml").write_text('cache_dir = "cache"\n', "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_they_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """With their kind, and the URI."""
    assert 0 == run(["list"])
    told = capsys.readouterr().out
    assert "resource notes://{id}" in told
    assert "prompt" in told
    assert 0 == run(["show", "notes.note"])
    told = capsys.readouterr().out
    assert ["URI       notes://{id}", "Type      text/plain"] == [
        line for line in told.splitlines() if line.startswith(("URI", "Type"))
    ]
    assert "Profile" not in told


def test_they_are_called(capsys: pytest.CaptureFixture[str]) -> None:
    """What is read is printed, and the messages with their roles; a failure is one."""
    assert 0 == run(["call", "notes.note", "id=7"])
    assert "note 7\n" == capsys.readouterr().out
    assert 0 == run(["call", "notes.everything", "--raw"])
    assert ["contents"] == list(json.loads(capsys.readouterr().out))
    assert 0 == run(["call", "notes.review", "code=x"])
    assert "user: Review x\nassistant: Sure.\n" == capsys.readouterr().out
    assert 1 == run(["call", "notes.note", "id=0"])
    assert "no resource exists at this URI" in capsys.readouterr().err


def test_the_record_keeps_what_was_read(capsys: pytest.CaptureFixture[str]) -> None:
    """So a call can be repeated and compared."""
    for line in (["notes.note", "id=7"], ["notes.everything"], ["notes.review", "code=x"]):
        assert 0 == run(["call", *line])
        capsys.readouterr()
        assert 0 == run(["replay", "last"])
        assert "The result is the same." in capsys.readouterr().out
