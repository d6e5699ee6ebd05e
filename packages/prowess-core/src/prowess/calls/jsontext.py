"""Decodes arrays and objects that some clients send as JSON text.

A text is decoded only if the schema does not allow a string there, or only other ones by name. A schema without a type allows
everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from pydantic_core import from_json

from prowess.jsontypes import JsonObject, Schema
from prowess.schemas.matching import leaf_problems, pattern_matches
from prowess.schemas.refs import resolve
from prowess.schemas.walk import is_list, is_schema

__all__ = ["decode_object", "decode_texts"]

_MOST_TEXTS: Final = 8
"""Levels of texts within texts that are decoded: clients encode once, or twice by mistake."""
_MOST_NESTED: Final = 64
"""Levels of arrays and objects that are searched."""
_UNIONS: Final = ("anyOf", "oneOf", "allOf")


def decode_object(text: str) -> JsonObject | None:
    """The object in a JSON text, or `None`."""
    found = _parsed(text)
    return cast("JsonObject", found) if isinstance(found, dict) else None


def decode_texts(schema: Schema, arguments: JsonObject) -> tuple[JsonObject, list[str]]:
    """Arguments with such texts decoded, and their paths."""
    decoder = _Decoder(schema)
    return cast("dict[str, Any]", decoder.decode([schema], arguments, "", 0, 0)), decoder.paths


class _Decoder:
    def __init__(self, document: Schema) -> None:
        self._document = document
        self.paths: list[str] = []

    def decode(self, schemas: list[Any], value: Any, path: str, depth: int, texts: int) -> Any:
        """A value that any of the schemas may apply to."""
        if not _may_hold_text(value):
            return value
        nodes = [node for schema in schemas for node in self._choices(schema, frozenset())]
        if isinstance(value, str):
            opened = self._opened(nodes, value) if texts < _MOST_TEXTS else value
            if opened is value:
                return value
            self.paths.append(path)
            value, texts = opened, texts + 1
        if depth == _MOST_NESTED:
            return value
        if is_schema(value):
            nodes = [node for node in nodes if _fits(node, value)]
            return {
                name: self.decode(_of_property(nodes, name), held, _below(path, name), depth + 1, texts)
                for name, held in value.items()
            }
        if is_list(value):
            return [
                self.decode(_of_item(nodes, index), item, f"{path}[{index}]", depth + 1, texts)
                for index, item in enumerate(value)
            ]
        return value

    def _opened(self, nodes: list[Any], text: str) -> Any:
        """The decoded text, if a schema allows that and none allows a string."""
        if not nodes or any(_takes_text(node, text) for node in nodes):
            return text
        found = _parsed(text)
        kind = "object" if isinstance(found, dict) else "array" if isinstance(found, list) else "null"
        admitted = found is not _NOTHING and any(_admits(node, kind) for node in nodes)
        return cast("Any", found) if admitted else text

    def _choices(self, schema: Any, seen: frozenset[str]) -> Iterator[Any]:
        """The schema, or its branches, with references resolved."""
        if not is_schema(schema):
            yield schema
            return
        ref = schema.get("$ref")
        if isinstance(ref, str):
            if ref not in seen:
                yield from self._choices(resolve(self._document, ref), seen | {ref})
            return
        branches = [branch for union in _UNIONS for branch in schema.get(union, ())]
        for branch in branches:
            yield from self._choices(branch, seen)
        if not branches:
            yield schema


_NOTHING: Final = object()


def _may_hold_text(value: Any) -> bool:
    """Whether a value is a text of an array, an object or null, or may contain one. Very long arrays hold other values."""
    if isinstance(value, str):
        return value.lstrip()[:1] in ("{", "[") or value == "null"
    return isinstance(value, (dict, list))


def _parsed(text: str) -> Any:
    """An array, an object or null; `_NOTHING` for other texts. Pydantic reads numbers and flags from texts itself."""
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:  # not JSON, or nested too deeply
        return _NOTHING


def _takes_text(node: Any, text: str) -> bool:
    """Whether a schema allows this string. Of the strings that patterns and formats refuse, none is decoded either."""
    return text in values if (values := _listed(node)) is not None else _admits(node, "string")


def _listed(node: Any) -> list[Any] | None:
    """The values of a constant or an enumeration; `None` for other schemas."""
    if not is_schema(node) or not {"const", "enum"} & node.keys():
        return None
    values: list[Any] = node.get("enum", [node.get("const")])
    return values


def _admits(node: Any, kind: str) -> bool:
    """Whether a schema allows a type. A schema without a type allows everything."""
    if not is_schema(node):
        return node is not False
    if (values := _listed(node)) is not None:
        return any(_kind(value) == kind for value in values)
    types = node.get("type")
    return types is None or kind == types or (isinstance(types, list) and kind in types)


def _kind(value: Any) -> str:
    kinds = {str: "string", list: "array", dict: "object", type(None): "null"}
    return kinds.get(cast("type[Any]", type(value)), "")


def _fits(node: Any, value: JsonObject) -> bool:
    """Whether an object can match a schema, judged by constants such as the tag of a union."""
    if not _admits(node, "object"):
        return False
    properties: dict[str, Any] = node.get("properties", {}) if is_schema(node) else {}
    tags = {name: held for name, held in properties.items() if is_schema(held) and {"const", "enum"} & held.keys()}
    return all(name not in value or not leaf_problems(held, value[name]) for name, held in tags.items())


def _of_property(nodes: list[Any], name: str) -> list[Any]:
    return [held for node in nodes for held in _property(node, name) if held is not False]


def _property(node: Any, name: str) -> list[Any]:
    if not is_schema(node):
        return [node]
    if name in node.get("properties", {}):
        return [node["properties"][name]]
    matching = [held for pattern, held in node.get("patternProperties", {}).items() if pattern_matches(pattern, name)]
    return matching or [node.get("additionalProperties", True)]


def _of_item(nodes: list[Any], index: int) -> list[Any]:
    return [_item(node, index) for node in nodes if _admits(node, "array")]


def _item(node: Any, index: int) -> Any:
    if not is_schema(node):
        return node
    first: list[Any] = node.get("prefixItems", [])
    return first[index] if index < len(first) else node.get("items", True)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
