"""`serve_stdio`: one client at stdin and stdout, from its first byte to the end of this process."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Final

from prowess.jsontypes import JsonObject
from prowess.settings.settings import Settings
from prowess.worker.heap import LARGE, give_back_soon
from prowess_host.connection import Connection
from prowess_host.project import Project
from prowess_host.protocol.identity import Server
from prowess_host.protocol.lines import LineSplitter, Oversized
from prowess_host.protocol.numbers import MOST_DIGITS
from prowess_host.threads import in_own_thread
from prowess_host.transports.claim import Claim
from prowess_host.transports.pipes import Reader, Writer
from prowess_host.workers.launch import Launched
from prowess_host.workers.process import spawner
from prowess_host.workers.process_tree import end_remaining, reap_orphans

__all__ = ["StdioHost", "serve_stdio"]

_FLUSH: Final = 5.0
"""Seconds without a byte after which a client counts as not reading when the host ends. On a busy machine, a client that
wants its answers may get no processor for some seconds."""
_LOOK: Final = 0.005
"""Seconds between two checks for running calls, at end of input."""
_LOOK_AGAIN: Final = 0.25
"""Seconds between two checks whether a slow client has read."""
_NOT_YET: Final = 60.0
"""Seconds that a call may wait for its start at end of input, while skills are described or its worker starts."""
_LONGEST: Final = 120.0
"""Seconds that all calls together get at end of input."""


async def serve_stdio(  # noqa: PLR0917 - called in one place
    wire: Claim,
    settings: Settings,
    version: str,
    flags: JsonObject,
    environ: Mapping[str, str],
    ahead: Launched | None = None,
) -> int:
    """Serve the client on claimed descriptors, and return the exit code. `ahead` is a worker that was started already."""
    if not 0 < sys.get_int_max_str_digits() <= MOST_DIGITS:  # the environment may lift the limit, for the workers
        sys.set_int_max_str_digits(MOST_DIGITS)
    project = Project(settings, flags, environ, spawner(ahead))
    return await StdioHost(wire, project, project.server(version)).run()


class StdioHost:
    """The one connection of a process, its pipes, and the signals that end it."""

    def __init__(self, wire: Claim, project: Project, server: Server) -> None:
        self._loop = asyncio.get_running_loop()
        self._writer = Writer(wire.writing, self._broken)
        self._reader = Reader(wire.reading, self._on_bytes)
        self._splitter = LineSplitter(project.own.host.max_line)
        self._project = project
        self._connection = Connection(project, server, self._writer, time.monotonic)
        self._ended = asyncio.Event()
        self._broke = False
        self._exit_code = 0

    async def run(self) -> int:
        """Serve, and return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._signalled, number)
        self._loop.add_signal_handler(signal.SIGCHLD, reap_orphans)
        self._reader.start()
        self._project.start()
        await self._ended.wait()
        self._reader.pause()
        await self._drain()
        await self._project.close()
        await asyncio.sleep(0)  # lines that were held back have been sent
        if self._writer.backlog:  # in a thread, so that a signal ends the host meanwhile
            await in_own_thread(self._writer.flush, 0.0 if self._broke else _FLUSH)
        return self._exit_code

    def _on_bytes(self, data: bytes) -> None:
        for line in self._splitter.feed(data) if data else self._splitter.close():
            if isinstance(line, Oversized) or len(line) >= LARGE:
                give_back_soon()
            self._connection.receive(line)
        if not data:
            self._ended.set()
        elif self._writer.backlog and self._writer.full:
            self._reader.pause()
            self._loop.call_later(_LOOK_AGAIN, self._resume_reading)

    def _resume_reading(self) -> None:
        """Continue reading when the client has read, or has left."""
        if self._ended.is_set():
            return
        if self._writer.full and not self._reader.has_left:
            self._loop.call_later(_LOOK_AGAIN, self._resume_reading)
        else:
            self._reader.start()

    def _signalled(self, number: int) -> None:
        """End gracefully; at a second signal, or if the host is already ending, exit at once."""
        self._exit_code = 128 + number
        if self._ended.is_set():
            end_remaining()
            os._exit(self._exit_code)
        self._ended.set()

    def _broken(self) -> None:
        """Called when the client has stopped reading."""
        self._broke = True
        self._ended.set()

    async def _drain(self) -> None:
        """Let the accepted calls finish, within bounds.

        The time of a call starts when it begins, and stands still while the worker gets no processor. For a call that waits
        for others, it starts when one of them has ended.
        """
        connection, clock = self._connection, self._project.workers.clock()
        end, due, before = self._loop.time() + _LONGEST, math.inf, None
        while connection.in_flight and not self._has_left and clock.read() < due and self._loop.time() < end:
            unbegun = 0 if self._exit_code else connection.unbegun
            state = (connection.in_flight, connection.running, unbegun)
            if state != before:
                due = clock.read() + max(self._project.own.host.drain, _NOT_YET if unbegun else 0.0)
                before = state
            await asyncio.sleep(_LOOK)

    @property
    def _has_left(self) -> bool:
        """Whether the client has stopped reading."""
        return self._broke or self._writer.has_left
