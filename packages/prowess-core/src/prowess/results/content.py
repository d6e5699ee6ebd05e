"""MCP content blocks: the classes that authors return, and the check whether a value or a type is content or data."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import re
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Concatenate, Final, NamedTuple, ParamSpec, cast, get_args, get_origin

import typing_extensions

from prowess.errors import OutputError
from prowess.jsontypes import JsonObject

__all__ = [
    "CONTENT_MARKER",
    "Audio",
    "File",
    "Image",
    "as_block",
    "as_payload",
    "bytes_block",
    "check_data",
    "is_content",
    "is_content_type",
    "is_text_type",
    "may_hold_data",
    "placeholder",
    "text_block",
    "to_text_only",
]


class _Shape(NamedTuple):
    """The required and optional keys of a block besides `type`, `annotations` and `_meta`."""

    needed: frozenset[str]
    optional: frozenset[str] = frozenset()


_SHAPES: Final[Mapping[str, _Shape]] = {
    "text": _Shape(frozenset({"text"})),
    "image": _Shape(frozenset({"data", "mimeType"})),
    "audio": _Shape(frozenset({"data", "mimeType"})),
    "resource": _Shape(frozenset({"resource"})),
    "resource_link": _Shape(
        frozenset({"uri", "name"}), frozenset({"title", "description", "mimeType", "size", "icons"})
    ),
}
"""The block types of MCP."""

_ALWAYS: Final = frozenset({"type", "annotations", "_meta"})
_RESULT_KEYS: Final = ("content", "isError", "structuredContent", "_meta")
_BYTES: Final = cast("tuple[type[bytes], ...]", (bytes, bytearray, memoryview))

_MAGIC: Final = tuple(
    (re.compile(pattern, re.DOTALL), mime_type)
    for pattern, mime_type in (
        (rb"\x89PNG\r\n\x1a\n", "image/png"),
        (rb"\xff\xd8\xff", "image/jpeg"),
        (rb"GIF8[79]a", "image/gif"),
        (rb"RIFF....WEBP", "image/webp"),
        (rb"RIFF....WAVE", "audio/wav"),
        (rb"ID3[\x02-\x04].[\x00-\xf0][\x00-\x7f]{4}", "audio/mpeg"),
        (rb"\xff[\xfb\xf3\xf2]", "audio/mpeg"),
        (rb"OggS\x00", "audio/ogg"),
        (rb"fLaC", "audio/flac"),
    )
)
_ANY_BYTES: Final = "application/octet-stream"
CONTENT_MARKER: Final = "x-prowess-content"
"""A keyword of output schemas for data that only names a content block beside it."""
_NOUNS: Final = {"image": "image", "audio": "sound", "resource": "file"}


_Given = ParamSpec("_Given")


def _explained(
    init: Callable[Concatenate[Any, _Given], None],
) -> Callable[Concatenate[Any, _Given], None]:
    """Let errors about the arguments show the right form: Python's own name `_Media.__init__`, which authors never wrote."""

    @functools.wraps(init)
    def explained(self: Any, *args: _Given.args, **given: _Given.kwargs) -> None:
        try:
            init(self, *args, **given)
        except TypeError:
            import inspect  # for a mistake alone

            try:
                inspect.signature(init).bind(self, *args, **given)
            except TypeError as misfit:
                name = type(self).__name__
                raise TypeError(f"{name}: {misfit}; write {self.form.format(name)}") from None
            raise

    return explained


class _Media:
    """Bytes or a file, with the MIME type."""

    kind: ClassVar[str]
    form: ClassVar[str]
    """How authors write it, for messages."""

    @_explained
    def __init__(
        self, data: bytes | None = None, *, path: str | Path | None = None, mime_type: str | None = None
    ) -> None:
        name = type(self).__name__
        if (data is None) == (path is None):
            raise TypeError(f"{name} takes either data or path: write {self.form.format(name)}")
        if not isinstance(data, (*_BYTES, type(None))):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"{name} takes its data as bytes, not {type(data).__name__}; for a file, use {name}(path=...)"
            )
        if not isinstance(path, (str, Path, type(None))):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{name} takes path as a str or a Path, not {type(path).__name__}")
        _check_text(name, "mime_type", mime_type)
        self.path = Path(path) if path is not None else None
        self.data = bytes(data) if data is not None else cast("Path", self.path).read_bytes()
        self.mime_type = mime_type or _mime_type(self.data, self.path)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        """Schema for a field of a result: the data has a placeholder, and the block is sent once, beside the data."""
        from pydantic_core import core_schema  # this module is imported without pydantic

        return core_schema.is_instance_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, _core: Any, handler: Any) -> Any:
        if handler.mode == "validation":
            raise ValueError(f"{cls.__name__} is for results and cannot be sent as an argument")
        text = f"names the {_NOUNS[cls.kind]} in a content block beside the data"
        return {"type": "string", "description": text, CONTENT_MARKER: cls.kind}

    def to_block(self) -> JsonObject:
        """The content block as MCP writes it."""
        if not self.mime_type.startswith(f"{self.kind}/"):
            raise ValueError(f'{self.mime_type} is not a type of {self.kind}; set mime_type="{self.kind}/..."')
        return _media_block(self.kind, self.data, self.mime_type)


class Image(_Media):
    """An image for the model: `Image(png_bytes)` or `Image(path="plot.png")`."""

    kind = "image"
    form = '{0}(data, mime_type="image/png") or {0}(path="plot.png")'


class Audio(_Media):
    """A sound for the model: `Audio(wav_bytes)` or `Audio(path="voice.wav")`."""

    kind = "audio"
    form = '{0}(data, mime_type="audio/wav") or {0}(path="voice.wav")'


class File(_Media):
    """A file as an embedded resource: text if it is UTF-8, otherwise a blob."""

    kind = "resource"
    form = '{0}(data, mime_type="application/pdf", uri="file:///report.pdf") or {0}(path="report.pdf")'

    @_explained
    def __init__(
        self,
        data: bytes | None = None,
        *,
        path: str | Path | None = None,
        mime_type: str | None = None,
        uri: str | None = None,
    ) -> None:
        super().__init__(data, path=path, mime_type=mime_type)
        _check_text(type(self).__name__, "uri", uri)
        self.uri = uri or (self.path.resolve().as_uri() if self.path else _made_up_uri(self.data))

    def to_block(self) -> JsonObject:
        """The content block as MCP writes it."""
        try:
            text = self.data.decode()
        except UnicodeDecodeError:
            return _blob_block(self.data, self.uri, self.mime_type)
        mime_type = "text/plain" if self.mime_type == _ANY_BYTES else self.mime_type
        return {"type": "resource", "resource": {"uri": self.uri, "mimeType": mime_type, "text": text}}


def text_block(text: str) -> JsonObject:
    """A block of text."""
    return {"type": "text", "text": text}


def bytes_block(data: bytes) -> JsonObject:
    """Raw bytes as an image, audio or resource block, depending on their first bytes."""
    mime_type = _mime_type(data, None)
    kind = mime_type.partition("/")[0]
    if kind in ("image", "audio"):
        return _media_block(kind, data, mime_type)
    return _blob_block(data, _made_up_uri(data), mime_type)


def is_content(value: object) -> bool:
    """Whether a value is certainly content: a helper, an MCP content object, bytes."""
    return isinstance(value, (_Media, *_BYTES)) or _is_block_type(_class(value))


def as_block(value: Any) -> JsonObject | None:
    """The block for a helper, an MCP content object, bytes or a mapping in the shape of a block; else `None`."""
    if isinstance(value, _Media):
        return value.to_block()
    if isinstance(value, _BYTES):
        return bytes_block(bytes(value))
    if _is_block_type(_class(value)):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Mapping):
        block = cast("Mapping[Any, Any]", value)
        return dict(block) if _has_shape(block.get("type"), block.keys()) else None
    return None


def check_data(block: JsonObject) -> None:
    """Refuse a block whose bytes are not base64: some clients then refuse the whole result."""
    kind: Any = block.get("type")
    held: Any = block.get("resource") if kind == "resource" else block
    name = "blob" if kind == "resource" else "data"
    data: Any = cast("JsonObject", held).get(name) if isinstance(held, dict) else None
    if kind not in _NOUNS or not isinstance(data, str):
        return
    try:
        binascii.a2b_base64("".join(data.split()), strict_mode=True)
    except ValueError as error:
        remedy = "Encode the bytes with base64.b64encode"
        if data.startswith("data:"):
            remedy = "It is a URL with data: leave out all up to the comma"
        raise OutputError(f"the data of the {_NOUNS[kind]} is not base64 ({error}). {remedy}") from error


def as_payload(value: Any) -> JsonObject | None:
    """The members of a value that already is a tool result (a canonical mapping or an MCP result object); `None` for data.

    Further keys are dropped.
    """
    if _is_result_type(_class(value)):
        value = value.model_dump(mode="json", by_alias=True, exclude_none=True)
        value = {**value, "isError": value.get("isError", False), "content": value.get("content") or [text_block("")]}
    if not isinstance(value, dict) or "isError" not in value:
        return None
    result = cast("JsonObject", value)
    content: Any = result.get("content")
    if content == [] and result["isError"] is True:
        content = [text_block("")]  # a failure stays one, even if it says nothing
    if not isinstance(content, list) or not content:
        return None
    blocks = [as_block(item) if is_content(item) else item for item in cast("list[Any]", content)]
    if not all(isinstance(block, dict) and _is_known(cast("JsonObject", block).get("type")) for block in blocks):
        return None
    return {**{key: result[key] for key in _RESULT_KEYS if key in result}, "content": blocks}


def is_content_type(annotation: Any, seen: frozenset[int] = frozenset()) -> bool:
    """Whether a type is MCP content, or a union or container with content. Then there is no output schema.

    Bytes are content as a result, and data inside a container. `seen` are the surrounding type aliases, which may be
    recursive.
    """
    kind = get_origin(annotation)
    if kind is Annotated:
        return is_content_type(get_args(annotation)[0], seen)
    if isinstance(annotation, _ALIASES):
        return id(annotation) not in seen and is_content_type(annotation.__value__, seen | {id(annotation)})
    if isinstance(kind, _ALIASES):
        return is_content_type(kind, seen) or any(is_content_type(item, seen) for item in get_args(annotation))
    if kind in (typing.Union, types.UnionType):
        return any(is_content_type(item, seen) for item in get_args(annotation))
    if isinstance(annotation, type) and not get_args(annotation):
        cls = cast("type[Any]", annotation)
        return issubclass(cls, (_Media, *_BYTES)) or _is_block_type(cls) or _is_result_type(cls)
    if kind is dict:
        return False
    return any(is_content_type(item, seen) for item in get_args(annotation) if _bare(item) not in _BYTES)


def placeholder(block: JsonObject, number: int) -> str:
    """The placeholder in data for a block that is sent beside it: `[image 1: image/png, 68 bytes]`."""
    kind, _, rest = _labelled(block).partition(":")
    return f"[{kind} {number}:{rest}]"


def is_text_type(annotation: Any) -> bool:
    """Whether a type is free text: `str`, also in a union with `None` and literals.

    An `Enum`, a `Literal`, a date or a number as a string is data, because its schema says more than its text.
    """
    annotation = _bare(annotation)
    if get_origin(annotation) in (typing.Union, types.UnionType):
        choices = [_bare(item) for item in get_args(annotation) if item is not type(None)]
        others = [item for item in choices if get_origin(item) is not typing.Literal]
        return bool(others) and all(map(is_text_type, others))
    return annotation in (str, typing.LiteralString)


def may_hold_data(annotation: Any) -> bool:
    """Whether a content type is a whole tool result, or a union with one, which can have structured content."""
    annotation = _bare(annotation)
    if get_origin(annotation) in (typing.Union, types.UnionType):
        return any(may_hold_data(item) for item in get_args(annotation))
    return isinstance(annotation, type) and _is_result_type(annotation)


def to_text_only(payload: JsonObject) -> JsonObject:
    """The strict text-only projection. Other blocks become a line with their kind, other keys are dropped."""
    return {"content": [text_block(_described(block)) for block in payload["content"]], "isError": payload["isError"]}


def _described(block: JsonObject) -> str:
    if block["type"] == "text":
        return str(block["text"])
    if block["type"] == "resource" and "text" in block["resource"]:
        return str(block["resource"]["text"])
    return f"[{_labelled(block)}]"


def _labelled(block: JsonObject) -> str:
    """The kind of a block with its identifying details."""
    if block["type"] in ("image", "audio"):
        size = len(block["data"]) * 3 // 4 - block["data"][-2:].count("=")
        return f"{block['type']}: {block['mimeType']}, {size} bytes"
    if block["type"] == "resource_link":
        return f"resource link: {block['uri']}"
    return f"resource: {block['resource']['uri']}"


def _bare(annotation: Any) -> Any:
    """A type without `Annotated`, type aliases and `NewType`."""
    seen: list[Any] = []
    while annotation not in seen:  # an alias may refer to itself
        seen.append(annotation)
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, _ALIASES):
            annotation = annotation.__value__
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
    return annotation


_ALIASES: Final = tuple(
    {typing_extensions.TypeAliasType, getattr(typing, "TypeAliasType", typing_extensions.TypeAliasType)}
)


def _is_known(kind: object) -> bool:
    return isinstance(kind, str) and kind in _SHAPES


def _has_shape(kind: object, keys: typing.Collection[Any]) -> bool:
    """Whether keys are exactly those that MCP allows for a kind of block."""
    if not _is_known(kind):
        return False
    shape = _SHAPES[cast("str", kind)]
    return shape.needed.issubset(keys) and (shape.needed | shape.optional | _ALWAYS).issuperset(keys)


def _class(value: object) -> type[Any]:
    return type(value)


@functools.lru_cache(maxsize=256)
def _is_block_type(cls: type[Any]) -> bool:
    """Whether a class is a content class of an MCP library, judged by its fields, not by its module."""
    fields = _fields(cls)
    choices = get_args(getattr(fields.get("type"), "annotation", None))
    return len(choices) == 1 and _has_shape(choices[0], fields.keys())


@functools.lru_cache(maxsize=256)
def _is_result_type(cls: type[Any]) -> bool:
    return {"content", "structuredContent", "isError"} <= _fields(cls).keys()


def _fields(cls: type[Any]) -> dict[str, Any]:
    """The fields of a pydantic model by their JSON names; empty for other classes."""
    fields: object = getattr(cls, "model_fields", None)
    if not isinstance(fields, dict):
        return {}
    return {getattr(field, "alias", None) or name: field for name, field in cast("dict[str, Any]", fields).items()}


def _mime_type(data: bytes, path: Path | None) -> str:
    for magic, mime_type in _MAGIC:
        if magic.match(data):
            return mime_type
    import mimetypes  # 1 ms, for files alone

    guessed = mimetypes.guess_type(path.name)[0] if path else None
    return guessed or _ANY_BYTES


def _check_text(name: str, argument: str, value: object) -> None:
    if not isinstance(value, (str, type(None))):
        raise TypeError(f"{name} takes {argument} as a str, not {type(value).__name__}")


def _made_up_uri(data: bytes) -> str:
    return f"prowess://file/{hashlib.sha256(data).hexdigest()[:16]}"


def _media_block(kind: str, data: bytes, mime_type: str) -> JsonObject:
    return {"type": kind, "data": base64.b64encode(data).decode(), "mimeType": mime_type}


def _blob_block(data: bytes, uri: str, mime_type: str) -> JsonObject:
    blob = {"uri": uri, "mimeType": mime_type, "blob": base64.b64encode(data).decode()}
    return {"type": "resource", "resource": blob}
