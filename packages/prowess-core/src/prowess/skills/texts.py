"""Packs source files into one byte string for the link."""

from __future__ import annotations

import json
from collections.abc import Mapping

__all__ = ["pack", "unpack"]


def pack(texts: Mapping[str, bytes]) -> bytes:
    """A line with the paths and the sizes, then the contents."""
    index = json.dumps({path: len(text) for path, text in texts.items()})
    return b"".join([index.encode(), b"\n", *texts.values()])


def unpack(data: bytes) -> dict[str, bytes]:
    """Read what `pack` wrote."""
    if not data:
        return {}
    index, _, rest = data.partition(b"\n")
    texts: dict[str, bytes] = {}
    start = 0
    for path, size in json.loads(index).items():
        texts[path] = rest[start : start + size]
        start += size
    return texts
