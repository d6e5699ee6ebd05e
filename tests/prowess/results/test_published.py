"""The schemas on disk: what they say, and that they say it of everything MCP has."""

from __future__ import annotations

import copy
import json
from typing import Any

import mcp_types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from prowess.mcp_schema import (
    MCP_TOOL_RESULT_SCHEMA_V1,
    MCP_TOOL_RESULT_TEXT_SCHEMA_V1,
    get_schema_path,
    get_validator,
    validate,
)
from prowess.results import published
from prowess.results.published import get_registry, read_schema

TEXT = {"type": "text", "text": "x"}
BOTH = (MCP_TOOL_RESULT_SCHEMA_V1, MCP_TOOL_RESULT_TEXT_SCHEMA_V1)


@pytest.mark.parametrize("name", BOTH)
def test_schema_is_valid_and_has_a_name(name: str) -> None:
    """Its metaschema holds, its `$id` is its own, and every reference in it leads somewhere."""
    schema = json.loads(get_schema_path(name).read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    assert name == schema["$id"]
    assert name == get_schema_path(name).name
    assert get_validator(name) is get_validator(name)


@pytest.mark.parametrize("name", [*BOTH, "request.schema.json", "response.schema.json"])
def test_references_between_schemas_resolve_offline(name: str) -> None:
    """By the file name, which is the `$id`; also below the address of a server that publishes the folder."""
    assert read_schema(name) == get_registry()[name].contents == get_validator(name).schema
    referring = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": name}
    assert not Draft202012Validator(referring, registry=get_registry()).is_valid({"x": 1})
    assert {name} == {read_schema(file.name)["$id"] for file in get_schema_path(name).parent.glob(name)}


def test_what_the_compiled_check_does_not_know_is_left_to_the_validator() -> None:
    """It takes only an `int` for an integer, and JSON Schema takes `1.0` as well."""
    link = {"type": "resource_link", "uri": "mem:x", "name": "x", "size": 1.0}
    validate({"content": [link], "isError": False})


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


SCRAPS: list[Any] = [None, True, 0, 0.5, 2, "", "x", "text", "image", "user", "light", [], ["any"], {}, {"src": "x"}]
NAMES = sorted(
    {name for block in BLOCKS for name in (*block, *block.get("resource", ()), *block.get("annotations", ()))}
)


@st.composite
def payloads(draw: st.DrawFn) -> Any:
    """Good payloads, most of them damaged in a few places."""
    payload: Any = copy.deepcopy(
        {
            "content": draw(st.lists(st.sampled_from([*BLOCKS, *WRONG]), max_size=2)),
            "isError": draw(st.booleans()),
            **draw(st.sampled_from([{}, {"_meta": {}}, {"structuredContent": [1]}])),
        }
    )
    for _ in range(draw(st.integers(0, 3))):
        holder = draw(st.sampled_from(_objects(payload)))
        name = draw(st.sampled_from(sorted({*holder, *NAMES})))
        if name in holder and draw(st.booleans()):
            del holder[name]
        else:
            holder[name] = copy.deepcopy(draw(st.sampled_from(SCRAPS)))
    return payload


def _objects(value: Any) -> list[dict[str, Any]]:
    """Every object in JSON data."""
    if isinstance(value, list):
        return [found for item in value for found in _objects(item)]
    return [value, *_objects(list(value.values()))] if isinstance(value, dict) else []


@given(payloads())
def test_the_compiled_check_and_the_schema_agree(payload: Any) -> None:
    """The schema alone says what a result is; `validate` gets there faster."""
    for name in BOTH:
        try:
            validate(payload, name)
        except ValueError:
            assert not get_validator(name).is_valid(payload)
        else:
            assert get_validator(name).is_valid(payload)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block["type"])
def test_a_good_result_never_meets_the_slow_validator(block: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes fifty times as long, and is asked only what is wrong."""
    monkeypatch.setattr(published, "get_validator", None)
    validate({"content": [block], "isError": False, "structuredContent": {}, "_meta": {}})
    validate({"content": [TEXT], "isError": True}, MCP_TOOL_RESULT_TEXT_SCHEMA_V1)


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
