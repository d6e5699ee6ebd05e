"""Validates a body against the schema of its command in bounded time, because it runs in the host, which serves all clients.

Python's regular expressions can take for ever and hold the interpreter meanwhile. Imported with the first body.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from pydantic_core import SchemaError, SchemaValidator
from pydantic_core.core_schema import str_schema

if TYPE_CHECKING:
    from prowess.jsontypes import JsonObject

__all__ = ["find_mismatches"]


def find_mismatches(schema: JsonObject, body: Any) -> Iterator[ValidationError]:
    """The errors of a body. If the patterns of a schema cannot be matched in linear time, the worker validates instead."""
    patterns: dict[str, SchemaValidator] = {}
    try:
        for each in _patterns_in(schema):
            patterns[each] = SchemaValidator(str_schema(pattern=each, regex_engine="rust-regex"))
    except (SchemaError, _Unmatched):
        return iter(())

    def match(_validator: object, pattern: str, value: Any, _schema: object) -> Iterator[ValidationError]:
        if isinstance(value, str) and not patterns[pattern].isinstance_python(value):
            yield ValidationError(f"{value!r} does not match {pattern!r}")

    untyped: Any = validators
    kind = untyped.validator_for(schema, default=Draft202012Validator)
    bounded = untyped.extend(kind, {"pattern": match, "uniqueItems": _unique})
    return cast("Iterator[ValidationError]", bounded(schema).iter_errors(body))


class _Unmatched(Exception):
    """The schema has patterns for names of members, which several keywords use."""


def _patterns_in(schema: Any) -> Iterator[str]:
    """All texts that could be patterns. A parameter with that name is harmless."""
    pending = [schema]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            found = cast("JsonObject", each)
            if "patternProperties" in found:
                raise _Unmatched
            if isinstance(found.get("pattern"), str):
                yield found["pattern"]
            pending.extend(found.values())
        elif isinstance(each, list):
            pending.extend(cast("list[Any]", each))


def _unique(_validator: object, wanted: bool, value: Any, _schema: object) -> Iterator[ValidationError]:
    if wanted and isinstance(value, list):
        items = [json.dumps(item, sort_keys=True) for item in cast("list[Any]", value)]
        if len(set(items)) < len(items):
            yield ValidationError("its items must differ")
