"""The published JSON Schemas as they lie on disk, and validation by them. Knows no value but JSON data."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, cast

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
_MOST_SHOWN: Final = 300
"""Characters of a message, which may quote the whole result."""


def get_schema_path(name: str = MCP_TOOL_RESULT_SCHEMA_V1) -> Path:
    """Where a published schema lies on disk, inside the installed package."""
    return Path(str(resources.files("prowess") / "_schemas" / name))


@cache
def get_validator(name: str = MCP_TOOL_RESULT_SCHEMA_V1) -> Any:
    """A compiled JSON Schema 2020-12 validator of a published schema."""
    from jsonschema import Draft202012Validator  # 50 ms that most processes never need

    schema: Schema = json.loads(get_schema_path(name).read_text("utf-8"))
    return Draft202012Validator(schema)


def validate(payload: object, name: str = MCP_TOOL_RESULT_SCHEMA_V1) -> None:
    """Raise `ValueError` naming the place where a payload breaks a published schema worst."""
    errors = list(get_validator(name).iter_errors(payload))
    if errors:
        error = _worst(errors)
        place = ".".join(str(part) for part in error.absolute_path) or "the payload"
        message = error.message if len(error.message) <= _MOST_SHOWN else f"{error.message[:_MOST_SHOWN]}..."
        raise ValueError(f"MCP tool result schema violation at {place}: {message}")


def _worst(errors: list[Any]) -> Any:
    from jsonschema import exceptions  # see get_validator

    error: Any = cast("Any", exceptions).best_match(errors)
    while error.context:  # several ways to be right, and none of them met: any of them says more
        error = min(error.context, key=_depth_and_message)
    return error


def _depth_and_message(error: Any) -> tuple[int, str]:
    return -len(error.absolute_path), error.message
