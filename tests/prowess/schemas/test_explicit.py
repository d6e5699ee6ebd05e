"""An author's schema is checked whole before it is used, and a value against it to the last problem."""

from __future__ import annotations

import copy
import socket
from typing import Any

import pytest

from prowess.errors import SchemaError
from prowess.schemas.explicit import DIALECT, check_explicit, validate


def nested(keyword: str, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {keyword: [schema] if keyword.endswith("Of") else schema}
    return schema


def refusal(schema: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        check_explicit(schema, what="input_schema of notes.add")
    return str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "object"}, id="U-8 no dialect"),
        pytest.param({"$schema": DIALECT}, id="U-8 2020-12"),
        pytest.param({"$schema": DIALECT + "#"}, id="U-8 2020-12 with an empty fragment"),
        pytest.param(nested("allOf", 32), id="U-10 32 nested allOf"),
        pytest.param(nested("items", 60), id="plain nesting is no composition"),
        pytest.param(
            {
                "$ref": "#/$defs/Node",
                "$defs": {"Node": {"properties": {"children": {"items": {"$ref": "#/$defs/Node"}}}}},
            },
            id="U-11 recursive local reference",
        ),
        pytest.param({"items": {"$ref": "#"}}, id="U-11 reference to the root"),
        pytest.param({"$defs": {"A": {"$anchor": "a"}}, "$ref": "#a"}, id="anchor"),
        pytest.param({"$defs": {"A": {"$dynamicAnchor": "a"}}, "$dynamicRef": "#a"}, id="dynamic anchor"),
        pytest.param({"$id": "https://example.com/a", "$ref": "#/$defs/A", "$defs": {"A": {}}}, id="own id"),
        pytest.param(
            {"$id": "https://example.com/a", "$ref": "a#/$defs/A", "$defs": {"A": {}}}, id="reference to the own id"
        ),
        pytest.param(
            {
                "$id": "https://example.com/a",
                "properties": {"$id": {"$ref": "b"}},
                "$defs": {"B": {"$id": "b", "$ref": "#/$defs/C", "$defs": {"C": {}}}},
            },
            id="document inside, and a property called $id",
        ),
        pytest.param({"properties": {"$ref": {"type": "string"}, "x": True}}, id="a property called $ref"),
        pytest.param({"default": {"$ref": "https://evil.example/s"}}, id="a reference that is data"),
        pytest.param({"type": "string", "unknown-keyword": 7}, id="unknown keyword"),
    ],
)
def test_usable_schemas_are_accepted(schema: dict[str, Any]) -> None:
    """Whatever 2020-12 allows and one document can hold, and nothing of it is changed."""
    before = copy.deepcopy(schema)

    check_explicit(schema, what="schema")

    assert before == schema


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        pytest.param({"properties": {"bad": {"type": 123}}}, ["properties.bad.type", "123"], id="U-7 wrong type"),
        pytest.param(
            {"properties": {"a": {"minimum": "1"}, "b": {"required": "x"}}},
            ["properties.a.minimum", "properties.b.required"],
            id="U-7 every problem at once",
        ),
        pytest.param({"anyOf": []}, ["anyOf"], id="U-7 empty union"),
        pytest.param({"properties": {"p": {"pattern": "("}}}, ["properties.p.pattern"], id="U-7 broken pattern"),
        pytest.param(
            {"$schema": "http://json-schema.org/draft-07/schema#"}, ["draft-07", "2020-12", "value"], id="U-9 draft-07"
        ),
        pytest.param(
            {"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}, ["draft-07", "items"], id="U-9 inside"
        ),
        pytest.param({"$schema": 7}, ["dialect 7"], id="U-9 no dialect at all"),
        pytest.param({"description": "x" * 256 * 1024}, ["262144", "256 KiB"], id="U-10 too large"),
        pytest.param(nested("allOf", 33), ["33", "32"], id="U-10 33 nested allOf"),
        pytest.param(nested("not", 40), ["40", "32"], id="U-10 other compositions"),
        pytest.param(
            {"items": {"$ref": "https://evil.example/schema.json"}},
            ["https://evil.example/schema.json", "disabled", "policy", "items"],
            id="U-12 remote reference",
        ),
        pytest.param({"$ref": "other.json"}, ["other.json", "disabled", "policy"], id="U-12 reference to a file"),
        pytest.param({"$ref": DIALECT}, [DIALECT, "disabled", "policy"], id="U-12 reference to the meta-schema"),
        pytest.param({"anyOf": [{"$ref": "#/$defs/Nope"}]}, ["#/$defs/Nope", "anyOf[0]", "nowhere"], id="dangling"),
        pytest.param({"$dynamicRef": "#nope"}, ["$dynamicRef", "#nope"], id="dangling anchor"),
        pytest.param(
            {"$id": "urn:a", "items": {"$id": "urn:b", "$ref": "#/$defs/A"}, "$defs": {"A": {}}},
            ["#/$defs/A"],
            id="beyond an id",
        ),
        pytest.param(["not", "a", "schema"], ["dict, not list"], id="a list"),
        pytest.param(True, ["dict, not bool"], id="a bare yes"),
        pytest.param({"default": {1, 2}}, ["JSON"], id="no JSON"),
        pytest.param({"default": float("nan")}, ["JSON"], id="no number"),
    ],
)
def test_unusable_schemas_are_refused(schema: Any, words: list[str]) -> None:
    """The message names the command, the value, the place and the limit."""
    message = refusal(schema)

    assert message.startswith("input_schema of notes.add: ")
    assert [] == [word for word in words if word not in message]


def test_a_schema_that_holds_itself_is_refused() -> None:
    """A dict can be its own value; a document cannot."""
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"me": schema}

    assert "nested too deeply" in refusal(schema)
    schema["properties"] = {}
    schema["default"] = schema
    assert "cannot be written as JSON" in refusal(schema)


@pytest.mark.parametrize("depth", [150, 900, 5000])
def test_a_schema_nested_too_deeply_is_refused_like_any_other(depth: int) -> None:
    """Where Python's own limits end a check, it is still the schema that is refused."""
    assert "input_schema of notes.add" in refusal({"items": nested("items", depth), "type": 7})


# Values

NAMED = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "size": {"type": "integer"}},
    "patternProperties": {"^x-": {}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
FILTERS = {"type": "object", "properties": {"filters": {"type": "array", "items": NAMED}}}
SHAPES = {
    "anyOf": [
        {"type": "object", "properties": {"kind": {"const": "a"}, "r": {"type": "number"}}, "required": ["kind", "r"]},
        {"type": "object", "properties": {"kind": {"const": "b"}, "w": {"type": "number"}}, "required": ["kind", "w"]},
        {"type": "null"},
    ]
}


@pytest.mark.parametrize(
    ("schema", "value", "problems"),
    [
        ({}, {"any": ["thing"]}, []),
        (FILTERS, {"filters": []}, []),
        (FILTERS, {"filters": [{"name": 7, "size": 1}]}, ["filters[0].name: expected string, got 7"]),
        (
            FILTERS,
            {"filters": [{"nam": "x", "x-ok": 1}]},
            [
                "filters[0].name: required, but missing",
                "filters[0].size: required, but missing",
                'filters[0].nam: unknown property; did you mean "name"?, got "x"',
            ],
        ),
        (
            FILTERS,
            {"filters": [{"name": "toolong", "size": "1"}]},
            [
                'filters[0].name: expected at most 5 characters, got "toolong"',
                'filters[0].size: expected integer, got "1"',
            ],
        ),
        ({"type": "object"}, 7, ["value: expected object, got 7"]),
        ({"type": ["integer", "null"]}, "x", ['value: expected integer or null, got "x"']),
        ({"enum": ["a", 1]}, "b", ['value: expected one of "a", 1, got "b"']),
        ({"const": {"a": 1}}, None, ['value: expected {"a": 1}, got null']),
        (
            {"minimum": 3, "multipleOf": 2},
            1,
            ["value: expected at least 3, got 1", "value: expected a multiple of 2, got 1"],
        ),
        ({"exclusiveMaximum": 1}, 1, ["value: expected less than 1, got 1"]),
        ({"pattern": "^a$"}, "b", ['value: expected text that matches ^a$, got "b"']),
        ({"uniqueItems": True}, [1, 1], ["value: expected unique items, got [1, 1]"]),
        ({"maxItems": 1}, ["x" * 100, 2], ['value: expected at most 1 items, got ["' + "x" * 57 + "…"]),
        ({"items": {"not": {}}}, [1], ["[0]: expected another value (1 should not be valid under {}), got 1"]),
        (
            {"dependentRequired": {"a": ["b"]}},
            {"a": 1},
            ["value: expected another value ('b' is a dependency of 'a'), got {\"a\": 1}"],
        ),
        (SHAPES, {"kind": "b"}, ["w: required, but missing"]),
        (SHAPES, {"kind": "b", "w": "x"}, ['w: expected number, got "x"']),
        (SHAPES, "x", ['value: expected object or null, got "x"']),
        ({"anyOf": [{"type": "integer"}, {"enum": ["a"]}]}, "b", ['value: expected integer or one of "a", got "b"']),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 0}]},
            1,
            ["value: expected exactly one of 2 alternatives to fit, got 1"],
        ),
        ({"properties": {"a/b": {"items": {"type": "null"}}}}, {"a/b": [1]}, ["a/b[0]: expected null, got 1"]),
    ],
)
def test_every_problem_is_one_line(schema: dict[str, Any], value: Any, problems: list[str]) -> None:
    """With its path, what was expected, and what came instead, shortened."""
    assert problems == validate(schema, value)


def test_boxed_and_recursive_schemas_can_be_validated_against() -> None:
    """Local references are followed."""
    schema = {"$ref": "#/$defs/N", "$defs": {"N": {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}}}}

    assert [] == validate(schema, {"n": {"n": {}}})
    assert ["n.n: expected object, got 1"] == validate(schema, {"n": {"n": 1}})


def test_nothing_is_ever_fetched() -> None:
    """A remote reference is an error, not a request."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        host, port = server.getsockname()

        with pytest.raises(SchemaError, match="has no target"):
            validate({"items": {"$ref": f"http://{host}:{port}/schema.json"}}, [1])

        with pytest.raises(BlockingIOError):  # nobody has called
            server.accept()


def test_a_dangling_reference_is_the_authors_mistake() -> None:
    """Also when nobody checked the schema before it was used."""
    with pytest.raises(SchemaError, match="has no target"):
        validate({"items": {"$ref": "#/$defs/Nope"}}, [1])


EVIL = "^(a+)+$"


@pytest.mark.parametrize(
    ("schema", "value", "problems"),
    [
        ({"pattern": EVIL}, "a" * 50 + "!", 1),
        ({"pattern": EVIL}, "aa", 0),
        ({"pattern": EVIL}, 1, 0),
        ({"patternProperties": {EVIL: {"type": "string"}}}, {"a" * 50 + "!": 1, "aa": 1, "a": "x"}, 1),
        ({"patternProperties": {EVIL: False}}, [], 0),
        ({"patternProperties": {EVIL: True}, "additionalProperties": False}, {"a" * 50 + "!": 1, "b": 1, "a": 1}, 2),
        ({"patternProperties": {EVIL: True}, "additionalProperties": {"type": "string"}}, {"b": 1, "c": "x"}, 1),
        ({"properties": {"a": True}, "additionalProperties": False}, {"a": 1}, 0),
        ({"additionalProperties": True}, {"a": 1}, 0),
        ({"additionalProperties": False}, "text", 0),
    ],
)
def test_values_are_checked_at_a_cost_that_none_can_drive_up(schema: dict[str, Any], value: Any, problems: int) -> None:
    """Patterns are matched in linear time, wherever they stand."""
    assert problems == len(validate(schema, value))
