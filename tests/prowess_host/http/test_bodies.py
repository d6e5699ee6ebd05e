"""Bodies and schemas, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from prowess_host.http.bodies import find_mismatches

EVIL = "^(a+)+$"
LONG = "a" * 60 + "!"


@pytest.mark.parametrize(
    ("schema", "body", "paths"),
    [
        ({"properties": {"x": {"pattern": EVIL}}}, {"x": LONG}, ["$.x"]),
        ({"properties": {"x": {"pattern": EVIL}}}, {"x": "aaa"}, []),
        ({"properties": {"x": {"pattern": EVIL}}}, {"x": 1}, []),
        ({"properties": {"x": {"not": {"pattern": EVIL}}}}, {"x": "aaa"}, ["$.x"]),
        ({"properties": {"x": {"not": {"pattern": EVIL}}}}, {"x": LONG}, []),
        ({"patternProperties": {EVIL: {"type": "string"}}}, {LONG: 1}, []),
        ({"anyOf": [{"patternProperties": {EVIL: {}}, "additionalProperties": False}]}, {LONG: 1}, []),
        ({"properties": {"x": {"pattern": f"(?=a){EVIL}"}}}, {"x": LONG}, []),
        ({"properties": {"pattern": {"type": "string"}}}, {"pattern": 1}, ["$.pattern"]),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}], ["$"]),
        ({"uniqueItems": True}, [{"a": number} for number in range(30_000)], []),
        ({"uniqueItems": False}, [1, 1], []),
        ({"uniqueItems": True}, [1, True, "1"], []),
    ],
)
def test_what_does_not_fit_is_found_at_once(schema: dict[str, Any], body: Any, paths: list[str]) -> None:
    """Patterns of names, and those that cannot be matched in linear time, are left to the worker, with all of the schema."""
    assert paths == [each.json_path for each in find_mismatches(schema, body)]


def test_unions_that_refer_to_themselves_are_compared_in_bounded_time() -> None:
    """Each level of the body doubles the number of comparisons, so a deep one is left to the worker."""
    again = {"$ref": "#/$defs/tree"}
    one, two = ({"type": "object", "properties": {"kind": {"const": kind}, "of": again}} for kind in ("one", "two"))
    schema = {"$ref": "#/$defs/tree", "$defs": {"tree": {"anyOf": [one, two, {"type": "null"}]}}}
    body: Any = "wrong"
    for depth in range(60):
        body = {"kind": "two", "of": body}
        if depth == 3:
            assert ["$"] == [each.json_path for each in find_mismatches(schema, body)]
    assert [] == list(find_mismatches(schema, body))
