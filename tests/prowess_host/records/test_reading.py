"""Reading the record: what one asks for, by whatever one knows of a call."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from prowess.errors import ProwessError
from prowess_host.records.reading import LOST, RUNNING, CallEvent, CallFilter, NoSuchCall, RecordReader
from prowess_host.records.rows import Row
from prowess_host.records.store import RecordStore

NOW = time.time()


def row(name: str, **facts: Any) -> Row:
    plain = Row(name, "t.c", "test", NOW, 0.1, "ok", 1, 0, os.getpid(), 2, '{"a": 1}', "[]", '{"content": []}', 0, "[]")
    return plain._replace(**facts)


@pytest.fixture
def record(tmp_path: Path) -> RecordReader:
    store = RecordStore(tmp_path / "a b?.sqlite", 1 << 30, 30)
    store.write(
        [
            row("aa1", command="text.grep", began=NOW - 5000),
            row("aa2", command="text.count", client="claude-code", kind="crashed", began=NOW - 100),
            row("bb3", command="git.log", client="codex", kind="input_required", duration=None),
            row("bc4", kind=RUNNING, duration=None, began=NOW + 1),
        ]
    )
    store.close()
    return RecordReader(store.path)


ASKED = [
    (CallFilter(), "aa1 aa2 bb3 bc4"),
    (CallFilter(command="text"), "aa1 aa2"),
    (CallFilter(command="text.*"), "aa1 aa2"),
    (CallFilter(command="text.grep"), "aa1"),
    (CallFilter(client="CLAUDE"), "aa2"),
    (CallFilter(failed=True), "aa2"),
    (CallFilter(since=NOW - 200), "aa2 bb3 bc4"),
    (CallFilter(command="git", failed=True), ""),
]


@pytest.mark.parametrize(("wanted", "found"), ASKED)
def test_calls_are_found_by_what_is_known_of_them(record: RecordReader, wanted: CallFilter, found: str):
    assert found.split() == [call.id for call in record.newest(wanted, 10)]


def test_the_newest_come_last(record: RecordReader):
    assert ["bb3", "bc4"] == [call.id for call in record.newest(CallFilter(), 2)]


def test_what_is_new_is_found_by_the_number_that_was_seen_last(record: RecordReader):
    last = record.last_number()
    assert [] == record.after(last, CallFilter())
    store = RecordStore(record.path, 1 << 30, 30)
    store.write([row("bc4"), row("dd5", command="x.y")])
    store.close()
    assert ["bc4", "dd5"] == [call.id for call in record.after(last, CallFilter())]
    assert ["dd5"] == [call.id for call in record.after(last, CallFilter(command="x"))]


@pytest.mark.parametrize(("name", "found"), [("aa1", "aa1"), ("bb", "bb3"), ("c4", "bc4"), ("last", "bc4")])
def test_a_call_is_known_by_a_part_of_its_id(record: RecordReader, name: str, found: str):
    assert found == record.call(name).id


@pytest.mark.parametrize(
    ("name", "why"), [("aa", "several calls"), ("zz", "no call 'zz'"), ("*", "no call"), ("a'", "no call")]
)
def test_a_part_that_is_none_or_several_says_so(record: RecordReader, name: str, why: str):
    with pytest.raises(NoSuchCall, match=why):
        record.call(name)


def test_a_running_call_of_a_host_that_is_gone_is_lost(record: RecordReader):
    assert RUNNING == record.call("bc4").kind
    store = RecordStore(record.path, 1 << 30, 30)
    store.write([row("gone", kind=RUNNING, duration=None, host=2**22 + 1)])
    store.close()
    assert LOST == record.call("gone").kind


def test_a_record_that_is_not_there_is_empty(tmp_path: Path):
    """And it is not made by looking."""
    reader = RecordReader(tmp_path / "none.sqlite")
    assert ([], 0) == (reader.newest(CallFilter(), 5), reader.last_number())
    assert [] == list(tmp_path.iterdir())
    (tmp_path / "none.sqlite").touch()
    assert [] == reader.newest(CallFilter(), 5)


def test_a_damaged_record_says_so(tmp_path: Path):
    (tmp_path / "a.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(ProwessError, match="damaged"):
        RecordReader(tmp_path / "a.sqlite").newest(CallFilter(), 5)


EVENTS = [
    (CallEvent(0, "print", "hello"), "hello"),
    (CallEvent(0, "progress", [1, 3, "first"]), "1/3 first"),
    (CallEvent(0, "progress", [1.5, None, None]), "1.5"),
    (CallEvent(0, "log", ["info", {"a": 1}]), 'info: {"a": 1}'),
    (CallEvent(0, "log", ["info", "text"]), "info: text"),
    (CallEvent(0, "asked", {"sure": "Sure?"}), "Sure?"),
    (CallEvent(0, "dropped", 4), "4 more were dropped"),
]


@pytest.mark.parametrize(("event", "text"), EVENTS)
def test_an_event_has_a_text(event: CallEvent, text: str):
    assert text == event.text
