"""Whether every instance of one JSON Schema is an instance of another. Never wrongly yes; sometimes wrongly no.

Decides what pydantic writes: types, constants, ranges, lengths, objects, arrays, unions and recursion. Patterns and
formats are only compared for equality, and of keywords it cannot take apart it knows that they imply themselves.

A proof walks both schemas at once. What the narrow one says is a conjunction of schemas (the facts), taken apart by
the branches of its unions and then by type; each keyword of the wide one has to follow. A goal that comes up again
inside its own proof, below a property or an item, holds: values are finite, so this is induction on their depth.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, cast

from prowess.jsontypes import Json, Schema
from prowess.schemas.matching import has_type, leaf_problems
from prowess.schemas.refs import resolve, without
from prowess.schemas.walk import is_list, is_schema, rewrite, visit

__all__ = ["meaning", "within"]

_STEPS: Final = 10_000
"""Goals after which a proof is given up: far more than any signature needs."""
_ANNOTATIONS: Final = (
    *("$comment", "$defs", "$schema", "default", "definitions", "deprecated", "description", "discriminator"),
    *("examples", "readOnly", "title", "writeOnly"),
)
_SCOPED: Final = frozenset({"$anchor", "$dynamicAnchor", "$dynamicRef", "$id"})
"""Below the root, these change what a reference leads to."""
_TYPES: Final[tuple[str, ...]] = ("array", "boolean", "fraction", "integer", "null", "object", "string")
"""A `number` is an integer or a fraction."""
_NUMBERS: Final = ("fraction", "integer")
_FEW: Final[dict[str, tuple[Json, ...]]] = {"boolean": (False, True), "null": (None,)}
"""All values of a type that has only a few."""

_Facts: TypeAlias = "tuple[Any, ...]"
"""Schemas that a value is known to meet, all of them."""


class _GivenUp(Exception):
    """A signal inside this module: the proof takes too long."""


def within(narrow: Any, wide: Any, *, narrow_document: Any = None, wide_document: Any = None) -> bool:
    """Whether every instance of `narrow` is an instance of `wide`. `False` may also mean that it cannot be told.

    References in each are looked up in its document, which is the schema itself unless given.
    """
    narrow_side = _Side(narrow if narrow_document is None else narrow_document)
    wide_side = _Side(wide if wide_document is None else wide_document)
    try:
        return _Proof(narrow_side, wide_side).fits((narrow,), wide)
    except (_GivenUp, RecursionError):
        return False


def meaning(schema: Any, document: Any = None) -> str:
    """A text that is equal for schemas that say the same in the same way, be they described differently."""
    return _Side(schema if document is None else document).meaning(schema)


# --- one of the two documents ---------------------------------------------------------------------


def _text(data: Json) -> str:
    """Equal for equal JSON: `1` is `1.0`, and not `true`."""
    return json.dumps(_plain(data), sort_keys=True)


def _plain(data: Any) -> Any:
    if isinstance(data, float) and data.is_integer():
        return int(data)
    if is_list(data):
        return [_plain(item) for item in data]
    return {name: _plain(item) for name, item in data.items()} if is_schema(data) else data


class _Side:
    """A document: what its references lead to, and what its schemas mean."""

    def __init__(self, document: Any) -> None:
        self.document = document
        nodes = list(visit(document)) if is_schema(document) else []
        self.scoped = any(path and not _SCOPED.isdisjoint(node) for path, node in nodes)
        self._known: dict[int, tuple[Any, str]] = {}
        """By identity; the schemas are kept, so that an identity is not used again."""

    def target(self, ref: Any) -> Any:
        """What a reference leads to, or `None` where that is not known."""
        if self.scoped or not isinstance(ref, str) or not is_schema(self.document):
            return None
        return resolve(self.document, ref)

    def meaning(self, schema: Any) -> str:
        known = self._known.get(id(schema))
        if known is None:
            known = self._known[id(schema)] = schema, self._meaning(schema)
        return known[1]

    def _meaning(self, schema: Any) -> str:
        if not is_schema(schema):
            return _text(schema)
        targets: dict[str, str | None] = {}
        waiting = [schema]
        while waiting:
            for _, node in visit(waiting.pop()):
                ref = node.get("$ref")
                if isinstance(ref, str) and ref not in targets:
                    target = self.target(ref)
                    targets[ref] = None if target is None else _bare(target)
                    waiting.extend([] if target is None else [target])
        place = f"in {id(self)}: " if self.scoped else ""
        return f"{place}{_bare(schema)} {json.dumps(targets, sort_keys=True) if targets else ''}"

    def flat(self, facts: _Facts) -> tuple[Schema, ...] | None:
        """The facts without references and `allOf`; `None` where nothing meets them. What is not known is left out."""
        waiting = list(facts)
        followed: set[str] = set()
        found: dict[str, Schema] = {}
        while waiting:
            node = waiting.pop(0)
            if node is False:
                return None
            if not is_schema(node):
                continue
            known = ["allOf", *_ANNOTATIONS]
            target = self.target(node["$ref"]) if "$ref" in node else None
            if target is not None:
                known.append("$ref")
                waiting[:0] = [] if node["$ref"] in followed else [target]
                followed.add(node["$ref"])
            waiting[:0] = node.get("allOf", ())
            rest = without(node, *known)
            if rest:
                found.setdefault(self.meaning(rest), rest)
        return tuple(found.values())


def _bare(schema: Any) -> str:
    """The text of a schema without what only describes it."""
    return _text(rewrite(schema, lambda node: without(node, *_ANNOTATIONS)))


# --- what a single schema says of a value ---------------------------------------------------------


def _types(held: Any) -> set[str]:
    """The types that a `type` keyword admits."""
    names: list[Any] = held if is_list(held) else [held]
    return {part for name in names for part in (_NUMBERS if name == "number" else (name,))}


def _type_of(value: Json) -> str:
    if isinstance(value, float) and not value.is_integer():
        return "fraction"
    return next(name for name in _TYPES if name != "fraction" and has_type(value, name))


def _matches(pattern: str, text: str) -> bool | None:
    """Whether a pattern occurs in a text; `None` where another dialect would have to tell."""
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return None


_LEAVES: Final = frozenset(
    {"exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength", "maxProperties", "maximum"}
    | {"minItems", "minLength", "minProperties", "minimum", "multipleOf"}
)
_UNDECIDED: Final[dict[str, tuple[type, ...]]] = {
    **dict.fromkeys(("contains", "unevaluatedItems", "uniqueItems"), (list,)),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "propertyNames", "unevaluatedProperties"), (dict,)),
    **dict.fromkeys(("$dynamicRef", "if"), (object,)),
}
"""Keywords that nobody here judges, and the values they speak of."""
_TEXT_KINDS: Final = ("contentEncoding", "contentMediaType", "format")

_Verdict: TypeAlias = "bool | None"
"""`None` is: it cannot be told."""


def _every(verdicts: Iterable[_Verdict]) -> _Verdict:
    found = set(verdicts)
    return False if False in found else None if None in found else True


def _some(verdicts: Iterable[_Verdict]) -> _Verdict:
    found = set(verdicts)
    return True if True in found else None if None in found else False


def _verdict(side: _Side, schema: Any, value: Json, opened: tuple[Any, ...] = ()) -> _Verdict:
    """Whether a value meets a schema."""
    if not is_schema(schema):
        return schema if isinstance(schema, bool) else None
    return _every(_keyword_verdict(side, schema, keyword, value, opened) for keyword in schema)


def _keyword_verdict(side: _Side, node: Schema, keyword: str, value: Any, opened: tuple[Any, ...]) -> _Verdict:
    held = node[keyword]
    if keyword in _LEAVES:
        return leaf_problems({keyword: held}, value) == 0
    if keyword in _UNDECIDED:
        return None if isinstance(value, _UNDECIDED[keyword]) else True
    judge = _JUDGES.get(keyword)
    return True if judge is None else judge(side, node, value, opened)


def _judge_ref(side: _Side, node: Schema, value: Any, opened: tuple[Any, ...]) -> _Verdict:
    place = (node["$ref"], id(value))
    target = side.target(node["$ref"])
    return None if target is None or place in opened else _verdict(side, target, value, (*opened, place))


def _judge_one_of(side: _Side, node: Schema, value: Any, opened: tuple[Any, ...]) -> _Verdict:
    verdicts = [_verdict(side, branch, value, opened) for branch in node["oneOf"]]
    if verdicts.count(True) > 1 or set(verdicts) <= {False}:
        return False
    return None if None in verdicts else True


def _judge_not(side: _Side, node: Schema, value: Any, opened: tuple[Any, ...]) -> _Verdict:
    verdict = _verdict(side, node["not"], value, opened)
    return None if verdict is None else not verdict


def _judge_entries(side: _Side, node: Schema, value: Any, opened: tuple[Any, ...]) -> _Verdict:
    """`properties`, `patternProperties` and `additionalProperties` together; judging them more than once does no harm."""
    if not is_schema(value):
        return True
    verdicts: list[_Verdict] = []
    for name, held in value.items():
        schemas = _at_name(node, name)
        verdicts.append(None if schemas is None else _every(_verdict(side, one, held, opened) for one in schemas))
    return _every(verdicts)


def _judge_items(side: _Side, node: Schema, value: Any, opened: tuple[Any, ...]) -> _Verdict:
    if not is_list(value):
        return True
    return _every(_verdict(side, _at_index(node, index), held, opened) for index, held in enumerate(value))


def _judge_required(_side: _Side, node: Schema, value: Any, _opened: tuple[Any, ...]) -> _Verdict:
    return not is_schema(value) or all(name in value for name in node["required"])


_Judge: TypeAlias = Callable[["_Side", Schema, Any, "tuple[Any, ...]"], _Verdict]
_JUDGES: Final[dict[str, _Judge]] = {
    "$ref": _judge_ref,
    "additionalProperties": _judge_entries,
    "allOf": lambda side, node, value, opened: _every(_verdict(side, one, value, opened) for one in node["allOf"]),
    "anyOf": lambda side, node, value, opened: _some(_verdict(side, one, value, opened) for one in node["anyOf"]),
    "const": lambda _side, node, value, _opened: _text(node["const"]) == _text(value),
    "enum": lambda _side, node, value, _opened: _text(value) in map(_text, node["enum"]),
    "items": _judge_items,
    "not": _judge_not,
    "oneOf": _judge_one_of,
    "pattern": lambda _side, node, value, _opened: not isinstance(value, str) or _matches(node["pattern"], value),
    "patternProperties": _judge_entries,
    "prefixItems": _judge_items,
    "properties": _judge_entries,
    "required": _judge_required,
    "type": lambda _side, node, value, _opened: _type_of(value) in _types(node["type"]),
    **dict.fromkeys(_TEXT_KINDS, lambda _side, _node, value, _opened: None if isinstance(value, str) else True),
}


def _at_name(node: Schema, name: str) -> list[Any] | None:
    """The schemas that a node has for an entry of an object; `None` where it cannot be told."""
    found: list[Any] = [node["properties"][name]] if name in node.get("properties", {}) else []
    for pattern, held in node.get("patternProperties", {}).items():
        matches = _matches(pattern, name)
        if matches is None:
            return None
        found.extend([held] if matches else [])
    return found or [node.get("additionalProperties", True)]


def _at_index(node: Schema, index: int) -> Any:
    positions: list[Any] = node.get("prefixItems", [])
    return positions[index] if index < len(positions) else node.get("items", True)


# --- what facts say together ----------------------------------------------------------------------


def _common_types(flat: Iterable[Schema]) -> set[str]:
    types: set[str] = set(_TYPES)
    for node in flat:
        if "type" in node:
            types &= _types(node["type"])
    return types


def _least(flat: Iterable[Schema], keyword: str) -> float | None:
    """The tightest upper bound."""
    return min((node[keyword] for node in flat if keyword in node), default=None)


def _most(flat: Iterable[Schema], keyword: str) -> float:
    """The tightest lower bound of a size."""
    return max((node[keyword] for node in flat if keyword in node), default=0)


def _required(flat: Iterable[Schema]) -> set[str]:
    return {name for node in flat for name in node.get("required", ())}


def _names(flat: Iterable[Schema]) -> list[str]:
    return list(dict.fromkeys(name for node in flat for name in node.get("properties", {})))


def _entry_facts(flat: Iterable[Schema], name: str) -> _Facts:
    return tuple(schema for node in flat for schema in _at_name(node, name) or ())


def _other_facts(flat: Iterable[Schema], pattern: str | None) -> _Facts:
    """What is known of entries nobody names: of those that match a pattern, or of those that match none at all."""
    found: list[Any] = []
    for node in flat:
        patterns: dict[str, Any] = node.get("patternProperties", {})
        if pattern in patterns:
            found.append(patterns[pattern])
        elif pattern is None or not patterns:
            found.append(node.get("additionalProperties", True))
    return tuple(found)


def _most_items(flat: Sequence[Schema]) -> float | None:
    ends = [float(len(node.get("prefixItems", ()))) for node in flat if node.get("items") is False]
    limit = _least(flat, "maxItems")
    return min([*ends, *([] if limit is None else [limit])], default=None)


def _bound(flat: Iterable[Schema], kind: str, sign: int) -> tuple[float, bool] | None:
    """The tightest limit of numbers and whether it is itself left out; `sign` -1 turns upper limits into lower ones."""
    inclusive, exclusive = ("minimum", "exclusiveMinimum") if sign > 0 else ("maximum", "exclusiveMaximum")
    limits: list[tuple[float, bool]] = []
    for node in flat:
        limits.extend(
            (sign * node[keyword], keyword == exclusive) for keyword in (inclusive, exclusive) if keyword in node
        )
    if kind == "integer":
        limits = [(math.floor(limit) + 1 if strict else math.ceil(limit), False) for limit, strict in limits]
    return max(limits, default=None)


# --- proofs ---------------------------------------------------------------------------------------

_Goal: TypeAlias = "tuple[frozenset[str], str]"

_TOGETHER: Final = (
    ("properties", "patternProperties", "additionalProperties"),
    ("prefixItems", "items"),
    ("contains", "minContains", "maxContains"),
    ("if", "then", "else"),
)
_ALONE: Final = (
    *("$ref", "allOf", "type", "enum", "const", "anyOf", "oneOf", "not", "required", "propertyNames"),
    *("dependentRequired", "dependentSchemas", "pattern", "uniqueItems", *_TEXT_KINDS, *sorted(_LEAVES)),
)
_ADJACENT: Final = ("unevaluatedItems", "unevaluatedProperties", "$dynamicRef")
"""What these say depends on all that stands beside them."""


def _claims(wide: Schema) -> Iterator[Schema]:
    """A schema as single claims that together say the same."""
    for keyword in _ALONE:
        if keyword in wide:
            yield {keyword: wide[keyword]}
    for keywords in _TOGETHER:
        if claim := {keyword: wide[keyword] for keyword in keywords if keyword in wide}:
            yield claim


class _Proof:
    """Goals that hold, each with the depth from which on that may be used."""

    def __init__(self, narrow: _Side, wide: _Side) -> None:
        self.narrow = narrow
        self.wide = wide
        self.depth = 0
        self.steps = 0
        self.open: set[_Goal] = set()
        self.held: dict[_Goal, int] = {}
        self.trail: list[tuple[_Goal, int | None]] = []
        """What `held` was before: a failed goal takes back all that was shown with its help."""

    def fits(self, facts: _Facts, wide: Any) -> bool:
        """Whether whatever meets all facts meets the wide schema."""
        self._step()
        if not is_schema(wide):
            return wide is True or self.narrow.flat(facts) is None
        meanings = frozenset(map(self.narrow.meaning, facts))
        wanted = self.wide.meaning(wide)
        if wanted in meanings:
            return True
        goal = meanings, wanted
        since = self.held.get(goal)
        if since is not None and since <= self.depth:
            return True
        if goal in self.open:
            return False  # nothing was descended into since: a circle proves nothing
        self.open.add(goal)
        try:
            return self._attempt(goal, since, facts, wide)
        finally:
            self.open.remove(goal)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > _STEPS:
            raise _GivenUp

    def _attempt(self, goal: _Goal, since: int | None, facts: _Facts, wide: Schema) -> bool:
        mark = len(self.trail)
        self.trail.append((goal, since))
        self.held[goal] = self.depth + 1
        if self._prove(facts, wide):
            self.held[goal] = self.depth
            return True
        while len(self.trail) > mark:
            undone, before = self.trail.pop()
            self.held.pop(undone)
            if before is not None:
                self.held[undone] = before
        return False

    def _prove(self, facts: _Facts, wide: Schema) -> bool:
        flat = self.narrow.flat(facts)
        if flat is None:
            return True
        if any(keyword in wide for keyword in _ADJACENT):
            return False
        return all(self._follows(flat, claim) for claim in _claims(wide))

    def _below(self, facts: _Facts, wide: Any) -> bool:
        """The same for values inside the value."""
        self.depth += 1
        try:
            return self.fits(facts, wide)
        finally:
            self.depth -= 1

    # One claim

    def _follows(self, flat: tuple[Schema, ...], claim: Schema) -> bool:
        if self._is_said(flat, claim):
            return True
        if "$ref" in claim:
            target = self.wide.target(claim["$ref"])
            return target is not None and self.fits(flat, target)
        if "allOf" in claim:
            return all(self.fits(flat, branch) for branch in claim["allOf"])
        branches = self._branches(flat)
        if branches is not None:
            return all(branch is None or self._follows(branch, claim) for branch in branches)
        return self._follows_by_type(flat, claim)

    def _is_said(self, flat: tuple[Schema, ...], claim: Schema) -> bool:
        """Whether a fact makes the same claim in the same words."""
        wanted = self.wide.meaning(claim)
        same = ({keyword: node[keyword] for keyword in node if keyword in _scope(claim)} for node in flat)
        return any(said and self.narrow.meaning(said) == wanted for said in same)

    def _branches(self, flat: tuple[Schema, ...]) -> list[tuple[Schema, ...] | None] | None:
        """The facts once for each branch of their first union; `None` where they have none."""
        for node in flat:
            for union in ("anyOf", "oneOf"):
                if union in node:
                    others = tuple(other for other in flat if other is not node)
                    rest = without(node, union)
                    self.steps += len(node[union])
                    return [self.narrow.flat((*others, rest, branch)) for branch in node[union]]
        return None

    def _follows_by_type(self, flat: tuple[Schema, ...], claim: Schema) -> bool:
        self._step()
        values = self._values(flat)
        if values is not None:
            return all(_verdict(self.wide, claim, value) for value in values)
        for kind in sorted(_common_types(flat)):
            if kind in _FEW:
                if not all(_verdict(self.wide, claim, value) for value in _FEW[kind]):
                    return False
            elif not self._follows_for(kind, flat, claim):
                return False
        return True

    def _values(self, flat: tuple[Schema, ...]) -> list[Json] | None:
        """The only values that meet the facts, where these enumerate them."""
        for node in flat:
            values: list[Any] | None = [node["const"]] if "const" in node else node.get("enum")
            if values is not None:
                return [value for value in values if self._is_possible(flat, value)]
        return None

    def _is_possible(self, flat: tuple[Schema, ...], value: Json) -> bool:
        return not any(_verdict(self.narrow, node, value) is False for node in flat)

    def _follows_for(self, kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        """Whether a claim follows for values of a type that has endlessly many."""
        keyword = next(iter(claim))
        if keyword == "type":
            return kind in _types(claim["type"])
        if keyword == "anyOf":
            facts = (*flat, {"type": kind})
            return any(self.fits(facts, branch) for branch in claim["anyOf"])
        if keyword == "oneOf":
            return self._fits_one(kind, flat, claim["oneOf"])
        of, rule = _RULES.get(keyword, (_TYPES, _never))
        return kind not in of or rule(self, kind, flat, claim)

    def _fits_one(self, kind: str, flat: tuple[Schema, ...], branches: list[Any]) -> bool:
        facts = (*flat, {"type": kind})
        for index, branch in enumerate(branches):
            others = [*branches[:index], *branches[index + 1 :]]
            if all(self._excludes(kind, flat, other) for other in others) and self.fits(facts, branch):
                return True
        return False

    def _excludes(self, kind: str, flat: tuple[Schema, ...], branch: Any) -> bool:
        """Whether nothing of a type meets both the facts and a branch of a union."""
        other = self.wide.flat((branch,))
        if other is None or kind not in _common_types(other):
            return True
        if kind != "object":
            return False
        present = _required(flat) | _required(other)
        return any(self._differ(flat, other, name) for name in sorted(present))

    def _differ(self, flat: tuple[Schema, ...], other: tuple[Schema, ...], name: str) -> bool:
        """Whether two objects cannot be the same because of one property that is there."""
        mine = self._tags(self.narrow, _entry_facts(flat, name))
        theirs = self._tags(self.wide, _entry_facts(other, name))
        return mine is not None and theirs is not None and mine.isdisjoint(theirs)

    def _tags(self, side: _Side, facts: _Facts) -> set[str] | None:
        """The texts of the only values a property may have."""
        for node in side.flat(facts) or ():
            if "const" in node or "enum" in node:
                return set(map(_text, [node["const"]] if "const" in node else node["enum"]))
        return None

    # Objects

    def entries(self, _kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        for name in dict.fromkeys([*_names(flat), *claim.get("properties", {})]):
            wanted = _at_name(claim, name)
            facts = _entry_facts(flat, name)
            if wanted is None or not all(self._below(facts, one) for one in wanted):
                return False
        patterns: dict[str, Any] = claim.get("patternProperties", {})
        if not all(self._below(_other_facts(flat, pattern), one) for pattern, one in patterns.items()):
            return False
        mine = {pattern: None for node in flat for pattern in node.get("patternProperties", {})}
        others = [None, *(pattern for pattern in mine if pattern not in patterns)]
        rest = claim.get("additionalProperties", True)
        return all(self._below(_other_facts(flat, pattern), rest) for pattern in others)

    def property_names(self, _kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        wanted = claim["propertyNames"]
        rules = tuple(node["propertyNames"] for node in flat if "propertyNames" in node)
        if self._below(({"type": "string"}, *rules), wanted):
            return True
        if not _is_closed(flat):
            return False
        possible = [name for name in _names(flat) if self.narrow.flat(_entry_facts(flat, name)) is not None]
        return all(_verdict(self.wide, wanted, name) for name in possible)

    def required(self, _kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        return _required(flat).issuperset(claim["required"])

    def dependent_required(self, _kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        needed = {name for names in claim["dependentRequired"].values() for name in names}
        return _required(flat) >= needed

    def least_properties(self, _kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        return max(_most(flat, "minProperties"), len(_required(flat))) >= claim["minProperties"]

    def most_properties(self, _kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        limit = _least(flat, "maxProperties")
        if limit is not None and limit <= claim["maxProperties"]:
            return True
        return _is_closed(flat) and len(_names(flat)) <= claim["maxProperties"]

    # Arrays

    def items(self, _kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        positions = max(len(node.get("prefixItems", ())) for node in (*flat, claim))
        limit = _most_items(flat)
        last = positions if limit is None else min(positions, math.ceil(limit) - 1)
        return all(
            self._below(tuple(_at_index(node, index) for node in flat), _at_index(claim, index))
            for index in range(last + 1)
        )

    def least_items(self, _kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        return _most(flat, "minItems") >= claim["minItems"]

    def most_items(self, _kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        limit = _most_items(flat)
        return limit is not None and limit <= claim["maxItems"]

    def unique(self, _kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        limit = _most_items(flat)
        return not claim["uniqueItems"] or (limit is not None and limit <= 1)

    # Text and numbers

    def least_length(self, _kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        return _most(flat, "minLength") >= claim["minLength"]

    def most_length(self, _kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        limit = _least(flat, "maxLength")
        return limit is not None and limit <= claim["maxLength"]

    def above(self, kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        return _is_tighter(_bound(flat, kind, 1), _bound([claim], "fraction", 1))

    def below(self, kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        return _is_tighter(_bound(flat, kind, -1), _bound([claim], "fraction", -1))

    def multiple(self, kind: str, flat: tuple[Schema, ...], claim: Schema) -> bool:
        of = claim["multipleOf"]
        if kind == "integer" and of == 1:
            return True
        return any(isinstance(of, int) and _is_whole_multiple(node.get("multipleOf"), of) for node in flat)


def _scope(claim: Schema) -> tuple[str, ...]:
    """All keywords that belong to a claim, be they in it or not."""
    keyword = next(iter(claim))
    return next((keywords for keywords in _TOGETHER if keyword in keywords), (keyword,))


def _is_closed(flat: Iterable[Schema]) -> bool:
    """Whether only the named properties can be there."""
    return any(node.get("additionalProperties") is False and not node.get("patternProperties") for node in flat)


def _is_tighter(known: tuple[float, bool] | None, wanted: tuple[float, bool] | None) -> bool:
    return known is not None and known >= cast("tuple[float, bool]", wanted)


def _is_whole_multiple(known: Any, of: int) -> bool:
    return isinstance(known, int) and known % of == 0


_Rule: TypeAlias = Callable[[_Proof, str, "tuple[Schema, ...]", Schema], bool]


def _never(_proof: _Proof, _kind: str, _flat: tuple[Schema, ...], _claim: Schema) -> bool:
    return False


_RULES: Final[dict[str, tuple[tuple[str, ...], _Rule]]] = {
    **dict.fromkeys(_TOGETHER[0], (("object",), _Proof.entries)),
    "propertyNames": (("object",), _Proof.property_names),
    "required": (("object",), _Proof.required),
    "dependentRequired": (("object",), _Proof.dependent_required),
    "minProperties": (("object",), _Proof.least_properties),
    "maxProperties": (("object",), _Proof.most_properties),
    **dict.fromkeys(_TOGETHER[1], (("array",), _Proof.items)),
    "minItems": (("array",), _Proof.least_items),
    "maxItems": (("array",), _Proof.most_items),
    "uniqueItems": (("array",), _Proof.unique),
    "contains": (("array",), _never),
    "minLength": (("string",), _Proof.least_length),
    "maxLength": (("string",), _Proof.most_length),
    "pattern": (("string",), _never),
    **dict.fromkeys(_TEXT_KINDS, (("string", *_NUMBERS), _never)),
    "minimum": (_NUMBERS, _Proof.above),
    "exclusiveMinimum": (_NUMBERS, _Proof.above),
    "maximum": (_NUMBERS, _Proof.below),
    "exclusiveMaximum": (_NUMBERS, _Proof.below),
    "multipleOf": (_NUMBERS, _Proof.multiple),
}
"""By keyword: the types it speaks of, and whether it follows. What is equal to a fact was settled before."""
