"""What is inferred of return types, when a result is boxed, and under which name.

Each shown value is checked against the schema that was shown for it.
"""

import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Literal, Optional, Union

import pytest
from mcp_types import CallToolResult, ImageContent, TextContent
from pydantic import BaseModel, ConfigDict, Field
from tests.contracts.conftest import Bench, case, meets, returning, row, taking, text

from prowess import skill_command
from prowess.errors import DeclarationError, SchemaError
from prowess.jsontypes import Json, Schema
from prowess.schemas.naming import camel_case
from prowess.schemas.refs import resolve_or_refuse
from prowess.schemas.steps import inline_refs, strip_null
from prowess.schemas.walk import visit


@dataclasses.dataclass
class Settings:
    flag: bool
    retries: int = 1


@dataclasses.dataclass
class Result:
    total: int


@dataclasses.dataclass
class Chat:
    kind: Literal["chat"]
    message: str


@dataclasses.dataclass
class Nav:
    kind: Literal["navigate"]
    url: str


@dataclasses.dataclass
class Address:
    street: str
    city: str


@dataclasses.dataclass
class Profile:
    name: str
    address: Address


@dataclasses.dataclass
class HasTitle:
    title: str
    url: str


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    inner_name: int = Field(alias="innerName")


@dataclasses.dataclass
class LocationData:
    latitude: float
    longitude: float
    label: str | None = None


@dataclasses.dataclass
class LLH:
    h: float


@dataclasses.dataclass
class GPS:
    fix: bool


@dataclasses.dataclass
class SearchResult:
    title: str
    score: Optional[float] = None


@dataclasses.dataclass
class Counts:
    count: int
    words: list[str]


@dataclasses.dataclass
class Node:
    name: str
    children: "list[Node]" = dataclasses.field(default_factory=list)


class Color(enum.Enum):
    RED = "red"


HERE = LocationData(47.0, 8.5)
NULLABLE_INTEGER = {"anyOf": [{"type": "integer"}, {"type": "null"}]}


def openmcp_box(schema: Schema) -> Schema:
    """The box as the OpenMCP document shows it."""
    return {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
        "x-dedalus-box": {"field": "result"},
    }


# --- openmcp --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation, value, expected",
    [
        row("O-27", "an integer", int, 7, {"type": "integer"}),
        row("O-28", "a string", str, "s", {"type": "string"}),
        row("O-28", "a boolean", bool, True, {"type": "boolean"}),
        row("O-28", "a number", float, 1.5, {"type": "number"}),
        row("O-28", "a list", list[str], ["a"], {"type": "array", "items": {"type": "string"}}),
        row("O-32", "an integer or null", int | None, 7, NULLABLE_INTEGER),
        row("O-32", "an integer or null, being null", int | None, None, NULLABLE_INTEGER),
    ],
)
def test_what_is_no_object_is_boxed(bench: Bench, annotation: Any, value: Any, expected: Schema) -> None:
    """In the field `result`, schema and value alike."""
    assert openmcp_box(expected) == bench.outputs("openmcp", returning(annotation, value))
    assert {"result": value} == bench.returned("openmcp", value, annotation)["structuredContent"]


@pytest.mark.parametrize(
    "annotation, value, data, expected",
    [
        row(
            "O-29",
            "an open mapping",
            dict[str, int],
            {"a": 1},
            {"a": 1},
            {"additionalProperties": {"type": "integer"}, "type": "object"},
        ),
        row(
            "O-30",
            "a dataclass with a default",
            Settings,
            Settings(flag=True),
            {"flag": True, "retries": 1},
            {
                "type": "object",
                "properties": {"flag": {"type": "boolean"}, "retries": {"type": "integer", "default": 1}},
                "required": ["flag"],
                "additionalProperties": False,
            },
        ),
        row(
            "O-31",
            "a dataclass",
            Result,
            Result(6),
            {"total": 6},
            {
                "type": "object",
                "properties": {"total": {"type": "integer"}},
                "required": ["total"],
                "additionalProperties": False,
            },
        ),
        row(
            "O-35",
            "a choice between dataclasses",
            Union[Chat, Nav],
            Nav("navigate", "https://x.example"),
            {"kind": "navigate", "url": "https://x.example"},
            {
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
            },
        ),
        row(
            "O-36",
            "a nested dataclass",
            Profile,
            Profile("n", Address("s", "c")),
            {"name": "n", "address": {"street": "s", "city": "c"}},
            {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "address": {
                        "type": "object",
                        "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                        "required": ["street", "city"],
                        "additionalProperties": False,
                    },
                },
                "required": ["name", "address"],
                "additionalProperties": False,
            },
        ),
        row(
            "O-37",
            "a field called title",
            HasTitle,
            HasTitle("t", "u"),
            {"title": "t", "url": "u"},
            {
                "type": "object",
                "properties": {"title": {"type": "string"}, "url": {"type": "string"}},
                "required": ["title", "url"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_an_object_stands_by_itself(bench: Bench, annotation: Any, value: Any, data: Json, expected: Schema) -> None:
    """Its schema is inlined, and the value meets it."""
    shown = bench.outputs("openmcp", returning(annotation, value))
    payload = bench.returned("openmcp", value, annotation)
    assert expected == shown
    assert (data, False) == (payload["structuredContent"], payload["isError"])
    assert meets(shown, data)


@pytest.mark.parametrize(
    "annotation",
    [
        row("O-33", "a text block", TextContent),
        row("O-33", "a list of text blocks", list[TextContent]),
        row("O-33", "a string or a text block", str | TextContent),
        row("O-33", "a list of several kinds of blocks", list[TextContent | ImageContent]),
        row("O-33", "a tool result", CallToolResult),
        row("O-34", "None", None),
        row("O-34", "Any", Any),
        row("O-34", "nothing written", ...),
    ],
)
def test_what_has_no_output_schema(bench: Bench, annotation: Any) -> None:
    """Content of MCP, and what nobody declared."""
    function = returning(annotation, None)
    assert [None, None, None] == [bench.outputs(profile, function) for profile in ("openmcp", "portable", "turul")]


@case("O-38", "an explicit schema passes through")
def test_an_explicit_output_schema(bench: Bench) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "number"}}}
    function = returning(..., {"sum": 3})
    assert schema == bench.outputs("openmcp", function, output_schema=schema)
    assert {"sum": 3} == bench.call(function, output_schema=schema).payload("openmcp")["structuredContent"]
    assert "output" == bench.call(returning(..., {"sum": "x"}), output_schema=schema).kind


# --- boxes, and back ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation, value, structured",
    [
        row("O-39", "a boxed number", int, 7, {"result": 7}),
        row("O-40", "another boxed number", float, 3.14, {"result": 3.14}),
        row("O-40", "what needs no box", dict[str, int], {"a": 1}, {"a": 1}),
    ],
)
def test_boxing_and_back(bench: Bench, annotation: Any, value: Any, structured: Json) -> None:
    """The outcome has the bare value. A client finds it in the field that the marker of the schema names."""
    function = returning(annotation, value)
    outcome, schema = bench.call(function), bench.outputs("openmcp", function)
    assert schema is not None
    assert (value, structured) == (outcome.value, outcome.payload("openmcp")["structuredContent"])
    marker = schema.get("x-dedalus-box")
    assert value == (structured[marker["field"]] if marker else structured)


@case("O-41", "without a field there is no box")
def test_no_field_no_box(bench: Bench) -> None:
    """A profile without boxes shows no schema and no data."""
    function = returning(float, 3.14)
    assert bench.outputs("omni", function) is None
    assert "structuredContent" not in bench.call(function).payload("omni")


@case("O-42", "a box may have any field")
def test_a_box_of_another_field(bench: Bench) -> None:
    assert {
        "type": "object",
        "properties": {"output": {"type": "number"}},
        "required": ["output"],
        "x-dedalus-box": {"field": "output"},
    } == bench.outputs("openmcp", returning(float, 1.0), output_field="output")


@case("O-43", "a marker that is only true")
@pytest.mark.parametrize("profile, marker", [("openmcp", "x-dedalus-box"), ("portable", "x-prowess-box")])
def test_a_marker_names_the_field(bench: Bench, profile: str, marker: str) -> None:
    """It is never only `true`."""
    schema = bench.outputs(profile, returning(int, 7), output_field="v")
    assert schema is not None
    assert {"field": "v"} == schema[marker]


# --- turul: everything is boxed -------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation, value, options, structured",
    [
        row("U-13", "a number without a field name", float, 9.0, {}, {"output": 9.0}),
        row("U-14", "a field name", float, 8.0, {"output_field": "sum"}, {"sum": 8.0}),
        row(
            "U-15",
            "a camelCase field name",
            float,
            15.0,
            {"output_field": "calculationResult"},
            {"calculationResult": 15.0},
        ),
        row("U-16", "a string", str, "Processed: test input", {}, {"output": "Processed: test input"}),
        row("U-17", "a structure", LocationData, HERE, {}, {"locationData": {"latitude": 47.0, "longitude": 8.5}}),
        row("U-18", "an acronym", LLH, LLH(1.0), {}, {"llh": {"h": 1.0}}),
        row("U-18", "another acronym", GPS, GPS(fix=True), {}, {"gps": {"fix": True}}),
        row(
            "U-19",
            "a field name beats the type name",
            LocationData,
            HERE,
            {"output_field": "LLH"},
            {"LLH": {"latitude": 47.0, "longitude": 8.5}},
        ),
        row(
            "U-20",
            "a list of structures",
            list[SearchResult],
            [SearchResult("a", 0.5), SearchResult("b")],
            {},
            {"output": [{"title": "a", "score": 0.5}, {"title": "b"}]},
        ),
        row(
            "U-30",
            "a field that is None is left out",
            LocationData,
            LocationData(1.0, 2.0, label=None),
            {},
            {"locationData": {"latitude": 1.0, "longitude": 2.0}},
        ),
        row(
            "U-30",
            "a field that is not None is there",
            LocationData,
            LocationData(1.0, 2.0, label="x"),
            {},
            {"locationData": {"latitude": 1.0, "longitude": 2.0, "label": "x"}},
        ),
    ],
)
def test_the_box_of_turul(bench: Bench, annotation: Any, value: Any, options: Any, structured: Json) -> None:
    """The same field in the schema and in the value."""
    schema = bench.outputs("turul", returning(annotation, value), **options)
    payload = bench.returned("turul", value, annotation, **options)
    assert structured == payload["structuredContent"]
    assert list(structured) == list(schema["properties"]) == schema["required"]
    assert meets(schema, structured)


@case("U-13", "a boxed number in the other profiles")
def test_the_field_of_the_other_profiles(bench: Bench) -> None:
    """There it is called `result`, as in turul's function macro."""
    for profile in ("portable", "full", "openmcp"):
        assert {"result": 9.0} == bench.returned(profile, 9.0, float)["structuredContent"]


@case("U-20", "the schema of a list is an array")
def test_the_schema_of_a_list(bench: Bench) -> None:
    output = bench.outputs("turul", returning(list[SearchResult], []))["properties"]["output"]
    assert ("array", "object") == (output["type"], output["items"]["type"])


@case("U-21", "undeclared, and boxed all the same")
def test_an_undeclared_structure(bench: Bench) -> None:
    value = Counts(11, ["a"])
    assert bench.outputs("turul", returning(..., value)) is None
    assert {"output": {"count": 11, "words": ["a"]}} == bench.returned("turul", value)["structuredContent"]


@pytest.mark.parametrize(
    "expected, name",
    [
        row("U-22", f"{name} is {expected}", expected, name)
        for expected, name in [
            ("calculationResult", "CalculationResult"),
            ("httpServer", "HTTPServer"),
            ("urlParser", "URLParser"),
            ("http2", "HTTP2"),
            ("x509Cert", "X509Cert"),
            ("ioError2", "IOError2"),
            ("myURL", "MyURL"),
            ("id", "ID"),
            ("vec3", "Vec3"),
            ("snake_case", "snake_case"),
            ("_Foo", "_Foo"),
        ]
    ],
)
def test_field_names_from_type_names(expected: str, name: str) -> None:
    """A run of capitals is one word."""
    assert expected == camel_case(name)


@case("U-23", "a command is called what its function is called")
def test_a_class_is_no_command(bench: Bench) -> None:
    """A class cannot be a command, so no name is made of its name."""

    class CalculatorTool: ...

    with pytest.raises(DeclarationError, match=r"CalculatorTool.* cannot be a command"):
        skill_command(CalculatorTool)
    assert "function" == bench.contract(taking(int)).name


INVARIANT = [
    row("U-24", "an integer", int, 1),
    row("U-24", "a number", float, 1.5),
    row("U-24", "a boolean", bool, False),
    row("U-24", "a null", None | int, None),
    row("U-24", "a list", list[int], [1, 2]),
    row("U-24", "a list with a null", list[Optional[int]], [1, None]),
    row("U-24", "a mapping", dict[str, int], {"a": 1}),
    row("U-24", "a mapping with a null", dict[str, Optional[int]], {"a": None}),
    row("U-24", "a tuple", tuple[int, str], (1, "a")),
    row("U-24", "a set", set[int], {1}),
    row("U-24", "a structure", LocationData, HERE),
    row("U-24", "no structure", Optional[LocationData], None),
    row("U-24", "an optional structure", Optional[LocationData], HERE),
    row("U-24", "a choice between structures", Union[Chat, Nav], Chat("chat", "hi")),
    row("U-24", "a recursive structure", Node, Node("a", [Node("b", [Node("c", [Node("d", [Node("e")])])])])),
    row("U-24", "an alias", Aliased, Aliased(inner_name=1)),
    row("U-24", "an enumeration", Color, Color.RED),
    row("U-24", "a datetime", dt.datetime, dt.datetime(2024, 1, 1)),
    row("U-24", "a UUID", uuid.UUID, uuid.UUID(int=1)),
    row("U-24", "a path", pathlib.Path, pathlib.Path("a/b")),
    row("U-24", "a decimal", decimal.Decimal, decimal.Decimal("1.50")),
    row("U-24", "a field called title", HasTitle, HasTitle("t", "u")),
]


@pytest.mark.parametrize("profile", ["portable", "full", "openmcp", "turul"])
@pytest.mark.parametrize("annotation, value", INVARIANT)
def test_the_invariant(bench: Bench, annotation: Any, value: Any, profile: str) -> None:
    """Every required key is there, every key is declared, and the whole value meets the schema."""
    schema = bench.outputs(profile, returning(annotation, value))
    structured = bench.returned(profile, value, annotation)["structuredContent"]
    assert "object" == schema["type"]
    assert [] == [key for key in schema.get("required", ()) if key not in structured]
    if not {"anyOf", "additionalProperties"} & schema.keys():
        assert [] == [key for key in structured if key not in schema["properties"]]
    assert meets(schema, structured)


@case("U-24", "an empty string")
@pytest.mark.parametrize("profile", ["openmcp", "turul"])
def test_the_invariant_of_a_text(bench: Bench, profile: str) -> None:
    """Boxed where a document asks for it."""
    structured = bench.returned(profile, "", str)["structuredContent"]
    assert meets(bench.outputs(profile, returning(str, "")), structured)


@case("U-24", "a text is a text")
@pytest.mark.parametrize("profile", ["portable", "full"])
@pytest.mark.parametrize("annotation", [str, Optional[str]])
def test_a_text_in_the_other_profiles(bench: Bench, profile: str, annotation: Any) -> None:
    """No schema, and no structured copy for clients to show in its place."""
    assert bench.outputs(profile, returning(annotation, "")) is None
    assert {"content": [text('a\n"b"')], "isError": False} == bench.returned(profile, 'a\n"b"', annotation)


# --- turul: converting schemas --------------------------------------------------------------------

STATISTICS = {"type": "object", "properties": {"min": {"type": "number"}, "max": {"type": "number"}}}


@pytest.mark.parametrize("keyword", [row("U-25", "in $defs", "$defs"), row("U-25", "in definitions", "definitions")])
def test_nested_references_are_inlined(keyword: str) -> None:
    """Through both of the keywords that hold definitions."""
    schema = {
        "type": "object",
        "properties": {"stats": {"$ref": f"#/{keyword}/Outer"}},
        keyword: {
            "Outer": {"type": "object", "properties": {"inner": {"$ref": f"#/{keyword}/Statistics"}}},
            "Statistics": STATISTICS,
        },
    }
    outer = {"type": "object", "properties": {"inner": STATISTICS}}
    assert {"type": "object", "properties": {"stats": outer}} == inline_refs(schema)


@pytest.mark.parametrize(
    "nullable",
    [
        row("U-26", "in a list of types", {"type": ["string", "null"]}),
        row("U-26", "in anyOf", {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ],
)
def test_null_is_stripped(nullable: Schema) -> None:
    """From a declared property, in either spelling."""
    schema = {"type": "object", "properties": {"a": nullable}, "required": ["a"]}
    assert {"type": "object", "properties": {"a": {"type": "string"}}} == strip_null(schema)


@case("U-28", "a recursive type works")
def test_a_recursive_type(bench: Bench) -> None:
    """It is written out to a depth, and the value meets it at any depth."""
    deep = Node("a", [Node("b", [Node("c", [Node("d", [Node("e", [Node("f")])])])])])
    schema = bench.outputs("turul", returning(Node, deep))
    assert [] == [path for path, node in visit(schema) if "$ref" in node]
    assert meets(schema, bench.returned("turul", deep, Node)["structuredContent"])


@case("U-28", "what is not in the document is not used")
@pytest.mark.parametrize("profile", ["portable", "turul"])
def test_a_remote_reference(bench: Bench, profile: str) -> None:
    remote = "https://x.example/s.json"
    with pytest.raises(SchemaError, match="non-local"):
        resolve_or_refuse({"$ref": remote}, remote)
    with pytest.raises(SchemaError, match="disabled by policy"):
        bench.contract(returning(..., {}), output_schema={"$ref": remote}, profile=profile)


@pytest.mark.parametrize(
    "siblings, expected",
    [
        row(
            "U-29",
            "a description moves in",
            {"description": "named thing"},
            {"description": "named thing", "type": "string"},
        ),
        row(
            "U-29",
            "a constraint that would collide stays apart",
            {"description": "named thing", "type": ["string", "null"]},
            {"description": "named thing", "allOf": [{"type": "string"}, {"type": ["string", "null"]}]},
        ),
    ],
)
def test_what_stands_beside_a_reference(siblings: Schema, expected: Schema) -> None:
    """It is merged where that says the same, and only else combined by `allOf`, which narrow clients do not read."""
    assert expected == inline_refs({"$ref": "#/$defs/S", **siblings, "$defs": {"S": {"type": "string"}}})


@case("U-28", "an unresolvable reference is an open object")
def test_an_unresolvable_reference_in_turul() -> None:
    """Lossy but safe, as the second of turul's decisions has it."""
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Nope"}}}
    expected = {"type": "object", "properties": {"a": {"type": "object"}}}
    assert expected == inline_refs(schema, fallback={"type": "object"})


# --- a generator is a list ------------------------------------------------------------------------


@case("U-24", "a generator")
def test_a_generator(bench: Bench) -> None:
    def count() -> Iterator[int]:
        yield from (1, 2, 3)

    function: Callable[..., Any] = count
    schema = bench.outputs("turul", function)
    structured = bench.call(function).payload("turul")["structuredContent"]
    assert {"output": [1, 2, 3]} == structured
    assert meets(schema, structured)
