"""What the tests of the shipped skills share: an empty project that uses them, and their modules for unit tests."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from prowess import Outcome, Runtime, mcp_schema

SKILLS = Path(__file__).resolve().parents[2] / "skills"


class Project:
    """A runtime for a folder of its own. Every payload it sees must meet the published schema."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    async def call(self, command: str, **arguments: Any) -> Outcome:
        outcome = await self.runtime.call(command, arguments)
        mcp_schema.validate(outcome.payload())
        return outcome

    async def ok(self, command: str, **arguments: Any) -> Any:
        """The value of a call that succeeds."""
        outcome = await self.call(command, **arguments)
        assert outcome.ok, outcome.text
        return outcome.value

    async def failed(self, command: str, **arguments: Any) -> str:
        """What the model is told of a call that fails for a reason it can understand."""
        outcome = await self.call(command, **arguments)
        assert outcome.kind == "failed", outcome
        return outcome.text


Open = Callable[..., AbstractAsyncContextManager[Project]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project root with something beside it that is not the project's."""
    root = tmp_path / "project"
    root.mkdir()
    return root


@pytest.fixture
def project(root: Path) -> Open:
    """Open a project with the shipped skills and some settings, by their dotted keys."""

    @asynccontextmanager
    async def opened(folder: Path = root, **settings: Any) -> AsyncGenerator[Project]:
        flags = {key.replace("__", "."): value for key, value in settings.items()}
        async with Runtime.open(folder, flags={"skills": [str(SKILLS)], "retry.initial": 0.0, **flags}) as runtime:
            yield Project(runtime)

    return opened


def imported(name: str) -> ModuleType:
    """A module of a skill, to test its functions one by one."""
    sys.path.append(str(SKILLS.parent))
    try:
        return importlib.import_module(f"skills.{name}")
    finally:
        sys.path.remove(str(SKILLS.parent))


@pytest.fixture(scope="session")
def fetch_module() -> ModuleType:
    return imported("fetch")


@pytest.fixture(scope="session")
def git_module() -> ModuleType:
    return imported("git")


@pytest.fixture(scope="session")
def text_module() -> ModuleType:
    return imported("text.commands")


@pytest.fixture(scope="session")
def scan_module() -> ModuleType:
    return imported("text.scan")
