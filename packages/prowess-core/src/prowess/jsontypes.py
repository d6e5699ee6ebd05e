"""Type names for JSON as plain Python data, factories for fields of these types, and copies of such data."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

__all__ = ["Json", "JsonObject", "Schema", "copied", "new_object"]

Json: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"
JsonObject: TypeAlias = "dict[str, Any]"
Schema: TypeAlias = "dict[str, Any]"
"""A JSON Schema 2020-12 document that is an object (never the bare `true` or `false`)."""


# Factories for fields of dataclasses. Calling the generic alias `dict[str, Any]` would take six times as long.


def new_object() -> dict[str, Any]:
    """An empty object."""
    return {}


def copied(data: Any) -> Any:
    """A deep copy of plain data, many times faster than `copy.deepcopy`. Other objects stay as they are."""
    if isinstance(data, dict):
        return {key: copied(item) for key, item in cast("dict[Any, Any]", data).items()}
    if isinstance(data, list):
        return [copied(item) for item in cast("list[Any]", data)]
    return data
