"""What a command returns becomes one canonical result, or a clear failure of that one call."""

from __future__ import annotations

import collections
import dataclasses
import enum
import itertools
import json
import types
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple, TypedDict

import mcp_types
import pytest
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, field_serializer

from prowess import Image, Outcome, Runtime, SkillError, mcp_schema, skill_command

PNG = b"\x89PNG\r\n\x1a\n"
TEXT = {"type": "text", "text": "x"}


async def call(value: Any, returns: Any = None, **options: Any) -> Outcome:
    """The outcome of a command that returns a value, or what a function without arguments gives."""
    async with Runtime.open("nowhere") as runtime:

        async def run():
            return value() if isinstance(value, types.FunctionType) else value

        if returns is not None:
            run.__annotations__["return"] = returns
        command: Any = skill_command(**options)(run)
        outcome = await runtime.entry_of(command.__prowess__).call({})
    payload = outcome.payload()
    mcp_schema.validate(payload)
    mcp_types.CallToolResult.model_validate(payload)
    json.dumps(payload, ensure_ascii=False, allow_nan=False).encode()
    return outcome


async def refused(value: Any, returns: Any = None, **options: Any) -> str:
    """What is said of a value that cannot be sent: it is the fault of the result, and of this call alone."""
    outcome = await call(value, returns, **options)
    assert "output" == outcome.kind, outcome
    return outcome.text


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    A = "a"


@dataclasses.dataclass
class Point:
    x: int
    when: datetime | None = None


class Inner(BaseModel):
    b: bytes


class Model(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    total: int = Field(alias="sumTotal")
    inner: Inner | None = None


class Movie(TypedDict):
    title: str


class Pair(NamedTuple):
    a: int
    b: str


class Foreign(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return {"a": 1}[key]

    def __iter__(self) -> Iterator[str]:
        return iter("a")

    def __len__(self) -> int:
        return 1


WHEN = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
ID = uuid.UUID(int=1)


@pytest.mark.parametrize(
    ("value", "text", "data"),
    [
        (42, "42", 42),
        (True, "true", True),
        (1.5, "1.5", 1.5),
        ({"k": "é"}, '{"k": "é"}', {"k": "é"}),
        ({1: "a", None: 2}, '{"1": "a", "None": 2}', {"1": "a", "None": 2}),
        ([1, [2]], "[1, [2]]", [1, [2]]),
        ((1, 2), "[1, 2]", [1, 2]),
        (("hi", {"foo": "bar"}), '["hi", {"foo": "bar"}]', ["hi", {"foo": "bar"}]),
        ({3}, "[3]", [3]),
        (frozenset({3}), "[3]", [3]),
        (collections.deque([1]), "[1]", [1]),
        (range(2), "[0, 1]", [0, 1]),
        ({"a": 1}.keys(), '["a"]', ["a"]),
        ({"a": 1}.values(), "[1]", [1]),
        ({"a": 1}.items(), '[["a", 1]]', [["a", 1]]),
        (iter([1]), "[1]", [1]),
        (map(str, [1]), '["1"]', ["1"]),
        (types.MappingProxyType({"a": 1}), '{"a": 1}', {"a": 1}),
        (collections.OrderedDict(a=1), '{"a": 1}', {"a": 1}),
        (Foreign(), '{"a": 1}', {"a": 1}),
        (Level.LOW, "1", 1),
        (Point(1, WHEN), '{"x": 1, "when": "2024-01-02T03:04:05Z"}', {"x": 1, "when": "2024-01-02T03:04:05Z"}),
        (Model(sumTotal=1), '{"sumTotal": 1, "inner": null}', {"sumTotal": 1, "inner": None}),
        (Pair(1, "b"), '[1, "b"]', [1, "b"]),
        ({"b": b"\xff"}, '{"b": "_w=="}', {"b": "_w=="}),
        (
            {"d": WHEN, "u": ID},
            f'{{"d": "2024-01-02T03:04:05Z", "u": "{ID}"}}',
            {"d": "2024-01-02T03:04:05Z", "u": str(ID)},
        ),
        (10**1000, "1" + "0" * 1000, 10**1000),
        ({"items": itertools.islice(itertools.count(), 2)}, '{"items": [0, 1]}', {"items": [0, 1]}),
        ([{"type": "text"}, {"a": 1}], '[{"type": "text"}, {"a": 1}]', [{"type": "text"}, {"a": 1}]),
        ({"content": []}, '{"content": []}', {"content": []}),
        ({"isError": False}, '{"isError": false}', {"isError": False}),
        ({"content": [], "isError": False}, '{"content": [], "isError": false}', {"content": [], "isError": False}),
        ({"content": "x", "isError": False}, '{"content": "x", "isError": false}', {"content": "x", "isError": False}),
        ({"content": [1], "isError": 0}, '{"content": [1], "isError": 0}', {"content": [1], "isError": 0}),
        ({"content": [TEXT]}, '{"content": [{"type": "text", "text": "x"}]}', {"content": [TEXT]}),
    ],
)
async def test_undeclared_data_is_text_and_structure(value: Any, text: str, data: Any) -> None:
    """One text block with the JSON, and the data beside it."""
    outcome = await call(value)
    assert (True, text, data) == (outcome.ok, outcome.text, outcome.value)
    payload = outcome.payload()
    assert [{"type": "text", "text": text}] == payload["content"]
    assert (data if isinstance(data, dict) else {"result": data}) == payload["structuredContent"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("", ""),
        ("text", "text"),
        (Color.RED, "red"),
        (Word.A, "a"),
        (WHEN, "2024-01-02T03:04:05Z"),
        (date(2024, 1, 2), "2024-01-02"),
        (timedelta(seconds=1), "PT1S"),
        (ID, str(ID)),
        (PurePosixPath("/a"), "/a"),
        (Decimal("1.10"), "1.10"),
        (1 + 2j, "1+2j"),
    ],
)
async def test_undeclared_text_is_text_alone(value: Any, text: str) -> None:
    """What JSON writes as a text needs no structure beside it; nothing is one empty text."""
    assert {"content": [{"type": "text", "text": text}], "isError": False} == (await call(value)).payload()


@pytest.mark.parametrize(
    ("value", "returns", "data"),
    [
        ("x", str, "x"),
        (1, float, 1.0),
        (None, int | None, None),
        (Color.RED, Color, "red"),
        (b"\xff", dict[str, bytes] | bytes | int, None),
        ([b"\xff"], list[bytes], ["_w=="]),
        ({"a": WHEN}, dict[str, datetime], {"a": "2024-01-02T03:04:05Z"}),
        (Model(total=1, inner=Inner(b=b"\xff")), Model, {"sumTotal": 1, "inner": {"b": "_w=="}}),
        (Model(total=1), Model | None, {"sumTotal": 1, "inner": None}),
        ({"title": "t"}, Movie, {"title": "t"}),
        ({1}, set[int], [1]),
        ((1, "a"), tuple[int, str], [1, "a"]),
        (Pair(1, "b"), Pair, [1, "b"]),
        (Point(1), Point, {"x": 1, "when": None}),
        (Path("/a"), Path, "/a"),
        (Decimal("1.5"), Decimal, "1.5"),
        ((i for i in range(2)), Iterable[int], [0, 1]),
        ({"a": 1}, Any, None),
        ([1], Sequence[int], [1]),
        (5, Annotated[int, PlainSerializer(lambda it: it * 2, return_type=int)], 10),
    ],
)
async def test_declared_data_is_written_by_its_type(value: Any, returns: Any, data: Any) -> None:
    """Aliases, dates and bytes come out as the schema says, and the schema holds."""
    outcome = await call(value, returns)
    assert outcome.ok, outcome.text
    if data is not None:
        assert data == outcome.value


@pytest.mark.parametrize(
    ("value", "returns", "said"),
    [
        ("x", int, "the result breaks the declared output schema:\n- the result: input should be a valid integer"),
        ([1, "x"], list[int], "- 1: input should be a valid integer"),
        ({"x": "no"}, Point, "- x: input should be a valid integer"),
        (Point("no"), Point, "- x: input should be a valid integer"),
        (
            ["x"] * 8,
            list[int],
            "- 4: input should be a valid integer, unable to parse string as an integer\n- ... and 3 more",
        ),
        (float("nan"), float, "finite number"),
        ({"a": float("inf")}, dict[str, float], "- a: input should be a finite number"),
        ("\ud800", str, "surrogates not allowed"),
        ({"content": [TEXT], "isError": False}, int, "the result breaks the declared output schema"),
        ({"content": [TEXT], "isError": False, "structuredContent": {"x": "no"}}, Point, "- x: input should be"),
        ("pair?", tuple[Image, int], "declared as a pair of content and data, but returned a str"),
        ((Image(PNG),), tuple[Image, int], "declared as a pair of content and data, but returned a tuple"),
        ((1, 2), tuple[Image, int], "declared as a pair of content and data, but the content is a int"),
        ((Image(PNG), "x"), tuple[Image, int], "- the result: input should be a valid integer"),
    ],
)
async def test_data_that_breaks_its_declaration_is_refused(value: Any, returns: Any, said: str) -> None:
    """With the place and the expectation, as many as are useful."""
    assert said in await refused(value, returns)


class RaisesInSerializer(BaseModel):
    x: int = 1

    @field_serializer("x")
    def _x(self, _: int) -> int:
        raise RuntimeError("serializer")


class RaisesInProperty:
    @property
    def success(self) -> bool:
        raise OSError("property")

    data = error = None


class RaisesInIteration(Sequence[int]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, _: Any) -> int:
        raise SystemExit("item")


class RaisesInItsMessage(RaisesInIteration):
    def __getitem__(self, _: Any) -> int:
        class Bad(Exception):
            def __str__(self) -> str:
                raise ValueError

        raise Bad


class Result(BaseModel):
    """Looks like a result of an MCP library, and cannot be written."""

    content: list[Any] = []
    structuredContent: Any = None
    isError: bool = False

    @field_serializer("content")
    def _content(self, _: Any) -> Any:
        raise RuntimeError("content")


def cyclic() -> Any:
    value: list[Any] = []
    value.append({"again": value})
    return value


def deep() -> Any:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    return value


def generator_that_raises() -> Any:
    def items() -> Generator[int]:
        yield 1
        raise KeyError("item")

    return items()


def object_that_iterates() -> Any:
    class Table:
        def __iter__(self) -> Iterator[str]:
            return iter(["column"])

    return Table()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "Out of range float values are not JSON compliant"),
        ({"a": [float("-inf")]}, "Out of range float values are not JSON compliant"),
        ("\ud800", "surrogates not allowed"),
        ({"a": "\udc80"}, "surrogates not allowed"),
        ({"\udc80": 1}, "surrogates not allowed"),
        ([Image(PNG), "\udc80"], "surrogates not allowed"),
        (cyclic, "Circular reference detected"),
        (deep, "cannot be written as JSON"),
        (lambda: 10**5000, "Exceeds the limit"),
        (object(), "a object cannot be written as JSON; return plain data or annotate the result"),
        ({"f": print}, "a builtin_function_or_method cannot be written as JSON"),
        (object_that_iterates, "a object_that_iterates.<locals>.Table cannot be written as JSON"),
        (RaisesInSerializer(), "RuntimeError: serializer"),
        (RaisesInProperty(), "OSError: property"),
        (RaisesInIteration(), "SystemExit: item"),
        (RaisesInItsMessage(), "Bad: its message cannot be shown: ValueError"),
        ([generator_that_raises()], "KeyError: 'item'"),
        (Result(), "RuntimeError: content"),
        (
            {"content": [TEXT, {"type": "text"}], "isError": False},
            "MCP tool result schema violation at content.1: 'text' is a required property",
        ),
        (
            {"content": [TEXT], "isError": "yes"},
            "MCP tool result schema violation at isError: 'yes' is not of type 'boolean'",
        ),
        (
            {"content": [{"type": "image", "data": "", "mimeType": 1}], "isError": False},
            "at content.0.mimeType: 1 is not",
        ),
        ({"content": [TEXT], "isError": False, "_meta": [1]}, "at _meta: [1] is not of type 'object'"),
        ({"content": [TEXT], "isError": False, "_meta": {"a": float("nan")}}, "Out of range float values"),
        ({"content": [TEXT], "isError": False, "_meta": {"a": object()}}, "a object cannot be written as JSON"),
        ({"content": [{"type": "text", "text": "\udc80"}], "isError": True}, "surrogates not allowed"),
        ({"type": "text", "text": 1}, "MCP tool result schema violation at content.0.text: 1 is not of type 'string'"),
    ],
)
async def test_what_cannot_be_sent_fails_the_call(value: Any, said: str) -> None:
    """Clearly, and nothing else: the reason is in the text, which can itself be sent."""
    assert said in await refused(value)


@pytest.mark.parametrize("returns", [RaisesInSerializer, Any])
async def test_serializer_that_raises_fails_the_call(returns: Any) -> None:
    """Also where the type is declared."""
    assert "RuntimeError: serializer" in await refused(RaisesInSerializer(), returns, output_schema="any")


@pytest.mark.parametrize(
    "raises",
    [
        lambda: SkillError("bad \udc80", data={"x": "\udc80"}),
        lambda: SkillError("bad", data=object()),
        lambda: ValueError("bad \ud800"),
    ],
)
async def test_error_texts_can_always_be_sent(raises: Callable[[], Exception]) -> None:
    """What UTF-8 cannot hold is escaped in the text of an error: the failure itself must arrive."""

    def run() -> None:
        raise raises()

    outcome = await call(run)
    assert outcome.kind in ("failed", "crashed")
    assert "bad" in outcome.text


# Results that are results already


async def test_canonical_payload_passes_whole() -> None:
    """Its error flag, its structure and its `_meta`; what is no part of it is dropped."""
    image = {"type": "image", "data": "eA==", "mimeType": "image/png"}
    payload = {"content": [TEXT, image], "structuredContent": [1], "_meta": {"m": 1}, "isError": False, "more": 1}
    outcome = await call(payload)
    assert {**payload, "structuredContent": {"result": [1]}} == {**outcome.payload(), "more": 1}
    assert ([1], "x") == (outcome.value, outcome.text)


async def test_canonical_failure_is_a_failure() -> None:
    """`isError: true` counts as `failed`, and need not keep the declared promise."""
    payload = {"content": [TEXT], "isError": True, "structuredContent": {"why": 1}}
    for returns in (None, int):
        outcome = await call(payload, returns)
        assert ("failed", "x") == (outcome.kind, outcome.text)
        assert payload["content"] == outcome.payload()["content"]
        assert outcome.payload()["isError"]


async def test_result_object_of_an_mcp_library_passes_whole() -> None:
    """O-69: every block, the structure, the flag; an empty one becomes one empty text."""
    result = mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text=it) for it in ("first", "second")],
        structured_content={"code": 5},
        is_error=True,
        _meta={"m": 1},
    )
    payload = (await call(result, mcp_types.CallToolResult)).payload()
    assert ["first", "second"] == [block["text"] for block in payload["content"]]
    assert ({"code": 5}, True, 1) == (payload["structuredContent"], payload["isError"], payload["_meta"]["m"])
    empty = (await call(mcp_types.CallToolResult(content=[]))).payload()
    assert {"content": [{"type": "text", "text": ""}], "isError": False} == empty


async def test_canonical_payload_may_hold_helpers_and_python_values() -> None:
    """Content objects between the blocks, dates in the structure: all becomes JSON."""
    payload = (
        await call(
            {"content": [Image(PNG), TEXT], "isError": False, "structuredContent": {"when": WHEN, "p": Point(1)}}
        )
    ).payload()
    assert ["image", "text"] == [block["type"] for block in payload["content"]]
    assert {"when": "2024-01-02T03:04:05Z", "p": {"x": 1, "when": None}} == payload["structuredContent"]


async def test_structure_of_a_canonical_payload_meets_the_declaration() -> None:
    """By type, with its conversions; a mapping without one is itself what `-> dict` declares."""
    payload = {"content": [TEXT], "isError": False, "structuredContent": {"x": "1"}}
    assert {"x": 1, "when": None} == (await call(payload, Point)).value
    bare = {"content": [TEXT], "isError": False}
    for outcome in (await call(bare, dict), await call(bare, dict[str, Any])):
        assert [TEXT] == outcome.payload()["content"]
        assert bare == outcome.payload()["structuredContent"]


async def test_explicit_schema_is_enforced() -> None:
    """With and without a type beside it."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    for returns in (None, dict[str, int]):
        assert {"n": 1} == (await call({"n": 1}, returns, output_schema=schema)).value
        assert "the result breaks the declared output schema:\n- " in await refused(
            {"n": 0}, returns, output_schema=schema
        )
        assert "the result breaks" in await refused({}, returns, output_schema=schema)


# Pairs


async def test_pair_where_it_is_declared() -> None:
    """Content for the eye, data for the machine; a plain text is content, too."""
    for content in (
        Image(PNG),
        [Image(PNG)],
        mcp_types.ImageContent(type="image", data=PNG.hex(), mime_type="image/png"),
    ):
        payload = (await call((content, {"x": 1}), tuple[Image, Point])).payload()
        assert ["image"] == [block["type"] for block in payload["content"]]
        assert {"x": 1, "when": None} == payload["structuredContent"]
    texts = (await call(("no picture", Point(2)), tuple[str | Image, Point])).payload()
    assert [{"type": "text", "text": "no picture"}] == texts["content"]


@pytest.mark.parametrize("returns", [tuple[Any, ...], None, tuple[str, dict[str, str]]])
async def test_pair_that_is_not_declared_is_data(returns: Any) -> None:
    """Two values are two values."""
    assert ["hi", {"foo": "bar"}] == (await call(("hi", {"foo": "bar"}), returns)).value


async def test_content_type_may_give_text_or_nothing() -> None:
    """`-> Image | str | None` has no schema, and each form is shown as what it is."""
    returns = Image | str | None
    assert "image" == (await call(Image(PNG), returns)).payload()["content"][0]["type"]
    assert {"content": [TEXT], "isError": False} == (await call("x", returns)).payload()
    assert "" == (await call(None, returns)).text


async def test_models_in_what_nobody_declared_write_their_bytes_as_base64() -> None:
    """Wherever they are: a model alone would take them for UTF-8."""

    class Blob(BaseModel):
        data: bytes

    blob = Blob(data=b"\x80")
    assert [{"data": "gA=="}] == (await call([blob])).value
    assert {"k": [{"data": "gA=="}, 1]} == (await call({"k": (blob, 1)})).value
