"""What the tests of the shipped skills share: an empty project that uses them, and their modules for unit tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from prowess import Outcome, Runtime, mcp_schema
from prowess_testkit import Project

SKILLS = Path(__file__).resolve().parents[2] / "skills"


class Opened:
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


Open = Callable[..., AbstractAsyncContextManager[Opened]]


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
    async def opened(folder: Path = root, **settings: Any) -> AsyncGenerator[Opened]:
        flags = {key.replace("__", "."): value for key, value in settings.items()}
        shipped = Project(folder, flags={"skills": [str(SKILLS)], "retry.initial": 0.0, **flags})
        try:
            yield Opened(shipped.runtime)
        finally:
            await shipped.aclose()

    return opened


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ModuleType]]:
    """The modules of the shipped skills, to test their functions one by one."""
    with Project(tmp_path_factory.mktemp("modules"), flags={"skills": [str(SKILLS)]}) as project:
        yield project.runtime.module


@pytest.fixture(scope="session")
def fetch_module(modules: Callable[[str], ModuleType]) -> ModuleType:
    return modules("fetch")


@pytest.fixture(scope="session")
def git_module(modules: Callable[[str], ModuleType]) -> ModuleType:
    return modules("git")


@pytest.fixture(scope="session")
def text_module(modules: Callable[[str], ModuleType]) -> ModuleType:
    return modules("text.commands")


@pytest.fixture(scope="session")
def scan_module(modules: Callable[[str], ModuleType]) -> ModuleType:
    return modules("text.scan")
