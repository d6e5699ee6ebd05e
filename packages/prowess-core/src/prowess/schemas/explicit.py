"""Checks schemas written by an author, and values against them.

The only module that uses `jsonschema`, which it imports at the first use. It never fetches a remote schema.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from prowess.errors import SchemaError, did_you_mean, shortened
from prowess.jsontypes import Json, Schema
from prowess.schemas.matching import pattern_matches
from prowess.schemas.walk import Path, is_list, is_schema, visit

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

__all__ = ["DIALECT", "MAX_BYTES", "MAX_DEPTH", "check_explicit", "validate"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_BYTES = 256 * 1024
"""The same limit as turul has for revision 2026-07-28. A schema of this size costs tens of thousands of tokens."""
MAX_DEPTH = 32
"""How deep `allOf`, `anyOf`, `oneOf`, `not` and `if` may be nested in each other. The same limit as turul has."""
_COMPOSITION = frozenset({"allOf", "anyOf", "else", "if", "not", "oneOf", "then"})
_MAX_PATH = 1000
_TOO_DEEP = "it is nested too deeply to be checked"
_SHOWN_PROBLEMS = 5
_SHOWN_VALUE = 60


# Whether a schema can be used


def check_explicit(schema: Any, *, what: str) -> None:
    """Raise a `SchemaError` unless a schema is valid JSON Schema 2020-12 of reasonable size without remote references.

    `what` names the schema at the beginning of the message, as in "input_schema of notes.add".
    """
    problem = _refusal(schema)
    if problem is not None:
        raise SchemaError(f"{what}: {problem}")


def _refusal(schema: Any) -> str | None:
    """The first problem of a schema, or `None`. Each check relies on those before it."""
    if not is_schema(schema):
        return f"it must be a dict, not {type(schema).__name__}"
    if any(len(path) > _MAX_PATH for path, _ in visit(schema)):  # this also ends a dict that holds itself
        return _TOO_DEEP
    nodes = list(visit(schema))
    return _size(schema) or _dialect(nodes) or _depth(nodes) or _meta(schema) or next(_dangling(schema, nodes), None)


def _size(schema: Schema) -> str | None:
    try:
        size = len(json.dumps(schema, allow_nan=False, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    except (TypeError, ValueError, RecursionError) as error:
        return f"it cannot be written as JSON ({error})"
    return f"it has {size} bytes; the limit is {MAX_BYTES} bytes (256 KiB)" if size > MAX_BYTES else None


def _dialect(nodes: Iterable[tuple[Path, Schema]]) -> str | None:
    for path, node in nodes:
        dialect = node.get("$schema", DIALECT)
        if not isinstance(dialect, str) or dialect.removesuffix("#") != DIALECT:
            return f"the dialect {dialect!r} at {_place(path)} is not supported; use {DIALECT} or leave $schema out"
    return None


def _depth(nodes: Iterable[tuple[Path, Schema]]) -> str | None:
    deepest = max(sum(1 for step in path if step in _COMPOSITION) for path, _ in nodes)
    return f"its compositions are nested {deepest} deep; the limit is {MAX_DEPTH}" if deepest > MAX_DEPTH else None


def _meta(schema: Schema) -> str | None:
    from jsonschema import Draft202012Validator

    meta: Any = Draft202012Validator(
        Draft202012Validator.META_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER
    )
    try:
        errors = list(meta.iter_errors(schema))
    except RecursionError:
        return _TOO_DEEP
    problems = dict.fromkeys(f"{_place(error.absolute_path)}: {shortened(error.message, 200)}" for error in errors)
    return "not valid JSON Schema 2020-12: " + "; ".join(list(problems)[:_SHOWN_PROBLEMS]) if problems else None


def _dangling(schema: Schema, nodes: Iterable[tuple[Path, Schema]]) -> Iterator[str]:
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    registry = cast("Any", Registry)().with_resource("", DRAFT202012.create_resource(schema))
    for path, node in nodes:
        for keyword in ("$ref", "$dynamicRef"):
            if keyword in node:
                try:
                    registry.resolver(_base(schema, path)).lookup(node[keyword])
                except Unresolvable:
                    yield _unresolvable(keyword, node[keyword], path)


def _base(schema: Schema, path: Path) -> str:
    """The base URI of references at a place, from every `$id` on the path."""
    from urllib.parse import urljoin

    base = ""
    for place in accumulate(path, _descend, initial=schema):
        inner = place.get("$id") if is_schema(place) else None
        base = urljoin(base, inner) if isinstance(inner, str) else base  # `$id` may also be the name of a property
    return base


def _descend(place: Any, step: str | int) -> Any:
    return place[step]


def _unresolvable(keyword: str, ref: str, path: Path) -> str:
    if ref.startswith("#"):
        return f"the {keyword} {ref!r} at {_place(path)} leads nowhere in the schema"
    return (
        f"the remote {keyword} {ref!r} at {_place(path)} is disabled by policy: nothing is fetched. Copy it into $defs"
    )


# Whether a value meets a schema


def validate(schema: Schema, value: Json, *, root: str = "") -> list[str]:
    """All problems of a value, one short line each: `filters[2].name: expected string, got 7`.

    Each place begins with `root`.
    """
    from referencing.exceptions import Unresolvable

    validator: Any = _validator(schema)
    try:
        errors: list[ValidationError] = sorted(
            validator.iter_errors(value), key=lambda error: _place(error.absolute_path)
        )
    except Unresolvable as error:
        raise SchemaError(f"a reference in the schema has no target: {error}") from error
    return list(dict.fromkeys(f"{_place(path, root)}: {said}" for error in errors for path, said in _problems(error)))


def _validator(schema: Schema) -> Draft202012Validator:
    from referencing import Registry

    return _bounded()(schema, registry=Registry())


@functools.cache
def _bounded() -> type[Draft202012Validator]:
    """The validator class, which matches patterns in linear time."""
    from jsonschema import Draft202012Validator, validators
    from jsonschema.exceptions import ValidationError

    def pattern(_validator: Any, regex: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
        if isinstance(value, str) and not pattern_matches(regex, value):
            yield ValidationError(f"{value!r} does not match {regex!r}")

    def pattern_properties(validator: Any, patterns: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
        for regex, schema in patterns.items() if isinstance(value, dict) else ():
            for name, held in cast("dict[str, Any]", value).items():
                if pattern_matches(regex, name):
                    yield from validator.descend(held, schema, path=name, schema_path=regex)

    def additional_properties(validator: Any, rest: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        if not isinstance(value, dict):
            return
        extra = [name for name in cast("dict[str, Any]", value) if _is_additional(name, schema)]
        if rest is False and extra:
            yield ValidationError(f"Additional properties are not allowed ({', '.join(map(repr, extra))})")
        for name in extra if is_schema(rest) else ():
            yield from validator.descend(value[name], rest, path=name)

    changed = {
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
    }
    return cast("Any", validators).extend(Draft202012Validator, changed)


def _is_additional(name: str, schema: Schema) -> bool:
    known: dict[str, Any] = schema.get("properties", {})
    patterns: dict[str, Any] = schema.get("patternProperties", {})
    return name not in known and not any(pattern_matches(pattern, name) for pattern in patterns)


_Problem: TypeAlias = tuple[Path, str]
"""A path, and the problem there."""


def _problems(error: ValidationError) -> Iterator[_Problem]:
    if error.validator == "required":
        for name in cast("list[str]", error.validator_value):
            if name not in cast("dict[str, Any]", error.instance):
                yield (*error.absolute_path, name), "required, but missing"
    elif error.validator == "additionalProperties":
        yield from _unknown_properties(error)
    elif error.validator in ("anyOf", "oneOf") and error.context:
        yield from _union_problems(error)
    else:
        yield _problem(error, _expectation(error))


def _problem(error: ValidationError, expectation: str) -> _Problem:
    return tuple(error.absolute_path), f"expected {expectation}, got {_shown(error.instance)}"


def _unknown_properties(error: ValidationError) -> Iterator[_Problem]:
    schema = cast(Schema, error.schema)
    known: dict[str, Any] = schema.get("properties", {})
    for name, held in cast("dict[str, Any]", error.instance).items():
        if _is_additional(name, schema):
            said = f"unknown property{did_you_mean(name, known)}, got {_shown(held)}"
            yield (*error.absolute_path, name), said


def _union_problems(error: ValidationError) -> Iterator[_Problem]:
    """The problems of the intended branch; if that is unclear, one problem that lists the expectations of all branches."""
    branches: dict[Any, list[ValidationError]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.relative_schema_path[0], []).append(inner)
    meant = [problems for problems in branches.values() if not any(_is_another_kind(one) for one in problems)]
    if meant:
        nearest = min(meant, key=lambda problems: (sum(_is_another_tag(one) for one in problems), len(problems)))
        yield from (found for problem in nearest for found in _problems(problem))
    else:
        yield _problem(error, " or ".join(dict.fromkeys(_expectation(problems[0]) for problems in branches.values())))


def _is_another_kind(error: ValidationError) -> bool:
    return not error.relative_path and error.validator in ("const", "enum", "type")


def _is_another_tag(error: ValidationError) -> bool:
    return len(error.relative_path) == 1 and error.validator in ("const", "enum")


_EXPECTATIONS: dict[str, Callable[[Any], str]] = {
    "type": lambda held: " or ".join(held) if is_list(held) else str(held),
    "enum": lambda held: "one of " + ", ".join(_shown(allowed) for allowed in held),
    "const": lambda held: _shown(held),  # noqa: PLW0108 - defined below
    "minimum": "at least {}".format,
    "maximum": "at most {}".format,
    "exclusiveMinimum": "more than {}".format,
    "exclusiveMaximum": "less than {}".format,
    "multipleOf": "a multiple of {}".format,
    "minLength": "at least {} characters".format,
    "maxLength": "at most {} characters".format,
    "pattern": "text that matches {}".format,
    "minItems": "at least {} items".format,
    "maxItems": "at most {} items".format,
    "uniqueItems": lambda _held: "unique items",
    "minProperties": "at least {} properties".format,
    "maxProperties": "at most {} properties".format,
    "oneOf": lambda held: f"exactly one of {len(held)} alternatives to fit",
}


def _expectation(error: ValidationError) -> str:
    words = _EXPECTATIONS.get(str(error.validator))
    return words(error.validator_value) if words else f"another value ({shortened(error.message, 200)})"


def _place(path: Iterable[str | int], root: str = "") -> str:
    text = root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".") or "value"


def _shown(value: Any) -> str:
    return shortened(json.dumps(value, ensure_ascii=False, default=str), _SHOWN_VALUE)
