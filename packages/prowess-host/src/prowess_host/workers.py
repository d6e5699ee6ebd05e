"""One worker process: started with everything it may need, watched by its exit, and killed with all its children."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from prowess.link import Board, Frame, Kind, Link

__all__ = ["WorkerProcess"]

_LAST_WORDS: Final = 0.2
"""Seconds a dead worker's link is read on: a child that it forked may hold it open for ever."""
_GUARD: Final = "read _; kill -KILL 0"
"""Leads the worker's process group. When the host is gone, however it went, its input ends and the whole group goes: a
worker that is stuck in native code could not see to that itself."""


class WorkerProcess:
    """A worker and the link to it. It takes frames at once; it reads them when it is up."""

    def __init__(
        self,
        python: str,
        root: Path,
        flags: dict[str, Any],
        *,
        on_frame: Callable[[WorkerProcess, Frame], None],
        on_exit: Callable[[WorkerProcess], None],
    ) -> None:
        self._on_frame = on_frame
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._board = Board()
        self.link = Link(lambda frame: self._on_frame(self, frame), self._link_lost)
        self._lost = asyncio.Event()
        self._over = False
        self.exit_code: int | None = None
        ours, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD], stdin=lifeline, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
        )
        os.close(lifeline)
        try:
            self._process = subprocess.Popen(
                _command(python, root, flags, theirs.fileno(), self._board.fd),
                stdin=subprocess.DEVNULL,
                stdout=2,
                cwd=root,
                pass_fds=(theirs.fileno(), self._board.fd),
                process_group=self._guard.pid,
            )
        except OSError:
            self._end_guard()
            self._board.close()
            ours.close()
            raise
        finally:
            theirs.close()
        self._tasks = [self._loop.create_task(self._connect(ours)), self._loop.create_task(self._wait())]

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"") -> None:
        self.link.send(kind, number, head, body)

    def retire(self) -> None:
        """Let it begin nothing more."""
        self._board.retire()

    def has_begun(self, number: int) -> bool:
        """Whether a call was begun, as far as one must fear. True to the end, also of a dead worker."""
        return self._board.started(number)

    def forget(self, number: int) -> None:
        """A call is over: its number may be used again."""
        if not self._over:
            self._board.forget(number)

    def kill(self) -> None:
        """End the worker and everything it started, at once."""
        if not self._over:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._guard.pid, signal.SIGKILL)

    async def wait(self) -> None:
        """Until it is over and reported."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self, sock: socket.socket) -> None:
        await self._loop.create_connection(lambda: self.link, sock=sock)

    async def _wait(self) -> None:
        """The death watch goes by the process, never by the end of the link alone."""
        await _exited(self._process)
        self.exit_code = self._process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._lost.wait(), _LAST_WORDS)
        self.kill()  # what it left behind
        self._over = True
        self._end_guard()
        self.link.close()
        self._on_exit(self)
        self._board.close()

    def _link_lost(self) -> None:
        self._lost.set()

    def _end_guard(self) -> None:
        os.close(self._lifeline)
        self._guard.wait()


def _command(python: str, root: Path, flags: dict[str, Any], link: int, board: int) -> list[str]:
    return [python, "-P", "-m", "prowess.worker", str(link), str(board), str(root), json.dumps(flags)]


async def _exited(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process to end, without reaping it."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    if sys.platform == "linux":
        fd = os.pidfd_open(process.pid)
        loop.add_reader(fd, done.set)
        try:
            await done.wait()
        finally:
            loop.remove_reader(fd)
            os.close(fd)
    else:  # pragma: no cover - a thread each, where there is no descriptor for a process

        def wait() -> None:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            loop.call_soon_threadsafe(done.set)

        threading.Thread(target=wait, daemon=True).start()
        await done.wait()
