"""A worker that does not describe the skills is given up, by the time that it could use."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from anyio import fail_after
from patience import PATIENCE
from piped import make_project, until

from prowess.settings.settings import Settings
from prowess_host.workers import describe
from prowess_host.workers.supervisor import Supervisor

SKILL = """
    @skill_command
    def say() -> str:
        return "hello"
"""


async def test_a_worker_that_describes_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whoever waits for the description is told, and the worker goes."""
    root = make_project(tmp_path, t=SKILL)
    supervisor = Supervisor(root, Settings.load(root, environ={}), {})
    supervisor.start()
    try:
        (worker,) = supervisor.pools.own.active
        with fail_after(PATIENCE):
            await until(lambda: worker.is_up)
            monkeypatch.setattr(describe, "_LONGEST", 0.2)
            os.kill(worker.process.pid, signal.SIGSTOP)
            with pytest.raises(ChildProcessError, match="did not describe the skills"):
                await supervisor.generations._described(worker, {"known": []})
            await until(lambda: worker not in supervisor.pools.own.workers)
    finally:
        await supervisor.close()
