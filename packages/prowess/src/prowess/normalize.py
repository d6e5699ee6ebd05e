"""What a command returned becomes one canonical result: JSON data by the declared type, or content blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from prowess.adapters import Adapter, to_text
from prowess.content import as_blocks, as_payload
from prowess.errors import OutputError
from prowess.jsontypes import Json, JsonObject, Schema
from prowess.published import validate
from prowess.schemas.explicit import validate as validate_explicit

__all__ = ["Output", "Render", "Result", "normalize"]

Render = Callable[[Any], Any]
"""Asked about a value of a type nobody declared: gives something simpler to return instead, or the value itself."""

_MOST_PROBLEMS: Final = 5


@dataclass(frozen=True, slots=True)
class Result:
    """The canonical result of a command, before any profile."""

    value: Json = None
    """The value as JSON data; for content without data, `None`."""
    text: str = ""
    """The value as text: itself where it is text, else JSON."""
    blocks: tuple[JsonObject, ...] | None = None
    """Content blocks in the place of the text, where the command returned content."""
    structured: bool = False
    """Whether the value is also sent as data."""
    is_error: bool = False
    meta: JsonObject = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Output:
    """What a command promised to return, compiled."""

    adapter: Adapter | None = None
    schema: Schema | None = None
    """An explicit schema, by which results are validated."""
    pair: bool = False
    """Declared as a pair of content and data."""

    @property
    def declared(self) -> bool:
        return self.adapter is not None or self.schema is not None

    def check(self, value: Any) -> Json:
        """The value as JSON data that keeps the promise, or an `OutputError` that says where it does not."""
        data = _typed(self.adapter, value) if self.adapter else _untyped(value)
        problems = validate_explicit(self.schema, data) if self.schema is not None else []
        if problems:
            raise OutputError(_broken(problems))
        return data


UNDECLARED: Final = Output()


def normalize(value: Any, output: Output = UNDECLARED, render: Render | None = None) -> Result:
    """The one way from a returned value to a result. Raises `OutputError` for what cannot be sent."""
    payload = as_payload(value)
    if payload is not None:
        return _from_payload(payload, output)
    if output.pair:
        return _from_pair(value, output)
    if output.declared:
        return _from_data(output.check(value), structured=True)
    if render is not None:
        value = render(value)
        payload = as_payload(value)
        if payload is not None:
            return _from_payload(payload, output)
    blocks = _blocks(value)
    if blocks is not None:
        return Result(blocks=blocks)
    data = _untyped(value)
    return _from_data(data, structured=not isinstance(data, (str, type(None))))


def _from_data(data: Json, *, structured: bool) -> Result:
    try:
        text = data if isinstance(data, str) else "" if data is None else to_text(data)
        text.encode()
    except (ValueError, RecursionError) as error:
        raise OutputError(f"the result cannot be sent as JSON: {error}") from error
    return Result(data, text, structured=structured)


def _from_payload(payload: JsonObject, output: Output) -> Result:
    try:
        validate(payload)
        to_text(payload)
    except ValueError as error:
        raise OutputError(str(error)) from error
    data: Json = payload.get("structuredContent")
    structured = "structuredContent" in payload
    is_error: bool = payload["isError"]
    if output.declared and not is_error:
        if not structured:
            raise OutputError("a result without structuredContent breaks the declared output schema")
        data = output.check(data)
    blocks: list[JsonObject] = payload["content"]
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    return Result(data, text, tuple(blocks), structured, is_error, payload.get("_meta", {}))


def _from_pair(value: Any, output: Output) -> Result:
    pair = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else ()
    blocks = _blocks(pair[0]) if len(pair) == 2 else None  # noqa: PLR2004 - a pair
    if blocks is None:
        raise OutputError(f"declared as a pair of content and data, but returned a {type(value).__name__}")
    data = _from_data(output.check(pair[1]), structured=True)
    return Result(data.value, data.text, blocks, structured=True)


def _blocks(value: Any) -> tuple[JsonObject, ...] | None:
    try:
        blocks = as_blocks(value)
    except ValueError as error:
        raise OutputError(str(error)) from error
    if blocks is None:
        return None
    result = {"content": blocks, "isError": False}
    return _from_payload(result, UNDECLARED).blocks


def _typed(adapter: Adapter, value: Any) -> Json:
    try:
        return adapter.dump(adapter.read(value))
    except ValidationError as error:
        problems = [_problem(item["loc"], item["msg"]) for item in error.errors(include_url=False)]
        raise OutputError(_broken(problems)) from error
    except Exception as error:  # an author's serializer may raise anything
        raise OutputError(f"the result cannot be written as JSON: {type(error).__name__}: {error}") from error


def _untyped(value: Any) -> Json:
    try:
        return to_jsonable_python(
            value, by_alias=True, bytes_mode="base64", inf_nan_mode="constants", fallback=_simpler
        )
    except OutputError:
        raise
    except Exception as error:  # an author's serializer, mapping or iterator may raise anything
        raise OutputError(f"the result cannot be written as JSON: {type(error).__name__}: {error}") from error


def _simpler(value: Any) -> Any:
    """Foreign mappings and iterables as the built-in ones."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, Iterable):
        return list(cast("Iterable[Any]", value))
    name = type(value).__qualname__
    remedy = "return plain data or annotate the result; a plugin can teach the type with `prowess_render`"
    raise OutputError(f"a {name} cannot be written as JSON; {remedy}")


def _problem(loc: tuple[int | str, ...], message: str) -> str:
    place = ".".join(str(part) for part in loc) or "the result"
    return f"{place}: {message[:1].lower()}{message[1:]}"


def _broken(problems: list[str]) -> str:
    shown = problems[:_MOST_PROBLEMS]
    more = len(problems) - len(shown)
    lines = "\n".join(f"- {problem}" for problem in [*shown, *([f"... and {more} more"] if more else [])])
    return f"the result breaks the declared output schema:\n{lines}"


def text_result(text: str, *, is_error: bool = False) -> Result:
    """A result that is nothing but text."""
    return Result(text=text, is_error=is_error)
