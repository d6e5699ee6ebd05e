"""A small real client: it starts a real host as a process, and talks to it over real pipes.

Whatever the host says is checked as it arrives: one line is one valid message of the revision, every request has one
answer, and nothing is said to nobody. Every wait is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

from anyio import fail_after
from mcp_types import jsonrpc, methods

PATIENCE = 20.0
HANDSHAKE = "2025-11-25"
STATELESS = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
MARK = "PIPED_MARK"

Message = dict[str, Any]


def write_skill(project: Path, name: str, body: str) -> Path:
    """A skill file with the usual imports."""
    file = project / "skills" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    head = "from __future__ import annotations\nimport asyncio, os, subprocess, sys, threading, time\n"
    file.write_text(f"{head}from prowess import Context, SkillError, skill_command\n{textwrap.dedent(body)}")
    return file


def make_project(root: Path, /, settings: str = "", **skills: str) -> Path:
    """A project with these skills, and a cache of its own."""
    (root / "skills").mkdir(parents=True, exist_ok=True)
    (root / "prowess.toml").write_text(f'cache_dir = "cache"\n{textwrap.dedent(settings)}')
    for name, body in skills.items():
        write_skill(root, f"{name}.py", body)
    return root


async def until(condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """What the condition gives as soon as it is true."""
    with fail_after(patience):
        while not (found := condition()):  # noqa: ASYNC110 - files and processes send no events
            await asyncio.sleep(0.005)
        return found


def processes(mark: str) -> dict[int, str]:
    """The living processes that come from a host, by id: how they were started."""
    found: dict[int, str] = {}
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


class Client:
    """One host, and what it said."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str, version: str) -> None:
        self.process = process
        self.mark = mark
        self.version = version
        self.capabilities: Message = {}
        self.faults: list[str] = []
        self.notes: list[Message] = []
        self.asked: list[Message] = []
        """Requests of the host."""
        self.errors_without_id: list[Message] = []
        self.stderr = ""
        self._numbers = itertools.count(1)
        self._waiting: dict[Any, tuple[str, str, asyncio.Future[Message]]] = {}
        self._abandoned: set[Any] = set()
        self._news = asyncio.Condition()
        self._readers = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._read_stderr())]

    @property
    def pid(self) -> int:
        return self.process.pid

    # Reading

    async def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while line := await stream.readline():
            try:
                self._take(line)
            except Exception as error:  # noqa: BLE001 - told at the end
                self.faults.append(f"{error!r} in {line[:300]!r}")
            async with self._news:
                self._news.notify_all()
        for _, _, future in self._waiting.values():
            if not future.done():
                future.set_exception(EOFError("the host has left without an answer"))
                future.exception()

    def _take(self, line: bytes) -> None:
        assert line.endswith(b"\n"), "an unfinished line"
        data = json.loads(line)
        for message in data if isinstance(data, list) else [data]:
            self._take_message(message)

    def _take_message(self, message: Message) -> None:
        known = message if "id" in message or "method" in message else {**message, "id": None}
        jsonrpc.jsonrpc_message_adapter.validate_python(known)  # the types know null where the schemas leave the id out
        if "method" in message:
            if "id" in message:
                methods.parse_server_request(message["method"], self.version, message.get("params"))
                self.asked.append(message)
            else:
                tagged = message.get("params", {}).get("_meta", {})
                version = STATELESS if "io.modelcontextprotocol/subscriptionId" in tagged else self.version
                methods.parse_server_notification(message["method"], version, message.get("params"))
                self.notes.append(message)
        elif message.get("id") is None:
            self.errors_without_id.append(message)
        else:
            self._take_answer(message)

    def _take_answer(self, message: Message) -> None:
        method, version, future = self._waiting.pop(message["id"])
        assert message["id"] not in self._abandoned, "an answer to a cancelled request"
        if "result" in message:
            methods.validate_server_result(method, version, message["result"])
        if not future.done():
            future.set_result(message)

    async def _read_stderr(self) -> None:
        stream = self.process.stderr
        assert stream is not None
        while data := await stream.read(65536):
            self.stderr += data.decode("utf-8", "replace")

    # Speaking

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def send(self, message: Any) -> None:
        """One line."""
        self.write(json.dumps(message).encode() + b"\n")

    def expect(
        self, request_id: Any, method: str = "tools/call", version: str | None = None
    ) -> asyncio.Future[Message]:
        """The answer to a request that is sent by hand."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = (method, version or self.version, future)
        return future

    def request(self, method: str, request_id: Any = None, /, **params: Any) -> asyncio.Future[Message]:
        """Send a request in the manner of the revision; gives its answer to be."""
        number = next(self._numbers) if request_id is None else request_id
        future = self.expect(number, method)
        self.send(self.message(number, method, params))
        future.number = number  # type: ignore[attr-defined]
        return future

    def message(self, number: Any, method: str, params: Message) -> Message:
        if self.version == STATELESS:
            meta = {VERSION_KEY: STATELESS, CAPABILITIES_KEY: self.capabilities, **params.get("_meta", {})}
            params = {**params, "_meta": meta}
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    def notify(self, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def cancel(self, answer: Any) -> None:
        """Give up a request."""
        self._abandoned.add(answer.number)
        self.notify("notifications/cancelled", requestId=answer.number)

    def start_call(self, name: str, /, *, progress: Any = None, extra: Message | None = None, **arguments: Any) -> Any:
        params: Message = {"name": name, "arguments": arguments, **(extra or {})}
        if progress is not None:
            params["_meta"] = {"progressToken": progress}
        return self.request("tools/call", **params)

    async def call(self, name: str, /, **arguments: Any) -> Message:
        """The result of a command."""
        return await result(self.start_call(name, **arguments))

    async def text(self, name: str, /, **arguments: Any) -> str:
        """The text of the result of a command."""
        return (await self.call(name, **arguments))["content"][0]["text"]

    async def tools(self) -> list[str]:
        """The names of all tools."""
        return [tool["name"] for tool in (await result(self.request("tools/list")))["tools"]]

    async def ask(self, method: str, **params: Any) -> Message:
        """The result of a request."""
        return await result(self.request(method, **params))

    async def open(self, capabilities: Message | None = None) -> None:
        """The handshake, where there is one."""
        self.capabilities = capabilities or {}
        if self.version != STATELESS:
            told = {"capabilities": self.capabilities, "clientInfo": {"name": "piped", "version": "1"}}
            await self.ask("initialize", protocolVersion=self.version, **told)
            self.notify("notifications/initialized")

    async def news(self, find: Callable[[], Any]) -> Any:
        """What `find` gives as soon as it finds something among the messages."""
        with fail_after(PATIENCE):
            async with self._news:
                while not (found := find()):
                    assert not self._readers[0].done(), f"the host has left\n{self.stderr}"
                    await self._news.wait()
                return found

    async def noted(self, method: str, count: int = 1) -> Message:
        """The n-th notification of a method."""
        found = await self.news(lambda: [note for note in self.notes if note["method"] == method][count - 1 :])
        return found[0]

    async def question(self, count: int = 1) -> Message:
        """The n-th request of the host."""
        return (await self.news(lambda: self.asked[count - 1 :]))[0]

    async def heard(self, text: str) -> None:
        """Wait until stderr has said this."""
        await until(lambda: text in self.stderr)

    # Processes

    def workers(self) -> list[int]:
        """The worker processes."""
        return sorted(pid for pid, command in processes(self.mark).items() if "prowess.worker" in command)

    async def worker(self) -> int:
        """The one worker."""
        return (await until(lambda: len(found := self.workers()) == 1 and found))[0]

    async def barrier(self) -> None:
        """Everything sent so far has been read."""
        with fail_after(PATIENCE):
            await self.request("tools/list")

    # Leaving

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def ended(self) -> int:
        """The exit code, once the host has left and all it said is read."""
        with fail_after(PATIENCE):
            code = await self.process.wait()
            await asyncio.gather(*self._readers)
        return code

    async def leave(self) -> int:
        """Close the input; gives the exit code."""
        self.close_input()
        return await self.ended()

    async def alone(self) -> None:
        """No process is left behind."""
        await until(lambda: not processes(self.mark))

    async def finish(self) -> None:
        """Leave if need be, and judge."""
        if self.process.returncode is None:
            self.close_input()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self.process.wait()
            if self.process.returncode is None:
                self.process.kill()
                self.faults.append("the host did not leave at the end of its input")
        await self.ended()
        await self.alone()
        assert self.faults == [], f"{self.faults}\n{self.stderr}"


async def result(answer: asyncio.Future[Message]) -> Message:
    """The result of a request; an error is a failure."""
    with fail_after(PATIENCE):
        message = await answer
    assert "result" in message, message
    return message["result"]


async def error(answer: asyncio.Future[Message]) -> Message:
    """The error a request is answered with."""
    with fail_after(PATIENCE):
        message = await answer
    assert "error" in message, message
    return message["error"]


@contextlib.asynccontextmanager
async def hosted(
    project: Path,
    *options: str,
    version: str = HANDSHAKE,
    capabilities: Message | None = None,
    env: Mapping[str, str] | None = None,
    opened: bool = True,
) -> AsyncGenerator[Client]:
    """A host that serves a project, with the handshake done."""
    mark = uuid.uuid4().hex
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prowess_host", "--project", str(project), *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        limit=1 << 28,
        env={**os.environ, MARK: mark, **(env or {})},
    )
    client = Client(process, mark, version)
    try:
        if opened:
            await client.open(capabilities)
        yield client
        await client.finish()
    finally:
        for pid in processes(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if process.returncode is None:
            await process.wait()
