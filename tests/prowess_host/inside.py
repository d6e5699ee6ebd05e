"""A host inside the process of a test, with workers that are forked: for what a host does with files, calls and workers.

A host and its worker take a third of a second of processor time to start, nearly all of it for imports. Here the project
and the connection run in the test itself, and workers are forked from a process that has imported everything (`forked`).
Links, workers, their deaths and their output are real. How processes are started, found and ended is tested with `hosted`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

from forked import ForkedWorker
from patience import PATIENCE
from piped import HANDSHAKE, Client, until

from prowess.settings.settings import Settings
from prowess_host.connection import Connection
from prowess_host.project import Project
from prowess_host.protocol.identity import Server
from prowess_host.workers.lifecycle import State

__all__ = ["Inside", "inside"]


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
        self._notifying = asyncio.ensure_future(self._notify())

    def send(self, message: Any) -> None:
        self.connection.receive(json.dumps(message).encode())

    async def out_of_time(self, name: str, /, **arguments: Any) -> None:
        """Call a command that outlasts its time and costs its worker its life.

        On a busy machine the time may be up before the command begins. That costs no worker, and is tried again.
        """
        while True:
            pid = await self.worker()
            [worker] = self.project.workers.pools.own.workers
            answer = await self.call(name, **arguments)
            assert answer["_meta"]["prowess/kind"] == "timeout"
            await until(lambda worker=worker: worker.state is State.GONE or not worker.may_linger)
            if not worker.gets_calls:
                await until(lambda pid=pid: pid not in self.living)
                return

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
