"""The shared schema of tool results, with functions that build, check and project them."""

from __future__ import annotations

import json
from typing import Any, cast

from prowess.calls.outcome import render
from prowess.errors import OutputError
from prowess.jsontypes import JsonObject
from prowess.results import content
from prowess.results.content import as_payload, text_block
from prowess.results.normalize import normalize
from prowess.results.published import (
    MCP_TOOL_RESULT_SCHEMA_V1,
    MCP_TOOL_RESULT_TEXT_SCHEMA_V1,
    get_schema_path,
    get_validator,
    validate,
)

__all__ = [
    "MCP_TOOL_RESULT_SCHEMA_V1",
    "MCP_TOOL_RESULT_TEXT_SCHEMA_V1",
    "build_result",
    "extract_text_content",
    "get_schema_path",
    "get_validator",
    "is_canonical",
    "normalize_mcp_tool_result",
    "parse_result_payload",
    "to_text_only",
    "validate",
]


def build_result(text: str, is_error: bool = False) -> JsonObject:
    """A canonical payload with one text block."""
    return {"content": [text_block(text)], "isError": is_error}


def is_canonical(value: object) -> bool:
    """Whether a value already is a tool result: non-empty content of MCP blocks, and a boolean `isError`."""
    payload = None if isinstance(value, dict) and cast("JsonObject", value).get("content") == [] else as_payload(value)
    return payload is not None and isinstance(payload["isError"], bool)


def normalize_mcp_tool_result(value: Any) -> JsonObject:
    """Convert any value to a canonical payload. Raises `ValueError` if that is impossible."""
    try:
        return render(normalize(value))
    except OutputError as error:
        raise ValueError(str(error)) from error


def to_text_only(payload: JsonObject) -> JsonObject:
    """The strict text-only projection of a canonical payload. Raises `ValueError` for other values."""
    validate(payload)
    projected = content.to_text_only(payload)
    validate(projected, MCP_TOOL_RESULT_TEXT_SCHEMA_V1)
    return projected


def extract_text_content(result: object) -> str | None:
    """The text of a payload, or of a JSON-RPC response or error; `None` without a text."""
    if not isinstance(result, dict):
        return None
    message = cast("JsonObject", result)
    error = message.get("error")
    if isinstance(error, dict) and isinstance(cast("JsonObject", error).get("message"), str):
        return cast("str", error["message"])
    inner = message.get("result", message)
    items = cast("JsonObject", inner).get("content") if isinstance(inner, dict) else None
    if not isinstance(items, list):
        return None
    blocks = [cast("JsonObject", block) for block in cast("list[Any]", items) if isinstance(block, dict)]
    texts = [str(block["text"]) for block in blocks if block.get("type") == "text" and "text" in block]
    return "\n".join(texts) if texts else None


def parse_result_payload(value: object) -> JsonObject:
    """The mapping in a result, which may be a mapping, JSON text, or a canonical payload with JSON text."""
    if isinstance(value, str):
        value = _parsed(value)
    if not isinstance(value, dict):
        msg = f"a result payload must be a mapping or JSON text of one, not {type(value).__name__}"
        raise TypeError(msg)
    payload = cast("JsonObject", value)
    if is_canonical(payload):
        try:
            inner = _parsed(extract_text_content(payload) or "")
        except ValueError:
            return payload
        return cast("JsonObject", inner) if isinstance(inner, dict) else payload
    return payload


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON text is nested too deeply") from error
