"""The database: private, bounded, shared by hosts, and put aside when it is damaged."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
import time
from pathlib import Path

import pytest

from prowess_host.records.rows import Row
from prowess_host.records.store import RecordStore, is_damage, set_aside

LARGE = 1 << 30


def row(name: str, *, began: float | None = None, result: str = "{}", kind: str = "ok") -> Row:
    when = time.time() if began is None else began
    return Row(name, "t.c", "test", when, 0.1, kind, 1, 0, 1, 2, "{}", "[]", result, 0, "[]")


def ids(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return [each for (each,) in database.execute("SELECT id FROM calls ORDER BY number")]


def test_a_database_is_for_its_owner_alone(tmp_path: Path):
    """Also the files that SQLite makes beside it, and one that was there with another mode."""
    path = tmp_path / "records" / "a.sqlite"
    path.parent.mkdir()
    path.touch(0o644)
    store = RecordStore(path, LARGE, 30)
    store.write([row("a")])
    assert {0o600} == {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert {"a.sqlite", "a.sqlite-wal", "a.sqlite-shm"} == {each.name for each in path.parent.iterdir()}
    store.close()


def test_a_link_is_not_followed(tmp_path: Path):
    """Another user may have put it there."""
    (tmp_path / "a.sqlite").symlink_to(tmp_path / "b")
    with pytest.raises(OSError):
        RecordStore(tmp_path / "a.sqlite", LARGE, 30)
    assert not (tmp_path / "b").exists()


def test_what_is_known_of_a_call_is_replaced(tmp_path: Path):
    """And stands at the end then, so that whoever follows finds it."""
    store = RecordStore(tmp_path / "a.sqlite", LARGE, 30)
    store.write([row("a", kind="running"), row("b")])
    store.write([row("a"), row("c")], ["b", "unknown"])
    assert ["a", "c"] == ids(store.path)
    store.close()


def test_many_rows_are_written_at_once(tmp_path: Path):
    """In one transaction, in order."""
    store = RecordStore(tmp_path / "a.sqlite", LARGE, 30)
    names = [f"{number:03}" for number in range(100)]
    store.write([row(name) for name in names])
    assert names == ids(store.path)
    store.close()


def test_the_oldest_calls_go_where_there_are_too_many(tmp_path: Path):
    """And the file does not grow beyond that."""
    store = RecordStore(tmp_path / "a.sqlite", 256 * 1024, 30)
    for number in range(20):
        store.write([row(f"{number:02}-{each}", result="x" * 1000) for each in range(50)])
    kept = ids(store.path)
    assert kept[-1] == "19-49"
    assert 0 < len(kept) < 250
    store.close()
    assert store.path.stat().st_size < 400 * 1024


def test_what_is_too_old_goes(tmp_path: Path):
    store = RecordStore(tmp_path / "a.sqlite", LARGE, 2)
    store.write([row("a", began=time.time() - 3 * 86400), row("b")])
    store.write([row("c")])
    assert ["b", "c"] == ids(store.path)
    store.close()


def test_two_hosts_write_at_once(tmp_path: Path):
    one, other = (RecordStore(tmp_path / "a.sqlite", LARGE, 30) for _ in range(2))
    for number in range(20):
        (one, other)[number % 2].write([row(f"{number:02}")])
    assert [f"{number:02}" for number in range(20)] == ids(one.path)
    one.close()
    other.close()


def test_a_batch_that_cannot_be_written_is_not_there_in_part(tmp_path: Path):
    store = RecordStore(tmp_path / "a.sqlite", LARGE, 30)
    with pytest.raises(sqlite3.Error):
        store.write([row("a"), row("b")._replace(command=object())])  # type: ignore[arg-type]
    store.write([row("c")])
    assert ["c"] == ids(store.path)
    store.close()


def test_a_table_of_another_form_is_dropped(tmp_path: Path):
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE calls (something)")
        database.execute("PRAGMA user_version = 99")
    database.close()
    store = RecordStore(path, LARGE, 30)
    store.write([row("a")])
    assert ["a"] == ids(path)
    store.close()


def test_a_deleted_file_is_noticed(tmp_path: Path):
    """Nobody would find what is written to it."""
    store = RecordStore(tmp_path / "a.sqlite", LARGE, 30)
    store.path.unlink()
    with pytest.raises(FileNotFoundError):
        store.write([row("a")])
    store.close()


def test_a_damaged_file_is_set_aside_and_a_sound_one_is_not(tmp_path: Path):
    """Another host may have done so already."""
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(sqlite3.DatabaseError) as caught:
        RecordStore(path, LARGE, 30)
    assert is_damage(caught.value)
    set_aside(path)
    assert [tmp_path / "a.sqlite.damaged"] == list(tmp_path.iterdir())
    store = RecordStore(path, LARGE, 30)
    store.write([row("a")])
    set_aside(path)
    assert ["a"] == ids(path)
    store.close()


def test_other_errors_are_no_damage():
    assert not is_damage(sqlite3.OperationalError("locked"))
    assert not is_damage(OSError())
