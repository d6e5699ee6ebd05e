"""A call that looked begun when its worker was retired, and was not: the worker gives it back, and it moves on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio

from prowess.link import Frame, Kind
from prowess.settings import Settings
from prowess_host.jobs import Job
from prowess_host.supervisor import Supervisor

SKILL = """
from prowess import skill_command

@skill_command
def say(text: str) -> str:
    return text
"""


class Told:
    """Listens to one job."""

    def __init__(self) -> None:
        self.body: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def result(self, _meta: bytes, body: bytes) -> None:
        self.body.set_result(json.loads(body))


async def test_call_that_is_given_back_is_run_all_the_same(tmp_path: Path) -> None:
    """It is dispatched anew, under a new number, and that is no try of its own."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "t.py").write_text(SKILL, "utf-8")
    supervisor = Supervisor(tmp_path, Settings.load(tmp_path, environ={}), {})
    try:
        with anyio.fail_after(20):
            (contract,) = (await supervisor.describe()).skills["t"].contracts
            told: Any = Told()
            job = Job(contract, b'{"command": "t.say"}', b'{"text": "x"}', told, 30)
            supervisor.submit(job)
            first, worker = job.number, supervisor._crew.active[0]
            supervisor._on_frame(worker, Frame(Kind.UNBEGUN, first, b"", b""))
            assert first != job.number
            assert 1 == job.tries
            assert "x" == (await told.body)["content"][0]["text"]
    finally:
        await supervisor.close()
