"""Compares a value with the keywords of one schema without looking deeper: type, constants, sizes. This tells branches of unions apart.

It ignores formats, and keywords that pydantic never writes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, cast

from prowess.jsontypes import Json, Schema

__all__ = ["has_type", "identity", "leaf_problems", "pattern_matches", "same"]


def has_type(value: Json, name: str) -> bool:
    """Whether a value is of a JSON Schema type. A float without a fraction is an `integer`."""
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(name, ())) and (name == "boolean" or not isinstance(value, bool))


_TYPES: dict[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


def same(one: Json, other: Json) -> bool:
    """Equal as JSON: `1` is not `true`, and `[1]` is not `[true]`."""
    if one != other or isinstance(one, bool) is not isinstance(other, bool):
        return False
    return not isinstance(one, (list, dict)) or identity(one) == identity(other)


def identity(value: Any) -> Any:
    """A hashable key that is equal for values that are equal as JSON. Raises `TypeError` for other data."""
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    if isinstance(value, (int, float)):
        return ("number", value)
    if isinstance(value, str):
        return ("string", value)
    if isinstance(value, (list, tuple)):
        return ("array", tuple(identity(item) for item in cast("list[Any]", value)))
    if isinstance(value, dict):
        return ("object", frozenset((name, identity(item)) for name, item in cast("dict[str, Any]", value).items()))
    raise TypeError(f"not JSON data: {value!r}")


def pattern_matches(pattern: str, text: str) -> bool:
    """Whether a pattern matches somewhere in a text. A pattern that Python cannot compile counts as a match."""
    return _matcher(pattern)(text)


@functools.lru_cache(maxsize=1024)
def _matcher(pattern: str) -> Callable[[str], bool]:
    """The matcher of pydantic, which takes linear time; that of Python can take for ever on a short text.

    It has no look-around and no back-references, so Python matches patterns with those.
    """
    from pydantic_core import SchemaError, SchemaValidator  # keeps the module light until the first pattern
    from pydantic_core.core_schema import str_schema

    try:
        return SchemaValidator(str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python
    except SchemaError:
        pass
    try:
        compiled = re.compile(pattern)
    except re.error:
        return lambda _: True
    return lambda text: compiled.search(text) is not None


def _is_multiple(value: float, of: float) -> bool:
    try:
        return value % of == 0 if isinstance(of, int) else (value / of).is_integer()
    except OverflowError:  # an integer beyond all floats
        return True


_CHECKS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("number", lambda value, limit: value >= limit),
    "exclusiveMinimum": ("number", lambda value, limit: value > limit),
    "maximum": ("number", lambda value, limit: value <= limit),
    "exclusiveMaximum": ("number", lambda value, limit: value < limit),
    "multipleOf": ("number", _is_multiple),
    "minLength": ("string", lambda value, limit: len(value) >= limit),
    "maxLength": ("string", lambda value, limit: len(value) <= limit),
    "pattern": ("string", lambda value, pattern: pattern_matches(pattern, value)),
    "minItems": ("array", lambda value, limit: len(value) >= limit),
    "maxItems": ("array", lambda value, limit: len(value) <= limit),
    "minProperties": ("object", lambda value, limit: len(value) >= limit),
    "maxProperties": ("object", lambda value, limit: len(value) <= limit),
}


def leaf_problems(schema: Schema, value: Json) -> int:
    """The number of keywords of the schema itself that the value breaks."""
    return sum(1 for keyword, held in schema.items() if not _meets(keyword, held, value))


def _meets(keyword: str, held: Any, value: Json) -> bool:
    if keyword == "type":
        names = cast("list[str]", held if isinstance(held, list) else [held])
        return any(has_type(value, name) for name in names)
    if keyword == "const":
        return same(held, value)
    if keyword == "enum":
        return any(same(allowed, value) for allowed in held)
    check = _CHECKS.get(keyword)
    return check is None or not has_type(value, check[0]) or check[1](value, held)
