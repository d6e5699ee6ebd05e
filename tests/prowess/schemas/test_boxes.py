"""What is no object goes into one and comes out again, and its references still lead where they did."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from prowess.errors import SchemaError
from prowess.schemas.boxes import box, box_field, ensure_object, is_object, is_union_of_objects, unbox, wrap

NUMBER: dict[str, Any] = {"type": "number"}
SEVEN: dict[str, Any] = box(NUMBER, marker="x-dedalus-box")
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


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        pytest.param(NUMBER, "of type object, not 'number'", id="O-41 boxing refused"),
        pytest.param({"type": "string"}, "of type object, not 'string'", id="U-27 an object is required"),
        pytest.param({}, "of type object, not 'open'", id="an open root"),
    ],
)
def test_what_is_no_object_is_refused_without_a_box(schema: dict[str, Any], words: str) -> None:
    """Where boxing is not wanted, it is an error."""
    with pytest.raises(SchemaError, match=words):
        ensure_object(schema, field=None)


@pytest.mark.parametrize("_case", [pytest.param(None, id="O-42 field by name")])
def test_a_scalar_is_boxed_under_the_given_name(_case: None) -> None:
    """And an object is not boxed at all."""
    thing = {"type": "object"}

    assert {"type": "object", "properties": {"output": NUMBER}, "required": ["output"]} == ensure_object(
        NUMBER, field="output"
    )
    assert {"field": "result"} == ensure_object(NUMBER, marker="x-m")["x-m"]
    assert thing is ensure_object(thing, field=None)


# Values


@pytest.mark.parametrize("_case", [pytest.param(None, id="O-40 wrap and unwrap")])
def test_what_goes_into_a_box_comes_out(_case: None) -> None:
    """A value of a schema that is no box passes by identity, both ways."""
    mapping = {"a": 1}

    assert {"result": 3.14} == wrap(SEVEN, 3.14)
    assert 3.14 == unbox(SEVEN, wrap(SEVEN, 3.14))
    assert mapping is wrap({"type": "object"}, mapping)
    assert mapping is unbox({"type": "object"}, mapping)


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        pytest.param(SEVEN, {"result": 7}, 7, id="O-39 marked box"),
        pytest.param({}, None, None, id="O-39 nothing and no box"),
        pytest.param({"x-dedalus-box": True, "properties": {"v": NUMBER}}, {"v": 7}, 7, id="O-43 marker true"),
        pytest.param(
            {"x-fastmcp-wrap-result": True, "properties": {"result": {}}}, {"result": 7}, 7, id="a peer's box"
        ),
        pytest.param({"x-prowess-box": {"field": "v"}}, {}, None, id="a field that may be left out"),
        pytest.param(
            {"x-dedalus-box": True, "properties": {"v": {}, "w": {}}}, {"v": 7}, {"v": 7}, id="no box after all"
        ),
    ],
)
def test_boxed_values_are_unboxed(schema: dict[str, Any], value: Any, expected: Any) -> None:
    """The marker names the field, or the only property is it."""
    assert expected == unbox(schema, value)


@pytest.mark.parametrize("value", [{}, {"other": 1}, None, 7])
@pytest.mark.parametrize("_case", [pytest.param(None, id="O-39 missing field")])
def test_a_box_without_its_field_is_refused(value: Any, _case: None) -> None:
    """The message names the field."""
    with pytest.raises(SchemaError, match="'result'"):
        unbox(SEVEN, value)


def test_the_field_of_a_box_is_known() -> None:
    """And that a plain schema has none."""
    assert "result" == box_field(SEVEN)
    assert None is box_field(NUMBER)
