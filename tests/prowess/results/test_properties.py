"""Whatever a command returns, what is sent conforms: to the shared schema, to the library's types, to the profile's own schema."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import decimal
import enum
import json
import pathlib
import uuid
from typing import Any, Literal, Optional, TypedDict

import mcp_types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from prowess import Image, Outcome, Runtime, skill_command
from prowess.mcp_schema import MCP_TOOL_RESULT_TEXT_SCHEMA_V1, get_validator, normalize_mcp_tool_result, to_text_only
from prowess.profiles.profile import BUILT_IN

_MANY = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Color(enum.Enum):
    RED = "red"
    NONE = None


@dataclasses.dataclass
class Point:
    x: int
    label: str | None = None


class Options(TypedDict, total=False):
    title: str
    default: Optional[int]


class Tree(BaseModel):
    name: str = Field(alias="fullName")
    data: bytes = b""
    children: list[Tree] = []


# Undeclared values

_KEYS = ["type", "text", "content", "isError", "structuredContent", "_meta", "data", "mimeType", "success", "result"]
_numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.decimals(allow_nan=False)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(_KEYS), inner),
    max_leaves=12,
)
_blocks = st.sampled_from(
    [
        {"type": "text", "text": "x"},
        mcp_types.TextContent(type="text", text="x"),
        Image(b"GIF89a"),
        {"type": "resource_link", "uri": "mem:x", "name": "x"},
        {"type": "image", "data": "eA==", "mimeType": "image/png"},
        b"\xff\xfb",
        b"bytes",
    ]
)
_canonical = st.fixed_dictionaries(
    {"content": st.lists(_blocks | _json, max_size=3), "isError": st.booleans() | _json},
    optional={"structuredContent": _json, "_meta": st.dictionaries(st.text(), _json) | _json, "more": _json},
)
_odd = st.sampled_from(
    [float("nan"), "\ud800", object(), Color.RED, 10**400, {"\udc80": 1}, (), set(), Tree(fullName="x")]
)
_anything = st.recursive(
    _json | _blocks | _odd | _canonical | st.binary() | _numbers | st.datetimes() | st.uuids(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=6,
)


# Declared values: pairs of a type and values of it


def _leaf(annotation: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.tuples(st.just(annotation), values)


_trees = st.recursive(
    st.builds(lambda name: Tree(fullName=name), st.text(max_size=3)),
    lambda inner: st.builds(
        lambda name, data, inside: Tree(fullName=name, data=data, children=inside),
        *(st.text(max_size=3), st.binary(max_size=3), st.lists(inner, max_size=2)),
    ),
    max_leaves=4,
)
_leaves = (
    _leaf(int, st.integers())
    | _leaf(float, st.floats(allow_nan=False, allow_infinity=False))
    | _leaf(str, st.text())
    | _leaf(bool, st.booleans())
    | _leaf(list[bytes], st.lists(st.binary(max_size=3), max_size=2))
    | _leaf(dt.datetime, st.datetimes())
    | _leaf(dt.date, st.dates())
    | _leaf(dt.timedelta, st.timedeltas(max_value=dt.timedelta(days=9), min_value=dt.timedelta()))
    | _leaf(uuid.UUID, st.uuids())
    | _leaf(decimal.Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=2))
    | _leaf(pathlib.Path, st.just(pathlib.Path("a/b")))
    | _leaf(Color, st.sampled_from(Color))
    | _leaf(Literal["a", 1, None], st.sampled_from(["a", 1, None]))
    | _leaf(Point, st.builds(Point, st.integers(), st.none() | st.text()))
    | _leaf(Options, st.fixed_dictionaries({}, optional={"title": st.text(), "default": st.none() | st.integers()}))
    | _leaf(Tree, _trees)
    | _leaf(Any, _json)
)


@st.composite
def _composed(draw: st.DrawFn, inner: st.SearchStrategy[tuple[Any, Any]]) -> tuple[Any, Any]:
    annotation, value = draw(inner)
    kind = draw(st.sampled_from(["list", "dict", "optional", "tuple", "union"]))
    if kind == "list":
        return list[annotation], [value] * draw(st.integers(0, 2))
    if kind == "dict":
        return dict[str, annotation], {draw(st.text(max_size=3)): value}
    if kind == "optional":
        return Optional[annotation], draw(st.sampled_from([None, value]))
    other, more = draw(inner)
    if kind == "tuple":
        return tuple[annotation, other], (value, more)
    return annotation | other if annotation is not Any and other is not Any else Any, draw(
        st.sampled_from([value, more])
    )


_typed = st.recursive(_leaves, _composed, max_leaves=4)


# What has to hold


def conforms(payload: Any) -> None:
    """Three oracles: the shared schema, the types of another library, and the writer of strict JSON."""
    get_validator().validate(payload)
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False).encode()
    read = mcp_types.CallToolResult.model_validate_json(text)
    assert payload["isError"] == read.is_error
    assert len(payload["content"]) == len(read.content)
    projected = to_text_only(payload)
    get_validator(MCP_TOOL_RESULT_TEXT_SCHEMA_V1).validate(projected)


async def called(value: Any, annotation: Any) -> Outcome:
    async with Runtime.open("nowhere") as runtime:

        async def run():
            return value

        if annotation is not None:
            run.__annotations__["return"] = annotation
        return await runtime.entry_of(skill_command(run).__prowess__).call({})


def shown(outcome: Outcome) -> None:
    """Every profile shows what conforms, and what meets the output schema it shows."""
    assert outcome.contract is not None
    for name, profile in BUILT_IN.items():
        for boxed in (True, False):
            payload = outcome.payload(name, boxed=boxed)
            conforms(payload)
            schema = profile.output_schema(outcome.contract, boxed=boxed)
            if schema is not None and outcome.ok:
                Draft202012Validator(schema).validate(payload["structuredContent"])


@_MANY
@given(_json)
def test_json_is_always_sent(value: Any) -> None:
    """Whatever JSON can say becomes a payload that conforms, and normalizing it again changes nothing."""
    try:
        payload = normalize_mcp_tool_result(value)
    except ValueError:  # it claims to be a payload, or a block, and is none
        with pytest.raises(ValueError, match=r"^MCP tool result schema violation at "):
            normalize_mcp_tool_result(value)
        return
    conforms(payload)
    assert payload == normalize_mcp_tool_result(payload)


@_MANY
@given(_anything)
def test_any_value_gives_an_outcome_that_can_be_sent(value: Any) -> None:
    """Data, content, payloads, and what can be none of them."""
    outcome = asyncio.run(called(value, None))
    assert outcome.kind in ("ok", "failed", "output")
    shown(outcome)


@_MANY
@given(_typed)
def test_typed_values_meet_the_schema_that_is_shown(typed: tuple[Any, Any]) -> None:
    """By construction, in every profile: nothing is checked at the wire that could still fail."""
    annotation, value = typed
    outcome = asyncio.run(called(value, annotation))
    assert "ok" == outcome.kind, outcome.text
    shown(outcome)


@_MANY
@given(_typed, _anything)
def test_wrong_values_of_a_declared_type_are_refused_or_conform(typed: tuple[Any, Any], value: Any) -> None:
    """A value that is not of its type fails the call; there is nothing between."""
    outcome = asyncio.run(called(value, typed[0]))
    assert outcome.kind in ("ok", "failed", "output")
    shown(outcome)
