"""Page cursors without stored state: a cursor holds a position and the digest of the list that it belongs to."""

from __future__ import annotations

import re
from typing import Final

from prowess_host.protocol.rpc import RpcError

__all__ = ["read_cursor", "write_cursor"]

_CURSOR: Final = re.compile(r"([1-9][0-9]{0,8})-([0-9a-f]+)")


def write_cursor(position: int, digest: str) -> str:
    """The cursor of the page that starts at this position. `digest` is lowercase hexadecimal."""
    return f"{position}-{digest}".encode().hex()


def read_cursor(cursor: str | None, digest: str, length: int) -> int:
    """The position of a cursor in a list with this digest and length. A missing or empty cursor is the start.

    A changed list has another digest and makes its cursors invalid, so that no item is skipped or repeated unnoticed.
    """
    if not cursor:
        return 0
    try:
        parts = _CURSOR.fullmatch(bytes.fromhex(cursor).decode("ascii"))
    except ValueError:
        parts = None
    if parts is None or parts[2] != digest or int(parts[1]) >= length:
        raise RpcError.bad_cursor(cursor)
    return int(parts[1])
