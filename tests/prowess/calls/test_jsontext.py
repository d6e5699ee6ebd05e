"""JSON text where the schema wants an array or an object: decoded where no text may stand, and nowhere else."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, Discriminator, Field

from prowess import Outcome, Runtime, skill_command
from prowess.calls.jsontext import decode_texts
from prowess.contracts.declaration import declaration_of


class Point(BaseModel):
    x: int
    tags: list[str] = []
    near: list[Point] = []


@dataclass
class Span:
    start: int
    names: list[str]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: list[int]


class Dog(BaseModel):
    kind: Literal["dog"]
    lives: str


async def give(tmp_path: Path, annotation: Any, sent: Any, **options: Any) -> Outcome:
    """A command with one parameter, called with JSON."""

    def function(it) -> Any:
        return it

    function.__annotations__["it"] = annotation
    async with Runtime.open(tmp_path) as runtime:
        declared = declaration_of(skill_command(**options)(function))
        assert declared is not None
        return await runtime.entry_of(declared).call({"it": sent})


DECODED = [
    (list[int], "[1,2]", [1, 2]),
    (list[int] | None, " [1, 2] ", [1, 2]),
    (list[int] | None, "null", None),
    (int | None, "null", None),
    (dict[str, int], '{"a":1}', {"a": 1}),
    (Point, '{"x":1}', {"x": 1, "tags": [], "near": []}),
    (Point | None, '{"x":"1"}', {"x": 1, "tags": [], "near": []}),
    (Span, '{"start":1,"names":["a"]}', {"start": 1, "names": ["a"]}),
    (tuple[int, list[int]], '[1,"[2]"]', [1, [2]]),
    (set[int], "[1]", [1]),
    (Sequence[int], "[1]", [1]),
    (Mapping[str, list[int]], {"a": "[1]"}, {"a": [1]}),
    (list[Point], ['{"x":1}', {"x": 2, "tags": '["a"]'}], [1, 2]),
    (Point, {"x": 1, "near": '[{"x":2,"near":"[]"}]'}, None),
    (int | list[int], "[1]", [1]),
    (Literal["asc", "desc"] | list[str], '["asc"]', ["asc"]),
    (list[Literal["all"] | list[int]], '["all","[1]"]', ["all", [1]]),
    (Literal[1, 2] | list[int], "[1]", [1]),
    (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "cat", "lives": "[9]"}, None),
    (Annotated[Cat | Dog, Discriminator("kind")], '{"kind":"dog","lives":"[9]"}', {"kind": "dog", "lives": "[9]"}),
    (list[list[int]], '["[1]"]', [[1]]),
]


@pytest.mark.parametrize("annotation, sent, value", DECODED)
async def test_text_becomes_data_where_data_is_wanted(tmp_path: Path, annotation: Any, sent: Any, value: Any):
    """And the result says where."""
    outcome = await give(tmp_path, annotation, sent)
    assert outcome.ok, outcome.text
    if value == [1, 2] and annotation == list[Point]:
        assert ["it[0]", "it[1].tags"] == outcome.payload()["_meta"]["prowess/decoded"]
    elif value is not None or annotation != Point:
        assert value is None or value == outcome.value
    assert outcome.payload()["_meta"]["prowess/decoded"]


KEPT = [
    (str, "[1,2]"),
    (Any, "[1,2]"),
    (object, '{"a":1}'),
    (str | list[int], "[1,2]"),
    (list[int] | str | None, "null"),
    (list[str], ["[1]"]),
    (dict[str, Any], {"a": "[1]"}),
    (dict, {"a": "[1]"}),
    (list, ["[1]"]),
    (Path, "[1]"),
    (Literal["[1]", "x"], "[1]"),
    (Literal["[1]"] | list[int], "[1]"),
]


@pytest.mark.parametrize("annotation, sent", KEPT)
async def test_a_text_that_fits_is_a_text(tmp_path: Path, annotation: Any, sent: Any):
    """Whatever it looks like."""
    outcome = await give(tmp_path, annotation, sent)
    assert outcome.ok, outcome.text
    assert sent == outcome.value
    assert "_meta" not in outcome.payload()


WRONG = [
    (list[int], "1,2", "expected an array"),
    (list[int], '{"a":1}', "expected an array"),
    (list[int], "[1,", "expected an array"),
    (list[int], "[NaN]", "expected an array"),
    (list[int], "[" * 100_000, "expected an array"),
    (list[int], '["a"]', 'it[0]: expected an integer, got "a"'),
    (Point, "{}", "it.x: required"),
    (bytes, "[1]", "it: expected a string in base64"),
    (Point, "[1]", "expected an object"),
    (dt.date, "[1]", "it: "),
    (list[int] | dt.date, "[1,", "it: "),
    (Annotated[list[int], BeforeValidator(lambda text: [int(part) for part in text.split(",")])], "[1]", "it: "),
]


@pytest.mark.parametrize("annotation, sent, problem", WRONG)
async def test_what_does_not_fit_is_refused(tmp_path: Path, annotation: Any, sent: Any, problem: str):
    """With the problem of what the text says, where it was decoded."""
    outcome = await give(tmp_path, annotation, sent)
    assert "input" == outcome.kind
    assert problem in outcome.text


async def test_numbers_and_flags_are_read_from_texts(tmp_path: Path):
    """By the types themselves: this is not decoding."""
    for annotation, sent, value in ((int, "3", 3), (bool, "true", True), (float | None, "1.5", 1.5)):
        outcome = await give(tmp_path, annotation, sent)
        assert value == outcome.value
        assert "_meta" not in outcome.payload()


@pytest.mark.parametrize(
    "schema, sent, value",
    [
        ({"type": "array"}, "[1]", [1]),
        ({"type": ["array", "null"]}, "null", None),
        ({"type": "object", "patternProperties": {"^a": {"type": "array"}}}, {"a": "[1]"}, {"a": [1]}),
        ({"type": "array", "prefixItems": [{"type": "array"}, {"type": "string"}]}, ["[1]", "[1]"], [[1], "[1]"]),
        ({"allOf": [{"type": "array"}, {"type": "array", "minItems": 1}]}, "[1]", [1]),
    ],
)
async def test_an_explicit_schema_that_wants_data_gets_it(tmp_path: Path, schema: Any, sent: Any, value: Any):
    """It says what may stand where."""
    given = {"type": "object", "properties": {"it": schema}, "required": ["it"]}
    outcome = await give(tmp_path, Any, sent, input_schema=given)
    assert outcome.ok, outcome.text
    assert (value, ("it.a",) if isinstance(sent, dict) else ("it[0]",) if isinstance(sent, list) else ("it",)) == (
        outcome.value,
        outcome.decoded,
    )


@pytest.mark.parametrize("it", [{}, True, {"minItems": 1}, {"$ref": "#/properties/it"}, {"anyOf": [{"minItems": 1}]}])
def test_an_explicit_schema_that_says_nothing_decodes_nothing(it: Any):
    """A text may stand there, or nobody knows."""
    schema = {"type": "object", "properties": {"it": it}}
    assert ({"it": "[1]"}, []) == decode_texts(schema, {"it": "[1]"})
    assert ({"other": "[1]"}, []) == decode_texts({**schema, "additionalProperties": False}, {"other": "[1]"})
    assert ({"it": {"a": ["[1]"]}}, []) == decode_texts(schema, {"it": {"a": ["[1]"]}})


def test_texts_in_texts_and_nesting_are_bounded():
    """Clients encode once, or twice by mistake."""
    schema = {"$ref": "#/$defs/l", "$defs": {"l": {"type": "array", "items": {"$ref": "#/$defs/l"}}}}
    text: Any = []
    for _ in range(10):
        text = [json.dumps(text)]
    _, paths = decode_texts({"type": "object", "properties": {"it": schema}, "$defs": schema["$defs"]}, {"it": text})
    assert 8 == len(paths)
    deep: Any = "[]"
    for _ in range(100):
        deep = [deep]
    assert (
        [] == decode_texts({"type": "object", "properties": {"it": schema}, "$defs": schema["$defs"]}, {"it": deep})[1]
    )


async def test_the_arguments_themselves_may_be_text(tmp_path: Path):
    """As some clients send them."""

    @skill_command
    def function(n: int, them: list[int] | None = None) -> int:
        return n

    async with Runtime.open(tmp_path) as runtime:
        declared = declaration_of(function)
        assert declared is not None
        entry = runtime.entry_of(declared)
        outcome = await entry.call('{"n":1,"them":"[2]"}')
        assert (1, ("arguments", "them")) == (outcome.value, outcome.decoded)
        for wrong in ("[1]", "n=1", "null", "{"):
            assert f'arguments: expected an object, got "{wrong}"' in (await entry.call(wrong)).text


async def test_python_code_means_what_it_says(tmp_path: Path):
    """A direct call passes values, not what some client made of them."""

    @skill_command
    def function(them: list[int]) -> int:
        return len(them)

    async with Runtime.open(tmp_path):
        assert function("[1]")["isError"]
