from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from prowess_host.cli.asking import LineReader, answer_questions


def asked(schema: dict[str, Any], *typed: str) -> Any:
    """What the answers to one form come to."""
    lines = iter(typed)

    async def line() -> str:
        return next(lines)

    async def ask() -> Any:
        return (await answer_questions({"q": {"message": "Well?", "schema": schema}}, line))["q"]

    answer = asyncio.run(ask())
    assert [] == list(lines), "asked for less than was typed"
    return answer


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        ({"type": "string"}, ["x"], "x"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["x", "long", "abc"], "abc"),
        ({"type": "string", "format": "email"}, ["me", "me@example.org"], "me@example.org"),
        ({"type": "integer", "minimum": 1, "maximum": 3}, ["x", "0", "4", "2"], 2),
        ({"type": "number"}, ["x", "1.5"], 1.5),
        ({"type": "boolean"}, ["perhaps", "Y"], True),
        ({"type": "boolean", "default": True}, [""], True),
        ({"enum": ["a", "b"]}, ["c", "b"], "b"),
        ({"enum": [1, 2]}, ["2"], 2),
        ({"enum": ["a", "b"], "enumNames": ["First", "Second"]}, ["Second"], "b"),
        ({"oneOf": [{"const": "a", "title": "First"}, {"const": "b"}]}, ["First"], "a"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, ["a,c", "a, b"], ["a", "b"]),
    ],
)
def test_field_is_asked_for_until_the_answer_fits(field: dict[str, Any], typed: list[str], value: Any) -> None:
    """Each with what it may be."""
    schema = {"type": "object", "properties": {"x": field}, "required": ["x"]}
    assert {"action": "accept", "content": {"x": value}} == asked(schema, *typed)


@pytest.mark.parametrize(("typed", "action"), [(["perhaps", "y"], "accept"), (["n"], "decline")])
def test_a_page_is_shown_by_its_whole_address(
    typed: list[str], action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The person opens it, and says whether they did."""
    lines = iter(typed)

    async def line() -> str:
        return next(lines)

    question = {"ask": "url", "message": "Log in", "url": "https://example.org/login?x=1"}
    assert {"q": {"action": action}} == asyncio.run(answer_questions({"q": question}, line))
    assert "https://example.org/login?x=1" in capsys.readouterr().err


def test_optional_field_may_be_left_empty() -> None:
    """It is then left out."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "title": "X", "description": "Any."}}}
    assert {"action": "accept", "content": {}} == asked(schema, "")


def test_question_without_fields_is_yes_or_no() -> None:
    """A no declines."""
    schema = {"type": "object", "properties": {}}
    assert {"action": "accept", "content": {}} == asked(schema, "y")
    assert {"action": "decline"} == asked(schema, "n")


async def test_lines_are_read_on_the_event_loop() -> None:
    """Several at once, or in pieces."""
    reading, writing = os.pipe()
    reader = LineReader(reading)
    os.write(writing, b"one\ntwo\nthr")
    assert ["one", "two"] == [await reader.line(), await reader.line()]
    third = asyncio.ensure_future(reader.line())
    os.write(writing, b"ee\n")
    assert "three" == await third
    os.close(writing)
    os.close(reading)
