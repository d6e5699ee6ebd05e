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

# Input: the OpenMCP document


def analytics(a: int, count: int = 1, tags: list[str] | None = None): ...


@pytest.mark.parametrize("_case", [pytest.param(None, id="O-1 analytics")])
def test_defaults_and_nullables_are_optional(_case: None) -> None:
    """What has a default is not required, and says which one it has."""
    schema = shown_input("openmcp", analytics)

    assert "object" == schema["type"]
    assert ["a"] == schema["required"]
    assert 1 == schema["properties"]["count"]["default"]
    assert "array" in [branch.get("type") for branch in schema["properties"]["tags"]["anyOf"]]


def o2(name: str, age: int, active: bool = True): ...


def o3(values: list[int], metadata: dict[str, str]): ...


def o4(mode: Literal["fast", "accurate"], only: Literal["chat"]): ...


def o5(limit: Optional[int] = None): ...


def o6(): ...


def o7(a: Annotated[int, Field(description="an int", ge=1)]): ...


def o8(a, b=3): ...


def o12(*, title: str, x: int, default: int, description: str, properties: str, examples: str): ...


def o13(user: User): ...


def o14(c: Color): ...


OPEN_AT_ALL = {"additionalProperties": False, "type": "object"}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(
            o2,
            {
                **OPEN_AT_ALL,
                "properties": {
                    "name": {"type": "string", "description": "Parameter name"},
                    "age": {"type": "integer", "description": "Parameter age"},
                    "active": {"type": "boolean", "description": "Parameter active", "default": True},
                },
                "required": ["name", "age"],
            },
            id="O-2 primitives",
        ),
        pytest.param(
            o3,
            {
                **OPEN_AT_ALL,
                "properties": {
                    "values": {"items": {"type": "integer"}, "type": "array", "description": "Parameter values"},
                    "metadata": {
                        "additionalProperties": {"type": "string"},
                        "type": "object",
                        "description": "Parameter metadata",
                    },
                },
                "required": ["values", "metadata"],
            },
            id="O-3 containers",
        ),
        pytest.param(
            o4,
            {
                **OPEN_AT_ALL,
                "properties": {
                    "mode": {"enum": ["fast", "accurate"], "type": "string", "description": "Parameter mode"},
                    "only": {"enum": ["chat"], "type": "string", "description": "Parameter only"},
                },
                "required": ["mode", "only"],
            },
            id="O-4 literals",
        ),
        pytest.param(
            o5,
            {
                **OPEN_AT_ALL,
                "properties": {
                    "limit": {
                        "anyOf": [{"type": "integer"}, {"type": "null"}],
                        "default": None,
                        "description": "Parameter limit",
                    }
                },
            },
            id="O-5 optional",
        ),
        pytest.param(o6, {**OPEN_AT_ALL, "properties": {}}, id="O-6 no parameters"),
        pytest.param(
            o7,
            {
                **OPEN_AT_ALL,
                "properties": {"a": {"description": "an int", "minimum": 1, "type": "integer"}},
                "required": ["a"],
            },
            id="O-7 annotated",
        ),
        pytest.param(
            o8,
            {
                **OPEN_AT_ALL,
                "properties": {
                    "a": {"description": "Parameter a"},
                    "b": {"default": 3, "description": "Parameter b"},
                },
                "required": ["a"],
            },
            id="O-8 untyped",
        ),
    ],
)
def test_openmcp_shows_parameters_as_its_document_does(function: Callable[..., Any], expected: dict[str, Any]) -> None:
    """The examples of the document, to the letter."""
    assert expected == shown_input("openmcp", function)


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


def search_code(
    *,
    query: Annotated[str, Field(description="Search query string")],
    file_pattern: Annotated[str, Field(description="File match pattern")] = "*.py",
    case_sensitive: Annotated[bool, Field(description="Whether to be case-sensitive")] = False,
    max_results: Annotated[int, Field(description="Maximum number of results")] = 100,
    encoding: Annotated[Literal["utf-8", "gbk"], Field(description="File encoding")] = "utf-8",
    exclude_patterns: Annotated[list[str] | None, Field(description="List of exclude patterns")] = None,
): ...


def example(required_param: str, optional_param: str = "default", optional_list: list[str] | None = None): ...


def m8(encoding: Literal["utf-8", "gbk"] = "utf-8"): ...


def m9(exclude: list[str] | None = None): ...


def all_defaults(a: int = 1, b: str = "test", c: bool = True): ...


def table(metadata: dict[str, str], status: Literal["pending", "done"], one: Literal["x"]): ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(
            search_code,
            {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "Search query string"},
                    "file_pattern": {"type": "string", "description": "File match pattern", "default": "*.py"},
                    "case_sensitive": {
                        "type": "boolean",
                        "description": "Whether to be case-sensitive",
                        "default": False,
                    },
                    "max_results": {"type": "integer", "description": "Maximum number of results", "default": 100},
                    "encoding": {"type": "string", "enum": ["utf-8", "gbk"], "description": "File encoding"},
                    "exclude_patterns": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "List of exclude patterns",
                    },
                },
                "required": ["query"],
            },
            id="complete example",
        ),
        pytest.param(
            example,
            {
                "type": "object",
                "properties": {
                    "required_param": {"type": "string"},
                    "optional_param": {"type": "string", "default": "default"},
                    "optional_list": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["required_param"],
            },
            id="generated schema",
        ),
        pytest.param(
            table,
            {
                "type": "object",
                "properties": {
                    "metadata": {"type": "object"},
                    "status": {"type": "string", "enum": ["pending", "done"]},
                    "one": {"type": "string", "enum": ["x"]},
                },
                "required": ["metadata", "status", "one"],
            },
            id="table of types",
        ),
        pytest.param(o6, {"type": "object", "properties": {}, "required": []}, id="M-2 no parameters"),
        pytest.param(
            all_defaults,
            {
                "type": "object",
                "properties": {
                    "a": {"type": "integer", "default": 1},
                    "b": {"type": "string", "default": "test"},
                    "c": {"type": "boolean", "default": True},
                },
                "required": [],
            },
            id="M-3 all defaults",
        ),
        pytest.param(
            m8,
            {
                "type": "object",
                "properties": {"encoding": {"type": "string", "enum": ["utf-8", "gbk"]}},
                "required": [],
            },
            id="M-8 literal",
        ),
        pytest.param(
            m9,
            {
                "type": "object",
                "properties": {"exclude": {"type": "array", "items": {"type": "string"}}},
                "required": [],
            },
            id="M-9 optional list",
        ),
    ],
)
def test_omni_shows_parameters_as_its_guide_does(function: Callable[..., Any], expected: dict[str, Any]) -> None:
    """The examples of the guide, to the letter."""
    assert expected == shown_input("omni", function)


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
