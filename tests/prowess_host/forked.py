"""Workers that are forked from a process that has imported everything (`template`), in the place of started ones.

Their links, their deaths and what they print are real; only the start is cheap: a hundredth of a second of processor time
instead of a quarter. How workers are started, found and ended is tested with started ones.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from prowess.worker.board import Board
from prowess.worker.link import Frame
from prowess_host.stderr import complaints
from prowess_host.workers.linked import LinkedWorker
from prowess_host.workers.output import LabelledLines
from prowess_host.workers.placement import OWN, Placement
from prowess_host.workers.process import WorkerProcess

__all__ = ["ForkedWorker", "ask", "spawn", "started", "template"]


def started(script: str) -> socket.socket:
    """The socket of a process of this folder that forks. It ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-P", str(Path(__file__).with_name(script)), str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def ask(control: socket.socket, told: Any, *fds: int) -> tuple[int, int]:
    """Have a process forked; gives its id, and a pipe with its exit code once it has ended."""
    ending, end = os.pipe()
    try:
        socket.send_fds(control, [json.dumps(told).encode()], [end, *fds])
        return int(control.recv(100)), ending
    finally:
        os.close(end)


@functools.cache
def template() -> socket.socket:
    """The process that workers are forked from."""
    return started("template.py")


class ForkedWorker(LinkedWorker):
    """A worker that takes a hundredth of a second to start."""

    def __init__(
        self,
        python: str,
        root: Path,
        begin: bytes,
        *,
        environ: Mapping[str, str],
        tell: Callable[[bytes], None],
        shared: bool = True,
        placement: Placement = OWN,
        on_frame: Callable[[Frame], None],
        on_exit: Callable[[], None],
        on_print: Callable[[int, bytes], None] | None = None,
    ) -> None:
        """`tell` gets what the worker prints."""
        assert (python, placement) == (sys.executable, OWN), "another kind of worker needs `hosted`"
        board = Board() if shared else None
        super().__init__(begin, board, on_frame=on_frame, on_exit=on_exit)
        ours, theirs = socket.socketpair()
        self._output, output = os.pipe()
        fds = [theirs.fileno(), output, *([] if board is None else [board.fd])]
        self._pid, self._end = ask(template(), {"root": str(root), "environ": dict(environ)}, *fds)
        theirs.close()
        os.close(output)
        self._tell = tell
        self._lines = LabelledLines(f"worker {self._pid}", on_print)
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._pass_on)
        self._tasks = [self._loop.create_task(self._connect(ours)), self._loop.create_task(self._wait())]

    @property
    def pid(self) -> int:
        return self._pid

    def kill(self) -> None:
        if not self._over:
            for end in (os.killpg, os.kill):  # it leads no group yet if it was forked just now
                with contextlib.suppress(ProcessLookupError):
                    end(self._pid, signal.SIGKILL)

    async def _wait(self) -> None:
        ended = asyncio.Event()
        self._loop.add_reader(self._end, ended.set)
        await ended.wait()
        self._loop.remove_reader(self._end)
        self.exit_code = int(os.read(self._end, 100) or -signal.SIGKILL)
        os.close(self._end)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        await self._read_last_frames()
        while self._pass_on():
            pass
        self._loop.remove_reader(self._output)
        os.close(self._output)
        self._tell(b"".join(self._lines.close()))
        self._report_end()

    def _pass_on(self) -> bool:
        try:
            data = os.read(self._output, 65536)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._output)
        lines = self._lines.feed(data)
        self.last_line = lines[-1] if lines else self.last_line
        self._tell(b"".join(lines))
        return bool(data)


def spawn(python: str, root: Path, begin: bytes, *, placement: Placement = OWN, **options: Any) -> LinkedWorker:
    """A worker that is forked where it can be, and else started. What it prints goes to stderr, as usual."""
    if (python, placement) != (sys.executable, OWN):
        return WorkerProcess(python, root, begin, placement=placement, **options)
    return ForkedWorker(python, root, begin, environ=os.environ, tell=_tell, **options)


def _tell(lines: bytes) -> None:
    if lines:
        complaints().send(lines)
