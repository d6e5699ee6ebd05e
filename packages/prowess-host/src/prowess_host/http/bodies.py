"""Validates a body against the schema of its command in bounded time, because it runs in the host, which serves all clients.

Python's regular expressions can take for ever while they hold the interpreter, and so can recursive unions. Imported with the
first body.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from pydantic_core import SchemaError, SchemaValidator
from pydantic_core.core_schema import str_schema

if TYPE_CHECKING:
    from prowess.jsontypes import JsonObject

__all__ = ["find_mismatches"]

_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_FOLLOWED_AT_LEAST: Final = 5000
_FOLLOWED: Final = 10
"""The most references that are followed for each value of a body: one or two for each branch of a union."""


def find_mismatches(schema: JsonObject, body: Any) -> Iterator[ValidationError]:
    """The errors of a body. If a schema cannot be compared with it in linear time, the worker validates instead."""
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
    left = iter(range(_FOLLOWED_AT_LEAST + _FOLLOWED * _size(body)))

    def following(follow: Callable[..., Iterator[ValidationError]]) -> Callable[..., Iterator[ValidationError]]:
        def counted(*how: Any) -> Iterator[ValidationError]:
            """Follow a reference, up to a limit: branches that refer to each other take exponential time."""
            if next(left, None) is None:
                raise _Unmatched
            yield from follow(*how) or ()

        return counted

    references = {name: following(follow) for name, follow in kind.VALIDATORS.items() if name in _REFERENCES}
    bounded = untyped.extend(kind, {"pattern": match, "uniqueItems": _unique, **references})
    return _unless_too_long(bounded(schema).iter_errors(body))


def _unless_too_long(errors: Iterator[ValidationError]) -> Iterator[ValidationError]:
    with contextlib.suppress(_Unmatched):
        yield from errors


def _size(body: Any) -> int:
    """The number of values in a body."""
    number, pending = 0, [body]
    while pending:
        each = pending.pop()
        number += 1
        if isinstance(each, dict):
            pending.extend(cast("JsonObject", each).values())
        elif isinstance(each, list):
            pending.extend(cast("list[Any]", each))
    return number


class _Unmatched(Exception):
    """The schema has patterns for names of members, which several keywords use, or too many references were followed."""


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


def _unique(_validator: object, required: bool, value: Any, _schema: object) -> Iterator[ValidationError]:
    if required and isinstance(value, list):
        items = [json.dumps(item, sort_keys=True) for item in cast("list[Any]", value)]
        if len(set(items)) < len(items):
            yield ValidationError("its items must differ")
