"""Formats places in a JSON document as JSON pointers."""

from __future__ import annotations

__all__ = ["json_pointer"]


def json_pointer(*tokens: str | int) -> str:
    """The pointer to a place; empty for the whole document."""
    return "".join(f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in tokens)
