"""Keeps the rest of long results for a while, to be read in parts. Each client has its own store.

Texts over a megabyte are kept in unnamed temporary files, which vanish with the process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from prowess.results.paging import READ_MORE, cursor_of

if TYPE_CHECKING:
    from prowess.jsontypes import JsonObject

__all__ = ["CLIENT_LIMITS", "EXPIRY", "Pages", "PagesOfCallers", "ResultPage", "UnknownCursor", "read_more_tool"]

CLIENT_LIMITS: Final = {"claude-code": 60_000}
"""Characters that clients accept in one result, by client name. Claude Code cuts at 25,000 tokens."""
EXPIRY: Final = 3600.0
"""Seconds after the last read until a text is dropped."""
_MOST_READERS: Final = 100
"""The most callers whose results are kept."""
_IN_MEMORY: Final = 1024 * 1024
_CURSOR: Final = re.compile(r"([0-9a-f]{16})-(0|[1-9][0-9]{0,15})")
_LONGEST_CHARACTER: Final = 4


class UnknownCursor(ValueError):
    """An invalid or expired cursor."""

    def __init__(self, cursor: object, most: int) -> None:
        super().__init__(
            f"The cursor {str(cursor)[:80]!r} is unknown: it is mistyped, or its result is no longer kept (results are "
            f"kept for an hour, and up to {most} bytes of them). Call the command again to get a new one."
        )


class ResultPage(NamedTuple):
    """A part of a text."""

    text: str
    start: int
    end: int
    size: int
    """The size of the whole text in bytes."""
    cursor: str | None
    """The cursor of the next part."""


@dataclass(slots=True)
class _Kept:
    file: IO[bytes]
    size: int
    used: float


class Pages:
    """Texts by token, the last one read at the end."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._kept: dict[str, _Kept] = {}

    def keep(self, token: str, text: bytes, most: int) -> None:
        """Keep a text. Drop expired ones, and the oldest ones beyond `most` bytes."""
        import tempfile  # only for large texts

        file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed when it is dropped
        try:
            file.write(text)
        except OSError:  # the disk is full: reading on will fail with `UnknownCursor`
            file.close()
            return
        self._kept[token] = _Kept(file, len(text), self._now())
        self._drop_old(most)

    def page(self, cursor: object, characters: int, most: int) -> ResultPage:
        """The next characters from a cursor; raises `UnknownCursor`."""
        self._drop_old(most)
        found = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
        kept = self._kept.pop(found[1], None) if found else None
        if found is None or kept is None:
            raise UnknownCursor(cursor, most)
        kept.used = self._now()
        self._kept[found[1]] = kept
        start = int(found[2])
        text = _read(kept.file, start, characters) if start < kept.size else None
        if text is None:
            raise UnknownCursor(cursor, most)
        end = start + len(text.encode())
        return ResultPage(text, start, end, kept.size, cursor_of(found[1], end) if end < kept.size else None)

    def close(self) -> None:
        """Drop everything."""
        for token in list(self._kept):
            self._drop(token)

    def _drop_old(self, most: int) -> None:
        oldest = self._now() - EXPIRY
        total = sum(kept.size for kept in self._kept.values())
        for token, kept in list(self._kept.items()):
            if kept.used < oldest or total > most:
                total -= kept.size
                self._drop(token)

    def _drop(self, token: str) -> None:
        self._kept.pop(token).file.close()


class PagesOfCallers:
    """Long results by caller, for requests with a connection each. At the limit, those of the least recent caller are dropped."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._of: dict[Hashable, Pages] = {}

    def of(self, caller: Hashable) -> Pages:
        """The results of a caller."""
        pages = self._of.pop(caller, None) or Pages(self._now)
        self._of[caller] = pages
        if len(self._of) > _MOST_READERS:
            self._of.pop(next(iter(self._of))).close()
        return pages

    def close(self) -> None:
        """Drop everything."""
        for pages in self._of.values():
            pages.close()


def _read(file: IO[bytes], start: int, characters: int) -> str | None:
    """Read a number of characters; `None` if `start` is inside a character."""
    file.seek(start)
    data = file.read(characters * _LONGEST_CHARACTER)
    if data[0] & 0xC0 == 0x80:
        return None
    return data.decode(errors="ignore")[:characters]  # ignores a character that the end cuts


def read_more_tool() -> JsonObject:
    """The definition of the tool."""
    return {
        "name": READ_MORE,
        "description": "Returns the next part of a result that was too large to send at once.",
        "inputSchema": {
            "type": "object",
            "properties": {"cursor": {"type": "string", "description": "the cursor at the end of the previous part"}},
            "required": ["cursor"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True},
    }
