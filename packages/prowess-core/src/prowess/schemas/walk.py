"""Visits and rewrites schemas by the position of keywords.

The position decides whether a dict is a schema: a parameter called `title` or `default` is an entry of `properties`, and the
values of `default`, `const`, `enum` and `examples` are data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeGuard

from prowess.jsontypes import Schema

__all__ = ["Change", "Path", "children", "each_node", "is_list", "is_schema", "rewrite", "rewrite_children", "visit"]

Path: TypeAlias = "tuple[str | int, ...]"
Change: TypeAlias = Callable[[Schema], Schema]

_BY_NAME = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_IN_ORDER = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_ALONE = frozenset(
    {
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)


def is_schema(held: Any) -> TypeGuard[Schema]:
    """Whether a schema is a dict, and not the bare `true` or `false`."""
    return isinstance(held, dict)


def is_list(held: Any) -> TypeGuard[list[Any]]:
    """Whether the value of a keyword is a list."""
    return isinstance(held, list)


def children(node: Schema) -> Iterator[tuple[Path, Schema]]:
    """The schemas directly inside a schema, with their paths from it. The bare `true` and `false` are left out."""
    for keyword, held in node.items():
        for path, child in _held(keyword, held):
            if is_schema(child):
                yield path, child


def _held(keyword: str, held: Any) -> Iterator[tuple[Path, Any]]:
    if keyword in _ALONE:
        yield (keyword,), held
    elif keyword in _BY_NAME and is_schema(held):
        yield from (((keyword, name), child) for name, child in held.items())
    elif keyword in _IN_ORDER and is_list(held):
        yield from (((keyword, index), child) for index, child in enumerate(held))


def visit(schema: Schema) -> Iterator[tuple[Path, Schema]]:
    """Every schema of a document with its path, the root first. Not recursive, so documents may be deep."""
    waiting: list[tuple[Path, Schema]] = [((), schema)]
    while waiting:
        path, node = waiting.pop()
        yield path, node
        waiting.extend((path + step, child) for step, child in reversed(list(children(node))))


def rewrite_children(node: Schema, change: Change) -> Schema:
    """The node with `change` applied to each schema directly inside it; the node itself if nothing changed."""
    changed: Schema | None = None
    for keyword, held in node.items():
        rewritten = _rewrite_held(keyword, held, change)
        if rewritten is not held:
            changed = dict(node) if changed is None else changed
            changed[keyword] = rewritten
    return node if changed is None else changed


def _rewrite_held(keyword: str, held: Any, change: Change) -> Any:
    if is_schema(held):
        if keyword in _ALONE:
            return change(held)
        if keyword in _BY_NAME:
            return _rewrite_dict(held, change)
    elif keyword in _IN_ORDER and is_list(held):
        return _rewrite_list(held, change)
    return held


def _rewrite_dict(held: dict[str, Any], change: Change) -> dict[str, Any]:
    rewritten = {name: change(child) if is_schema(child) else child for name, child in held.items()}
    return rewritten if any(rewritten[name] is not child for name, child in held.items()) else held


def _rewrite_list(held: list[Any], change: Change) -> list[Any]:
    rewritten = [change(child) if is_schema(child) else child for child in held]
    return rewritten if any(new is not old for new, old in zip(rewritten, held, strict=True)) else held


def rewrite(schema: Schema, *changes: Change) -> Schema:
    """The document with all changes applied in order to each schema in it, the innermost schemas first."""

    def change(node: Schema) -> Schema:
        node = rewrite_children(node, change)
        for one in changes:
            node = one(node)
        return node

    return change(schema)


def each_node(*changes: Change) -> Change:
    """A step that makes several changes to each node in one pass."""
    return lambda schema: rewrite(schema, *changes)
