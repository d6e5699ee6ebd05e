"""From a declaration to a contract: what clients see of arguments and results, and what is refused at load."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typing_extensions
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema
from tests.prowess.skills.odd_types import Color, Described, Foreign

from prowess import ConfigPaths, Context, Inject, Runtime, Settings, skill_command
from prowess.contracts.declaration import declaration_of
from prowess.errors import InjectionError, LoadError, SchemaError


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


@pytest.mark.parametrize("alias", ["test_compile.function", "test_compile/function", "test_compile_function"])
def test_an_alias_is_another_name(refusal: Any, alias: str):
    """One that the command has already adds none."""

    def function(): ...

    assert f"the alias {alias!r} is the name of test_compile.function already" in refusal(function, aliases=[alias])


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
    f.__annotations__["a"] = (int, str)
    assert (
        "parameter 'a' of test_compile.f has no JSON Schema: (<class 'int'>, <class 'str'>) is not a type" in refusal(f)
    )


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
