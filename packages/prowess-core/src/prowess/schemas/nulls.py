"""Treats null as a missing property: removes it from schemas, removes it from values, and puts it back into values.

One rule keeps schemas and values in agreement: only a *declared* property of an object, whose schema names null as a choice,
loses its null. Items of arrays and entries of open maps keep theirs.

For arguments, a missing property means null only if null is its default, or if the property is required without another
default. Otherwise null is a separate choice: `strip_null(..., marked=True)` writes it as `nullable: true`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, cast

from prowess.jsontypes import Json, Schema
from prowess.schemas.matching import leaf_problems, pattern_matches
from prowess.schemas.refs import merge, pointer, resolve, without
from prowess.schemas.walk import is_list, is_schema, rewrite_children

__all__ = ["NULLABLE", "is_nullable", "omit_nulls", "restore_nulls", "strip_null"]

_COUNTING_KEYS = frozenset({"dependentRequired", "dependentSchemas", "if", "minProperties", "not"})
"""An object with one of these keeps its nulls, because a missing key could change its validity."""
_UNIONS = ("anyOf", "oneOf")
NULLABLE = "nullable"
"""A keyword of OpenAPI 3.0. Gemini and Ajv read it, others ignore it. No client refuses a tool for it, as some do for a
branch of null (Gemini) or a list of types (Gemini, Cursor)."""
_ABSENT: Any = object()


def is_nullable(document: Schema, node: Any, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a schema names null as one of its choices. A schema that admits anything does not."""
    verdicts: list[bool] = []
    for keyword, held in node.items() if is_schema(node) else ():
        if keyword == "type":
            verdicts.append(held == "null" or "null" in held)
        elif keyword == "enum":
            verdicts.append(None in held)
        elif keyword == "const":
            verdicts.append(held is None)
        elif keyword in _UNIONS:
            verdicts.append(any(is_nullable(document, branch, seen) for branch in held))
        elif keyword == "allOf":
            verdicts.append(all(is_nullable(document, branch, seen) for branch in held))
        elif keyword == "$ref":
            verdicts.append(held not in seen and is_nullable(document, resolve(document, held), seen | {held}))
    return bool(verdicts) and all(verdicts)


def _is_only_null(document: Schema, node: Any, seen: frozenset[str] = frozenset()) -> bool:
    if not is_schema(node):
        return False
    if node.get("type") in ("null", ["null"]) or node.get("enum") == [None] or node.get("const", 0) is None:
        return True
    for union in _UNIONS:
        if union in node and all(_is_only_null(document, branch, seen) for branch in node[union]):
            return True
    ref = node.get("$ref")
    return isinstance(ref, str) and ref not in seen and _is_only_null(document, resolve(document, ref), seen | {ref})


def _nullable_properties(document: Schema, node: Schema) -> frozenset[str]:
    if not _COUNTING_KEYS.isdisjoint(node):
        return frozenset()
    return frozenset(name for name, held in node.get("properties", {}).items() if is_nullable(document, held))


# Schemas


def strip_null(schema: Schema, *, root: bool = False, marked: bool = False) -> Schema:
    """The document without null in declared properties, which become optional; with `root`, without null in the root, too.

    `marked` keeps `nullable: true` on a property whose absence means something else than null.
    """
    stripper = _Stripper(schema, marked=marked)
    stripped = stripper.strip(schema)
    if root and is_nullable(schema, schema):
        stripped = stripper.present(stripped)
    if not stripper.made:
        return stripped
    return {**stripped, "$defs": {**stripped.get("$defs", {}), **stripper.made}}


class _Stripper:
    def __init__(self, document: Schema, *, marked: bool) -> None:
        self.document = document
        self.marked = marked
        self.made: dict[str, Schema] = {}
        """Copies of definitions without null, for properties that refer to one; other references keep the original."""

    def strip(self, node: Schema) -> Schema:
        node = rewrite_children(node, self.strip)
        nullable = _nullable_properties(self.document, node)
        if not nullable:
            return node
        properties = {
            name: self._property(held, required=name in node.get("required", ())) if name in nullable else held
            for name, held in node["properties"].items()
        }
        required = [name for name in node.get("required", ()) if name not in nullable]
        optional = {**without(node, "required"), "properties": properties}
        return {**optional, "required": required} if required else optional

    def _property(self, held: Schema, *, required: bool) -> Schema:
        """A declared property without null, marked if a missing key does not mean null."""
        means_null = required or held.get("default", _ABSENT) is None
        present = self.present(held)
        if means_null or not self.marked or _is_only_null(self.document, held):
            return present
        return {**present, NULLABLE: True}

    def present(self, node: Schema) -> Schema:
        """The schema without null among its choices; a schema that admits only null stays."""
        if "default" in node and node["default"] is None:
            node = without(node, "default")
        if _is_only_null(self.document, node):
            return node
        present = {keyword: self._present(keyword, held) for keyword, held in node.items()}
        for union in _UNIONS:
            present = _without_union_of_one(present, union)
        return present

    def _present(self, keyword: str, held: Any) -> Any:
        if keyword == "$ref":
            return self._reference(held)
        if keyword == "type" and is_list(held):
            types = [name for name in held if name != "null"]
            return types[0] if len(types) == 1 else types
        if keyword == "enum":
            return [value for value in held if value is not None]
        if keyword in _UNIONS:
            branches = [branch for branch in held if not _is_only_null(self.document, branch)]
            return [self.present(branch) if is_nullable(self.document, branch) else branch for branch in branches]
        return [self.present(branch) for branch in held] if keyword == "allOf" else held

    def _reference(self, ref: str) -> str:
        name = f"{ref}.not_null"
        if name not in self.made:
            self.made[name] = {}
            self.made[name] = self.present(self.strip(resolve(self.document, ref) or {}))
        return pointer("$defs", name)


def _without_union_of_one(node: Schema, union: str) -> Schema:
    branches: list[Any] = node.get(union, [])
    if len(branches) != 1 or not is_schema(branches[0]):
        return node
    return merge(branches[0], without(node, union))


# Values


class _Fit(NamedTuple):
    """How well a value fits a schema, and the value with its nulls omitted or restored accordingly."""

    value: Any
    problems: int = 0
    unknown: int = 0
    restored: int = 0

    def then(self, other: _Fit) -> _Fit:
        """This fit combined with `other`, which was computed from its value."""
        return _Fit(
            other.value, self.problems + other.problems, self.unknown + other.unknown, self.restored + other.restored
        )

    @property
    def cost(self) -> tuple[int, int, int]:
        return self.problems, self.unknown, self.restored


def omit_nulls(schema: Schema, value: Json) -> Json:
    """A valid value without the nulls that `strip_null` removes from its schema."""
    return _Fitter(schema, restore=False).fit(schema, value).value if _holds_null(value) else value


def restore_nulls(schema: Schema, value: Json) -> Json:
    """The reverse: each missing property that is required and may be null is set to null.

    In a union, the branch that fits best decides. Validation reports later what does not fit.
    """
    return _Fitter(schema, restore=True).fit(schema, value).value


def _holds_null(value: Any) -> bool:
    waiting = [value]
    while waiting:
        held = waiting.pop()
        if held is None:
            return True
        if is_schema(held) or is_list(held):
            waiting.extend(held.values() if is_schema(held) else held)
    return False


_Work: TypeAlias = Generator[tuple[Any, Any], _Fit, _Fit]
"""A generator that yields pairs of schema and value, is sent the fit of each, and returns its own.

Plain recursion would fail on a value nested deeper than Python calls can be.
"""


class _Fitter:
    def __init__(self, document: Schema, *, restore: bool) -> None:
        self.document = document
        self.restore = restore
        self.known: dict[tuple[int, int], tuple[Any, Any, _Fit]] = {}
        """Known fits by the identities of schema and value, which are kept alive for that. Without it, unions of
        recursive types would take time exponential in the depth of the value."""
        self.nullable: dict[int, frozenset[str]] = {}

    def fit(self, schema: Any, value: Any) -> _Fit:
        open_work = [self._look_up(schema, value)]
        answer: _Fit | None = None
        while open_work:
            try:
                question = open_work[-1].send(answer) if answer else next(open_work[-1])
                open_work.append(self._look_up(*question))
                answer = None
            except StopIteration as end:
                open_work.pop()
                answer = cast(_Fit, end.value)
        return cast(_Fit, answer)

    def _look_up(self, schema: Any, value: Any) -> _Work:
        if not is_schema(schema):
            return _Fit(value, int(schema is False))
        key = id(schema), id(value)
        if key not in self.known:
            self.known[key] = schema, value, _Fit(value, 1)  # a reference that leads back to itself fits nothing
            self.known[key] = schema, value, (yield from self._fit(schema, value))
        return self.known[key][2]

    def _fit(self, schema: Schema, value: Any) -> _Work:
        fit = _Fit(value, leaf_problems(schema, value))
        if "$ref" in schema:
            fit = fit.then((yield resolve(self.document, schema["$ref"]), fit.value))
        for branch in schema.get("allOf", ()):
            fit = fit.then((yield branch, fit.value))
        for union in _UNIONS:
            if union in schema:
                fit = fit.then((yield from self._best(schema[union], fit.value)))
        if is_schema(value):
            return fit.then((yield from self._object(schema, fit.value)))
        return fit.then((yield from self._array(schema, fit.value))) if is_list(value) else fit

    def _best(self, branches: list[Any], value: Any) -> _Work:
        best = _Fit(value)
        for index, branch in enumerate(branches):
            fit = yield branch, value
            best = fit if index == 0 or fit.cost < best.cost else best
        return best

    def _object(self, schema: Schema, value: dict[str, Any]) -> _Work:
        nullable = self._nullable(schema)
        missing = [name for name in schema.get("required", ()) if name not in value]
        restored = [name for name in missing if name in nullable] if self.restore else []
        entries: dict[str, Any] = {}
        total = _Fit(entries, len(missing) - len(restored), 0, len(restored))
        for name, held in value.items():
            if held is None and name in nullable and not self.restore:
                continue
            branch, declared = _branch(schema, name)
            fit = yield branch, held
            entries[name] = fit.value
            total = total.then(fit._replace(unknown=fit.unknown + (not declared)))
        return total._replace(value=entries | dict.fromkeys(restored))

    def _nullable(self, schema: Schema) -> frozenset[str]:
        if id(schema) not in self.nullable:
            self.nullable[id(schema)] = _nullable_properties(self.document, schema)
        return self.nullable[id(schema)]

    def _array(self, schema: Schema, value: list[Any]) -> _Work:
        positions: list[Any] = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        items: list[Any] = []
        total = _Fit(items)
        for index, held in enumerate(value):
            fit = yield positions[index] if index < len(positions) else rest, held
            items.append(fit.value)
            total = total.then(fit)
        return total._replace(value=items)


def _branch(schema: Schema, name: str) -> tuple[Any, bool]:
    """The schema for an entry of an object, and whether it is declared; an object without `properties` declares all."""
    if name in schema.get("properties", {}):
        return schema["properties"][name], True
    for pattern, branch in schema.get("patternProperties", {}).items():
        if pattern_matches(pattern, name):
            return branch, True
    return schema.get("additionalProperties", True), "properties" not in schema
