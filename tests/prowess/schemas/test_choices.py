"""Enums, flags, literals and keys: what the schema lists is accepted, and what is returned is listed."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import json
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PlainSerializer

from prowess import Outcome, Runtime, skill_command
from prowess.errors import LoadError
from prowess.profiles.profile import BUILT_IN
from prowess.schemas.adapters import Adapter, Misfit, Unusable


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Day(enum.Enum):
    LEAP = dt.date(2024, 2, 29)
    NEXT = dt.date(2024, 3, 1)


class Corner(enum.Enum):
    TOP = (0, 1)
    LEFT = (1, 0)


class Raw(enum.Enum):
    A = b"\xff\xef"
    B = b"hi"


class Mixed(enum.Enum):
    NONE = None
    ONE = 1
    TRUTH = "true"
    HALF = 0.5
    WHEN = dt.timedelta(seconds=90)
    LIST = (1, "a")


class Ratio(float, enum.Enum):
    HALF = 0.5
    FULL = 1.0


class Truth(enum.Enum):
    YES = True
    NO = False


class Price(enum.Enum):
    LOW = decimal.Decimal("1.50")
    ID = uuid.UUID(int=1)


class Lenient(enum.Enum):
    DAY = dt.date(2024, 2, 29)

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return cls.DAY if value == "leap" else None


class Perm(enum.Flag):
    R = 1
    W = 2
    X = 4


class IntPerm(enum.IntFlag):
    R = 1
    W = 2


class Gaps(enum.Flag):
    A = 1
    C = 4
    AC = 5


class Wide(enum.Flag):
    A = 1
    B = 4
    C = 16
    D = 64
    E = 256
    F = 1024
    G = 4096


class Named(enum.Flag, boundary=enum.CONFORM):
    A = 1
    NOTHING = 0


class Red(BaseModel):
    color: Literal[Color.RED]
    a: int = 1


class Other(BaseModel):
    color: Literal[Color.GREEN, Color.BLUE]
    b: int = 2


class OnDay(BaseModel):
    day: Literal[Day.LEAP] = Day.LEAP


class NextDay(BaseModel):
    day: Literal[Day.NEXT] = Day.NEXT


Either = Red | Other
Tagged = Annotated[Red | Other, Field(discriminator="color")]
TaggedByDay = Annotated[OnDay | NextDay, Field(discriminator="day")]


async def echoed(annotation: Any, sent: Any, *, received: list[Any] | None = None) -> Outcome:
    """The outcome of a command that takes and returns a value of an annotation."""
    async with Runtime.open("nowhere") as runtime:

        async def echo(value):
            if received is not None:
                received.append(value)
            return value

        echo.__annotations__.update(value=annotation)
        echo.__annotations__["return"] = annotation
        return await runtime.entry_of(skill_command(echo).__prowess__).call({"value": sent})


async def returned(annotation: Any, value: Any) -> Outcome:
    async with Runtime.open("nowhere") as runtime:

        async def give():
            return value

        give.__annotations__["return"] = annotation
        return await runtime.entry_of(skill_command(give).__prowess__).call({})


def refusal(annotation: Any) -> str:
    runtime = Runtime(Path("nowhere"))

    async def echo(value): ...

    echo.__annotations__.update(value=annotation)
    declared = skill_command(echo).__prowess__
    with contextlib.closing(runtime), pytest.raises(LoadError) as caught:
        runtime.entry_of(declared)
    assert (__file__, echo.__code__.co_firstlineno) == (caught.value.file, caught.value.line)
    return str(caught.value)


def shown(outcome: Outcome) -> None:
    """Every profile shows what meets the schema it shows."""
    assert outcome.contract is not None
    for name, profile in BUILT_IN.items():
        payload = outcome.payload(name)
        schema = profile.output_schema(outcome.contract, boxed=True)
        if schema is not None:
            Draft202012Validator(schema).validate(payload["structuredContent"])


# annotation, Python value, JSON
PAIRS: list[tuple[Any, Any, Any]] = [
    *((kind, member, json_) for kind, member, json_ in [(Color, Color.RED, "red"), (Level, Level.HIGH, 2)]),
    (Day, Day.NEXT, "2024-03-01"),
    (Corner, Corner.LEFT, [1, 0]),
    (Raw, Raw.A, "_-8="),
    (Ratio, Ratio.HALF, 0.5),
    (Truth, Truth.NO, False),
    (Price, Price.LOW, "1.50"),
    (Price, Price.ID, str(uuid.UUID(int=1))),
    (Lenient, Lenient.DAY, "2024-02-29"),
    (Mixed, Mixed.NONE, None),
    (Mixed, Mixed.ONE, 1),
    (Mixed, Mixed.TRUTH, "true"),
    (Mixed, Mixed.HALF, 0.5),
    (Mixed, Mixed.WHEN, "PT1M30S"),
    (Mixed, Mixed.LIST, [1, "a"]),
    (Day | None, Day.LEAP, "2024-02-29"),
    (Day | int, Day.LEAP, "2024-02-29"),
    (list[Corner], [Corner.TOP, Corner.TOP], [[0, 1], [0, 1]]),
    (set[Day], {Day.LEAP}, ["2024-02-29"]),
    (Literal[Color.RED], Color.RED, "red"),
    (Literal[Color.RED, Level.LOW, "x", None, 7], Level.LOW, 1),
    (Literal[Color.RED, Level.LOW, "x", None, 7], None, None),
    (Literal[Color.RED, Level.LOW, "x", None, 7], "x", "x"),
    (Literal[Day.LEAP], Day.LEAP, "2024-02-29"),
    (Literal[b"hi"], b"hi", "aGk="),
    (Literal[Perm.R], Perm.R, 1),
    (Perm, Perm.R, 1),
    (Perm, Perm.R | Perm.W, 3),
    (Perm, Perm(0), 0),
    (IntPerm, IntPerm.R | IntPerm.W, 3),
    (IntPerm, IntPerm(8), 8),
    (Gaps, Gaps.AC, 5),
    (Wide, Wide.A | Wide.G, 4097),
    (Named, Named.A, 1),
    (list[Perm], [Perm.R | Perm.X], [5]),
    (Perm | None, Perm.W, 2),
    (Either, Other(color=Color.GREEN), {"color": "green", "b": 2}),
    (Either, Red(color=Color.RED), {"color": "red", "a": 1}),
    (Tagged, Other(color=Color.BLUE), {"color": "blue", "b": 2}),
    (TaggedByDay, NextDay(), {"day": "2024-03-01"}),
    (dict[int, int], {1: 2}, {"1": 2}),
    (dict[float, int], {1.5: 2}, {"1.5": 2}),
    (dict[bool, int], {True: 2}, {"true": 2}),
    (dict[dt.date, int], {dt.date(2024, 2, 29): 2}, {"2024-02-29": 2}),
    (dict[dt.datetime, int], {dt.datetime(2024, 2, 29): 2}, {"2024-02-29T00:00:00": 2}),
    (dict[dt.timedelta, int], {dt.timedelta(seconds=90): 2}, {"PT1M30S": 2}),
    (dict[uuid.UUID, int], {uuid.UUID(int=1): 2}, {str(uuid.UUID(int=1)): 2}),
    (dict[decimal.Decimal, int], {decimal.Decimal("1.50"): 2}, {"1.50": 2}),
    (dict[bytes, int], {b"\xff\xef": 2}, {"_-8=": 2}),
    (dict[Color, int], {Color.RED: 2}, {"red": 2}),
    (dict[Level, int], {Level.LOW: 2}, {"1": 2}),
    (dict[Day, int], {Day.LEAP: 2}, {"2024-02-29": 2}),
    (dict[Corner, int], {Corner.TOP: 2}, {"[0, 1]": 2}),
    (dict[Ratio, int], {Ratio.FULL: 2}, {"1.0": 2}),
    (dict[Truth, int], {Truth.YES: 2}, {"true": 2}),
    (dict[Raw, int], {Raw.B: 2}, {"aGk=": 2}),
    (dict[Perm, int], {Perm.R | Perm.W: 2}, {"3": 2}),
    (dict[Literal[1, 2], int], {1: 2}, {"1": 2}),
    (dict[Literal[1, "a", Color.RED], int], {"a": 1, Color.RED: 2, 1: 3}, {"a": 1, "red": 2, "1": 3}),
    (dict[Literal[True, None], int], {True: 1, None: 2}, {"true": 1, "null": 2}),
    (dict[Literal["a", "b"], int], {"a": 1}, {"a": 1}),
    (dict[Annotated[int, Field(ge=1)], int], {1: 2}, {"1": 2}),
    (dict[Annotated[Level, AfterValidator(lambda level: level)], int], {Level.LOW: 2}, {"1": 2}),
    (dict[int | Color, int], {1: 2, Color.RED: 3}, {"1": 2, "red": 3}),
    (Mapping[Level, int], {Level.LOW: 2}, {"1": 2}),
    (OrderedDict[Level, int], OrderedDict({Level.LOW: 2}), {"1": 2}),
    (defaultdict[Level, int], defaultdict(int, {Level.LOW: 2}), {"1": 2}),
    (dict[Level, dict[Day, Day]], {Level.LOW: {Day.LEAP: Day.NEXT}}, {"1": {"2024-02-29": "2024-03-01"}}),
]


@pytest.mark.parametrize("annotation, value, data", PAIRS)
async def test_what_is_listed_is_accepted_and_what_is_returned_is_listed(annotation: Any, value: Any, data: Any):
    """The same JSON goes in and out, and meets both schemas in every profile."""
    received: list[Any] = []
    outcome = await echoed(annotation, data, received=received)
    assert "ok" == outcome.kind, outcome.text
    assert [value] == received
    assert repr(value) == repr(received[0])
    assert data == outcome.result.value
    assert outcome.contract is not None
    Draft202012Validator(outcome.contract.input_schema).validate({"value": data})
    Draft202012Validator(outcome.contract.output.schema).validate(data)
    shown(outcome)
    adapter = Adapter(annotation)
    assert value == adapter.read(value)
    assert json.dumps(data) == json.dumps(adapter.dump(adapter.accept(value)))


@pytest.mark.parametrize(
    "annotation", [Color, Level, Day, Corner, Raw, Mixed, Ratio, Truth, Price, Lenient, Gaps, Literal[Day.LEAP, 3, "x"]]
)
async def test_everything_a_schema_lists_is_accepted(annotation: Any):
    """Value by value, also as keys of an object."""
    schema = Adapter(annotation).schema("validation")
    for listed in schema["enum"]:
        outcome = await echoed(annotation, listed)
        assert ("ok", listed) == (outcome.kind, outcome.result.value)
    adapter = Adapter(dict[annotation, int])
    names = adapter.schema("validation").get("propertyNames", {})
    for listed in names.get("enum", []):
        sent = {listed: 1}
        assert sent == adapter.dump(adapter.read_json(json.dumps(sent)))


@pytest.mark.parametrize(
    "annotation, wrong",
    [
        (Literal[Color.RED], "green"),
        (Literal[Color.RED], Color.GREEN),
        (Literal[Color.RED, "x"], "blue"),
        (Literal[Color.RED, Level.LOW], Level.HIGH),
        (Literal[Day.LEAP], "2024-03-01"),
        (Literal[Day.LEAP], Day.NEXT),
        (Day, "2024-03-02"),
        (Day, 7),
        (Corner, [1, 1]),
        (Truth, 1),
        (Mixed, True),
        (Perm, 8),
        (Perm, -1),
        (Perm, "R"),
        (Perm, True),
        (Perm, 1.5),
        (Gaps, 2),
        (Named, 2),
        (Red, {"color": "green"}),
        (Either, {"color": "yellow"}),
        (dict[Level, int], {"3": 1}),
        (dict[Day, int], {"leap": 1}),
        (dict[Literal[1, 2], int], {"3": 1}),
    ],
)
async def test_what_is_not_listed_is_refused_both_ways(annotation: Any, wrong: Any):
    """As an argument, and as a result."""
    assert "input" == (await echoed(annotation, wrong)).kind
    assert "output" == (await returned(annotation, wrong)).kind


async def test_a_refusal_lists_what_would_be_right():
    """In the words of JSON."""
    outcome = await echoed(Literal[Color.RED, Day.LEAP], "green")
    assert "value: expected one of 'red', '2024-02-29', got 'green'" in outcome.text.replace('"', "'")
    outcome = await echoed(Perm, 9)
    assert "the sum of any of: 1 (R), 2 (W), 4 (X)" in outcome.text


async def test_instances_with_a_wrong_member_are_refused():
    """What is written is looked at, also where nobody has validated it."""
    wrong = Red.model_construct(color=Color.GREEN)
    for annotation in (Red, list[Red]):
        outcome = await returned(annotation, wrong if annotation is Red else [wrong])
        assert "output" == outcome.kind


async def test_an_enum_of_the_author_may_know_further_values():
    """`_missing_` is asked; the schema lists the members."""
    received: list[Any] = []
    assert "ok" == (await echoed(Lenient, "leap", received=received)).kind
    assert [Lenient.DAY] == received


async def test_defaults_are_shown_as_they_are_sent():
    """Those of parameters and of fields."""

    @dataclasses.dataclass
    class Options:
        perm: Perm = Perm.R | Perm.W
        day: Day = Day.LEAP

    async with Runtime.open("nowhere") as runtime:

        async def run(perm=Perm.R | Perm.X, raw=Raw.A, options=None): ...

        run.__annotations__.update(perm=Perm, raw=Raw, options=Options | None)
        contract = runtime.entry_of(skill_command(run).__prowess__).contract
    properties = contract.input_schema["properties"]
    assert (5, "_-8=") == (properties["perm"]["default"], properties["raw"]["default"])
    options = contract.input_schema["$defs"]["Options"]["properties"]
    assert (3, "2024-02-29") == (options["perm"]["default"], options["day"]["default"])


class Twins(enum.Enum):
    DAY = dt.date(2024, 2, 29)
    TEXT = "2024-02-29"


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int


class FrozenModel(BaseModel, frozen=True):
    a: int


class Pair(NamedTuple):
    a: int
    b: int


@pytest.mark.parametrize(
    "annotation, reason",
    [
        (Twins, "<Twins.DAY: datetime.date(2024, 2, 29)> and <Twins.TEXT: '2024-02-29'> are both written as"),
        (dict[Literal[1, "1"], int], "1 and '1' are both written as '1'"),
        (dict[tuple[int, int], int], "keys of a JSON object are text, and a tuple cannot be written as one"),
        (dict[frozenset[int], int], "a frozenset cannot be written"),
        (dict[Frozen, int], "a Frozen cannot be written"),
        (dict[FrozenModel, int], "a FrozenModel cannot be written"),
        (dict[Pair, int], "a Pair cannot be written"),
        (dict[None, int], "a none cannot be written"),
        (dict[str | tuple[int, ...], int], "a tuple cannot be written"),
        (dict[Annotated[tuple[int, int], AfterValidator(lambda pair: pair)], int], "a tuple cannot be written"),
        (list[dict[tuple[int, int], int]], "Use a list of pairs, or keys of type str"),
    ],
)
def test_what_cannot_work_both_ways_is_refused_at_load(annotation: Any, reason: str):
    """With file, line, parameter and the way out."""
    message = refusal(annotation)
    assert reason in message
    assert "parameter 'value'" in message
    with pytest.raises(Unusable):
        Adapter(annotation)


async def test_keys_that_the_author_reads_and_writes_are_the_authors():
    """A validator and a serializer make text of anything."""
    Key = Annotated[
        tuple[int, ...],
        BeforeValidator(lambda key: tuple(map(int, key.split("-"))) if isinstance(key, str) else key),
        PlainSerializer(lambda key: "-".join(map(str, key)), return_type=str),
    ]
    received: list[Any] = []
    outcome = await echoed(dict[Key, int], {"1-2": 3}, received=received)
    assert ("ok", [{(1, 2): 3}], {"1-2": 3}) == (outcome.kind, received, outcome.result.value)


_values = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=2), st.dates(), st.binary(max_size=2),
    st.tuples(st.integers(0, 2), st.integers(0, 2)), st.floats(0, 1, width=16), st.timedeltas(),
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(st.lists(_values, min_size=1, max_size=4, unique_by=repr), st.booleans())
def test_any_enum_works_both_ways_or_fails_at_load(values: list[Any], as_key: bool):
    """Whatever its members are valued with."""
    kind = enum.Enum("kind", {f"M{index}": value for index, value in enumerate(values)})  # type: ignore[misc]
    try:
        adapter = Adapter(dict[kind, int] if as_key else kind)  # type: ignore[valid-type]
    except Unusable as reason:
        if "are both written as" in str(reason):
            return
        raise
    schemas = adapter.schema("validation"), adapter.schema("serialization")
    for member in kind:
        value: Any = {member: 1} if as_key else member
        data = adapter.dump(adapter.accept(value))
        assert value == adapter.read_json(json.dumps(data)) == adapter.read(value)
        assert data == adapter.dump(value)
        assert all(Draft202012Validator(schema).is_valid(data) for schema in schemas)


@settings(deadline=None, max_examples=100)
@given(st.sets(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 1023))
def test_any_flags_work_both_ways(bits: set[int], number: int):
    """Every combination is listed, accepted and written alike; no other is accepted."""
    kind = enum.Flag("kind", {f"B{bit}": 1 << bit for bit in bits})  # type: ignore[misc]
    adapter = Adapter(kind)
    schema = adapter.schema("serialization")
    mask = sum(1 << bit for bit in bits)
    member = kind(number & mask)
    data = adapter.dump(adapter.accept(member))
    assert number & mask == data
    assert Draft202012Validator(schema).is_valid(data)
    assert member == adapter.read_json(str(data))
    if number & ~mask:
        with pytest.raises(ValueError):
            adapter.read_json(str(number))


def test_a_flag_is_also_read_from_a_whole_number_with_a_point():
    """JSON knows one kind of number."""
    assert Perm.R | Perm.W == Adapter(Perm).read(3.0)


async def test_what_is_no_flag_is_not_written_as_one():
    """Nobody has checked the fields of an instance."""

    @dataclasses.dataclass
    class Grant:
        perm: Perm

    @skill_command
    def run() -> Grant:
        return Grant("all")  # type: ignore[arg-type]

    run.__prowess__.function.__annotations__["return"] = Grant
    async with Runtime.open("nowhere") as runtime:
        outcome = await runtime.entry_of(run.__prowess__).call({})
    assert "output" == outcome.kind
    assert "result" in outcome.text


Word = typing_extensions.TypeAliasType("Word", str)
Recursive = typing_extensions.TypeAliasType("Recursive", "dict[Word, Recursive | int]")


def test_the_keys_of_a_dict_may_be_named_by_an_alias():
    assert {"a": {"b": 1}} == Adapter(Recursive).read({"a": {"b": 1}})


class Aliased(enum.Enum):
    ONE = 1
    UNO = 1  # noqa: PIE796 - an alias
    TWO = 2


class AliasedDay(enum.Enum):
    LEAP = dt.date(2024, 2, 29)
    BIRTHDAY = dt.date(2024, 2, 29)  # noqa: PIE796 - an alias


@pytest.mark.parametrize(
    ("annotation", "listed"),
    [
        (Aliased, [1, 2]),
        (AliasedDay, ["2024-02-29"]),
        (Literal[Aliased.ONE, Aliased.UNO, Aliased.TWO], [1, 2]),
    ],
)
def test_an_alias_of_a_member_is_listed_once(annotation: Any, listed: list[Any]):
    """Some clients refuse a schema that lists a value twice."""
    adapter = Adapter(annotation)
    assert [listed] * 2 == [adapter.schema("validation")["enum"], adapter.schema("serialization")["enum"]]
    assert listed[0] == adapter.dump(adapter.read_json(json.dumps(listed[0])))


class Pet(BaseModel):
    level: Literal[Level.LOW]
    day: Day = Day.LEAP


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (Pet.model_construct(level=Level.HIGH), "result.level: expected one of 1, got 2"),
        (Pet.model_construct(level=Level.LOW, day="no"), 'result.day: expected one of "2024-02-29", "2024-03-01", got "no"'),
        (Pet.model_construct(level=Level.LOW, day=dt.date(2020, 1, 1)), "result.day: expected one of"),
    ],
)  # fmt: skip
def test_an_instance_with_a_wrong_member_is_told_where(made: Any, problem: str):
    """In the words of other problems, and not in those of pydantic."""
    with pytest.raises(Misfit) as caught:
        Adapter(Pet).dump(made)
    assert caught.value.problems[0].startswith(problem)


class Allowed(BaseModel):
    perm: Perm


def test_a_member_of_another_enum_with_the_same_value_is_no_member():
    """What would be written fits the schema, and still it is a mistake."""
    with pytest.raises(Misfit) as caught:
        Adapter(Allowed).dump(Allowed.model_construct(perm=Level.HIGH))
    assert ["result: expected the sum of any of: 1 (R), 2 (W), 4 (X)"] == caught.value.problems


class Kind(enum.Enum):
    CAT = "cat, or so"
    DOG = "dog"


class Cat(BaseModel):
    kind: Literal[Kind.CAT]


class Dog(BaseModel):
    kind: Literal[Kind.DOG]


async def test_a_union_told_apart_by_members_of_an_enum_names_what_a_client_sends(tmp_path: Path):
    """The members themselves are for Python."""

    @skill_command
    def feed(pet: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...

    feed.raw.__annotations__["pet"] = Annotated[Cat | Dog, Field(discriminator="kind")]
    async with Runtime.open(tmp_path) as runtime:
        outcome = await runtime.entry_of(feed.__prowess__).call({"pet": {"kind": "cow"}})  # type: ignore[attr-defined]
    wanted = 'expected an object with the key "kind" being one of "cat, or so", "dog", got {"kind":"cow"}'
    assert [f"pet: {wanted}"] == list(outcome.problems)
