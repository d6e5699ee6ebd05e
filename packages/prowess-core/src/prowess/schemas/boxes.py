"""Schemas of boxes: objects with one field, `{"result": ...}`, around a result that is not an object itself.

A profile decides what is boxed, and boxes the value (`prowess.profiles.profile`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prowess.jsontypes import Schema
from prowess.schemas.refs import DEFINITIONS, hoist_defs, inline_root, pointer, resolve, without
from prowess.schemas.walk import is_schema, rewrite_children

__all__ = ["box", "is_object", "is_text", "is_union_of_objects"]


def is_object(schema: Schema) -> bool:
    """Whether the root admits objects only."""
    return schema.get("type") == "object" or ("$ref" in schema and inline_root(schema).get("type") == "object")


def is_union_of_objects(schema: Schema) -> bool:
    """Whether the root is a union of objects."""
    root = inline_root(schema)
    branches: list[Any] = root.get("anyOf") or root.get("oneOf") or []
    definitions = {keyword: root[keyword] for keyword in DEFINITIONS if keyword in root}
    return bool(branches) and all(is_schema(b) and is_object({**b, **definitions}) for b in branches)


_NOT_FREE = frozenset({"const", "contentEncoding", "contentMediaType", "enum", "format"})
"""Keywords of strings that hold data instead of prose: a date, an identifier, one of a few words."""


def is_text(schema: Schema) -> bool:
    """Whether every value is prose: a free string, perhaps with null or fixed words as further choices."""
    kinds = set(_kinds(schema, schema, frozenset()))
    return "text" in kinds and kinds <= {"text", "word", "null"}


def _kinds(document: Schema, node: Schema, seen: frozenset[str]) -> Iterator[str]:
    ref = node.get("$ref")
    branches: list[Any] = node.get("anyOf") or node.get("oneOf") or []
    if isinstance(ref, str) and ref not in seen:
        yield from _kinds(document, resolve(document, ref) or {}, seen | {ref})
    elif branches:
        for branch in branches:
            yield from _kinds(document, branch, seen)
    elif node.get("type") == "string":
        yield "word" if not _NOT_FREE.isdisjoint(node) else "text"
    else:
        yield "null" if node.get("type") == "null" else "other"


def box(schema: Schema, field: str = "result", *, marker: str | None = None, required: bool = True) -> Schema:
    """An object with the schema as its only field. Definitions move to the new root, where references look for them."""
    boxed: Schema = {"type": "object", "properties": {field: _moved(schema, field)}}
    if required:
        boxed["required"] = [field]
    if marker:
        boxed[marker] = {"field": field}
    if "$schema" in schema:
        boxed = {"$schema": schema["$schema"], **boxed}
    return hoist_defs(boxed)


def _moved(schema: Schema, field: str) -> Schema:
    """The schema with its local references changed for a place below `field`."""
    place = pointer("properties", field)

    def move(node: Schema) -> Schema:
        if "$id" in node:
            return node
        node = rewrite_children(node, move)
        ref = node.get("$ref")
        return {**node, "$ref": place + ref[1:]} if isinstance(ref, str) and _is_inner(ref) else node

    return schema if "$id" in schema else move(without(schema, "$schema"))


def _is_inner(ref: str) -> bool:
    return ref == "#" or (ref.startswith("#/") and ref.split("/")[1] not in DEFINITIONS)
