"""No entry of a result is lost: two keys that JSON writes alike are a clear failure of that call."""

from __future__ import annotations

import collections
import dataclasses
import enum
import types
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Any, Generic, TypedDict, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field, model_serializer
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypeAliasType

from prowess import Outcome, Runtime, skill_command
from prowess.errors import LoadError

T = TypeVar("T")


Steps = TypeAliasType("Steps", "dict[int, Steps]")


class Size(enum.Enum):
    SMALL = "s"


class Shape(enum.Enum):
    SQUARE = "s"


class Holder(BaseModel):
    held: Any = None


class Typed(BaseModel):
    held: dict[int | str, str]


@dataclasses.dataclass
class Record:
    held: dict[Any, Any]
    count: int = 0


@dataclasses.dataclass(slots=True)
class Slotted:
    held: Any


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    own: int = Field(default=1, validation_alias="in", serialization_alias="out")


class Same(BaseModel):
    one: int = Field(default=1, serialization_alias="x")
    other: int = Field(default=2, serialization_alias="x")


class Raw(BaseModel):
    held: bytes = b"\xff"


class Foreign(Mapping[Any, str]):
    """A mapping that no library knows."""

    def __init__(self, held: dict[Any, str]) -> None:
        self._held = held

    def __getitem__(self, key: Any) -> str:
        return self._held[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


class Careful(BaseModel):
    held: dict[Any, str]

    @model_serializer
    def pairs(self) -> list[Any]:
        return list(self.held.items())


BOTH: dict[Any, str] = {1: "a", "1": "b"}
CIRCLE: list[Any] = [Holder(held=BOTH)]
CIRCLE.append(CIRCLE)


async def call(value: Any, returns: Any = None) -> Outcome:
    """The outcome of a command that returns a value."""
    async with Runtime.open("nowhere") as runtime:

        def run():
            return value

        if returns is not None:
            run.__annotations__["return"] = returns
        command: Any = skill_command()(run)
        return await runtime.entry_of(command.__prowess__).call({})


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("result", "1", BOTH),
        ("result", "true", {True: 1, "true": 2}),
        ("result", "None", {None: 1, "None": 2}),
        ("result", "1.5", {1.5: 1, "1.5": 2}),
        ("result", "nan", {float("nan"): 1, float("nan"): 2}),
        ("result", "s", {Size.SMALL: 1, Shape.SQUARE: 2}),
        ("result", "2026-01-31", {date(2026, 1, 31): 1, "2026-01-31": 2}),
        ("result[0].x[1]", "1", [{"x": ("y", BOTH)}]),
        ("result", "1", types.MappingProxyType(BOTH)),
        ("result.held", "1", Record(BOTH)),
        ("result[0].held[0]", "1", [Slotted([BOTH])]),
        ("result.held.held", "1", Holder(held=Typed(held=BOTH))),
        ("result.held.more", "1", Holder(held=Open(more=BOTH))),  # pyright: ignore[reportCallIssue]
        ("result", "out", Open(out=2)),  # pyright: ignore[reportCallIssue]
        ("result[0]", "x", [Same()]),
        ("result", "1", {1: Raw(), "1": 2}),
    ],
)
async def test_two_keys_that_json_writes_alike_lose_no_entry(place: str, name: str, value: Any):
    """JSON data would keep only the last of them."""
    outcome = await call(value)
    assert outcome.kind == "output"
    assert f'{place}: two entries are both written under the name "{name}"' in outcome.text
    assert "list of pairs" in outcome.text


@pytest.mark.parametrize(
    ("returns", "value"),
    [
        (dict, BOTH),
        (Any, [BOTH]),
        (object, Holder(held=BOTH)),
        (dict[int | str, str], BOTH),
        (Mapping[int | str, str], BOTH),
        (collections.Counter[int | str], collections.Counter({1: 1, "1": 2})),
        (dict[str, Any], {"x": [BOTH]}),
        (dict[str, Any], {"x": types.MappingProxyType(BOTH)}),
        (dict[Size | Shape, int], {Size.SMALL: 1, Shape.SQUARE: 2}),
        (list[Typed], [Typed(held=BOTH)]),
        (list[dict], [types.MappingProxyType(BOTH)]),
        (list[dict], [collections.ChainMap({1: "a"}, {"1": "b"})]),
        (list[dict[Any, str]], [collections.UserDict(BOTH)]),
        (list[dict], [Foreign(BOTH)]),
        (Typed, {"held": BOTH}),
        (Record, Record(BOTH)),
        (Open, Open(out=2)),  # pyright: ignore[reportCallIssue]
        (
            dict[Annotated[int | str, PlainSerializer(lambda key: str(key)[0], return_type=str)], int],
            {10: 1, 11: 2, "x": 3},
        ),
    ],
)
async def test_a_declared_type_loses_no_entry_either(returns: Any, value: Any):
    """The keys are compared as the declared type writes them."""
    outcome = await call(value, returns)
    assert (outcome.kind, "so one of them would be lost" in outcome.text) == ("output", True)


@pytest.mark.parametrize(
    ("returns", "value"),
    [
        (dict[int, str], BOTH),
        (dict[int, str], {"1": "a", "01": "b"}),
        (dict[float, int], {1: 1, "1": 2}),
        (Steps, {1: {2: {}, "2": {}}}),
        (list[int] | dict[int, str], {"1": "a", "+1": "b"}),
    ],
)
async def test_keys_that_the_declared_type_reads_alike_are_refused(returns: Any, value: Any):
    """Reading them as integers would already lose an entry."""
    outcome = await call(value, returns)
    assert (outcome.kind, "two of its keys are the same for its type" in outcome.text) == ("output", True)


@pytest.mark.parametrize(
    ("data", "returns", "value"),
    [
        ({"1": "a", "2": "b"}, None, {1: "a", "2": "b"}),
        ({"1": "a", "x": "b"}, dict[int | str, str], {1: "a", "x": "b"}),
        ({"held": {"1": "a", "x": "b"}, "count": 0}, Record, Record({1: "a", "x": "b"})),
        ({"own": 1, "more": {"1": 2}}, dict, {"own": 1, "more": {1: 2}}),
        ({"out": 1, "more": {"1": 2}}, None, Open(more={1: 2})),  # pyright: ignore[reportCallIssue]
        ([[1, "a"], ["1", "b"]], None, Careful(held=BOTH)),
        ([[1, "a"], ["1", "b"]], Careful, Careful(held=BOTH)),
        ({"x": ["a"]}, dict[str, list[str]], {"x": {"a": 1}.keys()}),
        ([{"1": "a"}], list[dict], [types.MappingProxyType({1: "a"})]),
        ({"1": "a", "2": [1, 2]}, None, {1: "a", "2": iter([1, 2])}),
    ],
)
async def test_keys_that_differ_as_text_are_sent(data: Any, returns: Any, value: Any):
    """Keys other than strings are ordinary, and a serializer of the author may know what to do with all of them."""
    outcome = await call(value, returns)
    assert (outcome.kind, outcome.value) == ("ok", data)


async def test_a_result_that_text_cannot_hold_keeps_its_own_failure():
    """The look for lost entries says nothing about values that cannot be written at all."""
    outcome = await call({1: object(), "1": 2})
    assert "cannot be written as JSON" in outcome.text
    outcome = await call(CIRCLE)
    assert "circular" in outcome.text
    outcome = await call({1: "\ud800", "x": 2})
    assert "lone surrogate" in outcome.text


class Doubled(BaseModel):
    one: int = 1

    @computed_field(alias="one")
    @property
    def other(self) -> int:
        return 2


class DoubledKeys(TypedDict):
    one: Annotated[int, Field(serialization_alias="x")]
    x: int


@pydantic_dataclass
class DoubledFields:
    one: int = Field(serialization_alias="x")
    x: int = 2


class Nested(BaseModel, Generic[T]):
    held: list[T]


@pytest.mark.parametrize("returns", [Same, Doubled, DoubledKeys, DoubledFields, Nested[Same]])
async def test_a_type_that_writes_two_fields_under_one_name_is_refused_at_load(returns: Any):
    """One of the fields would be missing in every result."""
    with pytest.raises(LoadError, match=r"the fields '.*' and '.*' are both written as 'x|one'; change an alias"):
        await call(None, returns)


async def test_two_fields_may_be_read_from_one_name():
    """A client that sends one value fills both."""

    class Filled(BaseModel):
        one: int = Field(alias="x")
        other: int = Field(alias="x")

    async with Runtime.open("nowhere") as runtime:

        @skill_command()
        def run(it: Filled) -> int:
            return it.one + it.other

        command: Any = run
        outcome = await runtime.entry_of(command.__prowess__).call({"it": {"x": 2}})
    assert outcome.value == 4
