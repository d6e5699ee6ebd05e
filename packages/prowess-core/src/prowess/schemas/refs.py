"""Follows, inlines and moves local `$ref`s. Never fetches a remote one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from prowess.errors import SchemaError
from prowess.jsontypes import Schema
from prowess.schemas.walk import is_list, is_schema, rewrite_children, visit

__all__ = [
    "DEFINITIONS",
    "RECURSION_DEPTH",
    "hoist_defs",
    "inline_refs",
    "inline_root",
    "merge",
    "pointer",
    "prune_defs",
    "resolve",
    "resolve_or_refuse",
    "without",
]

DEFINITIONS = ("$defs", "definitions")
RECURSION_DEPTH = 3
"""How often a recursive definition is written out on one path. Three times show a model the shape; more only cost tokens."""
_BUDGET = 1000
"""Schemas that an inlined document may hold (or twice as many as before) until recursion and nesting are limited further."""
_ANYTHING: Schema = {}


def pointer(*tokens: str) -> str:
    """A local reference to the place at the path of the tokens."""
    escaped = (token.replace("~", "~0").replace("/", "~1") for token in tokens)
    return "#" + "".join(f"/{quote(token, safe='~$')}" for token in escaped)


def resolve(document: Schema, ref: str) -> Schema | None:
    """The target of a local reference, or `None` if it is remote or dangling."""
    if ref != "#" and not ref.startswith("#/"):
        return None
    target: Any = document
    for token in unquote(ref).split("/")[1:]:
        target = _step(target, token.replace("~1", "/").replace("~0", "~"))
    if isinstance(target, bool):
        return {} if target else {"not": {}}
    return target if is_schema(target) else None


def _step(place: Any, token: str) -> Any:
    if is_schema(place):
        return place.get(token)
    if is_list(place) and token.isdecimal():
        return place[int(token)] if int(token) < len(place) else None
    return None


def without(node: Schema, *keywords: str) -> Schema:
    """The node without some keywords; the node itself if it has none of them."""
    if not any(keyword in node for keyword in keywords):
        return node
    return {keyword: held for keyword, held in node.items() if keyword not in keywords}


# Merging a target with the siblings of its reference

_ANNOTATIONS = frozenset(
    {"$comment", "default", "deprecated", "description", "examples", "nullable", "readOnly", "title", "writeOnly"}
    | {"$schema", *DEFINITIONS}
)
_ACTING_TOGETHER = (
    frozenset({"additionalProperties", "patternProperties", "properties", "unevaluatedProperties"}),
    frozenset({"items", "prefixItems", "unevaluatedItems"}),
    frozenset({"contains", "maxContains", "minContains"}),
    frozenset({"else", "if", "then"}),
)


def merge(target: Schema, siblings: Schema) -> Schema:
    """One schema for a target and the siblings of the reference to it.

    A sibling's annotations win. Keywords that would change each other's meaning stay apart under `allOf`.
    """
    constraints = {keyword: held for keyword, held in siblings.items() if keyword not in _ANNOTATIONS}
    if not any(_conflict(keyword, held, target) for keyword, held in constraints.items()):
        return {**target, **siblings}
    annotations = {keyword: held for keyword, held in siblings.items() if keyword in _ANNOTATIONS}
    return {"allOf": [target, constraints], **annotations}


def _conflict(keyword: str, held: Any, target: Schema) -> bool:
    if keyword in target and target[keyword] != held:
        return True
    return any(keyword in group and not group.isdisjoint(target) for group in _ACTING_TOGETHER)


# Inlining


class _Limits(NamedTuple):
    repeats: int
    """How often one reference may occur on a path."""
    nesting: int | None
    """How many references to definitions with references of their own may be open on a path."""
    strict_budget: bool = True


class _TooBig(Exception):
    """The inlined document is too big for these limits; the caller tries tighter ones."""


class _Inliner:
    def __init__(self, document: Schema, limits: _Limits, fallback: Schema | None) -> None:
        self.document = document
        self.limits = limits
        self.fallback = fallback
        self.written = 0

    @cached_property
    def size(self) -> int:
        return sum(1 for _ in visit(self.document))

    def expand(self, node: Schema, opened: tuple[str, ...] = ()) -> Schema:
        self._count()
        node = _plain_discriminator(without(node, *DEFINITIONS))
        ref = node.get("$ref")
        if not isinstance(ref, str):
            return rewrite_children(node, lambda child: self.expand(child, opened))
        siblings = without(node, "$ref")
        if siblings:
            siblings = rewrite_children(siblings, lambda child: self.expand(child, opened))
        return merge(self._target(ref, opened), siblings)

    def _target(self, ref: str, opened: tuple[str, ...]) -> Schema:
        if self.fallback is None:
            target = resolve_or_refuse(self.document, ref)
        elif (target := resolve(self.document, ref)) is None:
            return dict(self.fallback)
        if opened.count(ref) >= self.limits.repeats or self._nested_too_deep(target, opened):
            return _superset(self.document, target)
        return self.expand(target, (*opened, ref))

    def _nested_too_deep(self, target: Schema, opened: tuple[str, ...]) -> bool:
        nesting = self.limits.nesting
        return nesting is not None and len(opened) >= nesting and any("$ref" in node for _, node in visit(target))

    def _count(self) -> None:
        self.written += 1
        if self.limits.strict_budget and self.written > _BUDGET and self.written > 2 * self.size:
            raise _TooBig


def inline_refs(schema: Schema, *, depth: int = RECURSION_DEPTH, fallback: Schema | None = _ANYTHING) -> Schema:
    """The document with every local reference written out and without definitions.

    A recursive definition is written out `depth` times on a path, and then replaced by the narrowest of
    `{"type": "object"}`, `{"type": "array", "items": {}}` and `{}` that admits the same values. In a document that would
    grow out of proportion this happens earlier. `fallback` replaces a dangling reference; with `None` it is a `SchemaError`.
    """
    for limits in _limits(depth):
        try:
            return _Inliner(schema, limits, fallback).expand(schema)
        except _TooBig:
            continue
    return _Inliner(schema, _LAST_RESORT, fallback).expand(schema)


def _limits(depth: int) -> Iterator[_Limits]:
    yield from (_Limits(repeats, None) for repeats in range(depth, 0, -1))
    yield from (_Limits(1, nesting) for nesting in (8, 4, 3, 2))


_LAST_RESORT = _Limits(1, 1, strict_budget=False)


def inline_root(schema: Schema) -> Schema:
    """The document with a root `$ref` replaced by its target; definitions stay."""
    seen: set[str] = set()
    while isinstance(ref := schema.get("$ref"), str) and ref not in seen:
        seen.add(ref)
        target = resolve(schema, ref)
        if target is None:
            break
        definitions = {keyword: schema[keyword] for keyword in DEFINITIONS if keyword in schema}
        schema = {**merge(target, without(schema, "$ref", *DEFINITIONS)), **definitions}
    return schema


def _plain_discriminator(node: Schema) -> Schema:
    """Without the mapping of a discriminator, which names definitions that are inlined."""
    discriminator = node.get("discriminator")
    if not is_schema(discriminator) or "mapping" not in discriminator:
        return node
    return {**node, "discriminator": without(discriminator, "mapping")}


def resolve_or_refuse(document: Schema, ref: str) -> Schema:
    """The target of a local reference. Raises `SchemaError` for a remote or dangling one."""
    target = resolve(document, ref)
    if target is not None:
        return target
    if ref.startswith("#"):
        raise SchemaError(f"Unable to resolve $ref {ref!r}: the document has nothing at that place")
    raise SchemaError(f"Unexpected $ref format {ref!r}: it is non-local, and nothing outside the document is used")


_SUPERSETS: dict[str, Schema] = {"object": {"type": "object"}, "array": {"type": "array", "items": {}}}


def _superset(document: Schema, target: Schema) -> Schema:
    return dict(_SUPERSETS.get(_kind(document, target, frozenset()) or "", _ANYTHING))


def _kind(document: Schema, node: Schema, seen: frozenset[str]) -> str | None:
    """`object` or `array` if the node admits only values of that type."""
    if node.get("type") in _SUPERSETS:
        return node["type"]
    branches: list[Any] = node.get("anyOf") or node.get("oneOf") or []
    ref = node.get("$ref")
    if isinstance(ref, str) and ref not in seen:
        seen |= {ref}
        branches = [resolve(document, ref)]
    kinds = {_kind(document, branch, seen) if is_schema(branch) else None for branch in branches}
    return kinds.pop() if len(kinds) == 1 else None


# Moving definitions


def hoist_defs(schema: Schema) -> Schema:
    """The document with the definitions of embedded documents moved to its own root, where local references look.

    A schema with an `$id` is a document of its own and keeps what it has.
    """
    found: dict[str, dict[str, Any]] = {keyword: {} for keyword in DEFINITIONS}

    def lift(node: Schema) -> Schema:
        if "$id" in node:
            return node
        node = rewrite_children(node, lift)
        _collect(found, node)
        return without(node, *DEFINITIONS)

    root = rewrite_children(schema, lift)
    _collect(found, root)
    return {**without(root, *DEFINITIONS), **{keyword: held for keyword, held in found.items() if held}}


def _collect(found: dict[str, dict[str, Any]], node: Schema) -> None:
    for keyword in DEFINITIONS:
        for name, definition in node.get(keyword, {}).items():
            if found[keyword].setdefault(name, definition) != definition:
                raise SchemaError(f"two different definitions are called {name!r}; rename one of them")


def prune_defs(schema: Schema) -> Schema:
    """The document without unreachable definitions."""
    used: set[tuple[str, str]] = set()
    waiting = [without(schema, *DEFINITIONS)]
    while waiting:
        for _, node in visit(waiting.pop()):
            place = _definition(node.get("$ref"))
            if place is not None and place not in used:
                used.add(place)
                waiting.append(resolve(schema, pointer(*place)) or {})
    return _keep_definitions(schema, used)


def _definition(ref: Any) -> tuple[str, str] | None:
    tokens = unquote(ref).split("/") if isinstance(ref, str) else []
    if len(tokens) < 3 or tokens[0] != "#" or tokens[1] not in DEFINITIONS:
        return None
    return tokens[1], tokens[2].replace("~1", "/").replace("~0", "~")


def _keep_definitions(schema: Schema, used: set[tuple[str, str]]) -> Schema:
    kept: Schema = {}
    for keyword in DEFINITIONS:
        definitions = {name: held for name, held in schema.get(keyword, {}).items() if (keyword, name) in used}
        if definitions:
            kept[keyword] = definitions
    return {**without(schema, *DEFINITIONS), **kept}
