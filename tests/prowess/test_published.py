"""The schemas on disk: what they say, and that they say it of everything MCP has."""

from __future__ import annotations

import json
from typing import Any

import mcp_types
import pytest
from jsonschema import Draft202012Validator

from prowess.mcp_schema import (
    MCP_TOOL_RESULT_SCHEMA_V1,
    MCP_TOOL_RESULT_TEXT_SCHEMA_V1,
    get_schema_path,
    get_validator,
    validate,
)

TEXT = {"type": "text", "text": "x"}
BOTH = (MCP_TOOL_RESULT_SCHEMA_V1, MCP_TOOL_RESULT_TEXT_SCHEMA_V1)


@pytest.mark.parametrize("name", BOTH)
def test_schema_is_valid_and_has_a_name(name: str) -> None:
    """Its metaschema holds, its `$id` is its own, and every reference in it leads somewhere."""
    schema = json.loads(get_schema_path(name).read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    assert f"urn:prowess:{name.removeprefix('prowess.').removesuffix('.schema.json')}" == schema["$id"]
    assert name == get_schema_path(name).name
    assert get_validator(name) is get_validator(name)


BLOCKS: list[dict[str, Any]] = [
    TEXT,
    {
        **TEXT,
        "annotations": {"audience": ["user", "assistant"], "priority": 0.5, "lastModified": "2025-01-01T00:00:00Z"},
    },
    {**TEXT, "_meta": {"a": 1}},
    {"type": "image", "data": "", "mimeType": "image/png"},
    {"type": "audio", "data": "", "mimeType": "png"},
    {"type": "resource", "resource": {"uri": "mem:x", "text": ""}},
    {"type": "resource", "resource": {"uri": "mem:x", "blob": "", "mimeType": "a/b", "_meta": {}}},
    {"type": "resource_link", "uri": "mem:x", "name": "x"},
    {
        "type": "resource_link",
        "uri": "mem:x",
        "name": "x",
        "title": "t",
        "description": "d",
        "mimeType": "a/b",
        "size": 1,
        "icons": [{"src": "data:,", "mimeType": "image/png", "sizes": ["any"], "theme": "light"}],
    },
]

WRONG: list[dict[str, Any]] = [
    {},
    {"type": "video"},
    {"type": "text"},
    {"type": "text", "text": 1},
    {**TEXT, "annotations": {"audience": ["everybody"]}},
    {**TEXT, "annotations": {"priority": 2}},
    {**TEXT, "annotations": []},
    {**TEXT, "_meta": []},
    {"type": "image", "data": ""},
    {"type": "audio", "mimeType": "audio/wav"},
    {"type": "image", "data": 1, "mimeType": "image/png"},
    {"type": "resource"},
    {"type": "resource", "resource": {"uri": "mem:x"}},
    {"type": "resource", "resource": {"text": ""}},
    {"type": "resource_link", "uri": "mem:x"},
    {"type": "resource_link", "uri": "mem:x", "name": "x", "size": [1]},
    {"type": "resource_link", "uri": "mem:x", "name": "x", "icons": [{}]},
    {"type": "resource_link", "uri": "mem:x", "name": "x", "icons": [{"src": "data:,", "theme": "red"}]},
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block["type"])
def test_every_content_type_of_mcp_conforms(block: dict[str, Any]) -> None:
    """Ours and the library's agree on what is right."""
    payload = {"content": [block], "isError": False}
    validate(payload)
    mcp_types.CallToolResult.model_validate(payload)


@pytest.mark.parametrize("block", WRONG, ids=str)
def test_what_is_no_content_of_mcp_does_not(block: dict[str, Any]) -> None:
    """And on what is wrong."""
    payload = {"content": [TEXT, block], "isError": False}
    with pytest.raises(ValueError, match=r"^MCP tool result schema violation at content\.1"):
        validate(payload)
    with pytest.raises(ValueError, match="validation error"):
        mcp_types.CallToolResult.model_validate(payload)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ([], "the payload: [] is not of type 'object'"),
        ({"isError": False}, "the payload: 'content' is a required property"),
        ({"content": [TEXT]}, "the payload: 'isError' is a required property"),
        ({"content": [], "isError": False}, "content: [] should be non-empty"),
        ({"content": [TEXT], "isError": 1}, "isError: 1 is not of type 'boolean'"),
        (
            {"content": [TEXT], "isError": False, "more": 1},
            "the payload: Additional properties are not allowed ('more' was unexpected)",
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "mem:x"}}], "isError": False},
            "content.0.resource: 'blob' is a required property",
        ),
        ({"content": "x" * 1000, "isError": False}, f"content: '{'x' * 299}..."),
    ],
)
def test_violation_names_the_place(payload: Any, message: str) -> None:
    """`MCP tool result schema violation at <path>: <msg>`, and not the whole payload."""
    with pytest.raises(ValueError) as caught:
        validate(payload)
    assert f"MCP tool result schema violation at {message}" == str(caught.value)


@pytest.mark.parametrize("value", [None, 1, "x", [1], {"a": 1}])
def test_structure_may_be_any_json(value: Any) -> None:
    """The newest wire takes any value; `null` is one."""
    validate({"content": [TEXT], "isError": False, "structuredContent": value})


def test_text_schema_is_strict() -> None:
    """Text blocks with nothing to them, and the flag."""
    validate({"content": [TEXT, TEXT], "isError": True}, MCP_TOOL_RESULT_TEXT_SCHEMA_V1)
    for payload in (
        {"content": [BLOCKS[1]], "isError": True},
        {"content": [BLOCKS[3]], "isError": True},
        {"content": [TEXT], "isError": True, "_meta": {}},
        {"content": [], "isError": True},
    ):
        with pytest.raises(ValueError, match="schema violation"):
            validate(payload, MCP_TOOL_RESULT_TEXT_SCHEMA_V1)
