"""A project of a test: files, settings, modules, overrides, and calls from sync code."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from prowess import Runtime
from prowess_testkit import Project, ProjectError, connect
from prowess_testkit.toml import toml, toml_value


class FakeNotebook:
    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)


def test_sync_test_calls_a_command(notes: Project):
    """The outcome tells all; state lasts as long as the test."""
    assert 1 == notes.call("notes.add", text="one").value
    assert 2 == notes.call("notes_add", text="two").value
    assert "failed" == notes.call("notes.fail").kind
    assert "input" == notes.call("notes.add", txt="x").kind


def test_function_of_a_skill_is_tested_alone(notes: Project):
    """`.raw` takes what would be injected; a direct call gives a payload, and runs in this project."""
    module = notes.skill("notes")

    assert 3 == module.add.raw("x", FakeNotebook("a", "b"))
    assert "1" == module.add(text="one")["content"][0]["text"]
    assert 2 == notes.call("notes.add", text="two").value


async def test_function_of_a_skill_is_called_in_an_async_test(notes: Project):
    """Async commands stay async."""
    notes.call("notes.fail")  # the runtime is there before the module is asked for
    assert "done" == (await notes.skill("notes").chat())["content"][0]["text"]


@pytest.mark.parametrize("early", [True, False])
def test_override_by_name_or_type_lasts_for_the_test(notes: Project, early: bool):
    """Before and after the runtime is there, also where it was made already."""
    if early:
        notes.override("Notebook", FakeNotebook("a", "b"))
        assert 3 == notes.call("notes.add", text="x").value
    else:
        assert 1 == notes.call("notes.add", text="x").value
        notes.override(notes.skill("notes").Notebook, FakeNotebook("a", "b"))
        assert 3 == notes.call("notes.add", text="x").value


async def test_override_holds_in_every_runtime_of_the_test(notes: Project):
    """A client closes the runtime at its end; the next one starts anew, with the same overrides."""
    notes.override("Notebook", FakeNotebook("a"))
    for expected in ("2", "3"):
        async with connect(notes) as client:
            assert expected == (await client.call("notes.add", text="x")).text


async def test_one_runtime_is_overridden_for_a_while(notes: Project, runtime: Runtime):
    """The runtime's own way."""
    with runtime.override("Notebook", FakeNotebook("a", "b")):
        assert 3 == (await runtime.call("notes.add", {"text": "x"})).value
    assert 1 == (await runtime.call("notes.add", {"text": "x"})).value


def test_settings_are_added_to_what_is_there(notes: Project):
    """Tables are merged, values replaced."""
    notes.write("prowess.toml", "timeout = 5\n[api]\nkey = 'a'\n[api.limits]\nn = 1\n")
    notes.configure({"api": {"key": "b", "limits": {"m": 2}}})
    notes.configure({"retry.initial": 0.0})

    assert ["b", {"n": 1, "m": 2}, 5.0] == notes.call("notes.key").value


def test_flags_win_over_files(tmp_path: Path):
    """As on the command line."""
    with Project(tmp_path, flags={"timeout": 9}) as project:
        project.configure({"timeout": 5})
        assert 9.0 == project.runtime.settings.own.timeout


def test_settings_that_come_too_late_are_refused(notes: Project):
    """They would have no effect."""
    notes.call("notes.fail")
    with pytest.raises(ProjectError, match="the settings are read already; call project"):
        notes.configure({"timeout": 5})


def test_file_that_comes_too_late_is_refused(notes: Project):
    """Skills load once."""
    notes.call("notes.fail")
    with pytest.raises(ProjectError, match=r"skills/more\.py was written after the skills were loaded"):
        notes.write("skills/more.py", "")
    with pytest.raises(ProjectError, match=r"serve\(project\), which reloads"):
        notes.copy(notes.root / "skills")


def test_text_is_written_without_its_indent(project: Project):
    """So that it can stand in the middle of a test."""
    file = project.write(
        "skills/one.py",
        """
        x = 1
        if x:
            y = 2
        """,
    )
    assert "x = 1\nif x:\n    y = 2\n" == file.read_text()
    assert project.root / "skills/one.py" == file


def test_skills_are_copied(notes: Project, tmp_path: Path):
    """One file, a folder skill, or a file for some other place."""
    (notes.root / "skills/__pycache__").mkdir()
    with Project(tmp_path / "other") as other:
        assert other.root / "skills/notes.py" == other.copy(notes.root / "skills/notes.py")
        other.copy(notes.root / "skills", to="data")
        assert ["notes.py"] == [path.name for path in (other.root / "data/skills").iterdir()]
        assert 1 == other.call("notes.add", text="x").value


def test_project_is_a_path(project: Project):
    """Whatever wants a path takes it."""
    assert project.root == Path(project)


def test_closing_closes_what_skills_opened(tmp_path: Path):
    """Also a project that was never used, and one that nothing was called in."""
    with Project(tmp_path) as project:
        project.write("skills/thing.py", OPENS)
        module = project.skill("thing")
        project.call("thing.use")
        assert ["opened"] == module.seen
    assert ["opened", "closed"] == module.seen
    with Project(tmp_path) as project:
        project.skill("thing")
    with Project(tmp_path):
        pass


OPENS = """
from prowess import hookimpl, skill_command

seen = []

class Thing: ...

def opened():
    seen.append("opened")
    yield Thing()
    seen.append("closed")

@hookimpl
def prowess_injectables(provide):
    provide(Thing, opened)

@skill_command
def use(thing: Thing) -> None: ...
"""


@pytest.mark.parametrize(
    "value",
    [
        *(0, -5, 1.5, 1e300, True, False, "", 'a "quote" \\ and\nlines\t\x7f\x01 é \U0001f600'),
        *([], [1, [2]], [{"a b": 1, "c": [{}]}], date(2026, 7, 28)),
    ],
)
def test_values_are_written_as_toml_reads_them(value: Any):
    """Round trip, by file and by flag."""
    assert {"t": {"key": value, "odd key": {"k": value}}} == tomllib.loads(
        toml({"t": {"key": value, "odd key": {"k": value}, "no": None}})
    )
    assert {"x": value} == tomllib.loads(f"x = {toml_value(value, 'x')}")


def test_value_that_toml_does_not_have_is_refused_with_its_place():
    """A set, say."""
    with pytest.raises(ProjectError, match=r"setting api\.keys: \{1\} cannot be written as TOML"):
        toml({"api": {"keys": {1}}})
