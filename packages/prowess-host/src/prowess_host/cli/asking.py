"""Puts the questions of a command to the person at the terminal: a form, field by field."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from prowess.jsontypes import Json, JsonObject
from prowess_host.cli.parameters import type_in_words
from prowess_host.cli.terminal import Style

__all__ = ["LineReader", "answer_questions", "can_ask"]

_CHUNK: Final = 64 * 1024
_YES: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_PATTERNS: Final = {
    "email": (re.compile(r"[^@\s]+@[^@\s]+"), "an address like name@example.org"),
    "date": (re.compile(r"\d{4}-\d\d-\d\d"), "a date like 2026-01-31"),
    "date-time": (re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d.*"), "a time like 2026-01-31T12:00:00Z"),
    "uri": (re.compile(r"\w[\w+.-]*:\S+"), "an address like https://example.org"),
}


def can_ask() -> bool:
    """Whether there is a person at a terminal who can read a question and type an answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class _EndOfInputError(Exception):
    """The person typed Ctrl-D."""


class LineReader:
    """Reads lines from the terminal without blocking the event loop."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""

    async def line(self) -> str:
        """The next line, without its end."""
        while b"\n" not in self._rest:
            data = await self._data()
            if not data:
                raise _EndOfInputError
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace").strip()

    async def _data(self) -> bytes:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_reader(self._descriptor, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(self._descriptor)
        return os.read(self._descriptor, _CHUNK)


async def answer_questions(questions: JsonObject, line: Callable[[], Awaitable[str]]) -> JsonObject:
    """Put questions to the person, one after the other. Returns an action and a content for each."""
    return {
        key: await (_visit(each, line) if "url" in each else _answer(each["message"], each["schema"], line))
        for key, each in questions.items()
    }


async def _visit(question: JsonObject, line: Callable[[], Awaitable[str]]) -> JsonObject:
    """Show the address of a page. The person opens it, and so sees where it leads."""
    style = Style.of(sys.stderr)
    _print(f"{style('?', 'bold', 'cyan')} {style(question['message'], 'bold')}\n  {question['url']}\n")
    try:
        agreed = await _field("opened", {"type": "boolean"}, line, required=True)
    except _EndOfInputError:
        _print("\n")
        return {"action": "cancel"}
    return {"action": "accept" if agreed else "decline"}


async def _answer(message: str, schema: JsonObject, line: Callable[[], Awaitable[str]]) -> JsonObject:
    style = Style.of(sys.stderr)
    _print(f"{style('?', 'bold', 'cyan')} {style(message, 'bold')}\n")
    fields = cast("JsonObject", schema.get("properties") or {})
    required = set(schema.get("required", ()))
    content: JsonObject = {}
    try:
        if not fields:
            agreed = await _field("agree", {"type": "boolean"}, line, required=True)
            return {"action": "accept", "content": {}} if agreed else {"action": "decline"}
        for name, field in fields.items():
            value = await _field(name, field, line, required=name in required)
            if value is not None:
                content[name] = value
    except _EndOfInputError:
        _print("\n")
        return {"action": "cancel"}
    return {"action": "accept", "content": content}


async def _field(name: str, schema: JsonObject, line: Callable[[], Awaitable[str]], *, required: bool) -> Json:
    """Ask for one field until the answer is valid. An empty line takes the default, or omits the field."""
    style = Style.of(sys.stderr)
    default = schema.get("default")
    hint = _hint(schema)
    if default is not None:
        hint += f", {json.dumps(default, ensure_ascii=False)} if empty"
    elif not required:
        hint += ", may be empty"
    if schema.get("description"):
        _print(style(f"  {schema['description']}\n", "dim"))
    label = str(schema.get("title") or name)
    while True:
        _print(f"  {label} {style(f'({hint})', 'dim')}: ")
        text = await line()
        if not text and (default is not None or not required):
            return default
        try:
            return _read(text, schema)
        except ValueError as error:
            _print(style(f"  {error}\n", "red"))


def _hint(schema: JsonObject) -> str:
    if schema.get("type") == "boolean":
        return "y/n"
    choices = _choices(schema)
    if choices:
        return ", ".join(choices)
    bounds = [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    return " ".join([type_in_words(schema, schema), *bounds])


def _choices(schema: JsonObject) -> dict[str, Json]:
    """The choices by the text to type: a value, or the name shown for it."""
    values: list[Any] = schema.get("enum", [])
    if not values:
        titled = [each for each in schema.get("oneOf", schema.get("anyOf", ())) if "const" in each]
        return {str(each.get("title", each["const"])): each["const"] for each in titled}
    names: list[Any] = schema.get("enumNames", values)
    return {str(name): value for name, value in zip(names, values, strict=False)}


def _read(text: str, schema: JsonObject) -> Json:
    """Convert the typed text to the type of the field. Raises `ValueError` with the reason."""
    choices = _choices(schema)
    if choices:
        fitting = [value for name, value in choices.items() if text in (name, str(value))]
        if not fitting:
            raise ValueError(f"one of: {', '.join(choices)}")
        return fitting[0]
    kind = schema.get("type")
    if kind == "boolean":
        if text.lower() not in _YES:
            raise ValueError("y or n")
        return _YES[text.lower()]
    if kind in ("integer", "number"):
        return _number(text, schema)
    if kind == "array":
        return [_read(part.strip(), schema.get("items", {})) for part in text.split(",") if part.strip()]
    return _text(text, schema)


def _number(text: str, schema: JsonObject) -> Json:
    try:
        number = int(text) if schema.get("type") == "integer" else float(text)
    except ValueError:
        raise ValueError("a whole number" if schema.get("type") == "integer" else "a number") from None
    if number < schema.get("minimum", number):
        raise ValueError(f"at least {schema['minimum']}")
    if number > schema.get("maximum", number):
        raise ValueError(f"at most {schema['maximum']}")
    return number


def _text(text: str, schema: JsonObject) -> str:
    if len(text) < schema.get("minLength", 0):
        raise ValueError(f"at least {schema['minLength']} characters")
    if len(text) > schema.get("maxLength", len(text)):
        raise ValueError(f"at most {schema['maxLength']} characters")
    pattern, example = _PATTERNS.get(str(schema.get("format")), (None, ""))
    if pattern is not None and not pattern.fullmatch(text):
        raise ValueError(example)
    return text


def _print(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
