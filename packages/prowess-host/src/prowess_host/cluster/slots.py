"""The limit on calls at once of a command, kept over all hosts.

For each limited command the engine has one value: how many calls each host runs. A host that wants to begin another one
changes it if nobody else did meanwhile. What a host that is gone had written does not count. While the engine is gone, each
host keeps the limit among its own calls only.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from prowess.contracts.contract import Contract
from prowess_host.cluster.engine import Engine, Message
from prowess_host.cluster.errors import EngineError

__all__ = ["Slots"]

_log = logging.getLogger("prowess.cluster")
_LOOK: Final = 1.0
"""Seconds between two looks at a full command, in case the news was lost or a host has died."""


class Slots:
    """The calls of limited commands on this host, and the room for more."""

    def __init__(
        self, engine: Engine, me: str, alive: Callable[[], Awaitable[list[str]]], on_room: Callable[[], None]
    ) -> None:
        """`on_room` is called when it is worth asking `admits` again."""
        self._engine = engine
        self._me = me
        self._alive = alive
        self._on_room = on_room
        self._counts = engine.bucket("slots")
        self._subject = engine.subject("slots")
        self._commands: dict[str, _Command] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Hear of calls that end elsewhere."""
        self._engine.subscribe(self._subject, self._hear)
        self._engine.on_change(self._changed)

    def close(self) -> None:
        """Ask for nothing more."""
        for task in self._tasks:
            task.cancel()

    def admits(self, contract: Contract, job: object) -> bool:
        """Whether a call may begin now. If not, `on_room` says when to ask again."""
        command = self._command(contract)
        if job in command.running:
            return True
        if not self._engine.up or command.room > 0:
            command.waiting.discard(job)
            command.running.add(job)
            command.room = max(0, command.room - 1)
            return True
        command.waiting.add(job)
        self._work(command)
        return False

    def over(self, contract: Contract, job: object) -> None:
        """A call has ended, or will not begin."""
        command = self._command(contract)
        command.waiting.discard(job)
        if job in command.running:
            command.running.discard(job)
            self._work(command)

    def _command(self, contract: Contract) -> _Command:
        name = hashlib.sha256(f"{contract.id} {contract.digest}".encode()).hexdigest()
        command = self._commands.get(name)
        if command is None:
            command = self._commands[name] = _Command(name, contract.policies.concurrency or 1)
        return command

    def _work(self, command: _Command) -> None:
        command.news.set()
        if not command.at_work:
            command.at_work = True
            task = asyncio.ensure_future(self._agree(command))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _agree(self, command: _Command) -> None:
        """Bring the value of the engine in line with what runs here and, as far as there is room, wants to."""
        try:
            while self._engine.up and (command.waiting or command.written != len(command.running)):
                command.news.clear()
                try:
                    waits = await self._write(command)
                except EngineError as error:
                    _log.info("%s", error)
                    command.room, waits = len(command.waiting), True  # on our own, until the engine is well
                if command.room and command.waiting:
                    self._on_room()
                command.room = 0
                if waits:
                    await _patiently(command.news)
        finally:
            command.at_work = False
        if not self._engine.up and command.waiting:
            self._on_room()

    async def _write(self, command: _Command) -> bool:
        """Change the value once. Gives whether there is no room, so that one has to wait for news."""
        entry = await self._counts.get(command.name)
        counts: dict[str, int] = json.loads(entry.value) if entry is not None else {}
        counts.pop(self._me, None)
        wants = bool(command.waiting)
        if wants and sum(counts.values()) + len(command.running) >= command.most:
            alive = await self._alive()
            counts = {host: count for host, count in counts.items() if host in alive}
        has_room = sum(counts.values()) + len(command.running) < command.most
        mine = len(command.running) + (wants and has_room)
        is_same = entry is not None and json.loads(entry.value).get(self._me, 0) == mine
        if not is_same:
            value = json.dumps({**counts, self._me: mine} if mine else counts).encode()
            if await self._counts.update(command.name, value, entry.revision if entry is not None else 0) is None:
                return False  # somebody else was faster
        fewer = mine < command.written
        command.written, command.room = mine, mine - len(command.running)
        if fewer:
            self._engine.publish(self._subject, command.name.encode())
        return wants and not has_room

    # News

    def _hear(self, message: Message) -> None:
        command = self._commands.get(message.data.decode())
        if command is not None:
            command.news.set()

    def _changed(self) -> None:
        """The engine is gone, or back with or without what it knew."""
        for command in self._commands.values():
            command.written = -1
            self._work(command)


class _Command:
    """One limited command on this host."""

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self.most = most
        self.running: set[object] = set()
        self.waiting: set[object] = set()
        self.room = 0
        """Calls that the engine lets begin, and that have not begun."""
        self.written = 0
        """What the engine knows of us."""
        self.news = asyncio.Event()
        self.at_work = False


async def _patiently(news: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(news.wait(), _LOOK * random.uniform(0.5, 1.0))  # noqa: S311 - hosts that lost a race part
    except TimeoutError:
        return
