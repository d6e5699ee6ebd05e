"""Rewrites single schemas, without their surroundings. `steps` applies these functions to whole documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from prowess.errors import shortened
from prowess.jsontypes import Json, Schema
from prowess.schemas.matching import has_type
from prowess.schemas.refs import without
from prowess.schemas.walk import is_list, is_schema

__all__ = [
    "const_as_enum",
    "drop_disputed",
    "drop_none_default",
    "drop_property_names",
    "drop_schema_keyword",
    "fill_items",
    "json_type",
    "nullable_beside_type",
    "one_type",
    "oneof_as_anyof",
    "open_object",
    "prune_title",
    "repeat_constraints",
    "tuple_as_array",
]

_DESCRIPTION_LIMIT = 1024
"""VS Code cuts longer descriptions."""
_DEFAULT_LIMIT = 100
_ABSENT: Any = object()


def prune_title(node: Schema) -> Schema:
    """Without a title."""
    return without(node, "title")


def drop_schema_keyword(node: Schema) -> Schema:
    """Without the name of a dialect."""
    return without(node, "$schema")


def drop_none_default(node: Schema) -> Schema:
    """Without a default of null."""
    return without(node, "default") if node.get("default", _ABSENT) is None else node


def open_object(node: Schema) -> Schema:
    """Without an `additionalProperties` of true or false; a schema for undeclared properties stays."""
    return without(node, "additionalProperties") if isinstance(node.get("additionalProperties"), bool) else node


_DISPUTED_FORMATS = frozenset({"date-time", "duration", "email", "ipv6", "regex", "time"})


def drop_disputed(node: Schema) -> Schema:
    """Without rules about which validators disagree: a result that keeps them here may be refused by a client.

    The validator of the official TypeScript client refuses a `date-time` without a time zone and a `duration` of 1.5 s. A
    pattern that JavaScript cannot read makes it refuse the whole list of tools.
    """
    disputed = [name for name in ("pattern", "patternProperties") if name in node]
    if node.get("format") in _DISPUTED_FORMATS:
        disputed.append("format")
    if "patternProperties" in node:
        disputed.append("additionalProperties")
    return without(node, *disputed)


# Values


_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def json_type(value: Json) -> str:
    """The JSON Schema type of a value. A float is a `number`."""
    return next((name for python, name in _TYPES if isinstance(value, python)), "null")


def const_as_enum(node: Schema) -> Schema:
    """`const` as an `enum` of one value, and a `type` beside every `enum` whose values have the same type."""
    if "const" in node:
        node = {**without(node, "const"), "enum": [node["const"]]}
    if "enum" not in node or "type" in node:
        return node
    types = {json_type(value) for value in node["enum"]}
    if types == {"integer", "number"}:
        types = {"number"}
    return {**node, "type": types.pop()} if len(types) == 1 else node


# Unions


def oneof_as_anyof(node: Schema) -> Schema:
    """`oneOf` as `anyOf`, without a discriminator."""
    node = without(node, "discriminator")
    if "oneOf" not in node:
        return node
    union: Schema = {"anyOf": node["oneOf"]}
    rest = without(node, "oneOf")
    if "anyOf" in rest:
        return {**rest, "allOf": [*rest.get("allOf", []), union]}
    return {**rest, **union}


_ANNOTATIONS = frozenset({"default", "deprecated", "description", "examples", "nullable", "title"})


def one_type(node: Schema) -> Schema:
    """A list of types, or an `enum` with null in it, as `anyOf` with one type in each branch.

    Gemini refuses a whole request over a list of types or a null in an `enum`; Cursor refuses every value of such a list.
    """
    types, values = node.get("type"), node.get("enum")
    if "anyOf" in node:
        return node
    if is_list(types):
        return _branched(node, [_of_type(node, name) for name in types])
    if is_list(values) and None in values and types is None:
        others = [value for value in values if value is not None]
        branches = [const_as_enum({"enum": others})] if others else []
        return _branched(node, [*branches, {"type": "null"}])
    return node


def _of_type(node: Schema, name: str) -> Schema:
    branch = {keyword: held for keyword, held in node.items() if keyword not in _ANNOTATIONS}
    if name == "null" and None in branch.get("enum", [None]):
        return {"type": "null"}
    if "enum" not in branch:
        return {**branch, "type": name}
    return {**branch, "type": name, "enum": [value for value in branch["enum"] if has_type(value, name)]}


def _branched(node: Schema, branches: list[Schema]) -> Schema:
    around = {keyword: held for keyword, held in node.items() if keyword in _ANNOTATIONS}
    branches = [branch for branch in branches if branch.get("enum") != []]
    return {**branches[0], **around} if len(branches) == 1 else {"anyOf": branches, **around}


def nullable_beside_type(node: Schema) -> Schema:
    """`nullable` moved beside a type, in a union into the first branch: Ajv refuses a tool with a lone `nullable`."""
    if "nullable" not in node or "type" in (node := const_as_enum(node)):
        return node
    rest = _enum_by_type(without(node, "nullable"))
    branches: list[Any] = list(rest.get("anyOf", ()))
    for index, branch in enumerate(branches):
        if is_schema(branch) and "type" in branch:
            branches[index] = {**branch, "nullable": True}
            return {**rest, "anyOf": branches}
    return rest


def _enum_by_type(node: Schema) -> Schema:
    """An `enum` of several types as `anyOf` with one type in each branch."""
    if "enum" not in node or "anyOf" in node:
        return node
    return _branched(node, [_of_type(node, name) for name in dict.fromkeys(map(json_type, node["enum"]))])


# Arrays


def tuple_as_array(node: Schema) -> Schema:
    """A tuple as an array whose items may be any of the tuple's; the description lists the positions."""
    positions: list[Any] = node.get("prefixItems", [])
    if not positions:
        return node
    rest = node.get("items", True)
    array = without(node, "prefixItems", "items")
    if rest is False:
        array = {**array, "maxItems": min(len(positions), array.get("maxItems", len(positions)))}
    members = positions if array.get("maxItems", len(positions) + 1) <= len(positions) else [*positions, rest]
    if is_schema(members[0]) and all(member == members[0] for member in members):
        return {**array, "items": members[0]}
    kinds = [without(member, "description") if is_schema(member) else member for member in members]
    items = kinds[0] if is_schema(kinds[0]) and all(kind == kinds[0] for kind in kinds) else {}
    words = ", ".join(map(_position, positions))
    return _noted({**array, "items": items}, f"in order: {words}")


def _position(schema: Any) -> str:
    if not is_schema(schema) or "description" not in schema:
        return _in_words(schema)
    said = schema["description"]
    words = _in_words(without(schema, "format") if f"format {schema.get('format')}" in said else schema)
    return f"{words} ({said})"


def fill_items(node: Schema) -> Schema:
    """An array with `items`, which admit anything if the schema had none."""
    types = node.get("type")
    if types != "array" and not (is_list(types) and "array" in types):
        return node
    items = node.get("items")
    if is_schema(items):
        return node
    if items is False and "prefixItems" not in node:
        return {**node, "items": {}, "maxItems": 0}
    return node if items is False else {**node, "items": {}}


# Prose


def _in_words(schema: Any) -> str:
    if not is_schema(schema):
        return "anything"
    if "enum" in schema:
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    branches: list[Any] = schema.get("anyOf", [])
    if branches:
        return " or ".join(dict.fromkeys(_in_words(branch) for branch in branches))
    if "pattern" in schema:
        return f"pattern {schema['pattern']}"
    types: Any = schema.get("format") or schema.get("type", "anything")
    return " or ".join(types) if is_list(types) else str(types)


def drop_property_names(node: Schema) -> Schema:
    """`propertyNames` moved into the description: Gemini refuses a whole request over the keyword."""
    if "propertyNames" not in node:
        return node
    return _noted(without(node, "propertyNames"), f"keys: {_in_words(node['propertyNames'])}")


_WORDS = {
    "minimum": "minimum {}",
    "exclusiveMinimum": "above {}",
    "maximum": "maximum {}",
    "exclusiveMaximum": "below {}",
    "multipleOf": "multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "pattern {}",
    "format": "format {}",
}


def repeat_constraints(node: Schema) -> Schema:
    """With the constraints and the default added to the description, for models that see no keywords."""
    note = "; ".join(_constraints(node))
    return _noted(node, note) if note else node


def _constraints(node: Schema) -> Iterator[str]:
    for keyword, words in _WORDS.items():
        if keyword in node:
            yield words.format(node[keyword]).removesuffix("s" if node[keyword] == 1 else "")
    if node.get("nullable"):
        yield "may be null"
    if "default" in node:
        yield f"default {shortened(json.dumps(node['default'], ensure_ascii=False), _DEFAULT_LIMIT)}"


def _noted(node: Schema, note: str) -> Schema:
    """With a note at the end of the description, which is cut if both are too long together."""
    note = shortened(note, _DESCRIPTION_LIMIT // 2)
    text: str = node.get("description", "")
    if text == note or text.endswith(f" ({note})"):
        return node
    room = _DESCRIPTION_LIMIT - len(f" ({note})")
    return {**node, "description": f"{shortened(text, room)} ({note})" if text else note}
