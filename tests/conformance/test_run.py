"""The verdicts of the runner, and the fixture it runs; no suite and no server."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
PROJECT = HERE / "project"


def load_runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_run", HERE / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


run = load_runner()


@pytest.mark.parametrize(
    ("passed", "failed", "excused", "verdict"),
    [
        (["a", "b"], [], [], "passed"),
        ([], [], [], "nothing"),
        (["a"], ["b"], [], "FAILED"),
        (["a"], ["b"], [None], "expected"),
        (["a"], ["b"], ["b"], "expected"),
        (["a"], ["b", "c"], ["b"], "FAILED"),
        (["a"], ["b"], ["a", "b"], "STALE"),
        (["a"], [], [None], "STALE"),
        (["a", "b"], [], ["b"], "STALE"),
        (["a"], [], ["b"], "passed"),
    ],
)
def test_an_entry_excuses_exactly_what_it_names(passed, failed, excused, verdict):
    """An entry for a check that was not reached is no mistake; one that passes is."""
    expected = [run.Expected("s", check, "a reason") for check in excused]
    scenario = run.Scenario("s", Counter(passed), frozenset(failed))
    assert scenario.verdict(expected)[0] == verdict


def test_results_are_read_from_what_the_suite_writes(tmp_path: Path):
    """A warning is a failure; what is neither passed nor failed counts for nothing."""
    folder = tmp_path / "server-tools-call-image-2026-07-28T10-00-00-000Z"
    folder.mkdir()
    statuses = {"a": "SUCCESS", "b": "WARNING", "c": "FAILURE", "d": "INFO", "e": "SKIPPED"}
    (folder / "checks.json").write_text(
        json.dumps([{"id": name, "status": status} for name, status in statuses.items()])
    )
    assert run.read_results(tmp_path) == [run.Scenario("tools-call-image", Counter("a"), frozenset("bc"))]


def test_an_expected_failure_without_a_reason_is_refused(tmp_path: Path):
    """The line is named."""
    path = tmp_path / "expected.yml"
    path.write_text("server:\n  - ping\n")
    with pytest.raises(SystemExit, match=r"expected\.yml:2"):
        run.read_expected(path)


def test_every_expected_failure_has_its_reason():
    """And none stands there twice."""
    entries = run.read_expected(run.EXPECTED_FAILURES)
    names = [(entry.scenario, entry.check) for entry in entries]
    assert len(set(names)) == len(names)


def test_nothing_is_excused_over_http():
    """And over stdio only what is about HTTP."""
    assert [] == run.read_expected(run.EXPECTED_FAILURES)
    assert {"HTTP"} == {entry.why.partition(":")[0] for entry in run.OF_HTTP}


def test_the_suite_is_given_a_list_of_the_scenarios_that_count(tmp_path: Path):
    """Also an empty one, which must be a list."""
    path = tmp_path / "expected.yml"
    run.write_expected(path, [])
    assert "server: []\n" == path.read_text()
    run.write_expected(
        path, [run.Expected("a", None, "why"), run.Expected("b", "c", "why"), run.Expected("d", None, "", scored=False)]
    )
    assert 'server: ["a", "b:c"]\n' == path.read_text()


def test_the_fixture_names_every_command_as_the_suite_does():
    """A command that is not in the table would be listed under another name, and never be called.

    Resources are read by their URIs.
    """
    names = tomllib.loads((PROJECT / "prowess.toml").read_text())["wire_names"]
    commands = {
        f"{path.stem}.{function.name}": function.name
        for path in PROJECT.glob("skills/*.py")
        for function in ast.parse(path.read_text()).body
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        and function.decorator_list
        and "resource(" not in ast.unparse(function.decorator_list[0])
    }
    assert commands == names


def test_the_lock_file_names_no_registry():
    """Whoever installs chooses their own; .npmrc keeps it so."""
    packages = json.loads((run.npm.FOLDER / "package-lock.json").read_text())["packages"]
    assert [] == [name for name, package in packages.items() if "resolved" in package]
    assert [] == [name for name, package in packages.items() if name and "integrity" not in package]
