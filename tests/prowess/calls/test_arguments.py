"""Arguments of a call: read by the declared types, every problem at once, and no arguments whatsoever harm the runtime."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import enum
import errno
import itertools
import json
import logging
import math
import os
import re
import threading
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import pytest
import typing_extensions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FilePath,
    PrivateAttr,
    SecretStr,
    StrictBool,
    StringConstraints,
    model_validator,
)
from pydantic_core import from_json

from prowess import Context, Outcome, Runtime, Settings, skill_command
from prowess.calls import arguments as arguments_module
from prowess.calls.arguments import ArgumentReader, JsonText, positional
from prowess.contracts.declaration import declaration_of
from prowess.errors import InputError
from prowess.schemas.problems import problem_lines


async def call(runtime: Runtime, function: Any, arguments: Any, **options: Any) -> Outcome:
    """Call a function like a client does."""
    declared = declaration_of(skill_command(**options)(function))
    assert declared is not None
    return await runtime.entry_of(declared).call(arguments)


class Color(enum.Enum):
    RED = "red"


@dataclass
class Note:
    text: str
    on: dt.date | None


class Query(BaseModel):
    words: list[str]
    limit: int | None = Field(alias="max")
    inner: Query | None = None


# --- every problem at once


async def test_every_problem_is_reported_at_once(runtime: Runtime):
    """Missing, unknown, wrong and injected; each on a line with its path, the value and what was expected."""

    def function(a: int, b: Color, c: list[Note], *, d: Query, ctx: Context, e: str = "x") -> None: ...

    sent = {
        "b": "blue",
        "c": [{"text": "ok", "on": "2024-02-29"}, {"text": 5, "on": "soon"}],
        "d": {"words": ["x", None], "max": "many"},
        "ctx": 1,
        "ee": 2,
    }
    outcome = await call(runtime, function, sent)
    assert "input" == outcome.kind
    problems = "\n".join(outcome.problems)
    for line in (
        "a: required",
        'b: expected "red", got "blue"',
        "c[1].text: expected a string, got 5",
        'c[1].on: expected a date (YYYY-MM-DD), got "soon"',
        "d.words[1]: expected a string, got null",
        'd.max: expected an integer, got "many"',
        "ctx: is provided by Prowess and cannot be sent",
        'ee: unknown argument; did you mean "e"?',
    ):
        assert line in problems, problems
    assert "pydantic.dev" not in outcome.text
    assert f"({len(outcome.problems)} problems)" in outcome.text


async def test_a_default_that_needs_a_wrong_value_is_no_problem_of_its_own(runtime: Runtime):
    """The caller corrects the value."""

    def function(words: list[str], count: int = Field(default_factory=lambda given: len(given["words"]))) -> None: ...

    outcome = await call(runtime, function, {"words": "x"})
    assert ('words: expected an array, got "x"',) == outcome.problems


_NO_LIMIT = "a value that the declared limit applies to"


@pytest.mark.parametrize(
    ("annotation", "sent", "expected"),
    [
        (Annotated[int | str, Field(ge=1)], "a", _NO_LIMIT),
        (Annotated[int | str, Field(min_length=1)], 5, _NO_LIMIT),
        (Annotated[int | str, Field(pattern="^a")], 5, _NO_LIMIT),
        (FilePath, "a" * 5000, f"a usable path ({os.strerror(errno.ENAMETOOLONG)})"),
        (FilePath, 5, "a path"),
    ],
)
async def test_a_check_of_pydantic_that_raises_is_no_crash(runtime: Runtime, annotation: Any, sent: Any, expected: str):
    """The caller sent a wrong value. A validator of the author that raises is another matter."""

    def function(x: Any) -> None: ...

    function.__annotations__["x"] = annotation
    (problem,) = (await call(runtime, function, {"x": sent})).problems
    assert problem.startswith(f"x: expected {expected}, got ")


async def test_injected_names_are_refused_beside_other_problems(runtime: Runtime):
    """Also by an open function, which would take any name."""

    def function(a: int, settings: Settings, **more: int) -> None: ...

    outcome = await call(runtime, function, {"a": "x", "settings": {}, "b": "y"})
    assert 3 == len(outcome.problems)
    assert "settings: is provided by Prowess and cannot be sent" in outcome.text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (1, "1"),
        ("x", '"x"'),
        ([], "[]"),
        ([1], "[1]"),
        (True, "true"),
        (object(), '"<object>"'),
        (b"{}", '"<bytes>"'),
    ],
)
async def test_arguments_are_an_object(runtime: Runtime, arguments: Any, told: str):
    """Anything else is a problem of the input."""

    def function(**more: Any) -> None: ...

    outcome = await call(runtime, function, arguments)
    assert "input" == outcome.kind
    assert f"arguments: expected an object, got {told}" in outcome.text


async def test_any_mapping_is_an_object(runtime: Runtime):
    """Embedders pass what they have."""

    def function(a: int) -> int:
        return a

    assert 1 == (await call(runtime, function, MappingProxyType({"a": 1}))).value


CYCLE: dict[str, Any] = {}
CYCLE["x"] = CYCLE
DEEP: Any = None
for _ in range(100_000):
    DEEP = [DEEP]


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __iter__(self) -> Any:
        raise RuntimeError("no iteration")


@pytest.mark.parametrize(
    "value",
    [CYCLE, DEEP, Hostile(), object(), "\ud800", {"\ud800": 1}, math.nan, [[math.inf]], {"x": -math.inf}],
    ids=["cycle", "deep", "hostile", "object", "surrogate", "key", "nan", "inf", "-inf"],
)
@pytest.mark.parametrize("explicit", [None, {"type": "object"}], ids=["inferred", "explicit"])
async def test_what_is_no_json_is_refused(runtime: Runtime, value: Any, explicit: Any):
    """Also where anything goes; the text of the refusal can be sent."""

    def function(x: Any = None) -> None: ...

    outcome = await call(runtime, function, {"x": value}, input_schema=explicit)
    assert "input" == outcome.kind
    assert "cannot be read as JSON" in outcome.text
    json.dumps(outcome.payload(), ensure_ascii=False).encode()


async def test_numbers_that_are_none_are_refused_where_they_stand(runtime: Runtime):
    """By a path, where a number was expected; text may say what it likes."""

    def function(x: list[float], text: str) -> None: ...

    assert "x[0]: expected a finite number" in (await call(runtime, function, {"x": [math.nan], "text": "NaN"})).text
    assert "ok" == (await call(runtime, function, {"x": [1], "text": "NaN Infinity"})).kind


async def test_keys_that_are_no_text_are_taken_for_text(runtime: Runtime):
    """JSON has no others."""

    def function(**more: int) -> dict[str, int]:
        return more

    assert {"1": 2, "None": 3} == (await call(runtime, function, {1: 2, None: 3})).value


class Deep(BaseModel):
    next: Deep | None = None


async def test_nesting_has_a_limit(runtime: Runtime):
    """Far beyond what a model sends; what is deeper is a problem of the input."""

    def function(deep: Deep) -> bool:
        return isinstance(deep.next, Deep)

    def nested(depth: int) -> Any:
        value: Any = {}
        for _ in range(depth):
            value = {"next": value}
        return value

    schema = {
        "type": "object",
        "properties": {"deep": {"$ref": "#/$defs/deep"}},
        "required": ["deep"],
        "$defs": {"deep": {"type": "object", "properties": {"next": {"$ref": "#/$defs/deep"}}}},
    }
    for explicit in (None, schema):
        assert "ok" == (await call(runtime, function, {"deep": nested(50)}, input_schema=explicit)).kind
        for depth in (150, 230, 1000, 100_000):
            outcome = await call(runtime, function, {"deep": nested(depth)}, input_schema=explicit)
            assert outcome.kind in ("ok", "input"), outcome.text


# --- nulls


class Optional_(typing_extensions.TypedDict):
    a: int | None
    data: bytes | None


async def test_a_missing_key_means_none(runtime: Runtime):
    """The default profile hides null from schemas, and leaves such keys optional, at any depth. An explicit null counts."""

    def function(a: int | None, b: bytes, note: Note, option: Optional_, limit: int | None = 5) -> str:
        return repr((a, b, note, option, limit))

    sent = {"b": "aGk=", "note": {"text": "x"}, "option": {"data": "aGk="}}
    expected = (None, b"hi", Note("x", None), {"a": None, "data": b"hi"}, 5)
    assert repr(expected) == (await call(runtime, function, sent)).value
    sent = {"a": None, "b": "", "note": {"text": "x", "on": None}, "option": {"a": 1, "data": None}, "limit": None}
    expected = (None, b"", Note("x", None), {"a": 1, "data": None}, None)
    assert repr(expected) == (await call(runtime, function, sent)).value


async def test_what_may_be_missing_is_no_problem(runtime: Runtime):
    """Beside other problems, a key that a client may leave out is not reported."""

    def function(a: int | None, b: int) -> None: ...

    assert ("b: required",) == (await call(runtime, function, {})).problems


# --- by position


async def test_a_gap_between_positional_parameters_is_filled(runtime: Runtime):
    """What a client sends is never dropped because something before it was left out."""

    def function(a: int = 1, b: int = 2, /, c: int = 3) -> list[int]:
        return [a, b, c]

    assert [1, 5, 3] == (await call(runtime, function, {"b": 5})).value
    assert [1, 2, 3] == (await call(runtime, function, {})).value

    def with_rest(a: int = 1, b: int = 2, *rest: int) -> list[int]:
        return [a, b, *rest]

    assert [1, 5] == (await call(runtime, with_rest, {"b": 5})).value


def test_values_are_split_by_position():
    """In the order of the parameters, not of the values."""
    assert ([1, 2], {"c": 3}) == positional(("a", "b"), {"c": 3, "b": 2, "a": 1})
    assert ([], {"c": 3}) == positional((), {"c": 3})


# --- equal arguments


class Login(BaseModel):
    user: str
    password: SecretStr
    hidden: str = Field("", exclude=True)


@dataclass(slots=True)
class Sized:
    n: int
    made: int = field(init=False)

    def __post_init__(self) -> None:
        self.made = self.n


@dataclass
class Unmade:
    n: int
    late: int = field(init=False)


class Extra(BaseModel, extra="allow"):
    pass


class Named(BaseModel, extra="allow"):
    """Takes a key with the name of its private attribute."""

    _n: int = PrivateAttr(0)


class Plain:
    """An object without a `repr` of its own."""

    def __init__(self, n: int) -> None:
        self.n = n


Whole = Annotated[int, AfterValidator(Plain)]


class Counted(BaseModel):
    """Remembers its argument in a private attribute only."""

    n: int = Field(exclude=True)
    _n: int = PrivateAttr(0)

    @model_validator(mode="after")
    def hide(self) -> Counted:
        self._n, self.n = self.n, 0
        return self


MORNING = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)

# annotation, arguments that are equal
EQUAL: list[tuple[Any, list[Any]]] = [
    (int, [1, "1", 1.0]),
    (dict[str, int], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]),
    (set[str], [["a", "b", "c"], ["c", "b", "a", "a"]]),
    (Any, [{"a": {"b": 1, "c": [1]}}, {"a": {"c": [1], "b": 1}}]),
    (Login, [{"user": "u", "password": "p"}, {"password": "p", "user": "u"}]),
    (Path, ["/a/b", "/a//b"]),
    (decimal.Decimal, ["1.5", 1.5]),
    (re.Pattern[str], ["a", "a"]),
    (Whole, [1, "1"]),
    (Color, ["red", "red"]),
    (uuid.UUID, [str(uuid.UUID(int=5))] * 2),
    (AnyUrl, ["http://a.b/c"] * 2),
]
# annotation, arguments that all differ
DIFFERENT: list[tuple[Any, list[Any]]] = [
    (Any, [1, True, 1.5, "1", None, [], [1], {}, {"a": 1}, "a", [["a", 1]]]),
    (int | str | bool | None, [1, "1", True, None]),
    (Login, [{"user": "u", "password": p, "hidden": h} for p in "ab" for h in "xy"]),
    (SecretStr, ["a", "b"]),
    (dt.datetime, ["2024-02-29T12:00:00Z", "2024-02-29T13:00:00+01:00", "2024-02-29T12:00:00"]),
    (decimal.Decimal, ["1.5", "1.50"]),
    (bytes, ["aGk=", "aGkh"]),
    (list[int] | set[int], [[1], [2], [1, 1]]),
    (Sized | Unmade | Extra, [{"n": 1}, {"n": 2}, {"x": 1}, {"x": 2}]),
    (Color | Literal["blue"], ["red", "blue"]),
    (tuple[int, ...], [[1, 2], [2, 1]]),
    (dict[str, Any], [{"a": None}, {}, {"b": None}]),
    (deque[int], [[1], [1, 2]]),
    (re.Pattern[str], ["a" * 300, "a" * 301]),
    (Whole, [1, 2]),
    (Counted | int, [{"n": 1}, {"n": 2}]),
    (Login, [{"user": "u", "password": "p"}, {"user": "u", "password": "p", "hidden": ""}]),
    (Named, [{"_n": 1}, {"_n": 2}, {"n": 1}]),
    (OrderedDict[str, int], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]),
]


Steps = typing_extensions.TypeAliasType("Steps", "dict[int, Steps]")


def keys(runtime: Runtime, annotation: Any, values: list[Any]) -> list[str]:
    def function(x: Any, y: int = 1) -> None: ...

    function.__annotations__["x"] = annotation
    plan = runtime.entry_of(declaration_of(skill_command(function))).plan
    read = [plan.reader.from_json({"x": value}) for value in values]
    return [json.dumps(plan.reader.canonical(item, plan.defaults), sort_keys=True) for item in read]


@pytest.mark.parametrize("annotation, values", EQUAL, ids=lambda value: str(value)[:30])
def test_equal_arguments_have_one_canonical_form(runtime: Runtime, annotation: Any, values: list[Any]):
    """However they were spelled: the cache keeps one result for them."""
    assert 1 == len(set(keys(runtime, annotation, values)))


@pytest.mark.parametrize("annotation, values", DIFFERENT, ids=lambda value: str(value)[:30])
def test_different_arguments_have_different_canonical_forms(runtime: Runtime, annotation: Any, values: list[Any]):
    """Also where a serializer would mask a secret or leave a field out: nobody gets another one's result."""
    assert len(values) == len(set(keys(runtime, annotation, values)))


def test_defaults_are_part_of_the_canonical_form(runtime: Runtime):
    """Leaving one out is the same as sending it; one that is no JSON does no harm."""
    sentinel: Any = object()

    def function(a: int = 1, b: Any = sentinel) -> None: ...

    plan = runtime.entry_of(declaration_of(skill_command(cache_ttl=1)(function))).plan
    left_out, sent = (plan.reader.canonical(plan.reader.from_json(item), plan.defaults) for item in ({}, {"a": "1"}))
    assert left_out == sent


def test_the_canonical_form_holds_each_field_once(runtime: Runtime):
    """The form is kept with every cached result."""

    @dataclass
    class Note:
        text: str

    assert 1 == keys(runtime, Note, [{"text": "milk"}])[0].count("milk")


async def test_the_log_says_once_that_the_cache_is_of_no_use(runtime: Runtime, caplog: pytest.LogCaptureFixture):
    """An object that cannot be compared would be looked for in vain, call after call."""

    class Guarded(BaseModel):
        n: int
        _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @skill_command(cache_ttl=60)
    def run(it: Guarded) -> int:
        return it.n

    entry = runtime.entry_of(declaration_of(run))
    assert [False, False] == [(await entry.call({"it": {"n": 1}})).cached for _ in range(2)]
    assert 1 == caplog.text.count("run: cache_ttl has no effect for arguments with an object of the class lock")


# --- no arguments whatsoever

numbers = st.floats() | st.integers() | st.integers(min_value=10**30)
keys_ = st.text() | st.sampled_from(["a", "b", "c", "d", "ctx", "more", "text", "on", "words", "max", "inner", "title"])
scalars = (
    st.none()
    | st.booleans()
    | numbers
    | st.text()
    | st.text(st.characters(categories=["Cs", "L"]))
    | st.binary()
    | st.sampled_from(["red", "2024-02-29", "1", "aGk=", "cat"])
    | st.builds(object)
    | st.datetimes()
)
anything = st.recursive(
    scalars | st.decimals() | st.builds(Hostile),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(keys_ | scalars, inner, max_size=5)
        | st.sets(scalars)
    ),
    max_leaves=15,
)
odd = st.sampled_from(["cycle", "deep"]).map({"cycle": CYCLE, "deep": DEEP}.get)
arguments_ = anything | st.dictionaries(keys_, anything | odd, max_size=6)


class Pet(BaseModel):
    kind: Literal["cat"]
    age: Annotated[int, Field(ge=0)]


def typed(a: int, b: Color | bytes | None, c: list[Note], d: Query | Pet, ctx: Context) -> str: ...


def open_(a: Any, ctx: Context, **more: Any) -> None: ...


def everything(a: Any = None, b: Any = None, c: Any = None, d: Any = None) -> Any:
    return [a, b, c, d]


def by_schema(a: Any = None, b: Any = None) -> None: ...


SCHEMA = {"type": "object", "properties": {"a": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}, "b": {"enum": [1]}}}
NAMES = [typed, open_, everything, by_schema]


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    logging.disable(logging.CRITICAL)  # what crashes is written down; here it is thousands of lines
    runtime = Runtime(tmp_path_factory.mktemp("project"))
    commands = [skill_command(function) for function in NAMES[:3]]
    commands.append(skill_command(input_schema=SCHEMA)(by_schema))
    try:
        yield [runtime.entry_of(declaration_of(command)) for command in commands]
        runtime.close()
    finally:
        logging.disable(logging.NOTSET)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=arguments_)
def test_no_arguments_make_a_call_raise(entries: list[Any], arguments: Any):
    """Every call has an outcome, its payload can be sent, and nothing that crashed was the reader's fault."""

    async def outcomes() -> list[Outcome]:
        return [await entry.call(arguments) for entry in entries]

    for outcome in asyncio.run(outcomes()):
        assert outcome.kind in ("ok", "input", "output"), outcome.text
        for profile, boxed in itertools.product(("portable", "turul", "omni"), (True, False)):
            json.dumps(outcome.payload(profile, boxed=boxed), ensure_ascii=False, allow_nan=False).encode()


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=scalars | st.text(), arguments=arguments_)
def test_no_name_makes_a_call_raise(
    entries: list[Any], tmp_path_factory: pytest.TempPathFactory, name: Any, arguments: Any
):
    """Whatever a command is called by."""
    runtime = Runtime(tmp_path_factory.getbasetemp())
    outcome = asyncio.run(runtime.call(name, arguments))
    assert "unknown" == outcome.kind
    json.dumps(outcome.payload(), ensure_ascii=False).encode()


# Arguments as JSON text, which is read without being parsed first


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 0


class Bare(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True)
    a: str = ""
    b: dict[str, int] = {}


def _rounded(value: Any) -> Any:
    return round(value) if isinstance(value, float) else value


async def _plain(a: int, b: float | None = None, c: str = "", d: Any = None, e: decimal.Decimal | None = None): ...
async def _records(a: list[dict[str, int | str]], b: dict[str, Any] | None = None, c: list[Query] | None = None): ...
async def _keys(a: dict[int, Any], b: dict[str, int] | None = None): ...
async def _union(a: dict[str, int] | dict[str, str] | None, b: dict[str, dt.date] | list[Any] | None = None): ...
async def _models(a: Query | Note | Open, b: Bare | None = None, c: Open | None = None): ...
async def _watched(a: dict[str, Annotated[Any, BeforeValidator(_rounded)]], b: Any = None): ...
async def _open(a: int, **more: int): ...
async def _renamed(a: Annotated[int, Field(alias="b")] = 0, **more: Any): ...
async def _by_position(a: Any = 1, b: list[int] | None = None, /): ...


_READERS = [_plain, _records, _keys, _union, _models, _watched, _open, _renamed, _by_position]
_NUMBERS = ["0", "-0", "1", "1.0", "1e2", "-1E+2", "1.10", "0.1e1", "123456789012345678901234567890", "1e-400", "12.5"]
_TEXTS = [r'"\u00e9"', r'"\ud83d\ude00"', '"1"', '" a "', '"2026-01-02"', '"NaN"', '"Infinity"', '"[1]"', '"{}"', '"a"']
_KEYS = [
    '"a"',
    '"b"',
    '"c"',
    '"d"',
    '"e"',
    '" a"',
    r'"\u0061"',
    '"1"',
    '"01"',
    '"text"',
    '"on"',
    '"words"',
    '"max"',
    '"inner"',
]


def _object(items: list[tuple[str, str]]) -> str:
    """Names may be there more than once."""
    return "{" + ", ".join(f"{name} : {value}" for name, value in items) + "}"


def _objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.tuples(st.sampled_from(_KEYS), inner), max_size=4).map(_object)


_JSON_TEXT = st.recursive(
    st.sampled_from([*_NUMBERS, *_TEXTS, "null", "true", "[]", "{}"]),
    lambda inner: st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]") | _objects(inner),
    max_leaves=8,
)


def _reader(function: Any, runtime: Runtime) -> ArgumentReader:
    declared = declaration_of(skill_command(function))
    assert declared is not None
    return runtime.entry_of(declared).plan.reader


def _read(reader: ArgumentReader, arguments: Any) -> Any:
    """The values and what was decoded, or the problems; types count."""
    decoded: list[str] = []
    try:
        values = reader.from_json(arguments, decoded)
    except InputError as error:
        return error.problems
    return repr(values), decoded


@pytest.fixture(scope="module", params=_READERS)
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArgumentReader]:
    runtime = Runtime(tmp_path_factory.mktemp("project"))
    yield _reader(request.param, runtime)
    runtime.close()


@given(_objects(_JSON_TEXT))
def test_text_is_read_like_what_it_says(reader: ArgumentReader, text: str) -> None:
    """Whether the text goes straight to the validator or is parsed first: values, types and problems are the same."""
    assert _read(reader, from_json(text)) == _read(reader, JsonText(text.encode()))


@pytest.mark.parametrize(
    "function, text",
    [
        (_keys, '{"a": {"1": 1, "01": 2, "1": 3}}'),
        (_union, '{"a": {"x": "y", "x": 1}}'),
        (_union, '{"a": {"x": 1, "x": "y"}}'),
        (_union, '{"a": null, "b": {"x": "2026-01-02", "x": "y"}}'),
        (_records, '{"a": [{"x": null, "x": 1}]}'),
        (_models, '{"a": {"b": 1, "words": 2, "words": ["x"], "max": 1}, "b": {"b": {"x ": 1, "x": 2, "x ": 3}}}'),
        (_open, '{"a": 1, "b": "x", "b": 2}'),
        (_watched, '{"a": {"x": 1.6, "x": 2.4}}'),
        (_plain, '{"a": 1, "d": "NaN"}'),
    ],
)
def test_the_last_of_equal_names_counts(function: Any, text: str, tmp_path: Path) -> None:
    """Also where pydantic by itself would look at the others."""
    runtime = Runtime(tmp_path)
    reader = _reader(function, runtime)
    assert _read(reader, from_json(text)) == _read(reader, JsonText(text.encode()))
    runtime.close()


def test_large_text_is_read_like_small_text(runtime: Runtime) -> None:
    text = b'{"a": [' + b",".join([b'{"x": 1, "y": "z"}'] * 20_000) + b"]}"
    assert 20_000 == len(_reader(_records, runtime).from_json(JsonText(text))["a"])


@pytest.mark.parametrize("function", [_plain, _records, _by_position, _open])
def test_ordinary_text_is_never_parsed_twice(function: Any, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to the validator as it came."""
    reader = _reader(function, runtime)
    monkeypatch.setattr(arguments_module, "from_json", None)
    monkeypatch.setattr(arguments_module, "to_json", None)
    text = b'{"a": [{"x": 1, "y": "z"}]}' if function is _records else b'{"a": 1}'
    assert from_json(text).items() <= reader.from_json(JsonText(text)).items()


@pytest.mark.parametrize("text", ["[1]", "1", "{", '{"a": ' + "[" * 5000 + "]" * 5000 + "}", '{"a": NaN}'])
def test_text_that_is_not_an_object_is_refused(text: str, runtime: Runtime) -> None:
    """A host that speaks another release of the link may send anything."""
    problems = _read(_reader(_plain, runtime), JsonText(text.encode()))
    assert isinstance(problems, list)
    assert problems


def test_text_of_text_is_decoded(runtime: Runtime) -> None:
    """As some clients send it."""
    assert ("{'a': 1}", ["arguments"]) == _read(_reader(_plain, runtime), JsonText(b'"{\\"a\\":1}"'))
    assert ("{'a': [{'x': 1}]}", ["a"]) == _read(_reader(_records, runtime), JsonText(b'{"a": "[{\\"x\\":1}]"}'))


@pytest.mark.parametrize("value", [threading.Lock(), lambda: 1, (index for index in "x")])
def test_what_cannot_be_told_apart_equals_nothing(runtime: Runtime, value: Any):
    """Its result is not cached."""

    def function(a: Any) -> None: ...

    plan = runtime.entry_of(declaration_of(skill_command(function))).plan
    assert plan.reader.canonical({"a": value}, {}) != plan.reader.canonical({"a": value}, {})


class Numbered(BaseModel):
    held: dict[int, bytes]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    held: dict[int, str]


@pytest.mark.parametrize(
    ("annotation", "sent", "place"),
    [
        (dict[int, str], {"1": "a", "01": "b"}, "it"),
        (list[dict[float, int]], [{"1": 1}, {"1": 1, "1.0": 2}], "it[1]"),
        (dict[str, dict[bool, int]], {"x": {"true": 1, "1": 2}}, "it.x"),
        (Numbered, {"held": {"1": "", "+1": ""}}, "it.held"),
        (defaultdict[int, list[int]], {"1": [], " 1": []}, "it"),
        (Steps, {"1": {"2": {}, "02": {}}}, 'it["1"]'),
        (Strict, {"held": {"1": "a", "01": "b"}}, "it.held"),
        (tuple[dict[int, str], Path, StrictBool], [{"1": "a", "01": "b"}, ".", True], "it[0]"),
        (dict[Path, int], {"a/b": 1, "a//b": 2}, "it"),
        (Counter[Annotated[str, StringConstraints(to_lower=True)]], {"a": 1, "A": 2}, "it"),
    ],
)
def test_keys_that_are_read_alike_lose_no_entry(runtime: Runtime, annotation: Any, sent: Any, place: str):
    """A function that gets one of two values knows nothing of the other."""

    def function(it: Any) -> None: ...

    function.__annotations__["it"] = annotation
    with pytest.raises(InputError) as caught:
        _reader(function, runtime).from_json({"it": sent})
    assert f"{place}: two of its keys are the same for its type, so an entry would be lost" in caught.value.problems[0]
    with pytest.raises(InputError):
        _reader(function, runtime).from_python({"it": sent})


@pytest.mark.parametrize(
    ("annotation", "sent", "value"),
    [
        (dict[int, str], {"1": "a", "2": "b"}, {1: "a", 2: "b"}),
        (Numbered, {"held": {"1": "_w=="}}, Numbered(held={1: b"\xff"})),
        (Strict, {"held": {"1": "a"}}, Strict(held={1: "a"})),
        (Steps, {"1": {"2": {}}}, {1: {2: {}}}),
        (dict[int, Strict], {"1": {"held": {"1": "a"}}}, {1: Strict(held={1: "a"})}),
        (dict[int, dt.date | dt.datetime], {"1": "2026-01-01T00:00:00"}, {1: dt.datetime(2026, 1, 1)}),
        (dict[int, str | uuid.UUID], {"1": str(uuid.UUID(int=1))}, {1: uuid.UUID(int=1)}),
        (Counter[int], {"1": 2}, Counter({1: 2})),
    ],
)
def test_keys_that_differ_are_read_as_ever(runtime: Runtime, annotation: Any, sent: Any, value: Any):
    """Also those of a strict type. What is beside them is read by the rules for JSON."""

    def function(it: Any) -> None: ...

    function.__annotations__["it"] = annotation
    read = _reader(function, runtime).from_json({"it": sent})
    assert {"it": value} == read
    assert type(value) is type(read["it"])


def test_a_dict_with_a_factory_keeps_it(runtime: Runtime):
    """The function may ask for a key that it lacks."""

    def function(it: defaultdict[int, list[int]]) -> None: ...

    assert [] == _reader(function, runtime).from_json({"it": {"1": [2]}})["it"][3]


def test_very_many_problems_of_an_array_are_counted_and_not_listed(runtime: Runtime):
    """Listing those of a million items takes seconds. Other arguments are described as ever."""

    def function(words: list[int], sets: dict[str, set[int]], pair: tuple[int, int], n: int) -> None: ...

    reader = _reader(function, runtime)
    for count, lines in ((9_990, 20), (20_000, 5)):
        sent = {"words": ["x"] * count, "sets": {"a": ["y", "z"]}, "pair": ["p", "q"]}
        with pytest.raises(InputError) as caught:
            reader.from_json(sent)
        problems = caught.value.problems
        assert (lines, "n: required") == (len(problems), problems[0])
        assert 'words[0]: expected an integer, got "x"' in problems
        assert ('words[1]: expected an integer, got "x"' in problems) == (lines == 20)
    assert 'sets.a[0]: expected an integer, got "y"' in problems
    assert 'pair[0]: expected an integer, got "p"' in problems
    assert "... and 20001 more" == problems[-1]


def test_problems_that_a_second_look_does_not_find_are_listed_one_by_one(runtime: Runtime):
    """A validator of the author may change its mind."""
    seen = itertools.count()

    def moody(value: int) -> int:
        if next(seen) < 20_000:
            raise ValueError("not today")
        return value

    def function(words: Any) -> None: ...

    function.__annotations__["words"] = list[Annotated[int, AfterValidator(moody)]]
    with pytest.raises(InputError) as caught:
        _reader(function, runtime).from_json({"words": [1] * 20_000})
    assert (20, "... and 19981 more") == (len(caught.value.problems), caught.value.problems[-1])


async def test_very_many_unknown_names_are_counted_and_not_described(runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    """A million of them would take seconds and a gigabyte. The known names are still read."""
    described: list[int] = []

    def lines(errors: Any, *args: Any, **options: Any) -> list[str]:
        described.append(len(errors))
        return problem_lines(errors, *args, **options)

    monkeypatch.setattr(arguments_module, "problem_lines", lines)

    def function(a: list[int], b: int) -> None: ...

    reader = runtime.entry_of(declaration_of(skill_command(function))).plan.reader
    sent = {f"x{number}": number for number in range(5000)} | {"a": "[1]"}
    with pytest.raises(InputError) as caught:
        reader.from_json(JsonText(json.dumps(sent).encode()))
    assert "b: required" == caught.value.problems[0]
    assert "... and 4982 more" == caught.value.problems[-1]
    assert 20 == len(caught.value.problems)
    assert max(described) < 1010
