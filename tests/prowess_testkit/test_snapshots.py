"""What clients see, compared with a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prowess_testkit import STATELESS, ContractChanged, Project, ProjectError, assert_contract_unchanged


def test_snapshot_is_what_a_client_lists(notes: Project, tmp_path: Path):
    """In a profile and a revision."""
    file = tmp_path / "new" / "notes.json"
    assert_contract_unchanged(notes, file, update=True)
    assert_contract_unchanged(notes.runtime, file)

    tools = {tool["name"]: tool for tool in json.loads(file.read_text())}
    assert {"result"} == set(tools["notes_add"]["outputSchema"]["properties"])
    assert_contract_unchanged(notes, file, version=STATELESS, profile="full", update=True)
    tools = {tool["name"]: tool for tool in json.loads(file.read_text())}
    assert {"type": "integer"} == tools["notes_add"]["outputSchema"]


def test_change_is_shown_as_a_diff(notes: Project, tmp_path: Path):
    """With what to do about it."""
    file = tmp_path / "notes.json"
    assert_contract_unchanged(notes, file, update=True)
    file.write_text(file.read_text().replace("Add a line.", "Add one line."))

    with pytest.raises(ContractChanged) as caught:
        assert_contract_unchanged(notes, file)

    message = str(caught.value)
    assert '-    "description": "Add one line.",' in message
    assert '+    "description": "Add a line.",' in message
    assert "--update-contracts" in message


def test_broken_skill_is_no_snapshot(notes: Project, tmp_path: Path):
    """It would be missing in it."""
    notes.write("skills/broken.py", "import prowess\n1 / 0\n")
    with pytest.raises(
        ProjectError, match="some skills cannot be loaded, and would be missing in the snapshot:\nbroken"
    ):
        assert_contract_unchanged(notes, tmp_path / "notes.json", update=True)


def test_unknown_profile_is_named(notes: Project, tmp_path: Path):
    """With those there are."""
    with pytest.raises(ProjectError, match=r"there is no profile 'portabel'; known: full, omni"):
        assert_contract_unchanged(notes, tmp_path / "notes.json", profile="portabel")
