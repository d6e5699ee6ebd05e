"""The strict dialect of model providers: closed objects in which every property is required."""

from __future__ import annotations

from typing import Any

from prowess.errors import SchemaError
from prowess.jsontypes import Schema
from prowess.schemas import nodes
from prowess.schemas.refs import DEFINITIONS, inline_root, merge, prune_defs, resolve_or_refuse, without
from prowess.schemas.walk import is_schema, rewrite_children

__all__ = ["to_strict"]

_SAYING_WHAT_IT_IS = frozenset({"$ref", "allOf", "anyOf", "const", "enum", "oneOf", "type"})


def to_strict(schema: Schema) -> Schema:
    """The document in the strict dialect: `oneOf` becomes `anyOf`, an `allOf` of one is merged, and a `$ref` with
    siblings is written out. Raises `SchemaError` for an open object, which the dialect does not have.
    """
    document: Schema = inline_root(schema)
    if _SAYING_WHAT_IT_IS.isdisjoint(document):
        document = {"type": "object", **document}
    converted = _Converter(document)
    definitions: Schema = {}
    for keyword in DEFINITIONS:
        if keyword in document:
            held: Schema = document[keyword]
            definitions[keyword] = {name: converted.convert(definition) for name, definition in held.items()}
    return prune_defs({**converted.convert(without(document, *DEFINITIONS)), **definitions})


class _Converter:
    def __init__(self, document: Schema) -> None:
        self.document = document

    def convert(self, node: Schema, opened: tuple[str, ...] = ()) -> Schema:
        node = nodes.oneof_as_anyof(nodes.drop_none_default(node))
        if isinstance(node.get("$ref"), str):
            return self._reference(node, opened)
        parts: list[Any] = node.get("allOf", [])
        if len(parts) == 1 and is_schema(parts[0]):
            return self.convert(merge(parts[0], without(node, "allOf")), opened)
        return _closed(rewrite_children(node, lambda child: self.convert(child, opened)))

    def _reference(self, node: Schema, opened: tuple[str, ...]) -> Schema:
        ref: str = node["$ref"]
        target = resolve_or_refuse(self.document, ref)
        siblings = without(node, "$ref", *DEFINITIONS)
        if not siblings or ref in opened:
            return {"$ref": ref}
        return self.convert(merge(target, siblings), (*opened, ref))


def _closed(node: Schema) -> Schema:
    if node.get("additionalProperties", False) is not False:
        raise SchemaError(
            "the strict dialect has only closed objects, and this one sets additionalProperties to "
            f"{node['additionalProperties']!r}. Declare its properties, or use another profile"
        )
    if "object" not in node.get("type", ()) and "properties" not in node:
        return node
    properties: dict[str, Any] = node.get("properties", {})
    return {**node, "additionalProperties": False, "properties": properties, "required": list(properties)}
