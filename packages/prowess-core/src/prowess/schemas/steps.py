"""The steps of profiles: pure functions from one schema document to another.

`functools.partial` sets further arguments of a step; `walk.each_node` makes several changes to nodes in one pass.
"""

from __future__ import annotations

from typing import Any

from prowess.jsontypes import Schema
from prowess.schemas import nodes, nulls, refs
from prowess.schemas.refs import resolve, without
from prowess.schemas.walk import each_node, is_list, is_schema, rewrite, rewrite_children

__all__ = [
    "close_objects",
    "const_as_enum",
    "declare_open",
    "describe_parameters",
    "drop_additional",
    "drop_enum_default",
    "drop_none_default",
    "inline_refs",
    "inline_root",
    "list_required",
    "object_root",
    "open_nested_objects",
    "open_objects",
    "prune_titles",
    "string_names",
    "strip_null",
]

# Steps with a module of their own

inline_refs = refs.inline_refs
inline_root = refs.inline_root
strip_null = nulls.strip_null

# Steps that change one node at a time

prune_titles = each_node(nodes.prune_title)
const_as_enum = each_node(nodes.const_as_enum)
drop_none_default = each_node(nodes.drop_none_default)
open_objects = each_node(nodes.open_object)


def open_nested_objects(schema: Schema) -> Schema:
    """Remove `additionalProperties` of true or false everywhere below the root."""
    return rewrite_children(schema, open_objects)


_COMPOSING = ("$ref", "allOf", "dependentSchemas", "else", "if", "not", "then")
_DECIDED = ("additionalProperties", "unevaluatedProperties")


def close_objects(schema: Schema) -> Schema:
    """Close every object that declares properties, unless it is open explicitly or composed of parts."""
    properties = schema.get("properties")
    composing = (*_COMPOSING, "anyOf", "oneOf") if properties is not None else _COMPOSING
    parts = {keyword: schema[keyword] for keyword in composing if keyword in schema}
    closed = rewrite_children(without(schema, *parts), close_objects)
    if properties is None or parts or any(keyword in schema for keyword in _DECIDED):
        return {**closed, **parts}
    return {**closed, "additionalProperties": False}


def declare_open(schema: Schema) -> Schema:
    """Mark every object that declares properties as open, unless it decides that itself."""

    def change(node: Schema) -> Schema:
        decided = "properties" not in node or any(keyword in node for keyword in _DECIDED)
        return node if decided else {**node, "additionalProperties": True}

    return rewrite(schema, change)


def drop_additional(schema: Schema) -> Schema:
    """Remove `additionalProperties` from every object."""
    return rewrite(schema, lambda node: without(node, "additionalProperties"))


def drop_enum_default(schema: Schema) -> Schema:
    """Remove the defaults of enumerations."""
    return rewrite(schema, lambda node: without(node, "default") if "enum" in node else node)


def object_root(schema: Schema) -> Schema:
    """Make the root an object with `properties`, even if empty."""
    return {"type": "object", "properties": {}, **schema}


def list_required(schema: Schema) -> Schema:
    """Add `required` to the root, even if empty."""
    return {"required": [], **schema}


def describe_parameters(schema: Schema) -> Schema:
    """Give every property of the root a description, by default with its name."""
    if "properties" not in schema:
        return schema
    described = {name: _described(name, held) for name, held in schema["properties"].items()}
    return {**schema, "properties": described}


def _described(name: str, held: Any) -> Any:
    return {**held, "description": held.get("description") or f"Parameter {name}"} if is_schema(held) else held


def string_names(schema: Schema) -> Schema:
    """Remove `propertyNames` that no string can meet, as pydantic writes for integer enums."""

    def change(node: Schema) -> Schema:
        names = node.get("propertyNames")
        return node if not is_schema(names) or _admits_strings(schema, names) else without(node, "propertyNames")

    return rewrite(schema, change)


def _admits_strings(document: Schema, names: Schema) -> bool:
    ref = names.get("$ref")
    names = (resolve(document, ref) or {}) if isinstance(ref, str) else names
    types = names.get("type", "string")
    if types != "string" and not (is_list(types) and "string" in types):
        return False
    return any(isinstance(value, str) for value in names["enum"]) if "enum" in names else True
