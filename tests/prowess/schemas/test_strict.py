"""The strict dialect: closed objects, everything required, or a clear refusal."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from prowess.errors import SchemaError
from prowess.schemas.strict import to_strict

STRING: dict[str, Any] = {"type": "string"}


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param(
            {"type": "object", "properties": {"a": STRING, "b": {"type": "integer", "default": None}}},
            closed(a=STRING, b={"type": "integer"}),
            id="O-21 all required, null default dropped",
        ),
        pytest.param(
            {
                "$ref": "#/$defs/X",
                "description": "d",
                "$defs": {"X": {"type": "object", "properties": {"field": STRING}}},
            },
            {**closed(field=STRING), "description": "d"},
            id="O-23 reference with siblings",
        ),
        pytest.param({}, closed(), id="O-24 empty"),
        pytest.param(
            {"type": "object", "properties": {"u": {"oneOf": [STRING]}}}, closed(u={"anyOf": [STRING]}), id="O-25 oneOf"
        ),
        pytest.param(
            {"type": "object", "properties": {"u": {"allOf": [STRING], "description": "d"}}},
            closed(u={"type": "string", "description": "d"}),
            id="O-25 single allOf",
        ),
        pytest.param(
            {"type": "array", "items": {"allOf": [True]}}, {"type": "array", "items": {"allOf": [True]}}, id="no object"
        ),
        pytest.param({"type": ["object", "null"]}, {**closed(), "type": ["object", "null"]}, id="perhaps an object"),
        pytest.param(
            {"allOf": [{"type": "object"}, {"minProperties": 1}]},
            {"allOf": [closed(), {"minProperties": 1}]},
            id="two parts",
        ),
    ],
)
def test_documents_become_strict(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    """Every object is closed and requires all it declares, at any depth."""
    before = copy.deepcopy(schema)

    assert expected == to_strict(schema)
    assert before == schema


def test_recursive_definitions_stay_references() -> None:
    """A reference with a description is written out once; inside itself it is a plain reference again."""
    schema = {
        "$ref": "#/$defs/Node",
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {
                    "next": {"$ref": "#/$defs/Node", "description": "the next"},
                    "plain": {"$ref": "#/$defs/S"},
                },
            },
            "S": STRING,
            "Unused": {},
        },
    }

    result = to_strict(schema)

    assert {"Node", "S"} == set(result["$defs"])
    assert {"$ref": "#/$defs/S"} == result["properties"]["plain"]
    outer = result["properties"]["next"]
    assert "the next" == outer["description"]
    assert {"$ref": "#/$defs/Node"} == outer["properties"]["next"]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        pytest.param({"type": "object", "additionalProperties": True}, "additionalProperties", id="O-22 open object"),
        pytest.param(
            {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": STRING}}},
            "additionalProperties",
            id="O-22 nested map",
        ),
        pytest.param({"items": {"$ref": "#/$defs/Nope"}}, "Unable to resolve $ref", id="O-26 unresolvable"),
        pytest.param({"items": {"$ref": "https://evil.example/s"}}, "Unexpected $ref format", id="O-26 remote"),
        pytest.param({"$ref": "#/$defs/Nope"}, "Unable to resolve $ref", id="O-26 unresolvable root"),
    ],
)
def test_what_strict_cannot_say_is_refused(schema: dict[str, Any], words: str) -> None:
    """The message says what is in the way."""
    with pytest.raises(SchemaError) as caught:
        to_strict(schema)
    assert words in str(caught.value)
