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
"""Usable seconds for a description of imported skills. It takes milliseconds for each skill."""


class LostWorker(ChildProcessError):
    """A worker ended during a description, perhaps for another reason."""


class LostImport(LostWorker):
    """A worker ended or hung during the import of a skill."""

    def __init__(self, importing: Importing, reason: str, *, killed: bool = False, others: bool = False) -> None:
        super().__init__(f"{importing.skill} ({importing.file}): {reason}")
        self.importing = importing
        self.reason = reason
        self.killed = killed
        """Whether a signal from outside seems to have ended it."""
        self.others = others
        """Whether it imported other skills as well, one of which may have ended it."""


class Describing:
    """A request to a worker for a description of skills."""

    def __init__(self, process: LinkedWorker, request: DescribeHead) -> None:
        self._spent = 0.0
        self._description: asyncio.Future[Description] = asyncio.get_running_loop().create_future()
        self._description.add_done_callback(
            lambda future: future.cancelled() or future.exception()
        )  # in case no task waits
        process.send(Kind.DESCRIBE, 0, json.dumps(request).encode())

    @property
    def open(self) -> bool:
        """Whether it has neither an answer nor a failure."""
        return not self._description.done()

    def complete(self, description: Description) -> None:
        """Set the answer."""
        if self.open:
            self._description.set_result(description)

    def fail(self, error: ChildProcessError) -> None:
        """Set the failure."""
        if self.open:
            self._description.set_exception(error)

    def spend(self, seconds: float) -> bool:
        """Add usable seconds without an import, since imports have their own limit. Returns whether the time is up."""
        self._spent += seconds
        if self._spent > _LONGEST:
            self.fail(ChildProcessError(f"a worker did not describe the skills in {_LONGEST:g} s without an import"))
        return not self.open

    async def answer(self) -> Description:
        """Wait for the answer. Raises `ChildProcessError`."""
        return await asyncio.shield(self._description)
