"""A host inside the process of a test, with workers that are forked: for what a host does with files, calls and workers.

A host and its worker take a third of a second of processor time to start, nearly all of it for imports. Here the project
and the connection run in the test itself, and workers are forked from a process that has imported everything (`template`).
Links, workers, their deaths and their output are real. How processes are started, found and ended is tested with `hosted`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

from patience import PATIENCE
from piped import HANDSHAKE, Client, until

from prowess.settings.settings import Settings
from prowess.worker.board import Board
from prowess.worker.link import Frame
from prowess_host.connection import Connection
from prowess_host.project import Project
from prowess_host.protocol.identity import Server
from prowess_host.workers.linked import LinkedWorker
from prowess_host.workers.output import LabelledLines
from prowess_host.workers.placement import OWN, Placement

__all__ = ["Inside", "inside"]


@functools.cache
def template() -> socket.socket:
    """The socket of the process that workers are forked from. It ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-P", str(Path(__file__).with_name("template.py")), str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


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
        self._end, end = os.pipe()
        fds = [theirs.fileno(), output, end, *([] if board is None else [board.fd])]
        request = {"root": str(root), "environ": dict(environ)}
        socket.send_fds(template(), [json.dumps(request).encode()], fds)
        self._pid = int(template().recv(100))
        theirs.close()
        os.close(output)
        os.close(end)
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
        await self._hear_last_words()
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


class Inside(Client):
    """A client of a host in this process. It does what a client over pipes does, but for the bytes."""

    def __init__(self, root: Path, version: str, environ: Mapping[str, str]) -> None:
        super().__init__(None, version)  # type: ignore[arg-type]
        self.living: dict[int, ForkedWorker] = {}
        self._environ = environ
        settings = Settings.load(root, environ=environ, flags={})
        self.project = Project(settings, {}, environ, self._spawn)
        self.connection = Connection(self.project, Server("inside", "1"), self, self._loop.time)
        self.project.start()

    async def _read(self) -> None:
        """What the host says comes by `write_line`."""

    async def _read_stderr(self) -> None:
        """As above: by `tell`."""

    @functools.cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def _spawn(self, *arguments: Any, on_exit: Callable[[], None], **options: Any) -> ForkedWorker:
        def ended() -> None:
            self.living.pop(worker.pid, None)
            on_exit()

        worker = ForkedWorker(*arguments, environ=self._environ, tell=self.tell, on_exit=ended, **options)
        self.living[worker.pid] = worker
        return worker

    def tell(self, lines: bytes) -> None:
        """What would be on stderr."""
        self.stderr += lines.decode("utf-8", "replace")

    # The transport of the connection, and what is sent to it

    backlog = 0

    def write(self, data: bytes, *, more: bool = False) -> None:  # noqa: ARG002 - the protocol's signature
        """Lines of the host."""
        self._loop.call_soon(self._take, data)

    def _take(self, data: bytes) -> None:
        for line in data.splitlines(keepends=True):
            self.take_line(line)
        self._telling = asyncio.ensure_future(self._tell_news())

    def send(self, message: Any) -> None:
        self.connection.receive(json.dumps(message).encode())

    # Its life

    def workers(self) -> list[int]:
        return sorted(self.living)

    async def finish(self) -> None:
        self.connection.close()
        await self.project.close()
        await until(lambda: not self.living)
        assert self.faults == [], f"{self.faults}\n{self.stderr}"


class _Log(logging.Handler):
    """What the host logs, as it would be on stderr."""

    def __init__(self, tell: Callable[[bytes], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(f"prowess: {record.getMessage()}\n".encode("utf-8", "backslashreplace"))


@contextlib.asynccontextmanager
async def inside(
    project: Path,
    *,
    version: str = HANDSHAKE,
    capabilities: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    opened: bool = True,
) -> AsyncGenerator[Inside]:
    """A host in this process that serves a project, with the handshake done."""
    host = Inside(project, version, {**os.environ, **(env or {})})
    log, logger = _Log(host.tell), logging.getLogger("prowess")
    logger.addHandler(log)
    logger.propagate = False  # pytest cannot hand on what is no Unicode, like the name of a file
    try:
        if opened:
            await host.open(capabilities, PATIENCE)
        yield host
    finally:
        try:
            await host.finish()
        finally:
            logger.removeHandler(log)
            logger.propagate = not logger.handlers
