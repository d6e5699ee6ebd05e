"""The words with which a client reads the rest of a long result, shared by worker and host. Light."""

from __future__ import annotations

from typing import Final

__all__ = ["META_CUT", "READ_MORE", "cursor_of", "notice"]

READ_MORE: Final = "prowess_read_more"
"""The tool that gives the next part of such a result."""
META_CUT: Final = "prowess/cut"


def cursor_of(token: str, position: int) -> str:
    """Where to read on: in which text, and from which byte."""
    return f"{token}-{position}"


def notice(cursor: str) -> str:
    """How to get the next part."""
    return f"To read on, call {READ_MORE} with the cursor {cursor!r}."
