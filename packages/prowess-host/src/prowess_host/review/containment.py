"""Decides whether every value that is valid under one JSON Schema is valid under another. In doubt, the answer is no.

The rules are a short table for the schemas that pydantic writes: types, constants, limits, objects, arrays, unions and
references. Each keyword of the wider schema must follow from the narrower one; a keyword without a rule follows only from
an equal keyword.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from prowess.jsontypes import Json, Schema
from prowess.schemas.refs import resolve, without
from prowess.schemas.walk import is_list, is_schema, rewrite, visit

__all__ = ["meaning", "within"]

_MOST_STEPS: Final = 10_000
"""Steps after which the answer is no: far more than any signature needs."""
_DESCRIBING: Final = (
    *("$comment", "$defs", "$schema", "default", "definitions", "deprecated", "description", "discriminator"),
    *("examples", "readOnly", "title", "writeOnly"),
)
_SCOPED: Final = frozenset({"$anchor", "$dynamicAnchor", "$dynamicRef", "$id"})
"""Keywords that change the target of references. References in such a document are not followed."""
_WHOLE: Final = frozenset({"maxContains", "minContains", "unevaluatedItems", "unevaluatedProperties"})
"""Keywords that depend on their siblings. Such a schema follows only from an equal one."""


def within(narrow: Any, wide: Any, *, narrow_document: Any = None, wide_document: Any = None) -> bool:
    """Whether every instance of `narrow` is an instance of `wide`. `False` may also mean that it is unknown.

    References are resolved in the document of a schema, by default the schema itself.
    """
    narrow_side = _Document(narrow if narrow_document is None else narrow_document)
    wide_side = _Document(wide if wide_document is None else wide_document)
    try:
        return _Question(narrow_side, wide_side).holds(narrow, wide)
    except RecursionError:
        return False


def meaning(schema: Any, document: Any = None) -> str:
    """A text that is equal for schemas that differ only in descriptions and order."""
    return _Document(schema if document is None else document).meaning(schema)


def _text(data: Json) -> str:
    """A text that is equal for equal JSON: `1` equals `1.0`, and differs from `true`."""
    return json.dumps(_plain(data), sort_keys=True)


def _plain(data: Any) -> Any:
    if isinstance(data, float) and data.is_integer():
        return int(data)
    if is_list(data):
        return [_plain(item) for item in data]
    return {name: _plain(item) for name, item in data.items()} if is_schema(data) else data


class _Document:
    """A whole schema, which resolves references and compares its parts."""

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        nodes = [node for path, node in visit(whole) if path] if is_schema(whole) else []
        self.scoped = any(not _SCOPED.isdisjoint(node) for node in nodes)
        self._known: dict[int, tuple[Any, str]] = {}
        """Meanings by identity. Keeping the schemas prevents the reuse of an identity."""

    def target(self, ref: Any) -> Any:
        """The target of a reference, or `None`."""
        if self.scoped or not isinstance(ref, str) or not is_schema(self.whole):
            return None
        return resolve(self.whole, ref)

    def meaning(self, schema: Any) -> str:
        """The text of a schema with all its references, without descriptions."""
        known = self._known.get(id(schema))
        if known is None:
            known = self._known[id(schema)] = schema, self._meaning(schema)
        return known[1]

    def _meaning(self, schema: Any) -> str:
        if not is_schema(schema):
            return _text(schema)
        targets: dict[str, Any] = {}
        waiting: list[Any] = [schema]
        while waiting:
            for _, node in visit(waiting.pop()):
                ref = node.get("$ref")
                if isinstance(ref, str) and ref not in targets:
                    target = targets[ref] = self.target(ref)
                    waiting.extend([] if target is None else [target])
        meanings = {ref: None if target is None else _bare(target) for ref, target in sorted(targets.items())}
        return f"{id(self) if self.scoped else ''}{_bare(schema)}{json.dumps(meanings) if meanings else ''}"

    def accepts(self, schema: Any, value: Json) -> bool:
        """Whether a value certainly meets a schema. Formats are never certain."""
        from jsonschema import Draft202012Validator  # only where values are listed

        definitions = {
            name: self.whole[name] for name in ("$defs", "definitions") if is_schema(self.whole) and name in self.whole
        }
        judged = {**definitions, "allOf": [schema]}
        if self.scoped or any("format" in node for _, node in visit(judged)):
            return False
        try:
            validator: Any = Draft202012Validator(judged)
            return validator.is_valid(value)
        except Exception:  # noqa: BLE001 - a pattern of another dialect, a dangling reference, a broken schema
            return False


def _bare(schema: Any) -> str:
    return _text(rewrite(schema, lambda node: without(node, *_DESCRIBING)))


class _Question:
    """One comparison, with its stack of open questions."""

    def __init__(self, narrow: _Document, wide: _Document) -> None:
        self._narrow = narrow
        self._wide = wide
        self._steps = 0
        self._depth = 0
        """The number of enclosing properties and items."""
        self._open: dict[tuple[str, str], int] = {}

    def holds(self, narrow: Any, wide: Any) -> bool:
        """Whether every value of `narrow` is a value of `wide`.

        A question that recurs below a property or an item of itself holds: this is induction on the depth of values, which
        is finite.
        """
        self._steps += 1
        if self._steps > _MOST_STEPS:
            return False
        key = self._narrow.meaning(narrow), self._wide.meaning(wide)
        if key[0] == key[1] or narrow is False or wide is True:
            return True
        if key in self._open:
            return self._open[key] < self._depth
        self._open[key] = self._depth
        try:
            return self._follows(narrow if is_schema(narrow) else {}, wide)
        finally:
            del self._open[key]

    def below(self, narrow: Any, wide: Any) -> bool:
        """The same, for a property or an item."""
        self._depth += 1
        try:
            return self.holds(narrow, wide)
        finally:
            self._depth -= 1

    def same(self, narrow: Any, wide: Any) -> bool:
        """Whether two parts have the same meaning."""
        return self._narrow.meaning(narrow) == self._wide.meaning(wide)

    def _follows(self, narrow: Schema, wide: Any) -> bool:
        if not is_schema(wide):
            return False
        narrow, wide = without(narrow, *_DESCRIBING), without(wide, *_DESCRIBING)
        if not (_WHOLE.isdisjoint(wide) and _WHOLE.isdisjoint(narrow)):
            return False
        return self._by_parts(narrow, wide) or all(self._keyword_follows(keyword, narrow, wide) for keyword in wide)

    def _by_parts(self, narrow: Schema, wide: Schema) -> bool:
        """Split the narrower schema: all alternatives must fit, or one part of an `allOf` must be enough."""
        if "$ref" in narrow:
            target = self._narrow.target(narrow["$ref"])
            if target is not None and self.holds(target, wide):
                return True
        values = _values(narrow)
        if values is not None:
            return all(self._wide.accepts(wide, value) for value in values)
        if is_list(narrow.get("type")):
            return all(self.holds({**narrow, "type": name}, wide) for name in narrow["type"])
        for keyword in ("anyOf", "oneOf"):
            rest = without(narrow, keyword)
            branches = [_joined(rest, branch) for branch in narrow.get(keyword, ())]
            if branches and all(self.holds(branch, wide) for branch in branches):
                return True
        return any(self.holds(part, wide) for part in narrow.get("allOf", ()))

    def _keyword_follows(self, keyword: str, narrow: Schema, wide: Schema) -> bool:
        if keyword in _APPLIES_TO and not _may_be(narrow, _APPLIES_TO[keyword]):
            return True
        rule = _RULES.get(keyword)
        if rule is not None and rule(self, narrow, wide):
            return True
        return keyword in narrow and self.same({keyword: narrow[keyword]}, {keyword: wide[keyword]}) and rule is None

    # Rules for nested schemas

    def ref(self, narrow: Schema, wide: Schema) -> bool:
        """The target of the reference must follow. A reference without a target follows from itself."""
        target = self._wide.target(wide["$ref"])
        if target is None:
            return "$ref" in narrow and self.same({"$ref": narrow["$ref"]}, {"$ref": wide["$ref"]})
        return self.holds(narrow, target)

    def one_of(self, narrow: Schema, wide: Schema) -> bool:
        """One branch must follow, and no two branches may overlap."""
        branches = [self._target(branch) for branch in wide["oneOf"]]
        apart = all(_disjoint(one, other) for at, one in enumerate(branches) for other in branches[:at])
        return apart and any(self.holds(narrow, branch) for branch in wide["oneOf"])

    def _target(self, schema: Any) -> Any:
        target = self._wide.target(schema["$ref"]) if is_schema(schema) and "$ref" in schema else None
        return schema if target is None else target

    def properties(self, narrow: Schema, wide: Schema) -> bool:
        """Each property must follow from the narrower schema for that name."""
        named = narrow.get("properties", {})
        if "patternProperties" in narrow and not wide["properties"].keys() <= named.keys():
            return False
        rest = narrow.get("additionalProperties", True)
        return all(self.below(named.get(name, rest), held) for name, held in wide["properties"].items())

    def additional_properties(self, narrow: Schema, wide: Schema) -> bool:
        """All properties that the wider schema does not name must follow."""
        held, known = wide["additionalProperties"], wide.get("properties", {})
        others = [inner for name, inner in narrow.get("properties", {}).items() if name not in known]
        if "patternProperties" not in wide:
            others.extend(narrow.get("patternProperties", {}).values())
        return all(self.below(inner, held) for inner in [*others, narrow.get("additionalProperties", True)])

    def items(self, narrow: Schema, wide: Schema) -> bool:
        """Items by position, then the rest."""
        first, second = narrow.get("prefixItems", []), wide.get("prefixItems", [])
        rest, second_rest = narrow.get("items", True), wide.get("items", True)
        if is_list(second_rest):
            return False  # the form of an older dialect
        longest = max(len(first), len(second))
        pairs = [(_at(first, at, rest), _at(second, at, second_rest)) for at in range(longest)]
        return all(self.below(one, other) for one, other in [*pairs, (rest, second_rest)])


def _values(schema: Schema) -> list[Json] | None:
    """All values of a schema with an enumeration or a finite type."""
    if "const" in schema:
        return [schema["const"]]
    return schema["enum"] if "enum" in schema else _FEW.get(str(schema.get("type")))


_FEW: Final[Mapping[str, list[Json]]] = {"boolean": [False, True], "null": [None]}


def _at(items: list[Any], index: int, rest: Any) -> Any:
    return items[index] if index < len(items) else rest


def _joined(rest: Schema, branch: Any) -> Any:
    """An alternative with the keywords beside the alternatives."""
    if not rest or not is_schema(branch):
        return branch
    return {**rest, **branch} if rest.keys().isdisjoint(branch) else {"allOf": [branch, rest]}


def _disjoint(one: Any, other: Any) -> bool:
    """Whether no value meets both: their types differ, or a property that both require has different values."""
    if not (is_schema(one) and is_schema(other)):
        return False
    types = _types(one), _types(other)
    if None not in types and not set(types[0] or ()) & set(types[1] or ()):
        return True
    both = set(one.get("required", ())) & set(other.get("required", ()))
    if types != (["object"], ["object"]):
        return False
    tags = ((_listed(one, name), _listed(other, name)) for name in both)
    return any(mine and theirs and not mine & theirs for mine, theirs in tags)


def _listed(schema: Schema, name: str) -> set[str]:
    """The enumerated values of a property as texts, or none."""
    held = schema.get("properties", {}).get(name)
    if not is_schema(held):
        return set()
    return set(map(_text, [held["const"]] if "const" in held else held.get("enum", ())))


def _types(schema: Schema) -> list[str] | None:
    """The types of a schema, with `integer` as a kind of `number`; `None` without a type."""
    held = schema.get("type")
    names: list[Any] = held if is_list(held) else [held]
    return None if held is None else ["number" if name == "integer" else name for name in names]


def _may_be(schema: Schema, kind: str) -> bool:
    types = _types(schema)
    return types is None or kind in types


# --- the table ------------------------------------------------------------------------------------

_Rule: TypeAlias = Callable[[_Question, Schema, Schema], bool]


def _type(_question: _Question, narrow: Schema, wide: Schema) -> bool:
    held = wide["type"]
    allowed: list[Any] = held if is_list(held) else [held]
    name = narrow.get("type")
    return name in allowed or (name == "integer" and "number" in allowed)


def _limit(keyword: str, *, least: bool, strict: str | None = None) -> _Rule:
    """A rule: the narrower schema has a limit that is at least as tight. A `strict` keyword excludes the limit itself."""

    def follows(_question: _Question, narrow: Schema, wide: Schema) -> bool:
        bound = wide[keyword]
        held = [narrow[name] for name in (keyword, strict) if name in narrow]
        return any(value >= bound if least else value <= bound for value in held)

    return follows


def _strict_limit(keyword: str, *, least: bool, open_to: str) -> _Rule:
    """A rule for an exclusive limit: one that is at least as tight, or an inclusive one beyond it."""

    def follows(_question: _Question, narrow: Schema, wide: Schema) -> bool:
        bound = wide[keyword]
        held, beyond = narrow.get(keyword), narrow.get(open_to)
        if held is not None and (held >= bound if least else held <= bound):
            return True
        return beyond is not None and (beyond > bound if least else beyond < bound)

    return follows


def _least_count(keyword: str) -> _Rule:
    def follows(_question: _Question, narrow: Schema, wide: Schema) -> bool:
        return narrow.get(keyword, 0) >= wide[keyword]

    return follows


def _unique(_question: _Question, narrow: Schema, wide: Schema) -> bool:
    return not wide["uniqueItems"] or narrow.get("uniqueItems") is True


def _required(_question: _Question, narrow: Schema, wide: Schema) -> bool:
    return set(wide["required"]) <= set(narrow.get("required", ()))


_RULES: Final[Mapping[str, _Rule]] = {
    "$ref": _Question.ref,
    "additionalProperties": _Question.additional_properties,
    "allOf": lambda question, narrow, wide: all(question.holds(narrow, part) for part in wide["allOf"]),
    "anyOf": lambda question, narrow, wide: any(question.holds(narrow, branch) for branch in wide["anyOf"]),
    "exclusiveMaximum": _strict_limit("exclusiveMaximum", least=False, open_to="maximum"),
    "exclusiveMinimum": _strict_limit("exclusiveMinimum", least=True, open_to="minimum"),
    "items": _Question.items,
    "maxItems": _limit("maxItems", least=False),
    "maxLength": _limit("maxLength", least=False),
    "maxProperties": _limit("maxProperties", least=False),
    "maximum": _limit("maximum", least=False, strict="exclusiveMaximum"),
    "minItems": _least_count("minItems"),
    "minLength": _least_count("minLength"),
    "minProperties": _least_count("minProperties"),
    "minimum": _limit("minimum", least=True, strict="exclusiveMinimum"),
    "oneOf": _Question.one_of,
    "prefixItems": _Question.items,
    "properties": _Question.properties,
    "required": _required,
    "type": _type,
    "uniqueItems": _unique,
}
"""The rules by which a keyword of the wider schema follows from the narrower one."""

_APPLIES_TO: Final[Mapping[str, str]] = {
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"), "number"),
    **dict.fromkeys(("maxLength", "minLength", "pattern"), "string"),
    **dict.fromkeys(("contains", "items", "maxItems", "minItems", "prefixItems", "uniqueItems"), "array"),
    **dict.fromkeys(("additionalProperties", "dependentRequired", "maxProperties", "minProperties"), "object"),
    **dict.fromkeys(("patternProperties", "properties", "propertyNames", "required"), "object"),
}
"""Keywords that apply only to one type."""
