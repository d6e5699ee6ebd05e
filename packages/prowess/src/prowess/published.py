"""The published JSON Schemas as they lie on disk, and validation by them. Knows no value but JSON data."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from prowess.jsontypes import Schema

__all__ = [
    "MCP_TOOL_RESULT_SCHEMA_V1",
    "MCP_TOOL_RESULT_TEXT_SCHEMA_V1",
    "get_schema_path",
    "get_validator",
    "validate",
]

MCP_TOOL_RESULT_SCHEMA_V1: Final = "prowess.mcp.tool_result.v1.schema.json"
MCP_TOOL_RESULT_TEXT_SCHEMA_V1: Final = "prowess.mcp.tool_result.text.v1.schema.json"


def get_schema_path(name: str = MCP_TOOL_RESULT_SCHEMA_V1) -> Path:
    """Where a published schema lies on disk, inside the installed package."""
    return Path(str(resources.files("prowess") / "_schemas" / name))


@cache
def get_validator(name: str = MCP_TOOL_RESULT_SCHEMA_V1) -> Any:
    """A compiled JSON Schema 2020-12 validator of a published schema."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - 50 ms that most processes never need

    schema: Schema = json.loads(get_schema_path(name).read_text("utf-8"))
    return Draft202012Validator(schema)


def validate(payload: object, name: str = MCP_TOOL_RESULT_SCHEMA_V1) -> None:
    """Raise `ValueError` naming the first place where a payload breaks the shared schema."""
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - see get_validator

    error = best_match(get_validator(name).iter_errors(payload))
    if error is not None:
        while error.context:
            error = min(error.context, key=lambda inner: (-len(inner.absolute_path), inner.message))
        place = ".".join(str(part) for part in error.absolute_path) or "the payload"
        msg = f"MCP tool result schema violation at {place}: {error.message}"
        raise ValueError(msg)
