"""What a returned value becomes.

Cases of OpenMCP are shown under the profile `openmcp`, omni's under `omni`, turul's under `turul`.
"""

import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import uuid
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from mcp_types import ImageContent, TextContent
from pydantic import BaseModel, ConfigDict, Field
from tests.contracts.conftest import Bench, Project, case, meets, returning, row, taking, text

from prowess import SkillError, mcp_schema, skill_command
from prowess.errors import DeclarationError
from prowess.jsontypes import Json, JsonObject
from prowess.schemas.adapters import Adapter
from prowess.schemas.steps import prune_titles

PNG = b"\x89PNG\r\n\x1a\n"
PNG_TEXT = "iVBORw0KGgo="
IMAGE = {"type": "image", "data": PNG_TEXT, "mimeType": "image/png"}
NOON = dt.datetime(2024, 1, 1, 12, 0)
NUMBER_ONE = uuid.UUID(int=1)


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Result:
    total: int


class Event(BaseModel):
    name: str
    when: dt.datetime


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    inner_name: int = Field(alias="innerName")
    note: str | None = None


class CommandResult:
    """The result object of omni's skills."""

    def __init__(self, *, success: bool, data: Any = None, error: str | None = None) -> None:
        self.success = success
        self.data = data
        self.error = error


def numbers() -> Iterator[int]:
    yield from (1, 2, 3)


# --- openmcp --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation, value, words, data",
    [
        row("O-44", "a string", str, "hello", "hello", {"result": "hello"}),
        row("O-45", "an integer", int, 42, "42", {"result": 42}),
        row("O-46", "a boolean", bool, True, "true", {"result": True}),
        row("O-46", "a number", float, 1.5, "1.5", {"result": 1.5}),
        row("O-49", "a dataclass", Result, Result(5), '{"total": 5}', {"total": 5}),
        row("O-50", "a mapping", dict[str, int], {"k": 1}, '{"k": 1}', {"k": 1}),
        row("O-52", "a list of strings is one block", list[str], ["a", "b"], '["a", "b"]', {"result": ["a", "b"]}),
        row("O-53", "a nested list is one block", list[Any], [1, [2, 3]], "[1, [2, 3]]", {"result": [1, [2, 3]]}),
        row(
            "O-56",
            "a model with a date",
            Event,
            Event(name="n", when=NOON),
            '{"name": "n", "when": "2024-01-01T12:00:00"}',
            {"name": "n", "when": "2024-01-01T12:00:00"},
        ),
        row("O-57", "a pair of integers", tuple[int, int], (1, 2), "[1, 2]", {"result": [1, 2]}),
        row("O-57", "a pair of strings", tuple[str, str], ("a", "b"), '["a", "b"]', {"result": ["a", "b"]}),
        row("O-58", "a datetime", dt.datetime, NOON, "2024-01-01T12:00:00", {"result": "2024-01-01T12:00:00"}),
        row("O-58", "a UUID", uuid.UUID, NUMBER_ONE, str(NUMBER_ONE), {"result": str(NUMBER_ONE)}),
        row("O-58", "a path", pathlib.Path, pathlib.Path("a/b"), "a/b", {"result": "a/b"}),
        row("O-58", "a decimal", decimal.Decimal, decimal.Decimal("1.50"), "1.50", {"result": "1.50"}),
        row("O-58", "an enumeration", Color, Color.RED, "red", {"result": "red"}),
        row("O-58", "a frozen set", frozenset[int], frozenset({1}), "[1]", {"result": [1]}),
        row(
            "O-59",
            "a date in a mapping",
            dict[str, dt.datetime],
            {"when": NOON},
            '{"when": "2024-01-01T12:00:00"}',
            {"when": "2024-01-01T12:00:00"},
        ),
        row("O-60", "keys that are integers", dict[int, str], {1: "a"}, '{"1": "a"}', {"1": "a"}),
        row(
            "O-64",
            "an alias",
            Aliased,
            Aliased(inner_name=1),
            '{"innerName": 1, "note": null}',
            {"innerName": 1, "note": None},
        ),
    ],
)
def test_declared_values_in_openmcp(bench: Bench, annotation: Any, value: Any, words: str, data: Json) -> None:
    """One text block, and data that meets the schema that was shown."""
    assert {"content": [text(words)], "isError": False, "structuredContent": data} == bench.returned(
        "openmcp", value, annotation
    )
    assert meets(bench.outputs("openmcp", returning(annotation, value)), data)


@pytest.mark.parametrize(
    "value, words, data",
    [
        row("O-45", "an integer", 42, "42", {"result": 42}),
        row("O-46", "a boolean", True, "true", {"result": True}),
        row("O-46", "a number", 1.5, "1.5", {"result": 1.5}),
        row("O-49", "a dataclass", Result(5), '{"total": 5}', {"total": 5}),
        row("O-50", "a mapping", {"k": 1}, '{"k": 1}', {"k": 1}),
        row("O-52", "a list of strings is one block", ["a", "b"], '["a", "b"]', {"result": ["a", "b"]}),
        row("O-53", "a nested list is one block", [1, [2, 3]], "[1, [2, 3]]", {"result": [1, [2, 3]]}),
        row("O-57", "a pair", (1, 2), "[1, 2]", {"result": [1, 2]}),
        row("O-58", "a range", range(3), "[0, 1, 2]", {"result": [0, 1, 2]}),
        row("O-58", "a generator", (item for item in (1, 2)), "[1, 2]", {"result": [1, 2]}),
        row("O-58", "a frozen set", frozenset({1}), "[1]", {"result": [1]}),
        row("O-59", "a date in a mapping", {"when": NOON}, '{"when": "2024-01-01T12:00:00"}', {"when": "2024-01-01T12:00:00"}),
        row("O-60", "keys that are integers", {1: "a"}, '{"1": "a"}', {"1": "a"}),
        row("O-61", "content that is no list", {"content": "hello"}, '{"content": "hello"}', {"content": "hello"}),
        row("O-61", "an error flag alone", {"isError": False}, '{"isError": false}', {"isError": False}),
        row("O-61", "meta alone", {"meta": {"a": 1}}, '{"meta": {"a": 1}}', {"meta": {"a": 1}}),
        row("O-62", "no content and another key", {"content": [], "extra": 1}, '{"content": [], "extra": 1}', {"content": [], "extra": 1}),
        row("O-64", "an alias", Aliased(inner_name=1), '{"innerName": 1, "note": null}', {"innerName": 1, "note": None}),
    ],
)  # fmt: skip
def test_undeclared_values_in_openmcp(bench: Bench, value: Any, words: str, data: Json) -> None:
    """Without a return type, by the type of the value."""
    assert {"content": [text(words)], "isError": False, "structuredContent": data} == bench.returned("openmcp", value)


@pytest.mark.parametrize(
    "value, words",
    [
        row("O-44", "an undeclared string", "hello", "hello"),
        row("O-51", "None is an empty text", None, ""),
        row("O-58", "an undeclared datetime", NOON, "2024-01-01T12:00:00"),
        row("O-58", "an undeclared path", pathlib.Path("a/b"), "a/b"),
        row("O-58", "an undeclared enumeration", Color.RED, "red"),
    ],
)
def test_undeclared_texts_in_openmcp(bench: Bench, value: Any, words: str) -> None:
    """A text that nobody declared as data is a text."""
    assert {"content": [text(words)], "isError": False} == bench.returned("openmcp", value)


@pytest.mark.parametrize(
    "annotation, value, blocks",
    [
        row("O-54", "bytes of an image are an image", ..., PNG, [IMAGE]),
        row("O-54", "bytes of an image, declared", bytes, PNG, [IMAGE]),
        row(
            "O-55",
            "content objects",
            ...,
            [TextContent(type="text", text="t"), ImageContent(type="image", data=PNG_TEXT, mime_type="image/png")],
            [text("t"), IMAGE],
        ),
        row("O-55", "content mappings", ..., [text("t"), IMAGE], [text("t"), IMAGE]),
    ],
)
def test_content_in_openmcp(bench: Bench, annotation: Any, value: Any, blocks: list[JsonObject]) -> None:
    """Content passes through, and is no data."""
    assert {"content": blocks, "isError": False} == bench.returned("openmcp", value, annotation)


@case("O-54", "other bytes are a resource")
def test_other_bytes(bench: Bench) -> None:
    (block,) = bench.returned("openmcp", b"\x00\x01")["content"]
    assert ("resource", "AAE=") == (block["type"], block["resource"]["blob"])


@pytest.mark.parametrize(
    "annotation, first",
    [
        row("O-47", "a text and data", tuple[TextContent | str, dict[str, str]], "hi"),
        row("O-47", "a block and data", tuple[TextContent, dict[str, str]], TextContent(type="text", text="hi")),
        row("O-47", "blocks and data", tuple[list[TextContent], dict[str, str]], [TextContent(type="text", text="hi")]),
    ],
)
def test_a_declared_pair(bench: Bench, annotation: Any, first: Any) -> None:
    """A return type of content and data gives both."""
    expected = {"content": [text("hi")], "isError": False, "structuredContent": {"foo": "bar"}}
    assert expected == bench.returned("openmcp", (first, {"foo": "bar"}), annotation)


@pytest.mark.parametrize(
    "annotation",
    [
        row("O-47", "undeclared, it is a list", ...),
        row("O-47", "declared as data, it is a list", tuple[str, dict[str, str]]),
    ],
)
def test_a_pair_that_is_not_declared(bench: Bench, annotation: Any) -> None:
    """Two values are no pair of content and data for being two."""
    payload = bench.returned("openmcp", ("hi", {"foo": "bar"}), annotation)
    assert {"result": ["hi", {"foo": "bar"}]} == payload["structuredContent"]
    assert [text('["hi", {"foo": "bar"}]')] == payload["content"]


@case("O-48", "a whole result is used as it is")
def test_a_whole_result(bench: Bench) -> None:
    whole = {"content": [text("ok")], "structuredContent": {"status": "fine"}, "isError": False}
    assert whole == bench.returned("openmcp", whole)


@pytest.mark.parametrize(
    "annotation, value",
    [
        row("O-63", "NaN", ..., float("nan")),
        row("O-63", "NaN, declared", float, float("nan")),
        row("O-63", "infinity in a list", ..., [float("inf")]),
        row("O-63", "a lone surrogate", str, "\ud800"),
    ],
)
def test_what_json_cannot_hold(bench: Bench, annotation: Any, value: Any) -> None:
    """It fails this call, and says so."""
    outcome = bench.call(returning(annotation, value))
    assert "output" == outcome.kind
    assert outcome.payload("openmcp")["isError"] is True
    mcp_schema.validate(outcome.payload("openmcp"))


class Everything(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    by_alias: int = Field(alias="byAlias")
    nothing: str | None = None
    pair: tuple[int, str] = (1, "a")
    color: Color = Color.RED
    number: uuid.UUID = NUMBER_ONE
    when: dt.datetime = NOON


@case("O-65", "a model as JSON")
def test_a_model_as_json() -> None:
    """By alias always, as in the schema; None is kept."""
    expected = {
        "byAlias": 1,
        "nothing": None,
        "pair": [1, "a"],
        "color": "red",
        "number": str(NUMBER_ONE),
        "when": "2024-01-01T12:00:00",
    }
    adapter = Adapter(Everything)
    assert expected == adapter.dump(Everything(by_alias=1))
    assert meets(adapter.schema("serialization"), expected)


# --- omni -----------------------------------------------------------------------------------------


def omni(words: str, *, is_error: bool = False) -> JsonObject:
    """A result of omni: one text block, and nothing else."""
    return {"content": [text(words)], "isError": is_error}


@pytest.mark.parametrize(
    "annotation, value, words",
    [
        row("M-16", "None", ..., None, ""),
        row("M-16", "a string", ..., "ok", "ok"),
        row("M-16", "a mapping", ..., {"k": "v"}, '{"k": "v"}'),
        row("M-16", "a list", ..., [1, 2], "[1, 2]"),
        row("M-16", "a declared list", list[int], [1, 2], "[1, 2]"),
        row(
            "M-18",
            "no content is no result",
            ...,
            {"content": [], "isError": False},
            '{"content": [], "isError": false}',
        ),
        row(
            "M-19",
            "no flag is no result",
            ...,
            {"content": [text("x")]},
            '{"content": [{"type": "text", "text": "x"}]}',
        ),
        row("M-23", "text beyond ASCII", ..., {"k": "é"}, '{"k": "é"}'),
        row("M-24", "a tuple", ..., (1, 2), "[1, 2]"),
        row("M-24", "a key that is an integer", ..., {1: 2}, '{"1": 2}'),
        row("M-25", "a set", ..., {1}, "[1]"),
        row("M-25", "a datetime", ..., NOON, "2024-01-01T12:00:00"),
        row("M-25", "a path", ..., pathlib.Path("a/b"), "a/b"),
        row("M-25", "a dataclass", ..., Result(5), '{"total": 5}'),
        row("M-25", "a model", ..., Event(name="n", when=NOON), '{"name": "n", "when": "2024-01-01T12:00:00"}'),
        row("M-25", "an enumeration", ..., Color.RED, "red"),
        row("M-25", "a UUID", ..., NUMBER_ONE, str(NUMBER_ONE)),
        row("M-25", "a generator", ..., (item for item in (1, 2)), "[1, 2]"),
        row("M-25", "bytes of an image", ..., PNG, "[image: image/png, 8 bytes]"),
        row("M-26", "a command result", ..., CommandResult(success=True, data={"a": 1}), '{"a": 1}'),
        row("M-27", "a command result without data", ..., CommandResult(success=True, data=None), ""),
        row("M-29", "an empty list", ..., [], "[]"),
        row("M-29", "an empty mapping", ..., {}, "{}"),
        row("M-29", "nothing at all", ..., None, ""),
    ],
)
def test_values_in_omni(bench: Bench, annotation: Any, value: Any, words: str) -> None:
    """One text block, success, and valid against the text-only schema."""
    payload = bench.call(returning(annotation, value)).payload("omni")
    assert omni(words) == payload
    mcp_schema.validate(payload, mcp_schema.MCP_TOOL_RESULT_TEXT_SCHEMA_V1)


@case("M-25", "a generator function")
def test_a_generator_function_in_omni(bench: Bench) -> None:
    assert omni("[1, 2, 3]") == bench.call(numbers).payload("omni")


@case("M-25", "a coroutine that was not awaited")
def test_a_coroutine_as_a_value(bench: Bench) -> None:
    """A sync function that returns one has only not awaited it: it is awaited."""

    async def inner():
        return {"a": 1}

    def outer():
        return inner()

    assert omni('{"a": 1}') == bench.call(outer).payload("omni")


@case("M-17", "only content and isError are left")
def test_further_keys_in_omni(bench: Bench) -> None:
    whole = {
        "result": 1,
        "method": "m",
        "isError": False,
        "content": [text("x")],
        "structuredContent": {"a": 1},
        "_meta": {"m": 1},
    }
    payload = bench.call(returning(..., whole)).payload("omni")
    assert omni("x") == payload
    assert ["content", "isError"] == list(payload)


@case("M-18", "what is canonical")
def test_what_is_canonical() -> None:
    assert mcp_schema.is_canonical({"content": [text("x")], "isError": False})
    assert not mcp_schema.is_canonical({"content": [], "isError": False})
    assert not mcp_schema.is_canonical({"content": [text("x")]})
    assert not mcp_schema.is_canonical("x")


@pytest.mark.parametrize(
    "blocks, words",
    [
        row("M-20", "an image first", [IMAGE], ["[image: image/png, 8 bytes]"]),
        row("M-21", "a text, then an image", [text("x"), IMAGE], ["x", "[image: image/png, 8 bytes]"]),
    ],
)
def test_blocks_other_than_text(bench: Bench, blocks: list[JsonObject], words: list[str]) -> None:
    """They stay; only the text-only projection puts words in their place."""
    whole = {"content": blocks, "isError": False}
    outcome = bench.call(returning(..., whole))
    assert whole == outcome.payload("portable")
    assert {"content": [text(word) for word in words], "isError": False} == outcome.payload("omni")
    assert mcp_schema.to_text_only(whole) == outcome.payload("omni")


@case("M-22", "an error flag that is no boolean")
def test_an_error_flag_that_is_no_boolean(bench: Bench) -> None:
    value = {"content": [text("x")], "isError": "yes"}
    with pytest.raises(ValueError, match="violation at isError: 'yes' is not of type 'boolean'"):
        mcp_schema.normalize_mcp_tool_result(value)
    outcome = bench.call(returning(..., value))
    assert "output" == outcome.kind
    assert "'yes' is not of type 'boolean'" in outcome.text


@case("M-26", "a command result that failed")
def test_a_failed_command_result(bench: Bench) -> None:
    outcome = bench.call(returning(..., CommandResult(success=False, error="boom")))
    assert "failed" == outcome.kind
    assert omni("boom", is_error=True) == outcome.payload("omni")


def raises_key_error():
    raise KeyError("k")


@case("M-28", "an exception is an error payload")
def test_an_exception_is_an_error_payload(bench: Bench) -> None:
    """With the name of its class: a bare `'k'` says nothing."""
    payload = bench.call(raises_key_error).payload("omni")
    assert payload["isError"] is True
    assert payload["content"][0]["text"].startswith("KeyError: 'k'")


@case("M-28", "no exception leaves a direct call")
async def test_no_exception_leaves_a_direct_call(project: Project) -> None:
    async with project.open():
        assert skill_command(raises_key_error)()["isError"] is True


@case("M-28", "there is no other strategy")
@pytest.mark.parametrize("option", ["error_strategy", "log_level", "filter_empty", "max_result_depth"])
def test_options_that_do_not_exist(option: str) -> None:
    """An option without an effect is refused, not kept."""
    with pytest.raises(DeclarationError, match=option):
        skill_command(**{option: "suppress"})(taking(int))


CANONICAL_JSON = {"content": [text('{"a": 1}')], "isError": False}
CANONICAL_TEXT = {"content": [text("plain")], "isError": False}


@pytest.mark.parametrize(
    "value, expected",
    [
        row("M-30", "a mapping is itself", {"a": 1}, {"a": 1}),
        row("M-30", "JSON text", '{"a": 1}', {"a": 1}),
        row("M-30", "a result of JSON text", CANONICAL_JSON, {"a": 1}),
        row("M-30", "a result of plain text", CANONICAL_TEXT, CANONICAL_TEXT),
    ],
)
def test_parsing_a_result(value: Any, expected: JsonObject) -> None:
    """The mapping inside."""
    assert expected == mcp_schema.parse_result_payload(value)


@case("M-30", "a list is no result")
def test_parsing_a_list() -> None:
    with pytest.raises(TypeError, match="must be a mapping"):
        mcp_schema.parse_result_payload([1])


@pytest.mark.parametrize("profile", ["portable", "full", "openmcp", "omni", "turul"])
@pytest.mark.parametrize((), [row("M-31", "parameters called title, description and default")])
def test_parameters_called_like_keywords(bench: Bench, profile: str) -> None:
    """They are listed and required; the keywords beside them are another matter."""

    def f(title: str, description: str, q: Literal["a", "b"], default: int = 1): ...

    schema = bench.inputs(profile, f)
    assert {"title", "description", "default", "q"} == set(schema["properties"])
    assert ["title", "description", "q"] == schema["required"]
    assert ("string", ["a", "b"]) == (schema["properties"]["q"]["type"], schema["properties"]["q"]["enum"])


@case("M-31", "pruning titles prunes keywords only")
def test_pruning_titles() -> None:
    schema = {
        "properties": {
            "title": {"type": "string", "title": "Title"},
            "description": {"type": "string"},
            "default": {"type": "string"},
            "q": {"type": "string", "default": {"title": "kept"}, "enum": ["a"], "title": "Q"},
        },
        "required": ["title", "description", "q"],
    }
    expected = {
        "properties": {
            "title": {"type": "string"},
            "description": {"type": "string"},
            "default": {"type": "string"},
            "q": {"type": "string", "default": {"title": "kept"}, "enum": ["a"]},
        },
        "required": ["title", "description", "q"],
    }
    assert expected == prune_titles(schema)


@pytest.mark.parametrize(
    "message, expected",
    [
        row("M-32", "a payload", omni("x"), "x"),
        row("M-32", "a response", {"jsonrpc": "2.0", "id": 1, "result": omni("x")}, "x"),
        row("M-32", "two blocks", {"content": [text("a"), text("b")], "isError": False}, "a\nb"),
        row("M-32", "an error", {"error": {"code": -1, "message": "m"}}, "m"),
        row("M-32", "an empty mapping", {}, None),
        row("M-32", "a number", 5, None),
    ],
)
def test_extracting_text(message: Any, expected: str | None) -> None:
    """From whatever carries a payload."""
    assert expected == mcp_schema.extract_text_content(message)


# --- turul ----------------------------------------------------------------------------------------


def add(a: float, b: float) -> float:
    return a + b


def divide(a: float, b: float) -> float:
    if b == 0:
        raise SkillError("Division by zero")
    return a / b


@case("U-31", "success says so")
def test_success_in_turul(bench: Bench) -> None:
    """And the text is the boxed value."""
    expected = {"content": [text('{"output": 8.0}')], "isError": False, "structuredContent": {"output": 8.0}}
    assert expected == bench.call(add, {"a": 5, "b": 3}).payload("turul")


@case("U-32", "an error for the model")
def test_an_error_for_the_model(bench: Bench) -> None:
    payload = bench.call(divide, {"a": 1, "b": 0}).payload("turul")
    assert ([text("Division by zero")], True) == (payload["content"], payload["isError"])


@case("U-33", "an argument of the wrong type")
def test_an_argument_of_the_wrong_type(bench: Bench) -> None:
    """A result that says so, which a model can read; not an error of the protocol."""
    outcome = bench.call(add, {"a": "five", "b": 3})
    assert ("input", True) == (outcome.kind, outcome.payload("turul")["isError"])
    assert ['a: expected a number, got "five"'] == list(outcome.problems)


# --- NeuraForge -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, expected",
    [
        row("N-1", "a set in a mapping", {"value": {1, 2}}, {"value": [1, 2]}),
        row("N-2", "None", None, None),
        row("N-2", "an integer", 1, 1),
        row("N-2", "a list", [1], [1]),
        row("N-3", "a set", {1, 2}, [1, 2]),
        row("N-3", "a set of three", {"a": {3, 1, 2}}, {"a": [1, 2, 3]}),
        row("N-4", "a date", {"a": dt.datetime(2024, 1, 1)}, {"a": "2024-01-01T00:00:00"}),
        row("N-4", "bytes", {"a": b"x"}, {"a": "eA=="}),
        row("N-4", "an enumeration", {"e": Color.RED}, {"e": "red"}),
    ],
)
def test_the_unboxed_value(bench: Bench, value: Any, expected: Json) -> None:
    """JSON by type, and in no box: the box belongs to the wires that need one."""
    assert expected == bench.call(returning(..., value)).value


@pytest.mark.parametrize(
    "value, expected",
    [row("N-2", "an integer in its box", 1, {"result": 1}), row("N-2", "a list in its box", [1], {"result": [1]})],
)
def test_the_boxed_value(bench: Bench, value: Any, expected: Json) -> None:
    """On a wire that takes objects only."""
    assert expected == bench.returned("portable", value)["structuredContent"]
