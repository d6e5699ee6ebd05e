"""The public helpers around the shared schema: build, check, project, read back."""

from __future__ import annotations

from typing import Any

import pytest

from prowess import Image, mcp_schema
from prowess.mcp_schema import (
    MCP_TOOL_RESULT_TEXT_SCHEMA_V1,
    build_result,
    extract_text_content,
    is_canonical,
    normalize_mcp_tool_result,
    parse_result_payload,
    to_text_only,
    validate,
)

TEXT = {"type": "text", "text": "x"}


def test_build_result() -> None:
    """One text block and the flag; it conforms."""
    assert {"content": [TEXT], "isError": False} == build_result("x")
    assert build_result("x", True) == build_result("x", is_error=True)
    validate(build_result("", is_error=True))


DEEP = "[" * 100_000
"""More levels than Python's parser reads."""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (build_result("x"), True),
        ({"content": [{"type": "image", "data": "", "mimeType": "image/png"}], "isError": True, "more": 1}, True),
        ({"content": [Image(b"GIF89a")], "isError": False}, True),
        ({"content": [], "isError": False}, False),
        ({"content": [], "isError": True}, False),
        ({"content": [TEXT]}, False),
        ({"content": [TEXT], "isError": "yes"}, False),
        ({"content": ["x"], "isError": False}, False),
        ({"content": [{"type": "video"}], "isError": False}, False),
        ({"content": [{"type": []}], "isError": False}, False),
        (None, False),
        ("x", False),
    ],
)
def test_is_canonical(value: Any, expected: bool) -> None:
    """Content that is not empty, blocks of MCP, and a flag that is a bool."""
    assert expected is is_canonical(value)


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), ("ok", "ok"), ({"k": "v"}, '{"k": "v"}'), ([1, 2], "[1, 2]")], ids=["M-16"] * 4
)
def test_normalize(value: Any, text: str) -> None:
    """Any value becomes a payload that conforms."""
    payload = normalize_mcp_tool_result(value)
    assert ([{"type": "text", "text": text}], False) == (payload["content"], payload["isError"])
    validate(payload)
    assert payload == normalize_mcp_tool_result(payload)


def test_normalize_refuses_with_a_value_error() -> None:
    """M-21, M-22: what claims to be a payload has to be one."""
    with pytest.raises(ValueError, match=r"violation at content\.1: 'text' is a required property"):
        normalize_mcp_tool_result({"content": [TEXT, {"type": "text"}], "isError": False})
    with pytest.raises(ValueError, match=r"violation at isError: 'yes' is not of type 'boolean'"):
        normalize_mcp_tool_result({"content": [TEXT], "isError": "yes"})


def test_to_text_only_says_in_words_what_was_no_text() -> None:
    """Each block becomes one of text, all else is dropped, and the result meets the strict schema."""
    resource = {"uri": "mem:x", "text": "inside"}
    payload = {
        "content": [
            {**TEXT, "annotations": {"priority": 1}, "_meta": {}},
            {"type": "image", "data": "eHh4eA==", "mimeType": "image/png"},
            {"type": "audio", "data": "eHh4", "mimeType": "audio/wav"},
            {"type": "resource", "resource": resource},
            {"type": "resource", "resource": {"uri": "mem:y", "blob": "eA=="}},
            {"type": "resource_link", "uri": "file:///z", "name": "z"},
            {"type": "image", "data": "", "mimeType": "image/png", "resource": None},
            {"type": "image", "data": "", "mimeType": "image/png", "resource": resource},
        ],
        "isError": True,
        "structuredContent": {"a": 1},
        "_meta": {},
    }
    projected = to_text_only(payload)
    assert [
        "x",
        "[image: image/png, 4 bytes]",
        "[audio: audio/wav, 3 bytes]",
        "inside",
        "[resource: mem:y]",
        "[resource link: file:///z]",
        "[image: image/png, 0 bytes]",
        "[image: image/png, 0 bytes]",
    ] == [block["text"] for block in projected["content"]]
    assert {"content", "isError"} == projected.keys()
    assert projected["isError"] is True
    validate(projected, MCP_TOOL_RESULT_TEXT_SCHEMA_V1)


@pytest.mark.parametrize(
    "payload", [{}, {"content": [], "isError": False}, {"content": [{"type": "image"}], "isError": 1}]
)
def test_to_text_only_takes_payloads_only(payload: Any) -> None:
    """What is none is refused by the shared schema."""
    with pytest.raises(ValueError, match="MCP tool result schema violation at "):
        to_text_only(payload)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"jsonrpc": "2.0", "id": 1, "result": build_result("x")}, "x"),
        (build_result("x"), "x"),
        ({"content": [TEXT, {"type": "image"}, "no", {"type": "text"}, {"type": "text", "text": "y"}]}, "x\ny"),
        ({"error": {"message": "m"}}, "m"),
        ({"error": {"message": 1}}, None),
        ({"error": None, "result": None}, None),
        ({"content": [{"type": "image"}]}, None),
        ({"content": "x"}, None),
        ({}, None),
        (5, None),
    ],
    ids=["M-32", "M-32", "M-32", "M-32", "message", "nothing", "image", "odd", "M-32", "M-32"],
)
def test_extract_text_content(result: Any, text: str | None) -> None:
    """The text of a payload, a response or an error."""
    assert text == extract_text_content(result)


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        (build_result('{"a": 1}'), {"a": 1}),
        (build_result("plain"), build_result("plain")),
        (build_result("[1]"), build_result("[1]")),
        ({"content": [{"type": "image", "data": "", "mimeType": "image/png"}], "isError": False},) * 2,
    ],
    ids=["M-30"] * 4 + ["list", "image"],
)
def test_parse_result_payload(value: Any, parsed: Any) -> None:
    """The mapping that is meant, however deep it is packed."""
    assert parsed == parse_result_payload(value)


@pytest.mark.parametrize("value", [[1], "[1]", 5, None])
def test_parse_result_payload_takes_mappings_only(value: Any) -> None:
    """M-30: a list is none."""
    with pytest.raises(TypeError, match="a result payload must be a mapping or JSON text of one, not "):
        parse_result_payload(value)


@pytest.mark.parametrize("value", [DEEP, "{"])
def test_parse_result_payload_reads_json(value: str) -> None:
    with pytest.raises(ValueError, match=r"nested too deeply|Expecting property name"):
        parse_result_payload(value)
    assert build_result(value) == parse_result_payload(build_result(value))


def test_door() -> None:
    """`from prowess import mcp_schema` is the module, with all that it promises."""
    assert [] == [name for name in mcp_schema.__all__ if not hasattr(mcp_schema, name)]
    assert mcp_schema.get_schema_path().is_file()
    assert mcp_schema.get_validator() is mcp_schema.get_validator()
