"""One worker process: started with everything it may need, watched by its exit, and killed with all its children."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from prowess.link import Board, Frame, Kind, Link

__all__ = ["STARTING", "Importing", "WorkerProcess", "describe_exit"]

STARTING: Final = 60.0
"""Seconds a worker gets until it says that it is up, and then until it has described what it can do. A skill that
imports half the world takes ten."""
_LAST_WORDS: Final = 0.2
"""Seconds a dead worker's link is read on: a child that it forked may hold it open for ever."""
_SHELL: Final = "/bin/sh"
_GUARD: Final = "read _; kill -KILL 0"
"""Leads the worker's process group. When the host is gone, however it went, its input ends and the whole group goes: a
worker that is stuck in native code could not see to that itself."""


class Importing(NamedTuple):
    """The import of one file of a skill."""

    since_ns: int
    skill: str
    file: str


class WorkerProcess:
    """A worker and the link to it. It takes frames at once; it reads them when it is up. `settings` are told to it first.

    `on_exit` is called once, after the last frame. A worker that cannot be started at all is an `OSError`.
    """

    def __init__(
        self,
        python: str,
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
        self.exit_code: int | None = None
        self.link = Link(on_frame, self._lost.set)
        self.link.send(Kind.BEGIN, 0, settings)
        with contextlib.ExitStack() as undo:
            self._board = Board()
            undo.callback(self._board.close)
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            with theirs:
                self._guard, self._lifeline = _guard()
                undo.callback(self._end_guard)
                self._process = subprocess.Popen(
                    _command(python, root, theirs.fileno(), self._board.fd),
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    cwd=root,
                    pass_fds=(theirs.fileno(), self._board.fd),
                    process_group=self._guard.pid,
                )
            undo.pop_all()
        self._tasks = [self._loop.create_task(self._connect(ours)), self._loop.create_task(self._wait())]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"", *, more: bool = False) -> None:
        """Put a frame on its way; of no effect when the worker is gone."""
        self.link.send(kind, number, head, body, more=more)

    def retire(self) -> None:
        """Let it begin nothing more."""
        if not self._over:
            self._board.retire()

    def has_begun(self, number: int) -> bool:
        """Whether a call was begun, as far as one must fear. Not to be asked any more after `on_exit`."""
        return self._board.started(number)

    @property
    def importing(self) -> Importing | None:
        """What it is importing, or was when it ended."""
        noted = self._board.noted.split("\n", 2)
        return Importing(int(noted[0]), *noted[1:]) if len(noted) == 3 else None

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
        await _exited(self._process.pid)
        self.exit_code = self._process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._lost.wait(), _LAST_WORDS)
        self.kill()  # what it left behind
        self._over = True
        self._end_guard()
        self.link.close()
        try:
            self._on_exit()
        finally:
            self._board.close()

    def _end_guard(self) -> None:
        os.close(self._lifeline)
        self._guard.wait()


def _guard() -> tuple[subprocess.Popen[bytes], int]:
    """The leader of a new process group, and the lifeline it hangs on."""
    reading, lifeline = os.pipe()
    try:
        leader = subprocess.Popen(
            [_SHELL, "-c", _GUARD],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
    except OSError:
        os.close(lifeline)
        raise
    finally:
        os.close(reading)
    return leader, lifeline


def _command(python: str, root: Path, link: int, board: int) -> list[str]:
    return [python, "-P", "-m", "prowess.worker", str(link), str(board), str(root)]


def describe_exit(code: int | None) -> str:
    """How a process ended, for people."""
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


async def _exited(pid: int) -> None:
    """Wait for a child to end, without reaping it."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    fd = _process_descriptor(pid)
    if fd is None:
        threading.Thread(target=_wait_for, args=(pid, loop, done), name="prowess-exit", daemon=True).start()
        await done.wait()
        return
    loop.add_reader(fd, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _process_descriptor(pid: int) -> int | None:
    """A descriptor that is ready when the process has ended, where the system has such a thing."""
    try:
        return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        return None


def _wait_for(pid: int, loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(done.set)
