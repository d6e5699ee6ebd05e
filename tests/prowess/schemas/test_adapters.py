"""Annotations as adapters: what is read arrives as the declared type, and what is written keeps the schema."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import math
import sys
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypeVar, Union

import pytest
import typing_extensions
from jsonschema import Draft202012Validator
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    Base64Bytes,
    Base64Str,
    Base64UrlBytes,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    PlainSerializer,
    RootModel,
    SecretStr,
    ValidationError,
    WrapSerializer,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_core import PydanticSerializationError, core_schema, to_json

from prowess.schemas.adapters import Adapter, Misfit, Unusable, as_default, record, to_text

T = TypeVar("T")
UserId = NewType("UserId", int)
Tree = typing_extensions.TypeAliasType("Tree", "Union[int, list[Tree]]")


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.StrEnum):
    FAST = "fast"


class Point(NamedTuple):
    x: int
    y: int = 0


@dataclass
class Inner:
    when: dt.date


@dataclass
class Outer:
    inner: Inner
    more: list[Inner] = field(default_factory=list)
    maybe: Outer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slotted:
    color: Color = Color.RED


@pydantic_dataclass
class Checked:
    a: Annotated[int, Field(ge=1)]


class Model(BaseModel):
    model_config = ConfigDict(alias_generator=lambda name: name.upper())
    some_name: int
    data: bytes = b""
    nested: list[Model] = []

    @computed_field
    @property
    def double(self) -> int:
        return self.some_name * 2


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tail: float


class Red(BaseModel):
    color: Literal[Color.RED]


class Green(BaseModel):
    color: Literal[Color.GREEN]
    b: int


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Ids(RootModel[list[int]]):
    pass


class Page(BaseModel, Generic[T]):
    items: list[T]


class Lazy(BaseModel):
    model_config = ConfigDict(defer_build=True)
    a: int
    other: Defined | None = None


class Defined(BaseModel):
    b: int


class Record(typing_extensions.TypedDict):
    a: int
    b: typing_extensions.NotRequired[str]


class Old(typing.TypedDict, total=False):
    a: typing.Required[int]
    b: Annotated[str, Field(min_length=1)]
    old: Old


class Older(Old):
    c: dt.date
    d: typing.NotRequired[list[Old]]


@dataclass
class WithOld:
    old: Older | None


class TupleWithOld(NamedTuple):
    old: Old


UUID = uuid.UUID(int=1)
DAY = dt.date(2024, 2, 29)
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)

# annotation, JSON, value: the JSON is read as the value, and the value is written as the JSON
TYPES: list[tuple[Any, Any, Any]] = [
    (int, 1, 1),
    (float, 1.5, 1.5),
    (bool, True, True),
    (str, "é", "é"),
    (None, None, None),
    (Any, {"a": [1, None]}, {"a": [1, None]}),
    (int | None, None, None),
    (Optional[int], 1, 1),
    (Union[int, str], "a", "a"),
    (Literal[1, "a", None], "a", "a"),
    (Color, "red", Color.RED),
    (Level, 1, Level.LOW),
    (Mode, "fast", Mode.FAST),
    (Literal[Color.RED], "red", Color.RED),
    (Literal[Color.RED, Level.LOW, "blue", 7], "red", Color.RED),
    (Literal[Color.RED, Level.LOW, "blue", 7], "blue", "blue"),
    (Annotated[Red | Green, Field(discriminator="color")], {"color": "green", "b": 1}, Green(color=Color.GREEN, b=1)),
    (dt.date, "2024-02-29", DAY),
    (dt.datetime, "2024-02-29T12:00:00Z", NOON),
    (dt.time, "12:30:00", dt.time(12, 30)),
    (dt.timedelta, "PT1M30S", dt.timedelta(seconds=90)),
    (uuid.UUID, str(UUID), UUID),
    (Path, "/a/b", Path("/a/b")),
    (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
    (bytes, "_-8=", b"\xff\xef"),
    (dict[str, bytes], {"a": "aGk="}, {"a": b"hi"}),
    (Base64Bytes, "aGk=", b"hi"),
    (list[Base64UrlBytes], ["aGk="], [b"hi"]),
    (set[int], [1], {1}),
    (frozenset[str], ["a"], frozenset({"a"})),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (collections.deque[int], [1, 2], collections.deque([1, 2])),
    (Point, [1, 2], Point(1, 2)),
    (Sequence[int], [1, 2], [1, 2]),
    (Iterable[int], [1, 2], [1, 2]),
    (dict[str, Iterable[dt.date]], {"a": ["2024-02-29"]}, {"a": [DAY]}),
    (Mapping[str, int], {"a": 1}, {"a": 1}),
    (dict[Color, int], {"red": 1}, {Color.RED: 1}),
    (dict[int, str], {"1": "a"}, {1: "a"}),
    (UserId, 1, 1),
    (T, "x", "x"),
    (Tree, [1, [2]], [1, [2]]),
    (Outer, {"inner": {"when": "2024-02-29"}, "more": [], "maybe": None}, Outer(Inner(DAY))),
    (Slotted, {"color": "green"}, Slotted(color=Color.GREEN)),
    (Checked, {"a": 1}, Checked(1)),
    (Cat | Dog, {"kind": "dog", "tail": 1.0}, Dog(kind="dog", tail=1.0)),
    (Pet, {"kind": "cat", "lives": 9}, Cat(kind="cat", lives=9)),
    (Ids, [1, 2], Ids([1, 2])),
    (Page[int], {"items": [1]}, Page[int](items=[1])),
    (Page[Cat], {"items": [{"kind": "cat", "lives": 9}]}, Page[Cat](items=[Cat(kind="cat", lives=9)])),
    (Lazy, {"a": 1, "other": {"b": 2}}, Lazy(a=1, other=Defined(b=2))),
    (list[Lazy], [{"a": 1, "other": None}], [Lazy(a=1)]),
    (Record, {"a": 1}, {"a": 1}),
    (Old, {"a": 1, "old": {"a": 2}}, {"a": 1, "old": {"a": 2}}),
    (Older, {"a": 1, "c": "2024-02-29", "d": [{"a": 2}]}, {"a": 1, "c": DAY, "d": [{"a": 2}]}),
    (list[WithOld], [{"old": {"a": 1, "c": "2024-02-29"}}], [WithOld({"a": 1, "c": DAY})]),
    (TupleWithOld, [{"a": 1}], TupleWithOld({"a": 1})),
    (record({"old": Old}), {"old": {"a": 1}}, {"old": {"a": 1}}),
]


@pytest.mark.parametrize("annotation, json, value", TYPES, ids=lambda value: str(value)[:30])
def test_values_go_in_and_out_by_their_declared_type(annotation: Any, json: Any, value: Any):
    """What a client sends arrives as the declared type, and is sent back as it came; the schema says both."""
    adapter = Adapter(annotation)
    read = adapter.read_json(to_json(json))
    assert value == read
    assert type(value) is type(read)
    assert value == adapter.read(value)
    assert json == adapter.dump(value)
    for mode in ("validation", "serialization"):
        schema = adapter.schema(mode)
        Draft202012Validator.check_schema(schema)
        assert Draft202012Validator(schema).is_valid(json)


def test_aliases_are_the_names_on_the_wire():
    """At any depth; Python code may use either name."""
    adapter = Adapter(Model)
    model = adapter.read_json('{"SOME_NAME": 1, "NESTED": [{"SOME_NAME": 2, "DATA": "aGk="}]}')
    assert b"hi" == model.nested[0].data
    nested = {"SOME_NAME": 2, "DATA": "aGk=", "NESTED": [], "DOUBLE": 4}
    assert {"SOME_NAME": 1, "DATA": "", "NESTED": [nested], "DOUBLE": 2} == adapter.dump(model)
    assert model == adapter.read({"some_name": 1, "nested": [{"some_name": 2, "DATA": b"hi"}]})
    with pytest.raises(ValidationError):
        adapter.read_json('{"some_name": 1}')


class ByName(BaseModel):
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=False)
    some_name: int = Field(alias="SOME")
    more: ByName | None = None


def test_a_model_that_reads_names_alone_can_be_sent_by_its_schema():
    """Which has the aliases, as what is written."""
    adapter = Adapter(list[ByName])
    sent = [{"SOME": 1, "more": {"SOME": 2, "more": None}}]
    Draft202012Validator(adapter.schema("validation")).validate(sent)
    assert sent == adapter.dump(adapter.read_json(to_json(sent)))


def test_a_limit_of_decoded_text_is_not_one_of_its_encoded_form():
    """A client sends four letters for three."""
    limited = Annotated[Base64Str, Field(max_length=3)]
    for annotation in (limited, Annotated[Base64Bytes, Field(max_length=3)]):
        assert Draft202012Validator(Adapter(annotation).schema("validation")).is_valid("YWJj")
    assert "abc" == Adapter(limited).read_json('"YWJj"')
    assert 2 == Adapter(Annotated[SecretStr, Field(min_length=2)]).schema("validation")["minLength"]


class ByPath(BaseModel):
    model_config = ConfigDict(extra="forbid")
    lat: float = Field(validation_alias=AliasPath("place", 0))
    lon: float = Field(validation_alias=AliasChoices(AliasPath("place", 1), AliasPath("x")))
    name: str = Field(validation_alias=AliasPath("called"))


@pydantic_dataclass
class DataByPath:
    lat: float = Field(validation_alias=AliasPath("place", "lat"))


class DictByPath(typing_extensions.TypedDict):
    lat: Annotated[float, Field(validation_alias=AliasPath("place", 0))]


@pytest.mark.parametrize(
    "annotation, sent, by_path",
    [
        (ByPath, {"lat": 1, "x": 2, "called": "a"}, {"place": [1, 2], "called": "a"}),
        (DataByPath, {"lat": 1}, {"place": {"lat": 1}}),
        (DictByPath, {"lat": 1}, {"place": [1]}),
    ],
)
def test_a_field_with_a_path_can_also_be_sent_by_the_name_that_its_schema_shows(
    annotation: Any, sent: Any, by_path: Any
):
    """A schema cannot show a path."""
    adapter = Adapter(annotation)
    schema = adapter.schema("validation")
    assert sent.keys() == schema["properties"].keys()
    assert adapter.read_json(to_json(by_path)) == adapter.read_json(to_json(sent))
    assert adapter.dump(adapter.read_json(to_json(sent)))["lat"] == 1


class Doubled(BaseModel):
    model_config = ConfigDict(json_schema_mode_override="serialization")
    n: dt.timedelta

    @computed_field
    @property
    def twice(self) -> int:
        return 2


class Sent(Doubled):
    model_config = ConfigDict(json_schema_mode_override="validation")


@pytest.mark.parametrize("cls", [Doubled, Sent])
def test_a_schema_describes_its_own_direction(cls: type[BaseModel]):
    """Whatever a model asks for: a client cannot send what is computed, and gets it."""
    adapter = Adapter(cls)
    assert {"n"} == adapter.schema("validation")["properties"].keys()
    assert {"n", "twice"} == adapter.schema("serialization")["properties"].keys()


def test_bytes_are_base64_in_either_alphabet():
    """Inside a model too, whatever its own configuration says."""

    class Hex(BaseModel):
        model_config = ConfigDict(ser_json_bytes="hex", val_json_bytes="hex")
        data: bytes

    for text in ('{"data": "_-8="}', '{"data": "/+8="}', '{"data": "_-8"}'):
        assert b"\xff\xef" == Adapter(Hex).read_json(text).data
    assert {"data": "_-8="} == Adapter(Hex).dump(Hex(data=b"\xff\xef"))
    described = {"type": "string", "contentEncoding": "base64url"}
    assert described == Adapter(Hex).schema("validation")["properties"]["data"]
    assert described == Adapter(Annotated[bytes, Field(max_length=3)]).schema("validation")  # bytes, not letters


@dataclass
class Measure:
    value: float


class LaxModel(BaseModel):
    model_config = ConfigDict(allow_inf_nan=True)
    value: float


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "annotation, wrap",
    [
        (float, lambda number: number),
        (list[float], lambda number: [number]),
        (Measure, lambda number: {"value": number}),
        (LaxModel, lambda number: {"value": number}),
        (Record | float, lambda number: number),
    ],
)
def test_nan_and_infinity_are_no_numbers(annotation: Any, wrap: Callable[[float], Any], number: float):
    """JSON has none of them, also where a model would allow them."""
    with pytest.raises(ValidationError):
        Adapter(annotation).read_json(to_json(wrap(number), inf_nan_mode="constants"))
    with pytest.raises(ValidationError):
        Adapter(annotation).read(wrap(number))


# --- instances


class Limited(BaseModel):
    n: int = Field(ge=1)
    names: list[str] = []


def changed(model: Any, **values: Any) -> Any:
    for name, value in values.items():
        object.__setattr__(model, name, value)
    return model


@pytest.mark.parametrize(
    "annotation, value",
    [
        (Limited, Limited.model_construct(n=0)),
        (Limited, Limited.model_construct()),
        (Limited, Limited.model_construct(n="x")),
        (Limited, changed(Limited(n=1), n=0)),
        (Limited, changed(Limited(n=1), names=[5])),
        (list[Limited], [Limited(n=1), changed(Limited(n=1), n=None)]),
        (dict[str, Limited | None], {"a": Limited.model_construct(n=-1)}),
        (Checked, changed(Checked(1), a=0)),
        (Inner, Inner("yesterday")),
        (Outer, Outer(Inner(None))),
        (Ids, Ids.model_construct(["x"])),
        (Page[Limited], Page[Limited].model_construct(items=[Limited.model_construct(n=0)])),
    ],
)
def test_an_instance_that_breaks_the_contract_is_not_written(annotation: Any, value: Any):
    """Instances made without validation, or changed since, may hold anything."""
    adapter = Adapter(annotation)
    with pytest.raises(Misfit):
        adapter.dump(adapter.accept(value))


class Defaulting(BaseModel):
    a: int = None


def test_a_default_that_breaks_the_contract_is_not_written():
    """Pydantic does not look at defaults; the writer does."""
    with pytest.raises(Misfit):
        Adapter(Defaulting).dump(Adapter(Defaulting).read({}))


class Parsing(BaseModel):
    words: list[str]
    doubled: int
    raw: Json[dict[str, int]] = {}

    @field_validator("words", mode="before")
    @classmethod
    def split(cls, value: Any) -> list[str]:
        return value.split(",")

    @field_validator("doubled")
    @classmethod
    def double(cls, value: int) -> int:
        return value * 2


def test_validators_of_the_author_do_their_work_once():
    """Checking an instance again must not change what is written of it."""
    adapter = Adapter(Parsing)
    written = {"words": ["a", "b"], "doubled": 6, "raw": {"x": 1}}
    model = Parsing(words="a,b", doubled=3, raw='{"x": 1}')
    assert adapter.read(model) is model
    assert written == adapter.dump(model)
    assert written == adapter.dump(adapter.read({"words": "a,b", "doubled": 3, "raw": '{"x": 1}'}))


class Twice(Limited):
    extra: str = "more"


def test_a_subclass_is_read_as_it_is_and_written_as_declared():
    """Python code gets what it passed; a client sees what was promised."""
    twice = Twice(n=1)
    assert Adapter(Limited).read(twice) is twice
    assert {"n": 1, "names": []} == Adapter(Limited).dump(twice)


# --- serializers that do not say what they return


class Stamped(BaseModel):
    at: dt.datetime

    @field_serializer("at")
    def as_number(self, value: dt.datetime) -> int:
        return int(value.timestamp())


class Unstamped(BaseModel):
    at: dt.datetime

    @field_serializer("at")
    def as_number(self, value):
        return int(value.timestamp())


class Flattened(BaseModel):
    a: int

    @model_serializer
    def flat(self):
        return self.a


@pytest.mark.parametrize(
    "annotation, value, problem",
    [
        (Unstamped, Unstamped(at=NOON), "result.at: expected string, got 1709208000"),
        (list[Flattened], [Flattened(a=1)], "result[0]: expected object, got 1"),
        (Annotated[str, PlainSerializer(len)], "four", "result: expected string, got 4"),
        (
            Annotated[int, WrapSerializer(lambda value, handler: str(handler(value)))],
            1,
            'result: expected integer, got "1"',
        ),
    ],
)
def test_a_serializer_without_a_return_type_is_not_believed(annotation: Any, value: Any, problem: str):
    """The schema cannot know what it writes, so what it has written is checked."""
    with pytest.raises(Misfit) as caught:
        Adapter(annotation).dump(value)
    assert [problem] == caught.value.problems


def test_a_serializer_that_says_what_it_returns_is_believed():
    """Pydantic describes what it returns."""
    assert {"type": "integer"} == Adapter(Stamped).schema("serialization")["properties"]["at"]
    assert {"at": int(NOON.timestamp())} == Adapter(Stamped).dump(Stamped(at=NOON))


# --- what has no schema


class Foreign:
    pass


class Hostile:
    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        raise RuntimeError("no way.\nDetails")


class HostileJson:
    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        return core_schema.any_schema()

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: Any) -> Any:
        raise LookupError


class Unresolved(typing.TypedDict):
    a: Nowhere  # noqa: F821


class Generic_(typing.TypedDict, Generic[T]):
    value: T


@pytest.mark.parametrize(
    "annotation, reason",
    [
        (Foreign, "Unable to generate pydantic-core schema for <class '"),
        (list[Foreign], "Unable to generate pydantic-core schema for <class '"),
        (Callable[[int], int], "Cannot generate a JsonSchema for CallableSchema"),
        (type[int], "Cannot generate a JsonSchema for a class"),
        (Hostile, "no way"),
        (HostileJson, "LookupError"),
        ("Nowhere", "name 'Nowhere' is not defined"),
    ],
)
def test_what_has_no_schema_says_why_in_one_line(annotation: Any, reason: str):
    """Without advice that is not for authors of skills."""
    with pytest.raises(Unusable) as caught:
        Adapter(annotation).schema("validation")
    message = str(caught.value)
    assert message.startswith(reason)
    assert "arbitrary_types_allowed" not in message
    assert 1 == len(message.splitlines())


# --- names


def test_local_types_may_mean_each_other():
    """Their own annotations are texts, too."""

    @dataclass
    class Leaf:
        x: int

    @dataclass
    class Branch:
        leaf: Leaf
        branch: Branch | None = None

    class Dressed(typing.TypedDict):
        branch: Branch
        more: typing.NotRequired[Dressed]

    adapter = Adapter(list[Dressed], locals())
    (read,) = adapter.read_json('[{"branch": {"leaf": {"x": 1}}, "more": {"branch": {"leaf": {"x": 2}}}}]')
    assert Leaf(1) == read["branch"].leaf
    assert Leaf(2) == read["more"]["branch"].leaf
    with pytest.raises(Unusable):
        Adapter(Branch)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes typing.TypedDict from Python 3.12 on")
def test_a_generic_typed_dict_of_typing_is_refused_on_python_3_11():
    """It would lose its type; the reason names the way out."""
    Adapter(Generic_)
    with pytest.raises(Unusable, match="import a generic TypedDict from typing_extensions"):
        Adapter(Generic_[int])
    with pytest.raises(Unusable, match=r"use `typing_extensions\.TypedDict`"):
        Adapter(Unresolved)


def test_a_typed_dict_keeps_its_configuration():
    """Its own `__pydantic_config__` counts, of whichever module it comes."""

    class Closed(typing.TypedDict):
        a: int

    Closed.__pydantic_config__ = ConfigDict(extra="forbid")
    assert Adapter(Closed, {}).schema("validation")["additionalProperties"] is False
    with pytest.raises(ValidationError):
        Adapter(Closed).read_json('{"a": 1, "b": 2}')


# --- records


def test_a_record_refuses_further_keys():
    """At its root only: nested types follow their own configuration."""
    adapter = Adapter(record({"a": int, "inner": Record, "made": Inner}))
    sent = '{"a": 1, "inner": {"a": 1, "z": 1}, "made": {"when": "2024-02-29", "z": 1}}'
    assert {"a": 1, "inner": {"a": 1}, "made": Inner(DAY)} == adapter.read_json(sent)
    assert adapter.schema("validation")["additionalProperties"] is False
    with pytest.raises(ValidationError) as caught:
        adapter.read_json('{"a": 1, "b": 2, "c": 3}')
    assert {("b",), ("c",), ("inner",), ("made",)} == {error["loc"] for error in caught.value.errors()}


def test_an_open_record_types_further_keys():
    """`**kwargs: int`."""
    adapter = Adapter(record({"a": str}, extra=int))
    assert {"a": "x", "b": 2} == adapter.read_json('{"a": "x", "b": "2"}')
    with pytest.raises(ValidationError):
        adapter.read_json('{"a": "x", "b": "y"}')


@pytest.mark.parametrize("name", ["type", "schema", "default", "metadata", "expected", "config", "fields", "title"])
def test_names_that_mean_something_to_pydantic_are_only_names(name: str):
    """A parameter may be called anything."""
    Titled = dataclasses.make_dataclass(
        "Titled", [(name, LaxModel), ("more", dict[str, Any], field(default_factory=dict))]
    )
    adapter = Adapter(record({name: Titled}))
    assert [name] == list(adapter.schema("validation")["properties"])
    read = adapter.read_json(to_json({name: {name: {"value": 1}}}))
    assert 1 == getattr(read[name], name).value
    with pytest.raises(ValidationError):
        adapter.read_json(f'{{"{name}": {{"{name}": {{"value": NaN}}}}}}')


def test_values_that_look_like_schemas_are_only_values():
    """Defaults and choices are data."""

    @dataclass
    class Sneaky:
        a: dict[str, Any] = field(default_factory=lambda: {"type": "model", "schema": 1})
        b: Any = ("type", "generator")

    class Holder(BaseModel):
        shape: dict[str, Any] = {"type": "typed-dict", "fields": {}}
        items: Annotated[dict[str, Any], Field(json_schema_extra={"type": "object"})] = {"type": "generator"}

    assert {"a": {"type": "model", "schema": 1}, "b": ["type", "generator"]} == Adapter(Sneaky).dump(Sneaky())
    assert {"shape": {"type": "typed-dict", "fields": {}}, "items": {"type": "generator"}} == Adapter(Holder).dump(
        Adapter(Holder).read({})
    )


# --- defaults and texts


class Named(BaseModel):
    """Is written in another way than it is sent."""

    n: int = Field(validation_alias=AliasChoices(AliasPath("x", 0), "SENT"), serialization_alias="WRITTEN")
    count: int = Field(3, exclude=True)
    more: set[str] = {"b", "a"}

    @field_serializer("n")
    def as_text(self, value: int) -> str:
        return f"#{value}"


@pydantic_dataclass
class NamedData:
    n: int = Field(validation_alias="SENT")
    made: int = field(init=False, default=2)


class Lines(RootModel[list[Named]]): ...


class Open(BaseModel, extra="allow"):
    a: int


class Corner(enum.Enum):
    LEFT = (0, 1)


@pytest.mark.parametrize(
    "default, shown",
    [
        (1, 1),
        (None, None),
        (Color.RED, "red"),
        (DAY, "2024-02-29"),
        (b"\xff\xef", "_-8="),
        ({"b", "a", "c"}, ["a", "b", "c"]),
        (frozenset({2, 1}), [1, 2]),
        (Inner(DAY), {"when": "2024-02-29"}),
        (Model(SOME_NAME=1), {"SOME_NAME": 1, "DATA": "", "NESTED": [], "DOUBLE": 2}),
        ((1, Path("/a")), [1, "/a"]),
        ({"x": [{"b", "a", "c"}]}, {"x": [["a", "b", "c"]]}),
        (Named(SENT=1), {"SENT": 1, "count": 3, "more": ["a", "b"]}),
        (NamedData(1), {"SENT": 1}),
        (Lines([Named(SENT=2)]), [{"SENT": 2, "count": 3, "more": ["a", "b"]}]),
        (Open.model_validate({"a": 1, "b": {2, 1}}), {"a": 1, "b": [1, 2]}),
        ({Corner.LEFT: Corner.LEFT, 1: 2}, {"[0, 1]": [0, 1], "1": 2}),
    ],
)
def test_defaults_are_shown_as_json(default: Any, shown: Any):
    """The same in every process: sets are sorted."""
    assert shown == as_default(default)


class Unwritable:
    def __iter__(self) -> Any:
        raise RuntimeError("never")


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize("default", [math.nan, [math.inf], object(), Unwritable(), CYCLE, Foreign, SecretStr("x")])
def test_a_default_that_is_no_json_is_told(default: Any):
    """By one exception, whatever the value does."""
    with pytest.raises(PydanticSerializationError):
        as_default(default)


def test_defaults_inside_types_are_shown_alike():
    """Those of fields; what is no JSON is left out."""

    @dataclass
    class Defaults:
        names: frozenset[str] = frozenset({"b", "a"})
        data: bytes = b"hi"
        ratio: float = math.inf
        color: Color = Color.RED

    properties = Adapter(Defaults).schema("validation")["properties"]
    assert (["a", "b"], "aGk=", "red") == tuple(properties[name]["default"] for name in ("names", "data", "color"))
    assert "default" not in properties["ratio"]


def test_a_default_in_a_schema_of_results_is_shown_as_it_is_written():
    """By the names of results, with the fields that arguments lack."""

    class Holder(BaseModel):
        named: Named = Named(SENT=1)
        data: NamedData = NamedData(1)

    sent, got = (Adapter(Holder).schema(mode)["properties"] for mode in ("validation", "serialization"))
    assert ({"SENT": 1, "count": 3, "more": ["a", "b"]}, {"SENT": 1}) == tuple(
        each["default"] for each in sent.values()
    )
    assert {"WRITTEN": 1, "count": 3, "more": ["a", "b"]} == got["named"]["default"]
    assert {"n": 1, "made": 2} == got["data"]["default"]


def test_text_is_json_that_can_be_sent():
    """As it is, without escapes; what no JSON or UTF-8 can hold is refused here."""
    assert '{"a": "é"}' == to_text({"a": "é"})
    for value in (math.nan, [math.inf], "\ud800", {"\ud800": 1}):
        with pytest.raises(ValueError):
            to_text(value)


def test_constraints_of_annotations_count():
    """Those of `Field` and those of a function."""
    positive = Annotated[int, Field(gt=0), AfterValidator(lambda value: value + 1)]
    assert 2 == Adapter(positive).read_json("1")
    assert 1 == Adapter(positive).dump(1)
    with pytest.raises(ValidationError):
        Adapter(positive).read_json("0")


@pytest.mark.parametrize(
    ("annotation", "limits"),
    [
        (Annotated[int | float, Field(ge=1, lt=2.5, description="x")], {"minimum": 1, "exclusiveMaximum": 2.5}),
        (Annotated[int | str, Field(gt=1, multiple_of=2)], {"exclusiveMinimum": 1, "multipleOf": 2}),
        (Annotated[Level, Field(le=1)], {"maximum": 1}),
        (Annotated[int | float, Field(le=math.inf, multiple_of=0.1)], {}),
        (Annotated[decimal.Decimal | int, Field(max_digits=3)], {}),
        (Annotated[int, AfterValidator(lambda value: value * 2), Field(ge=3)], {}),
        (Annotated[int | float, Field(ge=1), PlainSerializer(lambda value: -value, return_type=int)], {}),
    ],
)
def test_the_limits_of_a_whole_union_are_published(annotation: Any, limits: Any):
    """Under the names of JSON Schema, where pydantic writes `ge`; not if a function converts what they are about."""
    for mode in ("validation", "serialization"):
        schema = Adapter(annotation).schema(mode)
        assert limits == {
            name: schema[name] for name in schema.keys() - {"$defs", "$ref", "anyOf", "description", "type"}
        }


class Step(NamedTuple):
    at: float
    to: Annotated[float, Field(description="where it ends")] = 1.0


def test_the_items_of_a_named_tuple_have_names():
    """It is written as an array, whose titles are dropped."""
    for mode in ("validation", "serialization"):
        at, to = Adapter(Step).schema(mode)["prefixItems"]
        assert ("at", "to: where it ends") == (at["description"], to["description"])
