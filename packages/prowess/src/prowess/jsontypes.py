"""Names for JSON as plain Python data. Knows nothing else."""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Json", "JsonObject", "Schema"]

Json: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"
JsonObject: TypeAlias = "dict[str, Any]"
Schema: TypeAlias = "dict[str, Any]"
"""A JSON Schema 2020-12 document that is an object (never the bare `true` or `false`)."""
