"""Each profile shows one contract the way its readers want it."""

from __future__ import annotations

import asyncio
import enum
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from typing import Annotated, Any, Literal, Optional, get_type_hints

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema
from typing_extensions import NotRequired, TypedDict, is_typeddict

from prowess import Image, Runtime, skill_command
from prowess.contracts.contract import Contract, OutputShape
from prowess.profiles.profile import BUILT_IN, Box, Profile, decode_arguments
from prowess.schemas import nodes
from prowess.schemas.boxes import is_text
from prowess.schemas.steps import prune_titles
from prowess.schemas.walk import visit

BOXES = {"portable": "x-prowess-box", "full": "x-prowess-box", "openmcp": "x-dedalus-box"}


def contract(input_schema: Any = None, *, explicit: bool = False, output: OutputShape | None = None) -> Contract:
    return Contract(
        *("s.c", "s_c", "s", "c", ""),
        input_schema=input_schema or {"type": "object", "properties": {}, "additionalProperties": False},
        input_explicit=explicit,
        output=output or OutputShape(),
    )


def called(function: Callable[..., Any]) -> Contract:
    """The contract of a function's parameters, canonical as far as profiles can see."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    optional = {p.name: p.default for p in parameters if p.default is not p.empty}
    fields = {
        p.name: NotRequired[hints.get(p.name, Any)] if p.name in optional else hints.get(p.name, Any)
        for p in parameters
    }
    arguments = TypedDict("Arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    schema = prune_titles(TypeAdapter(arguments).json_schema())
    for name, default in optional.items():
        schema["properties"][name]["default"] = TypeAdapter(Any).dump_python(default, mode="json")
    return contract(schema)


def returning(annotation: Any, *, field: str | None = None) -> Contract:
    """The contract of a declared result."""
    schema = prune_titles(TypeAdapter(annotation).json_schema(mode="serialization"))
    named = is_typeddict(annotation) or is_dataclass(annotation) or hasattr(annotation, "model_fields")
    return contract(output=OutputShape(schema, field=field, type_name=annotation.__name__ if named else None))


def shown_input(profile: str, function: Callable[..., Any]) -> dict[str, Any]:
    return BUILT_IN[profile].input_schema(called(function))


def shown_output(profile: str, annotation: Any, *, boxed: bool = True, field: str | None = None) -> Any:
    return BUILT_IN[profile].output_schema(returning(annotation, field=field), boxed=boxed)


# Types under test


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class User(BaseModel):
    username: str = Field(min_length=3, max_length=20)
    email: str = Field(pattern=r"^\S+@\S+$")
    age: int | None = None


class Address(BaseModel):
    street: str
    unit: str | None


@dataclass
class Profiled:
    name: str
    address: Address
    tags: list[str]


@dataclass
class HasTitle:
    title: str
    url: str


@dataclass
class Chat:
    kind: Literal["chat"]
    message: str


@dataclass
class Nav:
    kind: Literal["navigate"]
    url: str


class Node(BaseModel):
    value: int
    children: list[Node] = []


class LocationData(TypedDict):
    latitude: float
    longitude: float
    label: Optional[str]


class LLH(TypedDict):
    h: float


class GPS(TypedDict):
    fix: bool


class CalculationResult(BaseModel):
    sum: float
    operation: str
    timestamp: int


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


# Input: the portable profile, the safe dialect


def portable(
    *,
    user: User,
    pair: tuple[int, str],
    tree: Node,
    color: Color = Color.RED,
    one: Literal["x"] = "x",
    pets: Annotated[Chat | Nav, Field(discriminator="kind")] | None = None,
    loose: list = [],  # noqa: B006 - read, never called
    age: Annotated[int, Field(ge=0, le=120, description="Years.")] = 7,
    anything: Any = None,
    by_color: dict[Color, int] | None = None,
): ...


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


# Output: boxes named `result`


@pytest.mark.parametrize("profile", BOXES)
@pytest.mark.parametrize(
    ("annotation", "schema", "value"),
    [
        pytest.param(int, {"type": "integer"}, 7, id="O-27 int"),
        pytest.param(str, {"type": "string"}, "hello", id="O-28 str"),
        pytest.param(bool, {"type": "boolean"}, True, id="O-28 bool"),
        pytest.param(float, {"type": "number"}, 72.5, id="O-28 float"),
        pytest.param(list[str], {"type": "array", "items": {"type": "string"}}, ["a"], id="O-28 list"),
        pytest.param(int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, id="O-32 optional"),
    ],
)
def test_what_is_no_object_is_boxed(profile: str, annotation: Any, schema: dict[str, Any], value: Any) -> None:
    """Under `result`, with a marker from which a client can unbox it."""
    given = returning(annotation)
    shown = BUILT_IN[profile].output_schema(given)

    assert {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
        BOXES[profile]: {"field": "result"},
    } == shown
    assert {"result": value} == BUILT_IN[profile].value(given, value)


@dataclass
class O30:
    flag: bool
    retries: int = 1


@dataclass
class O31:
    total: int


@pytest.mark.parametrize("profile", BOXES)
@pytest.mark.parametrize(
    ("annotation", "properties", "required", "value"),
    [
        pytest.param(dict[str, int], None, None, {"records": 42}, id="O-29 map"),
        pytest.param(O30, {"flag", "retries"}, ["flag"], {"flag": True, "retries": 1}, id="O-30 dataclass"),
        pytest.param(O31, {"total"}, ["total"], {"total": 6}, id="O-31 result"),
        pytest.param(
            Profiled,
            {"name", "address", "tags"},
            ["name", "address", "tags"],
            {"name": "n", "address": {"street": "s", "unit": None}, "tags": []},
            id="O-36 nested",
        ),
        pytest.param(HasTitle, {"title", "url"}, ["title", "url"], {"title": "t", "url": "u"}, id="O-37 title"),
        pytest.param(Node, {"value", "children"}, ["value"], {"value": 1, "children": []}, id="recursive"),
    ],
)
def test_objects_are_not_boxed(
    profile: str, annotation: Any, properties: set[str] | None, required: list[str] | None, value: Any
) -> None:
    """They are the structured content themselves, nulls and all."""
    given = returning(annotation)
    shown = BUILT_IN[profile].output_schema(given)

    assert shown is not None
    assert "object" == shown["type"]
    assert properties == (set(shown["properties"]) if "properties" in shown else None)
    assert required == shown.get("required")
    assert value is BUILT_IN[profile].value(given, value)
    assert Draft202012Validator(shown).is_valid(value)
    assert profile == "full" or all("$ref" not in node for _, node in visit(shown))


def test_openmcp_closes_the_objects_it_shows_in_results() -> None:
    """As in the document's examples; unlike there, what is required says so."""
    assert {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "address": {
                "type": "object",
                "properties": {
                    "street": {"type": "string"},
                    "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "required": ["street", "unit"],
                "additionalProperties": False,
            },
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name", "address", "tags"],
        "additionalProperties": False,
    } == shown_output("openmcp", Profiled)


@pytest.mark.parametrize("_case", [pytest.param(None, id="O-35 union of objects")])
def test_openmcp_shows_a_choice_between_objects_at_the_root(_case: None) -> None:
    """The document's `anyOf`, with the type that a handshake wire wants to see beside it, and values without a box."""
    given = returning(Chat | Nav)
    shown = BUILT_IN["openmcp"].output_schema(given)
    value = {"kind": "navigate", "url": "https://example.com"}

    assert {
        "type": "object",
        "anyOf": [
            {
                "type": "object",
                "properties": {"kind": {"enum": ["chat"], "type": "string"}, "message": {"type": "string"}},
                "required": ["kind", "message"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"kind": {"enum": ["navigate"], "type": "string"}, "url": {"type": "string"}},
                "required": ["kind", "url"],
                "additionalProperties": False,
            },
        ],
    } == shown
    assert value is BUILT_IN["openmcp"].value(given, value)
    assert {"u": value} == BUILT_IN["openmcp"].value(returning(Chat | Nav, field="u"), value)
    assert {"u"} == set(shown_output("openmcp", Chat | Nav, field="u")["properties"])


@pytest.mark.parametrize("profile", ["portable", "full"])
def test_a_choice_between_objects_is_boxed_elsewhere(profile: str) -> None:
    """Narrow clients take no union at the root."""
    given = returning(Chat | Nav)

    assert {"result"} == set(BUILT_IN[profile].output_schema(given)["properties"])
    assert {"result": {"kind": "chat"}} == BUILT_IN[profile].value(given, {"kind": "chat"})


@pytest.mark.parametrize("profile", ["portable", "full"])
@pytest.mark.parametrize("field", [None, "sum"])
def test_nothing_is_boxed_on_a_wire_that_takes_any_value(profile: str, field: str | None) -> None:
    """The author's field name is for wires that need a box."""
    given = returning(int, field=field)

    assert {"type": "integer"} == BUILT_IN[profile].output_schema(given, boxed=False)
    assert 7 == BUILT_IN[profile].value(given, 7, boxed=False)


@pytest.mark.parametrize("profile", ["openmcp", "turul"])
def test_profiles_of_documents_look_the_same_on_every_wire(profile: str) -> None:
    """Who asks for the document gets the document."""
    given = returning(int)

    assert BUILT_IN[profile].output_schema(given) == BUILT_IN[profile].output_schema(given, boxed=False)
    assert BUILT_IN[profile].value(given, 7) == BUILT_IN[profile].value(given, 7, boxed=False)


@pytest.mark.parametrize("profile", [*BOXES, "turul"])
@pytest.mark.parametrize("annotation", [int, LocationData])
def test_the_authors_field_names_the_box_and_forces_it(profile: str, annotation: Any) -> None:
    """Also around an object."""
    given = returning(annotation, field="sum")
    shown = BUILT_IN[profile].output_schema(given)

    assert shown is not None
    assert {"sum"} == set(shown["properties"])
    assert {"sum": 8.0} == BUILT_IN[profile].value(given, 8.0)
    assert BOXES.get(profile) in (*shown, None)


@pytest.mark.parametrize("profile", [*BOXES, "turul"])
@pytest.mark.parametrize("value", [7, None, [1], {"a": 1}])
def test_values_without_a_schema_are_boxed_as_the_wire_needs(profile: str, value: Any) -> None:
    """Nothing was declared, so no schema is shown, but structured content is an object all the same."""
    given = contract()
    boxed = BUILT_IN[profile].value(given, value)

    assert None is BUILT_IN[profile].output_schema(given)
    assert isinstance(boxed, dict)
    assert value in (boxed, *boxed.values())
    if profile == "turul":
        assert {"output": value} == boxed
    elif profile != "openmcp":
        assert value is BUILT_IN[profile].value(given, value, boxed=False)


# Output: portable


def test_portable_results_are_as_safe_as_its_parameters() -> None:
    """Written out, bounded, without tuples, constants and closed objects; nulls stay, since values show them."""

    class Everything(BaseModel):
        model_config = ConfigDict(extra="forbid")
        pair: tuple[int, str]
        tree: Node
        action: Annotated[Chat | Nav, Field(discriminator="kind")] | None
        by_color: dict[Color, int]

    schema = shown_output("portable", Everything)
    keywords = {key for _, node in visit(schema) for key in node}

    assert set() == keywords & {"$ref", "$defs", "const", "oneOf", "prefixItems", "propertyNames", "title"}
    assert all(node.get("additionalProperties") is not False for _, node in visit(schema))
    assert {"type": "null"} in schema["properties"]["action"]["anyOf"]
    assert ["pair", "tree", "action", "by_color"] == schema["required"]


# Output: turul


@pytest.mark.parametrize(
    ("annotation", "author", "field"),
    [
        pytest.param(float, "calculationResult", "calculationResult", id="U-15 field by author"),
        pytest.param(str, None, "output", id="U-16 primitive"),
        pytest.param(LocationData, None, "locationData", id="U-17 structure"),
        pytest.param(LLH, None, "llh", id="U-18 LLH"),
        pytest.param(GPS, None, "gps", id="U-18 GPS"),
        pytest.param(LocationData, "LLH", "LLH", id="U-19 author wins"),
        pytest.param(list[LocationData], None, "output", id="U-20 list"),
    ],
)
def test_turul_boxes_everything_under_a_name(annotation: Any, author: str | None, field: str) -> None:
    """The author's name, else that of the structure, else `output`; the same in schema and value."""
    given = returning(annotation, field=author)
    shown = BUILT_IN["turul"].output_schema(given)

    assert shown is not None
    assert [field] == list(shown["properties"])
    assert [field] == shown["required"]
    assert [field] == list(BUILT_IN["turul"].value(given, "anything"))
    assert BUILT_IN["turul"].text_is_boxed


def test_turul_shows_the_examples_of_its_decisions() -> None:
    """A string, a structure."""
    assert {"type": "object", "properties": {"output": {"type": "string"}}, "required": ["output"]} == shown_output(
        "turul", str
    )
    assert {
        "type": "object",
        "properties": {
            "calculationResult": {
                "type": "object",
                "properties": {
                    "sum": {"type": "number"},
                    "operation": {"type": "string"},
                    "timestamp": {"type": "integer"},
                },
                "required": ["sum", "operation", "timestamp"],
            }
        },
        "required": ["calculationResult"],
    } == shown_output("turul", CalculationResult)


@pytest.mark.parametrize("_case", [pytest.param(None, id="U-30 none is absent")])
def test_turul_leaves_out_what_is_none(_case: None) -> None:
    """Keys of declared properties, not entries of lists and maps."""
    given = returning(list[LocationData])
    shown = BUILT_IN["turul"].output_schema(given)
    value = [{"latitude": 1.0, "longitude": 2.0, "label": None}]

    assert {"output": [{"latitude": 1.0, "longitude": 2.0}]} == BUILT_IN["turul"].value(given, value)
    assert shown is not None
    assert ["latitude", "longitude"] == shown["properties"]["output"]["items"]["required"]
    assert {"output": {"a": None}} == BUILT_IN["turul"].value(returning(dict[str, int | None]), {"a": None})


@pytest.mark.parametrize(("value", "expected"), [(None, {}), (7, {"output": 7})], ids=["none", "something"])
def test_turul_leaves_out_an_optional_result(value: Any, expected: dict[str, Any]) -> None:
    """The field is not required, and absent when there is nothing."""
    given = returning(int | None)

    assert {"type": "object", "properties": {"output": {"type": "integer"}}} == BUILT_IN["turul"].output_schema(given)
    assert expected == BUILT_IN["turul"].value(given, value)


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
