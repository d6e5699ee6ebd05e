"""Skills that the tests of the testkit use."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from prowess_testkit import Project
from prowess_testkit.process import HostProcess

sys.path.append(str(Path(__file__).parents[1] / "prowess_host"))  # importlib mode puts nothing there

from shell import run

NOTES = """
from __future__ import annotations

from typing import Any

from prowess import Context, Settings, SkillError, hookimpl, skill_command


class Notebook:
    def __init__(self) -> None:
        self.lines: list[str] = []


@hookimpl
def prowess_injectables(provide):
    provide(Notebook)


@skill_command
def add(text: str, notebook: Notebook) -> int:
    '''Add a line.'''
    notebook.lines.append(text)
    return len(notebook.lines)


@skill_command(read_only=True)
async def chat(ctx: Context, steps: int = 2) -> str:
    '''Talk while working.'''
    for step in range(steps):
        ctx.progress(step + 1, steps, f"step {step + 1}")
        ctx.info({"step": step + 1})
    return "done"


started = 0


@skill_command(destructive=True)
async def clear(ctx: Context, notebook: Notebook) -> str:
    '''Remove all lines.'''
    global started
    started += 1
    sure = await ctx.ask("sure", "Remove all lines?", bool)
    if not sure.accepted or not sure.value:
        raise SkillError(f"nothing was removed: {sure.action}")
    why = await ctx.ask("why", "Why?", {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}})
    notebook.lines.clear()
    return f"{why.content}, started {started}"


@skill_command
async def careless(ctx: Context) -> str:
    '''Take whatever happens to a question for an answer.'''
    try:
        return str((await ctx.ask("q", "Really?", bool)).value)
    except Exception as error:
        return f"taken for an answer: {type(error).__name__}"


runs = 0


@skill_command
async def forever(ctx: Context) -> None:
    '''Ask under a new key in every run.'''
    global runs
    runs += 1
    await ctx.ask(f"q{runs}", "Again?", bool)


@skill_command
def key(settings: Settings) -> list[Any]:
    return [settings.get("api.key"), settings.get("api.limits"), settings.own.timeout]


@skill_command
def who(ctx: Context) -> str:
    return ctx.client_name


@skill_command
def fail() -> None:
    raise SkillError("no such line")


@skill_command
def needs_sampling(ctx: Context) -> str:
    ctx.require_capability("sampling.tools")
    return "fine"
"""


@pytest.fixture
def notes(project: Project) -> Project:
    """A project with the skill `notes`."""
    project.write("skills/notes.py", NOTES)
    return project


@pytest.fixture
def forked_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts are processes with pipes, as ever, but forked: a start costs a third of a second."""

    async def start(
        kind: type[HostProcess], project: str, *options: str, version: str, env: Mapping[str, str] | None = None
    ) -> HostProcess:
        environ = {**os.environ, **(env or {})}
        return kind(await run("host", "--project", project, *options, environ=environ), version)  # type: ignore[arg-type]

    monkeypatch.setattr(HostProcess, "start", classmethod(start))
