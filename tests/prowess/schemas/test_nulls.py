"""Null leaves declared properties, in schemas and in values alike, and nothing else."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from prowess.schemas.nulls import is_nullable, omit_nulls, restore_nulls, strip_null
from prowess.schemas.refs import inline_refs

NULL: dict[str, Any] = {"type": "null"}
INT: dict[str, Any] = {"type": "integer"}
MAYBE: dict[str, Any] = {"anyOf": [INT, NULL]}


def an_object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    node: dict[str, Any] = {"type": "object", "properties": properties}
    return {**node, "required": list(required)} if required else node


# Schemas


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param({"type": ["string", "null"]}, {"type": "string"}, id="U-26 type array"),
        pytest.param(MAYBE, INT, id="U-26 anyOf"),
        pytest.param({"type": ["string", "integer", "null"]}, {"type": ["string", "integer"]}, id="several types"),
        pytest.param({"oneOf": [NULL, INT]}, INT, id="oneOf"),
        pytest.param(
            {"anyOf": [INT, {"type": "string"}, NULL]}, {"anyOf": [INT, {"type": "string"}]}, id="larger union"
        ),
        pytest.param({"enum": ["a", None]}, {"enum": ["a"]}, id="enum"),
        pytest.param(
            {"enum": ["a", None], "type": ["string", "null"]}, {"enum": ["a"], "type": "string"}, id="typed enum"
        ),
        pytest.param({"anyOf": [INT, {"const": None}]}, INT, id="constant"),
        pytest.param({"anyOf": [INT, {"enum": [None]}]}, INT, id="enum of null"),
        pytest.param({"anyOf": [INT, {"type": ["null"]}]}, INT, id="type array of null"),
        pytest.param({"anyOf": [MAYBE, {"type": "string"}]}, {"anyOf": [INT, {"type": "string"}]}, id="nested union"),
        pytest.param({"anyOf": [INT, {"anyOf": [NULL]}]}, INT, id="union of nothing but null"),
        pytest.param({"allOf": [MAYBE], "description": "d"}, {"allOf": [INT], "description": "d"}, id="allOf"),
        pytest.param({"anyOf": [INT, NULL], "default": None}, INT, id="null default"),
        pytest.param({"anyOf": [INT, NULL], "default": 5}, {"type": "integer", "default": 5}, id="other default"),
        pytest.param({**MAYBE, "description": "d"}, {"type": "integer", "description": "d"}, id="description"),
        pytest.param({"anyOf": [True, NULL]}, {"anyOf": [True]}, id="anything or null"),
        pytest.param(
            {"anyOf": [{"minimum": 1}, NULL], "minimum": 2},
            {"allOf": [{"minimum": 1}, {"minimum": 2}]},
            id="a constraint beside the union",
        ),
        pytest.param(NULL, NULL, id="nothing but null"),
        pytest.param({"const": None, "default": None}, {"const": None}, id="constant null"),
    ],
)
def test_null_leaves_a_declared_property(held: dict[str, Any], expected: dict[str, Any]) -> None:
    """Its schema loses the choice, and it is no longer required; what can only be null stays what it is."""
    schema = an_object(("p", "q"), p=held, q=INT)
    before = copy.deepcopy(schema)

    assert an_object(("q",), p=expected, q=INT) == strip_null(schema)
    assert before == schema


def test_an_object_with_no_required_property_left_lists_none() -> None:
    """An empty list says nothing."""
    assert an_object(p=INT) == strip_null(an_object(("p",), p=MAYBE))


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "array", "items": MAYBE}, id="items"),
        pytest.param({"type": "array", "prefixItems": [MAYBE, NULL]}, id="tuple positions"),
        pytest.param({"type": "object", "additionalProperties": MAYBE}, id="open map"),
        pytest.param({"type": "object", "patternProperties": {"a": MAYBE}}, id="pattern map"),
        pytest.param(MAYBE, id="root"),
        pytest.param(an_object(("p",), p={}), id="anything at all"),
        pytest.param(an_object(("p",), p=True), id="a bare yes"),
        pytest.param(an_object(("p",), p={"type": "string", "default": "null"}), id="a string called null"),
        pytest.param(an_object(("p",), p={"anyOf": [INT, NULL], "type": "integer"}), id="null taken back"),
        pytest.param({**an_object(("p",), p=MAYBE), "minProperties": 1}, id="an object that counts its keys"),
        pytest.param({**an_object(("p",), p=MAYBE), "if": {"required": ["p"]}}, id="an object that asks for its keys"),
        pytest.param({**an_object(), "default": {"p": None}}, id="data"),
    ],
)
def test_null_stays_everywhere_else(schema: dict[str, Any]) -> None:
    """Dropping it there would change the data, or its meaning."""
    assert schema == strip_null(schema)


def test_null_leaves_nested_properties() -> None:
    """Properties inside arrays, maps, unions and definitions are declared, too."""
    deep = an_object(("p",), p=MAYBE)
    stripped = an_object(p=INT)
    schema = {"items": deep, "anyOf": [deep], "additionalProperties": deep, "$defs": {"D": deep}}

    assert {"items": stripped, "anyOf": [stripped], "additionalProperties": stripped, "$defs": {"D": stripped}} == (
        strip_null(schema)
    )


def test_null_leaves_a_property_that_refers_to_it() -> None:
    """A definition keeps its null for arrays, and has a twin without one for properties."""
    schema = {
        **an_object(
            ("a", "b", "c"),
            a={"$ref": "#/$defs/M"},
            b={"items": {"$ref": "#/$defs/M"}},
            c={"anyOf": [{"$ref": "#/$defs/N"}, INT]},
        ),
        "$defs": {"M": {**MAYBE, "description": "perhaps"}, "N": NULL},
    }

    assert an_object(
        ("b",), a={"type": "integer", "description": "perhaps"}, b={"items": {**MAYBE, "description": "perhaps"}}, c=INT
    ) == inline_refs(strip_null(schema))


def test_null_leaves_recursive_definitions() -> None:
    """Also one that is nothing but a choice between itself, null and something else."""
    schema = {
        **an_object(("t", "json"), t={"$ref": "#/$defs/T"}, json={"$ref": "#/$defs/J"}),
        "$defs": {
            "T": {"anyOf": [an_object(("t",), t={"$ref": "#/$defs/T"}), NULL]},
            "J": {"anyOf": [{"$ref": "#/$defs/J"}, {"items": {"$ref": "#/$defs/J"}}, NULL]},
        },
    }

    stripped = strip_null(schema)
    result = inline_refs(stripped, depth=2)

    assert {**stripped, "$defs": None} == {**strip_null(stripped), "$defs": None}
    assert "required" not in result
    assert an_object(t={"type": "object"}) == result["properties"]["t"]["properties"]["t"]
    assert NULL in result["properties"]["json"]["anyOf"][1]["items"]["anyOf"]
    assert NULL not in result["properties"]["json"]["anyOf"]


def test_a_reference_to_nothing_names_no_null() -> None:
    """Nor does one that only leads back to itself."""
    document = {"$defs": {"Loop": {"$ref": "#/$defs/Loop"}}}

    assert not is_nullable(document, {"$ref": "#/$defs/Nope"})
    assert not is_nullable(document, {"$ref": "#/$defs/Loop"})
    assert not is_nullable(document, None)
    assert {**document, **an_object(p={"$ref": "#/$defs/Loop"})} == strip_null(
        {**document, **an_object(p={"anyOf": [{"$ref": "#/$defs/Loop"}, NULL]})}
    )


def test_the_root_loses_null_when_asked() -> None:
    """A result that may be nothing at all: its definitions stay at the root."""
    schema = {"anyOf": [{"$ref": "#/$defs/A"}, NULL], "$defs": {"A": an_object(("p",), p=MAYBE)}}

    assert {"$ref": "#/$defs/A", "$defs": {"A": an_object(p=INT)}} == strip_null(schema, root=True)
    assert INT == strip_null(INT, root=True)


# Values


@pytest.mark.parametrize("_case", [pytest.param(None, id="U-30 none is absent, not null")])
def test_nulls_of_declared_properties_are_omitted(_case: None) -> None:
    """And only those: arrays, tuples, maps and properties of any type keep theirs."""
    schema = an_object(
        ("a", "any"),
        a=MAYBE,
        any={},
        items={"items": MAYBE},
        pair={"prefixItems": [MAYBE, an_object(a=MAYBE)]},
        open={"additionalProperties": MAYBE},
        pattern={"patternProperties": {"^x": an_object(a=MAYBE)}},
        nested=an_object(("a",), a=MAYBE),
        counted={**an_object(a=MAYBE), "minProperties": 1},
    )
    value = {
        "a": None,
        "any": None,
        "items": [None, 1],
        "pair": [None, {"a": None}, None],
        "open": {"a": None},
        "pattern": {"x": {"a": None}, "y": {"a": None}},
        "nested": {"a": None, "undeclared": None},
        "counted": {"a": None},
    }
    before = copy.deepcopy(value)

    assert {
        "any": None,
        "items": [None, 1],
        "pair": [None, {}, None],
        "open": {"a": None},
        "pattern": {"x": {}, "y": {"a": None}},
        "nested": {"undeclared": None},
        "counted": {"a": None},
    } == omit_nulls(schema, value)
    assert before == value


def test_a_value_without_null_is_the_same_object() -> None:
    """Nothing is copied without need."""
    value = {"a": [{"b": 1}]}

    assert value is omit_nulls(an_object(a={}), value)


def tagged(tag: str, **properties: Any) -> dict[str, Any]:
    return an_object(("kind", *properties), kind={"const": tag}, **properties)


UNIONS = [
    pytest.param({"oneOf": [tagged("a", x=MAYBE), tagged("b", x={})]}, id="tag"),
    pytest.param({"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}, id="reference"),
    pytest.param({"anyOf": [NULL, {"anyOf": [tagged("b", x={}), tagged("a", x=MAYBE)]}]}, id="nested"),
    pytest.param({"allOf": [{"oneOf": [tagged("b", x={}), tagged("a", x=MAYBE)]}]}, id="allOf"),
]


@pytest.mark.parametrize("union", UNIONS)
def test_the_branch_of_a_union_decides(union: dict[str, Any]) -> None:
    """Which branch a value took is found by matching, not by position."""
    schema = {"items": union, "$defs": {"A": tagged("a", x=MAYBE), "B": tagged("b", x={})}}

    assert [{"kind": "a"}, {"kind": "b", "x": None}] == omit_nulls(
        schema, [{"kind": "a", "x": None}, {"kind": "b", "x": None}]
    )
    assert [{"kind": "a", "x": None}, {"kind": "b"}] == restore_nulls(schema, [{"kind": "a"}, {"kind": "b"}])


def test_missing_nulls_are_restored_at_any_depth() -> None:
    """Only where the property is required and may be null; what is optional has a default of its own."""
    schema = an_object(
        ("a", "b", "any"),
        a=MAYBE,
        b=INT,
        any={},
        optional=MAYBE,
        items={"items": an_object(("a",), a=MAYBE)},
        open={"additionalProperties": an_object(("a",), a={"$ref": "#/$defs/M"})},
    )
    value = {"items": [{}, {"a": 1}], "open": {"k": {}}}
    before = copy.deepcopy(value)

    assert {
        "items": [{"a": None}, {"a": 1}],
        "open": {"k": {"a": None}},
        "a": None,
    } == restore_nulls({**schema, "$defs": {"M": MAYBE}}, value)
    assert before == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"y": 1}, {"y": 1, "z": None}),
        ({"x": 1}, {"x": 1}),
        ({"z": 2}, {"z": 2}),
        ({"y": "not of the second branch, but no problem to the first"},) * 2,
        ("neither", "neither"),
    ],
)
def test_the_branch_that_knows_the_keys_is_meant(value: Any, expected: Any) -> None:
    """Among branches that would fit, the one that declares what was sent; then the one that needs the fewest nulls."""
    schema = {"anyOf": [an_object(x=INT), an_object(("y", "z"), y=INT, z=MAYBE)]}

    assert expected == restore_nulls(schema, value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (False, {"a": 1}),
        ({"$ref": "#"}, {"a": 1}),
        ({"anyOf": []}, {"a": 1}),
        ({"anyOf": [{"type": "string"}]}, {"a": 1}),
        ({"additionalProperties": False, "properties": {}}, {"a": 1}),
        ({"items": INT}, ["x"]),
        (an_object(("p",), p=INT), {}),
    ],
)
def test_what_fits_nothing_is_left_to_validation(schema: Any, value: Any) -> None:
    """Restoring never fails and never guesses."""
    assert value == restore_nulls(schema, value)


def test_a_union_of_recursive_types_takes_no_exponential_time() -> None:
    """Two branches that look alike at every level are each looked at once for each value."""
    either = {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}, {"$ref": "#/$defs/L"}]}
    leaf = an_object(("end", "n"), end=INT, n=MAYBE)
    branch = an_object(("left", "right"), left=either, right=either)
    schema = {**either, "$defs": {"A": branch, "B": {**branch, "description": "b"}, "L": leaf}}
    value: Any = {"end": 1}
    for _ in range(60):
        value = {"left": value, "right": {"end": 2}}

    restored = restore_nulls(schema, value)

    assert {"end": 2, "n": None} == restored["right"]
    for _ in range(60):
        restored = restored["left"]
    assert {"end": 1, "n": None} == restored


@pytest.mark.parametrize("depth", [10, 2 * sys.getrecursionlimit()])
def test_values_may_be_nested_deeper_than_calls(depth: int) -> None:
    """A long chain of records is data like any other."""
    schema = {"$ref": "#/$defs/N", "$defs": {"N": an_object(("next",), next={"anyOf": [{"$ref": "#/$defs/N"}, NULL]})}}
    with_null: Any = None
    without: Any = {}
    for _ in range(depth):
        with_null = {"next": with_null}
    for _ in range(depth - 1):
        without = {"next": without}

    assert flattened(without) == flattened(omit_nulls(schema, with_null))
    assert flattened(with_null) == flattened(restore_nulls(schema, without))


def flattened(value: Any) -> list[Any]:
    """The keys of each record of a chain, and what it ends in: deep values cannot be compared directly."""
    records = []
    while value:
        records.append(list(value))
        value = value.get("next", {})
    return [*records, value]


def test_schema_and_value_agree() -> None:
    """What is left of a value meets what is left of its schema."""
    schema = an_object(("a", "b"), a=MAYBE, b={"items": {"oneOf": [tagged("a", x=MAYBE), tagged("b", x=MAYBE)]}})
    value = {"a": None, "b": [{"kind": "b", "x": None}]}

    assert Draft202012Validator(schema).is_valid(value)
    assert Draft202012Validator(strip_null(schema)).is_valid(omit_nulls(schema, value))
