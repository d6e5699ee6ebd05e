"""One small project that every client works with, and how it is served."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

SKILL = '''
from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import anyio
from prowess import ConfigPaths, Context, SkillError, skill_command
from pydantic import Field


@skill_command(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@skill_command
def fail() -> str:
    """Always fails."""
    raise SkillError("This one always fails.")


@skill_command
async def count(ctx: Context, to: int = 3, heard: Path | None = None) -> int:
    """Count, and say how far. The client notes in a file what it has heard."""
    for number in range(1, to + 1):
        ctx.progress(number, to, f"at {number}")
        # the TypeScript clients lose progress that arrives together with the answer
        while heard and not (heard.exists() and heard.stat().st_size >= number):
            await anyio.sleep(0.01)
    return to


@dataclass
class Lap:
    at: datetime
    took: timedelta
    share: Annotated[float, Field(multiple_of=0.1)]
    runner: Annotated[str, Field(pattern="(?P<name>^[a-z]+$)")]


@skill_command
def lap() -> Lap:
    """What validators of clients could refuse: no time zone, half a second, a third tenth, a pattern of Python."""
    return Lap(datetime(2026, 1, 31, 12), timedelta(seconds=1.5), 0.3, "ann")


@skill_command
async def wait(mark: str, paths: ConfigPaths) -> str:
    """Wait until cancelled, and leave a mark then."""
    (paths.project_root / f"{mark}.begun").touch()
    try:
        await anyio.sleep_forever()
    finally:
        (paths.project_root / f"{mark}.cancelled").touch()


@skill_command
async def confirm(ctx: Context) -> str:
    """Ask before doing nothing."""
    answer = await ctx.ask("sure", "Really?", bool)
    return f"{answer.action} {answer.value}"
'''


NOTES = '''
from typing import Literal

from prowess import prompt, resource


@resource("notes://today")
def today() -> str:
    """What today is about."""
    return "today"


@resource("notes://{id}")
def note(id: int) -> dict[str, int]:
    """One note."""
    return {"id": id}


@prompt
def review(code: str, language: Literal["python", "perl"] = "python") -> list:
    """Review some code."""
    return [f"Review this {language}: {code}", ("assistant", "Sure.")]
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "tools.py").write_text(SKILL, "utf-8")
    (tmp_path / "skills" / "notes.py").write_text(NOTES, "utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A", "utf-8")
    (tmp_path / "prowess.toml").write_text('[resources]\ndocs = "docs/*.md"\n', "utf-8")
    return tmp_path


@pytest.fixture
def command(project: Path) -> list[str]:
    """What an IDE would start."""
    return [sys.executable, "-m", "prowess_host", "--project", str(project)]


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest, command: list[str], project: Path) -> Generator[list[str]]:
    """What a client connects to: a command that it starts, or the one address of a server that runs already."""
    if request.param == "stdio":
        yield command
        return
    line = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", "serve", "--port", "0"]
    with subprocess.Popen([*line, "--project", str(project)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield [server.stdout.readline().split(" at ")[1].split(";")[0]]
        finally:
            server.terminate()
            assert server.wait() == 0
