"""What a command returned becomes one canonical result: JSON data by the declared type, or content blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from prowess.adapters import Adapter, to_text
from prowess.content import as_block, as_payload, is_content, text_block
from prowess.errors import OutputError, message_of
from prowess.jsontypes import Json, JsonObject, Schema, new_object
from prowess.published import validate
from prowess.schemas.explicit import validate as validate_explicit

__all__ = ["Output", "Render", "Result", "normalize", "text_result"]

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
    meta: JsonObject = field(default_factory=new_object)


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
        """Whether results have to keep a promise."""
        return self.adapter is not None or self.schema is not None

    def check(self, value: Any, render: Render | None = None) -> Json:
        """The value as JSON data that keeps the promise, or an `OutputError` that says where it does not."""
        data = _typed(self.adapter, value) if self.adapter else _untyped(value, render)
        problems = validate_explicit(self.schema, data) if self.schema is not None else []
        if problems:
            raise OutputError(_broken(problems))
        return data


_UNDECLARED: Final = Output()
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_PLAIN: Final = _SCALARS | {dict}
"""Types that no plugin knows better."""


def normalize(value: Any, output: Output = _UNDECLARED, render: Render | None = None) -> Result:
    """The one way from a returned value to a result. Raises `OutputError` for what cannot be sent."""
    try:
        return _normalized(value, output, render)
    except OutputError:
        raise
    except (Exception, SystemExit) as error:  # an author's serializer, property or iterator may raise anything
        raise OutputError(
            f"the result cannot be written as JSON: {type(error).__name__}: {message_of(error)}"
        ) from error


def _normalized(value: Any, output: Output, render: Render | None) -> Result:
    payload = None if type(value) in _SCALARS else as_payload(value)
    if payload is not None:
        return _from_payload(payload, output)
    if output.pair:
        return _from_pair(value, output)
    if output.adapter is None and render is not None and type(value) not in _PLAIN:
        value = _rendered(value, render)
        payload = as_payload(value)
        if payload is not None:
            return _from_payload(payload, output)
    if output.declared:
        return _from_data(output.check(value, render), structured=True)
    blocks = _as_blocks(value)
    if blocks is not None:
        return Result(blocks=_checked(blocks))
    data = _untyped(value, render)
    return _from_data(data, structured=not isinstance(data, (str, type(None))))


def _from_data(data: Json, *, structured: bool) -> Result:
    text = _sendable(data)
    return Result(data, "" if data is None else text, structured=structured)


def _from_payload(payload: JsonObject, output: Output) -> Result:
    payload = _valid(payload)
    data: Json = payload.get("structuredContent")
    structured = "structuredContent" in payload
    is_error: bool = payload["isError"]
    if output.declared and not is_error:
        # Where the data is not set apart, the mapping itself is what was declared: `-> dict`.
        data, structured = output.check(data if structured else payload), True
    blocks: list[JsonObject] = payload["content"]
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    return Result(data, text, tuple(blocks), structured, is_error, payload.get("_meta", {}))


def _from_pair(value: Any, output: Output) -> Result:
    if not isinstance(value, tuple) or len(cast("tuple[Any, ...]", value)) != 2:
        raise OutputError(f"declared as a pair of content and data, but returned a {_kind(cast('object', value))}")
    content, checked = cast("tuple[Any, Any]", value)
    data = _from_data(output.check(checked), structured=True)
    blocks = [text_block(content)] if isinstance(content, str) else _as_blocks(content)
    if blocks is None:
        raise OutputError(f"declared as a pair of content and data, but the content is a {_kind(content)}")
    return Result(data.value, data.text, _checked(blocks), structured=True)


def _as_blocks(value: Any) -> list[JsonObject] | None:
    """The blocks of one content value, or of a list with content in it; `None` for data.

    Beside what can be nothing but content, other items of a list are shown as text.
    """
    if type(value) in _SCALARS:
        return None
    block = as_block(value)
    if block is not None:
        return [block]
    if not isinstance(value, (list, tuple)):
        return None
    items = cast("Sequence[Any]", value)
    odd = [item for item in items if type(item) not in _SCALARS and not isinstance(item, str)]
    if any(is_content(item) for item in odd):
        return [as_block(item) or text_block(_from_data(_untyped(item), structured=True).text) for item in items]
    blocks = [as_block(item) for item in odd]
    if not odd or None in blocks or len(odd) + sum(isinstance(item, str) for item in items) < len(items):
        return None
    return [text_block(item) if isinstance(item, str) else cast("JsonObject", as_block(item)) for item in items]


def _checked(blocks: list[JsonObject]) -> tuple[JsonObject, ...]:
    return tuple(_valid({"content": blocks, "isError": False})["content"])


def _valid(payload: JsonObject) -> JsonObject:
    """A payload as JSON data that conforms to the shared schema."""
    valid = cast("JsonObject", _untyped(payload))
    try:
        validate(valid)
    except ValueError as error:
        raise OutputError(str(error)) from error
    _sendable(valid)
    return valid


def _sendable(data: Json) -> str:
    """A text, or the JSON text of other data; an `OutputError` for what JSON or UTF-8 cannot hold."""
    try:
        if not isinstance(data, str):
            return to_text(data)
        data.encode()
    except (ValueError, RecursionError) as error:
        raise OutputError(f"the result cannot be sent as JSON: {error}") from error
    return data


def _typed(adapter: Adapter, value: Any) -> Json:
    try:
        return adapter.dump(adapter.read(value))
    except ValidationError as error:
        problems = [_problem(item["loc"], item["msg"]) for item in error.errors(include_url=False)]
        raise OutputError(_broken(problems)) from error


def _untyped(value: Any, render: Render | None = None) -> Json:
    def simpler(inner: Any) -> Any:
        rendered = inner if render is None else render(inner)
        return _simpler(inner) if rendered is inner else rendered

    def write(outer: Any) -> Json:
        return to_jsonable_python(outer, by_alias=True, bytes_mode="base64", inf_nan_mode="constants", fallback=simpler)

    try:
        return write(value)
    except UnicodeDecodeError:  # a model takes its bytes for UTF-8, unless its own type writes it as we want it
        return write(_by_type(value))


def _by_type(value: Any) -> Any:
    """The value with every model in it written by its type."""
    if isinstance(value, BaseModel):
        return Adapter(type(value)).dump(value)
    if isinstance(value, Mapping):
        return {key: _by_type(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_by_type(item) for item in cast("Iterable[Any]", value)]
    return value


def _rendered(value: Any, render: Render) -> Any:
    """What plugins make of a value, or of the items of a list."""
    if type(value) in (list, tuple):
        return [item if type(item) in _PLAIN else render(item) for item in cast("Sequence[Any]", value)]
    return render(value)


def _simpler(value: Any) -> Any:
    """Foreign mappings and collections as the built-in ones, a path of another system as text."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, (Iterator, Sequence, AbstractSet, MappingView)):
        return list(cast("Iterable[Any]", value))
    if isinstance(value, PurePath):
        return str(value)
    remedy = "return plain data or annotate the result; a plugin can teach the type with `prowess_render`"
    raise OutputError(f"a {_kind(value)} cannot be written as JSON; {remedy}")


def _kind(value: object) -> str:
    return type(value).__qualname__


def _problem(loc: tuple[int | str, ...], message: str) -> str:
    place = ".".join(str(part) for part in loc) or "the result"
    return f"{place}: {message[:1].lower()}{message[1:]}"


def _broken(problems: list[str]) -> str:
    shown = problems[:_MOST_PROBLEMS]
    more = len(problems) - len(shown)
    lines = "\n".join(f"- {problem}" for problem in [*shown, *([f"... and {more} more"] if more else [])])
    return f"the result breaks the declared output schema:\n{lines}"


def text_result(text: str, *, is_error: bool = False) -> Result:
    """A result that is nothing but text. What UTF-8 cannot hold is escaped: such a text often quotes a stranger's value."""
    return Result(text=text.encode(errors="backslashreplace").decode(), is_error=is_error)
