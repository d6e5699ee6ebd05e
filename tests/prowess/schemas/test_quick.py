"""The quick check: yes only where a full validation says yes, and mostly then."""

from __future__ import annotations

import datetime as dt
import enum
import math
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from prowess.schemas.adapters import Adapter
from prowess.schemas.quick import quick_check

TREE = {
    "$defs": {
        "Tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Tree"}}, "additionalProperties": False}
    },
    "$ref": "#/$defs/Tree",
}
TAGGED = {
    "discriminator": {"propertyName": "kind"},
    "oneOf": [
        {"type": "object", "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind"]},
        {"type": "object", "properties": {"kind": {"enum": ["b", "c"]}}},
    ],
}

# schema, values that are met, values that are not
CASES: list[tuple[Any, list[Any], list[Any]]] = [
    ({}, [1, None, {"a": []}], []),
    ({"type": "integer"}, [1, -(10**30)], [True, 1.5, "1", None]),
    ({"type": "number"}, [1, 1.5, 10**400], [True, "1", None]),
    ({"type": "string"}, ["", "é"], [1, None]),
    ({"type": "boolean"}, [True], [1, "true"]),
    ({"type": "null"}, [None], [0, ""]),
    ({"type": ["integer", "null"]}, [1, None], ["1"]),
    ({"type": "integer", "minimum": 1, "exclusiveMaximum": 3, "title": "T", "x-more": 1}, [1, 2], [0, 3]),
    (
        {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^a", "format": "date"},
        ["ab"],
        ["a", "abcd", "ba"],
    ),
    ({"enum": ["a", "b"]}, ["a"], ["c", 1]),
    ({"enum": [1, None, [1]]}, [1, None, [1]], [True, "1", [2]]),
    ({"const": 1}, [1], [True, 2]),
    ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, [[], [1, 2]], [["a"], [1, 2, 3], {}, "ab"]),
    ({"type": "array"}, [[1, "a"]], [{}]),
    ({"type": "array", "items": False}, [[]], [[1]]),
    (
        {"type": "array", "uniqueItems": True},
        [[1, True, "1", [1], {"a": 1}]],
        [[1, 1], [[1], [1]], [{"a": 1}, {"a": 1}]],
    ),
    (
        {"type": "array", "prefixItems": [{"type": "integer"}, {}], "minItems": 2, "maxItems": 2},
        [[1, "a"]],
        [[], [1], ["a", 1], [1, 2, 3], "ab", {"a": 1}],
    ),
    (
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]},
        [{"a": 1}, {"a": 1, "b": None, "c": 2}],
        [{}, {"a": "1"}, []],
    ),
    ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, [{}, {"a": 1}], [{"b": 1}]),
    (
        {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
        [{"b": 1}],
        [{"b": "x"}],
    ),
    ({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1}, [{"a": 1}], [{}, {"a": "x"}]),
    ({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}]),
    ({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]}, [1, "a"], ["ab", None]),
    ({"allOf": [{"type": "integer"}, {"minimum": 1}, True]}, [1], [0, "a"]),
    ({"oneOf": [{"type": "integer"}]}, [1], ["a"]),
    ({"properties": {"a": {"type": "integer"}}}, [{"a": 1}], [{"a": "x"}]),
    ({"items": {"type": "integer"}, "minItems": 1}, [[1]], [["a"], []]),
    ({"type": "object", "required": ["a"]}, [{"a": 1, "b": 2}], [{"b": 1}]),
    (
        {"type": "object", "required": ["a"], "additionalProperties": {"type": "integer"}},
        [{"a": 1, "b": 2}],
        [{}, {"a": "x"}],
    ),
    (
        {"oneOf": [{"required": ["a"]}, {"required": ["b", "c"]}]},
        [{"a": 1}, {"a": 1, "b": 2}, {"b": 1, "c": 2}],
        [{}, {"b": 1}, {"a": 1, "b": 2, "c": 3}],
    ),
    (
        {"if": {"properties": {"k": {"const": "a"}}}, "then": {"properties": {"n": {"type": "integer"}}}},
        [{"k": "b", "n": "x"}, {"k": 1, "n": "x"}, {"k": "a", "n": 1}, {"n": 1}],
        [{"k": "a", "n": "x"}, {"n": "x"}],
    ),
    ({"if": {"properties": {"k": {"enum": ["a", "b"]}}}}, [{"k": "a"}, {"k": "c"}, 1], []),
    (TREE, [{}, {"next": {"next": {}}}], [{"next": 1}, {"next": {"more": 1}}]),
    (
        {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"type": "integer"}}, "$ref": "#/$defs/A", "minimum": 1},
        [1],
        [0, "a"],
    ),
    (TAGGED, [{"kind": "a", "n": 1}, {"kind": "b"}], [{"kind": "a", "n": "x"}, {"kind": "d"}, 1]),
    (
        {**TAGGED, "oneOf": [{"$ref": "#/$defs/A"}, TAGGED["oneOf"][1]], "$defs": {"A": TAGGED["oneOf"][0]}},
        [{"kind": "a"}],
        [{"kind": "d"}],
    ),
]


@pytest.mark.parametrize("schema, good, bad", CASES, ids=lambda held: str(held)[:40])
def test_a_schema_is_checked_by_what_it_says(schema: Any, good: list[Any], bad: list[Any]):
    """As a full validation has it."""
    check, full = quick_check(schema), Draft202012Validator(schema)
    for value in good:
        assert full.is_valid(value)
        assert check(value)
    for value in bad:
        assert not full.is_valid(value)
        assert not check(value)


@pytest.mark.parametrize(
    "schema, value",
    [
        ({"not": {"type": "integer"}}, "a"),
        ({"if": {}, "then": {}}, "a"),
        ({"if": {"properties": {"k": {"const": 1}}}, "then": {}}, {"k": "a"}),
        ({"if": {"properties": {"k": {"const": "a", "minLength": 1}}}, "then": {}}, {"k": "b"}),
        ({"if": {"properties": {"k": True}}, "then": {}}, {"k": "b"}),
        ({"if": {"properties": {"k": {"const": "a"}}, "required": ["k"]}, "then": {}}, {}),
        ({"if": {"properties": {"k": {"const": "a"}}}, "then": {}, "else": {}}, {"k": "b"}),
        ({"if": True, "then": {}}, {}),
        ({"properties": {"a": {}}}, 1),
        ({"oneOf": [{"required": ["a"]}]}, 1),
        ({"type": "object", "patternProperties": {"a": {}}}, {}),
        ({"type": "object", "required": ["a"], "additionalProperties": False, "properties": {}}, {}),
        ({"type": "array", "prefixItems": [{}]}, [1]),
        ({"type": "array", "prefixItems": [{}], "minItems": 1}, [1]),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, 1),
        ({**TAGGED, "oneOf": [{"type": "object"}, *TAGGED["oneOf"]]}, {"kind": "d"}),
        ({**TAGGED, "oneOf": [*TAGGED["oneOf"], TAGGED["oneOf"][0]]}, {"kind": "b"}),
        (TAGGED, {"n": 1}),
        ({"anyOf": [False, {}]}, 1),
        ({"$ref": "#/$defs/Nowhere"}, 1),
        ({"$id": "urn:x", "$defs": {"A": {}}, "$ref": "#/$defs/A"}, 1),
        ({"type": "unknown"}, 1),
        ({"type": "array", "items": {"enum": []}}, []),
        ({"type": "integer"}, 1.0),
        ({"type": "number"}, math.nan),
    ],
)
def test_where_it_is_not_sure_it_says_no(schema: Any, value: Any):
    """Then the full validation decides."""
    assert quick_check(schema)(value) is False


def test_a_value_that_is_too_deep_is_left_to_others():
    """It says no, and does not fail."""
    deep: Any = {}
    for _ in range(2000):
        deep = {"next": deep}
    assert quick_check(TREE)(deep) is False


class Color(enum.Enum):
    RED = "red"


class Leaf(BaseModel):
    kind: Literal["leaf"] = "leaf"
    n: Annotated[int, Field(ge=0)] = 0
    when: dt.date | None = None


class Branch(BaseModel):
    kind: Literal["branch"]
    leaves: list[Annotated[Leaf | Branch, Field(discriminator="kind")]] = []
    names: set[str] = set()
    pair: tuple[int, str] = (1, "a")
    sizes: dict[str, float] = {}
    color: Color | Literal["blue", 3] = Color.RED


_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.floats(allow_nan=False)
    | st.sampled_from(["leaf", "branch", "red", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "n", "when", "leaves", "names", "pair", "sizes", "color", "k", "a"]), inner
        )
    ),
    max_leaves=10,
)
_SCHEMAS = [
    Adapter(annotation).schema(mode)
    for annotation in (Branch, Leaf, list[Leaf | int], dict[str, Branch], set[int], tuple[int, Leaf])
    for mode in ("validation", "serialization")
] + [schema for schema, _, _ in CASES]


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(range(len(_SCHEMAS))), _data)
def test_it_never_says_yes_where_a_full_validation_says_no(index: int, value: Any):
    """Whatever the value is."""
    schema = _SCHEMAS[index]
    if quick_check(schema)(value):
        assert Draft202012Validator(schema).is_valid(value)
