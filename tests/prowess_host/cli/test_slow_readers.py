"""Nobody reads what `prowess` writes: its clocks go on, at every door."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from piped import make_project
from shell import Command
from web import JSON, Forked, Web, until

SKILL = '''
    import os, time
    from pathlib import Path
    from prowess import Context

    @skill_command
    def large() -> str:
        """More than a pipe takes."""
        return "x" * 1_000_000

    @skill_command(timeout=0.5)
    def late(ctx: Context, mark: str) -> str:
        """Say more than a pipe takes, and go on for too long."""
        for _ in range(200):
            ctx.info("x" * 1000)
        Path(mark).write_text(str(os.getpid()))
        time.sleep(600)
        return "late"
'''
ENVELOPE = {"version": "1.0.0", "timestamp": "2026-01-31T12:00:00Z"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project"), t=SKILL)


@contextlib.contextmanager
def unread() -> Generator[tuple[int, int]]:
    """A pipe, both of whose ends close after the test."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def is_over(mark: Path) -> bool:
    """Whether the process that made a mark has ended."""
    return mark.exists() and bool(pid := mark.read_text()) and not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("door", ["invoke", "call"])
def test_timeout_ends_a_command_although_nobody_reads(root: Path, tmp_path: Path, door: str) -> None:
    """Neither the responses of others, nor the log of the call."""
    mark = tmp_path / "mark"
    requests = [("t.large", {}), ("t.late", {"mark": str(mark)})]
    given = [json.dumps({**ENVELOPE, "id": "r", "tool": tool, "payload": given}) for tool, given in requests]
    words = {"invoke": ["--jobs", "2"], "call": ["-v", "t.late", f"mark={mark}"]}[door]
    with unread() as typed, unread() as written:
        os.write(typed[1], "\n".join([*given, ""]).encode())
        fds = (typed[0], written[1], written[1])
        command = Command(door, "--project", str(root), *words, cwd=root, environ=os.environ, fds=fds)
        until(lambda: is_over(mark))
        command.kill()
        command.wait()


def test_server_goes_on_although_nobody_reads_its_log(root: Path) -> None:
    """Each of these requests is told in the log, which is larger than a pipe."""
    wrong = json.dumps({f"{number}{'x' * 100}": 1 for number in range(100)}).encode()
    with (
        unread() as (_, log),
        Forked("serve", "--project", str(root), "--port", "0", environ=dict(os.environ), log=log) as server,
    ):
        web = Web(server, server.stdout.readline().split(" at ")[1].split("/mcp")[0])
        for _ in range(100):
            assert 422 == web.ask("POST", "/v1/invoke", wrong, JSON).status
        server.kill()
