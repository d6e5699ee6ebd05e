"""Schemas that no value fits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from prowess.schemas.possible import Impossible

REF = {"$ref": "#/$defs/A"}
NOTHING: dict[str, Any] = {"enum": []}


def needing(name: str) -> dict[str, Any]:
    """An object with one required property."""
    return {"type": "object", "properties": {"x": {"$ref": f"#/$defs/{name}"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("reason", "schema"),
    [
        ("there is nothing to choose from", NOTHING),
        ("there is nothing to choose from", {"anyOf": []}),
        ("there is nothing to choose from", {"oneOf": [NOTHING, NOTHING]}),
        ("there is nothing to choose from", {"type": "object", "properties": {"x": NOTHING}, "required": ["x"]}),
        ("there is nothing to choose from", {"type": "array", "items": NOTHING, "minItems": 1}),
        ("there is nothing to choose from", {"type": "array", "prefixItems": [{}, NOTHING], "minItems": 2}),
        ("minLength 3 is more than maxLength 2", {"type": "string", "minLength": 3, "maxLength": 2}),
        ("minItems 1 is more than maxItems 0", {"type": "array", "minItems": 1, "maxItems": 0}),
        ("no integer is within minimum 5, maximum 3", {"type": "integer", "minimum": 5, "maximum": 3}),
        ("no integer is within exclusiveMinimum 1, maximum 1.5", {"type": "integer", "exclusiveMinimum": 1, "maximum": 1.5}),
        ("no number is within exclusiveMinimum 1, maximum 1", {"type": "number", "exclusiveMinimum": 1, "maximum": 1}),
        ("each A needs another A, without end", {**REF, "$defs": {"A": needing("A")}}),
        ("each A needs another A, without end", {**REF, "$defs": {"A": needing("B"), "B": needing("A")}}),
        ("there is nothing to choose from", {**REF, "$defs": {"A": needing("B"), "B": NOTHING}}),
    ],
)  # fmt: skip
def test_no_value_fits(reason: str, schema: Any):
    """The reason is the innermost one."""
    assert reason == Impossible(schema).why(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"enum": [None]},
        {"anyOf": [NOTHING, {"type": "null"}]},
        {"type": "object", "properties": {"x": NOTHING}},
        {"type": "object", "required": ["x"]},
        {"type": "array", "items": NOTHING},
        {"type": "array", "items": False},
        {"type": "array", "prefixItems": [{}], "minItems": 2},
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 3},
        {"type": "number", "minimum": 1, "maximum": 1},
        {"type": "number", "exclusiveMinimum": 1},
        {"type": "string", "minLength": 3, "maxLength": 3, "minimum": 5, "maximum": 3},
        {"$ref": "#"},
        {**REF, "$defs": {"A": {"type": "array", "items": REF}}},
        {**REF, "$defs": {"A": {"anyOf": [needing("A"), {"type": "null"}]}}},
        {**REF, "$defs": {"A": needing("B"), "B": needing("C"), "C": {}}},
    ],
)
def test_some_value_fits(schema: Any):
    assert "" == Impossible(schema).why(schema)


BOUNDS = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional=dict.fromkeys(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"), st.sampled_from([0, 0.5, 1, 1.5, 2])),
)  # fmt: skip


@given(BOUNDS)
def test_bounds_exclude_each_other_exactly_if_no_number_fits(schema: dict[str, Any]):
    """Quarters are enough to find a number between halves."""
    validator = Draft202012Validator(schema)
    fits = any(validator.is_valid(number) for number in [*range(-1, 4), *(quarter / 4 for quarter in range(-4, 16))])
    assert fits == (not Impossible(schema).why(schema))
