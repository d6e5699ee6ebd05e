"""Unions whose branches are told apart by a tag."""

from __future__ import annotations

from typing import Any

from prowess.jsontypes import Schema
from prowess.schemas.matching import identity
from prowess.schemas.nodes import oneof_as_anyof
from prowess.schemas.refs import resolve
from prowess.schemas.walk import is_schema, rewrite

__all__ = ["are_apart", "loosen_overlapping"]


def are_apart(document: Schema, node: Schema) -> bool:
    """Whether the `discriminator` of a `oneOf` decides the branch: no object that has the tag can meet two of them."""
    discriminator = node.get("discriminator")
    tag = discriminator.get("propertyName") if is_schema(discriminator) else None
    seen: set[Any] = set()
    for branch in node["oneOf"]:
        values = _tags(document, branch, tag)
        if not values or values & seen:
            return False
        seen |= values
    return True


def _tags(document: Schema, branch: Any, tag: Any) -> set[Any]:
    """The values that a branch allows for the tag; empty if it does not say."""
    if is_schema(branch) and "$ref" in branch:
        branch = resolve(document, branch["$ref"])
    held = branch.get("properties", {}).get(tag) if is_schema(branch) and isinstance(tag, str) else None
    if not is_schema(held):
        return set()
    return set(map(identity, held.get("enum", [held["const"]] if "const" in held else [])))


def loosen_overlapping(schema: Schema) -> Schema:
    """The document with `anyOf` instead of `oneOf` in unions with a tag that not all branches show."""

    def change(node: Schema) -> Schema:
        tagged = "oneOf" in node and "discriminator" in node
        return oneof_as_anyof(node) if tagged and not are_apart(schema, node) else node

    return rewrite(schema, change)
