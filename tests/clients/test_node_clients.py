"""The official TypeScript clients, old and new, in every way they open a connection, and the Inspector's command line."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import npm
import pytest
from patience import PATIENCE

TOOLS = ["tools_add", "tools_confirm", "tools_count", "tools_fail", "tools_lap", "tools_wait"]


@pytest.fixture(scope="session")
def installed() -> Path:
    """The pinned packages."""
    if npm.node() is None:
        pytest.skip("there is no Node")
    return npm.installed()


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"NO_COLOR": "1"}
    command = [str(npm.node()), *arguments]
    return subprocess.run(
        command, cwd=installed, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


@pytest.mark.timeout(660)  # the first one installs
@pytest.mark.parametrize("which", ["v1", "v2-legacy", "v2-auto"])
def test_official_client(which: str, installed: Path, target: list[str], project: Path) -> None:
    """Lists, calls, gets an error, progress, an answer to a question, cancels, and hears of a change."""
    done = run(installed, "session.mjs", which, str(project), *target)
    assert 0 == done.returncode, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    modern = which == "v2-auto"
    assert TOOLS == told["names"]
    assert ("3", 3 if modern else {"result": 3}) == (
        told["added"]["content"][0]["text"],
        told["added"]["structuredContent"],
    )
    lap = {"at": "2026-01-31T12:00:00", "took": "PT1.5S", "share": 0.3, "runner": "ann"}
    assert lap == told["lap"], "the client validates by the output schema"
    assert (True, "This one always fails.") == (told["failed"]["isError"], told["failed"]["content"][0]["text"])
    assert "b: required" in told["wrong"]["content"][0]["text"]
    assert -32602 == told["unknown"]["code"]
    assert ["docs://a.md", "notes://today"] == sorted(told["resources"])
    assert ('{"id": 7}', ["Review this python: x", "Sure."]) == (told["read"], told["prompt"])
    assert ["python"] == told["completed"]
    assert [[1, 3, "at 1"], [2, 3, "at 2"], [3, 3, "at 3"]] == told["progress"]
    assert "accept True" == told["asked"]["result"]["content"][0]["text"]
    assert "given up" == told["cancelled"]
    assert ["later_hello", *TOOLS] == told["later"]


def inspect(installed: Path, command: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(
        installed,
        "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js",
        "--cli",
        *command,
        *arguments,
    )


@pytest.mark.timeout(660)  # the first one installs
def test_inspector_lists(installed: Path, command: list[str]) -> None:
    """The command line of the Inspector, as people use it to look at a server."""
    done = inspect(installed, command, "--method", "tools/list")
    assert TOOLS == [tool["name"] for tool in json.loads(done.stdout)["tools"]], done.stderr


@pytest.mark.timeout(660)  # the first one installs
@pytest.mark.parametrize(("name", "text"), [("tools_add", "3"), ("tools_fail", "This one always fails.")])
def test_inspector_calls(name: str, text: str, installed: Path, command: list[str]) -> None:
    """A value, and a failure."""
    given = ["--tool-arg", "a=1", "--tool-arg", "b=2"] if name == "tools_add" else []
    done = inspect(installed, command, "--method", "tools/call", "--tool-name", name, *given)
    assert text in done.stdout, done.stderr
