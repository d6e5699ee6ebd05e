"""What is inferred of parameters, and what is said of schemas that an author gives.

Cases of OpenMCP are checked under the profile `openmcp`, omni's under `omni`, turul's under `turul`.
"""

import copy
import dataclasses
import datetime as dt
import enum
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, List, Literal, Optional, Union

import pytest
from pydantic import BaseModel, Field
from tests.contracts.conftest import Bench, Project, case, meets, row, taking

from prowess import ConfigPaths, Context, Inject, Settings, skill_command
from prowess.errors import DeclarationError, SchemaError
from prowess.jsontypes import Schema
from prowess.schemas.strict import to_strict
from prowess.schemas.walk import visit


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class User(BaseModel):
    username: str
    email: str


class Point(BaseModel):
    latitude: float
    longitude: float
    label: str | None = None


@dataclasses.dataclass
class Query:
    path: str
    count: int


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float


class Square(BaseModel):
    kind: Literal["square"]
    side: float


Shape = Annotated[Union[Circle, Square], Field(discriminator="kind")]


# --- one parameter under openmcp ------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation, expected",
    [
        row("O-3", "a list", list[int], {"items": {"type": "integer"}, "type": "array"}),
        row("O-3", "a mapping", dict[str, str], {"additionalProperties": {"type": "string"}, "type": "object"}),
        row("O-4", "a literal", Literal["fast", "accurate"], {"enum": ["fast", "accurate"], "type": "string"}),
        row("O-4", "a literal of one word", Literal["chat"], {"enum": ["chat"], "type": "string"}),
        row(
            "O-7",
            "a described integer",
            Annotated[int, Field(description="an int", ge=1)],
            {"description": "an int", "minimum": 1, "type": "integer"},
        ),
        row("O-9", "an annotation in quotes", "int", {"type": "integer"}),
        row("O-9", "a container in quotes", "list[str]", {"items": {"type": "string"}, "type": "array"}),
        row("O-14", "an enumeration", Color, {"enum": ["red", "blue"], "type": "string"}),
    ],
)
def test_a_required_parameter_in_openmcp(bench: Bench, annotation: Any, expected: Schema) -> None:
    """Its schema, with a description at least."""
    schema = bench.inputs("openmcp", taking(annotation))
    assert {"description": "Parameter x", **expected} == schema["properties"]["x"]
    assert ["x"] == schema["required"]


@pytest.mark.parametrize(
    "annotation, default, expected",
    [
        row(
            "O-5",
            "a nullable",
            Optional[int],
            None,
            {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        ),
        row(
            "O-17",
            "a default that is a date",
            dt.date,
            dt.date(2024, 1, 1),
            {"type": "string", "format": "date", "default": "2024-01-01"},
        ),
    ],
)
def test_an_optional_parameter_in_openmcp(bench: Bench, annotation: Any, default: Any, expected: Schema) -> None:
    """Its default is JSON, and it is not required."""
    schema = bench.inputs("openmcp", taking(annotation, default))
    assert {"description": "Parameter x", **expected} == schema["properties"]["x"]
    assert "required" not in schema


# --- whole signatures under openmcp ---------------------------------------------------------------


@case("O-1", "required, default and nullable together")
def test_analytics(bench: Bench) -> None:
    def analytics(a: int, count: int = 1, tags: list[str] | None = None): ...

    schema = bench.inputs("openmcp", analytics)
    assert ("object", ["a"], 1) == (schema["type"], schema["required"], schema["properties"]["count"]["default"])
    assert "array" in [branch["type"] for branch in schema["properties"]["tags"]["anyOf"]]


@case("O-2", "primitives, word for word")
def test_primitives(bench: Bench) -> None:
    def f(name: str, age: int, active: bool = True): ...

    properties = {
        "name": {"type": "string", "description": "Parameter name"},
        "age": {"type": "integer", "description": "Parameter age"},
        "active": {"type": "boolean", "description": "Parameter active", "default": True},
    }
    expected = {"properties": properties, "required": ["name", "age"], "type": "object", "additionalProperties": False}
    assert expected == bench.inputs("openmcp", f)


@case("O-6", "no parameters")
def test_no_parameters(bench: Bench) -> None:
    def f(): ...

    assert {"type": "object", "properties": {}, "additionalProperties": False} == bench.inputs("openmcp", f)


@case("O-8", "untyped parameters take anything")
def test_untyped_parameters(bench: Bench) -> None:
    def f(a, b=3): ...

    schema = bench.inputs("openmcp", f)
    described = {"a": {"description": "Parameter a"}, "b": {"description": "Parameter b", "default": 3}}
    assert described == schema["properties"]
    assert ["a"] == schema["required"]


@case("O-10", "nothing but variadics")
def test_nothing_but_variadics(bench: Bench) -> None:
    """Any object; and it stays an object that lists its properties, of which there are none."""

    def f(*args, **kwargs):
        return kwargs

    expected = {"type": "object", "properties": {}, "additionalProperties": True}
    assert expected == bench.inputs("openmcp", f)
    assert {"z": 1} == bench.call(f, {"z": 1}).value


@case("O-11", "a variadic does not harm the rest")
def test_a_variadic_beside_a_parameter(bench: Bench) -> None:
    def f(a: int, **kwargs):
        return a, kwargs

    schema = bench.inputs("openmcp", f)
    assert {"a": {"type": "integer", "description": "Parameter a"}} == schema["properties"]
    assert (["a"], True) == (schema["required"], schema["additionalProperties"])
    assert [1, {"z": 2}] == bench.call(f, {"a": 1, "z": 2}).value


@case("O-11", "positional-only parameters are kept")
def test_positional_only_parameters(bench: Bench) -> None:
    def f(a, /, b):
        return [a, b]

    assert ["a", "b"] == list(bench.inputs("openmcp", f)["properties"])
    assert [1, 2] == bench.call(f, {"a": 1, "b": 2}).value


@case("O-12", "a parameter called title survives")
def test_a_parameter_called_title(bench: Bench) -> None:
    def f(title: str, x: int): ...

    schema = bench.inputs("openmcp", f)
    assert ["title", "x"] == list(schema["properties"])
    assert ["title", "x"] == schema["required"]


@case("O-13", "a model is inlined under the name of its parameter")
def test_a_model_parameter(bench: Bench) -> None:
    """It is not flattened: two models could not be told apart, and the client could not send `user`."""

    def f(user: User): ...

    schema = bench.inputs("openmcp", f)
    inlined = {
        "properties": {"username": {"type": "string"}, "email": {"type": "string"}},
        "required": ["username", "email"],
        "type": "object",
        "description": "Parameter user",
    }
    assert {"user": inlined} == schema["properties"]
    assert "$defs" not in schema


@case("O-15", "a context is not a parameter")
def test_a_context_parameter(bench: Bench) -> None:
    def f(q: str, ctx: Context): ...

    schema = bench.inputs("openmcp", f)
    assert {"q": {"type": "string", "description": "Parameter q"}} == schema["properties"]
    assert (["q"], False) == (schema["required"], schema["additionalProperties"])


@case("O-16", "an injected default is not a parameter")
def test_a_parameter_that_is_injected_by_its_default(bench: Bench) -> None:
    def f(dep=Inject("dep")):  # noqa: B008 - a marker, made once on purpose
        return dep

    with bench.runtime.override("dep", 41):
        assert {"type": "object", "properties": {}, "additionalProperties": False} == bench.inputs("openmcp", f)
        assert 41 == bench.call(f).value


# --- schemas an author gives, and tools for schemas -----------------------------------------------


@case("O-18", "an input schema that is no object is refused")
@pytest.mark.parametrize("given", [int, 5, "object", ["x"]])
def test_an_input_schema_that_is_no_schema(given: Any) -> None:
    """At the decorator, which takes a schema and no type."""
    with pytest.raises(DeclarationError, match="must be a JSON Schema"):
        skill_command(input_schema=given)(taking(int))


@case("O-18", "a scalar input schema is refused")
def test_a_scalar_input_schema(bench: Bench) -> None:
    with pytest.raises(SchemaError, match="must be of type 'object'"):
        bench.contract(taking(int), input_schema={"type": "integer"})


@case("O-19", "a dataclass gives an object with its fields")
def test_a_dataclass_as_an_input(bench: Bench) -> None:
    """As the type of a parameter; `input_schema=` takes no types."""
    schema = bench.inputs("openmcp", taking(Query))["properties"]["x"]
    assert ("object", {"path", "count"}) == (schema["type"], set(schema["properties"]))
    with pytest.raises(DeclarationError, match="must be a JSON Schema"):
        skill_command(input_schema=Query)(taking(int))


@case("O-20", "an injected parameter and titles are left out")
def test_compressing_a_schema(bench: Bench) -> None:
    def function(ctx: Context, name: Annotated[str, Field(title="Name")]) -> None: ...

    shown = bench.inputs("turul", function)
    assert {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]} == shown


STRICT = {"type": "object", "additionalProperties": False}
LETTERS = {"a": {"type": "string"}, "b": {"type": "integer", "default": None}}
X = {"type": "object", "properties": {"field": {"type": "string"}}}
CLOSED_X = {**X, **STRICT, "required": ["field"]}


@pytest.mark.parametrize(
    "schema, expected",
    [
        row(
            "O-21",
            "strict requires everything",
            {"type": "object", "properties": LETTERS},
            {
                **STRICT,
                "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        ),
        row(
            "O-23",
            "strict inlines a reference with siblings",
            {"$ref": "#/$defs/X", "description": "an X", "$defs": {"X": X}},
            {**CLOSED_X, "description": "an X"},
        ),
        row("O-24", "strict of nothing", {}, {**STRICT, "properties": {}, "required": []}),
        row(
            "O-25",
            "strict has anyOf",
            {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}},
            {
                **STRICT,
                "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
                "required": ["a"],
            },
        ),
        row("O-25", "strict merges a single allOf", {"allOf": [X]}, CLOSED_X),
    ],
)
def test_the_strict_dialect(schema: Schema, expected: Schema) -> None:
    """Closed objects whose every property is required."""
    before = copy.deepcopy(schema)
    assert expected == to_strict(schema)
    assert before == schema


@pytest.mark.parametrize(
    "schema, words",
    [
        row(
            "O-22",
            "strict has no open objects",
            {"type": "object", "additionalProperties": True},
            "additionalProperties",
        ),
        row("O-26", "a dangling reference", {"$ref": "#/$defs/Nope", "$defs": {}}, r"Unable to resolve \$ref"),
        row("O-26", "a remote reference", {"$ref": "https://x.example/s.json"}, r"Unexpected \$ref format"),
    ],
)
def test_what_the_strict_dialect_refuses(schema: Schema, words: str) -> None:
    """What it cannot say is an error."""
    with pytest.raises(SchemaError, match=words):
        to_strict(schema)


# --- omni -----------------------------------------------------------------------------------------


def echo(message: str, count: int = 1): ...


def nothing(): ...


def all_defaults(a: int = 1, b: str = "test", c: bool = True): ...


def variadic(a: int, *args, **kwargs):
    return a


def wired(settings: Settings, maybe: Settings | None = None, paths: ConfigPaths | None = None): ...


def wired_without_default(settings: Settings | None): ...


def odd_names(model_config: str, _private: int, json: bool):
    return [model_config, _private, json]


@pytest.mark.parametrize(
    "function, properties, required",
    [
        row("M-1", "required and default", echo, ["message", "count"], ["message"]),
        row("M-2", "no parameters", nothing, [], []),
        row("M-3", "nothing but defaults", all_defaults, ["a", "b", "c"], []),
        row("M-4", "settings and paths are injected", wired, [], []),
        row("M-5", "an injected nullable is not required", wired_without_default, [], []),
        row("M-7", "variadics are left out", variadic, ["a"], ["a"]),
        row("M-13", "names that pydantic keeps to itself", odd_names, ["model_config", "_private", "json"], [
            "model_config", "_private", "json",
        ]),
    ],
)  # fmt: skip
def test_names_in_omni(bench: Bench, function: Callable[..., Any], properties: list[str], required: list[str]) -> None:
    """Which parameters are shown, and which are required."""
    schema = bench.inputs("omni", function)
    assert ("object", properties, required) == (schema["type"], list(schema["properties"]), schema["required"])


@case("M-5", "an injected nullable arrives")
def test_an_injected_nullable(bench: Bench) -> None:
    def f(settings: Settings | None):
        return type(settings).__name__

    assert "Settings" == bench.call(f).value


@case("M-6", "the project root")
def test_the_project_root(bench: Bench) -> None:
    def f(project_root: Path):
        return project_root

    schema = bench.inputs("omni", f, inject_root=True)
    assert ({}, []) == (schema["properties"], schema["required"])
    assert str(bench.runtime.root) == bench.call(f, inject_root=True).value


@case("M-13", "such parameters arrive")
def test_odd_names_arrive(bench: Bench) -> None:
    assert ["m", 2, True] == bench.call(odd_names, {"model_config": "m", "_private": 2, "json": True}).value


@pytest.mark.parametrize(
    "annotation, default, expected",
    [
        row("M-8", "a literal", Literal["utf-8", "gbk"], "utf-8", {"type": "string", "enum": ["utf-8", "gbk"]}),
        row("M-9", "a nullable", list[str] | None, None, {"type": "array", "items": {"type": "string"}}),
    ],
)
def test_an_optional_parameter_in_omni(bench: Bench, annotation: Any, default: Any, expected: Schema) -> None:
    """As the guide shows it."""
    schema = bench.inputs("omni", taking(annotation, default))
    assert expected == schema["properties"]["x"]
    assert [] == schema["required"]


@pytest.mark.parametrize(
    "doc, expected",
    [
        row(
            "M-10",
            "a dash list",
            "Do.\n\nArgs:\n    - x: int - the dash - with dash inside",
            "the dash - with dash inside",
        ),
        row("M-10", "a plain dash list", "Do.\n\nArgs:\n    - x: int - the dash", "the dash"),
        row("M-11", "Google with a type", "Do.\n\nArgs:\n    x (int): The x value", "The x value"),
        row("M-11", "Sphinx", "Do.\n\n:param x: the sphinx x", "the sphinx x"),
        row("M-12", "plain Google", "Do.\n\nArgs:\n    x: The x value", "The x value"),
        row("M-12", "NumPy", "Do.\n\nParameters\n----------\nx : int\n    The x value", "The x value"),
    ],
)
def test_descriptions_from_docstrings(bench: Bench, doc: str, expected: str) -> None:
    """In every style that is in use; the whole text, dashes and all."""
    function = taking(int)
    function.__doc__ = doc
    assert expected == bench.inputs("omni", function)["properties"]["x"]["description"]


@case("M-14", "a parameter without a schema is a loud error")
def test_a_parameter_without_a_schema(bench: Bench) -> None:
    def f(name: str, callback: Callable[[int], int]): ...

    with pytest.raises(SchemaError, match=r"parameter 'callback' of .* has no JSON Schema") as raised:
        bench.contract(f)
    assert (__file__, f.__code__.co_firstlineno) == (raised.value.file, raised.value.line)


@case("M-14", "the other commands survive it")
async def test_a_command_without_a_schema_harms_no_other(project: Project) -> None:
    project.write(
        "skills/mixed.py",
        """
        from collections.abc import Callable
        from prowess import skill_command

        @skill_command
        def bad(name: str, callback: Callable[[int], int]): ...

        @skill_command
        def good(name: str): ...
        """,
    )
    async with project.open() as runtime:
        catalog = runtime.catalog()
        assert ["mixed.good"] == [contract.id for contract in catalog]
        assert ["mixed.bad"] == [failure.source for failure in catalog.failures]
        assert "'callback'" in catalog.failures[0].reason


@case("M-15", "a name nobody defines is an error at load")
def test_an_annotation_that_cannot_be_resolved(bench: Bench) -> None:
    """Not at the decorator: the name may be defined further down in the module."""

    def f(x: "Nowhere"): ...  # noqa: F821

    skill_command(f)
    with pytest.raises(SchemaError, match="parameter 'x': the annotation 'Nowhere' cannot be resolved"):
        bench.contract(f)


@case("M-15", "a name defined later is none")
def test_an_annotation_defined_later(bench: Bench) -> None:
    schema = bench.inputs("omni", forward)
    assert ["y"] == list(schema["properties"]["x"]["properties"])


def forward(x: "DefinedLater"): ...


@dataclasses.dataclass
class DefinedLater:
    y: int


# --- turul ----------------------------------------------------------------------------------------


def unqualified(  # noqa: PLR0917 - as turul tests it
    name: str,
    active: bool | None,
    count: int | None,
    score: float | None,
    tags: list[str],
    labels: list[str] | None,
):
    return [name, active, count, score, tags, labels]


def qualified(  # noqa: PLR0917 - the same
    name: str,
    active: Optional[bool],
    count: Optional[int],
    score: Optional[float],
    tags: List[str],
    labels: Optional[List[str]],
):
    return [name, active, count, score, tags, labels]


@pytest.mark.parametrize(
    "function", [row("U-1", "nullable types", unqualified), row("U-2", "the same in long", qualified)]
)
def test_nullable_parameters_in_turul(bench: Bench, function: Callable[..., Any]) -> None:
    """A type that admits null is not required, whether or not it has a default; then it is `None`."""
    schema = bench.inputs("turul", function)
    types = {name: held["type"] for name, held in schema["properties"].items()}
    kinds = {"active": "boolean", "count": "integer", "score": "number", "tags": "array", "labels": "array"}
    assert {"name": "string", **kinds} == types
    assert {"name", "tags"} == set(schema["required"])
    assert ["n", None, None, None, ["t"], None] == bench.call(function, {"name": "n", "tags": ["t"]}).value


@case("U-3", "a list of structures")
def test_a_list_of_structures(bench: Bench) -> None:
    points = bench.inputs("turul", taking(list[Point]))["properties"]["x"]
    assert ("array", "object") == (points["type"], points["items"]["type"])
    assert {"latitude", "longitude", "label"} == set(points["items"]["properties"])


@case("U-4", "an optional structure")
def test_an_optional_structure(bench: Bench) -> None:
    schema = bench.inputs("turul", taking(Point | None))
    assert "object" == schema["properties"]["x"]["type"]
    assert [] == schema.get("required", [])


@case("U-5", "an optional parameter may be left out")
def test_an_optional_parameter(bench: Bench) -> None:
    def f(required_param: str, optional_param: str = ""):
        return optional_param

    assert ["required_param"] == bench.inputs("turul", f)["required"]
    assert "" == bench.call(f, {"required_param": "r"}).value


@case("U-6", "a tagged union stays whole")
def test_a_tagged_union(bench: Bench) -> None:
    schema = bench.inputs("turul", taking(Shape))
    branches = schema["properties"]["x"]["oneOf"]
    assert ["circle", "square"] == [branch["properties"]["kind"]["const"] for branch in branches]
    assert [] == [path for path, node in visit(schema) if "$ref" in node]
    assert meets(schema, {"x": {"kind": "circle", "radius": 1.0}})


def explicit(**kwargs): ...


def nested_all_of(depth: int) -> Schema:
    schema: Schema = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "allOf": [schema]}
    return schema


DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
NODE = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}


@pytest.mark.parametrize(
    "schema",
    [
        row("U-8", "no dialect", {"type": "object"}),
        row("U-8", "2020-12", {"$schema": DRAFT_2020, "type": "object"}),
        row("U-8", "2020-12 with a hash", {"$schema": f"{DRAFT_2020}#", "type": "object"}),
        row("U-10", "just deep enough", nested_all_of(32)),
        row(
            "U-11",
            "a recursive schema",
            {"type": "object", "properties": {"root": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": NODE}},
        ),
    ],
)
def test_explicit_schemas_that_are_accepted(bench: Bench, schema: Schema) -> None:
    """And used as they are."""
    assert schema == bench.inputs("turul", explicit, input_schema=schema)


@pytest.mark.parametrize(
    "schema, words",
    [
        row("U-7", "not a schema", {"type": "object", "properties": {"bad": {"type": 123}}}, ["properties.bad", "123"]),
        row("U-9", "draft 7", {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, ["draft-07"]),
        row("U-10", "too large", {"type": "object", "description": "x" * 262_144}, ["262144"]),
        row("U-10", "too deep", nested_all_of(33), ["33", "32"]),
        row(
            "U-12",
            "remote",
            {"type": "object", "properties": {"x": {"$ref": "https://evil.example/schema.json"}}},
            ["https://evil.example/schema.json", "disabled", "policy"],
        ),
    ],
)
def test_explicit_schemas_that_are_refused(bench: Bench, schema: Schema, words: list[str]) -> None:
    """At load, by a message that names the command and the limit or the culprit."""
    with pytest.raises(SchemaError) as raised:
        bench.contract(explicit, name="named", input_schema=schema)
    assert [] == [word for word in ["named", *words] if word not in str(raised.value)]


@case("U-27", "a schema for arguments is an object")
def test_a_schema_for_arguments_is_an_object(bench: Bench) -> None:
    with pytest.raises(SchemaError, match="must be of type 'object'"):
        bench.contract(explicit, input_schema={"type": "string"})
