"""Records what `connect` did, so that `disconnect` can undo exactly that: one file in the user's state folder.

It has paths and fingerprints, but no content of entries. Without it, `disconnect` still removes the entry.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Generator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from prowess.frozen import frozen
from prowess_host.clients.files import write

__all__ = ["Ledger", "Record"]

_FILE: Final = "connections.json"
_LOCK: Final = "connections.lock"
_FORMAT: Final = 1


@frozen
class Record:
    """One entry that was written."""

    client: str
    scope: str
    name: str
    file: str
    project: str
    made_file: bool = False
    made_folders: tuple[str, ...] = ()
    made_table: bool = False
    """Whether the table of servers was made for this entry."""
    backup: str | None = None
    """The former content of the file; `None` if there was no file."""
    written: str | None = None
    """The fingerprint of the written file. While it matches, the backup is restored."""

    @property
    def key(self) -> tuple[str, str]:
        """The file and the name that the record is about."""
        return self.file, self.name


class Ledger:
    """The records. An unreadable file counts as empty, which makes undoing less exact."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / _FILE
        self.backups = folder / "backups"

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        """Let no other `connect` or `disconnect` of the user change a file meanwhile. Raises `OSError` if that is impossible."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self._folder / _LOCK).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def records(self) -> list[Record]:
        """The entries that were connected and not disconnected since."""
        try:
            data: Any = json.loads(self._file.read_bytes())
            rows: list[dict[str, Any]] = data["connections"] if data["format"] == _FORMAT else []
            return [_record(row) for row in rows]
        except (OSError, ValueError, TypeError, KeyError):
            return []

    def find(self, file: Path, name: str) -> Record | None:
        """The record of an entry."""
        return next((each for each in self.records() if each.key == (str(file), name)), None)

    def keep(self, record: Record) -> None:
        """Save a record; it replaces an earlier one of the same entry."""
        self._save([*(each for each in self.records() if each.key != record.key), record])

    def forget(self, record: Record) -> None:
        """Drop a record. Another entry in the same file inherits what `connect` made for it."""
        others = [each for each in self.records() if each.key != record.key]
        heir = next((each for each in others if each.file == record.file), None)
        if heir is not None:
            made = replace(
                heir,
                made_file=heir.made_file or record.made_file,
                made_folders=heir.made_folders or record.made_folders,
                made_table=heir.made_table or record.made_table,
            )
            others[others.index(heir)] = made
        self._save(others)
        if record.backup and all(each.backup != record.backup for each in others):
            with contextlib.suppress(OSError):
                Path(record.backup).unlink()

    def _save(self, records: list[Record]) -> None:
        rows = [{**asdict(each), "made_folders": list(each.made_folders)} for each in records]
        text = json.dumps({"format": _FORMAT, "connections": rows}, indent=2)
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write(self._file, text.encode())


def _record(row: dict[str, Any]) -> Record:
    fields: dict[str, Any] = {**row, "made_folders": tuple(row["made_folders"])}
    return Record(**fields)
