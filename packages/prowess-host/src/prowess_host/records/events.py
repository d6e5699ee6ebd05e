"""The events of one call: what it printed, logged, reported and asked, as JSON text.

The events of many calls are in memory at a time, and as data a short line takes several times the memory of its text.
"""

from __future__ import annotations

from typing import Any, Final

from prowess.jsontypes import json_bytes

__all__ = ["Events"]

_MOST_EVENTS: Final = 500
_MOST_NOTED: Final = 64 * 1024
"""The limits for the events of one call: their number, and their bytes together."""
_MOST_OF_ONE: Final = 8 * 1024
"""Characters of one event."""


class Events:
    """The events of one call.

    An event is a list of the seconds since the beginning of the call, its kind and its data. The kinds are `progress`, `log`,
    `print`, `asked` and, as the last one, `dropped` with the number of events beyond the limits.
    """

    __slots__ = ("_count", "_dropped", "_newest", "_since", "_text")

    def __init__(self) -> None:
        self._text = bytearray()
        self._count = 0
        self._newest: int | None = None
        """Where the newest event begins, if the next progress replaces it."""
        self._dropped = 0
        self._since = 0.0
        """When the first event was dropped."""

    @property
    def size(self) -> int:
        """The bytes of all events."""
        return len(self._text)

    def add(self, at: float, kind: str, data: Any) -> None:
        """Add an event. Of several reports of progress in a row without a message, the newest is kept."""
        if self._dropped:  # a flood of events costs only this
            self._dropped += 1
            return
        begin, data = len(self._text), _shortened(kind, data)
        text = b'[%.4f, "%s", %s],' % (at, kind.encode(), json_bytes(data))
        is_progress = kind == "progress"
        if is_progress and self._newest is not None:
            begin = self._newest
        elif self._count < _MOST_EVENTS and begin + len(text) <= _MOST_NOTED:
            self._count += 1
        else:
            self._dropped, self._since = 1, at
            return
        self._text[begin:] = text
        self._newest = begin if is_progress and not data[2] else None

    def as_json(self) -> bytes:
        """All events as a JSON array. Another thread may add events meanwhile."""
        last = b'[%.4f, "dropped", %d],' % (self._since, self._dropped) if self._dropped else b""
        return b"[" + (bytes(self._text) + last)[:-1] + b"]"


def _shortened(kind: str, data: Any) -> Any:
    text = data if isinstance(data, str) else str(data)
    if len(text) <= _MOST_OF_ONE:
        return data
    text = text[:_MOST_OF_ONE] + "…"
    return [data[0], None, text] if kind == "progress" else ["", text] if kind == "log" else text
