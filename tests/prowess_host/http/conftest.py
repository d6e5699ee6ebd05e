"""A project that a server of each module serves."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from piped import make_project
from web import Events, Web, served_over_http

SKILL = '''
    from pathlib import Path
    from typing import Annotated
    from pydantic import Field
    from prowess import ConfigPaths

    @skill_command(read_only=True)
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    @skill_command
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    @skill_command
    def fail() -> str:
        """Always fails."""
        raise SkillError("this always fails")

    @skill_command
    def busy() -> str:
        """Says that it should be tried again."""
        raise SkillError("not now", retryable=True, retry_after=7)

    @skill_command
    async def steps(ctx: Context, text: str = "step", times: int = 3) -> str:
        """Report progress."""
        for step in range(times):
            ctx.progress(step + 1, times, f"{text} {step}")
        return text

    @skill_command
    async def sure(ctx: Context) -> str:
        """Ask."""
        answer = await ctx.ask("sure", "Sure?", bool)
        return f"{answer.action} {answer.value}"

    @skill_command
    async def hold(ctx: Context, mark: str, paths: ConfigPaths, loud: bool = False) -> str:
        """Wait for a file."""
        if loud:
            ctx.progress(1, 2, "begun")
        place = paths.project_root / mark
        place.with_suffix(".begun").touch()
        try:
            while not place.exists():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            place.with_suffix(".cancelled").touch()
            raise
        return "held"

    @skill_command
    async def later(ctx: Context) -> str:
        """Ask from the background."""
        ctx.background()
        return (await ctx.ask("sure", "Sure?", bool)).action

    @skill_command
    async def where(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        """Say which region was asked for."""
        return region

    @skill_command
    async def big(size: int) -> str:
        """A long text."""
        return "x" * size
'''

TWO_CLIENTS = """
[serve]
max_calls = 3
max_client_calls = 2
max_sessions = 3
max_client_sessions = 2

[[auth.credentials]]
type = "bearer"
token = "ada"
scopes = ["all"]

[[auth.credentials]]
type = "bearer"
token = "bob"
scopes = ["all"]
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("web"), t=SKILL)


@pytest.fixture(scope="module")
def web(root: Path) -> Generator[Web]:
    """One server for the tests of a module."""
    with served_over_http(root) as web:
        web.call("t_echo", text="ready")
        yield web


@pytest.fixture(autouse=True)
def no_stream_stays_open() -> Generator[None]:
    yield
    for stream in list(Events.left_open):
        stream.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[Web]:
    """A server for two clients, neither of which may have all the room."""
    root = make_project(tmp_path_factory.mktemp("shared"), t=SKILL)
    (root / "prowess.toml").write_text((root / "prowess.toml").read_text() + TWO_CLIENTS)
    with served_over_http(root) as web:
        web.call("t_echo", {"Authorization": "Bearer ada"}, text="ready")
        yield web
