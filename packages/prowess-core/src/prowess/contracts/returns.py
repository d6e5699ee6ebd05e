"""Writes the line that describes a result to models, because clients hide output schemas from them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from prowess.jsontypes import Schema
from prowess.schemas.refs import resolve
from prowess.schemas.walk import is_list, is_schema

__all__ = ["returns_line"]

_LIMIT: Final = 300
"""Characters of the line, which is in every prompt. Claude Code cuts descriptions at 2,048 bytes."""
_DEPTH: Final = 2
"""The depth to which nested objects are written out."""
_MOST_WORDS: Final = 4
_SAYS_IT: Final = re.compile(
    r"\b(returns|yields|gives back|return value)\b|\b(return|yield)s?\b[^\n]{0,40}:", re.IGNORECASE
)


def returns_line(schema: Schema | None, description: str) -> str:
    """`Returns: {city: string, celsius: number}` for results with named fields; empty if the description has it."""
    if schema is None or _SAYS_IT.search(description):
        return ""
    fields = list(_fields(schema, schema, ()))
    if not fields or all(re.search(rf"\b{re.escape(name)}\b", description) for name in fields):
        return ""
    for depth in (_DEPTH, 1):
        text = f"Returns: {_in_words(schema, schema, depth, ())}"
        if len(text) <= _LIMIT:
            return text
    return f"{text[: _LIMIT - 1].rpartition(',')[0]}, …"


def _fields(document: Schema, node: Any, opened: tuple[str, ...]) -> Iterator[str]:
    """The fields of a result that is an object, a list of objects, or a union with one."""
    if not is_schema(node):
        return
    ref = node.get("$ref")
    if isinstance(ref, str) and ref not in opened:
        yield from _fields(document, resolve(document, ref), (*opened, ref))
    yield from node.get("properties", {})
    for inner in (node.get("items"), *node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _fields(document, inner, opened)


def _in_words(document: Schema, node: Any, depth: int, opened: tuple[str, ...]) -> str:
    if not is_schema(node):
        return "anything"
    ref = node.get("$ref")
    if isinstance(ref, str):
        target = None if ref in opened else resolve(document, ref)
        return "object" if target is None else _in_words(document, target, depth, (*opened, ref))
    if "const" in node or "enum" in node:
        return _choices(node.get("enum", [node.get("const")]))
    branches: list[Any] = node.get("anyOf") or node.get("oneOf") or []
    if branches:
        return " or ".join(dict.fromkeys(_in_words(document, branch, depth, opened) for branch in branches))
    if "properties" in node:
        return _object(document, node, depth, opened)
    return _plain(document, node, depth, opened)


def _object(document: Schema, node: Schema, depth: int, opened: tuple[str, ...]) -> str:
    if depth == 0:
        return "object"
    required = node.get("required", ())
    fields = (
        f"{name}{'' if name in required else '?'}: {_in_words(document, held, depth - 1, opened)}"
        for name, held in node["properties"].items()
    )
    return f"{{{', '.join(fields)}}}"


def _plain(document: Schema, node: Schema, depth: int, opened: tuple[str, ...]) -> str:
    kind = node.get("type", "anything")
    if kind == "array":
        items = node.get("items")
        return f"list of {_in_words(document, items, depth, opened)}" if is_schema(items) and items else "list"
    entries = node.get("additionalProperties")
    if kind == "object" and is_schema(entries) and entries:
        return f"map of {_in_words(document, entries, depth, opened)}"
    return " or ".join(kind) if is_list(kind) else str(node.get("format", kind))


def _choices(values: list[Any]) -> str:
    shown = [json.dumps(value, ensure_ascii=False) for value in values[:_MOST_WORDS]]
    return " or ".join([*shown, *(["…"] if len(values) > _MOST_WORDS else [])])
