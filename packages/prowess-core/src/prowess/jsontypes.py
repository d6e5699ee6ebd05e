"""Type names for JSON as plain Python data, factories for fields of these types, and copies and texts of such data."""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias, cast

__all__ = ["Json", "JsonObject", "Schema", "copied", "encodable", "json_bytes", "new_object", "uncollected"]

Json: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"
JsonObject: TypeAlias = "dict[str, Any]"
Schema: TypeAlias = "dict[str, Any]"
"""A JSON Schema 2020-12 document that is an object (never the bare `true` or `false`)."""


# Factories for fields of dataclasses. Calling the generic alias `dict[str, Any]` would take six times as long.


new_object: Final = cast("Callable[[], dict[str, Any]]", dict)
"""Makes an empty object."""


def copied(data: Any) -> Any:
    """A deep copy of plain data, many times faster than `copy.deepcopy`. Other objects stay as they are."""
    if isinstance(data, dict):
        return {key: copied(item) for key, item in cast("dict[Any, Any]", data).items()}
    if isinstance(data, list):
        return [copied(item) for item in cast("list[Any]", data)]
    return data


@contextlib.contextmanager
def uncollected() -> Generator[None]:
    """Read data without garbage collections.

    Reading makes many objects and no garbage, and each collection looks through all of them, which takes most of the time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# A Python text may hold lone surrogates (from an escape in JSON, or from a file name), which UTF-8 cannot hold.


def encodable(text: str) -> str:
    """The text with lone surrogates escaped, so that it can be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()


def json_bytes(data: Any) -> bytes:
    """JSON in UTF-8. Lone surrogates become the JSON escapes for them, which we read, but not every client."""
    return json.dumps(data, ensure_ascii=False).encode("utf-8", "backslashreplace")
