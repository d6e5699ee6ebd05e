"""Returned instances: an instance of the declared class is believed and written, and what is written is checked."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import pytest
import typing_extensions
from jsonschema import Draft202012Validator
from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    RootModel,
    SecretStr,
    SerializeAsAny,
    WrapValidator,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.json_schema import WithJsonSchema
from pydantic_core import core_schema

from prowess import Outcome, Runtime, skill_command
from prowess.schemas.adapters import Adapter

T = TypeVar("T")


async def returned(value: Any, annotation: Any) -> Outcome:
    """The outcome of a command that returns a value, declared as an annotation."""
    async with Runtime.open("nowhere") as runtime:

        async def run():
            return value

        run.__annotations__["return"] = annotation
        return await runtime.entry_of(skill_command(run).__prowess__).call({})


async def written(value: Any, annotation: Any) -> Any:
    """What is written of a value. It meets the schema that is published for it."""
    outcome = await returned(value, annotation)
    assert "ok" == outcome.kind, outcome.text
    assert outcome.contract is not None
    assert outcome.contract.output.schema is not None
    Draft202012Validator(outcome.contract.output.schema).validate(outcome.result.value)
    return outcome.result.value


class Taxed(BaseModel):
    """Its validator changes the instance itself."""

    total: float

    @model_validator(mode="after")
    def add_tax(self) -> Taxed:
        self.total = round(self.total * 1.2, 2)
        return self


class Wrapped(BaseModel):
    total: float

    @model_validator(mode="wrap")
    @classmethod
    def double(cls, value: Any, handler: Callable[[Any], Wrapped]) -> Wrapped:
        made = handler(value)
        made.total *= 2
        return made


class FromText(BaseModel):
    """Its validator only knows raw input."""

    words: list[str]

    @model_validator(mode="before")
    @classmethod
    def split(cls, value: str) -> Any:
        return {"words": value.split()}


class FromParts(BaseModel):
    day: dt.date

    @field_validator("day", mode="before")
    @classmethod
    def join(cls, value: list[int]) -> dt.date:
        return dt.date(*value)


@pydantic_dataclass
class TaxedData:
    total: float

    @model_validator(mode="after")
    def add_tax(self) -> TaxedData:
        self.total *= 2
        return self


class Always(BaseModel):
    """Its author asks for instances to be validated again, which is for input."""

    model_config = ConfigDict(revalidate_instances="always", validate_assignment=True)
    total: int

    @field_validator("total")
    @classmethod
    def double(cls, value: int) -> int:
        return value * 2


class Taxes(RootModel[list[Taxed]]):
    @model_validator(mode="after")
    def reverse(self) -> Taxes:
        self.root.reverse()
        return self


class Box(BaseModel, Generic[T]):
    item: T

    @model_validator(mode="after")
    def only_once(self) -> Box[T]:
        assert not self.__pydantic_private__, "validated twice"
        return self


class Holder(BaseModel):
    model_config = ConfigDict(extra="allow")
    taxed: Taxed
    _seen: int = PrivateAttr(default=7)
    kind: ClassVar[str] = "holder"


@dataclasses.dataclass
class DataHolder:
    taxed: Taxed
    again: list[Taxed]


class TupleHolder(NamedTuple):
    taxed: Taxed
    doubled: Annotated[int, AfterValidator(lambda value: value * 2)] = 1


class DictHolder(typing_extensions.TypedDict):
    taxed: Taxed


class Cat(Taxed):
    kind: Literal["cat"] = "cat"


class Dog(Taxed):
    kind: Literal["dog"] = "dog"


def taxed() -> Taxed:
    return Taxed(total=100)


TAX = {"total": 120.0}

INSTANCES: list[tuple[Any, Callable[[], Any], Any]] = [
    (Taxed, taxed, TAX),
    (Taxed | None, taxed, TAX),
    (Taxed | int, taxed, TAX),
    (list[Taxed], lambda: [taxed(), taxed()], [TAX, TAX]),
    (dict[str, Taxed], lambda: {"a": taxed()}, {"a": TAX}),
    (tuple[Taxed, ...], lambda: (taxed(),), [TAX]),
    (tuple[int, Taxed], lambda: (1, taxed()), [1, TAX]),
    (Wrapped, lambda: Wrapped(total=1), {"total": 2}),
    (FromText, lambda: FromText.model_validate("a b"), {"words": ["a", "b"]}),
    (list[FromText], lambda: [FromText.model_validate("a b")], [{"words": ["a", "b"]}]),
    (FromParts, lambda: FromParts.model_validate({"day": [2024, 2, 29]}), {"day": "2024-02-29"}),
    (TaxedData, lambda: TaxedData(1), {"total": 2}),
    (Always, lambda: Always(total=1), {"total": 2}),
    (Taxes, lambda: Taxes([{"total": 100}, {"total": 1}]), [{"total": 1.2}, TAX]),
    (Box[int], lambda: Box[int](item=1), {"item": 1}),
    (Box[Taxed], lambda: Box[Taxed](item={"total": 100}), {"item": TAX}),
    (Holder, lambda: Holder(taxed={"total": 100}, more=[1]), {"taxed": TAX, "more": [1]}),
    (DataHolder, lambda: DataHolder(taxed(), [taxed()]), {"taxed": TAX, "again": [TAX]}),
    (TupleHolder, lambda: TupleHolder(taxed()), [TAX, 1]),
    (DictHolder, lambda: {"taxed": taxed()}, {"taxed": TAX}),
    (Cat | Dog, lambda: Dog(total=100), {"kind": "dog", **TAX}),
    (Annotated[Cat | Dog, Field(discriminator="kind")], lambda: Dog(total=100), {"kind": "dog", **TAX}),
    (list[Annotated[Cat | Dog, Field(discriminator="kind")]], lambda: [Dog(total=100)], [{"kind": "dog", **TAX}]),
    (Taxed, lambda: Cat(total=100), TAX),
    (Annotated[Taxed, AfterValidator(lambda value: value.add_tax())], taxed, TAX),
    (Annotated[Taxed, BeforeValidator(json.loads)], taxed, TAX),
    (
        list[Annotated[Taxed, WrapValidator(lambda value, handler: handler(json.loads(value)))]],
        lambda: [taxed()],
        [TAX],
    ),
    (Annotated[Cat | Dog, BeforeValidator(json.loads)], lambda: Cat(total=100), {"kind": "cat", **TAX}),
]


@pytest.mark.parametrize("annotation, make, expected", INSTANCES)
async def test_an_instance_is_written_as_it_is_and_never_changed(annotation: Any, make: Any, expected: Any):
    """However often it is returned: its validators have done their work when it was made."""
    kept = make()
    before = repr(kept)
    for _ in range(2):
        assert expected == await written(kept, annotation)
    assert before == repr(kept)


async def test_raw_data_of_a_declared_class_is_read_once():
    """A dict, or whatever its validators take, goes through all of them."""
    assert TAX == await written({"total": 100}, Taxed)
    assert [TAX, TAX] == await written([{"total": 100}, taxed()], list[Taxed])
    assert {"words": ["a", "b"]} == await written("a b", FromText)
    assert 4 == await written(2, Annotated[int, AfterValidator(lambda value: value * 2)])
    assert 4 == await written("x", Annotated[int, PlainValidator(lambda _value: 4)])
    outcome = await returned({"total": "much"}, Taxed)
    assert "output" == outcome.kind
    assert 'result.total: expected a number, got "much"' in outcome.text


async def test_validators_of_a_scalar_run_once():
    """Also where the value is refused."""
    seen: list[object] = []

    def note(value: int) -> int:
        seen.append(value)
        if value > 2:
            raise ValueError("too much")
        return value

    assert 2 == await written(2, Annotated[int, AfterValidator(note)])
    assert "output" == (await returned(3, Annotated[int, AfterValidator(note)])).kind
    assert [2, 3] == seen


class Said:
    """Metadata with a JSON Schema of its own."""

    def __get_pydantic_json_schema__(self, _core: Any, _handler: Any) -> Any:
        return {"type": "number"}


def day_of(text: str) -> dt.date:
    return dt.datetime.strptime(text, "%d.%m.%Y").date()


def split(text: str, handler: Any) -> Any:
    return handler(text.split(","))


DAY: Any = Annotated[dt.date, BeforeValidator(day_of)]
PLAIN_DAY: Any = Annotated[dt.date, PlainValidator(day_of, json_schema_input_type=str)]
WORDS: Any = Annotated[list[str], WrapValidator(split)]


class Dated(BaseModel):
    day: DAY
    until: PLAIN_DAY
    where: Annotated[Path, BeforeValidator(lambda text: text.strip())]


class Noted(typing_extensions.TypedDict):
    day: DAY
    words: WORDS


async def test_a_validator_for_raw_input_leaves_other_values_alone():
    """What a command makes of its arguments has their type, and no longer the form in which they are sent."""
    leap, made = dt.date(2024, 2, 29), {"day": "2024-02-29", "until": "2024-02-29", "where": "a"}
    for annotation in (DAY, PLAIN_DAY):
        assert "2024-02-29" == await written(leap, annotation)
        assert "2024-02-29" == await written("29.02.2024", annotation)
        assert "output" == (await returned([leap], annotation)).kind
    assert ["a"] == await written(["a"], WORDS)
    assert ["a", "b"] == await written("a,b", WORDS)
    assert {"day": "2024-02-29", "words": ["a"]} == await written({"day": leap, "words": ["a"]}, Noted)
    assert made == await written(Dated(day="29.02.2024", until="29.02.2024", where=" a"), Dated)
    assert made == await written({"day": leap, "until": leap, "where": Path("a")}, Dated)


async def test_python_code_may_pass_what_a_validator_for_raw_input_makes(tmp_path: Path):
    """As it may pass any other instance."""

    @skill_command
    async def show(day: DAY, until: PLAIN_DAY, words: WORDS) -> str:
        return f"{day} {until} {words}"

    async with Runtime.open(tmp_path):
        payload = await show(dt.date(2024, 2, 29), dt.date(2024, 3, 1), ["a"])
    assert "2024-02-29 2024-03-01 ['a']" == payload["content"][0]["text"]


@pytest.mark.parametrize("how", [PlainValidator(lambda value: value), PlainValidator(lambda value, _info: value)])
@pytest.mark.parametrize(
    "annotation, value, shown",
    [
        (dt.timedelta, dt.timedelta(1), "P1D"),
        (set[int], {1}, [1]),
        (decimal.Decimal, decimal.Decimal("1.50"), "1.50"),
        (Taxed, taxed(), TAX),
        (int, 1, 1),
    ],
)
async def test_a_type_behind_a_plain_validator_is_written_like_any_other(
    annotation: Any, value: Any, shown: Any, how: Any
):
    """Pydantic writes it, and then what was written as if it had the type once more."""
    assert shown == await written(value, Annotated[annotation, how])
    assert [shown] == await written([value], list[Annotated[annotation, how]])


@pytest.mark.parametrize(
    "said", [WithJsonSchema({"type": "number"}), Field(json_schema_extra={"type": "number"}), Said()]
)
async def test_a_schema_of_the_author_is_not_believed(said: Any):
    """A client would refuse a result that breaks it."""
    outcome = await returned([decimal.Decimal("1.5")], list[Annotated[decimal.Decimal, said]])
    assert "output" == outcome.kind
    assert 'result[0]: expected number, got "1.5"' in outcome.text
    outcome = await returned("x", Annotated[str, said])
    assert ("output", True) == (outcome.kind, 'result: expected number, got "x"' in outcome.text)
    exact = PlainSerializer(float, return_type=float)
    assert [1.5] == await written([decimal.Decimal("1.5")], list[Annotated[decimal.Decimal, exact, said]])


class Popping(BaseModel):
    a: int
    rest: list[int]

    @model_validator(mode="before")
    @classmethod
    def pop(cls, value: dict[str, Any]) -> dict[str, Any]:
        value["rest"].append(value.pop("b"))
        return value


async def test_raw_data_that_the_author_keeps_is_not_changed_by_validators():
    """They may change what they are given, which is a copy."""
    kept = {"a": 1, "b": 2, "rest": []}
    for _ in range(2):
        assert {"a": 1, "rest": [2]} == await written(kept, Popping)
        assert [{"a": 1, "rest": [2]}] == await written((kept,), list[Popping])
    assert {"a": 1, "b": 2, "rest": []} == kept
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    assert "output" == (await returned(cyclic, list[Popping])).kind


# --- dataclasses


@dataclasses.dataclass
class Priced:
    net: float
    rate: dataclasses.InitVar[float]
    note: dataclasses.InitVar[str] = ""
    gross: float = dataclasses.field(init=False)
    fixed: int = dataclasses.field(init=False, default=3)
    _cached: int = dataclasses.field(init=False, repr=False)

    def __post_init__(self, rate: float, note: str) -> None:
        self.gross = self.net * rate
        self._cached = 1


@dataclasses.dataclass
class Locked:
    n: int
    guard: threading.Event = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.guard = threading.Event()


@dataclasses.dataclass
class Node:
    name: str
    children: list[Node] = dataclasses.field(init=False)
    parent: Node | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        self.children = []


@dataclasses.dataclass
class Counted(Generic[T]):
    items: list[T]
    count: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.count = len(self.items)


@pydantic_dataclass
class Area:
    side: float
    size: float = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.size = self.side**2

    @model_validator(mode="after")
    def check(self) -> Area:
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    a: int
    b: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "b", self.a + 1)


async def test_fields_that_a_dataclass_sets_itself_are_written():
    """They are in the output schema, and not in an input schema; what only `__init__` takes is the other way round."""
    assert {"net": 2, "gross": 4, "fixed": 3} == await written(Priced(2, rate=2), Priced)
    assert [{"net": 2, "gross": 4, "fixed": 3}] == await written([{"net": 2, "rate": 2}], list[Priced])
    described = Adapter(Priced).schema("validation")
    assert ["net", "rate", "note"] == list(described["properties"])
    assert ["net", "gross", "fixed"] == list(Adapter(Priced).schema("serialization")["properties"])
    assert {"n": 1} == await written(Locked(1), Locked)
    assert {"side": 2, "size": 4} == await written(Area(2), Area)
    assert {"a": 1, "b": 2} == await written(Slotted(1), Slotted)
    assert {"items": ["a"], "count": 1} == await written(Counted(["a"]), Counted[str])
    both = tuple[Counted[str], Counted[dt.date]]
    made = (Counted(["a"]), Counted([dt.date(2024, 2, 29)]))
    assert [{"items": ["a"], "count": 1}, {"items": ["2024-02-29"], "count": 1}] == await written(made, both)
    root = Node("root")
    root.children.append(Node("leaf"))
    leaf = {"name": "leaf", "children": [], "parent": None}
    assert {"name": "root", "children": [leaf], "parent": None} == await written(root, Node)
    assert [leaf] == await written([Node("leaf")], list[Node])
    assert leaf == await written({"name": "leaf"}, Node)


async def test_fields_that_a_dataclass_sets_itself_are_checked():
    """Like all others."""
    wrong = Priced(2, rate=2)
    wrong.gross = "much"  # type: ignore[assignment]
    outcome = await returned(wrong, Priced)
    assert "output" == outcome.kind
    assert 'gross: expected number, got "much"' in outcome.text


# --- what is written is checked


class Limited(BaseModel):
    n: int = Field(ge=1)
    names: list[str] = []
    day: dt.date | None = None


class Measure(BaseModel):
    values: list[float]


class Link(BaseModel):
    to: AnyUrl


@dataclasses.dataclass
class Count:
    n: RootModel[int]


def changed(model: Any, **values: Any) -> Any:
    for name, value in values.items():
        object.__setattr__(model, name, value)
    return model


@dataclasses.dataclass
class Plain:
    n: int
    day: dt.date | None = None


class Pair(NamedTuple):
    a: int
    b: Limited


@pytest.mark.parametrize(
    "annotation, value, problem",
    [
        (Limited, Limited.model_construct(n=0), "n: expected at least 1, got 0"),
        (Limited, Limited.model_construct(), "n: required, but missing"),
        (Limited, Limited.model_construct(n="x"), 'n: expected integer, got "x"'),
        (Limited, changed(Limited(n=1), names=[5]), "names[0]: expected string, got 5"),
        (list[Limited], [Limited(n=1), changed(Limited(n=1), n=None)], "[1].n: expected integer, got null"),
        (dict[str, Limited | None], {"a": Limited.model_construct(n=-1)}, "a.n: expected at least 1, got -1"),
        (Plain, Plain("x"), 'n: expected integer, got "x"'),
        (Plain, Plain(1, "yesterday"), "day: expected date, got 'yesterday' (a str)"),
        (Measure, Measure.model_construct(values=[1.0, math.nan]), "values[1]: expected a finite number, got nan"),
        (Measure, Measure(values=[math.inf]), "values[0]: expected a finite number, got inf"),
        (Pair, Pair("x", Limited(n=1)), '[0]: expected integer, got "x"'),
        (Pair, Pair(1, Limited.model_construct(n=0)), "[1].n: expected at least 1, got 0"),
        (
            Count,
            Count(RootModel[int | str](1)),
            "n: expected RootModel[int], got RootModel[Union[int, str]](root=1) (a ",
        ),
        (Link, changed(Link(to=AnyUrl("a:b")), to="x"), "AnyUrl'>` but got `<class 'str'>` with value `'x'`\nReturn"),
    ],
)
async def test_what_is_written_has_to_meet_the_schema(annotation: Any, value: Any, problem: str):
    """Instances made without validation, or changed since, may hold anything; the message says where and what."""
    outcome = await returned(value, annotation)
    assert "output" == outcome.kind
    assert problem in outcome.text
    assert "Pydantic" not in outcome.text


class Money:
    """A class with a core schema of its own, that reads text."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    @classmethod
    def parse(cls, text: str) -> Money:
        return cls(int(text.removesuffix("c")))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        written = core_schema.plain_serializer_function_ser_schema(
            lambda money: f"{money.cents}c", return_schema=core_schema.str_schema()
        )
        return core_schema.no_info_after_validator_function(cls.parse, core_schema.str_schema(), serialization=written)


async def test_a_class_with_its_own_core_schema_is_believed():
    """Alone, and inside of others."""
    assert "5c" == await written(Money(5), Money)
    assert ["5c", "6c"] == await written([Money(5), "6c"], list[Money])
    assert {"a": "5c"} == await written({"a": Money(5)}, dict[str, Money | None])


class Color(enum.Enum):
    RED = "red"


class Shaped(BaseModel):
    """Everything that changes how a model is written."""

    model_config = ConfigDict(use_enum_values=True, frozen=True)
    shown: int = Field(serialization_alias="shownAs")
    hidden: int = Field(1, exclude=True)
    color: Color = Color.RED
    at: dt.datetime = dt.datetime(2024, 2, 29, tzinfo=dt.UTC)
    secret: SecretStr = SecretStr("x")
    price: decimal.Decimal = decimal.Decimal("1.50")
    where: Path = Path("/a")
    data: bytes = b"hi"
    short: Annotated[str, PlainSerializer(len, return_type=int)] = "four"
    made: list[int] = Field(default_factory=lambda: [1])

    @computed_field
    @property
    def twice(self) -> int:
        return self.shown * 2

    @field_serializer("at")
    def as_number(self, value: dt.datetime) -> int:
        return int(value.timestamp())


class AsText(BaseModel):
    n: int

    @model_serializer
    def text(self) -> str:
        return str(self.n)


class Base(BaseModel):
    a: int = 1


class Derived(Base):
    b: int = 2


class Bearer(BaseModel):
    base: SerializeAsAny[Base]


async def test_serializers_aliases_and_exclusions_count():
    """What they write is what the published schema says."""
    expected = {
        "shownAs": 2,
        "color": "red",
        "at": 1709164800,
        "secret": "**********",
        "price": "1.50",
        "where": "/a",
        "data": "aGk=",
        "short": 4,
        "made": [1],
        "twice": 4,
    }
    shaped = await written(Shaped(shown=2), Shaped)
    assert shaped.pop("color") in ("red", Color.RED)
    del expected["color"]
    assert expected == shaped
    assert "5" == await written(AsText(n=5), AsText)
    assert {"base": {"a": 1, "b": 2}} == await written(Bearer(base=Derived()), Bearer)


class Unsaid(BaseModel):
    n: int

    @field_serializer("n")
    def anything(self, value):
        return value or "none"


async def test_a_serializer_that_does_not_say_what_it_returns_is_checked():
    """Its schema is that of the field, which it may break."""
    assert {"n": 1} == await written(Unsaid(n=1), Unsaid)
    outcome = await returned(Unsaid(n=0), Unsaid)
    assert "output" == outcome.kind
    assert 'n: expected integer, got "none"' in outcome.text


@pydantic_dataclass
class Chained:
    """Has validators around it, holds itself, and sets a field after it was made."""

    name: str
    next: Chained | None = None
    length: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.length = len(self.name)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return value

    @model_validator(mode="after")
    def _checked(self) -> Chained:
        return self


async def test_a_late_field_of_a_class_that_validates_and_holds_itself_is_written():
    inner = {"name": "ab", "next": None, "length": 2}
    assert {"name": "a", "next": inner, "length": 1} == await written(Chained("a", Chained("ab")), Chained)
    assert [inner] == await written([Chained("ab")], list[Chained])
