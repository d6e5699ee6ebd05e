"""A worker inside this process, for debuggers: the same link and the same frames."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from prowess.worker.link import Board, Frame, Link
from prowess.worker.serving import can_import_project, serve_begun
from prowess_host.workers.process import WorkerProcess

__all__ = ["InProcessWorker"]

_LAST_WORDS: Final = 0.2
"""Seconds that its last frames are read."""


class InProcessWorker(WorkerProcess):
    """Serves the link in the running loop. A kill ends the serving; a thread that runs on ends with this process."""

    is_apart = False

    def __init__(
        self,
        _python: str,
        root: Path,
        settings: bytes,
        *,
        on_frame: Callable[[Frame], None],
        on_exit: Callable[[], None],
    ) -> None:
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._lost = asyncio.Event()
        self._over = False
        self.exit_code = None
        self.last_line = b""
        self.link = Link(on_frame, self._lost.set)
        self._board = Board()
        can_import_project(str(root))
        ours, theirs = socket.socketpair()
        self._serving = self._loop.create_task(serve_begun(theirs, self._board, root, settings))
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
        if self.exit_code:  # its last frame may say why
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._lost.wait(), _LAST_WORDS)
        self._over = True
        self.link.close()
        try:
            self._on_exit()
        finally:
            self._board.close()
