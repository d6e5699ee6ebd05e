"""MCP content blocks: the helpers authors return, and how to tell that a value or a type is content rather than data."""

from __future__ import annotations

import base64
import hashlib
import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, cast, get_args, get_origin

from prowess.jsontypes import JsonObject

__all__ = ["Audio", "File", "Image", "as_block", "as_blocks", "as_payload", "bytes_block", "is_content_type", "text_block", "to_text_only"]

_TEXT_KEYS: Final[dict[str, frozenset[str]]] = {
    "text": frozenset({"text"}),
    "image": frozenset({"data", "mimeType"}),
    "audio": frozenset({"data", "mimeType"}),
    "resource": frozenset({"resource"}),
    "resource_link": frozenset({"uri", "name"}),
}
"""The block types of MCP, and the keys each must have."""

_MAGIC: Final[tuple[tuple[int, bytes, str], ...]] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
)
_ANY_BYTES: Final = "application/octet-stream"


class _Media:
    """Bytes, given or read from a file, and the MIME type they have."""

    kind: ClassVar[str]

    def __init__(
        self, data: bytes | None = None, *, path: str | Path | None = None, mime_type: str | None = None
    ) -> None:
        if (data is None) == (path is None):
            msg = f"{type(self).__name__} takes either data or path"
            raise TypeError(msg)
        self.path = Path(path) if path is not None else None
        self.data = data if data is not None else cast("Path", self.path).read_bytes()
        self.mime_type = mime_type or _mime_type(self.data, self.path)

    def to_block(self) -> JsonObject:
        """The content block as MCP writes it."""
        if not self.mime_type.startswith(f"{self.kind}/"):
            msg = f"{self.mime_type} is no {self.kind}; pass mime_type={self.kind!r}/... if the bytes say otherwise"
            raise ValueError(msg)
        return {"type": self.kind, "data": base64.b64encode(self.data).decode(), "mimeType": self.mime_type}


class Image(_Media):
    """An image for the model: `Image(png_bytes)` or `Image(path="plot.png")`."""

    kind = "image"


class Audio(_Media):
    """A sound for the model: `Audio(wav_bytes)` or `Audio(path="voice.wav")`."""

    kind = "audio"


class File(_Media):
    """A file as an embedded resource: text where it is UTF-8 text, else a blob."""

    kind = "resource"

    def __init__(
        self,
        data: bytes | None = None,
        *,
        path: str | Path | None = None,
        mime_type: str | None = None,
        uri: str | None = None,
    ) -> None:
        super().__init__(data, path=path, mime_type=mime_type)
        self.uri = uri or (self.path.resolve().as_uri() if self.path else _made_up_uri(self.data))

    def to_block(self) -> JsonObject:
        return _resource(self.data, self.uri, self.mime_type)


def text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def bytes_block(data: bytes) -> JsonObject:
    """Raw bytes as the block that their first bytes call for."""
    mime_type = _mime_type(data, None)
    kind = mime_type.partition("/")[0]
    if kind in ("image", "audio"):
        return {"type": kind, "data": base64.b64encode(data).decode(), "mimeType": mime_type}
    blob = {"uri": _made_up_uri(data), "mimeType": mime_type, "blob": base64.b64encode(data).decode()}
    return {"type": "resource", "resource": blob}


def as_block(value: Any) -> JsonObject | None:
    """The block that a helper, an MCP content object or a block-shaped mapping stands for."""
    if isinstance(value, _Media):
        return value.to_block()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes_block(bytes(cast("bytes", value)))
    if _is_block_type(type(value)):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Mapping):
        block = cast("Mapping[str, Any]", value)
        needed = _TEXT_KEYS.get(block.get("type", ""), None) if isinstance(block.get("type"), str) else None
        if needed and needed <= block.keys() <= needed | {"type", "annotations", "_meta", *_OPTIONAL[block["type"]]}:
            return dict(block)
    return None


_OPTIONAL: Final[dict[str, frozenset[str]]] = {
    "text": frozenset(),
    "image": frozenset(),
    "audio": frozenset(),
    "resource": frozenset(),
    "resource_link": frozenset({"title", "description", "mimeType", "size", "icons"}),
}


def as_blocks(value: Any) -> list[JsonObject] | None:
    """The blocks of one content value, or of a list of content with plain texts between."""
    block = as_block(value)
    if block is not None:
        return [block]
    if not isinstance(value, (list, tuple)):
        return None
    items = [(item, as_block(item)) for item in cast("Sequence[Any]", value)]
    if all(block is None for _, block in items):
        return None
    if not all(block is not None or isinstance(item, str) for item, block in items):
        return None
    return [text_block(item) if block is None else block for item, block in items]


def as_payload(value: Any) -> JsonObject | None:
    """The parts of a tool result that is one already: canonical mapping or MCP result object. Further keys are dropped."""
    if _is_result_type(type(value)):
        value = value.model_dump(mode="json", by_alias=True, exclude_none=True)
        value.setdefault("isError", False)
        value["content"] = value.get("content") or [text_block("")]
    if not isinstance(value, dict):
        return None
    result = cast("JsonObject", value)
    content = result.get("content")
    if "isError" not in result or not isinstance(content, list) or not content:
        return None
    if not all(isinstance(item, dict) and item.get("type") in _TEXT_KEYS for item in cast("list[Any]", content)):
        return None
    return {key: result[key] for key in ("content", "isError", "structuredContent", "_meta") if key in result}


def is_content_type(annotation: Any) -> bool:
    """Whether a type is MCP content, or a union or container with content in it: then there is no output schema."""
    if isinstance(annotation, type) and not get_args(annotation):
        content = issubclass(annotation, (_Media, bytes, bytearray, memoryview))
        return content or _is_block_type(annotation) or _is_result_type(annotation)
    if get_origin(annotation) is dict:
        return False
    return any(is_content_type(item) for item in get_args(annotation) if item not in (bytes, bytearray))


def to_text_only(payload: JsonObject) -> JsonObject:
    """The strict text-only projection: other blocks become a line that says what was there, other keys are dropped."""
    blocks = [block if block["type"] == "text" else text_block(_described(block)) for block in payload["content"]]
    texts = [text_block(block["text"]) for block in blocks]
    return {"content": texts or [text_block("")], "isError": bool(payload.get("isError", False))}


def _described(block: JsonObject) -> str:
    if block["type"] in ("image", "audio"):
        return f"[{block['type']}: {block['mimeType']}, {len(block['data']) * 3 // 4} bytes]"
    if block["type"] == "resource_link":
        return f"[resource link: {block['uri']}]"
    resource: JsonObject = block["resource"]
    return str(resource["text"]) if "text" in resource else f"[resource: {resource['uri']}]"


def _is_block_type(cls: Any) -> bool:
    """Whether a class is one of the content classes of an MCP library, told by its shape and not by its origin."""
    field = getattr(cls, "model_fields", {}).get("type")
    choices = get_args(getattr(field, "annotation", None))
    return len(choices) == 1 and choices[0] in _TEXT_KEYS and _needs(cls, _TEXT_KEYS[choices[0]])


def _is_result_type(cls: Any) -> bool:
    return _needs(cls, frozenset({"content", "structuredContent", "isError"}))


def _needs(cls: Any, names: frozenset[str]) -> bool:
    fields: Mapping[str, Any] = getattr(cls, "model_fields", None) or {}
    known = {field.alias or name for name, field in fields.items()} | set(fields)
    return names <= known


def _mime_type(data: bytes, path: Path | None) -> str:
    for offset, magic, mime_type in _MAGIC:
        if data.startswith(magic, offset):
            return mime_type
    guessed = mimetypes.guess_type(path.name)[0] if path else None
    return guessed or _ANY_BYTES


def _made_up_uri(data: bytes) -> str:
    return f"prowess://file/{hashlib.sha256(data).hexdigest()[:16]}"


def _resource(data: bytes, uri: str, mime_type: str) -> JsonObject:
    described: JsonObject = {"uri": uri, "mimeType": mime_type}
    try:
        described["text"] = data.decode()
    except UnicodeDecodeError:
        described["blob"] = base64.b64encode(data).decode()
    else:
        if mime_type == _ANY_BYTES:
            described["mimeType"] = "text/plain"
    return {"type": "resource", "resource": described}
