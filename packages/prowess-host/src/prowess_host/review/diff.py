"""Describes the differences between two versions of a JSON Schema in words, with their direction.

`compare` decides which direction breaks callers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from prowess.errors import shortened
from prowess.frozen import frozen
from prowess.jsontypes import Json, Schema
from prowess.schemas.nulls import is_nullable, strip_null
from prowess.schemas.refs import inline_root, resolve, without
from prowess.schemas.walk import is_list, is_schema
from prowess_host.protocol.pointers import json_pointer
from prowess_host.review.containment import meaning, within

__all__ = ["Change", "changes", "in_words"]

_SHOWN: Final = 72


@frozen
class Change:
    """One difference between two schemas, at one place."""

    kind: str
    """`added`, `removed`, `required`, `optional`, `null`, `values`, `type`, `limits`, `open`, `default`, `description`."""
    path: tuple[str, ...]
    """The path in a value; `[]` stands for the items of an array, `{}` for entries of a map."""
    pointer: str
    """The place in the schema, as a JSON pointer."""
    message: str
    narrows: bool = False
    """Whether a value that was valid before may be invalid now."""
    widens: bool = False
    """Whether a value that was invalid before may be valid now."""


def changes(before: Schema, after: Schema) -> list[Change]:
    """All differences that callers can notice, in the order of the schema."""
    return list(_Differ(before, after).at(before, after, _Position()))


# --- in words -------------------------------------------------------------------------------------

_LIMITS: Final = {
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "<= {}",
    "exclusiveMaximum": "< {}",
    "multipleOf": "multiple of {}",
    "minLength": "length >= {}",
    "maxLength": "length <= {}",
    "pattern": "pattern {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "uniqueItems": "unique items",
    "minProperties": "at least {} entries",
    "maxProperties": "at most {} entries",
}


def in_words(schema: Any) -> str:
    """A schema as a short note: `list of integer, at most 3 items`."""
    if not is_schema(schema):
        return "nothing" if schema is False else "anything"
    limited = without(schema, "minItems", "maxItems") if "prefixItems" in schema else schema
    limits = [words.format(limited[keyword]) for keyword, words in _LIMITS.items() if keyword in limited]
    return shortened(", ".join([_kind_in_words(schema), *limits]), _SHOWN)


def _kind_in_words(schema: Schema) -> str:
    if "const" in schema:
        return _shown(schema["const"])
    if "enum" in schema:
        return " | ".join(map(_shown, schema["enum"]))
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(dict.fromkeys(map(in_words, schema[union])))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    types = schema.get("type", "anything")
    names = [_type_in_words(schema, name) for name in (types if is_list(types) else [types])]
    return " | ".join(names)


def _type_in_words(schema: Schema, name: Any) -> str:
    if name == "array" and "prefixItems" in schema:
        return f"[{', '.join(map(in_words, schema['prefixItems']))}]"
    if name == "array" and schema.get("items"):
        return f"list of {in_words(schema['items'])}"
    if name == "object" and is_schema(schema.get("additionalProperties")) and not schema.get("properties"):
        return f"map of {in_words(schema['additionalProperties'])}"
    return f"{name} ({schema['format']})" if "format" in schema else str(name)


def _shown(value: Json) -> str:
    return shortened(json.dumps(value, ensure_ascii=False), _SHOWN)


# --- differences ----------------------------------------------------------------------------------

_NOTICED: Final = ("description", "default")
_OBJECT: Final = ("properties", "required", "additionalProperties")
_NULL: Final = {"type": "null"}


class _Position(NamedTuple):
    """The position of two schemas: the path in a value, and the keywords in the schema."""

    path: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()

    def under(self, *keywords: str, name: str | None = None) -> _Position:
        return _Position(self.path if name is None else (*self.path, name), (*self.keywords, *keywords))

    def change(self, kind: str, message: str, *, narrows: bool = False, widens: bool = False) -> Change:
        return Change(kind, self.path, json_pointer(*self.keywords), message, narrows, widens)


class _Differ:
    def __init__(self, before: Schema, after: Schema) -> None:
        self.before = before
        self.after = after
        self.open: list[tuple[str, str]] = []

    def at(self, before: Any, after: Any, position: _Position) -> Iterator[Change]:
        """The differences between two schemas at one place."""
        pair = meaning(before, self.before), meaning(after, self.after)
        if pair in self.open:  # recursive types: already compared
            return
        self.open.append(pair)
        yield from self._inside(_followed(self.before, before), _followed(self.after, after), position)
        self.open.pop()

    def _inside(self, old: Any, new: Any, position: _Position) -> Iterator[Change]:
        yield from _descriptions(old, new, position)
        yield from self._null(old, new, position)
        old, new = _without_null(self.before, old), _without_null(self.after, new)
        if _is_record(old) and _is_record(new):
            yield from self._records(old, new, position)
        elif _is_list_of(old) and _is_list_of(new):
            yield from self._limits(old, new, position, "items")
            yield from self.at(old["items"], new["items"], position.under("items", name="[]"))
        elif _is_map(old) and _is_map(new):
            yield from self._limits(old, new, position, "additionalProperties")
            inner = position.under("additionalProperties", name="{}")
            yield from self.at(old["additionalProperties"], new["additionalProperties"], inner)
        else:
            yield from self._kinds(old, new, position)

    def _is_same(self, old: Any, new: Any) -> bool:
        return meaning(old, self.before) == meaning(new, self.after)

    def _narrows(self, old: Any, new: Any) -> bool:
        return not within(old, new, narrow_document=self.before, wide_document=self.after)

    def _widens(self, old: Any, new: Any) -> bool:
        return not within(new, old, narrow_document=self.after, wide_document=self.before)

    def _change(self, kind: str, message: str, position: _Position, old: Any, new: Any) -> Change:
        """A change, with its direction by the two schemas."""
        return position.change(kind, message, narrows=self._narrows(old, new), widens=self._widens(old, new))

    def _null(self, old: Any, new: Any, position: _Position) -> Iterator[Change]:
        was, now = _takes_null(self.before, old), _takes_null(self.after, new)
        if was and not now and self._narrows(_NULL, new):
            yield position.change("null", "no longer null", narrows=True)
        elif now and not was and self._widens(old, _NULL):
            yield position.change("null", "may be null", widens=True)

    def _kinds(self, old: Any, new: Any, position: _Position) -> Iterator[Change]:
        if self._is_same(old, new):
            return
        was, now = _values(old), _values(new)
        if was is None or now is None:
            kind = "limits" if _get(old, "type") == _get(new, "type") != "array" else "type"
            yield self._change(kind, _from_to(old, new), position, old, new)
        else:
            yield self._change("values", _come_and_gone(was, now), position, old, new)

    def _limits(self, old: Schema, new: Schema, position: _Position, *apart: str) -> Iterator[Change]:
        """The differences in the remaining keywords of two schemas."""
        was, now = without(old, *apart), without(new, *apart)
        if not self._is_same(was, now):
            yield self._change("limits", _from_to(was, now), position, was, now)

    def _records(self, old: Schema, new: Schema, position: _Position) -> Iterator[Change]:
        was, now = old.get("properties", {}), new.get("properties", {})
        for name in dict.fromkeys([*was, *now]):
            inner = position.under("properties", name, name=name)
            if name not in now:
                yield self._change("removed", "removed", inner, was[name], _rest(new))
            elif name not in was:
                yield self._added(name, old, new, inner)
            else:
                yield from self.at(was[name], now[name], inner)
                yield from _requirement(name, old, new, inner)
        yield from self._rests(old, new, position.under("additionalProperties"))
        yield from self._limits(old, new, position, *_OBJECT)

    def _added(self, name: str, old: Schema, new: Schema, position: _Position) -> Change:
        held = new["properties"][name]
        words = in_words(_followed(self.after, held))
        if name in new.get("required", ()):
            return position.change(
                "required", f"added, required: {words}", narrows=True, widens=self._widens(_rest(old), held)
            )
        return self._change("added", f"added, optional: {words}", position, _rest(old), held)

    def _rests(self, old: Schema, new: Schema, position: _Position) -> Iterator[Change]:
        was, now = _rest(old), _rest(new)
        if not self._is_same(was, now):
            yield self._change("open", f"other properties: {in_words(was)} → {in_words(now)}", position, was, now)


def _descriptions(old: Any, new: Any, position: _Position) -> Iterator[Change]:
    for keyword in _NOTICED:
        was, now = _get(old, keyword), _get(new, keyword)
        if json.dumps(was) != json.dumps(now):
            text = f"default {_shown(was)} → {_shown(now)}" if keyword == "default" else _reworded(was, now)
            yield position.under(keyword).change(keyword, text)


def _requirement(name: str, old: Schema, new: Schema, position: _Position) -> Iterator[Change]:
    was, now = name in old.get("required", ()), name in new.get("required", ())
    if now and not was:
        yield position.change("required", "now required", narrows=True)
    elif was and not now:
        yield position.change("optional", "no longer required", widens=True)


def _come_and_gone(was: list[str], now: list[str]) -> str:
    gone = [text for text in was if text not in now]
    come = [text for text in now if text not in was]
    parts = [f"{words} {', '.join(values)}" for words, values in (("no longer", gone), ("also", come)) if values]
    return "; ".join(parts) or "the order of the values changed"


def _from_to(old: Any, new: Any) -> str:
    was, now = in_words(old), in_words(new)
    return f"{was} → {now if was != now else f'another {now}'}"


def _reworded(was: Any, now: Any) -> str:
    if not was or not now:
        return "described" if now else "no longer described"
    return "the description changed"


# --- schemas --------------------------------------------------------------------------------------


def _get(schema: Any, keyword: str) -> Any:
    return schema.get(keyword) if is_schema(schema) else None


def _followed(document: Schema, schema: Any) -> Any:
    """The schema, with a reference resolved."""
    ref = _get(schema, "$ref")
    target = resolve(document, ref) if isinstance(ref, str) else None
    if target is None:
        return schema
    definitions = {keyword: document[keyword] for keyword in ("$defs", "definitions") if keyword in document}
    return without(inline_root({**schema, **definitions}), *definitions)


def _takes_null(document: Schema, schema: Any) -> bool:
    return is_schema(schema) and is_nullable(document, schema)


def _without_null(document: Schema, schema: Any) -> Any:
    """The schema without null; unchanged if it is only null, or cannot be split."""
    if not _takes_null(document, schema) or "$ref" in schema:
        return schema
    definitions = {keyword: document[keyword] for keyword in ("$defs", "definitions") if keyword in document}
    holder = strip_null({"properties": {"held": schema}, **definitions})
    held = holder["properties"]["held"]
    return _followed(document, held) if ".not_null" not in json.dumps(held) else schema


def _is_record(schema: Any) -> bool:
    return _get(schema, "type") == "object" and not _is_map(schema)


def _is_list_of(schema: Any) -> bool:
    return _get(schema, "type") == "array" and "prefixItems" not in schema and is_schema(schema.get("items"))


def _is_map(schema: Any) -> bool:
    return (
        _get(schema, "type") == "object"
        and "properties" not in schema
        and is_schema(schema.get("additionalProperties"))
    )


def _rest(schema: Schema) -> Any:
    return schema.get("additionalProperties", True)


def _values(schema: Any) -> list[str] | None:
    """The enumerated values of a schema as texts, or `None`."""
    if not is_schema(schema) or not ("const" in schema or "enum" in schema):
        return None
    return list(map(_shown, [schema["const"]] if "const" in schema else schema["enum"]))
