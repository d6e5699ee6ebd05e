from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")
pytest.importorskip("fastmcp")

ROOT = Path(__file__).resolve().parents[2]
PEERS = {"ours", "sdk", "fastmcp"}


def measured(tmp_path: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """What a run prints, and what it writes as JSON."""
    file = tmp_path / "numbers.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--quick", "--json", str(file), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout, json.loads(file.read_text("utf-8"))


def test_memory_rows_compare_the_same_work(tmp_path: Path) -> None:
    """Every row in memory has a number for us and for both peers, and each budget a verdict."""
    text, numbers = measured(tmp_path, "--only", "memory")

    assert [] == [key for key, row in numbers["rows"].items() if PEERS != row["values"].keys()]
    assert all(ratio > 0 for row in numbers["rows"].values() for ratio in row["ratios"].values())
    verdicts = {item["verdict"] for item in numbers["budgets"]}
    assert verdicts <= {"pass", "falls short", "not measured", "not built yet"}
    assert 2 == text.count("| call, async no-op; peers by their Client ")
    assert "quick, not to be quoted" in text


def test_wire_rows_compare_the_same_functions(tmp_path: Path) -> None:
    """A start and an end are timed for every server on the same functions, the read loop included."""
    _, numbers = measured(tmp_path, "--only", "start")

    expected = {"initialize", "list_cold", "first_call", "exit_idle"}
    assert expected <= numbers["rows"].keys()
    assert all(PEERS | {"floor"} == numbers["rows"][row]["values"].keys() for row in expected)


def test_every_budget_is_about_a_row_with_a_title_of_its_own() -> None:
    """A misspelt row would never be measured, and nobody would notice."""
    code = (
        "import report; keys = [row.key for rows in report.ROWS.values() for row in rows]; "
        "assert len(keys) == len(set(keys)); r = report.Report({}, {'skills': 1, 'sleep': 1, 'late': 1, 'growth': 1}); "
        "print(*[r._budget(budget)[0] + budget.must(r) for budget in report.BUDGETS], sep='\\n')"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT / "benchmarks", capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    promises = done.stdout.splitlines()
    assert promises
    assert sorted(promises) == sorted(set(promises))


def test_isolated_skills_are_compared_with_the_same_plain_skill(tmp_path: Path) -> None:
    """Alone, beside an isolated one, and the isolated one: starts, calls, and processor time."""
    pytest.importorskip("uv")
    _, numbers = measured(tmp_path, "--only", "environments", "--only", "limits")

    rows = {f"{who}_{kind}" for who in ("alone", "plain", "own") for kind in ("first", "p50", "processor")}
    rows |= {"alone_list", "plain_list"}
    for part in ("environments", "limits"):
        assert {f"{part}_{row}" for row in rows} <= numbers["rows"].keys()
    assert "environments_made" in numbers["rows"]
