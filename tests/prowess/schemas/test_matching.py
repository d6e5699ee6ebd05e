"""A small matcher that agrees with a full validator wherever both look."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from prowess.schemas.matching import has_type, identity, leaf_problems, pattern_matches, same

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=3),
    max_leaves=3,
)
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
SIZES = st.integers(0, 3)
LEAVES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), unique=True, min_size=1),
        "enum": st.lists(VALUES, max_size=3),
        "const": VALUES,
        "minimum": st.integers(-3, 3),
        "exclusiveMinimum": st.floats(-3, 3),
        "maximum": st.floats(-3, 3),
        "exclusiveMaximum": st.integers(-3, 3),
        "multipleOf": st.sampled_from([1, 2, 0.5, 2.0]),
        "minLength": SIZES,
        "maxLength": SIZES,
        "pattern": st.sampled_from(["a", "^b", "a$"]),
        "minItems": SIZES,
        "maxItems": SIZES,
        "minProperties": SIZES,
        "maxProperties": SIZES,
        "description": st.just("no constraint"),
    },
)


@settings(max_examples=500, deadline=None)
@given(LEAVES, VALUES)
def test_a_leaf_is_judged_as_a_validator_judges_it(schema: dict[str, Any], value: Any) -> None:
    """As many problems as keywords broken."""
    expected = sum(1 for _ in Draft202012Validator(schema).iter_errors(value))

    assert expected == leaf_problems(schema, value)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [(1, 1.0, True), (1, True, False), (0, False, False), ([1], [1], True), ([1], [True], False)],
)
def test_equality_is_that_of_json(one: Any, other: Any, equal: bool) -> None:
    """Numbers are equal by value, and a boolean is never a number."""
    assert equal is same(one, other)


def test_numbers_beyond_all_floats_break_nothing() -> None:
    """JSON has integers of any size; whether one is a multiple of a fraction is for validation to say."""
    assert 0 == leaf_problems({"multipleOf": 0.5, "minimum": 0.5}, 10**400)
    assert 1 == leaf_problems({"multipleOf": 3}, 10**400)


def test_unknown_types_have_no_values() -> None:
    """A type nobody knows matches nothing."""
    assert not has_type("x", "text")


def test_a_pattern_python_cannot_read_is_given_the_benefit_of_the_doubt() -> None:
    """Pydantic writes the patterns of another engine."""
    assert pattern_matches(r"\p{L}+", "anything")
    assert pattern_matches("^a", "ab")
    assert not pattern_matches("^b", "ab")


def test_what_is_no_json_has_no_identity() -> None:
    with pytest.raises(TypeError, match="not JSON data"):
        identity([object()])


def test_float_without_a_fraction_is_an_integer() -> None:
    """As JSON Schema has it; `True` is no number."""
    assert has_type(1.0, "integer")
    assert not has_type(1.5, "integer")
    assert not has_type(True, "integer")


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^(a+)+$", "a" * 50 + "!", False),
        (r"^(\w|\w\w)*$", "a" * 50 + "!", False),
        ("(x+x+)+y", "x" * 50, False),
        ("^a(?!b)", "ac", True),
        (r"(a)\1", "xaa", True),
        (r"(a)\1", "xab", False),
        ("[", "anything", True),
    ],
)
def test_a_pattern_is_matched_in_linear_time(pattern: str, text: str, found: bool) -> None:
    """With Python's matcher the first three would take years, and hold the interpreter. It is left what only it knows."""
    assert found is pattern_matches(pattern, text)
