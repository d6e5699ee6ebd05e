"""Parameters as the profiles show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import Field
from tests.prowess.profiles.shown import (
    Chat,
    Color,
    Nav,
    User,
    called,
    contract,
    portable,
    returning,
    shown_input,
    shown_output,
)
from typing_extensions import TypedDict

from prowess.contracts.contract import OutputShape
from prowess.profiles.profile import BUILT_IN
from prowess.schemas.walk import visit

# Input: parameters of every kind


def o12(*, title: str, x: int, default: int, description: str, properties: str, examples: str): ...


def o13(user: User): ...


def o14(c: Color): ...


@pytest.mark.parametrize("profile", BUILT_IN)
@pytest.mark.parametrize("function", [pytest.param(o12, id="O-12 parameters called like keywords")])
def test_parameters_called_like_keywords_survive(profile: str, function: Callable[..., Any]) -> None:
    """In every profile: `properties` and `required` name the same parameters."""
    schema = shown_input(profile, function)

    assert ["title", "x", "default", "description", "properties", "examples"] == list(schema["properties"])
    assert list(schema["properties"]) == schema["required"]


@pytest.mark.parametrize("profile", [name for name in BUILT_IN if name != "full"])
@pytest.mark.parametrize(
    ("function", "name", "expected"),
    [
        pytest.param(o13, "user", {"username", "email", "age"}, id="O-13 model parameter"),
        pytest.param(o14, "c", ["red", "green"], id="O-14 enum parameter"),
    ],
)
def test_parameters_of_named_types_are_written_out(
    profile: str, function: Callable[..., Any], name: str, expected: Any
) -> None:
    """No reference is left, dangling or not."""
    schema = shown_input(profile, function)
    held = schema["properties"][name]

    assert expected == (held["enum"] if "enum" in held else set(held["properties"]))
    assert all("$ref" not in node and "$defs" not in node for _, node in visit(schema))


def test_portable_is_safe_for_narrow_clients() -> None:
    """No references, no null, no constants, no exclusive unions, no tuples, arrays with items, one closed root."""
    schema = shown_input("portable", portable)
    keywords = {key for _, node in visit(schema) for key in node}

    assert set() == keywords & {
        "$ref",
        "$defs",
        "$schema",
        "const",
        "oneOf",
        "discriminator",
        "title",
        "prefixItems",
        "propertyNames",
    }
    assert all(node.get("type") != "null" for _, node in visit(schema))
    assert all("items" in node for _, node in visit(schema) if node.get("type") == "array")
    assert [()] == [path for path, node in visit(schema) if node.get("additionalProperties") is False]
    assert ["user", "pair", "tree"] == schema["required"]
    assert {"type", "properties", "required", "additionalProperties"} == set(schema)


def test_portable_repeats_what_models_are_not_shown() -> None:
    """Constraints and defaults are in the description, too."""
    properties = shown_input("portable", portable)["properties"]

    assert "Years. (minimum 0; maximum 120; default 7)" == properties["age"]["description"]
    assert 'default "red"' == properties["color"]["description"]
    assert {} == properties["anything"]
    assert {"type": "string", "maxLength": 20, "minLength": 3} | {
        "description": "at least 3 characters; at most 20 characters"
    } == properties["user"]["properties"]["username"]
    assert {"type": "integer"} == properties["user"]["properties"]["age"]
    assert 'keys: "red" or "green"' == properties["by_color"]["description"]


@pytest.mark.parametrize("additional", [True, {"type": "integer"}])
def test_portable_keeps_a_root_open_to_more_arguments(additional: Any) -> None:
    """A command with `**kwargs` says so."""
    schema = {"type": "object", "properties": {"a": {}}, "additionalProperties": additional}

    assert schema == BUILT_IN["portable"].input_schema(contract(schema))


# Input: full


def test_full_shows_json_schema_as_it_is() -> None:
    """References, definitions and null stay; only titles go."""
    given = called(portable)

    assert given.input_schema == BUILT_IN["full"].input_schema(given)


# Input: omni


def table(metadata: dict[str, str], status: Literal["pending", "done"], one: Literal["x"]): ...


def test_omni_shows_types_as_the_table_of_its_guide_does() -> None:
    """And a choice of one word as an `enum`. The other examples of the guide are in `tests/contracts`."""
    assert {
        "type": "object",
        "properties": {
            "metadata": {"type": "object"},
            "status": {"type": "string", "enum": ["pending", "done"]},
            "one": {"type": "string", "enum": ["x"]},
        },
        "required": ["metadata", "status", "one"],
    } == shown_input("omni", table)


def test_omni_has_no_structured_results() -> None:
    """Its results are text."""
    assert None is shown_output("omni", User)
    assert not BUILT_IN["omni"].structured
    assert "as it is" == BUILT_IN["omni"].value(returning(str), "as it is")


# Input: turul


class Point(TypedDict):
    latitude: float
    longitude: float
    label: Optional[str]


def u1(
    *,
    name: str,
    tags: list[str],
    active: Optional[bool] = None,
    count: Optional[int] = None,
    score: Optional[float] = None,
    labels: Optional[list[str]] = None,
): ...


def u3(points: list[Point]): ...


def u4(point: Optional[Point]): ...


def u5(optional_param: str = ""): ...


def u6(action: Annotated[Chat | Nav, Field(discriminator="kind")]): ...


@pytest.mark.parametrize("_case", [pytest.param(None, id="U-1 types"), pytest.param(None, id="U-2 spelled otherwise")])
def test_turul_shows_optional_parameters_by_their_type(_case: None) -> None:
    """Null is gone, and only what has to be sent is required."""
    schema = shown_input("turul", u1)

    assert {
        "name": "string",
        "tags": "array",
        "active": "boolean",
        "count": "integer",
        "score": "number",
        "labels": "array",
    } == {name: held["type"] for name, held in schema["properties"].items()}
    assert ["name", "tags"] == schema["required"]
    assert all("default" not in held for held in schema["properties"].values())
    assert "additionalProperties" not in schema


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(
            u3,
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "latitude": {"type": "number"},
                        "longitude": {"type": "number"},
                        "label": {"type": "string"},
                    },
                    "required": ["latitude", "longitude"],
                },
            },
            id="U-3 list of structures",
        ),
        pytest.param(
            u4,
            {
                "type": "object",
                "properties": {
                    "latitude": {"type": "number"},
                    "longitude": {"type": "number"},
                    "label": {"type": "string"},
                },
                "required": ["latitude", "longitude"],
            },
            id="U-4 optional structure",
        ),
        pytest.param(u5, {"type": "string", "default": ""}, id="U-5 default"),
        pytest.param(
            u6,
            {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {
                            "kind": {"const": "chat", "type": "string"},
                            "message": {"type": "string"},
                        },
                        "required": ["kind", "message"],
                    },
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "navigate", "type": "string"}, "url": {"type": "string"}},
                        "required": ["kind", "url"],
                    },
                ],
                "discriminator": {"propertyName": "kind"},
            },
            id="U-6 tagged union intact",
        ),
    ],
)
def test_turul_writes_structures_out(function: Callable[..., Any], expected: dict[str, Any]) -> None:
    """Structures, their optional parts and tagged unions, without a reference."""
    schema = shown_input("turul", function)

    assert [expected] == list(schema["properties"].values())
    assert (["points"] if function is u3 else ["action"] if function is u6 else None) == schema.get("required")


def test_turul_takes_what_cannot_be_resolved_for_an_object() -> None:
    """Lossy, but safe."""
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Nope"}}}

    assert {"type": "object"} == BUILT_IN["turul"].input_schema(contract(schema))["properties"]["a"]
    shown = BUILT_IN["turul"].output_schema(contract(output=OutputShape({"$ref": "#/$defs/Nope"})))
    assert {"type": "object", "properties": {"output": {"type": "object"}}, "required": ["output"]} == shown
