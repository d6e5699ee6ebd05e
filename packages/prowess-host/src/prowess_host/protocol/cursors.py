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
    """The position a cursor stands for in a list of this digest and length. No cursor, or an empty one, is the start.

    A list that has changed since has another digest, so no item is skipped or shown twice without notice.
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
