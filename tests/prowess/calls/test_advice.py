"""What is said beside the exceptions that authors meet every day."""

from __future__ import annotations

import asyncio
import bdb
import contextlib
import importlib.util
import inspect
import io
import multiprocessing
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from prowess import Context, Runtime, skill_command
from prowess.calls.advice import advice
from prowess.command import Command
from prowess.contracts.declaration import declaration_of


def raised(do: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as caught:
        do()
    return caught.value


def importing(line: str) -> Exception:
    return raised(lambda: exec(line, {}))


async def text_of(root: Path, command: Command) -> str:
    declared = declaration_of(command)
    assert declared is not None
    async with Runtime.open(root) as runtime:
        return (await runtime.entry_of(declared).call({})).text


@pytest.mark.parametrize(
    ("module", "distribution"), [("nothing_of_this_name", "nothing_of_this_name"), ("sklearn", "scikit-learn")]
)
def test_a_missing_module_says_in_which_python_and_how_to_add_it(
    monkeypatch: pytest.MonkeyPatch, module: str, distribution: str
):
    """With pip, or with uv where there is no pip; by the name of the distribution."""
    error = ModuleNotFoundError(f"No module named {module!r}", name=module)
    python = shlex.quote(sys.executable)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    assert (
        f"Skills run in {sys.executable}, where it is missing. Install it with `{python} -m pip install "
        f"{distribution}`, or name a Python that has it in the setting `python`"
    ) == advice(error)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert f"`uv pip install --python {python} {distribution}`" in advice(error)


def connected_elsewhere() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        in_a_thread(lambda: connection.execute("select 1"))()


def lost_a_process() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        processes.submit(os._exit, 1).result()


async def running_a_loop() -> None:
    waiting = asyncio.sleep(0)
    try:
        asyncio.run(waiting)
    finally:
        waiting.close()


def in_a_thread(do: Callable[[], Any]) -> Callable[[], Any]:
    def call() -> Any:
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(do).result()

    return call


@pytest.mark.parametrize(
    ("do", "remedy"),
    [
        (input, "take a parameter, or ask the user with `ctx.ask(...)`"),
        (lambda: asyncio.run(running_a_loop()), "write `await ...` in place of `asyncio.run(...)`"),
        (in_a_thread(asyncio.get_event_loop), "use `asyncio.run(...)`, or make the command async"),
        (in_a_thread(lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL)), "with `thread=False`"),
        (connected_elsewhere, "connect inside the command"),
        (lost_a_process, "put its function into a module of the project"),
    ],
    ids=["input", "run", "loop", "signal", "sqlite", "process"],
)
def test_what_a_thread_a_process_or_a_loop_cannot_do_says_what_to_write(
    monkeypatch: pytest.MonkeyPatch, do: Callable[[], Any], remedy: str
):
    """The messages are those of the standard library."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert remedy in advice(raised(do))


async def test_advice_follows_the_message_as_a_sentence(tmp_path: Path):
    """Also where the message has a full stop already."""

    @skill_command
    def loop() -> None:
        asyncio.get_event_loop()

    assert "in thread 'prowess'. A sync command runs in a thread" in await text_of(tmp_path, loop)


def test_an_encoding_error_of_the_author_s_own_code_has_nothing_to_do_with_its_file():
    """Only what Python says about a source file does."""
    for do in (b"\xff".decode, lambda: compile("\0", "x", "exec")):
        assert "" == advice(raised(do))


@pytest.mark.parametrize("line", ["import json.nothing", "import xml.nothing"])
def test_a_module_inside_a_package_is_nothing_to_install(line: str):
    """The package itself is there, or it is no package of anybody."""
    assert "" == advice(importing(line))
    assert "" == advice(ModuleNotFoundError("nothing else"))
    assert "" == advice(ModuleNotFoundError("not on this system", name="winreg"))


@pytest.mark.parametrize("beside", ["helper.py", "helper/__init__.py"])
async def test_a_file_beside_a_skill_is_imported_from_its_package(tmp_path: Path, beside: str):
    """As the failure says."""
    (tmp_path / "skills" / beside).parent.mkdir(parents=True)
    (tmp_path / "skills" / beside).touch()
    (tmp_path / "skills/a.py").write_text("from prowess import skill_command\nimport helper\n")
    async with Runtime.open(tmp_path) as runtime:
        reasons = [failure.reason for failure in runtime.catalog().failures if failure.source == "a"]
    (reason,) = reasons
    assert reason.endswith("import it as a part of the same package: `from . import helper`")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("from prowess import tool", "The decorator is called skill_command: `from prowess import skill_command`"),
        ("from prowess import skill_comand", 'Did you mean "skill_command"?'),
        ("from prowess import quux", "There are Audio, Catalog,"),
        (
            "import prowess.skill_comand",
            "Everything for skills is in the package prowess: `from prowess import skill_command`",
        ),
        ("from json import quux", ""),
    ],
)
def test_a_name_that_prowess_does_not_have_is_explained(line: str, said: str):
    """Names of other libraries, slips of the pen, and all else."""
    assert advice(importing(line)).startswith(said)
    assert bool(said) == bool(advice(importing(line)))


async def test_a_relative_path_says_to_what_it_is_relative(tmp_path: Path):
    """And how to write an absolute one; those need no advice."""

    @skill_command
    def read() -> str:
        return Path("notes.txt").read_text("utf-8")

    said = f"The path is relative to the working directory, {Path.cwd()}. Use an absolute one: `project_root`"
    assert said in await text_of(tmp_path, read)
    assert "" == advice(raised((tmp_path / "notes.txt").read_text))


def test_a_working_directory_that_is_gone_hides_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A skill may have changed into a temporary folder, and deleted it."""
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    said = advice(raised(Path("notes.txt").read_text))
    assert said.startswith("The path is relative to the working directory, which no longer exists. Use an absolute one")


def test_a_missing_program_is_no_missing_file():
    """It has to be on the PATH."""
    error = raised(lambda: subprocess.run(["nothing-of-this-name"], check=False))
    assert "There is no program 'nothing-of-this-name' on the PATH of the skills" in advice(error)


async def test_a_forgotten_await_is_named(tmp_path: Path):
    """Python speaks of a coroutine, which the author has never written."""

    @skill_command
    async def forgetful(ctx: Context) -> str:
        asking = ctx.ask("sure", "Sure?", bool)
        try:
            return asking.accepted
        finally:
            asking.close()

    assert "An `await` is missing" in await text_of(tmp_path, forgetful)
    assert "" == advice(AttributeError("'int' object has no attribute 'x'"))
    assert "" == advice(ValueError("'coroutine'"))


async def test_what_other_frameworks_call_otherwise_is_named(tmp_path: Path):
    @skill_command
    def asks(ctx: Context) -> str:
        return ctx.elicit("Sure?")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]

    assert "In Prowess, this is `ctx.ask(" in await text_of(tmp_path, asks)
    assert "" == advice(AttributeError("no", name="elicit", obj=object()))


def test_a_breakpoint_without_a_terminal_is_explained(monkeypatch: pytest.MonkeyPatch):
    """At a terminal, the person has left the debugger."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert "--in-process" in advice(bdb.BdbQuit())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert "" == advice(bdb.BdbQuit())


def test_help_explains_every_option():
    """By its name, with a colon."""
    text = inspect.getdoc(skill_command) or ""
    names = {name.strip() for line in text.splitlines() if ": " in line for name in line.partition(":")[0].split(",")}
    assert set(inspect.signature(skill_command).parameters) <= names
