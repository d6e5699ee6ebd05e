"""Asks a worker to describe the skills, and finds the skill at fault if the worker cannot answer."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from prowess.skills.description import Description
from prowess.worker.board import Importing
from prowess.worker.messages import DescribeHead, Kind
from prowess_host.workers.linked import LinkedWorker

__all__ = ["Describing", "LostImport", "LostWorker"]

_LONGEST: Final = 300.0
"""Seconds that a worker could use to describe what it has imported. It takes milliseconds for each skill."""


class LostWorker(ChildProcessError):
    """A worker ended while it described, and what it was asked for need not have to do with that."""


class LostImport(LostWorker):
    """A worker ended, or did not come to an end, while it imported a skill."""

    def __init__(self, importing: Importing, reason: str, *, killed: bool = False) -> None:
        super().__init__(f"{importing.skill} ({importing.file}): {reason}")
        self.importing = importing
        self.reason = reason
        self.killed = killed
        """Whether it looks as if somebody else had ended it."""


class Describing:
    """A question for skills, put to a worker."""

    def __init__(self, process: LinkedWorker, told: DescribeHead) -> None:
        self._spent = 0.0
        self._told: asyncio.Future[Description] = asyncio.get_running_loop().create_future()
        self._told.add_done_callback(lambda future: future.cancelled() or future.exception())  # perhaps nobody waits
        process.send(Kind.DESCRIBE, 0, json.dumps(told).encode())

    @property
    def open(self) -> bool:
        """Whether there is neither an answer nor a reason why there is none."""
        return not self._told.done()

    def hear(self, description: Description) -> None:
        """The answer."""
        if self.open:
            self._told.set_result(description)

    def fail(self, error: ChildProcessError) -> None:
        """There will be none."""
        if self.open:
            self._told.set_exception(error)

    def spend(self, seconds: float) -> bool:
        """The worker could use these seconds, and imported nothing: imports have a limit of their own. True if it is over."""
        self._spent += seconds
        if self._spent > _LONGEST:
            self.fail(ChildProcessError(f"a worker did not describe the skills in {_LONGEST:g} s without an import"))
        return not self.open

    async def answer(self) -> Description:
        """Wait for the answer; a `ChildProcessError` says why there is none."""
        return await asyncio.shield(self._told)
