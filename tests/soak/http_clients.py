"""A client of a server over HTTP, which does what a client over pipes does: each request is a POST of its own.

It has no session, so it is told of no changes, and gives nothing up: there a request ends with its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from clients import STATELESS, Client, Gone, Message
from health import MARK
from patience import PATIENCE

__all__ = ["WebClient"]

_SERVE = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", "serve", "--port", "0", "--project"]
_NAMES = {"tools/call": "name", "resources/read": "uri", "tasks/get": "taskId"}
"""The parameter that a header repeats, by method."""


class WebClient(Client):
    """One server and everything it owes."""

    is_web = True

    async def start(self, project: Path, environment: Mapping[str, str], folder: Path) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - takes a millisecond
                [*_SERVE, str(project)],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={**os.environ, **environment, MARK: self.mark, "SOAK_JOURNAL": str(self._journal_path)},
            )
        assert self.process.stdout is not None
        told = await asyncio.to_thread(self.process.stdout.readline)
        self._port = int(told.partition(b" at ")[2].partition(b"/mcp")[0].rpartition(b":")[2])
        self._threads = ThreadPoolExecutor(64)
        self._posts: set[asyncio.Task[None]] = set()

    def close_input(self) -> None:
        self.leaving = True
        self.process.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE):
            code = await asyncio.to_thread(self.process.wait)
        await asyncio.gather(*self._posts)
        self._on_end(b"")
        self.journal.read()
        return code

    def release(self) -> None:
        self.process.kill()
        self.process.wait()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.journal.close()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def write(self, line: bytes, *, complaint: bool = False) -> None:
        assert not complaint, "nobody complains without an id over HTTP"
        if self.leaving:
            raise Gone
        self._event(f"> {line[:200]!r}")
        post = asyncio.ensure_future(self._post(line))
        self._posts.add(post)
        post.add_done_callback(self._posts.discard)

    async def room(self) -> None:
        """The threads are few enough."""

    async def _post(self, line: bytes) -> None:
        try:
            body = await self._loop.run_in_executor(self._threads, self._ask, line)
        except (OSError, http.client.HTTPException) as error:
            if not self.leaving:
                self.fault(f"no answer over HTTP: {error!r} to {line[:200]!r}")
            return
        for each in body:
            self._on_line(each)

    def _ask(self, line: bytes) -> list[bytes]:
        """The messages that a request is answered with, in a thread."""
        message: Message = json.loads(line)
        method = message["method"]
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": STATELESS,
            "Mcp-Method": method,
        }
        if method in _NAMES:
            headers["Mcp-Name"] = message["params"][_NAMES[method]]
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, PATIENCE)) as connection:
            connection.request("POST", "/mcp", line, headers)
            response = connection.getresponse()
            body = response.read()
        if (response.getheader("Content-Type") or "").startswith("text/event-stream"):
            return [each.removeprefix(b"data: ") for each in body.split(b"\n") if each.startswith(b"data: {")]
        return [body]
