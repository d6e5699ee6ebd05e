"""Contracts of small functions, and types that several profiles show."""
# ruff: noqa: D101 - docstrings would be descriptions in the schemas

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, Literal, NotRequired, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict, is_typeddict

from prowess.contracts.contract import Contract, OutputShape
from prowess.profiles.profile import BUILT_IN
from prowess.schemas.steps import prune_titles


def contract(input_schema: Any = None, *, explicit: bool = False, output: OutputShape | None = None) -> Contract:
    return Contract(
        *("s.c", "s_c", "s", "c", ""),
        input_schema=input_schema or {"type": "object", "properties": {}, "additionalProperties": False},
        input_explicit=explicit,
        output=output or OutputShape(),
    )


def called(function: Callable[..., Any]) -> Contract:
    """The contract of a function's parameters, canonical as far as profiles can see."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    optional = {p.name: p.default for p in parameters if p.default is not p.empty}
    fields = {
        p.name: NotRequired[hints.get(p.name, Any)] if p.name in optional else hints.get(p.name, Any)
        for p in parameters
    }
    arguments = TypedDict("Arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    schema = prune_titles(TypeAdapter(arguments).json_schema())
    for name, default in optional.items():
        schema["properties"][name]["default"] = TypeAdapter(Any).dump_python(default, mode="json")
    return contract(schema)


def returning(annotation: Any, *, field: str | None = None) -> Contract:
    """The contract of a declared result."""
    schema = prune_titles(TypeAdapter(annotation).json_schema(mode="serialization"))
    named = is_typeddict(annotation) or is_dataclass(annotation) or hasattr(annotation, "model_fields")
    return contract(output=OutputShape(schema, field=field, type_name=annotation.__name__ if named else None))


def shown_input(profile: str, function: Callable[..., Any]) -> dict[str, Any]:
    return BUILT_IN[profile].input_schema(called(function))


def shown_output(profile: str, annotation: Any, *, boxed: bool = True, field: str | None = None) -> Any:
    return BUILT_IN[profile].output_schema(returning(annotation, field=field), boxed=boxed)


# Types under test


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class User(BaseModel):
    username: str = Field(min_length=3, max_length=20)
    email: str = Field(pattern=r"^\S+@\S+$")
    age: int | None = None


class Address(BaseModel):
    street: str
    unit: str | None


@dataclass
class Chat:
    kind: Literal["chat"]
    message: str


@dataclass
class Nav:
    kind: Literal["navigate"]
    url: str


class Node(BaseModel):
    value: int
    children: list[Node] = []


def portable(
    *,
    user: User,
    pair: tuple[int, str],
    tree: Node,
    color: Color = Color.RED,
    one: Literal["x"] = "x",
    pets: Annotated[Chat | Nav, Field(discriminator="kind")] | None = None,
    loose: list = [],  # noqa: B006 - read, never called
    age: Annotated[int, Field(ge=0, le=120, description="Years.")] = 7,
    anything: Any = None,
    by_color: dict[Color, int] | None = None,
): ...
