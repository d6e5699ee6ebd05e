"""The published JSON Schemas inside the package, and validation by them. Handles JSON data only."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from prowess.jsontypes import Json, Schema
from prowess.schemas.quick import quick_check

__all__ = [
    "MCP_TOOL_RESULT_SCHEMA_V1",
    "MCP_TOOL_RESULT_TEXT_SCHEMA_V1",
    "get_registry",
    "get_schema_path",
    "get_validator",
    "read_schema",
    "validate",
]

MCP_TOOL_RESULT_SCHEMA_V1: Final = "prowess.mcp.tool_result.v1.schema.json"
MCP_TOOL_RESULT_TEXT_SCHEMA_V1: Final = "prowess.mcp.tool_result.text.v1.schema.json"
_FOLDER: Final = Path(__file__).parents[1] / "_schemas"  # `importlib.resources` takes 5 ms to import
_MOST_SHOWN: Final = 300
"""Characters of a message, which may quote the whole result."""


def get_schema_path(name: str = MCP_TOOL_RESULT_SCHEMA_V1) -> Path:
    """The path of a published schema in the installed package."""
    return _FOLDER / name


def read_schema(name: str) -> Schema:
    """A published schema, by its file name, which is also its `$id`."""
    return json.loads((_FOLDER / name).read_text("utf-8"))


@cache
def get_registry() -> Any:
    """A `referencing.Registry` of all published schemas: with it, references to them resolve without a network."""
    from referencing import Registry, Resource  # slow to import, like jsonschema

    names = sorted(file.name for file in _FOLDER.iterdir() if file.name.endswith(".schema.json"))
    return Registry[Any]().with_resources((name, Resource.from_contents(read_schema(name))) for name in names)


@cache
def get_validator(name: str = MCP_TOOL_RESULT_SCHEMA_V1) -> Any:
    """A compiled validator of a published schema, in the dialect that its `$schema` names."""
    from jsonschema.validators import validator_for  # takes 50 ms

    schema = read_schema(name)
    return validator_for(schema)(schema, registry=get_registry())


@cache
def _quick_check(name: str) -> Callable[[Json], bool]:
    """A compiled check, a hundred times faster. It accepts only valid payloads, but may reject valid ones."""
    schema = read_schema(name)
    return quick_check({keyword: held for keyword, held in schema.items() if keyword != "$id"})


def validate(payload: object, name: str = MCP_TOOL_RESULT_SCHEMA_V1) -> None:
    """Raise `ValueError` with the place of the most relevant error of a payload."""
    if _quick_check(name)(cast("Json", payload)):
        return
    errors = list(get_validator(name).iter_errors(payload))
    if errors:
        error = _worst(errors)
        place = ".".join(str(part) for part in error.absolute_path) or "the payload"
        message = error.message if len(error.message) <= _MOST_SHOWN else f"{error.message[:_MOST_SHOWN]}..."
        raise ValueError(f"MCP tool result schema violation at {place}: {message}")


def _worst(errors: list[Any]) -> Any:
    from jsonschema import exceptions  # see get_validator

    error: Any = cast("Any", exceptions).best_match(errors)
    while error.context:  # the error of a branch says more than that of the whole union
        error = min(error.context, key=lambda inner: (-len(inner.absolute_path), inner.message))
    return error
