"""The reference pages say what the program does: what is generated is up to date, and the tables written by hand agree."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from jsonschema import Draft7Validator

from prowess import skill_command
from prowess.calls.outcome import Kind
from prowess.envelopes import envelope
from prowess.errors import SettingsError
from prowess.hookspecs import hookspec
from prowess.profiles.profile import BUILT_IN
from prowess.settings.credentials import Credentials
from prowess.settings.keys import own_keys
from prowess.settings.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"scripts_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = load_script("reference")
GENERATED: dict[Path, str] = REFERENCE.files()


@pytest.mark.parametrize("path", GENERATED, ids=[str(path.relative_to(ROOT)) for path in GENERATED])
def test_generated_text_is_up_to_date(path: Path) -> None:
    """After a change of the program, `make reference` writes the pages again."""
    assert GENERATED[path] == path.read_text(encoding="utf-8"), f"{path.relative_to(ROOT)} is old: run make reference"


def test_every_part_stands_in_one_page() -> None:
    """Nothing is generated for no page, and no fact stands twice."""
    pages = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("docs/*.md"))

    assert sorted(REFERENCE.PARTS) == sorted(re.findall(r"<!-- generated: ([\w-]+) -->", pages))


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    _, found, after = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(f"\n{heading}\n")
    assert found, f"docs/{page} has no heading {heading!r}"
    lines = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE)
    assert lines
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[0].splitlines()]
    return cells[2:]


def test_decorator_is_documented_as_it_is() -> None:
    """Each parameter of the decorator has a row, in the order of the signature, with its default."""
    parameters = inspect.signature(skill_command).parameters.values()

    documented = [(name.strip("`"), default.strip("`")) for name, default, *_ in rows("decorator.md", "## Parameters")]
    assert [(each.name, repr(each.default)) for each in parameters] == documented


def test_profiles_are_documented_as_they_are() -> None:
    """Each built-in profile has a row and a column."""
    assert list(BUILT_IN) == [row[0].strip("`") for row in rows("profiles.md", "## Which profile")]


def test_hooks_are_documented_as_they_are() -> None:
    """Each hook has a row with its signature, and there are no others."""
    hooks = vars(importlib.import_module("prowess.hookspecs"))
    called = [
        f"{name}({', '.join(inspect.signature(hook).parameters)})"
        for name, hook in hooks.items()
        if hasattr(hook, f"{hookspec.project_name}_spec")
    ]

    assert sorted(called) == sorted(row[0].strip("`") for row in rows("plugins.md", "## The hooks"))


def test_failure_kinds_are_documented_as_they_are() -> None:
    """Each kind of outcome has a row, with the status of its envelope."""
    statuses: dict[str, tuple[str, int]] = vars(envelope)["_STATUS"]
    expected = {kind: "{} {}".format(*statuses.get(kind, ("error", 500))) for kind in get_args(Kind)}

    documented = {row[0].strip("`"): row[-1].strip("`") for row in rows("failures.md", "## Kinds")}
    assert expected == {kind: documented.get(kind, "").split(",")[0].strip("`") for kind in expected}
    assert set(expected) == set(documented)


PYTHON_SAYS = {"No module named", "cannot import name"}


@pytest.mark.parametrize("heading", ["## A command is missing", "## A call fails"])
def test_symptoms_are_messages_of_the_program(heading: str) -> None:
    """A person looks for the words on the screen, so troubleshooting lists words that the program writes."""
    source = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("packages/*/src/**/*.py"))
    symptoms = {found for row in rows("troubleshooting.md", heading) for found in re.findall(r"`([^`]+)`", row[0])}

    assert len(symptoms) >= 4
    assert set() == {symptom for symptom in symptoms - PYTHON_SAYS if symptom not in source}


# --- the schema of prowess.toml ---


SCHEMA = json.loads((ROOT / "schemas/prowess.toml.schema.json").read_text(encoding="utf-8"))


def accepted(text: str) -> bool:
    """Whether the schema accepts a file, which has to be the program's answer too."""
    data = tomllib.loads(text)
    by_schema = Draft7Validator(SCHEMA).is_valid(data)
    try:
        Credentials.of(Settings.of(data))
    except SettingsError:
        assert not by_schema, "the schema accepts what Prowess rejects"
        return False
    assert by_schema, "the schema rejects what Prowess accepts"
    return True


@pytest.mark.parametrize(
    "text",
    [
        "",
        "timeout = 60",
        "timeout = inf",
        'skills = ["a", "b"]',
        "[skills.notes]\nfolder = 'x'",
        'names = "dotted"',
        "[host]\nworkers = 2\ndrain = 0.5",
        "[api]\nkey = 'x'\n[api.deep]\nkey = 1",
        "[[machines]]\nname = 'x'",
        "[wire_names]\n'a.b' = 'c'",
        "[[auth.credentials]]\ntype = 'bearer'\ntoken = 'x'\nscopes = ['a']\n[auth.scopes]\n'a.*' = ['b']",
    ],
)
def test_schema_accepts_what_prowess_accepts(text: str) -> None:
    assert accepted(text)


@pytest.mark.parametrize(
    "text",
    [
        "timeout = 0",
        "timeout = '60'",
        "timeout = true",
        "skills = 'skills'",
        "[skills]\nnotes = 1",
        'names = "other"',
        "[host]\nworker = 2",
        "[host]\nworkers = 1.5",
        "host = 1",
        "unknown = 1",
        "unknown = []",
        "[[auth.credentials]]\ntype = 'other'\ntoken = 'x'",
    ],
)
def test_schema_rejects_what_prowess_rejects(text: str) -> None:
    assert not accepted(text)


def test_schema_has_every_key_with_its_default() -> None:
    """Editors complete the keys that the program reads, and show their defaults."""

    def found(path: list[str]) -> Any:
        schema = SCHEMA
        for name in path:
            schema = schema["properties"][name]
        return schema

    for key in own_keys():
        schema = found(key.name.split("."))
        assert key.help == schema["description"]
        if key.default not in (None, {}):
            assert json.loads(json.dumps(key.default)) == schema["default"]
