"""Differences between two catalogs, and what they mean for callers."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from prowess.contracts.contract import Contract, Hints, OutputShape, Policies
from prowess.schemas.nulls import strip_null
from prowess_host.review.compare import Difference, compare
from prowess_host.review.diff import changes, in_words

INT = {"type": "integer"}
TEXT = {"type": "string"}
NULL = {"type": "null"}
MAYBE = {"anyOf": [INT, NULL]}


def takes(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    """The arguments of a command."""
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def gives(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    """A structure, as pydantic writes it."""
    return {"type": "object", "properties": properties, "required": list(required)}


def contract(input_schema: Any = None, output: Any = None, command: str = "shop.find", **more: Any) -> Contract:
    skill, _, name = command.rpartition(".")
    fields = {
        "id": command,
        "wire_name": command.replace(".", "_"),
        "skill": skill,
        "name": name,
        "description": "d",
        "input_schema": input_schema or takes(),
        "output": output if isinstance(output, OutputShape) else OutputShape(output),
    }
    return Contract(**{**fields, **more})


def told(before: Contract, after: Contract, profile: str = "portable") -> list[tuple[str, bool, str]]:
    return [(item.kind, item.breaking, item.message) for item in compare([before], [after], profile)]


INPUTS: list[tuple[str, Any, Any, str, bool]] = [
    ("parameter removed", takes(a=INT, b=INT), takes(b=INT), "parameter a: removed", True),
    ("parameter newly required", takes(a=INT), takes(("a",), a=INT), "parameter a: now required", True),
    ("required parameter added", takes(), takes(("a",), a=INT), "parameter a: added, required: integer", True),
    ("optional parameter added", takes(), takes(a=INT), "parameter a: added, optional: integer", False),
    ("parameter no longer required", takes(("a",), a=INT), takes(a=INT), "parameter a: no longer required", False),
    ("type narrowed", takes(a={"type": "number"}), takes(a=INT), "parameter a: number → integer", True),
    ("type widened", takes(a=INT), takes(a={"anyOf": [INT, TEXT]}), "parameter a: integer → integer | string", False),
    ("type replaced", takes(a=INT), takes(a=TEXT), "parameter a: integer → string", True),
    ("enum value removed", takes(a={"enum": ["x", "y"]}), takes(a={"enum": ["x"]}), 'parameter a: no longer "y"', True),
    ("enum value added", takes(a={"const": "x"}), takes(a={"enum": ["x", "y"]}), 'parameter a: also "y"', False),
    ("enum reordered", takes(a={"enum": [1, 2]}), takes(a={"enum": [2, 1]}), "parameter a: the order of the values changed", False),
    ("null refused", takes(a=MAYBE), takes(a=INT), "parameter a: no longer null", True),
    ("null taken", takes(a=INT), takes(a=MAYBE), "parameter a: may be null", False),
    ("null taken among all", takes(a=MAYBE), takes(a={}), "parameter a: integer → anything", False),
    ("limit tightened", takes(a={**INT, "maximum": 9}), takes(a={**INT, "maximum": 5}), "parameter a: integer, <= 9 → integer, <= 5", True),
    ("format demanded", takes(a=TEXT), takes(a={**TEXT, "format": "date"}), "parameter a: string → string (date)", True),
    ("extras refused", {"type": "object", "properties": {}}, takes(), "the arguments: other properties: anything → nothing", True),
    ("extras taken", takes(), {"type": "object", "properties": {}}, "the arguments: other properties: nothing → anything", False),
    ("parameter named that could be anything", {"type": "object"}, {"type": "object", "properties": {"a": INT}}, "parameter a: added, optional: integer", True),
    ("parameter that is silently dropped", {"type": "object", "properties": {"a": INT}}, {"type": "object", "properties": {}}, "parameter a: removed", True),
    ("default changed", takes(a={**INT, "default": 1}), takes(a={**INT, "default": 2}), "parameter a: default 1 → 2", False),
    ("description added", takes(a=INT), takes(a={**INT, "description": "x"}), "parameter a: described", False),
    ("description removed", takes(a={**INT, "description": "x"}), takes(a=INT), "parameter a: no longer described", False),
    ("description changed", takes(a={**INT, "description": "x"}), takes(a={**INT, "description": "y"}), "parameter a: the description changed", False),
    ("items narrowed", takes(a={"type": "array", "items": MAYBE}), takes(a={"type": "array", "items": INT}), "parameter a[]: no longer null", True),
    ("fewer items", takes(a={"type": "array", "items": INT}), takes(a={"type": "array", "items": INT, "maxItems": 2}), "parameter a: array → array, at most 2 items", True),
    ("entries of a map", takes(a={"type": "object", "additionalProperties": INT}), takes(a={"type": "object", "additionalProperties": TEXT}), "parameter a{}: integer → string", True),
    ("deep inside", takes(a={"anyOf": [takes(b=INT), NULL]}), takes(a={"anyOf": [takes(b=TEXT), NULL]}), "parameter a.b: integer → string", True),
    ("tuple", takes(a={"type": "array", "prefixItems": [INT], "minItems": 1}), takes(a={"type": "array", "prefixItems": [TEXT], "minItems": 1}), "parameter a: [integer] → [string]", True),
    ("what words do not tell apart", takes(a={"not": INT}), takes(a={"not": TEXT}), "parameter a: anything → another anything", True),
    ("rules of the whole", {**takes(a=INT), "maxProperties": 1}, takes(a=INT), "the arguments: object, at most 1 entries → object", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "message", "breaking"), [row[1:] for row in INPUTS], ids=[r[0] for r in INPUTS]
)
def test_change_of_arguments_is_told_and_judged(before: Any, after: Any, message: str, breaking: bool) -> None:
    """What was taken must be taken still."""
    found = compare([contract(before)], [contract(after)])

    assert [(message, breaking)] == [(item.message, item.breaking) for item in found]
    assert breaking == (found[0].suggestion is not None)
    assert found[0].where.startswith("/inputSchema")


OUTPUTS: list[tuple[str, Any, Any, str, bool]] = [
    ("field removed", gives(a=INT, b=INT), gives(b=INT), "result.a: removed", True),
    ("field that may be missing", gives(("a",), a=INT), gives(a=INT), "result.a: no longer required", True),
    ("field that is always there", gives(a=INT), gives(("a",), a=INT), "result.a: now required", False),
    ("field added", gives(), gives(("a",), a=INT), "result.a: added, required: integer", False),
    ("field added to a closed structure", takes(), takes(a=INT), "result.a: added, optional: integer", True),
    ("type widened", gives(a=INT), gives(a={"type": "number"}), "result.a: integer → number", True),
    ("type narrowed", gives(a={"type": "number"}), gives(a=INT), "result.a: number → integer", False),
    ("may be null", gives(a=INT), gives(a=MAYBE), "result.a: may be null", True),
    ("never null", gives(a=MAYBE), gives(a=INT), "result.a: no longer null", False),
    ("value added", {"enum": [1]}, {"enum": [1, 2]}, "the result: also 2", True),
    ("items", {"type": "array", "items": INT}, {"type": "array", "items": TEXT}, "result[]: integer → string", True),
    ("declared", None, INT, "the result is declared: integer", False),
    ("no longer declared", INT, None, "the result is no longer declared; it was integer", True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "message", "breaking"), [row[1:] for row in OUTPUTS], ids=[r[0] for r in OUTPUTS]
)
def test_change_of_the_result_is_told_and_judged(before: Any, after: Any, message: str, breaking: bool) -> None:
    """What can come now must be what was promised."""
    found = compare([contract(output=before)], [contract(output=after)])

    assert [(message, breaking)] == [(item.message, item.breaking) for item in found]
    assert breaking == (found[0].suggestion is not None)
    assert found[0].where.startswith("/outputSchema")


def test_place_of_a_change_is_a_json_pointer() -> None:
    """It leads to the place in the tool."""
    found = compare([contract(takes(**{"a/b": {"type": "array", "items": INT}}))], [contract(takes(**{"a/b": {"type": "array", "items": TEXT}}))])  # fmt: skip

    assert ["/inputSchema/properties/a~1b/items"] == [item.where for item in found]


def test_renamed_parameter_is_recognised() -> None:
    """One gone, one come: the advice says what to do about it."""
    found = compare([contract(takes(a=INT))], [contract(takes(b=INT))])

    assert found[0].suggestion is not None
    assert "if it is called 'b' now, take both names" in found[0].suggestion


def test_difference_of_the_whole_that_no_part_shows_is_breaking() -> None:
    """A required parameter that may be null could be left out, as most profiles show it."""
    before, after = contract(takes(("a",), a=MAYBE)), contract(takes(("a",), a={}))

    assert ("input", True) == told(before, after)[0][:2]


def test_result_of_the_whole_that_no_part_shows_is_breaking() -> None:
    """What depends on its surroundings cannot be judged part by part."""
    before, after = ({**gives(a=held), "unevaluatedProperties": False} for held in ({"type": "number"}, INT))

    assert [("output", True), ("result-type", False)] == [
        item[:2] for item in told(contract(output=before), contract(output=after))
    ]


# --- names, hints and the rest --------------------------------------------------------------------


def test_commands_come_and_go() -> None:
    """A new one breaks nobody; one that is gone breaks its callers, unless another answers to its name."""
    old, new = contract(command="shop.find"), contract(command="shop.search")

    assert [
        ("shop.find", "command-removed", True),
        ("shop.search", "command-added", False),
    ] == [(item.command, item.kind, item.breaking) for item in compare([old], [new])]
    renamed = contract(command="shop.search", aliases=("shop_find", "shop.find"))
    assert [("wire-name", False), ("id", False), ("alias-added", False), ("alias-added", False)] == [
        item[:2] for item in told(old, renamed)
    ]
    by_id = contract(command="shop.search", aliases=("shop.find",))
    assert [("wire-name", False), ("id", False), ("alias-added", False)] == [item[:2] for item in told(old, by_id)]
    half = contract(command="shop.search", aliases=("shop_find",))
    assert ("id", True, "the id is 'shop.search'; it was 'shop.find'") == told(old, half)[0]


def test_names_that_are_gone_break_callers() -> None:
    """Also an alias."""
    old = contract(aliases=("f", "g"))

    assert [("alias", True, "the alias 'g' is gone")] == told(old, contract(aliases=("f",)))
    assert [("wire-name", True, "the name on the wire is 'x'; it was 'shop_find'")] == told(
        contract(), contract(wire_name="x")
    )
    assert [("alias-added", False, "new alias 'f'")] == told(contract(), contract(aliases=("f",)))


HINTS: list[tuple[Hints, Hints, list[tuple[str, bool]]]] = [
    (Hints(read_only=True), Hints(), [("no longer read-only: clients that ran it without asking will now ask", True), ("may now be destructive", True), ("no longer idempotent: trying again is not safe", True)]),
    (Hints(destructive=False), Hints(destructive=True), [("may now be destructive", True)]),
    (Hints(destructive=False), Hints(), [("may now be destructive", True)]),
    (Hints(), Hints(destructive=True), [("destructive: not declared → True", False)]),
    (Hints(destructive=True), Hints(destructive=False), [("destructive: True → False", False)]),
    (Hints(open_world=False), Hints(open_world=True), [("may reach the outside world now", True)]),
    (Hints(idempotent=True), Hints(idempotent=False), [("no longer idempotent: trying again is not safe", True)]),
    (Hints(), Hints(read_only=True), [("read_only: not declared → True", False)]),
    (Hints(read_only=True, idempotent=True), Hints(read_only=True), [("idempotent: True → not declared", False)]),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "expected"), HINTS)
def test_hints_that_promise_less_are_breaking(before: Hints, after: Hints, expected: list[tuple[str, bool]]) -> None:
    """What is not declared is taken for the worst, as clients are told to."""
    found = compare([contract(hints=before)], [contract(hints=after)])

    assert expected == [(item.message, item.breaking) for item in found]


def test_policies_and_texts_break_nobody() -> None:
    """They are told all the same."""
    old = contract(policies=Policies(timeout=5, retry_on=("OSError",)), title="a", tags=("x",))
    new = contract(policies=Policies(cache_ttl=1.5), description="e", title="b", category="c")

    assert [
        ("policy", False, "retry_on: OSError → nothing"),
        ("policy", False, "cache_ttl: 0.0 → 1.5"),
        ("policy", False, "timeout: 5 → not set"),
        ("description", False, "another description"),
        ("title", False, "another title"),
        ("category", False, "another category"),
        ("tags", False, "no longer has tags"),
    ] == told(old, new)
    assert [("icons", False, "now has icons")] == told(contract(), contract(icons=({"src": "x"},)))


def test_place_of_the_result_is_promised_too() -> None:
    """A box is another object for whoever looks into it."""
    old = contract(output=OutputShape(INT))

    assert [("result-place", True, "the result is in a field 'n'; it was in a field 'result'")] == told(
        old, replace(old, output=OutputShape(INT, field="n"))
    )
    assert [
        ("profile", False, "pinned to the profile 'omni'; it was none"),
        ("result-place", True, "the result is no longer shown as structured content"),
    ] == sorted(told(old, replace(old, profile="omni")))
    structure = contract(output=OutputShape(gives(a=INT), type_name="Page"))
    renamed = replace(structure, output=OutputShape(gives(a=INT), type_name="Leaf"))
    assert [] == told(structure, renamed)
    assert [("result-place", True, "the result is in a field 'leaf'; it was in a field 'page'")] == told(
        structure, renamed, "turul"
    )
    assert [] == told(old, old, "of a plugin")


def test_difference_as_data() -> None:
    """For programs that read the report."""
    assert {
        "command": "a.b",
        "kind": "k",
        "breaking": False,
        "message": "m",
        "where": "",
        "suggestion": None,
    } == Difference("a.b", "k", breaking=False, message="m").to_json()


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, schema",
    [
        ("anything", {}),
        ("anything", True),
        ("nothing", False),
        ("integer, >= 1, <= 9", {**INT, "minimum": 1, "maximum": 9}),
        ('"a" | null', {"enum": ["a", None]}),
        ("list of string, at most 3 items", {"type": "array", "items": TEXT, "maxItems": 3}),
        ("[integer, string]", {"type": "array", "prefixItems": [INT, TEXT], "minItems": 2, "maxItems": 2}),
        ("map of integer", {"type": "object", "additionalProperties": INT}),
        ("object", {"type": "object", "properties": {"a": INT}}),
        ("string (date)", {"type": "string", "format": "date"}),
        ("integer | null", {"type": ["integer", "null"]}),
        ("Page | null", {"oneOf": [{"$ref": "#/$defs/Page"}, NULL]}),
        (f'"{"x" * 70}…', {"const": "x" * 99}),
    ],
)
def test_schema_in_words(words: str, schema: Any) -> None:
    """Short enough for a line."""
    assert words == in_words(schema)


def test_recursive_types_end() -> None:
    """A definition is looked at once."""
    tree = {"$defs": {"T": gives(v=INT, next={"$ref": "#/$defs/T"})}, "$ref": "#/$defs/T"}
    other = copy.deepcopy(tree)
    other["$defs"]["T"]["properties"]["v"] = TEXT

    assert [("v",)] == [change.path for change in changes(tree, other)]


def test_nullable_definitions_are_compared() -> None:
    """Also where null stands behind a reference, or is all there is."""
    behind = {"$defs": {"M": MAYBE}, **takes(a={"$ref": "#/$defs/M"})}

    assert ["no longer null"] == [change.message for change in changes(behind, takes(a=INT))]
    assert ["null → integer"] == [c.message for c in changes(takes(a=NULL), takes(a=INT)) if c.kind == "type"]
    inner = {"$defs": {"M": MAYBE}, **takes(a={"anyOf": [{"$ref": "#/$defs/M"}, TEXT]})}
    assert [True] == [change.narrows for change in changes(inner, takes(a={"anyOf": [MAYBE]})) if change.kind == "type"]


# --- by property ----------------------------------------------------------------------------------


def _record(properties: dict[str, Any], required: set[str], is_closed: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    known = sorted(required & properties.keys())
    return {
        **schema,
        **({"required": known} if known else {}),
        **({"additionalProperties": False} if is_closed else {}),
    }


_scalars = st.sampled_from([None, True, 0, 1, 2, 5, 1.5, "", "a", "b", "abc"])
_names = st.sampled_from(["a", "b", "c"])
_types = st.recursive(
    st.sampled_from(
        [
            *(INT, TEXT, NULL, MAYBE, {}, {"type": "number"}, {"type": "boolean"}, {"anyOf": [INT, TEXT]}),
            *({"enum": ["a", "b"]}, {"enum": ["a"]}, {"const": 1}, {"$ref": "#/$defs/Node"}),
            *({**INT, "minimum": 1}, {**INT, "minimum": 0, "maximum": 2}, {**TEXT, "minLength": 1}, {**TEXT, "maxLength": 2}),
        ]
    ),
    lambda inner: st.one_of(
        st.builds(lambda held: {"type": "array", "items": held}, inner),
        st.builds(lambda held: {"type": "array", "items": held, "maxItems": 1}, inner),
        st.builds(lambda a, b: {"type": "array", "prefixItems": [a, b], "minItems": 2, "maxItems": 2}, inner, inner),
        st.builds(lambda held: {"type": "object", "additionalProperties": held}, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
        st.builds(_record, st.dictionaries(_names, inner, max_size=3), st.sets(_names), st.booleans()),
    ),
    max_leaves=5,
)  # fmt: skip
_node = gives(("a",), a=INT, b={"anyOf": [{"$ref": "#/$defs/Node"}, NULL]})


_inputs = st.builds(
    _record, st.dictionaries(_names, _types, max_size=3), st.sets(_names), st.sampled_from([True, True, False])
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=5,
)
_arguments = st.dictionaries(_names, _values, max_size=3)


@st.composite
def _contracts(draw: st.DrawFn) -> tuple[Contract, Contract]:
    """A contract, and one that came of it by changes as authors make them."""
    node = copy.deepcopy(_node)
    old_in, old_out = draw(_inputs), draw(_types | _inputs)
    new_in, new_out = copy.deepcopy(old_in), copy.deepcopy(old_out)
    for _ in range(draw(st.integers(0, 2))):
        new_in, new_out = _edited(draw, new_in), _edited(draw, new_out)
    new_node = draw(st.sampled_from([node, node, gives(**node["properties"]), gives(("a",), a=INT, b=NULL)]))
    return (
        contract({**old_in, "$defs": {"Node": node}}, {**old_out, "$defs": {"Node": node}}),
        contract({**new_in, "$defs": {"Node": new_node}}, {**new_out, "$defs": {"Node": new_node}}),
    )


def _edited(draw: st.DrawFn, schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    if properties is None:
        return draw(st.sampled_from([schema, {"anyOf": [schema, NULL]}]) | _types)
    name = draw(_names)
    required = set(schema.get("required", ()))
    edit = draw(st.sampled_from(["remove", "require", "relax", "replace", "widen", "open", "inside"]))
    if edit == "remove":
        properties.pop(name, None)
    elif edit == "require":
        required.add(name)
    elif edit == "relax":
        required.discard(name)
    elif edit == "replace":
        properties[name] = draw(_types)
    elif edit == "widen" and name in properties:
        properties[name] = {"anyOf": [properties[name], draw(_types)]}
    elif edit == "inside" and name in properties:
        properties[name] = _edited(draw, properties[name])
    return _record(properties, required, ("additionalProperties" in schema) != (edit == "open"))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(pair=_contracts(), arguments=st.lists(_arguments, max_size=8), results=st.lists(_values, max_size=8))
def test_a_change_is_called_compatible_only_if_nobody_can_notice(
    pair: tuple[Contract, Contract], arguments: list[Any], results: list[Any]
) -> None:
    """What was valid is valid, in full or with nulls left out; what can come now was promised."""
    before, after = pair
    if any(item.breaking for item in compare([before], [after])):
        return
    for shown in (lambda schema: schema, strip_null):
        old, new = (Draft202012Validator(shown(each.input_schema)) for each in pair)
        assert [] == [value for value in arguments if old.is_valid(value) and not new.is_valid(value)]
    old, new = (Draft202012Validator(each.output.schema) for each in pair)
    assert [] == [value for value in results if new.is_valid(value) and not old.is_valid(value)]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(pair=_contracts())
def test_a_contract_does_not_differ_from_itself(pair: tuple[Contract, Contract]) -> None:
    """Also after it was written and read."""
    for each in pair:
        assert [] == compare([each], [Contract.from_json(copy.deepcopy(each.to_json()))])
