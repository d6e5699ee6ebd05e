"""A worker inside this process, for debuggers: the same link and the same frames."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from prowess.worker.board import Board
from prowess.worker.link import Frame
from prowess.worker.serving import can_import_project, serve_begun
from prowess_host.workers.linked import LinkedWorker
from prowess_host.workers.placement import OWN, Placement

__all__ = ["InProcessWorker"]


class InProcessWorker(LinkedWorker):
    """Serves the link in the running loop. A kill ends the serving; a thread that runs on ends with this process."""

    has_own_process = False

    def __init__(
        self,
        _python: str,
        root: Path,
        begin: bytes,
        *,
        shared: bool = True,  # noqa: ARG002 - both ends are in one process
        placement: Placement = OWN,  # noqa: ARG002 - skills with another one get processes
        on_frame: Callable[[Frame], None],
        on_exit: Callable[[], None],
        on_print: Callable[[int, bytes], None] | None = None,  # noqa: ARG002 - what is printed here stays here
    ) -> None:
        board = Board()
        super().__init__(begin, board, on_frame=on_frame, on_exit=on_exit)
        can_import_project(str(root))
        ours, theirs = socket.socketpair()
        self._serving = self._loop.create_task(serve_begun(theirs, board, root, begin))
        self._tasks = [self._loop.create_task(self._connect(ours)), self._loop.create_task(self._wait())]

    @property
    def pid(self) -> int:
        """The id of this process."""
        return os.getpid()

    def kill(self) -> None:
        """End the serving. Code in threads cannot be ended."""
        self._serving.cancel()

    async def _wait(self) -> None:
        await asyncio.wait([self._serving])
        self.exit_code = -signal.SIGKILL if self._serving.cancelled() else self._serving.result()
        await self._read_last_frames()
        self._report_end()
