"""Each step changes one thing about a document, wherever a schema stands in it, and leaves its argument alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from prowess.schemas import nodes, steps
from prowess.schemas.nodes import json_type
from prowess.schemas.refs import hoist_defs, prune_defs
from prowess.schemas.strict import to_strict
from prowess.schemas.walk import each_node

drop_property_names = each_node(nodes.drop_property_names)
drop_schema_keyword = each_node(nodes.drop_schema_keyword)
fill_items = each_node(nodes.fill_items)
oneof_as_anyof = each_node(nodes.oneof_as_anyof)
repeat_constraints = each_node(nodes.repeat_constraints)
tuple_as_array = each_node(nodes.tuple_as_array)

EVERY_STEP = {
    **{name: getattr(steps, name) for name in steps.__all__},
    **{name: each_node(getattr(nodes, name)) for name in nodes.__all__ if name != "json_type"},
    "hoist_defs": hoist_defs,
    "prune_defs": prune_defs,
    "to_strict": to_strict,
}

MAP: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "integer"}}
NAMED_LIKE_KEYWORDS: dict[str, Any] = {
    "type": "object",
    "properties": {
        name: {"type": "string"}
        for name in ("title", "default", "description", "const", "enum", "additionalProperties", "$schema", "oneOf")
    },
    "default": {"title": "t", "const": 1, "default": None, "additionalProperties": False, "oneOf": []},
}


@pytest.mark.parametrize("name", EVERY_STEP)
def test_no_step_changes_its_argument_or_loses_a_property(name: str) -> None:
    """O-12, O-37: properties called like keywords survive every step, and defaults are data."""
    step = EVERY_STEP[name]
    before = copy.deepcopy(NAMED_LIKE_KEYWORDS)

    result = step(NAMED_LIKE_KEYWORDS)

    assert before == NAMED_LIKE_KEYWORDS
    assert set(before["properties"]) == set(result["properties"])
    assert before["default"] == result["default"]


def test_titles_are_pruned_but_not_parameters_called_title() -> None:
    """The keyword goes, the property stays."""
    schema = {"title": "T", "properties": {"title": {"title": "Title", "type": "string"}}, "required": ["title"]}

    assert {"properties": {"title": {"type": "string"}}, "required": ["title"]} == steps.prune_titles(schema)


def test_the_name_of_the_dialect_is_dropped() -> None:
    """At the root and in what was embedded."""
    dialect = "https://json-schema.org/draft/2020-12/schema"

    assert {"items": {}} == drop_schema_keyword({"$schema": dialect, "items": {"$schema": dialect}})


def test_a_default_of_null_is_dropped_and_others_are_not() -> None:
    """False, zero and nothing to list are defaults like any other."""
    schema = {"properties": {name: {"default": held} for name, held in zip("abcd", (None, False, 0, []), strict=True)}}

    assert {"a": {}, "b": {"default": False}, "c": {"default": 0}, "d": {"default": []}} == (
        steps.drop_none_default(schema)["properties"]
    )


# Values


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param({"const": "chat", "type": "string"}, {"enum": ["chat"], "type": "string"}, id="O-4 one literal"),
        pytest.param({"const": "chat"}, {"enum": ["chat"], "type": "string"}, id="type is added"),
        pytest.param({"const": None}, {"enum": [None], "type": "null"}, id="null"),
        pytest.param({"const": True}, {"enum": [True], "type": "boolean"}, id="boolean, not integer"),
        pytest.param({"const": {"a": 1}}, {"enum": [{"a": 1}], "type": "object"}, id="object"),
        pytest.param({"const": []}, {"enum": [[]], "type": "array"}, id="array"),
        pytest.param({"enum": [1, 2.5]}, {"enum": [1, 2.5], "type": "number"}, id="both kinds of numbers"),
        pytest.param({"enum": [1, 2]}, {"enum": [1, 2], "type": "integer"}, id="integers"),
        pytest.param({"enum": [1, "a"]}, {"enum": [1, "a"]}, id="mixed"),
        pytest.param({"enum": []}, {"enum": []}, id="nothing allowed"),
        pytest.param({"type": "string"}, {"type": "string"}, id="neither"),
    ],
)
def test_constants_become_enums_with_a_type(node: dict[str, Any], expected: dict[str, Any]) -> None:
    """Gemini knows no `const`, and wants a type beside an `enum`."""
    assert expected == steps.const_as_enum(node)


def test_types_of_values_have_their_json_names() -> None:
    """A boolean is no integer, and a float is a number."""
    assert ["boolean", "integer", "number", "string", "array", "object", "null"] == [
        json_type(value) for value in (True, 1, 1.0, "", [], {}, None)
    ]


# Unions


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (
            {"oneOf": [{}], "discriminator": {"propertyName": "k"}, "description": "d"},
            {"anyOf": [{}], "description": "d"},
        ),
        ({"oneOf": [True], "anyOf": [{}]}, {"anyOf": [{}], "allOf": [{"anyOf": [True]}]}),
        ({"oneOf": [True], "anyOf": [{}], "allOf": [False]}, {"anyOf": [{}], "allOf": [False, {"anyOf": [True]}]}),
        ({"anyOf": [{}], "discriminator": {}}, {"anyOf": [{}]}),
    ],
    ids=["alone", "beside anyOf", "beside anyOf and allOf", "discriminator only"],
)
def test_exclusive_unions_become_plain_ones(node: dict[str, Any], expected: dict[str, Any]) -> None:
    """Both unions of a node still hold."""
    assert expected == oneof_as_anyof(node)


# Arrays

INT = {"type": "integer"}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(
            {"prefixItems": [INT, {"type": "string"}], "minItems": 2, "maxItems": 2},
            {"items": {}, "minItems": 2, "maxItems": 2, "description": "in order: integer, string"},
            id="different positions",
        ),
        pytest.param(
            {"prefixItems": [INT, INT], "minItems": 2, "maxItems": 2, "description": "a pair"},
            {"items": INT, "minItems": 2, "maxItems": 2, "description": "a pair"},
            id="same positions",
        ),
        pytest.param({"prefixItems": [INT], "items": False}, {"items": INT, "maxItems": 1}, id="closed"),
        pytest.param(
            {"prefixItems": [INT, INT], "items": False, "maxItems": 1},
            {"items": INT, "maxItems": 1},
            id="closed earlier",
        ),
        pytest.param({"prefixItems": [INT], "items": INT}, {"items": INT}, id="same rest"),
        pytest.param(
            {"prefixItems": [INT], "items": {"type": "string"}, "description": "a row"},
            {"items": {}, "description": "a row (in order: integer)"},
            id="other rest",
        ),
        pytest.param({"prefixItems": [INT]}, {"items": {}, "description": "in order: integer"}, id="open rest"),
        pytest.param(
            {"prefixItems": [True], "maxItems": 1},
            {"items": {}, "maxItems": 1, "description": "in order: anything"},
            id="anything",
        ),
        pytest.param(
            {
                "prefixItems": [
                    {"enum": ["a", 1]},
                    {"anyOf": [INT, INT, {"type": ["string", "null"]}]},
                    {"type": "string", "format": "date"},
                    {},
                ],
                "maxItems": 4,
            },
            {
                "items": {},
                "maxItems": 4,
                "description": 'in order: "a" or 1, integer or string or null, date, anything',
            },
            id="in words",
        ),
        pytest.param(
            {"prefixItems": [{**INT, "description": "x"}, {**INT, "description": "y"}], "maxItems": 2},
            {"items": INT, "maxItems": 2, "description": "in order: integer (x), integer (y)"},
            id="with names",
        ),
        pytest.param(
            {
                "prefixItems": [
                    {"type": "string", "format": "date", "description": "day"},
                    {"type": "string", "format": "date", "description": "day (format date)"},
                    INT,
                ],
                "maxItems": 3,
            },
            {"items": {}, "maxItems": 3, "description": "in order: date (day), string (day (format date)), integer"},
            id="with descriptions",
        ),
        pytest.param({"items": INT}, {"items": INT}, id="no tuple"),
    ],
)
def test_tuples_become_arrays(node: dict[str, Any], expected: dict[str, Any]) -> None:
    """VS Code drops a tool whose array has no `items`; the description says what the positions were."""
    array = {"type": "array"}

    assert {**array, **expected} == tuple_as_array({**array, **node})


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": ["array", "null"]}, {"type": ["array", "null"], "items": {}}),
        ({"type": "array", "items": True}, {"type": "array", "items": {}}),
        ({"type": "array", "items": False}, {"type": "array", "items": {}, "maxItems": 0}),
        (
            {"type": "array", "items": False, "prefixItems": [{}]},
            {"type": "array", "items": False, "prefixItems": [{}]},
        ),
        ({"type": "array", "items": INT}, {"type": "array", "items": INT}),
        ({"type": "object"}, {"type": "object"}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({}, {}),
    ],
)
def test_arrays_say_what_they_hold(node: dict[str, Any], expected: dict[str, Any]) -> None:
    """Clients expect `items` to be there, and to be a schema."""
    assert expected == fill_items(node)


# Objects


def test_opening_keeps_schemas_for_undeclared_properties() -> None:
    """A bare yes or no goes; the type of a map's values stays."""
    schema = {"additionalProperties": False, "properties": {"a": {"additionalProperties": True}, "m": MAP}}

    assert {"properties": {"a": {}, "m": MAP}} == steps.open_objects(schema)
    assert {"additionalProperties": False, "properties": {"a": {}, "m": MAP}} == steps.open_nested_objects(schema)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param(
            {"properties": {"a": {"properties": {}}}},
            {"properties": {"a": {"properties": {}, "additionalProperties": False}}, "additionalProperties": False},
            id="nested",
        ),
        pytest.param(MAP, MAP, id="map"),
        pytest.param({"type": "object"}, {"type": "object"}, id="nothing declared"),
        pytest.param(
            {"properties": {}, "additionalProperties": True},
            {"properties": {}, "additionalProperties": True},
            id="open",
        ),
        pytest.param(
            {"properties": {}, "unevaluatedProperties": False},
            {"properties": {}, "unevaluatedProperties": False},
            id="unevaluated",
        ),
        pytest.param(
            {"properties": {}, "allOf": [{"properties": {}}]},
            {"properties": {}, "allOf": [{"properties": {}}]},
            id="parts",
        ),
        pytest.param(
            {"properties": {}, "anyOf": [{"properties": {}}]},
            {"properties": {}, "anyOf": [{"properties": {}}]},
            id="choice of parts",
        ),
        pytest.param(
            {"anyOf": [{"properties": {}}, {"type": "null"}]},
            {"anyOf": [{"properties": {}, "additionalProperties": False}, {"type": "null"}]},
            id="choice",
        ),
    ],
)
def test_closing_closes_what_declares_its_properties(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    """An object composed of parts stays open: closing a part would forbid the others."""
    assert expected == steps.close_objects(schema)


def test_undeclared_properties_can_go_unmentioned() -> None:
    """Also the schema of a map's values: omni's table has plain objects."""
    assert {"properties": {"m": {"type": "object"}}} == steps.drop_additional(
        {"properties": {"m": MAP}, "additionalProperties": False}
    )


def test_an_enumeration_can_do_without_its_default() -> None:
    """Other defaults stay."""
    schema = {"properties": {"a": {"enum": ["x"], "default": "x"}, "b": {"default": 1}}}

    assert {"properties": {"a": {"enum": ["x"]}, "b": {"default": 1}}} == steps.drop_enum_default(schema)


def test_the_root_can_be_made_an_object() -> None:
    """What it says already, it keeps saying."""
    assert {"type": "object", "properties": {}} == steps.object_root({})
    assert {"type": "object", "properties": {"a": {}}} == steps.object_root({"properties": {"a": {}}})


def test_the_root_can_list_what_is_required() -> None:
    """M-2, M-3: an empty list is a list, too."""
    assert {"required": []} == steps.list_required({})
    assert {"required": ["a"]} == steps.list_required({"required": ["a"]})


def test_parameters_without_description_are_described_by_name() -> None:
    """O-2: only at the root, and an author's words stay."""
    schema = {"properties": {"a": {"properties": {"in": {}}}, "b": {"description": "mine"}, "c": True}}

    assert {
        "a": {"properties": {"in": {}}, "description": "Parameter a"},
        "b": {"description": "mine"},
        "c": True,
    } == steps.describe_parameters(schema)["properties"]
    assert {"type": "object"} == steps.describe_parameters({"type": "object"})


# Names of properties


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        ({"pattern": "a"}, True),
        ({"type": "string"}, True),
        ({"type": ["string", "integer"]}, True),
        ({"enum": ["a", 1]}, True),
        ({"$ref": "#/$defs/Color"}, True),
        ({"$ref": "#/$defs/Nope"}, True),
        ({"type": "integer"}, False),
        ({"type": ["integer"]}, False),
        ({"enum": [1, 2]}, False),
        ({"$ref": "#/$defs/Level"}, False),
        (True, True),
    ],
)
def test_rules_no_name_can_meet_are_dropped(names: Any, kept: bool) -> None:
    """The keys of a JSON object are strings, also those of a dict with an integer enum as keys."""
    definitions = {"Color": {"enum": ["red"], "type": "string"}, "Level": {"enum": [1, 2], "type": "integer"}}
    schema = {"properties": {"m": {"type": "object", "propertyNames": names}}, "$defs": definitions}

    assert kept is ("propertyNames" in steps.string_names(schema)["properties"]["m"])


@pytest.mark.parametrize(
    ("names", "note"),
    [({"enum": ["red", "green"]}, '"red" or "green"'), ({"format": "date"}, "date"), ({}, "anything")],
)
def test_rules_for_names_become_prose(names: dict[str, Any], note: str) -> None:
    """Gemini answers 400 to a request with a single `propertyNames` in it."""
    assert {"type": "object", "description": f"keys: {note}"} == drop_property_names(
        {"type": "object", "propertyNames": names}
    )


# Constraints in prose


@pytest.mark.parametrize(
    ("node", "note"),
    [
        ({"minimum": 0, "maximum": 9.5}, "minimum 0; maximum 9.5"),
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.1}, "above 0; below 1; multiple of 0.1"),
        ({"minLength": 1, "maxLength": 20}, "at least 1 character; at most 20 characters"),
        ({"minItems": 1, "maxItems": 2}, "at least 1 item; at most 2 items"),
        ({"pattern": "^a$", "format": "email"}, "pattern ^a$; format email"),
        ({"default": {"a": "ä"}}, 'default {"a": "ä"}'),
        ({"default": "x" * 200}, 'default "' + "x" * 98 + "…"),
    ],
)
def test_constraints_are_repeated_in_the_description(node: dict[str, Any], note: str) -> None:
    """Some models are shown no keywords but the type; they read the description."""
    assert {**node, "description": note} == repeat_constraints(node)
    assert {**node, "description": f"Text. ({note})"} == repeat_constraints({**node, "description": "Text."})


@pytest.mark.parametrize(
    "schema",
    [
        {"minimum": 0},
        {"minimum": 0, "description": "a"},
        {"properties": {"p": {"anyOf": [{"maxLength": 5}, {"type": "null"}], "default": 7}}},
        {"pattern": "x" * 3000, "description": "y" * 3000},
        {"minimum": 0, "description": "y" * 1024},
        {"type": "string", "description": "untouched" * 300},
    ],
)
def test_repeating_constraints_twice_changes_nothing(schema: dict[str, Any]) -> None:
    """The step is idempotent, also where the description had to be cut."""
    once = repeat_constraints(schema)

    assert once == repeat_constraints(once)


@pytest.mark.parametrize("length", [1000, 1010, 1024, 5000])
def test_descriptions_with_constraints_fit_what_clients_show(length: int) -> None:
    """At most 1,024 characters, of which the constraints are the last to be cut."""
    result = repeat_constraints({"minimum": 0, "pattern": "p" * 2000, "description": "d" * length})

    assert 1024 >= len(result["description"])
    assert result["description"].startswith("d" * 500)
    assert "(minimum 0; pattern ppp" in result["description"]


# Supersets stay supersets


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"const": 1}, 1),
        ({"type": "array", "prefixItems": [INT, {"type": "string"}], "items": False, "minItems": 2}, [1, "a"]),
        ({"type": "array", "prefixItems": [INT]}, [1, "anything"]),
        ({"type": "array", "items": False}, []),
        ({"oneOf": [INT, {"type": "string"}], "discriminator": {}}, "a"),
        ({"type": "object", "propertyNames": {"enum": ["a"]}, "additionalProperties": False}, {}),
    ],
)
def test_what_was_valid_stays_valid(schema: dict[str, Any], value: Any) -> None:
    """Steps for narrow clients only ever widen a schema."""
    assert Draft202012Validator(schema).is_valid(value)
    for step in (
        *(steps.const_as_enum, oneof_as_anyof, tuple_as_array, fill_items, steps.open_objects),
        *(drop_property_names, steps.string_names, repeat_constraints, steps.drop_additional),
    ):
        schema = step(schema)
        assert Draft202012Validator(schema).is_valid(value)
