"""Let an HTTP client drive a stdio MCP server: `python bridge.py --port 0 -- command of the server`.

One process serves every stateless (2026-07-28) request, and each handshake session has its own. The bridge knows
sessions, streams and status codes; it answers nothing in the server's place. The servers' faults end its own run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from stdio_server import MAX_MESSAGE, Message, Server, meta_of

__all__ = ["Bridge", "Http", "main"]

HANDSHAKE_VERSIONS = {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
STATUS_OF_ERROR = {-32700: 400, -32600: 400, -32601: 404, -32602: 400, -32020: 400, -32021: 400, -32022: 400}
LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}


@dataclass
class Http:
    """One request, and the one response that ends its connection."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter

    @classmethod
    async def read(cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Http:
        """Read a request. `ValueError` for what is none."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request, *lines = head.rstrip().split("\r\n")
        method, path, _ = request.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if length > MAX_MESSAGE:
            raise ValueError(f"a body of {length} bytes")
        return cls(method, path, headers, await reader.readexactly(length), writer)

    @property
    def is_local(self) -> bool:
        """A page of another origin, or a name that was made to point here, has no business with the server."""
        host = urlsplit("//" + self.headers.get("host", "")).hostname
        origin = self.headers.get("origin")
        return host in LOCAL_HOSTS and (origin is None or urlsplit(origin).hostname in LOCAL_HOSTS)

    def start(self, status: int, *headers: str) -> None:
        """Write the head of the response."""
        self.writer.write("\r\n".join([f"HTTP/1.1 {status} -", "Connection: close", *headers, "", ""]).encode())

    def reply(self, status: int, message: Message | None = None, *headers: str) -> None:
        """Write a whole response."""
        body = json.dumps(message).encode() if message else b""
        self.start(status, f"Content-Length: {len(body)}", "Content-Type: application/json", *headers)
        self.writer.write(body)

    def refuse(self, status: int, code: int, reason: str) -> None:
        """Say no in the bridge's own name: no server has seen this request."""
        self.reply(status, {"jsonrpc": "2.0", "error": {"code": code, "message": f"bridge: {reason}"}})

    async def event(self, message: Message) -> None:
        """Write one event of a stream."""
        self.writer.write(b"data: " + json.dumps(message).encode() + b"\n\n")
        await self.writer.drain()


class Bridge:
    """The endpoint: which process a request belongs to, and how its messages become one HTTP response."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._shared: Server | None = None
        self._sessions: dict[str, Server] = {}
        self._servers: list[Server] = []
        self._starting = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                await self._dispatch(await Http.read(reader, writer), reader)
            except (ValueError, asyncio.LimitOverrunError) as error:
                Http("", "", {}, b"", writer).refuse(400, -32700, str(error))
            await writer.drain()
        writer.close()

    async def close(self) -> list[str]:
        """Close every server; what any of them did wrong."""
        remaining = [*self._sessions.values(), *([self._shared] if self._shared else [])]
        await asyncio.gather(*(server.close() for server in remaining), *self._leaving)
        return [fault for server in self._servers for fault in server.faults]

    async def _dispatch(self, http: Http, reader: asyncio.StreamReader) -> None:
        if not http.is_local:
            http.refuse(403, -32600, "only local hosts and origins may call")
        elif http.path != "/mcp":
            http.refuse(404, -32600, f"no such path: {http.path}")
        elif http.method == "DELETE":
            http.reply(204 if self._leave(http.headers.get("mcp-session-id", "")) else 404)
        elif http.method != "POST":
            http.reply(405, None, "Allow: POST, DELETE")
        elif isinstance(message := json.loads(http.body), dict):
            await self._forward(cast("Message", message), http, reader)
        else:
            http.refuse(400, -32600, "one message to a request, no batches")

    async def _forward(self, message: Message, http: Http, reader: asyncio.StreamReader) -> None:
        """Find the process. A version header of no handshake, or an envelope, says that the request stands alone."""
        version = http.headers.get("mcp-protocol-version", "2025-11-25")
        session = http.headers.get("mcp-session-id")
        if version not in HANDSHAKE_VERSIONS or VERSION_KEY in meta_of(message):
            await self._forward_alone(message, http, reader)
        elif session is None and message.get("method") == "initialize":
            await self._enter(message, http, reader)
        elif session is None:
            http.refuse(400, -32600, "neither a session id nor a version that stands alone")
        elif (server := self._sessions.get(session)) is None:
            http.refuse(404, -32600, "no such session")
        elif "method" in message and "id" in message:
            await self._stream(server, message, http, reader)
        else:
            await server.notify(message)
            http.reply(202)

    async def _forward_alone(self, message: Message, http: Http, reader: asyncio.StreamReader) -> None:
        if "method" not in message:
            http.refuse(400, -32600, "an answer, where no server may ask")
        elif "id" not in message:
            http.reply(202)  # closing the stream is the one way to cancel here, and there is nothing else to notify
        else:
            async with self._starting:
                if self._shared is None or self._shared.ended:
                    self._shared = await self._start(stateless=True)
            await self._stream(self._shared, message, http, reader)

    async def _stream(
        self, server: Server, message: Message, http: Http, reader: asyncio.StreamReader, *headers: str
    ) -> dict[str, Any] | None:
        """One request to its end: a lone answer is JSON, anything more a stream. Returns the answer, if one came."""
        key, call = await server.request(message)
        watch = asyncio.create_task(reader.read())
        watch.add_done_callback(lambda _: call.inbox.put_nowait(None))
        streaming = False
        try:
            while news := await call.inbox.get():
                is_answer = "method" not in news
                if is_answer and not streaming:
                    error = news.get("error", {}).get("code")
                    http.reply(STATUS_OF_ERROR.get(error, 200) if server.stateless else 200, news, *headers)
                    return news
                if not streaming:
                    http.start(200, "Content-Type: text/event-stream", "Cache-Control: no-store", *headers)
                    streaming = True
                await http.event(news)
                if is_answer:
                    return news
            return None
        finally:
            watch.cancel()
            if server.stateless:  # a handshake client that drops its stream has not cancelled anything
                await server.abandon(key)

    async def _start(self, *, stateless: bool) -> Server:
        server = await Server.start(self._command, stateless=stateless)
        self._servers.append(server)
        return server

    async def _enter(self, message: Message, http: Http, reader: asyncio.StreamReader) -> None:
        """Start a session, which lives only if the server agrees."""
        session = uuid.uuid4().hex
        server = self._sessions[session] = await self._start(stateless=False)
        answer = await self._stream(server, message, http, reader, f"Mcp-Session-Id: {session}")
        if answer is None or "error" in answer:
            self._leave(session)

    def _leave(self, session: str) -> bool:
        """Forget a session; its process may take its time to end."""
        server = self._sessions.pop(session, None)
        if server is None:
            return False
        task = asyncio.create_task(server.close())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return True


async def serve(port: int, command: list[str]) -> list[str]:
    """Serve until a signal comes; say where on stdout, and return the faults seen."""
    bridge, stop = Bridge(command), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    listener = await asyncio.start_server(bridge.handle, "127.0.0.1", port)
    sys.stdout.write(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp\n")
    sys.stdout.flush()
    await stop.wait()
    listener.close()
    return await bridge.close()


def main() -> int:
    """Run until told to stop; 1 if a server did what none may do."""
    parser = argparse.ArgumentParser(description="Serve a stdio MCP server over HTTP on this machine.")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    parser.add_argument("command", nargs="+", help="the server's command, after --")
    arguments = parser.parse_args()
    faults = asyncio.run(serve(arguments.port, arguments.command))
    for fault in dict.fromkeys(faults):
        sys.stderr.write(f"bridge: {fault}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
