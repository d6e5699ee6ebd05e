"""Turns a returned value into one canonical result: JSON data of the declared type, or content blocks."""

from __future__ import annotations

import functools
import json
import math
import operator
from collections import UserString, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from pathlib import PurePath
from typing import Any, Final, NamedTuple, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from prowess.errors import OutputError
from prowess.frozen import frozen
from prowess.jsontypes import Json, JsonObject, Schema, encodable, new_object
from prowess.results.content import as_block, as_payload, check_data, is_content, placeholder, text_block
from prowess.results.entries import fields_may_meet, keys_may_meet, lost_entry
from prowess.results.libraries import Plot, Table
from prowess.results.published import validate
from prowess.results.unsendable import (
    LONE_SURROGATE,
    SCALARS,
    broken,
    kind_name,
    problems_of,
    serializer_message,
    unsendable,
    unwritable,
    unwritten,
)
from prowess.schemas.adapters import Adapter, Misfit, to_text
from prowess.schemas.explicit import validate as validate_explicit

__all__ = ["Output", "Render", "Result", "ValueWriter", "normalize", "says_the_same", "text_result"]

Render = Callable[[Any], Any]
"""Called with a value of an undeclared type. Returns something simpler instead, or the value itself."""

_MOST_LEVELS: Final = 16
_MOST_PLAIN: Final = 2**63
_ABSENT: Final[Any] = object()


@dataclass(slots=True)  # a frozen class would take twice the time
class Result:
    """The canonical result of a command, before any profile. Immutable by convention."""

    value: Json = None
    """The value as JSON data; for content without data, `None`."""
    text: str = ""
    """The value as text: a string unchanged, else JSON."""
    blocks: tuple[JsonObject, ...] | None = None
    """Content blocks instead of the text, if the command returned content."""
    structured: bool = False
    """Whether the value is also sent as data."""
    is_error: bool = False
    meta: JsonObject = field(default_factory=new_object)
    whole: bool = False
    """Whether the command made the whole tool result itself."""
    pair: bool = False
    """Whether the command returned content and data as a pair, so that no block repeats the data."""

    def as_data(self) -> JsonObject:
        """Everything by name, as plain data."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def to_json(self) -> bytes:
        """Plain data for another process."""
        return to_json(self.as_data())

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Result:
        """The result from the data of `as_data`. Raises `TypeError` for other data."""
        blocks = data.get("blocks")
        parts: dict[str, Any] = {**data, "blocks": None if blocks is None else tuple(blocks)}
        return cls(**parts)

    @classmethod
    def from_json(cls, text: bytes) -> Result | None:
        """The result from the text of `to_json`; `None` for other text."""
        try:
            return cls.of_data(from_json(text))
        except (AttributeError, TypeError, ValueError):
            return None


@frozen
class Output:
    """The compiled return type of a command."""

    adapter: Adapter | None = None
    schema: Schema | None = None
    """An explicit schema for validation."""
    pair: bool = False
    """Whether it is declared as a pair of content and data."""
    lacks_content: bool = False
    """Whether the content of the pair may be `None`."""

    @property
    def declared(self) -> bool:
        """Whether a type or a schema is declared."""
        return self.adapter is not None or self.schema is not None

    def check(self, value: Any, writer: ValueWriter) -> Json:
        """The value as JSON data that fits the declaration. Raises `OutputError` with the place."""
        data = writer.typed(self.adapter, value) if self.adapter else writer.untyped(value)
        problems = validate_explicit(self.schema, data, root="result") if self.schema is not None else []
        if problems:
            raise OutputError(broken(problems))
        return data


_UNDECLARED: Final = Output()
_PLAIN: Final = SCALARS | {dict}
"""Types that are never passed to plugins."""

_MEDIA: Final = ("image", "audio")
_MEDIA_KEYS: Final = {"type", "data", "mimeType"}


def normalize(value: Any, output: Output = _UNDECLARED, render: Render | None = None) -> Result:
    """Convert a returned value to a result. Raises `OutputError` if it cannot be sent."""
    try:
        return _normalized(value, output, render)
    except OutputError:
        raise
    except (Exception, SystemExit) as error:  # an author's serializer, property or iterator may raise anything
        raise OutputError(unwritten(value, error)) from error


def _normalized(value: Any, output: Output, render: Render | None) -> Result:
    if type(value) in SCALARS:
        payload = None
        if output.adapter is not None and output.schema is None and not output.pair:  # the usual case
            if (data := output.adapter.scalar(value)) is not None:
                return Result(data, _sendable(data), structured=True)
            writer = ValueWriter(render)
            return _from_data(writer.typed(output.adapter, value), writer, structured=True)
    else:
        payload = as_payload(value)
    writer = ValueWriter(render)
    if payload is not None:
        return _from_payload(payload, output)
    if output.pair:
        return _from_pair(value, output, writer)
    if output.adapter is None and render is not None and type(value) not in _PLAIN:
        value = _rendered(value, render)
        value = value.text() if isinstance(value, Table) else value
        payload = as_payload(value)
        if payload is not None:
            return _from_payload(payload, output)
    if output.declared:
        return _from_data(output.check(value, writer), writer, structured=True)
    blocks = _as_blocks(value, render)
    if blocks is not None:
        return Result(blocks=_checked(blocks))
    data = writer.untyped(value)
    # Without a schema, no client expects structured content, and some clients would show models nothing else.
    structured = not isinstance(data, (str, type(None))) and not writer.content
    return _from_data(data, writer, structured=structured)


def _from_data(data: Json, writer: ValueWriter, *, structured: bool) -> Result:
    text = "" if data is None else _sendable(data)
    blocks = _checked(_arranged(data, writer.content)) if writer.content else None
    return Result(data, text, blocks, structured=structured)


def _arranged(data: Json, content: Mapping[str, JsonObject]) -> list[JsonObject]:
    """The blocks for data with content in it. A list that contains content is shown item by item, in order."""
    if isinstance(data, list) and any(isinstance(item, str) and item in content for item in data):
        return [block for item in data for block in _with_content(item, content)]
    return _with_content(data, content)


def _with_content(data: Json, content: Mapping[str, JsonObject]) -> list[JsonObject]:
    if isinstance(data, str) and data in content:
        return [content[data]]
    named = [content[text] for text in _texts(data) if text in content] if content else []
    return [text_block("" if data is None else _sendable(data)), *named]


def _texts(data: Json) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, (list, dict)):
        for item in data.values() if isinstance(data, dict) else data:
            yield from _texts(item)


def _from_payload(payload: JsonObject, output: Output) -> Result:
    payload = _valid(payload)
    for block in payload["content"]:
        check_data(block)
    data: Json = payload.get("structuredContent")
    structured = "structuredContent" in payload
    is_error: bool = payload["isError"]
    if output.declared and not is_error:
        # Without a declared pair, the mapping itself is the data: `-> dict`.
        data, structured = output.check(data if structured else payload, ValueWriter()), True
    blocks: list[JsonObject] = payload["content"]
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    return Result(data, text, tuple(blocks), structured, is_error, payload.get("_meta", {}), whole=True)


def _from_pair(value: Any, output: Output, writer: ValueWriter) -> Result:
    if not isinstance(value, tuple) or len(cast("tuple[Any, ...]", value)) != 2:
        raise OutputError(
            f"the return type is a pair of content and data, but the command returned a {kind_name(cast('object', value))}"
        )
    content, checked = cast("tuple[Any, Any]", value)
    data = _from_data(output.check(checked, writer), writer, structured=True)
    if (content is None and output.lacks_content) or (type(content) in (list, tuple) and not content):
        return data
    blocks = [text_block(content)] if isinstance(content, str) else _as_blocks(content, writer.render)
    if blocks is None:
        raise OutputError(f"the return type is a pair of content and data, but the content is a {kind_name(content)}")
    return Result(data.value, data.text, _checked([*blocks, *writer.content.values()]), structured=True, pair=True)


def _as_blocks(value: Any, render: Render | None) -> list[JsonObject] | None:
    """The blocks of a content value, or of a list with content; `None` for data.

    Other items of such a list become text.
    """
    if type(value) in SCALARS:
        return None
    block = _block(value)
    if block is not None:
        return [block]
    if not isinstance(value, (list, tuple)):
        return None
    items = cast("Sequence[Any]", value)
    odd = [item for item in items if type(item) not in SCALARS and not isinstance(item, str)]
    if any(is_content(item) for item in odd):
        writer = ValueWriter(render)
        return [block for item in items for block in _item_blocks(item, writer)]
    blocks = [_block(item) for item in odd]
    if not odd or None in blocks or len(odd) + sum(isinstance(item, str) for item in items) < len(items):
        return None
    return [text_block(item) if isinstance(item, str) else cast("JsonObject", as_block(item)) for item in items]


def _block(item: Any) -> JsonObject | None:
    """The block for content; `None` for data. One that the author wrote as a mapping is checked."""
    block = as_block(item)
    if block is not None and isinstance(item, Mapping):
        check_data(block)
    return block


def _item_blocks(item: Any, writer: ValueWriter) -> list[JsonObject]:
    block = _block(item)
    if block is not None:
        return [block]
    return _with_content(writer.untyped(item), writer.content)


def _checked(blocks: list[JsonObject]) -> tuple[JsonObject, ...]:
    if blocks and all(map(_is_plain_media, blocks)):
        return tuple(blocks)
    return tuple(_valid({"content": blocks, "isError": False})["content"])


def _is_plain_media(block: JsonObject) -> bool:
    """Whether a block certainly is a valid image or sound. Validating a large one takes as long as writing it."""
    return (
        block.keys() == _MEDIA_KEYS
        and all(type(part) is str and part.isascii() for part in block.values())
        and block["type"] in _MEDIA
    )


def _valid(payload: JsonObject) -> JsonObject:
    """A payload as JSON data that is valid under the shared schema."""
    writer = ValueWriter()
    is_plain = _is_plain(payload, _MOST_LEVELS)
    valid = payload if is_plain else cast("JsonObject", writer.untyped(payload))
    try:
        validate(valid)
    except ValueError as error:
        raise OutputError(str(error)) from error
    if not is_plain:
        _sendable(valid)
    return {**valid, "content": [*valid["content"], *writer.content.values()]} if writer.content else valid


def _is_plain(data: Any, levels: int) -> bool:
    """Whether data is certainly valid JSON. Converting and encoding it to find out takes ten times as long."""
    kind = cast("Any", type(data))
    if kind is str:
        return data.isascii() or not LONE_SURROGATE.search(data)
    if kind is dict:
        return levels > 0 and all(
            type(key) is str and _is_plain(key, 0) and _is_plain(data[key], levels - 1) for key in data
        )
    if kind is list:
        return levels > 0 and all(_is_plain(item, levels - 1) for item in data)
    if kind is float:
        return math.isfinite(data)
    return data is None or kind is bool or (kind is int and abs(data) < _MOST_PLAIN)


def says_the_same(result: Result) -> bool:
    """Whether the text and the structured content of a command's own tool result agree.

    Some clients show models only the text, some only the structured content.
    """
    texts = [block["text"] for block in result.blocks or () if block["type"] == "text"]
    if not result.whole or not result.structured or result.is_error:
        return True
    return any(_says(text, result.value) for text in ["\n".join(texts), *texts])


def _says(text: str, data: Json) -> bool:
    if text in (data, *(data.values() if isinstance(data, dict) and len(data) == 1 else ())):
        return True
    try:
        return json.loads(text) == data
    except (ValueError, RecursionError):
        return False


# Writing values as JSON


class ValueWriter:
    """Writes one returned value as JSON data. Asks plugins about foreign values, and separates content.

    JSON data cannot contain an image, so it gets a placeholder, and the block is in `content`.
    """

    def __init__(self, render: Render | None = None) -> None:
        self.render = render
        self.content: dict[str, JsonObject] = {}
        """Blocks of content that was found in the data, by placeholder."""
        self._refused: Any = _ABSENT
        self._names_may_meet = False
        """Whether two keys of a foreign mapping in the value may get the same name."""

    def typed(self, adapter: Adapter, value: Any) -> Json:
        """Write a value of a declared type."""
        refusal: ValidationError | None = None
        found = _looked_through(value) if adapter.keys_may_meet and type(value) not in SCALARS else _PLAIN_VALUE
        for form in (value,) if type(value) in SCALARS else self._forms(adapter, value, found):
            try:
                accepted = adapter.accept(form)
                data = self._written(form, self._dumped, adapter, accepted)
            except Misfit as error:
                raise OutputError(broken(error.problems)) from error
            except ValidationError as error:
                refusal = refusal or error
                continue
            if form is not value and adapter.keys_may_meet:
                found = _looked_through(form)
            if found.names_may_meet or self._names_may_meet:
                self._check_entries(functools.partial(adapter.text_of, accepted))
            return data
        raise OutputError(broken(problems_of(cast("ValidationError", refusal), value))) from refusal

    def untyped(self, value: Any) -> Json:
        """Convert a value of an undeclared type according to its own type."""
        found = _looked_through(value)
        value = self._outlined(value) if found.blocks else value
        data = self._written(value, self._jsonable, value)
        if found.names_may_meet or self._names_may_meet:
            self._check_entries(functools.partial(self._jsonable, value, into=to_json))
        return data

    def _forms(self, adapter: Adapter, value: Any, found: _Found) -> Iterator[Any]:
        """The value, then converted forms of it, which are tried if it does not fit its type."""
        if adapter.open and found.blocks:
            yield self._outlined(value)
            self.content.clear()
        yield value
        self.content.clear()
        if not _looked_through(value).iterators:  # reading has consumed the iterators
            plainer = self._plainer(value)
            if plainer is not value:
                yield plainer

    def _dumped(self, adapter: Adapter, value: Any) -> Json:
        try:
            return adapter.dump(value, self._simpler)
        except (UnicodeDecodeError, PydanticSerializationError) as error:
            if not adapter.open or "utf-8" not in str(error):
                raise
        return adapter.dump(self._by_type(value), self._simpler)

    def _jsonable(
        self,
        value: Any,
        fallback: Callable[[Any], Any] | None = None,
        into: Callable[..., Any] = to_jsonable_python,
    ) -> Any:
        options = {"by_alias": True, "bytes_mode": "base64", "inf_nan_mode": "constants"}

        def write(outer: Any) -> Any:
            return into(outer, fallback=fallback or self._simpler, **options)

        try:
            return write(value)
        except (UnicodeDecodeError, PydanticSerializationError) as error:
            if "utf-8" not in str(error):
                raise
        return write(self._by_type(value))  # a model writes bytes as UTF-8, unless our schema for its type is used

    def _check_entries(self, write: Callable[[Callable[[Any], Any]], bytes]) -> None:
        """Refuse a value that was written without one of its entries. `write` writes it as text, which has all of them."""
        try:
            text = write(ValueWriter(self.render)._simpler)  # noqa: SLF001 - another writer, because this one has counted the content
        except Exception:  # noqa: BLE001 - what data can hold and text cannot, like a lone surrogate, has a message of its own
            return
        lost = lost_entry(text)
        if lost is not None:
            raise OutputError(lost)

    def _written(self, value: Any, write: Callable[..., Json], *args: Any) -> Json:
        try:
            return write(*args)
        except (OutputError, PydanticSerializationError) as error:
            if self._refused is not _ABSENT:
                raise OutputError(unwritable(value, self._refused)) from error
            if isinstance(error, OutputError):
                raise
            raise OutputError(f"the result cannot be written as JSON: {serializer_message(error)}") from error

    def _simpler(self, value: Any) -> Any:
        """The fallback of pydantic for an unknown value: something simpler."""
        apart = self._apart(value)
        if apart is not value:
            return apart
        rendered = value if self.render is None else self.render(value)
        if isinstance(rendered, Table):
            rendered = rendered.data()
        simple = _simple(value) if rendered is value else self._apart(rendered)
        if simple is value:
            self._refused = value
            raise OutputError(f"an object of the type {kind_name(value)} cannot be written as JSON")
        if isinstance(simple, dict) and keys_may_meet(cast("dict[Any, Any]", simple)):
            self._names_may_meet = True
        return self._outlined(simple)

    def _apart(self, value: Any) -> Any:
        """The placeholder for content; other values unchanged. Bytes inside data are data."""
        if not _is_sent_beside(value):
            return value
        block = cast("JsonObject", as_block(value))
        if block["type"] == "text":
            return block["text"]
        mark = placeholder(block, len(self.content) + 1)
        self.content[mark] = block
        return mark

    def _outlined(self, value: Any) -> Any:
        """The value with placeholders for the content in its built-in containers, in order."""
        if isinstance(value, dict):
            return {key: self._outlined(item) for key, item in cast("dict[Any, Any]", value).items()}
        if isinstance(value, (list, tuple, deque)):
            items = [self._outlined(item) for item in cast("Sequence[Any]", value)]
            return tuple(items) if isinstance(value, tuple) else items
        return value if type(value) in SCALARS else self._apart(value)

    def _by_type(self, value: Any) -> Any:
        """The value with every model in it written according to its class."""
        if isinstance(value, BaseModel):
            return Adapter(type(value)).dump(value, self._simpler)
        if isinstance(value, Mapping):
            return {key: self._by_type(item) for key, item in cast("Mapping[Any, Any]", value).items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            items = [self._by_type(item) for item in cast("Iterable[Any]", value)]
            return tuple(items) if isinstance(value, tuple) else items
        return value

    def _plainer(self, value: Any) -> Any:
        """The value with foreign values converted by plugins, and foreign containers replaced by built-in ones."""
        if type(value) in SCALARS or isinstance(value, (str, bytes, bytearray)):
            return value
        if type(value) is dict:
            entries = cast("dict[Any, Any]", value)
            changed = {key: self._plainer(item) for key, item in entries.items()}
            return changed if any(changed[key] is not item for key, item in entries.items()) else entries
        if type(value) in (list, tuple):
            old = cast("Sequence[Any]", value)
            new = [self._plainer(item) for item in old]
            same = all(map(operator.is_, new, old))
            return old if same else tuple(new) if isinstance(value, tuple) else new
        rendered = value if self.render is None else self.render(value)
        if rendered is value:
            return _simple(value)
        return rendered.records() if isinstance(rendered, Table) else rendered


def _is_sent_beside(value: object) -> bool:
    return is_content(value) and not isinstance(value, (bytes, bytearray, memoryview))


class _Found(NamedTuple):
    blocks: bool
    iterators: bool
    names_may_meet: bool
    """Whether two entries may get the same name in JSON."""


_PLAIN_VALUE: Final = _Found(blocks=False, iterators=False, names_may_meet=False)


def _looked_through(value: Any) -> _Found:
    """The kinds of values in the built-in containers of a value."""
    blocks = iterators = odd = False
    seen: set[int] = set()
    objects: list[Any] = []
    waiting = [value]
    while waiting:
        held = waiting.pop()
        if isinstance(cast("object", held), (dict, list, tuple, deque)):
            if id(held) not in seen:
                seen.add(id(held))
                inside = cast("Iterable[Any]", held)
                if isinstance(held, dict):
                    inside = cast("dict[Any, Any]", held).values()
                    odd = odd or keys_may_meet(cast("dict[Any, Any]", held))
                waiting.extend([item for item in inside if type(item) not in SCALARS])
        elif isinstance(held, Iterator):
            iterators = True
        elif _is_sent_beside(held):
            blocks = True
        else:
            objects.append(held)
    return _Found(blocks, iterators, odd or fields_may_meet(objects))


def _rendered(value: Any, render: Render) -> Any:
    """Convert a value, or the items of a list, with plugins."""
    if type(value) in (list, tuple):
        items = [item if type(item) in _PLAIN else render(item) for item in cast("Sequence[Any]", value)]
        if Plot in set(map(type, items)):
            items = list(_drawn_once(items))
        return [text_block(item.text()) if isinstance(item, Table) else item for item in items]
    return render(value)


def _drawn_once(items: Iterable[Any]) -> Iterator[Any]:
    """The items without the axes of a figure that is shown already."""
    drawn: list[Any] = []
    for item in items:
        if not isinstance(item, Plot):
            yield item
        elif not any(item.figure is figure for figure in drawn):
            drawn.append(item.figure)
            yield item


def _simple(value: Any) -> Any:
    """Convert foreign mappings, collections, texts and bytes to built-in ones, and paths of other systems to strings."""
    if isinstance(value, memoryview):
        return value.tobytes()
    if isinstance(value, (UserString, PurePath)):  # `UserString` is also a sequence, of others of its kind
        return str(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, (Iterator, Sequence, AbstractSet, MappingView)):
        return list(cast("Iterable[Any]", value))
    return value


def _sendable(data: Json) -> str:
    """A string, or the JSON text of other data. Raises `OutputError` if JSON or UTF-8 cannot encode it."""
    try:
        if not isinstance(data, str):
            return to_text(data)
        data.encode()
    except ValueError as error:
        raise OutputError(unsendable(data) or str(error)) from error
    return data


def text_result(text: str, *, is_error: bool = False) -> Result:
    """A result of plain text. Lone surrogates are escaped, because such a text often quotes foreign values."""
    return Result(text=encodable(text), is_error=is_error)
