"""Texts of others for terminals, logs and models. Imports what finds hidden characters at the first unusual text."""

from __future__ import annotations

from typing import Any, TypeVar, cast

__all__ = ["visible"]

_T = TypeVar("_T")


def visible(data: _T) -> _T:
    """A text, or the texts in JSON data, with control and hidden characters written as escapes."""
    changed: Any = data
    if isinstance(data, str):
        if not data.replace("\n", "").isprintable():
            from prowess.contracts.hidden import shown

            changed = shown(data)
    elif isinstance(data, dict):
        changed = {visible(name): visible(item) for name, item in cast("dict[str, Any]", data).items()}
    elif isinstance(data, list):
        changed = [visible(item) for item in cast("list[Any]", data)]
    return changed
