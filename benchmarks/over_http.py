"""Calls over HTTP: many clients at once, each with a connection of its own, against the HTTP servers of the peers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from client import children_environment, memory_of, processor_time_of, tree_of
from effort import Effort
from projects import FASTMCP, OURS, SDK, Subject
from report import Report

__all__ = ["OverHttp"]

_CLIENTS: Final = 64
_SESSIONS: Final = 100
_META: Final = "io.modelcontextprotocol/"
_STATELESS, _HANDSHAKE = "2026-07-28", "2025-11-25"
_PEERS: Final = {
    SDK: 'server.settings.log_level = "ERROR"; server.run("streamable-http", port={port})',
    FASTMCP: 'server.run("http", port={port}, show_banner=False, log_level="ERROR", uvicorn_config={{"access_log": False}})',
}
_PATIENCE: Final = 120.0


@dataclass
class OverHttp:
    """The servers, and where the samples go."""

    folder: Path
    subjects: Mapping[str, Subject]
    effort: Effort
    report: Report

    def calls(self) -> None:
        """Calls of both eras by clients that are all there at once, the servers in turn; then idle sessions."""
        with contextlib.ExitStack() as stack:
            keys = [OURS, SDK, FASTMCP]
            servers = {key: stack.enter_context(self._served(key, self.subjects[key])) for key in keys}
            for number in range(self.effort.rounds + 1):
                for key, server in servers.items():
                    for row, version in (("http_stateless", _STATELESS), ("http_handshake", _HANDSHAKE)):
                        found = asyncio.run(server.burst(version, self.effort.pipelined))
                        if number:
                            for name, value in found.items():
                                self.report.add(f"{row}_{name}", key, value)
        for key in (OURS, SDK, FASTMCP):
            with self._served(key, self.subjects[key]) as server:
                asyncio.run(server.open_sessions())
                self.report.add("http_sessions_pss", key, memory_of(tree_of(server.process.pid))[0])

    @contextlib.contextmanager
    def _served(self, key: str, subject: Subject) -> Iterator[_Server]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        if key == OURS:
            start = "from prowess_host.cli.main import main; main()"
            command = [sys.executable, "-c", start, "serve", "--project", str(subject.folder), "--port", str(port)]
        else:
            command = [sys.executable, "-c", f"from server import server; {_PEERS[key].format(port=port)}"]
        process = subprocess.Popen(
            command,
            cwd=subject.folder,
            env=children_environment(self.folder / "cache"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            server = _Server(process, port, f"{subject.prefix}echo")
            asyncio.run(server.wait())
            yield server
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


@dataclass
class _Server:
    process: subprocess.Popen[bytes]
    port: int
    tool: str

    async def wait(self) -> None:
        """Until it answers a call."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with self._client(_STATELESS) as client:
                    await client.call(0)
                    return
            await asyncio.sleep(0.05)
        raise TimeoutError

    async def burst(self, version: str, count: int) -> dict[str, float]:
        """So many calls by all clients together."""
        pids = tree_of(self.process.pid)
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(self._client(version)) for _ in range(_CLIENTS)]
            await asyncio.gather(*(client.call(0) for client in clients))  # so that all are connected, in both eras
            times: list[float] = []

            async def use(client: _Client) -> None:
                for number in range(count // _CLIENTS + 1):
                    before = time.perf_counter()
                    await client.call(number)
                    times.append(time.perf_counter() - before)

            spent, before = processor_time_of(pids), time.perf_counter()
            await asyncio.gather(*map(use, clients))
            seconds = time.perf_counter() - before
            spent = processor_time_of(pids) - spent
        times.sort()
        return {"rate": len(times) / seconds, "p99": times[int(len(times) * 0.99)], "processor": spent / len(times)}

    async def open_sessions(self) -> None:
        """Sessions that do nothing: their connections are closed."""
        for _ in range(_SESSIONS):
            async with self._client(_HANDSHAKE):
                pass

    @contextlib.asynccontextmanager
    async def _client(self, version: str) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        client = _Client(self, reader, writer, version)
        try:
            if version == _HANDSHAKE:
                await client.initialize()
            yield client
        finally:
            writer.close()


@dataclass
class _Client:
    server: _Server
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    version: str
    session: str = ""

    async def initialize(self) -> None:
        told = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        head, _ = await self._post({"id": 0, "method": "initialize", "params": told})
        self.session = head.split("mcp-session-id: ")[1].split("\r\n")[0]
        await self._post({"method": "notifications/initialized"})

    async def call(self, number: int) -> None:
        params: dict[str, Any] = {"name": self.server.tool, "arguments": {"value": number}}
        if self.version == _STATELESS:
            client = {"name": "bench", "version": "1"}
            own = {"protocolVersion": self.version, "clientCapabilities": {}, "clientInfo": client}
            params["_meta"] = {f"{_META}{name}": value for name, value in own.items()}
        _, body = await self._post({"id": number + 1, "method": "tools/call", "params": params})
        assert f'"text":"{number}"'.encode() in body.replace(b'": ', b'":'), body

    async def _post(self, message: dict[str, Any]) -> tuple[str, bytes]:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        fields = {
            "host": f"127.0.0.1:{self.server.port}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "content-length": len(data),
            "mcp-protocol-version": self.version,
        }
        if self.session:
            fields["mcp-session-id"] = self.session
        if self.version == _STATELESS:
            fields |= {"mcp-method": message["method"], "mcp-name": self.server.tool}
        head = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""])
        self.writer.write(head.encode() + data)
        answered = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = [line.partition(": ") for line in answered.split("\r\n")]
        told = "\r\n".join(f"{name.lower()}: {value}" for name, _, value in lines)
        if "content-length: " in told:
            return told, await self.reader.readexactly(int(told.split("content-length: ")[1].split("\r\n")[0]))
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return told, body
