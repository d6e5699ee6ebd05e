"""Null as a choice of its own, tried on generated parameters: every profile offers it, and the function receives it."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, Optional

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import Field
from typing_extensions import TypeAliasType

from prowess import Runtime, skill_command
from prowess.profiles.profile import BUILT_IN
from prowess.schemas.adapters import Adapter
from prowess.schemas.nulls import omit_nulls
from prowess.schemas.refs import resolve
from prowess.schemas.walk import visit


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


@dataclasses.dataclass
class Point:
    x: int
    label: str | None = None


_REQUIRED: Any = dataclasses.MISSING
_HIDING_NULL = ("portable", "omni", "turul")
"""Profiles whose schemas leave out the nulls within a value."""
_PLAIN: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers(-9, 9)),
    (float, st.floats(-9, 9)),
    (bool, st.booleans()),
    (str, st.text("ab", max_size=2)),
    (dt.date, st.dates()),
    (Color, st.sampled_from(Color)),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (Literal["a", 1], st.sampled_from(["a", 1])),
    (int | str, st.integers(-9, 9) | st.text("ab", max_size=2)),
    (list[int], st.lists(st.integers(-9, 9), max_size=2)),
    (list[int | None], st.lists(st.none() | st.integers(-9, 9), max_size=2)),
    (dict[str, int], st.dictionaries(st.text("ab", max_size=1), st.integers(-9, 9), max_size=1)),
    (Point, st.builds(Point, st.integers(-9, 9), st.none() | st.just("a"))),
    (Point | Literal["nowhere"], st.just("nowhere") | st.builds(Point, st.integers(-9, 9))),
]
_NULLABLE: list[Callable[[Any], Any]] = [
    lambda annotation: Optional[annotation],
    lambda annotation: Optional[Annotated[annotation, Field(description="within")]],
    lambda annotation: Annotated[Optional[annotation], Field(description="around")],
    lambda annotation: TypeAliasType("Maybe", Optional[annotation]),
]


class Parameter(NamedTuple):
    annotation: Any
    default: Any
    value: Any
    nested: bool
    """Whether it is a field of a structure, instead of a parameter of the function."""


@st.composite
def _parameters(draw: st.DrawFn) -> Parameter:
    annotation, values = draw(st.sampled_from(_PLAIN))
    default = draw(st.just(_REQUIRED) | st.none() | values)
    return Parameter(draw(st.sampled_from(_NULLABLE))(annotation), default, draw(values), draw(st.booleans()))


def _function(parameter: Parameter, seen: list[Any]) -> Callable[..., Any]:
    if parameter.nested:
        if parameter.default is _REQUIRED:
            held = dataclasses.field()
        else:
            held = dataclasses.field(default_factory=lambda: parameter.default)
        holder = dataclasses.make_dataclass("Holder", [("value", parameter.annotation, held)])

        async def run(holder: Any) -> None:
            seen.append(holder.value)

        run.__annotations__["holder"] = holder
        return run

    async def required(value: Any) -> None:
        seen.append(value)

    async def optional(value: Any = parameter.default) -> None:
        seen.append(value)

    function = required if parameter.default is _REQUIRED else optional
    function.__annotations__["value"] = parameter.annotation
    return function


def _property(schema: Any, *, nested: bool) -> Any:
    """The schema of the parameter, be it behind a reference."""
    for name in ("holder", "value") if nested else ("value",):
        schema = {**schema["properties"][name], "$defs": schema.get("$defs", {})}
        if name == "holder" and "$ref" in schema:
            schema = {**(resolve(schema, schema["$ref"]) or {}), "$defs": schema["$defs"]}
    return schema


def _says_nullable(schema: Any) -> bool:
    return any(node.get("nullable") is True for _, node in visit(schema))


@given(_parameters())
def test_what_is_shown_of_a_nullable_parameter_is_what_the_function_takes(parameter: Parameter) -> None:
    """A value arrives as it was sent, a null as `None`, and a missing argument as the default, whatever was shown."""
    asyncio.run(_holds(parameter))


async def _holds(parameter: Parameter) -> None:
    seen: list[Any] = []
    data = Adapter(parameter.annotation).dump(parameter.value)
    async with Runtime.open("nowhere") as runtime:
        entry = runtime.entry_of(skill_command(_function(parameter, seen)).__prowess__)

        async def received(arguments: dict[str, Any]) -> Any:
            outcome = await entry.call({"holder": arguments} if parameter.nested else arguments)
            assert outcome.ok, outcome.text
            return seen[-1]

        absent = None if parameter.default is _REQUIRED else parameter.default
        assert parameter.value == await received({"value": data})
        assert None is await received({"value": None})
        assert absent == await received({})
        contract = entry.plan.contract
    for profile in BUILT_IN.values():
        schema = profile.input_schema(contract)
        allows = Draft202012Validator(schema).is_valid
        shown = _property(schema, nested=parameter.nested)

        def sent(arguments: dict[str, Any]) -> dict[str, Any]:
            return {"holder": arguments} if parameter.nested else arguments

        arguments: Any = sent({"value": data})
        if profile.name in _HIDING_NULL:
            arguments = omit_nulls(contract.input_schema, arguments)
        assert allows(arguments), (profile.name, schema)
        assert parameter.default is _REQUIRED or allows(sent({})), (profile.name, schema)
        assert absent is None or allows(sent({"value": None})) or _says_nullable(shown), (profile.name, schema)
        if "default" in shown and shown["default"] is not None:
            assert Adapter(parameter.annotation).dump(parameter.default) == shown["default"]
