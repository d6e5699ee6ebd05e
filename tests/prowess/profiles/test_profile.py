"""Each profile shows one contract the way its readers want it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Annotated, Any, Literal

import pytest
from pydantic import WithJsonSchema
from tests.prowess.profiles.shown import Address, Chat, Node, called, contract, portable, returning, shown_input

from prowess import Image, Runtime, skill_command
from prowess.contracts.contract import OutputShape
from prowess.profiles.profile import BUILT_IN, Box, Profile, decode_arguments
from prowess.schemas import nodes
from prowess.schemas.boxes import is_text
from prowess.schemas.steps import prune_titles

# Explicit schemas


AS_GIVEN: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "title": "Given",
    "properties": {"a": {"anyOf": [{"const": 1}, {"type": "null"}]}, "t": {"prefixItems": [{}]}},
    "required": ["a"],
}


@pytest.mark.parametrize("profile", BUILT_IN)
def test_explicit_schemas_are_shown_as_given(profile: str) -> None:
    """No step touches what an author wrote."""
    given = contract(AS_GIVEN, explicit=True, output=OutputShape(AS_GIVEN, explicit=True))
    shown = BUILT_IN[profile]

    assert AS_GIVEN is shown.input_schema(given)
    if profile not in ("omni", "turul"):
        assert AS_GIVEN is shown.output_schema(given)
        assert {"a": None} == shown.value(given, {"a": None})


@pytest.mark.parametrize("profile", ["portable", "full", "openmcp", "turul"])
@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "object"}, {"type": "null"}]},
        {"anyOf": [{"type": "object"}]},
        {"properties": {"a": {"type": "integer"}}},
        {},
    ],
)
def test_explicit_schemas_are_boxed_where_the_wire_needs_an_object(profile: str, schema: dict[str, Any]) -> None:
    """And only put into the box, not changed."""
    given = contract(output=OutputShape(schema, explicit=True))
    field = "output" if profile == "turul" else "result"

    shown = BUILT_IN[profile].output_schema(given)

    assert shown is not None
    assert schema == shown["properties"][field]
    assert [field] == shown["required"]
    assert {field: {"a": None}} == BUILT_IN[profile].value(given, {"a": None})
    assert {field: None} == BUILT_IN[profile].value(given, None)


@pytest.mark.parametrize("_case", [pytest.param(None, id="O-38 explicit output")])
def test_an_explicit_object_passes_through(_case: None) -> None:
    """The document's example."""
    schema = {"type": "object", "properties": {"sum": {"type": "number"}}}

    assert schema == BUILT_IN["openmcp"].output_schema(contract(output=OutputShape(schema, explicit=True)))


# Arguments


def test_nulls_left_out_of_arguments_are_restored() -> None:
    """At any depth, in the branch of a union that was meant; what has a default is left to the function."""

    def move(
        to: Chat | Address | None, addresses: list[Address], by_name: dict[str, Address], unit: str | None = "m"
    ): ...

    schema = called(move).input_schema

    assert {
        "addresses": [{"street": "s", "unit": None}],
        "by_name": {"home": {"street": "t", "unit": None}},
        "to": {"street": "u", "unit": None},
    } == decode_arguments(
        schema, {"addresses": [{"street": "s"}], "by_name": {"home": {"street": "t"}}, "to": {"street": "u"}}
    )
    assert {"addresses": [], "by_name": {}, "to": None} == decode_arguments(schema, {"addresses": [], "by_name": {}})


# Profiles themselves


def test_profiles_are_found_by_name_and_portable_is_the_first() -> None:
    """The mapping cannot be changed by accident."""
    assert ["portable", "full", "openmcp", "omni", "turul"] == list(BUILT_IN)
    assert all(name == profile.name for name, profile in BUILT_IN.items())
    with pytest.raises(TypeError):
        BUILT_IN["mine"] = BUILT_IN["full"]


def test_a_profile_of_ones_own_is_a_few_steps() -> None:
    """Plugins make profiles like the built-in ones, or from them."""

    def upper(_schema: Any, value: Any) -> Any:
        return value.upper()

    loud = Profile("loud", output_steps=(prune_titles,), value_steps=(upper,), box=Box("said", marker="x-said"))
    given = contract({"type": "object", "title": "T"}, output=OutputShape({"type": "string", "title": "T"}))

    assert given.input_schema is loud.input_schema(given)
    assert {
        "type": "object",
        "properties": {"said": {"type": "string"}},
        "required": ["said"],
        "x-said": {"field": "said"},
    } == loud.output_schema(given)
    assert {"said": "HELLO"} == loud.value(given, "hello")
    assert "bare" == replace(loud, name="bare").name


@pytest.mark.parametrize("profile", BUILT_IN.values(), ids=BUILT_IN)
def test_what_is_shown_can_be_written_as_json(profile: Profile) -> None:
    """Schemas go onto the wire."""
    given = replace(called(portable), output=returning(list[Node | None]).output)

    json.dumps([profile.input_schema(given), profile.output_schema(given)], allow_nan=False)


# Null that is no default


def test_null_can_be_asked_for_where_it_is_no_default() -> None:
    """Beside a type, and in words; a missing key means null where null is the default or there is none."""

    def f(  # noqa: PLR0917 - one parameter for each kind
        needed: int | None,
        limit: int | None = 10,
        none: int | None = None,
        union: int | str | None = 1,
        word: Literal["a", None] = "a",
        items: list[Literal["a", None]] = [],  # noqa: B006 - shown as a default
    ): ...

    shown = shown_input("portable", f)["properties"]
    assert {"type": "integer"} == shown["needed"] == shown["none"]
    assert {"type": "integer", "default": 10, "nullable": True, "description": "may be null; default 10"} == shown[
        "limit"
    ]
    assert [True, None] == [branch.get("nullable") for branch in shown["union"]["anyOf"]]
    assert ("string", True) == (shown["word"]["type"], shown["word"]["nullable"])
    assert [{"enum": ["a"], "type": "string"}, {"type": "null"}] == shown["items"]["items"]["anyOf"]
    for profile in ("omni", "turul"):
        assert shown_input(profile, f)["properties"]["limit"]["nullable"] is True


SEVERAL = {"type": ["string", "integer"], "minLength": 1}


CHOSEN = {"type": ["string", "null"], "enum": ["a", None]}


def test_null_can_be_asked_for_beside_a_choice_of_several_types() -> None:
    """A list of types, or a choice of words and numbers, becomes one branch for each type."""

    def f(
        one: Literal["a", 1] | None = "a",
        two: Annotated[Any, WithJsonSchema(SEVERAL)] = "a",
        three: Annotated[Any, WithJsonSchema({"anyOf": [SEVERAL, {"type": "null"}]})] = "a",
        four: list[Annotated[Any, WithJsonSchema(CHOSEN)]] = [],  # noqa: B006 - shown as a default
    ): ...

    shown = shown_input("portable", f)["properties"]
    words, numbers = {"enum": ["a"], "type": "string", "nullable": True}, {"enum": [1], "type": "integer"}
    assert [words, numbers] == shown["one"]["anyOf"]
    assert ["string", "integer"] == [branch["type"] for branch in shown["two"]["anyOf"]]
    assert "nullable" in str(shown["three"])
    assert [{"enum": ["a"], "type": "string"}, {"type": "null"}] == [
        {key: held for key, held in branch.items() if key in ("enum", "type")}
        for branch in shown["four"]["items"]["anyOf"]
    ]


def test_nullable_stands_beside_the_first_branch_with_a_type_or_nowhere() -> None:
    """Ajv refuses the keyword alone."""
    branches = [{"$ref": "#/$defs/a"}, {"type": "string"}]
    shown = nodes.nullable_beside_type({"anyOf": branches, "nullable": True})
    assert {"anyOf": [branches[0], {"type": "string", "nullable": True}]} == shown
    assert {"anyOf": [{}]} == nodes.nullable_beside_type({"anyOf": [{}], "nullable": True})


def test_a_text_by_another_name_is_text() -> None:
    document = {"$ref": "#/$defs/Name", "$defs": {"Name": {"type": "string"}}}
    assert is_text(document)
    assert not is_text({**document, "$ref": "#/$defs/Nobody"})


def test_text_profiles_say_the_data_of_a_pair() -> None:
    """Content and data were declared side by side: a client without structured content reads both."""

    def shown(value: Any, returns: Any) -> Any:
        async def run() -> Any:
            return value

        run.__annotations__["return"] = returns

        async def outcome() -> Any:
            async with Runtime.open("nowhere") as runtime:
                return await runtime.entry_of(skill_command(run).__prowess__).call({})

        return [block["text"] for block in asyncio.run(outcome()).payload("omni")["content"]]

    image = Image(b"GIF89a")
    assert ["[image: image/gif, 6 bytes]", '{"a": 1}'] == shown((image, {"a": 1}), tuple[Image, dict[str, int]])
    assert ["[image: image/gif, 6 bytes]", "said"] == shown((image, "said"), tuple[Image, str | int])
    assert ["one: [1]"] == shown(("one: [1]", [1]), tuple[str | Image, list[int]])
    assert ["none"] == shown(("none", None), tuple[str | Image, int | None])
