"""The database of calls: readable by its owner alone, written in batches, limited in size, set aside when damaged.

Independent of running calls. Imports sqlite3, so the start of a host must not import this module.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from prowess_host.records.rows import COLUMNS, ORDINARY, OrdinaryRow, Row

__all__ = ["RecordStore", "is_damage", "set_aside"]

_FORM: Final = 1
"""The version of the table. A record of another version is deleted."""
_BUSY: Final = 5.0
"""Seconds to wait for another host that has locked the database."""
_KEPT: Final = 0.85
"""The share of the largest size that remains after the oldest calls are deleted."""
_DAY: Final = 86400.0
_MOST_LOG: Final = 4 * 1024 * 1024
"""Bytes of the write-ahead log on disk."""


_TABLE: Final = f"""
CREATE TABLE IF NOT EXISTS calls (
    number INTEGER PRIMARY KEY,
    id TEXT UNIQUE NOT NULL,
    {", ".join(COLUMNS[1:])}
)"""
_MOST_VALUES: Final = 900
"""Values of one statement; old versions of SQLite take 999. The thread releases the interpreter for each statement, which
costs more than a row."""


class _Insert:
    """The statements that insert rows: many at a time, then the rest."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        values = list(columns.values())
        row = f"({', '.join(values)})"
        self._one = f"INSERT OR REPLACE INTO calls ({', '.join(columns)}) VALUES {row}"  # noqa: S608 - names of ours
        self._count = _MOST_VALUES // values.count("?")
        self._many = f"{self._one}{f', {row}' * (self._count - 1)}"

    def run(self, database: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert or replace these rows."""
        whole = len(rows) - len(rows) % self._count
        for start in range(0, whole, self._count):
            database.execute(self._many, list(chain.from_iterable(rows[start : start + self._count])))
        database.executemany(self._one, rows[whole:])


_INSERT: Final = _Insert(dict.fromkeys(COLUMNS, "?"))
_INSERT_ORDINARY: Final = _Insert(ORDINARY)


class RecordStore:
    """The database of one project, opened for writing. Not thread-safe."""

    def __init__(self, path: Path, max_bytes: int, max_days: float) -> None:
        """Raises `OSError` or `sqlite3.Error` if it cannot be opened."""
        self._max_bytes = max_bytes
        self._max_days = max_days
        self.path = path
        _make_private(path)
        self._file = path.stat()
        self._database = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        try:
            self._prepare()
        except BaseException:
            self._database.close()
            raise

    def _prepare(self) -> None:
        ask = self._database.execute
        (form,) = ask("PRAGMA user_version").fetchone()
        if form == 0:
            ask("PRAGMA auto_vacuum = INCREMENTAL")
        ask("PRAGMA journal_mode = WAL")
        ask("PRAGMA synchronous = NORMAL")
        ask("PRAGMA cache_size = -512")  # KiB: a host only appends
        ask(f"PRAGMA journal_size_limit = {_MOST_LOG}")
        if form not in (0, _FORM):
            ask("DROP TABLE IF EXISTS calls")
        if form != _FORM:
            ask(_TABLE)
            ask(f"PRAGMA user_version = {_FORM}")
        ask("SELECT count(*) FROM calls WHERE number < 0").fetchone()
        (self._page,) = ask("PRAGMA page_size").fetchone()

    def write(self, rows: Sequence[Row], gone: Sequence[str] = (), ordinary: Sequence[OrdinaryRow] = ()) -> None:
        """Insert or replace calls, and delete those beyond the limits.

        `gone` are former ids, which are deleted.
        """
        database = self._database
        if not self._is_there():
            raise FileNotFoundError(f"{self.path} was deleted")
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany("DELETE FROM calls WHERE id = ?", [(each,) for each in gone])
            _INSERT.run(database, rows)
            _INSERT_ORDINARY.run(database, ordinary)
            self._drop_old()
            database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                database.execute("ROLLBACK")
            raise
        if self._size() > self._max_bytes:
            self._shrink()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _is_there(self) -> bool:
        """Whether the file still exists."""
        try:
            return os.path.samestat(self.path.stat(), self._file)
        except OSError:
            return False

    def _drop_old(self) -> None:
        oldest = self._database.execute("SELECT began FROM calls ORDER BY number LIMIT 1").fetchone()
        limit = time.time() - self._max_days * _DAY
        if oldest is not None and oldest[0] < limit:
            self._database.execute("DELETE FROM calls WHERE began < ?", (limit,))

    def _size(self) -> int:
        """Bytes in use."""
        (pages,) = self._database.execute("PRAGMA page_count").fetchone()
        (free,) = self._database.execute("PRAGMA freelist_count").fetchone()
        return (pages - free) * self._page

    def _shrink(self) -> None:
        """Delete the oldest calls until there is room."""
        database = self._database
        target = int(self._max_bytes * _KEPT)
        while self._size() > target:
            (count,) = database.execute("SELECT count(*) FROM calls").fetchone()
            if count == 0:
                break
            part = max(1, count // 20)
            database.execute(
                "DELETE FROM calls WHERE number IN (SELECT number FROM calls ORDER BY number LIMIT ?)", (part,)
            )
        database.execute("PRAGMA incremental_vacuum").fetchall()


def _make_private(path: Path) -> None:
    """Create the file with a mode that only its owner can read. SQLite gives its other files the same mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{path} is not a file of this user")
        if stat.S_IMODE(status.st_mode) != 0o600:
            os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def set_aside(path: Path) -> None:
    """Rename a damaged database, replacing an earlier damaged one.

    If several hosts find the damage, one renames it, and the others find a new file.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - as in the rest of this module
        fcntl.flock(file, fcntl.LOCK_EX)
        if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return
        try:
            database = sqlite3.connect(path, timeout=_BUSY)
            try:
                database.execute("PRAGMA quick_check(1)").fetchall()
                sound = database.execute("SELECT count(id) FROM calls").fetchone() is not None
            finally:
                database.close()
        except sqlite3.DatabaseError as error:
            sound = not is_damage(error)
        if not sound:
            for end in ("-wal", "-shm", ""):
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{path}{end}").replace(f"{path}.damaged{end}")


def is_damage(error: Exception) -> bool:
    """Whether an error means that the file is not a database, or a damaged one."""
    code = getattr(error, "sqlite_errorcode", None)
    damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return isinstance(error, sqlite3.DatabaseError) and code is not None and code & 0xFF in damage
