"""The schemas at the root are the single source of truth, and what the package carries is the same."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_package_data_is_the_folder_of_schemas() -> None:
    """`prowess/_schemas` leads to `schemas/`; for wheels, `make wheels` compares every byte."""
    shipped = {entry.name: entry.read_bytes() for entry in (resources.files("prowess") / "_schemas").iterdir()}

    assert {path.name: path.read_bytes() for path in ROOT.glob("schemas/*")} == shipped


def test_every_schema_is_json_with_a_dialect_and_a_title() -> None:
    """A published schema says which dialect it is written in, and what it describes."""
    schemas = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in ROOT.glob("schemas/*.json")}

    assert {} != schemas
    assert [] == [name for name, schema in schemas.items() if not {"$schema", "title"} <= schema.keys()]
