"""Cuts a stream of bytes into lines. Knows newlines, the byte order mark and a size limit, nothing of JSON."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["MAX_LINE", "LineSplitter", "Oversized"]

MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes of the longest line read by default. The official SDK has no limit on stdio and peaks at four times the line;
its HTTP transport stops at 4 MiB, which is too little for a file sent as an argument."""

_BOM: Final = b"\xef\xbb\xbf"
_JSON_SPACE: Final = b" \t\r\n"


class Oversized(NamedTuple):
    """Stands for a line that was longer than `limit` bytes and has been thrown away."""

    limit: int


class LineSplitter:
    """Bytes in, whole lines out: without their newline, spaces around them and blank lines.

    Only a line feed ends a line (a carriage return before it counts as a space). A line over the limit is reported
    at once by an `Oversized` and skipped up to its end, so never more than the limit and one chunk is held.
    """

    __slots__ = ("_first", "_limit", "_parts", "_size", "_skipping")

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False
        self._first = True

    def feed(self, data: bytes) -> list[bytes | Oversized]:
        """The lines that these bytes complete."""
        if self._is_one_line(data):
            line = data.strip(_JSON_SPACE)
            return [line] if line else []
        lines: list[bytes | Oversized] = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._extend(piece, lines)
            self._end_line(lines)
        if rest:
            self._extend(rest, lines)
        return lines

    def _is_one_line(self, data: bytes) -> bool:
        """Whether this is what usually comes: one whole line and no more, where none waits for its end."""
        if self._parts or self._skipping or self._first or len(data) > self._limit:
            return False
        return data.find(b"\n") == len(data) - 1

    def close(self) -> list[bytes | Oversized]:
        """The last line, if the stream ended without a newline."""
        lines: list[bytes | Oversized] = []
        self._end_line(lines)
        return lines

    def _extend(self, piece: bytes, lines: list[bytes | Oversized]) -> None:
        if self._skipping:
            return
        self._size += len(piece)
        if self._size > self._limit:
            self._skipping = True
            self._parts.clear()
            lines.append(Oversized(self._limit))
        else:
            self._parts.append(piece)

    def _end_line(self, lines: list[bytes | Oversized]) -> None:
        parts = self._parts
        line = parts[0] if len(parts) == 1 else b"".join(parts)
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        line = line.strip(_JSON_SPACE)
        if line:
            lines.append(line)
        parts.clear()
        self._size = 0
        self._skipping = False
