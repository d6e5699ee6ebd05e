"""A real MCP session with a host over pipes: start, handshake, list of tools, end.

A minimal client, which sees what any client would see.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final, cast

from prowess.frozen import frozen
from prowess.jsontypes import JsonObject
from prowess_host.clients.launches import Launch

__all__ = ["SessionResult", "run_session"]

_VERSION: Final = "2025-06-18"
_LONGEST_LINE: Final = 1 << 28
_ENDING: Final = 10.0
"""Seconds that the host gets to exit after the end of its input. It needs a tenth of a second."""
_LAST_LINES: Final = 20


@frozen
class SessionResult:
    """The result of a session."""

    tools: tuple[JsonObject, ...] = ()
    initialized: float | None = None
    """Seconds from the start of the process to the answer to the handshake."""
    listed: float | None = None
    """Seconds from the start of the process to the list of tools."""
    server: str = ""
    """The name and version of the server."""
    failure: str | None = None
    """The reason if there is no list of tools, else `None`."""
    stderr: tuple[str, ...] = field(default=())
    """The last lines that the host and its workers wrote."""


async def run_session(launch: Launch, environ: Mapping[str, str], folder: Path, *, patience: float) -> SessionResult:
    """Start a launch in an environment and a folder, and list its tools. Failures of the host are part of the result."""
    began = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            launch.command,
            *launch.args,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=_LONGEST_LINE,
            env=dict(environ),
            cwd=folder,
        )
    except OSError as error:
        return SessionResult(failure=f"cannot be started: {error.filename or launch.command}: {error.strerror}")
    said: list[str] = []
    listening = asyncio.ensure_future(_listen(cast("asyncio.StreamReader", process.stderr), said))
    talk = _Talk(process, began)
    try:
        async with asyncio.timeout(patience):
            await talk.hold()
        session = talk.session
    except TimeoutError:
        session = replace(talk.session, failure=f"no list of tools in {patience:g} seconds")
    except (OSError, ValueError, EOFError) as error:
        session = replace(talk.session, failure=str(error) or type(error).__name__)
    finally:
        await _end(process)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ENDING):
            await listening
    return replace(session, stderr=tuple(said[-_LAST_LINES:]))


async def _listen(stream: asyncio.StreamReader, said: list[str]) -> None:
    while line := await stream.readline():
        said.append(line.decode("utf-8", "replace").rstrip())


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the input, as a client that leaves, and kill the host if it does not exit."""
    cast("asyncio.StreamWriter", process.stdin).close()
    try:
        async with asyncio.timeout(_ENDING):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class _Talk:
    """The messages of one session."""

    def __init__(self, process: asyncio.subprocess.Process, began: float) -> None:
        self.session = SessionResult()
        self._process = process
        self._began = began
        self._number = 0

    async def hold(self) -> None:
        info = {"name": "prowess-connect", "version": "1"}
        hello = await self._ask("initialize", protocolVersion=_VERSION, capabilities={}, clientInfo=info)
        server = cast("JsonObject", hello.get("serverInfo", {}))
        name = f"{server.get('name', '')} {server.get('version', '')}".strip()
        self.session = replace(self.session, initialized=self._elapsed(), server=name)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools: list[JsonObject] = []
        page = await self._ask("tools/list")
        tools += page["tools"]
        while page.get("nextCursor") is not None:
            page = await self._ask("tools/list", cursor=page["nextCursor"])
            tools += page["tools"]
        self.session = replace(self.session, tools=tuple(tools), listed=self._elapsed())

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _send(self, message: JsonObject) -> None:
        cast("asyncio.StreamWriter", self._process.stdin).write(json.dumps(message).encode() + b"\n")

    async def _ask(self, method: str, **params: Any) -> JsonObject:
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        stream = cast("asyncio.StreamReader", self._process.stdout)
        while line := await stream.readline():
            try:
                message: Any = json.loads(line)
            except ValueError:
                shown = line[:80].decode("utf-8", "replace").strip()
                raise ValueError(f"wrote something to its output that is not an MCP message: {shown!r}") from None
            if isinstance(message, dict) and cast("JsonObject", message).get("id") == self._number:
                return self._result(method, cast("JsonObject", message))
        raise EOFError(f"ended before it answered {method} (exit code {await self._process.wait()})")

    def _result(self, method: str, message: JsonObject) -> JsonObject:
        if isinstance(result := message.get("result"), dict):
            return cast("JsonObject", result)
        error = cast("JsonObject", message.get("error", {}))
        raise ValueError(f"answered {method} with an error: {error.get('message', 'no result')}")
