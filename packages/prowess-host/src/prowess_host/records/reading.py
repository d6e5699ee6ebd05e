"""Reads the record: the newest calls, one call with all details, and changes since a number.

Never writes. A missing record counts as empty.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import urllib.parse
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from prowess.errors import ProwessError
from prowess.frozen import frozen
from prowess.jsontypes import JsonObject
from prowess_host.records.rows import COLUMNS

__all__ = ["LOST", "RUNNING", "CallEvent", "CallFilter", "NoSuchCall", "RecordReader", "RecordedCall"]

RUNNING: Final = "running"
LOST: Final = "lost"
"""The kind of a running call whose host is gone: its outcome is unknown."""
_FINE: Final = ("ok", RUNNING, "input_required")
_BUSY: Final = 2.0
_SELECT: Final = f"SELECT number, {', '.join(COLUMNS)} FROM calls"  # noqa: S608 - names of ours
_LAST: Final = "last"
_MOST: Final = 1000


class NoSuchCall(ProwessError):
    """No call has this id, or several ids begin with it."""


class CallEvent(NamedTuple):
    """An event during a call."""

    at: float
    """Seconds since the beginning of the call."""
    kind: str
    """`print`, `progress`, `log`, `asked`, or `dropped`."""
    data: Any

    @property
    def text(self) -> str:
        """The event in words."""
        if self.kind == "progress":
            done, total, message = self.data
            return f"{done:g}{'' if total is None else f'/{total:g}'}{f' {message}' if message else ''}"
        if self.kind == "log":
            level, data = self.data
            return f"{level}: {data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)}"
        if self.kind == "asked":
            return "; ".join(map(str, self.data.values()))
        if self.kind == "dropped":
            return f"{self.data} more were dropped"
        return str(self.data)


@frozen
class RecordedCall:
    """A recorded call."""

    number: int
    """Grows with every change of the record."""
    id: str
    command: str
    client: str
    began: float
    duration: float | None
    kind: str
    attempts: int
    cached: bool
    host: int
    worker: int
    arguments: JsonObject | None
    """`None` if they were not kept."""
    withheld: tuple[str, ...]
    """The paths of the arguments that were not kept; `*` for all of them."""
    result: JsonObject | None
    shortened: bool
    events: tuple[CallEvent, ...]

    @property
    def failed(self) -> bool:
        """Whether the call failed."""
        return self.kind not in _FINE

    def to_json(self) -> JsonObject:
        """Plain data."""
        data = {name: getattr(self, name) for name in COLUMNS}
        data["withheld"] = list(self.withheld)
        data["events"] = [{"at": event.at, "kind": event.kind, "data": event.data} for event in self.events]
        return data


@frozen
class CallFilter:
    """A filter for calls."""

    command: str = ""
    """An id, a skill, or a pattern."""
    client: str = ""
    """A part of the client's name."""
    failed: bool = False
    since: float = 0.0
    """Seconds since the epoch."""

    def conditions(self) -> tuple[str, list[Any]]:
        """The condition in SQL, with its values."""
        parts: list[str] = ["1"]
        values: list[Any] = []
        if self.command:
            parts.append("(command GLOB ? OR command GLOB ?)")
            values += [self.command, f"{self.command}.*"]
        if self.client:
            parts.append("instr(lower(client), lower(?))")
            values.append(self.client)
        if self.failed:
            parts.append(f"kind NOT IN ({', '.join('?' * len(_FINE))})")
            values += _FINE
        if self.since:
            parts.append("began >= ?")
            values.append(self.since)
        return " AND ".join(parts), values


class RecordReader:
    """The record at a path. Opens the file for each query, so that it may be missing or deleted at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def newest(self, only: CallFilter, most: int) -> list[RecordedCall]:
        """The newest calls up to a number, the newest last."""
        conditions, values = only.conditions()
        found = self._ask(f"{_SELECT} WHERE {conditions} ORDER BY began DESC, number DESC LIMIT ?", *values, most)
        return found[::-1]

    def after(self, number: int, only: CallFilter) -> list[RecordedCall]:
        """The calls that are new or have changed since a number."""
        conditions, values = only.conditions()
        return self._ask(f"{_SELECT} WHERE number > ? AND {conditions} ORDER BY number LIMIT ?", number, *values, _MOST)

    def last_number(self) -> int:
        """The number of the last change; 0 for an empty record."""
        found = self._ask(f"{_SELECT} ORDER BY number DESC LIMIT 1")
        return found[0].number if found else 0

    def call(self, name: str) -> RecordedCall:
        """The call whose id is, begins with or ends with this; `last` is the newest one. Raises `NoSuchCall`."""
        found = self.newest(CallFilter(), 1) if name == _LAST else self._ask(f"{_SELECT} WHERE id = ?", name)
        if not found and len(name) > 1 and name.isalnum():
            found = self._ask(f"{_SELECT} WHERE id GLOB ? OR id GLOB ? ORDER BY number LIMIT 3", f"{name}*", f"*{name}")
        if len(found) == 1:
            return found[0]
        if not found and name == _LAST:
            raise NoSuchCall("the record has no calls yet: `prowess call` adds one, and so does every call of a client")
        if not found:
            raise NoSuchCall(f"the record has no call {name!r}; see `prowess logs`, or use `last`")
        ids = ", ".join(call.id for call in found)
        raise NoSuchCall(f"several calls match {name!r} ({ids}, …): write more of the id")

    def _ask(self, query: str, *values: Any) -> list[RecordedCall]:
        with self._opened() as database:
            if database is None:
                return []
            try:
                rows = database.execute(query, values).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return []
                raise ProwessError(f"the record {self.path} cannot be read: {error}") from error
            except sqlite3.DatabaseError as error:
                raise ProwessError(
                    f"the record {self.path} is damaged ({error}): delete it, or make a call, which begins a new one"
                ) from error
        return [_call(*row) for row in rows]

    @contextlib.contextmanager
    def _opened(self) -> Generator[sqlite3.Connection | None]:
        if not self.path.is_file():
            yield None
            return
        try:
            database = sqlite3.connect(f"file:{urllib.parse.quote(str(self.path))}?mode=rw", timeout=_BUSY, uri=True)
        except sqlite3.Error as error:
            raise ProwessError(f"the record {self.path} cannot be opened: {error}") from error
        try:
            yield database
        finally:
            database.close()


def _call(number: int, *row: Any) -> RecordedCall:
    fields = dict(zip(COLUMNS, row, strict=True))
    if fields["kind"] == RUNNING and not _is_alive(fields["host"]):
        fields["kind"] = LOST
    for name in ("arguments", "result"):
        fields[name] = _read(fields[name])
    fields["cached"], fields["shortened"] = bool(fields["cached"]), bool(fields["shortened"])
    fields["withheld"] = tuple(cast("list[str]", json.loads(fields["withheld"])))
    fields["events"] = tuple(CallEvent(*each) for each in json.loads(fields["events"]))
    return RecordedCall(number, **fields)


def _read(text: str | None) -> JsonObject | None:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
