"""Every case has its row in README.md, and every row says the truth about where its case is tested."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COUNTS = {"O": 77, "M": 46, "U": 33, "N": 18}
IDS = [f"{family}-{number}" for family, count in COUNTS.items() for number in range(1, count + 1)]

_ROW = re.compile(r"\| ([OMUN]-\d+) \| (.+?) \| (.+?) \|")
_TEST = re.compile(r"`(\w+\.py)::(\w+)`")
_NODE = re.compile(r"(?:.*/)?(\w+\.py)::(\w+)\[(.*)\]")
_ID = re.compile(r"(?<![A-Za-z0-9])([OMUN]-\d+): ")


@cache
def table() -> dict[str, tuple[set[tuple[str, str]], str]]:
    """Of each case in the README: the tests, as file and function, and the status. A second row is a fault."""
    rows: dict[str, tuple[set[tuple[str, str]], str]] = {}
    for case_id, tests, status in _ROW.findall((HERE / "README.md").read_text(encoding="utf-8")):
        assert case_id not in rows, f"{case_id} has two rows"
        rows[case_id] = set(_TEST.findall(tests)), status
    return rows


@cache
def collected() -> dict[str, set[tuple[str, str]]]:
    """Of each case that pytest finds in this folder: the tests, as file and function."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", str(HERE)]
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    run = subprocess.run(command, cwd=HERE.parents[1], env=environ, check=False, capture_output=True, text=True)
    assert 0 == run.returncode, run.stdout + run.stderr
    found: dict[str, set[tuple[str, str]]] = {}
    for node in filter(None, map(_NODE.fullmatch, run.stdout.splitlines())):
        for case_id in _ID.findall(node[3]):
            found.setdefault(case_id, set()).add((node[1], node[2]))
    return found


def test_every_case_has_one_row() -> None:
    """All 174, and nothing else, in order."""
    assert 174 == len(IDS)
    assert list(table()) == IDS


@pytest.mark.parametrize("family", COUNTS)
def test_every_row_names_the_tests_of_its_case(family: str) -> None:
    """Those that pytest finds, and no others. What comes later is checked once it is there."""
    promised, found = {}, {}
    for case_id in (case_id for case_id in IDS if case_id.startswith(family)):
        tests, _ = table()[case_id]
        promised[case_id] = sorted(set(tests))
        found[case_id] = sorted(collected().get(case_id, ()))
        assert tests, f"{case_id} is assigned to no test"
    assert found == promised


def test_no_test_has_a_case_that_does_not_exist() -> None:
    """A slip in an id would look like a test of another case."""
    assert set() == set(collected()) - set(IDS)


def test_every_status_is_one_of_three() -> None:
    """Holds, or superseded with the reason, or to come."""
    odd = {
        case_id: status
        for case_id, (_, status) in table().items()
        if not (status == "holds" or status.startswith(("holds; ", "superseded by ", "superseded in part by ")))
    }
    assert {} == odd
    assert [] == [
        case_id for case_id, (_, status) in table().items() if "superseded" in status and "because" not in status
    ]
