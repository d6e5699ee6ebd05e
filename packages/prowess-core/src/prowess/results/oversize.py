"""Cuts results that are too large for a client: the beginning for the client, the whole text for later parts."""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple

from prowess.jsontypes import Json, JsonObject
from prowess.results.content import text_block
from prowess.results.paging import META_CUT, cursor_of, notice
from prowess.schemas.adapters import to_text

__all__ = ["TOO_LARGE", "Cut", "cut"]

TOO_LARGE: Final = "too_large"
"""The kind of failure for a structured result with a schema that is too large: it cannot be sent in parts."""


class Cut(NamedTuple):
    """A payload within the limit, and the whole text."""

    payload: JsonObject
    meta: JsonObject
    token: str
    text: bytes
    """The whole text; empty if the host cannot keep it."""


def cut(payload: JsonObject, most: int, most_kept: int, *, promised: bool) -> Cut | None:
    """The first `most` characters of a payload whose text is longer; `None` for one that fits.

    Texts and data count, but not images and other binary content, which clients do not show as text. Structured data cannot
    be cut, so it is omitted, and the text has the same information. If a schema `promised` data, the result becomes an
    error, because a success without data would break the schema.
    """
    blocks: list[JsonObject] = payload["content"]
    text = "\n".join(_text_of(block) for block in blocks if _is_text(block))
    has_data = "structuredContent" in payload
    data: Json = payload.get("structuredContent")
    if has_data and text not in _ways_to_say(data):
        text = f"{text}\n{to_text(data)}" if text else to_text(data)
    if len(text) <= most:
        return None
    whole = text.encode()
    shown = text[:most]
    token = os.urandom(8).hex()
    kept = len(whole) <= most_kept
    cursor = cursor_of(token, len(shown.encode())) if kept else None
    fails = promised and has_data and not payload["isError"]
    sentences = [
        "The call itself succeeded, so do not repeat it: only its result is too large to be sent as data." * fails,
        f"Above are the first {most} of {len(text)} characters of this result.",
        "Its structured data is left out because of its size; the text contains the same data."
        * (has_data and not fails),
        notice(cursor) if cursor else f"The rest ({len(whole)} bytes) is too large to be kept: ask for less.",
    ]
    others = [block for block in blocks if not _is_text(block)]
    content = [text_block(shown), *others, text_block(" ".join(filter(None, sentences)))]
    facts: JsonObject = {"characters": len(text), "shown": most, "cursor": cursor}
    meta: JsonObject = {META_CUT: facts, **({"prowess/kind": TOO_LARGE} if fails else {})}
    return Cut({"content": content, "isError": payload["isError"] or fails}, meta, token, whole if kept else b"")


def _is_text(block: JsonObject) -> bool:
    return block["type"] == "text" or (block["type"] == "resource" and "text" in block["resource"])


def _text_of(block: JsonObject) -> str:
    holder: Any = block if block["type"] == "text" else block["resource"]
    return holder["text"]


def _ways_to_say(data: Json) -> list[str]:
    """The texts that are equivalent to data: its JSON, or a string itself; also of the content of a single field."""
    ways = _as_text(data)
    if isinstance(data, dict) and len(data) == 1:
        (held,) = data.values()
        ways += _as_text(held)
    return ways


def _as_text(data: Json) -> list[str]:
    return [to_text(data), data] if isinstance(data, str) else [to_text(data)]
