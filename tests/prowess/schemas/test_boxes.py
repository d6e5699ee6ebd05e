"""What is no object goes into one, and its references still lead where they did."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from prowess.schemas.boxes import box, is_object, is_union_of_objects

NUMBER: dict[str, Any] = {"type": "number"}
RECURSIVE: dict[str, Any] = {
    "type": "array",
    "items": {"$ref": "#/$defs/Tree"},
    "$defs": {"Tree": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}},
}


def test_a_box_is_an_object_of_one_field() -> None:
    """Marked where a marker is wanted, and required unless it may be left out."""
    assert {"type": "object", "properties": {"result": NUMBER}, "required": ["result"]} == box(NUMBER)
    assert {"type": "object", "properties": {"x": NUMBER}, "m": {"field": "x"}} == box(
        NUMBER, "x", marker="m", required=False
    )


def test_definitions_move_to_the_root_of_the_box() -> None:
    """That is where local references look."""
    before = copy.deepcopy(RECURSIVE)

    boxed = box(RECURSIVE, "trees")

    assert RECURSIVE["$defs"] == boxed["$defs"]
    assert {"type": "array", "items": {"$ref": "#/$defs/Tree"}} == boxed["properties"]["trees"]
    assert Draft202012Validator(boxed).is_valid({"trees": [{"kids": [{"kids": []}]}]})
    assert not Draft202012Validator(boxed).is_valid({"trees": [{"kids": [{"kids": 1}]}]})
    assert before == RECURSIVE


@pytest.mark.parametrize("field", ["result", "a/b~c d", "ä"])
@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]},
        {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/anyOf/0"}}, {"$ref": "#/anyOf/1"}]},
        {
            "$id": "https://example.com/s.json",
            "anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/$defs/I"}}],
            "$defs": {"I": {"type": "integer"}},
        },
        {
            "anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#int"}}],
            "$defs": {"I": {"$anchor": "int", "type": "integer"}},
        },
        {
            "type": ["integer", "array"],
            "items": {"$id": "urn:i", "$ref": "#/$defs/I", "$defs": {"I": {"type": "integer"}}},
        },
    ],
    ids=["root", "place", "own id", "anchor", "inner id"],
)
def test_references_to_places_still_lead_there(schema: dict[str, Any], field: str) -> None:
    """An author's schema may refer to its root, to places in it, by anchors, and within documents of its own."""
    boxed = Draft202012Validator(box(schema, field))

    assert boxed.is_valid({field: 1})
    assert boxed.is_valid({field: [1]})
    assert not boxed.is_valid({field: ["x"]})


def test_the_dialect_is_named_at_the_root() -> None:
    """A box speaks the dialect of what is in it."""
    dialect = "https://json-schema.org/draft/2020-12/schema"

    boxed = box({"$schema": dialect, **NUMBER})

    assert dialect == boxed["$schema"]
    assert NUMBER == boxed["properties"]["result"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object"}, True),
        ({"$ref": "#/$defs/O", "$defs": {"O": {"type": "object"}}}, True),
        ({"type": ["object", "null"]}, False),
        ({"properties": {}}, False),
        ({"anyOf": [{"type": "object"}]}, False),
        ({}, False),
    ],
)
def test_an_object_says_that_it_is_one(schema: dict[str, Any], expected: bool) -> None:
    """Wires that take only objects look at the type of the root."""
    assert expected is is_object(schema)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"anyOf": [{"type": "object"}, {"$ref": "#/$defs/O"}], "$defs": {"O": {"type": "object"}}}, True),
        ({"oneOf": [{"type": "object"}]}, True),
        ({"$ref": "#/$defs/U", "$defs": {"U": {"anyOf": [{"type": "object"}]}}}, True),
        ({"anyOf": [{"type": "object"}, {"type": "null"}]}, False),
        ({"anyOf": [{"type": "object"}, True]}, False),
        ({"type": "object"}, False),
    ],
)
def test_a_choice_between_objects_is_told_from_others(schema: dict[str, Any], expected: bool) -> None:
    """Every branch has to be an object."""
    assert expected is is_union_of_objects(schema)
