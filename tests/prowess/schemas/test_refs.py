"""References are written out or moved, never left dangling, and recursion ends in an honest superset."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from prowess.errors import SchemaError
from prowess.schemas.refs import (
    hoist_defs,
    inline_refs,
    inline_root,
    merge,
    pointer,
    prune_defs,
    resolve,
    resolve_or_refuse,
    without,
)
from prowess.schemas.walk import visit

NODE: dict[str, Any] = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}
    },
}


def referring(target: dict[str, Any], **siblings: Any) -> dict[str, Any]:
    return {"properties": {"p": {"$ref": "#/$defs/T", **siblings}}, "$defs": {"T": target}}


def inlined(target: dict[str, Any], **siblings: Any) -> Any:
    return inline_refs(referring(target, **siblings))["properties"]["p"]


# Looking up


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("#", "root"),
        ("#/$defs/a~1b~0c%20d", "odd"),
        ("#/anyOf/1", "second"),
        ("#/anyOf/7", None),
        ("#/anyOf/x", None),
        ("#/$defs/nope", None),
        ("#/$defs/odd/deeper", None),
        ("#anchor", None),
        ("other.json#/a", None),
        ("https://evil.example/schema.json", None),
    ],
)
def test_local_pointers_are_followed(ref: str, expected: str | None) -> None:
    """Escapes are undone, positions in lists count, and everything outside the document is nothing."""
    document = {
        "description": "root",
        "$defs": {"a/b~c d": {"description": "odd"}, "odd": {"description": "x"}},
        "anyOf": [{}, {"description": "second"}],
    }

    found = resolve(document, ref)

    assert expected == (found["description"] if found else None)


def test_bare_answers_resolve_to_schemas() -> None:
    """`true` admits anything and `false` nothing, written as schemas with keywords."""
    document = {"$defs": {"yes": True, "no": False}}

    assert {} == resolve(document, "#/$defs/yes")
    assert {"not": {}} == resolve(document, "#/$defs/no")


@pytest.mark.parametrize("name", ["plain", "a/b", "~", "a b", "%41", "ä", "$x", "List[int]"])
def test_pointers_lead_back_to_the_name(name: str) -> None:
    """Whatever a definition is called, its pointer finds it."""
    assert {"title": name} == resolve({"$defs": {name: {"title": name}}}, pointer("$defs", name))


def test_without_keeps_a_node_that_has_nothing_to_lose() -> None:
    """Nothing is copied without need."""
    node = {"type": "string"}

    assert node is without(node, "title")
    assert {} == without(node, "type", "title")


# Inlining


@pytest.mark.parametrize(
    "keyword", [pytest.param("$defs", id="U-25 $defs"), pytest.param("definitions", id="U-25 definitions")]
)
def test_nested_references_are_written_out(keyword: str) -> None:
    """A definition that refers to another becomes one object with all its properties, and no definitions are left."""
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": f"#/{keyword}/Outer"}},
        keyword: {
            "Outer": {"type": "object", "properties": {"inner": {"$ref": f"#/{keyword}/Inner"}}},
            "Inner": {"type": "object", "properties": {"x": {"type": "integer"}}},
        },
    }
    before = copy.deepcopy(schema)

    assert {
        "type": "object",
        "properties": {
            "a": {
                "type": "object",
                "properties": {"inner": {"type": "object", "properties": {"x": {"type": "integer"}}}},
            }
        },
    } == inline_refs(schema)
    assert before == schema


def test_a_parameter_called_like_a_keyword_survives() -> None:
    """`$ref` and `$defs` as names of properties are no references and no definitions."""
    schema = {"properties": {"$ref": {"type": "string"}, "$defs": {"type": "object"}}, "default": {"$ref": "#/nope"}}

    assert schema == inline_refs(schema)


def test_siblings_win_over_the_description_and_the_default_of_the_target() -> None:
    """What an author writes beside a reference is meant for this place."""
    assert {"type": "string", "description": "here", "default": "b"} == inlined(
        {"type": "string", "description": "there", "default": "a"}, description="here", default="b"
    )


@pytest.mark.parametrize(
    "target",
    [pytest.param({"type": "string"}, id="U-29 description beside a reference (flat: an allOf of one says no more)")],
)
def test_annotations_need_no_allof(target: dict[str, Any]) -> None:
    """A description joins the target itself."""
    assert {**target, "description": "named thing"} == inlined(target, description="named thing")


@pytest.mark.parametrize(
    ("target", "siblings", "expected"),
    [
        pytest.param({"type": "integer"}, {"minimum": 1}, {"type": "integer", "minimum": 1}, id="new constraint"),
        pytest.param({"minimum": 1}, {"minimum": 1}, {"minimum": 1}, id="same constraint"),
        pytest.param(
            {"minimum": 1},
            {"minimum": 5, "description": "d"},
            {"allOf": [{"minimum": 1}, {"minimum": 5}], "description": "d"},
            id="other constraint",
        ),
        pytest.param(
            {"properties": {"a": {}}, "additionalProperties": False},
            {"patternProperties": {"b": {}}},
            {
                "allOf": [
                    {"properties": {"a": {}}, "additionalProperties": False},
                    {"patternProperties": {"b": {}}},
                ]
            },
            id="keywords that act together",
        ),
    ],
)
def test_constraints_are_merged_or_kept_apart(target: Any, siblings: Any, expected: Any) -> None:
    """Merging never changes what a keyword means; where it would, both sides stay whole."""
    assert expected == merge(target, siblings)
    assert expected == inlined(target, **siblings)


def test_references_inside_siblings_are_written_out() -> None:
    """What stands beside a reference may refer, too."""
    schema = {
        "$ref": "#/$defs/A",
        "properties": {"b": {"$ref": "#/$defs/B"}},
        "$defs": {"A": {"type": "object"}, "B": {"type": "string"}},
    }

    assert {"type": "object", "properties": {"b": {"type": "string"}}} == inline_refs(schema)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("_case", [pytest.param(None, id="U-28 cyclic reference (bounded instead of refused)")])
def test_recursion_is_written_out_to_a_depth(depth: int, _case: None) -> None:
    """A recursive type is shown `depth` times on a path, then as an object about which nothing more is said."""
    node = inline_refs(NODE, depth=depth)

    for _ in range(depth):
        assert "array" == node["properties"]["children"]["type"]
        node = node["properties"]["children"]["items"]
    assert {"type": "object"} == node


RECURSIVE: dict[str, Any] = {"$ref": "#/$defs/R"}
BRANCH: dict[str, Any] = {"type": "object", "properties": {"r": RECURSIVE}}


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (BRANCH, {"type": "object", "properties": {"r": {"type": "object"}}}),
        ({"type": "array", "items": RECURSIVE}, {"type": "array", "items": {"type": "array", "items": {}}}),
        ({"anyOf": [{"items": RECURSIVE}, {"type": "object"}]}, {"anyOf": [{"items": {}}, {"type": "object"}]}),
        (
            {"anyOf": [{"type": "object", "not": RECURSIVE}, True]},
            {"anyOf": [{"type": "object", "not": {}}, True]},
        ),
        ({"oneOf": [{"$ref": "#/$defs/A"}]}, {"oneOf": [{"type": "object", "properties": {"r": {"type": "object"}}}]}),
        (RECURSIVE, {}),
    ],
    ids=["object", "array", "mixed union", "open union", "union of objects", "nothing but itself"],
)
def test_recursion_ends_in_the_narrowest_honest_superset(definition: Any, expected: Any) -> None:
    """Where the writing out stops, everything that was valid before is valid still."""
    schema = {**RECURSIVE, "$defs": {"R": definition, "A": BRANCH}}

    assert expected == inline_refs(schema, depth=1)


def test_a_description_beside_a_cut_recursion_stays() -> None:
    """The superset is still the property it was."""
    schema = copy.deepcopy(NODE)
    schema["$defs"]["Node"]["properties"]["parent"] = {"$ref": "#/$defs/Node", "description": "the one above"}

    result = inline_refs(schema, depth=1)

    assert {"type": "object", "description": "the one above"} == result["properties"]["parent"]


def grammar(kinds: int) -> dict[str, Any]:
    """A family of types each of which may hold all others: written out naively, it has no end in sight."""
    everything = {"anyOf": [{"$ref": f"#/$defs/K{n}"} for n in range(kinds)]}
    return {
        "type": "object",
        "properties": {"root": everything},
        "$defs": {
            f"K{n}": {
                "type": "object",
                "properties": {"kind": {"const": n}, "left": everything, "right": everything},
                "required": ["kind"],
            }
            for n in range(kinds)
        },
    }


@pytest.mark.parametrize("kinds", [2, 5, 20])
def test_entangled_recursion_stays_small(kinds: int) -> None:
    """A document is cut earlier before it grows out of proportion, and still admits what it did."""
    schema = grammar(kinds)
    value = {"root": {"kind": 1, "left": {"kind": 0, "left": {"kind": 1, "right": {"kind": 0}}}}}

    result = inline_refs(schema)

    size = sum(1 for _ in visit(result))
    assert size <= max(1000, 2 * sum(1 for _ in visit(schema)))
    assert Draft202012Validator(schema).is_valid(value)
    assert Draft202012Validator(result).is_valid(value)
    assert not Draft202012Validator(result).is_valid({"root": {"kind": "none of them"}})


def test_a_towering_document_without_recursion_is_cut_as_well() -> None:
    """Definitions that use one another many times grow exponentially; the plain ones at the end are still written out."""
    levels = {
        f"L{n}": {"type": "object", "properties": {f"p{i}": {"$ref": f"#/$defs/L{n + 1}"} for i in range(8)}}
        for n in range(8)
    }
    schema = {"$ref": "#/$defs/L0", "$defs": {**levels, "L8": {"type": "string"}}}

    result = inline_refs(schema)

    assert sum(1 for _ in visit(result)) <= 1000
    assert {"type": "object"} == result["properties"]["p0"]["properties"]["p0"]["properties"]["p0"]


def test_the_last_resort_writes_out_what_the_root_refers_to() -> None:
    """However large a document is, one level of it is always shown, and plain definitions whole."""
    wide = {"type": "object", "properties": {f"p{n}": {"$ref": "#/$defs/Wide"} for n in range(700)}}
    schema = {
        "properties": {f"p{n}": {"$ref": "#/$defs/Wide"} for n in range(9)} | {"leaf": {"$ref": "#/$defs/Leaf"}},
        "$defs": {"Wide": wide, "Leaf": {"type": "string"}},
    }

    result = inline_refs(schema)

    assert {"type": "string"} == result["properties"]["leaf"]
    assert 700 == len(result["properties"]["p8"]["properties"])
    assert {"type": "object"} == result["properties"]["p8"]["properties"]["p0"]


@pytest.mark.parametrize("ref", ["#/$defs/Nope", "#anchor", "https://evil.example/schema.json"])
def test_a_reference_to_nothing_falls_back(ref: str) -> None:
    """No reference is left dangling: what it stood for is unknown, or what the profile takes for that."""
    assert {"description": "d"} == inline_refs({"$ref": ref, "description": "d"})
    assert {"type": "object"} == inline_refs({"$ref": ref}, fallback={"type": "object"})


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        pytest.param("#/$defs/Nope", "Unable to resolve $ref '#/$defs/Nope'", id="O-26 unresolvable"),
        pytest.param(
            "https://evil.example/s.json", "Unexpected $ref format 'https://evil.example/s.json'", id="O-26 remote"
        ),
        pytest.param("https://evil.example/s.json", "non-local", id="U-28 remote reference to inline"),
    ],
)
def test_a_reference_to_nothing_can_be_refused(ref: str, words: str) -> None:
    """Without a fallback, a reference that cannot be followed is the author's mistake."""
    for refuse in (lambda: inline_refs({"items": {"$ref": ref}}, fallback=None), lambda: resolve_or_refuse({}, ref)):
        with pytest.raises(SchemaError) as caught:
            refuse()
        assert words in str(caught.value)


def test_inlining_without_fallback_follows_what_is_there() -> None:
    """Refusing is for what leads nowhere only."""
    assert {"properties": {"p": {"type": "string"}}} == inline_refs(referring({"type": "string"}), fallback=None)


def test_a_discriminator_loses_its_mapping_to_definitions() -> None:
    """The mapping would name definitions that are gone."""
    schema = {
        "oneOf": [{"$ref": "#/$defs/A"}],
        "discriminator": {"propertyName": "kind", "mapping": {"a": "#/$defs/A"}},
        "$defs": {"A": {"type": "object", "discriminator": "data of another kind"}},
    }

    assert {
        "oneOf": [{"type": "object", "discriminator": "data of another kind"}],
        "discriminator": {"propertyName": "kind"},
    } == inline_refs(schema)


def test_a_root_says_itself_what_it_is() -> None:
    """A root reference gives way to its target; definitions stay for the references inside."""
    result = inline_root({**NODE, "description": "a tree"})

    assert {**NODE["$defs"]["Node"], "description": "a tree", "$defs": NODE["$defs"]} == result


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"$ref": "#/$defs/Nope", "$defs": {}},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
    ],
    ids=["no reference", "dangling", "circular"],
)
def test_a_root_without_a_target_stays(schema: dict[str, Any]) -> None:
    """There is nothing to put in its place."""
    assert schema == inline_root(schema)


# Moving definitions


def test_definitions_of_embedded_documents_move_to_the_root() -> None:
    """Local references look at the root, so that is where definitions belong, wherever a document was put."""
    schema = {
        "properties": {
            "result": {"$ref": "#/$defs/A", "$defs": {"A": {"type": "array", "items": {"$ref": "#/definitions/B"}}}},
            "other": {"definitions": {"B": {"$defs": {"C": {}}}}},
        },
        "$defs": {"Own": {"$defs": {"D": {}}}},
    }
    before = copy.deepcopy(schema)

    assert {
        "properties": {"result": {"$ref": "#/$defs/A"}, "other": {}},
        "$defs": {"A": {"type": "array", "items": {"$ref": "#/definitions/B"}}, "C": {}, "D": {}, "Own": {}},
        "definitions": {"B": {}},
    } == hoist_defs(schema)
    assert before == schema


def test_a_document_with_an_id_keeps_its_definitions() -> None:
    """References inside it look at its own root."""
    schema = {"properties": {"x": {"$id": "urn:x", "$ref": "#/$defs/A", "$defs": {"A": {}}}}}

    assert schema == hoist_defs(schema)


def test_two_definitions_of_one_name_cannot_be_moved_together() -> None:
    """The same definition twice is one; two different ones are a mistake, not a choice."""
    twice = {"anyOf": [{"$defs": {"A": {"type": "string"}}}, {"$defs": {"A": {"type": "string"}}}]}

    assert {"anyOf": [{}, {}], "$defs": {"A": {"type": "string"}}} == hoist_defs(twice)
    with pytest.raises(SchemaError, match="'A'"):
        hoist_defs({"anyOf": [{"$defs": {"A": {"type": "string"}}}, {"$defs": {"A": {"type": "integer"}}}]})


def test_definitions_nobody_refers_to_are_pruned() -> None:
    """What is reached through other definitions counts; what only refers to itself does not."""
    schema = {
        "$ref": "#/$defs/A",
        "items": {"$ref": "#/definitions/X~1Y"},
        "not": {"$ref": "#"},
        "contains": {"$ref": "#/$defs/gone"},
        "$defs": {"A": {"$ref": "#/$defs/B/items"}, "B": {"items": {}}, "Lonely": {"$ref": "#/$defs/Lonely"}},
        "definitions": {"X/Y": {}, "Unused": {}},
    }

    pruned = prune_defs(schema)

    assert {"A", "B"} == set(pruned["$defs"])
    assert {"X/Y"} == set(pruned["definitions"])
    assert {"type": "string"} == prune_defs({"type": "string", "$defs": {"A": {}}})
