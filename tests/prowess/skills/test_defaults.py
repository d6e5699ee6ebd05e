"""Defaults: one that its own type refuses fails at load, and one that a function changes is nobody's state."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import threading
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from pydantic import (
    AfterValidator,
    Base64Bytes,
    Base64Str,
    BaseModel,
    BeforeValidator,
    DirectoryPath,
    Field,
    Json,
    PastDate,
    PlainValidator,
    SecretStr,
    computed_field,
    model_validator,
)
from pydantic_core import from_json, to_json

from prowess.errors import LoadError


def taking(annotation: Any, default: Any) -> Callable[..., Any]:
    def run(x=default): ...

    run.__annotations__["x"] = annotation
    return run


class Color(enum.Enum):
    RED = "red"


class Checked(BaseModel):
    n: int = 1
    made: list[int] = Field(default_factory=list)

    @model_validator(mode="after")
    def fail(self) -> Checked:
        raise AssertionError("run at load")


class Size(enum.IntEnum):
    SMALL = 1


class Perm(enum.IntFlag):
    R = 1
    W = 2


class Pair(NamedTuple):
    a: int
    b: int


@dataclasses.dataclass
class Point:
    x: int = 0


def never(_value: Any) -> Any:
    raise AssertionError("run at load")


SENTINEL = object()


@pytest.mark.parametrize(
    "annotation, default, reason",
    [
        (int, "no", "unable to parse string as an integer); change the default or the type"),
        (int, "3", 'expected integer, got "3"'),
        (int, True, "expected integer, got true"),
        (float | None, False, "got false"),
        (float, [], "input should be a valid number"),
        (str, 3, "input should be a valid string"),
        (list[int], ["a"], "unable to parse string as an integer"),
        (Color, "blue", "input should be 'red'"),
        (Literal["a", "b"], "c", "input should be 'a' or 'b'"),
        (Annotated[int, Field(ge=1)], 0, "input should be greater than or equal to 1"),
        (Annotated[int, BeforeValidator(never)], "10MB", "unable to parse string"),
        (Annotated[int, Field(default="no")], ..., "unable to parse string"),
        (int, Field("no"), "unable to parse string"),
        (Annotated[int, Field(alias="sent")], "no", "unable to parse string"),
        (Point, {"x": "no"}, "unable to parse string"),
        (dt.date, "yesterday", "input should be a valid date"),
    ],
)
def test_a_default_that_its_own_type_refuses_fails_at_load(entry: Any, annotation: Any, default: Any, reason: str):
    """With the file, the line, the parameter, the value and the way out."""

    def required(x): ...

    required.__annotations__["x"] = annotation
    function = required if default is ... else taking(annotation, default)
    with pytest.raises(LoadError) as caught:
        entry(function)
    assert (__file__, function.__code__.co_firstlineno) == (caught.value.file, caught.value.line)
    assert "parameter 'x' of test_defaults.r" in caught.value.reason
    assert "does not match its type" in caught.value.reason
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    "annotation, default, remedy",
    [
        (dt.date, "2026-01-01", "datetime.date(2026, 1, 1)"),
        (dt.date | None, "2026-01-01", "datetime.date(2026, 1, 1)"),
        (int | dt.date, "2026-01-01", "datetime.date(2026, 1, 1)"),
        (Annotated[dt.date, "a day"], "2026-01-01", "datetime.date(2026, 1, 1)"),
        (dt.date, Field("2026-01-01"), "datetime.date(2026, 1, 1)"),
        (dt.datetime, dt.date(2026, 1, 1), "datetime.datetime(2026, 1, 1, 0, 0)"),
        (dt.timedelta, 60, "datetime.timedelta(seconds=60)"),
        (Decimal, 1.5, "Decimal('1.5')"),
        (int, 3.0, "3"),
        (bytes, "aGk=", "b'hi'"),
        (Color, "red", "Color.RED"),
        (Size, 1, "Size.SMALL"),
        (Perm, 3, "Perm(3)"),
        (Point, {"x": 1}, "Point(x=1)"),
        (Pair, (1, 2), "Pair(a=1, b=2)"),
        (list[dt.date], ["2026-01-01"], "[datetime.date(2026, 1, 1)]"),
        (dict[str, Color], {"a": "red"}, "{'a': <Color.RED: 'red'>}"),
    ],
)
def test_a_default_of_another_type_is_refused_with_the_value_to_write(
    entry: Any, annotation: Any, default: Any, remedy: str
):
    """The function would get it as it is: a text where it expects a date."""
    with pytest.raises(LoadError) as caught:
        entry(taking(annotation, default))
    assert "is not of the declared type" in caught.value.reason
    assert caught.value.reason.endswith(f"; write {remedy}")


@pytest.mark.parametrize(
    "annotation, default",
    [
        (int, 3),
        (dt.date, dt.datetime(2024, 2, 29)),
        (dt.date, Field("2026-01-01", validate_default=True)),
        (Decimal, 1),
        (Size, Size.SMALL),
        (Literal[Color.RED], Color.RED),
        (list[int], ()),
        (set[int], []),
        (frozenset[int], set()),
        (Pair, Pair(1, 2)),
        (list[float], [1]),
        (dict[str, int], {"a": 1}),
        (float, 1),
        (int | None, None),
        (Any, None),
        (list[int], []),
        (tuple[int, ...], ()),
        (dict[str, int], {}),
        (Color, Color.RED),
        (Path, Path("/a")),
        (Path, "/a"),
        (dt.date, dt.date(2024, 2, 29)),
        (int, SENTINEL),
        (Checked, Checked.model_construct()),
        (Point, Point()),
        (Annotated[int, AfterValidator(never)], 3),
        (Annotated[str, AfterValidator(lambda text: Path(text))], Path("/a")),  # noqa: PLW0108 - a class has no one signature
        (Annotated[int, PlainValidator(never)], "anything"),
        (DirectoryPath, Path("/nowhere/at/all")),
        (PastDate, dt.date(2999, 1, 1)),
        (list[int], Field(default_factory=never)),
    ],
)
def test_a_default_of_its_type_is_fine(entry: Any, annotation: Any, default: Any):
    """Nothing of the author's runs at load, and neither the clock nor the disk is asked. A sentinel may be anything."""
    assert entry(taking(annotation, default)).contract.input_schema["properties"].keys() == {"x"}


@pytest.mark.parametrize(
    "annotation, default, sent, received",
    [
        (int, None, 7, 7),
        ("int", None, 7, 7),
        (list[int], None, [1], [1]),
        (Color, None, "red", Color.RED),
        (Point, None, {"x": 1}, Point(1)),
        (int, Field(None, ge=5), 7, 7),
        (Annotated[int, Field(default=None)], ..., 7, 7),
        (Annotated[int, Field(ge=5)], None, 7, 7),
        (Annotated[str, AfterValidator(str.upper)], None, "a", "A"),
        (Annotated[str, AfterValidator(str.upper), Field(max_length=3)], None, "a", "A"),
        (Annotated[str, "a text"], None, "a", "a"),
    ],
)
async def test_the_default_none_allows_none(entry: Any, annotation: Any, default: Any, sent: Any, received: Any):
    """Very many people write `x: int = None`. It means `int | None`: leaving it out and sending null give `None`."""

    def plain(x=default):
        seen.append(x)

    def required(x):
        seen.append(x)

    seen: list[Any] = []
    function = required if default is ... else plain
    function.__annotations__["x"] = annotation
    command = entry(function)
    schema = command.contract.input_schema["properties"]["x"]
    assert (None, {"type": "null"}) == (schema["default"], schema["anyOf"][1])
    outcomes = [await command.call(arguments) for arguments in ({}, {"x": None}, {"x": sent})]
    assert ["ok"] * 3 == [outcome.kind for outcome in outcomes], [outcome.text for outcome in outcomes]
    assert [None, None, received] == seen
    assert "input" == (await command.call({"x": 3.5})).kind


def test_what_stands_beside_a_type_still_holds_with_the_default_none(entry: Any):
    """The description, the alias and the limits stay; only null comes in addition."""
    annotation = Annotated[str, Field(alias="sent", description="what", max_length=3)]
    wanted = {"anyOf": [{"maxLength": 3, "type": "string"}, {"type": "null"}], "default": None, "description": "what"}
    assert {"sent": wanted} == entry(taking(annotation, None)).contract.input_schema["properties"]


class Simple(BaseModel):
    n: int = 1
    made: list[int] = []


class Encoded(BaseModel):
    text: Base64Str = "hi"


class Inner(BaseModel):
    text: Base64Str = "hi"
    other: Base64Str | None = Field("ho")
    plain: str = "aGk="


class Closed(BaseModel, extra="forbid"):
    n: int = 1

    @computed_field
    @property
    def twice(self) -> int:
        return 2 * self.n


@pytest.mark.parametrize(
    ("annotation", "default", "shown"),
    [
        (Simple, Simple(n=2), {"n": 2, "made": []}),
        (Closed, Closed(), None),
        (Json[list[int]], [1], None),
        (SecretStr, SecretStr("x"), None),
        (dict[int, set[str]], {1: {"b", "a"}}, {"1": ["a", "b"]}),
        (Base64Str, "hi", "aGk="),
        (Base64Str | None, "hi", "aGk="),
        (Base64Str | None, None, None),
        (Base64Bytes, b"hi", "aGk="),
        (list[Base64Str], ["hi"], None),
        (Encoded, Encoded(text="b2g="), {"text": "b2g="}),
    ],
)
async def test_a_default_is_shown_if_a_client_can_send_it(entry: Any, annotation: Any, default: Any, shown: Any):
    """Otherwise it is only used: a model may repeat what it is shown, as the stars of a secret."""
    ready = entry(taking(annotation, default))
    assert shown == from_json(to_json(ready.contract.input_schema["properties"]["x"].get("default")))
    assert {"x": default} == ready.plan.defaults
    if shown is not None:
        assert {"x": default} == ready.plan.reader.from_json({"x": shown})


def test_a_default_inside_a_type_is_shown_as_clients_send_it(entry: Any):
    """As a text in base64, like the default of a parameter."""

    def run(x: Inner, y: Annotated[Base64Str, Field("hi")]): ...

    schema = entry(run).contract.input_schema
    inner = schema["$defs"]["Inner"]["properties"] if "$defs" in schema else schema["properties"]["x"]["properties"]
    assert ["aGk=", "aG8=", "aGk="] == [inner[name]["default"] for name in ("text", "other", "plain")]
    assert "aGk=" == schema["properties"]["y"]["default"]


@pytest.mark.parametrize("options", [{}, {"retry_on": ValueError, "max_attempts": 2}], ids=["plain", "retried"])
async def test_a_mutable_default_is_nobodys_state(entry: Any, options: dict[str, Any]):
    """However often it is changed, the next call gets what was written."""

    def run(
        a: list[int] = [],  # noqa: B006 - this is what people write
        b: dict[str, int] = {},  # noqa: B006
        c: tuple[list[int], int] = ([], 1),
        d: Point = Point(),  # noqa: B008
        /,
        *rest: Any,
        e: set[int] = set(),  # noqa: B006
        f: Any = deque(),  # noqa: B006
        g: Checked = Checked.model_construct(),  # noqa: B008
        h: Any = bytearray(),  # noqa: B008
        i: list[int] = Field([]),  # noqa: B008
        j: Any = SENTINEL,
    ) -> list[Any]:
        before = [len(a), len(b), len(c[0]), d.x, len(e), len(f), len(g.made), len(h), len(i), j is SENTINEL]
        a.append(1)
        b["x"] = 1
        c[0].append(1)
        d.x += 1
        e.add(1)
        f.append(1)
        g.made.append(1)
        h.append(1)
        i.append(1)
        return before

    command = entry(run, **options)
    first = await command.call({})
    assert [0, 0, 0, 0, 0, 0, 0, 0, 0, True] == first.value, first.text
    assert first.value == (await command.call({})).value
    assert first.value == (await command.call_python((), {})).value
    assert [1, *first.value[1:]] == (await command.call_python(([5],), {})).value


async def test_a_further_attempt_gets_fresh_copies_of_the_arguments(entry: Any):
    """What the first did to them is not seen by the second. What cannot be copied is shared, as Python does."""
    seen: list[Any] = []

    class Locked(BaseModel, arbitrary_types_allowed=True):
        lock: Any = Field(default_factory=threading.Lock)

    def run(items: list[int], point: Point, held: Any = None, more: list[int] = []) -> int:  # noqa: B006
        seen.append((list(items), point.x, list(more), held))
        items.append(9)
        more.append(9)
        point.x = 9
        if len(seen) % 3:
            raise ValueError("again")
        return len(seen)

    command = entry(run, retry_on=ValueError, max_attempts=3)
    outcome = await command.call({"items": [1], "point": {"x": 1}})
    assert ("ok", 3, 3) == (outcome.kind, outcome.value, outcome.attempts), outcome.text
    assert [([1], 1, [], None)] * 3 == seen
    held = Locked()
    outcome = await command.call_python(([1], Point(1)), {"held": held})
    assert ("ok", 3) == (outcome.kind, outcome.attempts), outcome.text
    assert all(one[:3] == ([1], 1, []) and one[3] is held for one in seen[3:])
