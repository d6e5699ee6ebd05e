"""The schemas at the root are the single source of truth, and what the package carries is the same."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

from prowess.results.published import get_validator

ROOT = Path(__file__).resolve().parents[2]


def test_package_data_is_the_folder_of_schemas() -> None:
    """`prowess/_schemas` leads to `schemas/`; for wheels, `make wheels` compares every byte."""
    shipped = {entry.name: entry.read_bytes() for entry in (resources.files("prowess") / "_schemas").iterdir()}

    assert {path.name: path.read_bytes() for path in ROOT.glob("schemas/*")} == shipped


def test_every_schema_is_valid_and_says_what_it_is() -> None:
    """A published schema has an id of its own, says which dialect it is written in, and is valid in it."""
    schemas = [json.loads(path.read_text(encoding="utf-8")) for path in ROOT.glob("schemas/*.schema.json")]

    assert 5 == len({schema["$id"] for schema in schemas}) == len(schemas)
    for schema in schemas:
        assert {"$schema", "title", "description"} <= schema.keys()
        validator_for(schema, default=Validator).check_schema(schema)


def test_code_enforces_what_is_published() -> None:
    """The validators in use are compiled from these very files."""
    for path in ROOT.glob("schemas/*tool_result*.schema.json"):
        assert json.loads(path.read_text(encoding="utf-8")) == get_validator(path.name).schema
