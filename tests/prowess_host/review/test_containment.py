"""Whether every instance of one schema is an instance of another, tested against a validator of JSON Schema."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from prowess_host.review.containment import meaning, within

INT = {"type": "integer"}
NUMBER = {"type": "number"}
TEXT = {"type": "string"}
NULL = {"type": "null"}
BOTH = [INT, TEXT]


def enum(*values: Any) -> dict[str, Any]:
    return {"enum": list(values)}


def obj(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def closed(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    return {**obj(required, **properties), "additionalProperties": False}


def any_of(*branches: Any) -> dict[str, Any]:
    return {"anyOf": list(branches)}


def tagged(kind: str, **properties: Any) -> dict[str, Any]:
    return obj(("kind",), kind={"const": kind}, **properties)


def one_of(*branches: Any) -> dict[str, Any]:
    return {"oneOf": list(branches), "discriminator": {"propertyName": "kind"}}


def recursive(**more: Any) -> dict[str, Any]:
    node = obj(("value",), value=INT, next=any_of({"$ref": "#/$defs/Node"}, NULL), **more)
    return {"$ref": "#/$defs/Node", "$defs": {"Node": node}}


JSON = {
    "$defs": {"Json": any_of({"type": "object", "additionalProperties": {"$ref": "#/$defs/Json"}}, NUMBER, TEXT, NULL)},
    "$ref": "#/$defs/Json",
}


# --- by hand --------------------------------------------------------------------------------------

WITHIN: list[tuple[str, Any, Any]] = [
    ("anything is within anything", {}, {}),
    ("nothing is within everything", False, INT),
    ("everything is within true", INT, True),
    ("integers are numbers", INT, NUMBER),
    ("a type is within several", INT, {"type": ["string", "integer"]}),
    ("several types are within their union", {"type": ["string", "null"]}, any_of(NULL, TEXT)),
    ("a union is within a larger one", any_of(*BOTH), any_of(NULL, *BOTH)),
    ("a union is within a type that covers it", any_of(INT, {"type": "number"}), NUMBER),
    ("a fraction is a number", enum(1.5, 2), NUMBER),
    ("a value is within its type", {"const": 1}, INT),
    ("a number without a fraction is an integer", {"const": 1.0}, INT),
    ("values are within more values", enum("a", 1), enum(1, "b", "a")),
    ("true and false are all booleans", {"type": "boolean"}, enum(True, False)),
    ("null is the only null", NULL, enum(None)),
    ("values meet keywords", enum("ab", "abc"), {"type": "string", "minLength": 2, "pattern": "^a"}),
    ("a value of another type meets a format", any_of(NULL, enum(1)), any_of({"type": "string", "format": "date"}, {"type": ["null", "number"]})),
    ("a narrower range", {"type": "number", "minimum": 2, "exclusiveMaximum": 4}, {"minimum": 1, "maximum": 4}),
    ("the same fraction", {"multipleOf": 0.5}, {"multipleOf": 0.5}),
    ("shorter text", {"type": "string", "minLength": 2, "maxLength": 3}, {"minLength": 1, "maxLength": 3}),
    ("no least length", TEXT, {"minLength": 0}),
    ("the same pattern and format", {"pattern": "a", "format": "x", "maxLength": 1}, {"pattern": "a", "format": "x"}),
    ("lengths say nothing of numbers", INT, {"minLength": 3, "pattern": "x", "required": ["a"], "minItems": 1}),
    ("an object with more properties", obj(("a",), a=INT, b=TEXT), obj((), a=NUMBER)),
    ("a closed object is within its open twin", closed(a=INT), {"type": "object", "additionalProperties": INT}),
    ("closed objects", closed((), a=INT), closed((), a=INT, b=TEXT)),
    ("a forbidden property may be promised to be anything", obj(a=False), obj(a=INT)),
    ("a limit of properties", {"type": "object", "maxProperties": 1}, {"maxProperties": 2}),
    ("maps", {"type": "object", "additionalProperties": INT}, {"type": "object", "additionalProperties": NUMBER}),
    (
        "patterns that the other does not know",
        {"type": "object", "patternProperties": {"^a": INT}, "additionalProperties": NULL},
        {"type": "object", "additionalProperties": any_of(INT, NULL)},
    ),
    ("tags among other facts", any_of(*(obj(("kind",), kind={"allOf": [TEXT, {"const": tag}]}) for tag in "ab")), one_of(tagged("a"), tagged("b"))),
    ("arrays", {"type": "array", "items": INT, "maxItems": 2}, {"type": "array", "items": NUMBER, "maxItems": 3}),
    ("items say nothing of numbers", enum(1), {"items": TEXT, "properties": {"a": TEXT}, "required": ["a"]}),
    ("at least some items", {"type": "array", "minItems": 2}, {"minItems": 1}),
    ("items that may repeat", {"type": "array"}, {"uniqueItems": False}),
    ("all of", {"allOf": [INT, {"minimum": 2}]}, {"allOf": [NUMBER, {"minimum": 1}]}),
    ("a tagged union is within a larger one", one_of(tagged("a"), tagged("b")), one_of(tagged("a"), tagged("b"), tagged("c"))),
    ("one of several types", any_of(*BOTH), {"oneOf": [NULL, *BOTH]}),
    ("keywords that are not taken apart imply themselves", {"not": INT, "type": ["null", "integer"]}, {"not": INT}),
    ("what is not looked into is the same", {"if": INT, "then": {"minimum": 3}, "minimum": 0}, {"if": INT, "then": {"minimum": 3}}),
    ("what depends on its surroundings is the same", {"allOf": [INT], "unevaluatedProperties": False}, {"allOf": [INT], "unevaluatedProperties": False}),
    ("a recursive type is within itself, with less asked", recursive(more=INT), recursive()),
    ("a recursive type under another name", recursive(), {"$ref": "#/$defs/N", "$defs": {"N": obj((), value=NUMBER, next=any_of(NULL, {"$ref": "#/$defs/N"}))}}),
    ("any JSON is within itself, with more types", JSON, {**JSON, "$defs": {"Json": any_of(*JSON["$defs"]["Json"]["anyOf"], {"type": "boolean"})}}),
    ("descriptions do not count", {**INT, "description": "a"}, {**INT, "title": "b", "default": 3}),
    ("a reference to nothing is within itself", {"$ref": "urn:x", "minimum": 1}, {"$ref": "urn:x"}),
    ("null is not excluded", NULL, {"not": INT}),
]  # fmt: skip

IN_DOUBT: list[tuple[str, Any, Any]] = [
    ("nothing is within nothing", {"allOf": [False]}, False),
    ("values that another fact excludes do not count", {"type": "string", "enum": ["a", 1]}, enum("a")),
    ("an open limit of integers", {"type": "integer", "exclusiveMinimum": 0}, {"minimum": 1, "exclusiveMinimum": 0.5}),
    ("a closed limit of integers", {"type": "integer", "maximum": 3.5}, {"maximum": 3}),
    ("multiples of multiples", {"type": "integer", "multipleOf": 6}, {"multipleOf": 3}),
    ("integers are multiples of one", INT, {"multipleOf": 1}),
    ("counts of properties", {**closed(("a", "b"), a=INT, b=INT)}, {"minProperties": 2, "maxProperties": 2}),
    ("named properties meet patterns", closed(ab=INT), {"patternProperties": {"^a": NUMBER}}),
    (
        "the same patterns",
        {"type": "object", "patternProperties": {"^a": INT}, "additionalProperties": False},
        {"type": "object", "patternProperties": {"^a": NUMBER}, "additionalProperties": False},
    ),
    ("several patterns", {"allOf": [{"type": "object", "patternProperties": {"^a": INT}}, {"patternProperties": {"b": TEXT}}]}, {"patternProperties": {"^a": NUMBER}}),
    ("names of properties", {"propertyNames": enum("a")}, {"propertyNames": enum("a", "b")}),
    ("names of properties that are listed", closed(a=INT, b=False), {"propertyNames": enum("a")}),
    ("required together", obj(("a", "b")), {"dependentRequired": {"a": ["b"]}}),
    ("tuples", {"type": "array", "prefixItems": BOTH, "items": False}, {"items": any_of(*BOTH), "maxItems": 2}),
    ("tuples that are too short to differ", {"type": "array", "items": INT, "maxItems": 1}, {"prefixItems": [INT, TEXT]}),
    ("empty arrays", {"type": "array", "maxItems": 0}, {"type": "array", "items": INT}),
    ("unique items", {"type": "array", "maxItems": 1}, {"uniqueItems": True}),
    ("one of one", INT, {"oneOf": [INT, False]}),
    ("contradictions are within everything", {"type": "integer", "allOf": [TEXT]}, NULL),
]  # fmt: skip

NOT_WITHIN: list[tuple[str, Any, Any]] = [
    ("anything is not nothing", {}, False),
    ("numbers are not integers", NUMBER, INT),
    ("a fraction is no integer", enum(1.5), INT),
    ("a union is not its branch", any_of(*BOTH), INT),
    ("values are not fewer values", enum("a", "b"), enum("a")),
    ("true is not one", {"const": True}, {"const": 1}),
    ("true is not one inside", {"const": [True]}, {"const": [1]}),
    ("a type is not its values", TEXT, enum("a")),
    ("a value may break a format", enum("a"), {"type": "string", "format": "date"}),
    ("a value may not be of a pattern", enum("b"), {"pattern": "^a"}),
    ("a pattern of another dialect", enum("b"), {"pattern": "(?<x"}),
    ("another pattern", {"type": "string", "pattern": "a"}, {"pattern": "b"}),
    ("no format", TEXT, {"format": "date"}),
    ("a wider range", {"type": "integer", "minimum": 0}, {"minimum": 1}),
    ("an open limit of numbers", {"type": "number", "exclusiveMinimum": 0}, {"minimum": 1}),
    ("no limit", NUMBER, {"maximum": 1}),
    ("other multiples", {"type": "integer", "multipleOf": 3}, {"multipleOf": 6}),
    ("a longer text", TEXT, {"maxLength": 3}),
    ("a missing property", obj((), a=INT), obj(("a",), a=INT)),
    ("an undeclared property may be anything", obj(), obj((), a=INT)),
    ("an open object is not closed", obj((), a=INT), closed((), a=INT)),
    ("fewer properties", {"type": "object"}, {"minProperties": 1}),
    ("more properties", closed(a=INT, b=INT), {"maxProperties": 1}),
    ("open objects have any number of properties", obj(a=INT), {"maxProperties": 1}),
    ("names of properties", obj(), {"propertyNames": enum("a")}),
    ("other names of properties", closed(b=INT), {"propertyNames": enum("a")}),
    ("a pattern that another dialect understands", closed(a=INT), {"patternProperties": {"(?<x": INT}}),
    ("a pattern's properties", {"type": "object"}, {"patternProperties": {"^a": INT}}),
    ("not required together", obj(("a",)), {"dependentRequired": {"a": ["b"]}}),
    ("longer arrays", {"type": "array"}, {"maxItems": 3}),
    ("shorter arrays", {"type": "array"}, {"minItems": 3}),
    ("repeated items", {"type": "array", "items": INT}, {"uniqueItems": True}),
    ("a longer tuple", {"type": "array", "prefixItems": BOTH}, {"prefixItems": BOTH, "items": False}),
    ("other items", {"type": "array", "items": TEXT}, {"type": "array", "items": INT}),
    ("items in the form of an old dialect", {"type": "array"}, {"items": [INT]}),
    ("values with items in the form of an old dialect", {"const": [1]}, {"items": [INT]}),
    ("something in an array", {"type": "array"}, {"contains": INT}),
    ("an untagged union may be both", any_of(obj(a=INT), obj(b=INT)), {"oneOf": [obj(a=INT), obj(b=INT)]}),
    ("both branches of one", INT, {"oneOf": [INT, NUMBER]}),
    ("a value that fits two", {"const": 1}, {"oneOf": [INT, NUMBER]}),
    ("a value that fits none", {"const": 1}, {"oneOf": [NULL, TEXT]}),
    ("a value that may fit two", {"const": "a"}, {"oneOf": [TEXT, {"format": "date"}]}),
    ("what is excluded", INT, {"not": TEXT}),
    ("a value that may be excluded", {"const": "a"}, {"not": {"format": "date"}}),
    ("a value that is excluded", NULL, {"not": NULL}),
    ("an object with a keyword that is not looked into", {"const": {"a": 1}}, {"patternProperties": {"(?<x": INT}}),
    ("tags that may be missing", {"type": "object"}, one_of(obj(kind={"const": "a"}), obj(kind={"const": "b"}))),
    ("a tag that may be anything", tagged("a"), one_of(tagged("a"), obj(("kind",), kind=TEXT))),
    ("a tag nobody knows", tagged("c"), one_of(tagged("a"), tagged("b"))),
    ("a recursive type with more asked", recursive(), recursive(more=INT)),
    ("a union that is nothing but itself", INT, {"$ref": "#/$defs/X", "$defs": {"X": any_of({"$ref": "#/$defs/X"}, TEXT)}}),
    ("a value in a union that is nothing but itself", {"const": 1}, {"$ref": "#/$defs/X", "$defs": {"X": any_of({"$ref": "#/$defs/X"}, TEXT)}}),
    ("facts that are nothing but themselves", {"$ref": "#/$defs/X", "$defs": {"X": any_of({"$ref": "#/$defs/X"}, TEXT)}}, INT),
    ("a reference to nothing", INT, {"$ref": "urn:x"}),
    ("a value and a reference to nothing", {"const": 1}, {"$ref": "urn:x"}),
    ("what depends on its surroundings", {"type": "object"}, {"unevaluatedProperties": False}),
    ("references in a document of its own", {"$defs": {"A": {"$id": "urn:a", "$ref": "#/$defs/B"}, "B": INT}, "$ref": "#/$defs/B"}, INT),
]  # fmt: skip


@pytest.mark.parametrize(("narrow", "wide"), [row[1:] for row in WITHIN], ids=[row[0] for row in WITHIN])
def test_whatever_meets_the_one_meets_the_other(narrow: Any, wide: Any) -> None:
    """Each row needs a rule of the table, or several."""
    assert within(narrow, wide)


@pytest.mark.parametrize(("narrow", "wide"), [row[1:] for row in IN_DOUBT], ids=[row[0] for row in IN_DOUBT])
def test_what_only_a_longer_proof_would_show_is_denied(narrow: Any, wide: Any) -> None:
    """True, but the table does not say so. A check that is too careful costs a look; a wrong yes costs a caller."""
    assert not within(narrow, wide)


@pytest.mark.parametrize(("narrow", "wide"), [row[1:] for row in NOT_WITHIN], ids=[row[0] for row in NOT_WITHIN])
def test_something_meets_the_one_and_may_not_meet_the_other(narrow: Any, wide: Any) -> None:
    """In doubt, no."""
    assert not within(narrow, wide)


def test_parts_look_up_their_references_in_their_documents() -> None:
    """A place inside a document needs its definitions."""
    part = {"$ref": "#/$defs/A"}

    assert within(part, part, narrow_document={"$defs": {"A": INT}}, wide_document={"$defs": {"A": NUMBER}})
    assert not within(part, part, narrow_document={"$defs": {"A": NUMBER}}, wide_document={"$defs": {"A": INT}})
    assert not within(part, INT, narrow_document=True)


def test_a_question_that_takes_too_long_is_given_up() -> None:
    """Exponentially many cases are no reason to hang."""
    definitions: dict[str, Any] = {"N0": TEXT, "W0": {**TEXT, "minLength": 1}}
    for n in range(20):
        lists = ({"type": "array", "items": {"$ref": f"#/$defs/{side}{n}"}} for side in "NWW")
        definitions[f"N{n + 1}"], *both = lists
        definitions[f"W{n + 1}"] = any_of(both[0], {**both[1], "maxItems": 9})
        definitions[f"N{n + 1}"]["maxItems"] = 3

    narrow, wide = ({"$defs": definitions, "$ref": f"#/$defs/{side}20"} for side in "NW")
    assert not within(narrow, wide)


def test_a_deep_schema_does_not_exhaust_the_stack() -> None:
    """What is nested too deeply cannot be told."""
    deep: Any = INT
    wide: Any = NUMBER
    for _ in range(400):
        deep, wide = {"type": "array", "items": deep}, {"type": "array", "items": wide}

    assert not within(deep, wide)


def test_a_goal_proved_deep_inside_is_proved_again_further_up() -> None:
    """What was shown with the help of an assumption is not used where that does not hold yet."""
    leaf = obj((), a=INT)
    narrow = {
        "$defs": {"L": leaf},
        **obj((), x={"type": "array", "items": {"$ref": "#/$defs/L"}}, y={"$ref": "#/$defs/L"}),
    }
    wide = {"$defs": {"L": obj((), a=NUMBER)}, **obj((), x={"type": "array", "items": {"$ref": "#/$defs/L"}}, y={"$ref": "#/$defs/L"})}  # fmt: skip

    assert within(narrow, wide)


def test_what_was_shown_with_a_failed_goal_is_taken_back() -> None:
    """A branch that fails takes all with it that relied on it, and what was known before stays known."""
    leaf, wider = obj((), a=INT, b={"type": "array", "items": INT}), obj((), a=NUMBER)
    both = {"allOf": [wider, {"required": ["z"]}]}
    narrow = obj((), x={"type": "array", "items": leaf}, y=leaf)

    assert within(
        narrow, obj((), x={"type": "array", "items": any_of(wider, NULL)}, y=any_of(both, {"type": "object"}))
    )
    assert not within(narrow, obj((), x={"type": "array", "items": any_of(wider, NULL)}, y=any_of(both, NULL)))


def test_branches_of_recursive_types_that_fail() -> None:
    """What is different far down is found."""
    tree = {"$defs": {"T": obj((), l={"$ref": "#/$defs/T"}, r={"$ref": "#/$defs/T"}, v=INT)}, "$ref": "#/$defs/T"}
    other = copy.deepcopy(tree)
    other["$defs"]["T"]["properties"]["v"] = TEXT

    assert not within(
        tree, {"$defs": other["$defs"], **any_of({"$ref": "#/$defs/T"}, obj((), l={"$ref": "#/$defs/T"}))}
    )


def test_meanings_ignore_what_only_describes() -> None:
    """And tell constants apart that Python takes for equal."""
    assert meaning({**INT, "title": "A", "$defs": {"B": TEXT}}) == meaning(INT)
    assert meaning({"const": 1}) == meaning({"const": 1.0}) != meaning({"const": True})
    assert meaning({"$ref": "#/a"}, {"a": INT}) != meaning({"$ref": "#/a"}, {"a": TEXT})


# --- by property ----------------------------------------------------------------------------------

_names = st.sampled_from(["a", "b", "kind"])
_scalars = st.sampled_from([None, True, False, 0, 1, 2, 3, 1.0, 1.5, -1, "", "a", "b", "ab", "abc"])
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names | st.just("z"), inner, max_size=3),
    max_leaves=6,
)
_small = st.integers(0, 3)
_limits = st.sampled_from([0, 1, 2, 3, 0.5, 1.5])
_type_names = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def _of(type_name: str, **keywords: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(type_name)}, optional=keywords)


_leaves = st.one_of(
    st.builds(lambda names: {"type": names}, st.lists(_type_names, min_size=1, max_size=3, unique=True)),
    st.builds(lambda values: {"enum": values}, st.lists(_values, min_size=1, max_size=3)),
    st.builds(lambda value: {"const": value}, _scalars),
    *(
        _of(kind, minimum=_limits, maximum=_limits, exclusiveMinimum=_limits, exclusiveMaximum=_limits, multipleOf=st.sampled_from([1, 2, 3, 0.5]))
        for kind in ("integer", "number")
    ),
    _of("string", minLength=_small, maxLength=_small, pattern=st.sampled_from(["^a", "b"])),
    st.sampled_from([True, False, {}, {"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]),
)  # fmt: skip


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    branches = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(_names, inner, max_size=3)
    loose = {
        "properties": named,
        "required": st.lists(_names, max_size=2, unique=True),
        "additionalProperties": inner | st.booleans(),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b", "d"]), inner, max_size=2),
        "propertyNames": st.sampled_from([{"enum": ["a"]}, {"enum": ["a", "b"]}, {"maxLength": 1}, {"pattern": "^a"}]),
        "dependentRequired": st.just({"a": ["b"]}),
        "minProperties": _small,
        "maxProperties": _small,
    }
    listed = {
        "items": inner | st.booleans(),
        "prefixItems": branches,
        "minItems": _small,
        "maxItems": _small,
        "uniqueItems": st.booleans(),
        "contains": inner,
    }
    return st.one_of(
        _of("object", **loose),
        _of("array", **listed),
        st.fixed_dictionaries({}, optional={**loose, **listed}),
        branches.map(lambda held: {"anyOf": held}),
        branches.map(lambda held: {"oneOf": held}),
        branches.map(lambda held: {"allOf": held}),
        st.builds(lambda held, keyword: {keyword: held}, inner, st.sampled_from(["not", "if"])),
        st.builds(lambda one, other: {**one, **other}, inner.filter(_is_dict), inner.filter(_is_dict)),
    )


def _is_dict(schema: Any) -> bool:
    return isinstance(schema, dict)


_schemas = st.recursive(_leaves, _larger, max_leaves=8)
_guarded = st.one_of(
    _of("object", properties=st.dictionaries(_names, _schemas, max_size=3), required=st.lists(_names, max_size=2, unique=True)),
    _of("array", items=_schemas, maxItems=_small),
    _leaves.filter(lambda schema: "$ref" not in str(schema)),
)  # fmt: skip
"""Definitions that lead back to themselves only through a property or an item: a validator does not end otherwise."""


@st.composite
def _documents(draw: st.DrawFn) -> dict[str, Any]:
    root = draw(_schemas.filter(_is_dict))
    return {**root, "$defs": {"A": draw(_guarded), "B": draw(_guarded)}}


@st.composite
def _related(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A document, and one that came of it by small changes: only schemas that are alike are ever within each other."""
    one = draw(_documents())
    other = copy.deepcopy(one)
    for _ in range(draw(st.integers(0, 3))):
        _change(draw, other)
    return draw(st.sampled_from([(one, other), (other, one), (one, draw(_documents()))]))


def _change(draw: st.DrawFn, schema: dict[str, Any]) -> None:
    """Drops a keyword, or replaces or adds one, somewhere."""
    places = list(_places(schema))
    place = draw(st.sampled_from(places))
    keywords = [keyword for keyword in place if keyword != "$defs"]
    if keywords and draw(st.booleans()):
        keyword = draw(st.sampled_from(sorted(keywords)))
        if keyword in ("enum", "anyOf", "oneOf", "required") and len(place[keyword]) > 1:
            place[keyword] = place[keyword][1:]
        else:
            del place[keyword]
    else:
        place.update(draw(_guarded.filter(_is_dict)))


def _places(schema: Any) -> Any:
    if isinstance(schema, dict):
        yield schema
        for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for held in schema.get(keyword, ()):
                yield from _places(held)
        for keyword in ("properties", "$defs", "patternProperties"):
            for held in schema.get(keyword, {}).values():
                yield from _places(held)
        for keyword in ("items", "additionalProperties", "not", "if"):
            yield from _places(schema.get(keyword))


_SETTINGS = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@_SETTINGS
@given(pair=_related(), values=st.lists(_values, min_size=1, max_size=12))
def test_a_yes_is_never_wrong(pair: tuple[Any, Any], values: list[Any]) -> None:
    """What a validator accepts by the narrow schema it accepts by the wide one."""
    narrow, wide = pair
    if within(narrow, wide):
        accepted = [value for value in values if Draft202012Validator(narrow).is_valid(value)]

        assert [] == [value for value in accepted if not Draft202012Validator(wide).is_valid(value)]


@_SETTINGS
@given(document=_documents())
def test_every_schema_is_within_itself(document: Any) -> None:
    """Also where nothing is known of its keywords."""
    assert within(document, copy.deepcopy(document))


@_SETTINGS
@given(value=_values, document=_documents())
def test_a_single_value_is_judged_as_a_validator_does(value: Any, document: Any) -> None:
    """A constant is within a schema only if it meets it."""
    if within({"const": value}, document):
        assert Draft202012Validator(document).is_valid(value)
