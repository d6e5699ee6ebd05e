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
