"""Type names for JSON as plain Python data, and factories for fields of these types."""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Json", "JsonObject", "Schema", "new_object"]

Json: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"
JsonObject: TypeAlias = "dict[str, Any]"
Schema: TypeAlias = "dict[str, Any]"
"""A JSON Schema 2020-12 document that is an object (never the bare `true` or `false`)."""


# Factories for fields of dataclasses. Calling the generic alias `dict[str, Any]` would take six times as long.


def new_object() -> dict[str, Any]:
    """An empty object."""
    return {}
