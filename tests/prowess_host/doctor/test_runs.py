from __future__ import annotations

from pathlib import Path

import pytest

from prowess_host.doctor.runs import examine_runs
from prowess_host.records.rows import COLUMNS, Row
from prowess_host.records.store import RecordStore

NOW = 1_800_000_000.0


def row(number: int, kind: str, *, command: str = "a.b", days: float = 1.0) -> Row:
    told = dict.fromkeys(COLUMNS)
    told.update(id=f"call{number}", command=command, client="zed", began=NOW - days * 86400, kind=kind)
    told.update(attempts=1, cached=0, host=0, worker=0, events="[]", withheld="[]", shortened=0, duration=1.0)
    return Row(**told)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.sqlite"


def test_crashes_and_stalls_are_counted_by_command(path: Path) -> None:
    """Of the last week, and only what is the fault of the command or its worker."""
    store = RecordStore(path, 10_000_000, 10_000.0)
    kinds = ["worker_lost", "worker_lost", "crashed", "input", "failed", "ok", "timeout"]
    store.write([*(row(number, kind) for number, kind in enumerate(kinds)), row(99, "crashed", days=30.0)])
    store.close()

    told = [(each.level, each.message) for each in examine_runs(path, now=NOW)]

    assert ("warning", "a.b lost its worker 2 times in the last 7 days") == told[0]
    assert {"a.b crashed once in the last 7 days", "a.b ran out of time once in the last 7 days"} == {
        message for _, message in told[1:]
    }


def test_quiet_week_is_said_and_no_record_says_nothing(path: Path) -> None:
    assert [] == list(examine_runs(path, now=NOW))
    store = RecordStore(path, 10_000_000, 10_000.0)
    store.write([row(1, "ok")])
    store.close()

    [finding] = examine_runs(path, now=NOW)

    assert ("ok", "no crash and no stall in the last 7 days") == (finding.level, finding.message)


def test_damaged_record_is_a_warning(path: Path) -> None:
    path.write_bytes(b"no database, but long enough to be taken for one" * 100)

    [finding] = examine_runs(path, now=NOW)

    assert "warning" == finding.level
    assert str(path) in finding.remedy
