"""Odd annotations, with jsonschema as the oracle: what a schema says is what is read, and what is written is what it says."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import pathlib
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypeVar

import pytest
from jsonschema import Draft202012Validator
from pydantic import (
    AliasChoices,
    AwareDatetime,
    Base64Str,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    JsonValue,
    NaiveDatetime,
    RootModel,
    Secret,
    ValidationError,
    WithJsonSchema,
    computed_field,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import NotRequired, ReadOnly, Required, TypeAliasType, TypedDict

from prowess.contracts.contract import Contract, OutputShape
from prowess.profiles.profile import BUILT_IN
from prowess.schemas.adapters import Adapter, Misfit
from prowess.schemas.walk import visit

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"
    CRIMSON = "red"  # noqa: PIE796 - an alias


class Perm(enum.IntFlag):
    R = 1
    W = 2


class Half(enum.Enum):
    ONE = 0.5
    TWO = dt.date(2026, 1, 31)
    THREE = None


class Partial(TypedDict, total=False):
    a: Required[int]
    b: ReadOnly[NotRequired[list[int]]]


class Box(TypedDict, Generic[T]):
    item: T


class Row(NamedTuple):
    x: int
    y: str = "d"


@dataclasses.dataclass
class Chain(Generic[T]):
    item: T
    rest: list[Chain[T]] = dataclasses.field(default_factory=list)


@pydantic_dataclass
class Aliased:
    x: int = Field(alias="ex")


class Named(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    x: int = Field(validation_alias=AliasChoices("a", "b"), serialization_alias="out")


class Computed(BaseModel):
    x: int
    hidden: int | SkipJsonSchema[None] = None
    unseen: SkipJsonSchema[int] = 3
    none: Annotated[int, WithJsonSchema(None)] = 4

    @computed_field(alias="tri")
    @property
    def triple(self) -> dt.datetime:
        return dt.datetime(2026, 1, 31)


class Numbers(RootModel[dict[str, int]]):
    pass


class Cat(BaseModel):
    kind: Literal["cat"]
    born: dt.datetime | None = None


class Dog(BaseModel):
    kind: Literal["dog", "wolf"]
    walks: list[dt.timedelta] = []


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
UserId = NewType("UserId", int)
Nested = TypeAliasType("Nested", "dict[str, Nested] | int")
Pair = TypeAliasType("Pair", tuple[T, bool], type_params=(T,))
NAIVE, DAY = dt.datetime(2026, 1, 31, 12), dt.timedelta(days=1)

ANNOTATIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "datetime": (dt.datetime, (NAIVE, NAIVE.replace(tzinfo=dt.timezone.utc))),
    "aware": (AwareDatetime, (NAIVE.replace(tzinfo=dt.timezone.utc),)),
    "naive": (NaiveDatetime, (NAIVE,)),
    "time": (dt.time, (dt.time(1), dt.time(1, 2, 3, 4, dt.timezone.utc))),
    "timedelta": (dt.timedelta, (DAY, -DAY, dt.timedelta(seconds=1.5))),
    "decimal": (decimal.Decimal, (decimal.Decimal("1E+5"),)),
    "address": (ipaddress.IPv6Address, (ipaddress.IPv6Address("fe80::1%eth0"),)),
    "pattern": (re.Pattern[str], (re.compile("(?P<a>x)"),)),
    "matching": (Annotated[str, Field(pattern="(?i)^ab")], ("AB",)),
    "tenths": (Annotated[float, Field(multiple_of=0.1)], (0.3, 0.7)),
    "path": (pathlib.Path, (pathlib.Path("a/b"),)),
    "uuid": (uuid.UUID, (uuid.UUID(int=1),)),
    "encoded": (Base64Str, ("abc", "abcd")),
    "json": (Json[list[int]], ([1],)),
    "any json": (Json, ({"a": 1},)),
    "value": (JsonValue, ({"a": [None]},)),
    "flag": (Perm, (Perm.R | Perm.W, Perm(0), Perm(8))),
    "flags": (Mapping[Perm, int], ({Perm.R | Perm.W: 1},)),
    "member": (Literal[Color.RED, 1, None], (Color.RED, 1, None)),
    "half": (list[Half], (list(Half),)),
    "color": (dict[Color, int], ({Color.RED: 1},)),
    "keys": (dict[Annotated[str, Field(pattern="^a")], int], ({"ab": 1},)),
    "long keys": (dict[Annotated[str, Field(pattern="^a", max_length=3)], Any], ({"ab": 1},)),
    "number keys": (dict[int, dt.datetime], ({1: NAIVE},)),
    "yes or no": (dict[bool, int], ({True: 1},)),
    "deque": (collections.deque[UserId], (collections.deque([UserId(1)]),)),
    "frozen": (frozenset[tuple[int, str]], (frozenset([(1, "a")]),)),
    "sequence": (Sequence[Any], ([1], (1, 2))),
    "partial": (Partial, ({"a": 1}, {"a": 1, "b": []})),
    "generic dict": (Box[dt.date], ({"item": dt.date(2026, 1, 31)},)),
    "row": (Row, (Row(1),)),
    "chain": (Chain[int], (Chain(1, [Chain(2)]),)),
    "aliased": (Aliased, (Aliased(ex=1),)),
    "named": (Named, (Named(a=1),)),
    "computed": (Computed, (Computed(x=1),)),
    "root": (Numbers, (Numbers({"a": 1}),)),
    "pet": (list[Pet], ([Cat(kind="cat", born=NAIVE), Dog(kind="wolf", walks=[-DAY])],)),
    "own words": (
        Annotated[dict[str, Any], WithJsonSchema({"type": "object", "patternProperties": {"(?i)^a": {}}})],
        ({"A": 1},),
    ),
    "hidden none": (Optional[int] | SkipJsonSchema[None], (1, None)),
    "hidden": (int | SkipJsonSchema[None], (1, None)),
    "nested": (Nested, ({"a": {"b": 1}},)),
    "pair": (Pair[int], ((1, True),)),
}
_DISPUTED = {"date-time", "duration", "email", "ipv6", "regex", "time"}
_PROBES = (
    *(
        None,
        True,
        0,
        1,
        -1,
        8,
        1.5,
        0.3,
        "",
        "a",
        "ab",
        "AB",
        "red",
        "[1]",
        "2026-01-31",
        "2026-01-31T12:00:00Z",
        "P1D",
    ),
    *([], [1], ["a"], [1, "a"], [1, 2, 3], [[1, "a"]], [None], [0.5]),
    *(
        {},
        {"a": 1},
        {"x": 1},
        {"b": 1},
        {"ab": 1},
        {"ab": "x"},
        {"abcd": 1},
        {"a": 1, "b": [2]},
        {"a": "x"},
        {"a": {"b": 1}},
    ),
    *(
        {"1": 1},
        {"red": 1},
        {"item": 1},
        {"item": "2026-01-31"},
        {"item": 1, "rest": [{"item": 2}]},
        {"ex": 1},
        {"kind": "cat"},
    ),
)
_LOOSE = {
    "address",
    "decimal",
    "encoded",
    "json",
    "any json",
    "matching",
    "pattern",
    "path",
    "uuid",
    "time",
    "timedelta",
}
"""Those whose schema has a `type: string` that nothing in JSON Schema can narrow for all validators."""
_KEYS = {"flags", "number keys", "yes or no"}
"""Those whose keys are any text for pydantic's schema."""


pytestmark = pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier")


@pytest.mark.parametrize(
    "name", [name for name in ANNOTATIONS if name not in _LOOSE | _KEYS | {"datetime", "aware", "tenths"}]
)
def test_what_a_schema_allows_is_read(name: str) -> None:
    adapter = Adapter(ANNOTATIONS[name][0])
    schema = Draft202012Validator(adapter.schema("validation"))
    for probe in _PROBES:
        refusal = ""
        try:
            adapter.read(probe)
        except ValidationError as error:
            refusal = str(error)
        if schema.is_valid(probe) and not (name == "naive" and isinstance(probe, str)):
            assert not refusal, probe


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_what_is_written_meets_every_schema_that_is_shown(name: str) -> None:
    """For each profile, boxed or not. No schema of a result has a rule about which validators disagree."""
    annotation, values = ANNOTATIONS[name]
    adapter = Adapter(annotation)
    schema = adapter.schema("serialization")
    contract = Contract("s.c", "s_c", "s", "c", "", {"type": "object"}, OutputShape(schema))
    for value in values:
        written = adapter.dump(adapter.accept(value))
        assert [] == [error.message for error in Draft202012Validator(schema).iter_errors(written)]
        for profile in BUILT_IN.values():
            for boxed in (True, False):
                shown = profile.output_schema(contract, boxed=boxed)
                if shown is not None:
                    sent = profile.value(contract, written, boxed=boxed)
                    assert [] == [error.message for error in Draft202012Validator(shown).iter_errors(sent)], (
                        profile.name
                    )
                    assert _agreed(shown), profile.name


def _agreed(schema: Any) -> bool:
    return all(
        node.get("format") not in _DISPUTED and not {"pattern", "patternProperties"} & node.keys()
        for _, node in visit(schema)
    )


def test_a_text_that_is_decoded_when_it_is_sent_is_returned_as_it_is() -> None:
    """Also one that looks encoded."""
    adapter = Adapter(Base64Str)
    assert "YWJjZA==" == adapter.dump(adapter.accept("abcd"))
    assert "abcd" == adapter.read("YWJjZA==")


def test_a_text_is_no_sequence_of_anything() -> None:
    adapter = Adapter(Sequence[Any])
    with pytest.raises(Misfit, match="expected array, got"):
        adapter.dump(adapter.accept("ab"))


def test_a_secret_number_is_not_written_as_a_number() -> None:
    """What stands in for it is a text, which the schema does not allow: the command is told, and not the client."""
    adapter = Adapter(Secret[int])
    with pytest.raises(Misfit, match="expected integer"):
        adapter.dump(adapter.accept(Secret[int](3)))


def test_a_pattern_of_keys_closes_a_map_and_is_said_in_words() -> None:
    """Without `additionalProperties` it would allow all other keys."""
    schema = Adapter(dict[Annotated[str, Field(pattern="^a")], int]).schema("validation")
    assert schema == {"type": "object", "propertyNames": {"pattern": "^a"}, "additionalProperties": {"type": "integer"}}
    contract = Contract("s.c", "s_c", "s", "c", "", {"type": "object", "properties": {"x": schema}})
    assert "keys: pattern ^a" == BUILT_IN["portable"].input_schema(contract)["properties"]["x"]["description"]


def test_an_alias_in_an_enum_of_keys_is_listed_once() -> None:
    schema = Adapter(dict[Color, int]).schema("validation")
    assert ["red", "green"] == schema["$defs"]["Color"]["enum"]
