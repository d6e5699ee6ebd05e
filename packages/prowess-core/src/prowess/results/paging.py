"""The cursor and the notice for reading the rest of a long result, shared by worker and host. Light."""

from __future__ import annotations

from typing import Final

__all__ = ["META_CUT", "READ_MORE", "cursor_of", "notice"]

READ_MORE: Final = "prowess_read_more"
"""The tool that returns the next part of a result."""
META_CUT: Final = "prowess/cut"


def cursor_of(token: str, position: int) -> str:
    """The cursor for a text and a byte position."""
    return f"{token}-{position}"


def notice(cursor: str) -> str:
    """The notice for models about the next part."""
    return f"To read on, call {READ_MORE} with the cursor {cursor!r}."
