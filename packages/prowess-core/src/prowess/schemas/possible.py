"""Finds schemas that no value fits: types that hold themselves without end, bounds that exclude each other, no choices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from prowess.jsontypes import Schema
from prowess.schemas.walk import is_schema

__all__ = ["Impossible"]

_DEFINITION: Final = "#/$defs/"
_SIZES: Final = (("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"))

_BOUNDS: Final = {
    "minimum": -math.inf,
    "exclusiveMinimum": -math.inf,
    "maximum": math.inf,
    "exclusiveMaximum": math.inf,
}


class Impossible:
    """Knows the definitions of one schema that no value fits. In doubt, a value fits."""

    def __init__(self, schema: Schema) -> None:
        self._definitions: dict[str, Schema] = schema.get("$defs", {})
        self._possible: set[str] = set()
        while found := {
            name for name in self._definitions.keys() - self._possible if self._fits(self._definitions[name])
        }:
            self._possible |= found

    def why(self, schema: Schema) -> str:
        """Why no value fits a schema; empty if one does."""
        return self._reason(schema, ())

    def _fits(self, schema: Schema) -> bool:
        return not self._reason(schema, None)

    def _reason(self, schema: Any, within: tuple[str, ...] | None) -> str:
        """The reason. `within` are the definitions around the schema, `None` while the possible ones are being found."""
        return next(filter(None, self._reasons(schema, within)), "") if is_schema(schema) else ""

    def _reasons(self, schema: Schema, within: tuple[str, ...] | None) -> Iterator[str]:
        name = schema.get("$ref", "").removeprefix(_DEFINITION)
        if name in self._definitions and name not in self._possible:
            yield self._of_definition(name, within)
        if schema.get("enum") == []:
            yield "there is nothing to choose from"
        for keyword in ("anyOf", "oneOf"):
            branches = [self._reason(branch, within) for branch in schema.get(keyword, ())]
            if all(branches) and keyword in schema:
                yield " and ".join(dict.fromkeys(branches)) or "there is nothing to choose from"
        yield from _bounds(schema)
        for key in schema.get("required", ()) if schema.get("type") == "object" else ():
            yield self._reason(schema.get("properties", {}).get(key), within)
        if schema.get("type") == "array":
            first = schema.get("prefixItems", ())
            wanted = [*first, schema.get("items")][: schema.get("minItems", 0)]
            yield from (self._reason(item, within) for item in wanted)

    def _of_definition(self, name: str, within: tuple[str, ...] | None) -> str:
        if within is None:
            return "unknown so far"
        if name in within:
            return f"each {name} needs another {name}, without end"
        return self._reason(self._definitions[name], (*within, name))


def _bounds(schema: Schema) -> Iterator[str]:
    for least, most in _SIZES:
        if schema.get(least, 0) > schema.get(most, math.inf):
            yield f"{least} {schema[least]} is more than {most} {schema[most]}"
    if schema.get("type") in ("integer", "number") and not _holds_numbers(schema):
        yield f"no {schema['type']} is within {', '.join(f'{name} {schema[name]}' for name in _BOUNDS if name in schema)}"


def _holds_numbers(schema: Schema) -> bool:
    least, above, most, below = (schema.get(name, none) for name, none in _BOUNDS.items())
    low, high = max(least, above), min(most, below)
    if schema["type"] == "integer" and math.isfinite(low) and math.isfinite(high):
        return (math.floor(low) + 1 if low == above else math.ceil(low)) <= (
            math.ceil(high) - 1 if high == below else math.floor(high)
        )
    return low < high or (low == high and low != above and high != below)
