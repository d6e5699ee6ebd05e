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
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import mcp_types
import pytest
from jsonschema import Draft202012Validator
from pydantic import (
    AfterValidator,
    Base64Bytes,
    Base64Str,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    PlainSerializer,
    SecretBytes,
    SecretStr,
    SerializeAsAny,
    UrlConstraints,
    WithJsonSchema,
    WrapSerializer,
    field_serializer,
    model_serializer,
)
from pydantic_core import core_schema

from prowess import Image, Outcome, Runtime, SkillError, mcp_schema, skill_command
from prowess.profiles.profile import BUILT_IN

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
class Mixed:
    """One field that is checked, and one that takes anything."""

    count: int
    other: Any


@dataclasses.dataclass
class Node:
    next: Node | None = None


class FailsToEncode(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return len("\udc80".encode())

    def __iter__(self) -> Iterator[str]:
        return iter("a")

    def __len__(self) -> int:
        return 1


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
        ("x", int, 'the result breaks the declared output schema:\n- result: expected an integer, got "x"'),
        ([1, "x"], list[int], '- result[1]: expected an integer, got "x"'),
        ({"x": "no"}, Point, '- result.x: expected an integer, got "no"'),
        (Point("no"), Point, '- result.x: expected integer, got "no"'),
        (
            ["x"] * 8,
            list[int],
            '- result[4]: expected an integer, got "x"\n- ... and 3 more',
        ),
        (float("nan"), float, "finite number"),
        ({"a": float("inf")}, dict[str, float], "- result.a: expected a finite number"),
        ("\ud800", str, "result: the text has the lone surrogate"),
        ([iter("x")], list[list[int]], 'result[0]: expected an integer, got "x"'),
        ((Image(PNG), "x"), tuple[Any, int], 'result[1]: expected an integer, got "x"'),
        (Mixed("no", range(2)), Mixed, 'result.count: expected integer, got "no"'),
        ({"content": [TEXT], "isError": False}, int, "the result breaks the declared output schema"),
        (
            {"content": [TEXT], "isError": False, "structuredContent": {"x": "no"}},
            Point,
            "- result.x: expected an integer",
        ),
        ("pair?", tuple[Image, int], "the return type is a pair of content and data, but the command returned a str"),
        (
            (Image(PNG),),
            tuple[Image, int],
            "the return type is a pair of content and data, but the command returned a tuple",
        ),
        ((1, 2), tuple[Image, int], "the return type is a pair of content and data, but the content is a int"),
        ((None, 2), tuple[Image, int], "the return type is a pair of content and data, but the content is a NoneType"),
        ((Image(PNG), "x"), tuple[Image, int], '- result: expected an integer, got "x"'),
    ],
)
async def test_data_that_breaks_its_declaration_is_refused(value: Any, returns: Any, said: str) -> None:
    """With the place and the expectation, as many as are useful."""
    assert said in await refused(value, returns)


@pytest.mark.parametrize(
    ("value", "returns"),
    [
        ((None, 2), tuple[Image | None, int]),
        (([], 2), tuple[list[Image], int]),
        (((), 2), tuple[tuple[Image, ...], int]),
    ],
)
async def test_a_pair_may_lack_its_content(value: Any, returns: Any) -> None:
    """If its type says so. It is shown like the data alone."""
    payload = (await call(value, returns)).payload()
    assert {"content": [{"type": "text", "text": "2"}], "isError": False, "structuredContent": {"result": 2}} == payload


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


def shared() -> Any:
    """One value in two places, which is no circle."""
    value = [1]
    return [value, value]


def holds_itself() -> Any:
    node = Node()
    node.next = node
    return node


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
        (float("nan"), "result: JSON has no NaN. Return a finite number"),
        ({"a": [float("-inf")]}, "result.a[0]: JSON has no -Infinity"),
        ("\ud800", "result: the text has the lone surrogate '\\ud800', which UTF-8 cannot hold. Replace it"),
        ({"a": "\udc80"}, "result.a: the text has the lone surrogate"),
        ({"a": [{"\udc80": 1}]}, "result.a[0]: a key has the lone surrogate '\\udc80'"),
        ([Image(PNG), "\udc80"], "the text has the lone surrogate"),
        (cyclic, "result[0].again: refers to result, which contains it, and JSON has no circular data"),
        (lambda: {"a": [Image(PNG), shared(), cyclic()]}, "result.a[2][0].again: refers to result.a[2], which"),
        (holds_itself, "result.next: refers to result, which contains it"),
        (deep, "the result cannot be written as JSON: it is nested too deeply"),
        (lambda: {"a": [1, 10**5000]}, "result.a[1]: the integer is too long to be sent (Exceeds the limit"),
        (FailsToEncode(), "UnicodeEncodeError: 'utf-8' codec can't encode"),
        (object(), "an object of the type object cannot be written as JSON. Return plain data"),
        ({"f": print}, "an object of the type builtin_function_or_method cannot be written as JSON"),
        (object_that_iterates, "an object of the type object_that_iterates.<locals>.Table cannot be written as JSON"),
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
        ({"content": [TEXT], "isError": False, "_meta": {"a": float("nan")}}, "result._meta.a: JSON has no NaN"),
        (
            {"content": [TEXT], "isError": False, "_meta": {"a": object()}},
            "an object of the type object cannot be written as JSON",
        ),
        (
            {"content": [{"type": "text", "text": "\udc80"}], "isError": True},
            "result.content[0].text: the text has the lone",
        ),
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


# Content and foreign values inside data

IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
MARK = "[image 1: image/png, 8 bytes]"


@dataclasses.dataclass
class Report:
    title: str
    plot: Image


@pytest.mark.parametrize("returns", [list, list[Any], tuple, tuple[Any, ...], object, Any, None, Sequence[Any]])
async def test_a_list_with_content_is_shown_in_order(returns: Any) -> None:
    """Whatever the list is declared as; data that stands for content names it."""
    value = ("a", Image(PNG), {"when": date(2024, 1, 1)}, Inner(b=b"\xff"))
    outcome = await call(value if returns in (tuple, tuple[Any, ...]) else list(value), returns)
    content = outcome.payload()["content"]
    assert ["a", None, '{"when": "2024-01-01"}', '{"b": "_w=="}'] == [block.get("text") for block in content]
    assert IMAGE == content[1]


@pytest.mark.parametrize("image", [Image(PNG), mcp_types.ImageContent(**IMAGE)])
@pytest.mark.parametrize("returns", [dict, dict[str, Any], object, Any, None])
async def test_content_inside_data_follows_it(returns: Any, image: Any) -> None:
    """It is sent once; where nobody waits for structured content, there is none that could hide it."""
    outcome = await call({"a": [image], "n": 1}, returns)
    payload = outcome.payload()
    assert [{"type": "text", "text": f'{{"a": ["{MARK}"], "n": 1}}'}, IMAGE] == payload["content"]
    assert ("structuredContent" in payload) is (returns not in (Any, None))


@pytest.mark.parametrize("returns", [Report, None])
async def test_content_as_a_field_follows_the_data(returns: Any) -> None:
    payload = (await call(Report("x", Image(PNG)), returns)).payload()
    assert f'{{"title": "x", "plot": "{MARK}"}}' == payload["content"][0]["text"]
    assert [IMAGE] == payload["content"][1:]


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"a": 1}.keys(), ["a"]),
        (range(2), [0, 1]),
        (collections.deque([1]), [1]),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (collections.Counter("a"), {"a": 1}),
        (collections.ChainMap({"a": 1}), {"a": 1}),
        (memoryview(b"a"), "YQ=="),
    ],
)
async def test_foreign_containers_work_inside_declared_ones(value: Any, data: Any) -> None:
    """As they do where nothing is declared."""
    for returns in (None, list, list[Any], object):
        if returns is not None or not isinstance(value, memoryview):
            assert [data] == (await call([value], returns)).value
    assert {"k": data} == (await call({"k": value}, dict[str, Any])).value


@pytest.mark.parametrize("returns", [None, dict[str, Any]])
async def test_an_error_names_the_place_and_the_way_out(returns: Any) -> None:
    said = await refused({"rows": [{"x": object()}]}, returns)
    assert "result.rows[0].x: an object of the type object cannot be written as JSON. Return plain data" in said
    assert "result.rows[0]: JSON has no NaN" in await refused({"rows": [float("nan")]}, returns)


class Slots:
    """Keeps its fields where nobody can list them."""

    __slots__ = ("x",)


@dataclasses.dataclass(slots=True)
class Slotted:
    x: object


async def test_an_error_whose_place_is_hidden_still_names_the_type() -> None:
    said = await refused([Slotted(Slots())])
    assert ": an object of the type Slots cannot be written as JSON. Return plain data" in said


class Formatted:
    """Written by a format that only numbers have."""

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        return core_schema.any_schema(serialization=core_schema.format_ser_schema(".2f"))


async def test_a_format_that_fails_is_told_in_its_own_words() -> None:
    said = await refused({"a": "x"}, dict[str, Annotated[Any, Formatted]])
    assert "the result cannot be written as JSON: Error calling `format(value, '.2f')`: ValueError" in said


async def test_a_text_of_a_library_inside_data_is_a_text() -> None:
    assert {"a": ["x"]} == (await call({"a": [mcp_types.TextContent(type="text", text="x")]})).value


async def test_an_image_where_a_number_is_declared_is_refused() -> None:
    assert 'result[0]: expected an integer, got "<Image>"' in await refused([Image(PNG)], list[int])


async def test_an_image_and_a_text_are_content() -> None:
    payload = (await call((Image(PNG), "caption"), tuple[Image, str])).payload()
    assert {"content": [IMAGE, {"type": "text", "text": "caption"}], "isError": False} == payload


@pytest.mark.parametrize("returns", [str, str | None, Annotated[str, Field(min_length=1)]])
@pytest.mark.parametrize("boxed", [True, False])
async def test_a_text_arrives_as_a_text(returns: Any, boxed: bool) -> None:
    outcome = await call('a\n"b"', returns)
    assert outcome.contract is not None
    for profile in ("portable", "full"):
        expected = {"content": [{"type": "text", "text": 'a\n"b"'}], "isError": False}
        assert expected == outcome.payload(profile, boxed=boxed)


async def test_a_text_that_differs_from_its_data_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Text that says the same is fine."""
    same = {"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}, "isError": False}
    await call(same)
    await call({**same, "content": [TEXT], "structuredContent": {"result": "x"}})
    assert "differs" not in caplog.text
    await call({**same, "content": [{"type": "text", "text": "other"}]})
    assert 1 == caplog.text.count("differs from its structured content")


# Objects that are written with more than they declare


class Base(BaseModel):
    a: int = 1


class Sub(Base):
    more: str = "x"


class Wrapped(Base):
    @model_serializer(mode="wrap")
    def _wrapped(self, handler: Callable[[Any], dict[str, Any]]) -> Any:
        return {**handler(self), "more": 2}


class Extra(Base):
    model_config = ConfigDict(extra="allow")


class Either(Base):
    model_config = ConfigDict(polymorphic_serialization=True)


class EitherWithMore(Either):
    more: int = 3


class Holder(BaseModel):
    open: SerializeAsAny[Base]
    closed: Base


SAID = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("value", "returns"),
    [
        (Sub(), SerializeAsAny[Base]),
        (Sub(), Base),
        (Wrapped(), Wrapped),
        ({"k": Wrapped()}, dict[str, Wrapped]),
        (Extra.model_validate({"b": 1}), Extra),
        (EitherWithMore(), Either),
        ([SecretStr("a" * 12)], list[Annotated[SecretStr, Field(min_length=12)]]),
        ({"a": SecretBytes(b"a")}, dict[str, Annotated[SecretBytes, Field(max_length=3)]]),
        ([HttpUrl("http://a.b/ä")], list[Annotated[HttpUrl, UrlConstraints(max_length=12)]]),
        (["abc"], list[Annotated[Base64Str, Field(max_length=3)]]),
        ([b"abc"], list[Annotated[Base64Bytes, Field(max_length=3)]]),
        ([EitherWithMore(), Either()], list[Either]),
        (Holder(open=Sub(), closed=Sub()), Holder),
        ([Sub()], list[SerializeAsAny[Base]]),
        (
            [Base()],
            Annotated[list[Base], WrapSerializer(lambda value, write: [{**item, "q": 1} for item in write(value)])],
        ),
        ({"a": 1, "b": 2}, Annotated[dict[str, Any], WithJsonSchema(SAID)]),
    ],
)
async def test_every_profile_shows_a_schema_that_its_value_meets(value: Any, returns: Any) -> None:
    """Also one that closes objects: those that may be written with more keys say so."""
    outcome = await call(value, returns)
    assert outcome.contract is not None
    for name, profile in BUILT_IN.items():
        schema = profile.output_schema(outcome.contract)
        if schema is not None:
            Draft202012Validator(schema).validate(outcome.payload(name)["structuredContent"])


THRICE = AfterValidator(lambda value: value * 3)


@pytest.mark.parametrize(
    ("value", "returns", "problem"),
    [
        (2, Annotated[int, Field(le=5), THRICE], "result: expected at most 5, got 6"),
        ([1], Annotated[list[int], Field(max_length=2), THRICE], "result: expected at most 2 items, got [1, 1, 1]"),
        ("abc", Annotated[str, THRICE, Field(max_length=5)], "expected a string of at most 5 characters, got"),
        (1, Annotated[int | str, AfterValidator(lambda _: None)], "result: expected integer or string, got null"),
    ],
)
async def test_a_validator_does_not_lead_around_a_limit(value: Any, returns: Any, problem: str) -> None:
    """The schema states the limit, whenever it was checked."""
    assert problem in await refused(value, returns)


class Kind(enum.Enum):
    A = "a"


class Hour(enum.Enum):
    NOON = time(12)


@pytest.mark.parametrize(
    ("value", "items"),
    [
        ({Path("a"), "a"}, Path | str),
        ({Kind.A, "a"}, Kind | str),
        ({SecretStr("a"), SecretStr("b")}, SecretStr),
        ({1.1, 1.2}, Annotated[float, PlainSerializer(round, return_type=int)]),
        ({"ab", "cd"}, Annotated[str, PlainSerializer(len, return_type=int)] | int),
        ({(1,), frozenset([1])}, tuple[int, ...] | frozenset[int]),
        ({Path("a"), "a"}, Any),
        ({Path("a")}, Path),
    ],
)
async def test_items_of_a_set_may_be_written_alike(value: Any, items: Any) -> None:
    """Its schema promises nothing else."""
    for collected, kind in ((value, set[items]), (frozenset(value), frozenset[items])):
        outcome = await call([collected], list[kind])
        assert outcome.contract is not None
        Draft202012Validator(outcome.contract.output.schema).validate(outcome.value)
        assert "uniqueItems" not in outcome.contract.output.schema["items"]


@pytest.mark.parametrize(
    "items", [int, str, float | None, date, Literal["a", 1], Kind, Hour | None, int | str | bool | None]
)
async def test_items_of_a_set_that_are_written_apart_are_unique(items: Any) -> None:
    outcome = await call(set(), set[items])
    assert outcome.contract is not None
    assert outcome.contract.output.schema["uniqueItems"] is True


@pytest.mark.parametrize("extra", [0.5, 2**70, "é", True, None, [1, {"deep": [[]]}], {"a": ()}])
async def test_a_tool_result_keeps_what_is_plain_json(extra: object):
    """As it stands, or converted where it is not plain."""
    payload = {"content": [{"type": "text", "text": "ö"}], "isError": False, "_meta": {"x/y": extra}}
    assert json.loads(json.dumps(extra)) == (await call(payload)).payload()["_meta"]["x/y"]


@pytest.mark.parametrize("extra", [float("nan"), float("inf"), "\ud800", {"\ud800": 1}])
async def test_a_tool_result_with_what_json_cannot_say_is_refused(extra: object):
    """Wherever it stands."""
    assert "output" == (await call({"content": [], "isError": False, "_meta": {"x/y": extra}})).kind


@pytest.mark.parametrize("annotation", [None, str, Any])
async def test_a_user_string_is_a_text(annotation: Any):
    """It is a sequence of user strings too, without end."""
    outcome = await call(collections.UserString("ab"), annotation)
    assert (True, "ab") == (outcome.ok, outcome.text)


@pytest.mark.parametrize("annotation", [None, dict])
async def test_a_failure_that_says_nothing_is_a_failure(annotation: Any):
    outcome = await call({"content": [], "isError": True}, annotation)
    assert "failed" == outcome.kind
    assert ([{"type": "text", "text": ""}], True) == (outcome.payload()["content"], outcome.payload()["isError"])
