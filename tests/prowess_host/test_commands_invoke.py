"""`prowess invoke`: envelopes through a real pipe."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SKILL = """
import os, threading
from prowess import skill_command

first = threading.Event()

@skill_command
def echo(text: str) -> str:
    print("noise", text)
    os.write(1, b"more noise")
    return text

@skill_command
def waits(text: str) -> str:
    first.wait(20)
    return text

@skill_command
def opens(text: str) -> str:
    first.set()
    return text
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "tools.py").write_text(SKILL, "utf-8")
    return tmp_path


def request(text: str, tool: str = "tools/echo", **more: Any) -> dict[str, Any]:
    return {
        "id": text,
        "version": "1.0.0",
        "timestamp": "2026-01-31T12:00:00Z",
        "tool": tool,
        "payload": {"text": text},
        **more,
    }


def invoke(project: Path, given: bytes, *options: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-c", "from prowess_host.cli import main; main()", "invoke", "--project", str(project)]
    done = subprocess.run([*command, *options], input=given, capture_output=True, check=False, timeout=50)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def lines(*requests: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in requests)


def test_one_request_gives_one_response(project: Path) -> None:
    """However it is laid out, and whatever the skill prints."""
    code, (response,) = invoke(project, json.dumps(request("a"), indent=2).encode())
    assert (0, "a") == (code, response["output"])


def test_lines_give_lines_in_order(project: Path) -> None:
    """Also those that are no request; then not everything succeeded."""
    given = lines(request("a")) + b"{broken\n\n" + lines(request("b"))
    code, responses = invoke(project, given)
    assert 1 == code
    assert ["success", "error", "success"] == [response["status"]["code"] for response in responses]
    assert ["a", "", "b"] == [response["id"] for response in responses]


def test_a_broken_first_line_does_not_take_the_rest_along(project: Path) -> None:
    """It is answered like any other line."""
    code, responses = invoke(project, b"{broken\n" + lines(request("a"), request("b")))
    assert (1, ["", "a", "b"]) == (code, [response["id"] for response in responses])


def test_jobs_are_served_at_once_and_keep_their_order(project: Path) -> None:
    """The first one can only end because the second one runs beside it."""
    given = lines(request("a", "tools.waits"), request("b", "tools.opens"), request("c"))
    code, responses = invoke(project, given, "--jobs", "2")
    assert (0, ["a", "b", "c"]) == (code, [response["output"] for response in responses])


def test_accepted_work_is_finished_before_the_end(project: Path) -> None:
    """The process does not take it along."""
    given = lines(request("a", "tools.waits", metadata={"wait": False}), request("b", "tools.opens"))
    code, responses = invoke(project, given)
    assert (0, ["accepted", "success"]) == (code, [response["status"]["code"] for response in responses])


@pytest.mark.parametrize("given", [b"", b"\n\n"])
def test_no_request_gives_no_response(given: bytes, project: Path) -> None:
    """Nothing went wrong, either."""
    assert (0, []) == invoke(project, given)


def test_what_is_no_json_at_all_gives_one_error(project: Path) -> None:
    """One mess is one request."""
    code, responses = invoke(project, b"{\n broken\n}")
    assert (1, ["not_json"]) == (code, [response["errors"][0]["code"] for response in responses])


@pytest.mark.parametrize("jobs", ["0", "x"])
def test_wrong_use_is_refused(jobs: str, project: Path) -> None:
    """With the exit code of wrong use."""
    assert (2, []) == invoke(project, b"", "--jobs", jobs)
