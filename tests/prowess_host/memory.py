"""Clients of a project in this process: real connections and real workers, with lists in the place of pipes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import forked
from anyio import fail_after
from patience import PATIENCE
from piped import CAPABILITIES_KEY, HANDSHAKE, STATELESS, VERSION_KEY

from prowess.settings.settings import Settings
from prowess_host.connection import Connection
from prowess_host.project import Project
from prowess_host.protocol.codec import decode
from prowess_host.protocol.identity import Server
from prowess_host.workers.process import Spawn

Message = dict[str, Any]


class Pipe:
    """The way to a client: what is written, and how much of it the client has not read."""

    def __init__(self) -> None:
        self.backlog = 0
        self.is_read = True
        self.is_dead = False
        self.messages: list[Message] = []
        self.news = asyncio.Condition()
        self._unread: list[bytes] = []

    def write(self, line: bytes, *, more: bool = False) -> None:  # noqa: ARG002 - the protocol's signature
        if self.is_dead or not line:
            return
        self.backlog += len(line)
        self._unread.append(line)
        if self.is_read:
            asyncio.get_running_loop().call_soon(self.read)

    def read(self) -> None:
        """The client takes everything that was written."""
        for line in b"".join(self._unread).splitlines():
            self.messages.append(json.loads(line))
        self._unread, self.backlog = [], 0
        self._told = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        async with self.news:
            self.news.notify_all()


class MemoryClient:
    """One client of one era."""

    def __init__(self, project: Project, version: str, allows: Callable[..., bool] | None = None) -> None:
        self.version = version
        self.pipe = Pipe()
        now = asyncio.get_running_loop().time
        self.connection = Connection(project, Server("memory", "1"), self.pipe, now, allows=allows)
        self._numbers = itertools.count(1)

    def send(self, message: Message) -> None:
        self.connection.receive(_line(message))

    def send_by(self, back: Pipe, *messages: Message) -> None:
        """Send messages, more than one as a batch, whose answers go another way."""
        lines = [_line(message) for message in messages]
        self.connection.take(decode(lines[0] if len(lines) == 1 else b"[%b]" % b",".join(lines)), back)

    def request(self, method: str, **params: Any) -> int:
        """Send a request; gives its id."""
        number = next(self._numbers)
        if self.version == STATELESS:
            meta = {VERSION_KEY: STATELESS, CAPABILITIES_KEY: {"elicitation": {}}, **params.get("_meta", {})}
            params = {**params, "_meta": meta}
        self.send({"id": number, "method": method, "params": params})
        return number

    def start_call(self, name: str, /, *, extra: Message | None = None, **arguments: Any) -> int:
        return self.request("tools/call", name=name, arguments=arguments, **(extra or {}))

    async def found(self, find: Callable[[Message], Any]) -> Message:
        """The first message for which this is true."""
        with fail_after(PATIENCE):
            async with self.pipe.news:
                while True:
                    for message in self.pipe.messages:
                        if find(message):
                            return message
                    await self.pipe.news.wait()

    async def answer(self, number: int) -> Message:
        """The answer to a request."""
        return await self.found(lambda message: message.get("id") == number and "method" not in message)

    async def ask(self, method: str, **params: Any) -> Message:
        """The result of a request."""
        return (await self.answer(self.request(method, **params)))["result"]

    async def text(self, name: str, /, **arguments: Any) -> str:
        """The text of the result of a command."""
        return text_of(await self.answer(self.start_call(name, **arguments)))

    async def noted(self, method: str) -> Message:
        """A notification."""
        return await self.found(lambda message: message.get("method") == method)

    def notes(self, method: str) -> list[Message]:
        """The notifications of a method so far."""
        return [message for message in self.pipe.messages if message.get("method") == method]

    async def open(self) -> None:
        """The handshake, or the subscription of a client without one."""
        if self.version == STATELESS:
            self.request("subscriptions/listen", notifications={"toolsListChanged": True})
        else:
            told = {"capabilities": {"elicitation": {}}, "clientInfo": {"name": "memory", "version": "1"}}
            await self.ask("initialize", protocolVersion=self.version, **told)
            self.send({"method": "notifications/initialized"})


def _line(message: Message) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def text_of(answer: Message) -> str:
    return answer["result"]["content"][0]["text"]


@contextlib.asynccontextmanager
async def served(root: Path, spawn: Spawn = forked.spawn) -> AsyncGenerator[Project]:
    """A project that is served, and closed at the end."""
    project = Project(Settings.load(root, environ={}, flags={}), {}, {}, spawn)
    project.start()
    try:
        yield project
    finally:
        await project.close()


async def clients(project: Project, count: int) -> list[MemoryClient]:
    """So many clients, of both eras by turns."""
    made = [MemoryClient(project, (HANDSHAKE, STATELESS)[number % 2]) for number in range(count)]
    await asyncio.gather(*(client.open() for client in made))
    return made
