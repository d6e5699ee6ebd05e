"""Unions whose branches are told apart by a tag."""

from __future__ import annotations

from typing import Any

from prowess.jsontypes import Schema
from prowess.schemas.matching import identity
from prowess.schemas.nodes import oneof_as_anyof
from prowess.schemas.refs import resolve, without
from prowess.schemas.walk import is_schema, rewrite, visit

__all__ = ["are_apart", "loosen_overlapping", "require_tags"]


def are_apart(document: Schema, node: Schema) -> bool:
    """Whether the `discriminator` of a `oneOf` decides the branch: no object that has the tag can meet two of them."""
    tag = _tag_of(node)
    seen: set[Any] = set()
    for branch in node["oneOf"]:
        values = _tags(document, branch, tag)
        if not values or values & seen:
            return False
        seen |= values
    return True


def _tag_of(node: Schema) -> str | None:
    """The property that decides the branch of a union."""
    discriminator = node.get("discriminator")
    tag = discriminator.get("propertyName") if is_schema(discriminator) else None
    return tag if isinstance(tag, str) else None


def _tags(document: Schema, branch: Any, tag: str | None) -> set[Any]:
    """The values that a branch allows for the tag; empty if it does not say."""
    if is_schema(branch) and "$ref" in branch:
        branch = resolve(document, branch["$ref"])
    held = branch.get("properties", {}).get(tag) if is_schema(branch) and tag is not None else None
    if not is_schema(held):
        return set()
    return set(map(identity, held.get("enum", [held["const"]] if "const" in held else [])))


def loosen_overlapping(schema: Schema) -> Schema:
    """The document with `anyOf` instead of `oneOf` in unions with a tag that not all branches show."""

    def change(node: Schema) -> Schema:
        tagged = "oneOf" in node and "discriminator" in node
        return oneof_as_anyof(node) if tagged and not are_apart(schema, node) else node

    return rewrite(schema, change)


def require_tags(schema: Schema) -> Schema:
    """The document with the tag of each union required in the definitions of its branches, without a default.

    Pydantic reads no branch of such a union without its tag, even if the field has a default.
    """
    tags: dict[str, list[str]] = {}

    def note(branch: Any, tag: str) -> None:
        if not is_schema(branch):
            return
        for inner in branch.get("oneOf", ()):
            note(inner, tag)
        kind, _, name = branch.get("$ref", "").rpartition("/")
        if kind == "#/$defs" and tag not in tags.setdefault(name, []):
            tags[name].append(tag)
            note(schema["$defs"].get(name), tag)

    for _, node in visit(schema):
        tag = _tag_of(node)
        if tag is not None:
            note(without(node, "$ref"), tag)
    if not tags:
        return schema
    return {**schema, "$defs": {name: _requiring(held, tags.get(name, [])) for name, held in schema["$defs"].items()}}


def _requiring(node: Any, tags: list[str]) -> Any:
    held: Schema = node.get("properties", {}) if is_schema(node) else {}
    shown = {tag: without(held[tag], "default") for tag in tags if is_schema(held.get(tag))}
    if not shown:
        return node
    required = dict.fromkeys([*node.get("required", []), *shown])
    return {**node, "properties": {**held, **shown}, "required": list(required)}
