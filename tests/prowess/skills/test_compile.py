"""From a declaration to a contract: what clients see of arguments and results, and what is refused at load."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NoReturn, TypeVar

import pytest
import typing_extensions
from mcp_types import CallToolResult
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_serializer
from pydantic.json_schema import SkipJsonSchema

from prowess import Audio, ConfigPaths, Context, Image, Inject, Runtime, Settings, skill_command
from prowess.calls.outcome import Outcome
from prowess.contracts.contract import Contract
from prowess.contracts.declaration import declaration_of
from prowess.errors import InjectionError, LoadError, SchemaError
from prowess.skills.entry import Entry

T = TypeVar("T")


@pytest.fixture
def contract(entry: Callable[..., Entry]) -> Callable[..., Contract]:
    return lambda function, **options: entry(function, **options).contract


@pytest.fixture
def call(entry: Callable[..., Entry]) -> Callable[..., Any]:
    """Call a function like a client does."""

    async def call(function: Callable[..., Any], arguments: Any = None, **options: Any) -> Outcome:
        return await entry(function, **options).call({} if arguments is None else arguments)

    return call


@pytest.fixture
def refusal(entry: Callable[..., Entry]) -> Callable[..., str]:
    """Why a function cannot be loaded; the reason names file and line."""

    def refusal(function: Callable[..., Any], **options: Any) -> str:
        with pytest.raises(LoadError) as caught:
            entry(function, **options)
        assert (__file__, function.__code__.co_firstlineno) == (caught.value.file, caught.value.line)
        assert str(caught.value).startswith(f"{__file__}:{caught.value.line}: ")
        return caught.value.reason

    return refusal


class Color(enum.Enum):
    RED = "red"


@dataclass
class Note:
    text: str
    when: dt.date | None = None


class Described(BaseModel):
    """Not a word of this is for the client's title."""

    title: str = Field(title="Shown")
    default: int = 3


class Page(BaseModel, Generic[T]):
    items: list[T]


class Foreign:
    pass


class Setting:
    pass


# --- input schemas


def test_arguments_become_a_closed_object(contract: Any):
    """Required is what has no default; defaults are JSON; there are no titles."""

    def function(a: int, b: str = "x", c: list[int] | None = None, d: Color = Color.RED) -> None: ...

    assert contract(function).input_schema == {
        "$defs": {"Color": {"enum": ["red"], "type": "string"}},
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string", "default": "x"},
            "c": {"anyOf": [{"items": {"type": "integer"}, "type": "array"}, {"type": "null"}], "default": None},
            "d": {"$ref": "#/$defs/Color", "default": "red"},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_a_function_without_parameters_takes_an_empty_object(contract: Any):
    """Closed like any other."""

    def function() -> None: ...

    assert {"type": "object", "properties": {}, "additionalProperties": False} == contract(function).input_schema


def test_untyped_parameters_take_anything(contract: Any):
    """Nothing is promised of them but their names."""

    def function(a, b=3) -> None: ...

    schema = contract(function).input_schema
    assert ({"a": {}, "b": {"default": 3}}, ["a"]) == (schema["properties"], schema["required"])


def test_forgotten_annotations_are_warned_of(contract: Any):
    """With what to write, guessed from the name and the default; what is injected, or given a schema, needs none."""

    def function(name, log, limit=10, *rest, project_root, flag: Any = None): ...

    found = contract(function, inject_root=True)
    anything = "has no annotation, so clients may send anything. Annotate it, like"
    assert (
        f"parameter 'name' {anything} `name: str`",
        f"parameter 'log' {anything} `log: logging.Logger`",
        f"parameter 'limit' {anything} `limit: int`",
        "clients cannot send *rest. Take a list instead, like `rest: list[str]`",
    ) == found.warnings
    assert found.digest == dataclasses.replace(found, warnings=()).digest
    assert () == contract(lambda x: None, name="f", input_schema="any").warnings


def _with_ctx(ctx): ...


def _with_context(context): ...


@pytest.mark.parametrize(("name", "function"), [("ctx", _with_ctx), ("context", _with_context)])
def test_a_forgotten_annotation_of_a_context_is_refused(contract: Any, refusal: Any, name: str, function: Any):
    """No client could send it. With a default, or with a schema of the author's, one need not."""
    message = refusal(function)
    assert (
        f"parameter '{name}' of test_compile._with_{name} has no annotation, so every client would have to" in message
    )
    assert f"Write `{name}: Context` (from prowess import Context)" in message
    assert () == contract(function, input_schema="any").warnings

    def optional(ctx=None): ...

    assert 1 == len(contract(optional).warnings)


def test_variadic_parameters_are_left_out(contract: Any):
    """Only `**kwargs` opens the object, typed as it is."""

    def args(a: int, *rest: int) -> None: ...

    def keywords(a: int, **more: int) -> None: ...

    def anything(a: int, *rest, **more) -> None: ...

    found = [contract(function).input_schema for function in (args, keywords, anything)]
    assert [{"a": {"type": "integer"}}] * 3 == [schema["properties"] for schema in found]
    assert [False, {"type": "integer"}, True] == [schema["additionalProperties"] for schema in found]


ODD_NAMES = (
    "title default description type properties required items enum const anyOf model_config model_fields _private "
    "__dunder json schema copy dict self cls cmd_name extra_items closed total fields name function command call args "
    "kwargs metadata context cwd handler arguments"
).split()


async def test_a_parameter_may_have_any_name(entry: Any):
    """Names that mean something elsewhere are only names here."""
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=int) for name in ODD_NAMES]

    def function(**given: int) -> dict[str, int]:
        return given

    function.__signature__ = inspect.Signature(parameters, return_annotation=dict[str, int])
    compiled = entry(function)
    assert {name: {"type": "integer"} for name in ODD_NAMES} == compiled.contract.input_schema["properties"]
    assert ODD_NAMES == compiled.contract.input_schema["required"]
    sent = {name: index for index, name in enumerate(ODD_NAMES)}
    assert sent == (await compiled.call(sent)).value
    unknown = await compiled.call({**sent, "extra": 1})
    assert 1 == len(unknown.problems)


def test_titles_are_pruned_and_names_are_not(contract: Any):
    """Schemas are walked by position: a field may be called `title` or `default`."""

    def function(it: Described) -> Described: ...

    found = contract(function)
    assert {"title", "default"} == found.input_schema["$defs"]["Described"]["properties"].keys()
    assert {"type": "string"} == found.input_schema["$defs"]["Described"]["properties"]["title"]
    assert {"title", "default"} == found.output.schema["properties"].keys()


@pytest.mark.parametrize(
    "default",
    [float("inf"), float("nan"), object(), Foreign(), ("a", object())],
    ids=["inf", "nan", "object", "foreign", "tuple"],
)
async def test_a_default_that_is_no_json_is_not_shown(entry: Any, default: Any):
    """The parameter stays optional, and the function gets its default."""

    def function(a: Any = default) -> bool:
        return a is default

    compiled = entry(function)
    assert {"a": {}} == compiled.contract.input_schema["properties"]
    assert (await compiled.call({})).value is True


# --- what is written beside the type


def test_descriptions_come_from_field_text_doc_or_docstring(contract: Any):
    """In this order; the docstring of the function has the last word only where nothing else is written."""

    def function(  # noqa: D417 - what is not described is the point
        *,
        a: Annotated[int, Field(description="by field", ge=1)],
        b: Annotated[int, "by text"],
        c: Annotated[int, typing_extensions.Doc("by doc")],
        d: int = Field(3, description="by default", le=9),
        e: Annotated[int, Field(description="inside")] | None = None,
        f: Annotated[int, Field(description="annotated")] = Field(1, description="assigned wins"),
        g: int = 0,
        h: int = 0,
        i: Annotated[int, 5] = 0,
    ) -> None:
        """Do.

        Args:
            a: not shown
            g: by docstring
        """

    properties = contract(function).input_schema["properties"]
    expected = {
        "a": "by field",
        "b": "by text",
        "c": "by doc",
        "d": "by default",
        "e": "inside",
        "f": "assigned wins",
        "g": "by docstring",
        "h": None,
        "i": None,
    }
    assert expected == {name: schema.get("description") for name, schema in properties.items()}
    assert (1, 9) == (properties["a"]["minimum"], properties["d"]["maximum"])


def test_a_described_type_keeps_its_own_description(contract: Any):
    """The parameter's stands beside the reference."""

    def function(note: Described) -> None:
        """Do.

        Args:
            note: what to keep
        """

    schema = contract(function).input_schema
    assert "what to keep" == schema["properties"]["note"]["description"]
    assert "Not a word" in schema["$defs"]["Described"]["description"]


async def test_fields_may_have_defaults(entry: Any):
    """Beside the type or in the place of the default; what the signature says wins."""

    def function(
        *,
        a: int = Field(3),
        b: Annotated[int, Field(default=4)] = 5,
        c: Annotated[int, Field(default=6)] = Field(description="c"),
        d: list[int] = Field(default_factory=list),  # noqa: B008 - pydantic reads it
        e: int = Field(default_factory=lambda given: given["a"] + 1),
        f: Annotated[int, Field(default=7), Field(ge=0)] = Field(default=8),
        g: Annotated[int, Field(default=9)] = 10,
    ) -> list[Any]:
        return [a, b, c, d, e, f, g]

    compiled = entry(function)
    schema = compiled.contract.input_schema
    assert "required" not in schema
    shown = {name: part.get("default") for name, part in schema["properties"].items()}
    assert {"a": 3, "b": 5, "c": 6, "d": None, "e": None, "f": 8, "g": 10} == shown
    assert [3, 5, 6, [], 4, 8, 10] == (await compiled.call({})).value
    assert [1, 2, 3, [4], 5, 6, 7] == (
        await compiled.call({"a": 1, "b": 2, "c": 3, "d": [4], "e": 5, "f": 6, "g": 7})
    ).value


async def test_a_default_beside_the_type_alone_makes_it_optional(entry: Any):
    """As in a model."""

    def function(*, a: Annotated[list[int], Field(default_factory=list)], b: Annotated[int, Field(ge=1)]) -> list[Any]:
        a.append(b)
        return a

    compiled = entry(function)
    assert ["b"] == compiled.contract.input_schema["required"]
    assert [[1], [2]] == [(await compiled.call({"b": b})).value for b in (1, 2)]


async def test_a_field_without_a_default_is_required(entry: Any):
    """`Field(...)`."""

    def function(a: int = Field(ge=1), b: int = Field(...)) -> int:
        return a + b

    compiled = entry(function)
    assert ["a", "b"] == compiled.contract.input_schema["required"]
    assert ("- a: expected an integer >= 1, got 0\n- b: required") in (await compiled.call({"a": 0})).text


async def test_an_alias_is_the_name_that_clients_use(entry: Any):
    """For words that Python keeps for itself. Python code may use either."""

    def function(from_: Annotated[int, Field(alias="from")], to: int = Field(3, validation_alias="class")) -> list[int]:
        return [from_, to]

    compiled = entry(function)
    schema = compiled.contract.input_schema
    assert (["from", "class"], ["from"]) == (list(schema["properties"]), schema["required"])
    assert [1, 3] == (await compiled.call({"from": "1"})).value
    assert 'from_: unknown argument; did you mean "from"?' in (await compiled.call({"from": 1, "from_": 2})).text
    assert [1, 2] == (await compiled.call_python((1,), {"to": 2})).value
    assert [1, 2] == (await compiled.call_python((), {"from": 1, "class": 2})).value


async def test_an_alias_cannot_be_passed_by(entry: Any):
    """Not through `**kwargs` either, which would skip validation; in Python it may."""

    def function(from_: Annotated[int, Field(alias="from")], **more: Any) -> list[Any]:
        return [from_, more]

    compiled = entry(function)
    assert [1, {"x": 2}] == (await compiled.call({"from": 1, "x": 2})).value
    refused = await compiled.call({"from": 1, "from_": "no int"})
    assert ("input", 1) == (refused.kind, len(refused.problems))
    assert [1, {"x": 2}] == (await compiled.call_python((), {"from_": 1, "x": 2})).value


def test_aliases_that_cannot_work_are_refused(refusal: Any):
    """Two parameters under one name, and names that are several."""

    def clash(a: int, b: Annotated[int, Field(alias="a")]) -> None: ...

    def choices(a: Annotated[int, Field(validation_alias=AliasChoices("x", "y"))]) -> None: ...

    assert "two parameters of test_compile.clash are called 'a': change the alias of one" == refusal(clash)
    assert "parameter 'a' of test_compile.choices: an alias must be a plain text" in refusal(choices)


# --- what has no schema


def test_an_annotation_without_schema_fails_its_command(refusal: Any):
    """Naming the parameter, the reason, and the ways out."""

    def function(a: int, handler: Callable[[int], int]) -> None: ...

    reason = refusal(function)
    assert "parameter 'handler' of test_compile.function has no JSON Schema: " in reason
    assert "CallableSchema" in reason
    assert "Annotate it with data types, or pass input_schema=" in reason


def test_a_foreign_class_may_have_been_meant_to_be_injected(refusal: Any):
    """The reason names the nearest type that somebody provides; for data types it does not."""

    def function(settings: Setting | None) -> None: ...

    def ranged(a: range) -> None: ...

    def noted(note: dict[str, Foreign]) -> None: ...

    assert "there is no provider for" in refusal(function)
    assert "the nearest is Settings" in refusal(function)
    assert "arbitrary_types_allowed" not in refusal(function)
    assert "there is no provider for" not in refusal(ranged)
    assert "there is no provider for" not in refusal(noted)


def test_keywords_without_schema_fail_their_command(refusal: Any):
    """They have no name to blame."""

    def function(**more: Foreign) -> None: ...

    assert "the **keywords of test_compile.function have no JSON Schema: " in refusal(function)


def test_a_result_without_schema_fails_its_command(refusal: Any, contract: Any):
    """The ways out: `output=` and `output_schema=`."""

    def function() -> Foreign: ...

    reason = refusal(function)
    assert "the return type of test_compile.function has no JSON Schema: " in reason
    assert reason.endswith("with the hook `prowess_render`, or declare the result with output=")
    assert {"type": "integer"} == contract(function, output=int).output.schema


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes typing.TypedDict from Python 3.12 on")
async def test_a_typed_dict_of_typing_inside_a_model_is_a_failure_of_its_file(tmp_path: Path):
    """Pydantic refuses it while the module is imported, before we are asked; its words say what to import instead."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "shop.py").write_text(
        "import typing\n"
        "from pydantic import BaseModel\n"
        "from prowess import skill_command\n"
        "class Item(typing.TypedDict):\n"
        "    name: str\n"
        "class Order(BaseModel):\n"
        "    item: Item\n"
    )
    async with Runtime.open(tmp_path) as runtime:
        (failure,) = runtime.catalog().failures
    assert (str(tmp_path / "skills" / "shop.py"), 6) == (failure.file, failure.line)
    assert "use `typing_extensions.TypedDict` instead of `typing.TypedDict`" in failure.reason


async def test_a_result_without_schema_may_have_a_renderer(tmp_path: Path):
    """Where a plugin may know the type, nothing is promised and the renderer is asked; not in a pair with content."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "frames.py").write_text(
        "from prowess import Image, hookimpl, skill_command\n"
        "class Frame: ...\n"
        "@hookimpl\n"
        "def prowess_render(value):\n"
        "    return [1, 2] if isinstance(value, Frame) else None\n"
        "@skill_command(output_field='rows')\n"
        "def frame() -> Frame:\n"
        "    return Frame()\n"
        "@skill_command\n"
        "def pair() -> tuple[Image, Frame]: ...\n"
    )
    async with Runtime.open(tmp_path) as runtime:
        (found,) = runtime.catalog()
        assert (None, "rows") == (found.output.schema, found.output.field)
        assert [1, 2] == (await runtime.call("frames.frame")).value
        assert "the return type of frames.pair has no JSON Schema" in runtime.catalog().failures[0].reason


# --- explicit input schemas

TEXT = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^[0-9]+$"}}, "required": ["a"]}


async def test_an_explicit_schema_is_used_as_given(entry: Any):
    """Shown as it is by every profile, and arguments are validated by it; then they become the declared types."""
    schema = {**TEXT, "title": "T", "properties": {"a": {"type": "string", "pattern": "^[0-9]+$", "default": None}}}

    def function(a: int) -> int:
        return a + 1

    compiled = entry(function, input_schema=schema)
    assert schema == compiled.contract.input_schema
    assert compiled.contract.input_explicit
    assert 8 == (await compiled.call({"a": "7"})).value
    assert "a: expected string, got 7" in (await compiled.call({"a": 7})).text
    assert "a: expected text that matches ^[0-9]+$" in (await compiled.call({"a": "x"})).text


async def test_an_explicit_schema_may_refer_to_its_own_whole(entry: Any):
    """A default is not judged by a part that means nothing without the rest."""

    def function(a: str, b: str = "x") -> str:
        return a + b

    properties = {"a": {"type": "string"}, "b": {"$ref": "#/properties/a", "default": "x"}}
    compiled = entry(function, input_schema={"type": "object", "properties": properties, "required": ["a"]})
    assert "1x" == (await compiled.call({"a": "1"})).value
    assert "b: expected string" in (await compiled.call({"a": "1", "b": 2})).text


async def test_an_explicit_schema_validates_python_calls_as_json(entry: Any):
    """What instances look like on the wire is what counts."""

    def function(a: Path) -> str:
        return type(a).__name__

    compiled = entry(
        function, input_schema={"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    )
    assert type(Path()).__name__ == (await compiled.call_python((Path("/x"),), {})).value
    assert "a: expected string, got 5" in (await compiled.call_python((5,), {})).text
    assert "cannot be read as JSON" in (await compiled.call_python((object(),), {})).text


def test_an_explicit_schema_has_to_agree_with_the_signature(refusal: Any, contract: Any):
    """It offers what the function needs, and nothing that it cannot take or that is injected."""

    def function(a: int, ctx: Context, b: int = 0) -> None: ...

    def open_function(a: int, ctx: Context, **more: Any) -> None: ...

    def given(function: Callable[..., Any], **schema: Any) -> str:
        return refusal(function, input_schema={"type": "object", **schema})

    name = "input_schema of test_compile.function"
    assert f"{name} must be of type 'object' at its root" == refusal(function, input_schema={"type": "array"})
    assert f"{name} offers y, z, which a client cannot send" == given(function, properties={"a": {}, "z": {}, "y": {}})
    assert f"{name} offers ctx, which a client cannot send" == given(function, properties={"a": {}, "ctx": {}})
    assert "offers ctx, which a client cannot send" in given(open_function, properties={"ctx": {}})
    assert f"{name} requires c, which a client cannot send" == given(function, required=["a", "c"])
    assert "requires ctx, which a client cannot send" in given(open_function, required=["a", "c", "ctx"])
    assert f"{name} leaves out a, which the function needs" == given(function, additionalProperties=False)
    assert f"{name} does not require a, which the function needs" == given(function, properties={"a": {}})
    for fits in (
        {},
        {"properties": {"a": {}}, "required": ["a"]},
        {"properties": {"a": {}}, "anyOf": [{"required": ["a"]}]},
    ):
        assert contract(function, input_schema={"type": "object", **fits})
    assert contract(open_function, input_schema={"type": "object", "properties": {"z": {}}})


def test_an_explicit_schema_may_list_no_choices(contract: Any):
    """Although no value fits that part."""

    def function(a: Any = None) -> None: ...

    given = {"type": "object", "properties": {"a": {"anyOf": [{"enum": []}, {"type": "null"}]}}}
    assert given == contract(function, input_schema=given).input_schema


def test_an_explicit_schema_has_to_be_one(refusal: Any):
    """JSON Schema 2020-12, and nothing from elsewhere."""

    def function(a: int) -> None: ...

    for schema, problem in (
        ({"type": 123}, "not valid JSON Schema 2020-12"),
        ({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}, "dialect"),
        ({"type": "object", "$ref": "https://evil.example/schema.json"}, "https://evil.example/schema.json"),
    ):
        for option in ("input_schema", "output_schema"):
            reason = refusal(function, **{option: schema})
            assert reason.startswith(f"{option} of test_compile.function: ")
            assert problem in reason


async def test_an_explicit_schema_vouches_for_types_without_one(entry: Any):
    """Those parameters take what the schema lets through; the others keep their types."""

    def function(a: int, handler: Callable[[int], int], thing: Foreign) -> list[Any]:
        return [a, handler, thing]

    schema = {"type": "object", "properties": {name: {} for name in ("a", "handler", "thing")}}
    for given in ({**schema, "required": ["a", "handler", "thing"]}, "any"):
        compiled = entry(function, input_schema=given)
        assert [1, "h", {"x": 1}] == (await compiled.call({"a": "1", "handler": "h", "thing": {"x": 1}})).value


async def test_any_is_the_permissive_schema(entry: Any):
    """Where an author asks for it, and nowhere else."""

    def function(a: int, b: int = 2) -> int:
        return a + b

    compiled = entry(function, input_schema="any")
    assert {"type": "object", "additionalProperties": True} == compiled.contract.input_schema
    assert compiled.contract.input_explicit
    assert 3 == (await compiled.call({"a": 1})).value
    assert "a: required" in (await compiled.call({})).text


# --- results


class Kept(NamedTuple):
    a: int


@pytest.mark.parametrize(
    "returns, schema",
    [
        (int, {"type": "integer"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Color, {"enum": ["red"], "type": "string"}),
        (Iterator[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple[Image, int], {"type": "integer"}),
        (Annotated[int, Field(ge=1)], {"type": "integer", "minimum": 1}),
    ],
)
def test_results_have_a_schema(contract: Any, returns: Any, schema: Any):
    """That of what is sent, not of what is returned."""

    def function() -> None: ...

    assert schema == contract(function, output=returns).output.schema


def unannotated(): ...


@pytest.mark.parametrize(
    "returns", [None, type(None), Any, NoReturn, typing_extensions.Never, Image, Audio, bytes, list[Image], str | Image]
)
def test_content_and_nothing_have_no_schema(contract: Any, returns: Any):
    """There is no data to promise."""

    def function() -> None: ...

    function.__annotations__["return"] = returns
    assert contract(function).output.schema is None
    assert contract(unannotated).output.schema is None


@pytest.mark.parametrize(
    "returns, name",
    [
        (Note, "Note"),
        (Note | None, "Note"),
        (Described, "Described"),
        (Page[int], "Page"),
        (list[Note], None),
        (Kept, None),
        (int, None),
        (Note | Described, None),
    ],
)
def test_structures_have_a_name(contract: Any, returns: Any, name: str | None):
    """By which profiles may call the box."""

    def function() -> None: ...

    assert name == contract(function, output=returns).output.type_name


async def test_output_declares_what_is_not_annotated(entry: Any):
    """Results are checked by it."""

    def function(good: bool):
        return "7" if good else "seven"

    compiled = entry(function, output=int)
    assert {"type": "integer"} == compiled.contract.output.schema
    assert 7 == (await compiled.call({"good": True})).value
    assert "output" == (await compiled.call({"good": False})).kind


@pytest.mark.parametrize(
    "annotated, output",
    [
        (str, int),
        (int, str),
        (dict[str, int], list[int]),
        (list[int], Note),
        (Note, str),
        (Iterator[int], dict),
        (float, bool),
    ],
)
def test_output_may_not_contradict_the_annotation(refusal: Any, annotated: Any, output: Any):
    """One of them is a mistake, and no value would pass."""

    def function() -> None: ...

    function.__annotations__["return"] = annotated
    reason = refusal(function, output=output)
    assert "of test_compile.function contradicts the annotation -> " in reason
    assert "Keep the one that is true" in reason


@pytest.mark.parametrize(
    "annotated, schema, fits",
    [
        (int, {"type": "string"}, False),
        (list[int], {"type": ["object", "null"]}, False),
        (bool, {"$ref": "#/$defs/N", "$defs": {"N": {"type": "number"}}}, False),
        (int, {"type": "number"}, True),
        (int, {"minimum": 1}, True),
        (Any, {"type": "string"}, True),
        (Foreign, {"type": "string"}, True),
        (dict[str, int], {"type": "array"}, True),  # it may be a whole result with an array as its data
        (tuple[Image, Note], {"type": "object"}, True),
        (Image, {"type": "object"}, True),
    ],
)
def test_an_output_schema_may_not_contradict_the_annotation(
    contract: Any, refusal: Any, annotated: Any, schema: Any, fits: bool
):
    """Every result would break it."""

    def function() -> None: ...

    function.__annotations__["return"] = annotated
    if fits:
        assert contract(function, output_schema=schema)
    else:
        reason = refusal(function, output_schema=schema)
        assert "output_schema of test_compile.function contradicts the annotation -> " in reason
        assert ", which is written as " in reason


@pytest.mark.parametrize(
    "annotated, output",
    [
        (dict[str, Any], Note),
        (float, int),
        (int | str, int),
        (Any, int),
        (object, int),
        (Image, int),
        (str, Path),
        (Iterator[int], list[int]),
        (int, Any),
        (Foreign, int),
        ("Unknown", int),
    ],
)
def test_output_may_say_more_than_the_annotation(contract: Any, annotated: Any, output: Any):
    """Or where that says nothing, cannot be resolved, or has no schema."""

    def function() -> None: ...

    function.__annotations__["return"] = annotated
    assert contract(function, output=output)


def test_output_beside_any_schema_does_nothing(refusal: Any):
    """The permissive schema takes everything."""

    def function(): ...

    assert 'has no effect beside output_schema="any"' in refusal(function, output=int, output_schema="any")


@pytest.mark.parametrize("returns", [None, NoReturn, Image, bytes, list[Image], str | Image])
def test_an_output_field_without_data_is_refused(refusal: Any, returns: Any):
    """No profile would ever box such a result."""

    def function() -> None: ...

    function.__annotations__["return"] = returns
    reason = refusal(function, output_field="sum")
    assert "output_field='sum' of test_compile.function has no effect" in reason
    assert "Drop it, or return data" in reason


@pytest.mark.parametrize("returns", [str, Note, Any, CallToolResult, CallToolResult | None, tuple[list[Image], int]])
def test_an_output_field_with_data_is_taken(contract: Any, returns: Any):
    """Some profile boxes it."""

    def function() -> None: ...

    function.__annotations__["return"] = returns
    assert "sum" == contract(function, output_field="sum").output.field
    assert "sum" == contract(function, output_field="sum", output_schema={"type": "string"}).output.field


async def test_an_output_field_in_a_profile_of_text_is_refused(tmp_path: Path):
    """The profile that the command is pinned to shows no data."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "a.py").write_text(
        "from prowess import skill_command\n@skill_command(profile='omni', output_field='sum')\ndef f() -> int: ...\n"
    )
    async with Runtime.open(tmp_path) as runtime:
        (failure,) = runtime.catalog().failures
    assert "output_field='sum' has no effect: the profile 'omni' shows no data" in failure.reason


@pytest.mark.parametrize("alias", ["test_compile.function", "test_compile/function", "test_compile_function"])
def test_an_alias_is_another_name(refusal: Any, alias: str):
    """One that the command has already adds none."""

    def function(): ...

    assert f"the alias {alias!r} is the name of test_compile.function already" in refusal(function, aliases=[alias])


async def test_output_field_names_the_box(call: Any, contract: Any):
    """In the schema and in the payload; also where nothing was declared."""

    def function() -> int:
        return 7

    def undeclared():
        return 7

    assert "sum" == contract(function, output_field="sum").output.field
    for command in (function, undeclared):
        payload = (await call(command, output_field="sum")).payload()
        assert {"sum": 7} == payload["structuredContent"]


async def test_an_explicit_output_schema_is_used_as_given(entry: Any):
    """Results are validated by it, besides their type."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}, "required": ["n"]}

    def function(n: int) -> dict[str, int]:
        return {"n": n}

    compiled = entry(function, output_schema=schema)
    assert (schema, True) == (compiled.contract.output.schema, compiled.contract.output.explicit)
    assert {"n": 3} == (await compiled.call({"n": 3})).value
    broken = await compiled.call({"n": 4})
    assert "output" == broken.kind
    assert "n: expected at most 3, got 4" in broken.text


async def test_an_explicit_output_schema_vouches_for_types_without_one(call: Any):
    """And for results that nobody annotated."""

    def foreign() -> Foreign:
        return {"n": 1}

    for command in (foreign, lambda: {"n": 1}):
        outcome = await call(command, name="x", output_schema={"type": "object", "required": ["n"]})
        assert {"n": 1} == outcome.value


async def test_any_output_is_data_of_any_kind(entry: Any):
    """Promised as that, and sent as structured content."""

    def function(text: str):
        return text

    compiled = entry(function, output_schema="any")
    assert {} == compiled.contract.output.schema
    assert {"result": "x"} == (await compiled.call({"text": "x"})).payload()["structuredContent"]


class Broken(BaseModel):
    n: int = Field(ge=1)


async def test_a_result_that_breaks_the_contract_fails_the_call(call: Any):
    """An instance that was made without validation, or changed, is no proof."""

    def made() -> Broken:
        return Broken.model_construct(n=0)

    def mutated() -> list[Broken]:
        broken = Broken(n=1)
        broken.n = -1
        return [broken]

    for command in (made, mutated):
        outcome = await call(command)
        assert "output" == outcome.kind
        assert "the result breaks the declared output schema" in outcome.text


class Unsaid(BaseModel):
    n: int
    as_text: bool = Field(default=False, exclude=True)

    @model_serializer
    def write(self):
        return {"n": str(self.n)} if self.as_text else {"n": self.n}


async def test_a_serializer_that_does_not_say_what_it_returns_is_watched(call: Any):
    """Its schema may be wrong: then the call fails, and no client sees what was not promised."""

    def function(as_text: bool) -> Unsaid:
        return Unsaid(n=1, as_text=as_text)

    assert {"n": 1} == (await call(function, {"as_text": False})).value
    assert 'n: expected integer, got "1"' in (await call(function, {"as_text": True})).text


# --- injected parameters


INJECTED = {
    "settings": Settings,
    "maybe": Settings | None,
    "paths": Annotated[ConfigPaths, "where things are"],
    "ctx": Context,
    "named": Annotated[Any, Inject("thing")],
    "project_root": Path,
    "api_key": str,
    "secret": str,
}


@pytest.mark.parametrize("default", [True, False], ids=["with default", "without"])
@pytest.mark.parametrize("open_", [True, False], ids=["open", "closed"])
async def test_injected_parameters_can_neither_be_seen_nor_sent(tmp_path: Path, open_: bool, default: bool):
    """In whatever form they are declared; all of them are refused at once, beside other problems."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("q", kind, annotation=int)]
    for name, annotation in INJECTED.items():
        value = None if default else inspect.Parameter.empty
        parameters.append(inspect.Parameter(name, kind, annotation=annotation, default=value))
    if open_:
        parameters.append(inspect.Parameter("more", inspect.Parameter.VAR_KEYWORD))

    def function(**given: Any) -> list[str]:
        return sorted(given)

    function.__signature__ = inspect.Signature(parameters)
    command = skill_command(inject_root=True, inject_settings=["api.key", "api.secret:secret"])(function)
    flags = {"api": {"key": "k", "secret": "s"}}
    async with Runtime.open(tmp_path, overrides={"thing": 1}, flags=flags) as runtime:
        compiled = runtime.entry_of(declaration_of(command))
        assert ["q"] == list(compiled.contract.input_schema["properties"])
        assert set(INJECTED) == set(compiled.contract.injected)
        outcome = await compiled.call({"q": "x", **dict.fromkeys(INJECTED, 1)})
        assert "input" == outcome.kind
        refused = {line.partition(":")[0] for line in outcome.problems if "provided by Prowess" in line}
        assert set(INJECTED) == refused
        assert "q: expected an integer" in outcome.text
        assert sorted([*INJECTED, "q"]) == (await compiled.call({"q": 1})).value


def test_an_injected_name_that_nobody_takes_is_refused(refusal: Any):
    """It would silently do nothing."""

    def function(a: int) -> None: ...

    for options, name in (({"inject_root": True}, "project_root"), ({"inject_settings": ["api.key"]}, "api_key")):
        assert f"the injected {name!r} has no parameter: add a parameter of that name" in refusal(function, **options)


def test_autowiring_can_be_switched_off(refusal: Any, contract: Any):
    """Then a type that could be injected is a type without schema; a marker still counts."""

    def function(settings: Settings) -> None: ...

    def marked(settings: Annotated[Settings, Inject()]) -> None: ...

    assert "parameter 'settings' of test_compile.function has no JSON Schema" in refusal(function, autowire=False)
    assert ("settings",) == contract(marked, autowire=False).injected


def test_a_missing_provider_is_placed(refusal: Any, entry: Any):
    """Whatever kind of error it is, it names file and line."""

    def function(thing: Annotated[Foreign, Inject()]) -> None: ...

    assert "there is no provider for" in refusal(function)
    with pytest.raises(InjectionError):
        entry(function)


# --- names and places


async def test_the_wire_name_is_of_one_word(tmp_path: Path):
    """Unless the settings want dots, or another name."""

    @skill_command(name="sub.tell")
    def tell() -> None: ...

    declared = declaration_of(tell)
    assert declared is not None
    for flags, name in (
        ({}, "test_compile_sub_tell"),
        ({"names": "dotted"}, "test_compile.sub.tell"),
        ({"wire_names": {"test_compile.sub.tell": "say"}}, "say"),
    ):
        async with Runtime.open(tmp_path, flags=flags) as runtime:
            assert name == runtime.entry_of(declared).contract.wire_name


async def test_the_source_is_relative_to_the_project(tmp_path: Path):
    """So that a contract is the same on every machine; what lies outside is named in full."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "notes.py").write_text(
        "from prowess import skill_command\n\n@skill_command\ndef add(): ...\n"
    )

    def outside() -> None: ...

    async with Runtime.open(tmp_path) as runtime:
        (found,) = runtime.catalog()
        assert "skills/notes.py:3" == found.source
        elsewhere = runtime.entry_of(declaration_of(skill_command(outside))).contract.source
    assert f"{Path(__file__).as_posix()}:{outside.__code__.co_firstlineno}" == elsewhere


@pytest.mark.parametrize("profile", ["portable", "full", "openmcp", "omni", "turul"])
async def test_a_model_may_be_as_strict_as_it_likes(call: Any, profile: str):
    """Its own configuration counts for JSON; what it refuses is a problem of the arguments."""

    class Strict(BaseModel):
        model_config = ConfigDict(strict=True, extra="forbid")
        when: dt.date
        color: Literal[Color.RED]

    def function(it: Strict) -> Strict:
        return it

    function.__annotations__ = {"it": Strict, "return": Strict}
    outcome = await call(function, {"it": {"when": "2024-02-29", "color": "red"}})
    assert {"when": "2024-02-29", "color": "red"} == outcome.value
    assert outcome.payload(profile)["isError"] is False
    assert 2 == len((await call(function, {"it": {"when": 3, "color": "red", "more": 1}})).problems)


def test_a_plan_is_plain_data(entry: Any):
    """Frozen, so that nothing can change it while calls run."""

    def function(a: int = 3) -> None: ...

    plan = entry(function).plan
    assert ({"a": 3}, ("a",), ()) == (plan.defaults, plan.positional, plan.positional_only)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.defaults = {}


def test_schema_errors_are_load_errors():
    """A skill file survives them: they fail one command."""
    assert issubclass(SchemaError, LoadError)


class Doubtful:
    """Stands beside a type, and fails when it is looked at."""

    @property
    def documentation(self) -> str:
        raise KeyError("on purpose")


class Silent(Doubtful):
    @property
    def documentation(self) -> str:
        raise ArithmeticError


def doubtful(x: Annotated[int, Doubtful()]) -> None: ...


def silent(x: Annotated[int, Silent()]) -> None: ...


class Unshown(int):
    def __repr__(self) -> str:
        raise KeyError("on purpose")


def unshown(x: str = Unshown(1)) -> None: ...  # type: ignore[assignment]


@pytest.mark.parametrize(
    "function, said",
    [
        (doubtful, "parameter 'x' of test_compile.doubtful cannot be described: KeyError: 'on purpose'"),
        (silent, "parameter 'x' of test_compile.silent cannot be described: ArithmeticError. Write another type there"),
        (unshown, "test_compile.unshown cannot be described: KeyError: 'on purpose'"),
    ],
)
def test_what_fails_when_it_is_looked_at_fails_the_command(tmp_path: Path, function: Callable[..., Any], said: str):
    """Whatever an annotation or a default does, the failure names the command, the file and the line."""
    with pytest.raises(SchemaError) as caught:
        Runtime(tmp_path).entry_of(skill_command(function).__prowess__)
    assert said in str(caught.value)
    assert __file__ == caught.value.file
    assert caught.value.line


def test_without_autowire_the_mark_is_named(refusal: Any):
    """The class has a provider: it is the option that keeps it away."""

    def function(c: Context): ...

    reason = refusal(function, autowire=False)
    assert "with autowire=False it is injected where it is marked: Annotated[Context, Inject()]" in reason
    assert "there is no provider for" not in reason


class Endless(BaseModel):
    inner: Endless


class Hiding(BaseModel):
    seen: int = 0
    hidden: SkipJsonSchema[int]


class Empty(enum.Enum):
    pass


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (SkipJsonSchema[int], "has no JSON Schema: SkipJsonSchema hides a value that clients have to send"),
        (list[SkipJsonSchema[int]], "has no JSON Schema: SkipJsonSchema hides a value that clients have to send"),
        (Hiding, "has no JSON Schema: SkipJsonSchema hides a value that clients have to send"),
        (SkipJsonSchema[int] | SkipJsonSchema[str], "there is nothing to choose from"),
        (Empty, "there is nothing to choose from"),
        (Annotated[int, Field(ge=5, le=3)], "no integer is within minimum 5, maximum 3"),
        (Endless, "each Endless needs another Endless, without end"),
        (typing_extensions.Self, "has the type Self, which has a meaning only in a class. Name the class"),
    ],
)
def test_a_parameter_that_no_client_can_send_is_refused(refusal: Any, annotation: Any, reason: str):
    def f(a: Any, b: int) -> None: ...

    f.__annotations__["a"] = annotation
    assert reason in refusal(f)


async def test_an_optional_parameter_may_be_hidden(call: Any, contract: Any):
    def f(a: int, b: SkipJsonSchema[int] = 3) -> int:
        return a * b

    assert ["a"] == list(contract(f).input_schema["properties"])
    assert 6 == (await call(f, {"a": 2})).value


async def test_a_hidden_null_hides_nothing_else(call: Any, contract: Any):
    def f(a: int | SkipJsonSchema[None]) -> str:
        return repr(a)

    assert {"a": {"type": "integer"}} == contract(f).input_schema["properties"]
    assert "None" == (await call(f, {"a": None})).value


def test_a_pattern_that_cannot_be_read_is_explained(refusal: Any):
    """The first line of pydantic's message names only the validator around it."""

    def f(a: Annotated[str, Field(pattern="(")]) -> None: ...

    assert "regex parse error: ( error: unclosed group" in refusal(f)


def test_a_key_is_no_message(refusal: Any):
    def f(a: Any) -> None: ...

    f.__annotations__["a"] = {"x": int}
    assert "has no JSON Schema: KeyError: 'type'" in refusal(f)


@pytest.mark.parametrize("wrapped", [len, int, functools.partial(len)])
async def test_a_wrapper_around_something_else_than_a_function(call: Any, contract: Any, wrapped: Any):
    """Its place is that of the wrapper, because the object inside has no code."""

    def f(*values: Any, **named: Any) -> int:
        return 7

    f.__wrapped__ = wrapped
    f.__signature__ = inspect.Signature([inspect.Parameter("a", inspect.Parameter.KEYWORD_ONLY)])
    assert contract(f).source.endswith(f":{f.__code__.co_firstlineno}")
    assert 7 == (await call(f, {"a": 1})).value


def test_wrappers_in_a_circle_are_refused(refusal: Any):
    def f() -> None: ...

    f.__wrapped__ = f
    assert "wrapper loop" in refusal(f)
