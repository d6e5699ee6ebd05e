"""Schemas are found by keyword position: what merely looks like one is left alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from prowess.schemas.walk import children, each_node, rewrite, rewrite_children, visit

LEAF: dict[str, Any] = {"type": "string", "title": "Leaf"}


def untitled(node: dict[str, Any]) -> dict[str, Any]:
    return {keyword: held for keyword, held in node.items() if keyword != "title"} if "title" in node else node


@pytest.mark.parametrize(
    "keyword",
    ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"],
)
def test_schemas_by_name_are_visited(keyword: str) -> None:
    """Each entry of these keywords is a schema, whatever it is called."""
    schema = {keyword: {"title": LEAF, "default": LEAF}}

    assert [(keyword, "title"), (keyword, "default")] == [path for path, _ in children(schema)]
    assert {keyword: {"title": {"type": "string"}, "default": {"type": "string"}}} == rewrite(schema, untitled)


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf", "prefixItems"])
def test_schemas_in_order_are_visited(keyword: str) -> None:
    """Each entry of these keywords is a schema; the bare `true` is no schema with keywords."""
    schema = {keyword: [LEAF, True]}

    assert [(keyword, 0)] == [path for path, _ in children(schema)]
    assert {keyword: [{"type": "string"}, True]} == rewrite(schema, untitled)


@pytest.mark.parametrize(
    "keyword",
    [
        *("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then"),
        *("unevaluatedItems", "unevaluatedProperties"),
    ],
)
def test_single_schemas_are_visited(keyword: str) -> None:
    """These keywords hold one schema, or a bare yes or no."""
    assert [((keyword,), LEAF)] == list(children({keyword: LEAF}))
    assert {keyword: {"type": "string"}} == rewrite({keyword: LEAF}, untitled)
    assert [] == list(children({keyword: False}))
    assert {keyword: False} == rewrite({keyword: False}, untitled)


@pytest.mark.parametrize("keyword", ["default", "const", "examples", "enum", "x-anything", "required"])
def test_data_is_never_visited(keyword: str) -> None:
    """What stands in a default, a constant or an example is data, even when it looks like a schema."""
    schema = {"type": "object", keyword: [LEAF, {"properties": {"a": LEAF}}]}

    assert [] == list(children(schema))
    assert schema is rewrite(schema, untitled)


@pytest.mark.parametrize("schema", [{"properties": []}, {"anyOf": {}}, {"anyOf": "x"}, {"properties": 7}])
def test_malformed_keywords_are_left_alone(schema: dict[str, Any]) -> None:
    """A walk does not judge: what is not held in the right form is not visited."""
    assert [] == list(children(schema))
    assert schema is rewrite(schema, untitled)


def test_rewriting_changes_neither_the_argument_nor_what_needs_no_change() -> None:
    """The argument stays as it was, and the parts without a change are shared with the result."""
    schema = {"properties": {"same": {"type": "integer"}, "other": LEAF}, "anyOf": [{"type": "object"}]}
    before = copy.deepcopy(schema)

    result = rewrite(schema, untitled)

    assert before == schema
    assert {"same": {"type": "integer"}, "other": {"type": "string"}} == result["properties"]
    assert schema["properties"]["same"] is result["properties"]["same"]
    assert schema["anyOf"] is result["anyOf"]


def test_a_node_without_changes_is_the_same_object() -> None:
    """Nothing is copied without need."""
    schema = {"properties": {"a": {"anyOf": [{"type": "integer"}]}}}

    assert schema is rewrite_children(schema, lambda child: child)


def test_changes_are_made_in_order_and_from_the_inside() -> None:
    """Several changes share a pass; each sees what the one before made, and children before their parents."""
    seen: list[str] = []

    def note(node: dict[str, Any]) -> dict[str, Any]:
        seen.append(node["type"])
        return {**node, "type": node["type"] + "!"}

    result = each_node(note, note)({"type": "outer", "items": {"type": "inner"}})

    assert ["inner", "inner!", "outer", "outer!"] == seen
    assert {"type": "outer!!", "items": {"type": "inner!!"}} == result


def test_visiting_names_every_place_in_reading_order() -> None:
    """The root comes first, then its parts with the whole path to them."""
    schema = {"properties": {"a": {"items": {}}, "b": {}}, "allOf": [{}]}

    assert [(), ("properties", "a"), ("properties", "a", "items"), ("properties", "b"), ("allOf", 0)] == [
        path for path, _ in visit(schema)
    ]


def test_visiting_a_deep_document_does_not_exhaust_the_stack() -> None:
    """A schema from a stranger may be nested deeper than Python calls can be."""
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"items": schema}

    assert 5001 == sum(1 for _ in visit(schema))
