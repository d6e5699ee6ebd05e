"""What the contract tables share: how a row gets its case id, a bench for single functions, and small projects.

A case id ends with a colon (`O-12: a parameter called title survives`), so that `pytest -k "O-1:"` is that case alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import pytest
from jsonschema import Draft202012Validator

from prowess import Outcome, Runtime, skill_command
from prowess.contracts.contract import Contract
from prowess.contracts.declaration import declaration_of
from prowess.jsontypes import Json, JsonObject, Schema
from prowess.profiles.profile import BUILT_IN
from prowess.skills.entry import Entry

__all__ = ["Bench", "Project", "Wire", "case", "meets", "returning", "row", "taking", "text"]


def row(case_id: str, words: str, *values: Any) -> Any:
    """One row of a table of cases."""
    return pytest.param(*values, id=f"{case_id}: {words}")


def case(case_id: str, words: str) -> pytest.MarkDecorator:
    """A test of one case."""
    return pytest.mark.parametrize((), [pytest.param(id=f"{case_id}: {words}")])


def text(words: str) -> JsonObject:
    """A text block."""
    return {"type": "text", "text": words}


def meets(schema: Schema, value: Json) -> bool:
    """Whether a value is valid, and the schema itself is."""
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema).is_valid(value)


# --- functions made of annotations ----------------------------------------------------------------


def taking(annotation: Any, *default: Any) -> Callable[..., Any]:
    """A function with one parameter `x`, which it returns."""
    if default:

        def function(x=default[0]):
            return x
    else:

        def function(x):
            return x

    function.__annotations__ = {"x": annotation}
    return function


def returning(annotation: Any, value: Any) -> Callable[[], Any]:
    """A function without parameters that returns the value; `...` leaves the return type out."""

    def function():
        return value

    function.__annotations__ = {} if annotation is ... else {"return": annotation}
    return function


# --- a bench for single functions -----------------------------------------------------------------


class Bench:
    """Compiles single functions in an empty project, shows them through a profile, and calls them."""

    def __init__(self, root: Path) -> None:
        self.runtime = Runtime(root, flags={"retry": {"initial": 0.0}})

    def entry(self, function: Callable[..., Any], **options: Any) -> Entry:
        """The function as a command."""
        declared = declaration_of(skill_command(**options)(function))
        assert declared is not None
        return self.runtime.entry_of(declared)

    def contract(self, function: Callable[..., Any], **options: Any) -> Contract:
        return self.entry(function, **options).contract

    def inputs(self, profile: str, function: Callable[..., Any], **options: Any) -> Schema:
        """The input schema as a profile shows it."""
        return BUILT_IN[profile].input_schema(self.contract(function, **options))

    def outputs(self, profile: str, function: Callable[..., Any], **options: Any) -> Schema | None:
        """The output schema as a profile shows it."""
        return BUILT_IN[profile].output_schema(self.contract(function, **options))

    def call(self, function: Callable[..., Any], arguments: Any = None, **options: Any) -> Outcome:
        """Call with JSON arguments."""
        return anyio.run(self.entry(function, **options).call, arguments or {})

    def returned(self, profile: str, value: Any, annotation: Any = ..., **options: Any) -> JsonObject:
        """The payload of a function that returns this, without `_meta`."""
        payload = self.call(returning(annotation, value), **options).payload(profile)
        payload.pop("_meta", None)
        return payload


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("bench"))
    yield bench
    bench.runtime.close()


# --- small projects -------------------------------------------------------------------------------


class Project:
    """A project folder, written file by file."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, source: str) -> Path:
        """Write a file below the project's folder."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(source).lstrip())
        return file

    def open(self, **options: Any) -> Any:
        """A runtime for the project, as an async context manager. Retries do not wait."""
        return Runtime.open(self.root, **{"flags": {"retry": {"initial": 0.0}}, **options})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


# --- a host on a pipe -----------------------------------------------------------------------------


class Wire:
    """A client of a real host: writes lines, reads lines."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "prowess_host", "--project", str(root)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._last = 0

    def write(self, line: bytes) -> None:
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def read(self) -> JsonObject:
        """The next message of the host."""
        return json.loads(self.process.stdout.readline())

    def notify(self, method: str) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode())

    def ask(self, method: str, **params: Any) -> JsonObject:
        """Send a request and read its answer."""
        self._last += 1
        self.write(json.dumps({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}).encode())
        answer = self.read()
        assert (self._last, "2.0") == (answer.get("id"), answer["jsonrpc"])
        assert ("result" in answer) != ("error" in answer)
        return answer

    def initialize(self) -> JsonObject:
        """Shake hands as a client of today does."""
        client = {"name": "test", "version": "1"}
        answer = self.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        self.notify("notifications/initialized")
        return answer

    def close(self) -> int:
        """End of input, and of the pipes; gives the exit code."""
        with self.process:
            self.process.stdin.close()
        return self.process.returncode


@pytest.fixture
def wire(project: Project) -> Iterator[Callable[[], Wire]]:
    """Starts hosts for the project, and ends them."""
    started: list[Wire] = []

    def start() -> Wire:
        started.append(Wire(project.root))
        return started[-1]

    yield start
    for each in started:
        if each.close() != 0:
            pytest.fail(f"the host ended with exit code {each.process.returncode}")
