"""Cuts a stream of bytes into lines, with a limit on their length. Removes a byte order mark."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from prowess.frozen import frozen

__all__ = ["MAX_LINE", "LineSplitter", "Oversized"]

MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes of the longest line read by default. The official SDK has no limit on stdio and peaks at four times the line;
its HTTP transport stops at 4 MiB, which is too little for a file sent as an argument."""

_BOM: Final = b"\xef\xbb\xbf"
_JSON_SPACE: Final = b" \t\r\n"
_KEPT: Final = 4096
"""Bytes that are kept of both ends of a line over the limit, because the id is among the first or the last members."""


@frozen
class Oversized:
    """A line that was longer than `limit` bytes, of which only the two ends are kept."""

    limit: int
    head: bytes = field(default=b"", compare=False)
    tail: bytes = field(default=b"", compare=False)


class LineSplitter:
    """Splits bytes into lines, without newlines, surrounding spaces and blank lines.

    Only a line feed ends a line (a carriage return before it counts as a space). A line over the limit is skipped, so that
    at most the limit and one chunk are kept. It is reported as `Oversized`: at once, or at its end if it begins like an
    object, because the id may be there.
    """

    __slots__ = ("_first", "_head", "_limit", "_parts", "_size", "_skipping", "_tail")

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False
        self._head = self._tail = b""
        self._first = True

    def feed(self, data: bytes) -> list[bytes | Oversized]:
        """The lines that these bytes complete."""
        begun = self._parts or self._skipping or self._first
        end = data.find(b"\n")
        if not begun and end == len(data) - 1 <= self._limit:  # the usual case: one whole line
            line = data.strip(_JSON_SPACE)
            return [line] if line else []
        lines: list[bytes | Oversized] = []
        if data and end in {-1, len(data) - 1}:  # a part of a long line: splitting would copy it, and look at each byte
            self._extend(data[:-1] if end >= 0 else data, lines)
            if end >= 0:
                self._end_line(lines)
            return lines
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._extend(piece, lines)
            self._end_line(lines)
        if rest:
            self._extend(rest, lines)
        return lines

    def close(self) -> list[bytes | Oversized]:
        """The last line, if the stream ended without a newline."""
        lines: list[bytes | Oversized] = []
        self._end_line(lines)
        return lines

    def _extend(self, piece: bytes, lines: list[bytes | Oversized]) -> None:
        if self._skipping:
            self._tail = (self._tail + piece[-_KEPT:])[-_KEPT:]
            return
        self._size += len(piece)
        self._parts.append(piece)
        if self._size > self._limit:
            self._skip(lines)

    def _skip(self, lines: list[bytes | Oversized]) -> None:
        """Drop the line so far, except its ends."""
        whole = b"".join(self._parts)
        self._parts.clear()
        self._skipping = True
        self._head, self._tail = whole[:_KEPT].lstrip(_BOM + _JSON_SPACE), whole[-_KEPT:]
        if not self._head.startswith(b"{"):
            lines.append(Oversized(self._limit))

    def _end_line(self, lines: list[bytes | Oversized]) -> None:
        parts = self._parts
        if self._skipping and self._head.startswith(b"{"):
            lines.append(Oversized(self._limit, self._head, self._tail))
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
        self._head = self._tail = b""
