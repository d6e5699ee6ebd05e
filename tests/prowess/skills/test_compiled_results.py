"""The compiler and results: their schemas, `output`, `output_schema`, `output_field`, and what breaks the contract."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, NoReturn, TypeVar

import pytest
import typing_extensions
from mcp_types import CallToolResult
from pydantic import BaseModel, Field, model_serializer
from tests.prowess.skills.odd_types import Color, Described, Foreign

from prowess import Audio, Image, Runtime

T = TypeVar("T")


@dataclass
class Note:
    text: str
    when: dt.date | None = None


class Page(BaseModel, Generic[T]):
    items: list[T]


class Kept(NamedTuple):
    a: int


@pytest.mark.parametrize(
    "returns, schema",
    [
        (int, {"type": "integer"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Color, {"enum": ["red"], "type": "string"}),
        (Iterator[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple[Image, int], {"type": "integer"}),
        (Annotated[int, Field(ge=1)], {"type": "integer", "minimum": 1}),
    ],
)
def test_results_have_a_schema(contract: Any, returns: Any, schema: Any):
    """That of what is sent, not of what is returned."""

    def function() -> None: ...

    assert schema == contract(function, output=returns).output.schema


def unannotated(): ...


@pytest.mark.parametrize(
    "returns", [None, type(None), Any, NoReturn, typing_extensions.Never, Image, Audio, bytes, list[Image], str | Image]
)
def test_content_and_nothing_have_no_schema(contract: Any, returns: Any):
    """There is no data to promise."""

    def function() -> None: ...

    function.__annotations__["return"] = returns
    assert contract(function).output.schema is None
    assert contract(unannotated).output.schema is None


@pytest.mark.parametrize(
    "returns, name",
    [
        (Note, "Note"),
        (Note | None, "Note"),
        (Described, "Described"),
        (Page[int], "Page"),
        (list[Note], None),
        (Kept, None),
        (int, None),
        (Note | Described, None),
    ],
)
def test_structures_have_a_name(contract: Any, returns: Any, name: str | None):
    """By which profiles may call the box."""

    def function() -> None: ...

    assert name == contract(function, output=returns).output.type_name


async def test_output_declares_what_is_not_annotated(entry: Any):
    """Results are checked by it."""

    def function(good: bool):
        return "7" if good else "seven"

    compiled = entry(function, output=int)
    assert {"type": "integer"} == compiled.contract.output.schema
    assert 7 == (await compiled.call({"good": True})).value
    assert "output" == (await compiled.call({"good": False})).kind


@pytest.mark.parametrize(
    "annotated, output",
    [
        (str, int),
        (int, str),
        (dict[str, int], list[int]),
        (list[int], Note),
        (Note, str),
        (Iterator[int], dict),
        (float, bool),
    ],
)
def test_output_may_not_contradict_the_annotation(refusal: Any, annotated: Any, output: Any):
    """One of them is a mistake, and no value would pass."""

    def function() -> None: ...

    function.__annotations__["return"] = annotated
    reason = refusal(function, output=output)
    assert "of test_compiled_results.function contradicts the annotation -> " in reason
    assert "Keep the one that is true" in reason


@pytest.mark.parametrize(
    "annotated, schema, fits",
    [
        (int, {"type": "string"}, False),
        (list[int], {"type": ["object", "null"]}, False),
        (bool, {"$ref": "#/$defs/N", "$defs": {"N": {"type": "number"}}}, False),
        (int, {"type": "number"}, True),
        (int, {"minimum": 1}, True),
        (Any, {"type": "string"}, True),
        (Foreign, {"type": "string"}, True),
        (dict[str, int], {"type": "array"}, True),  # it may be a whole result with an array as its data
        (tuple[Image, Note], {"type": "object"}, True),
        (Image, {"type": "object"}, True),
    ],
)
def test_an_output_schema_may_not_contradict_the_annotation(
    contract: Any, refusal: Any, annotated: Any, schema: Any, fits: bool
):
    """Every result would break it."""

    def function() -> None: ...

    function.__annotations__["return"] = annotated
    if fits:
        assert contract(function, output_schema=schema)
    else:
        reason = refusal(function, output_schema=schema)
        assert "output_schema of test_compiled_results.function contradicts the annotation -> " in reason
        assert ", which is written as " in reason


@pytest.mark.parametrize(
    "annotated, output",
    [
        (dict[str, Any], Note),
        (float, int),
        (int | str, int),
        (Any, int),
        (object, int),
        (Image, int),
        (str, Path),
        (Iterator[int], list[int]),
        (int, Any),
        (Foreign, int),
        ("Unknown", int),
    ],
)
def test_output_may_say_more_than_the_annotation(contract: Any, annotated: Any, output: Any):
    """Or where that says nothing, cannot be resolved, or has no schema."""

    def function() -> None: ...

    function.__annotations__["return"] = annotated
    assert contract(function, output=output)


def test_output_beside_any_schema_does_nothing(refusal: Any):
    """The permissive schema takes everything."""

    def function(): ...

    assert 'has no effect beside output_schema="any"' in refusal(function, output=int, output_schema="any")


@pytest.mark.parametrize("returns", [None, NoReturn, Image, bytes, list[Image], str | Image])
def test_an_output_field_without_data_is_refused(refusal: Any, returns: Any):
    """No profile would ever box such a result."""

    def function() -> None: ...

    function.__annotations__["return"] = returns
    reason = refusal(function, output_field="sum")
    assert "output_field='sum' of test_compiled_results.function has no effect" in reason
    assert "Drop it, or return data" in reason


@pytest.mark.parametrize("returns", [str, Note, Any, CallToolResult, CallToolResult | None, tuple[list[Image], int]])
def test_an_output_field_with_data_is_taken(contract: Any, returns: Any):
    """Some profile boxes it."""

    def function() -> None: ...

    function.__annotations__["return"] = returns
    assert "sum" == contract(function, output_field="sum").output.field
    assert "sum" == contract(function, output_field="sum", output_schema={"type": "string"}).output.field


async def test_an_output_field_in_a_profile_of_text_is_refused(tmp_path: Path):
    """The profile that the command is pinned to shows no data."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "a.py").write_text(
        "from prowess import skill_command\n@skill_command(profile='omni', output_field='sum')\ndef f() -> int: ...\n"
    )
    async with Runtime.open(tmp_path) as runtime:
        (failure,) = runtime.catalog().failures
    assert "output_field='sum' has no effect: the profile 'omni' shows no data" in failure.reason


async def test_output_field_names_the_box(call: Any, contract: Any):
    """In the schema and in the payload; also where nothing was declared."""

    def function() -> int:
        return 7

    def undeclared():
        return 7

    assert "sum" == contract(function, output_field="sum").output.field
    for command in (function, undeclared):
        payload = (await call(command, output_field="sum")).payload()
        assert {"sum": 7} == payload["structuredContent"]


async def test_an_explicit_output_schema_is_used_as_given(entry: Any):
    """Results are validated by it, besides their type."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}, "required": ["n"]}

    def function(n: int) -> dict[str, int]:
        return {"n": n}

    compiled = entry(function, output_schema=schema)
    assert (schema, True) == (compiled.contract.output.schema, compiled.contract.output.explicit)
    assert {"n": 3} == (await compiled.call({"n": 3})).value
    broken = await compiled.call({"n": 4})
    assert "output" == broken.kind
    assert "n: expected at most 3, got 4" in broken.text


async def test_an_explicit_output_schema_vouches_for_types_without_one(call: Any):
    """And for results that nobody annotated."""

    def foreign() -> Foreign:
        return {"n": 1}

    for command in (foreign, lambda: {"n": 1}):
        outcome = await call(command, name="x", output_schema={"type": "object", "required": ["n"]})
        assert {"n": 1} == outcome.value


async def test_any_output_is_data_of_any_kind(entry: Any):
    """Promised as that, and sent as structured content."""

    def function(text: str):
        return text

    compiled = entry(function, output_schema="any")
    assert {} == compiled.contract.output.schema
    assert {"result": "x"} == (await compiled.call({"text": "x"})).payload()["structuredContent"]


class Broken(BaseModel):
    n: int = Field(ge=1)


async def test_a_result_that_breaks_the_contract_fails_the_call(call: Any):
    """An instance that was made without validation, or changed, is no proof."""

    def made() -> Broken:
        return Broken.model_construct(n=0)

    def mutated() -> list[Broken]:
        broken = Broken(n=1)
        broken.n = -1
        return [broken]

    for command in (made, mutated):
        outcome = await call(command)
        assert "output" == outcome.kind
        assert "the result breaks the declared output schema" in outcome.text


class Unsaid(BaseModel):
    n: int
    as_text: bool = Field(default=False, exclude=True)

    @model_serializer
    def write(self):
        return {"n": str(self.n)} if self.as_text else {"n": self.n}


async def test_a_serializer_that_does_not_say_what_it_returns_is_watched(call: Any):
    """Its schema may be wrong: then the call fails, and no client sees what was not promised."""

    def function(as_text: bool) -> Unsaid:
        return Unsaid(n=1, as_text=as_text)

    assert {"n": 1} == (await call(function, {"as_text": False})).value
    assert 'n: expected integer, got "1"' in (await call(function, {"as_text": True})).text
