"""The concurrency limit of a command, enforced over all hosts.

For each limited command the engine holds one value: the number of calls that each host runs. A host changes it with
compare-and-set before it begins a call. The numbers of hosts that are gone do not count. While the engine is down, each
host applies the limit to its own calls only.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from prowess.contracts.contract import Contract
from prowess_host.cluster.background import Background
from prowess_host.cluster.engine import EngineConnection, Message
from prowess_host.cluster.errors import EngineError

__all__ = ["ClusterSlots"]

_log = logging.getLogger("prowess.cluster")
_LOOK: Final = 1.0
"""Seconds between two looks at a full command, in case a message was lost or a host has died."""


class ClusterSlots:
    """Counts the calls of limited commands on this host, and decides when more may begin."""

    def __init__(
        self, engine: EngineConnection, me: str, alive: Callable[[], Awaitable[list[str]]], on_room: Callable[[], None]
    ) -> None:
        """`on_room` is called when `admits` may give another answer."""
        self._engine = engine
        self._me = me
        self._alive = alive
        self._on_room = on_room
        self._counts = engine.bucket("slots")
        self._subject = engine.subject("slots")
        self._commands: dict[str, _Command] = {}
        self._background = Background()

    def start(self) -> None:
        """Listen for calls that end on other hosts."""
        self._engine.subscribe(self._subject, self._on_news)
        self._engine.on_change(self._changed)

    async def close(self) -> None:
        """Cancel all tasks."""
        await self._background.close()

    def admits(self, contract: Contract, job: object) -> bool:
        """Whether a call may begin now. If not, `on_room` is called when to ask again."""
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
        """Note that a call has ended, or will not begin."""
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
            self._background.run(self._agree(command))

    async def _agree(self, command: _Command) -> None:
        """Update the value in the engine until it counts the calls that run here, and those that may begin."""
        try:
            while self._engine.up and (command.waiting or command.written != len(command.running)):
                command.news.clear()
                try:
                    waits = await self._write(command)
                except Exception as error:  # noqa: BLE001 - the calls must not wait for nothing
                    _log.info("%s", error, exc_info=None if isinstance(error, EngineError) else error)
                    command.room, waits = len(command.waiting), True  # this host decides alone until the engine answers
                if command.room and command.waiting:
                    self._on_room()
                command.room = 0
                if waits:
                    await _wait_for_news(command.news)
        finally:
            command.at_work = False
        if not self._engine.up and command.waiting:
            self._on_room()

    async def _write(self, command: _Command) -> bool:
        """Change the value once. Returns whether the command is full, so that calls have to wait for news."""
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
                return False  # another host was faster
        fewer = mine < command.written
        command.written, command.room = mine, mine - len(command.running)
        if fewer:
            self._engine.publish(self._subject, command.name.encode())
        return wants and not has_room

    # News

    def _on_news(self, message: Message) -> None:
        command = self._commands.get(message.data.decode())
        if command is not None:
            command.news.set()

    def _changed(self) -> None:
        """Write all counts again after the connection was lost or came back."""
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
        """Calls that may begin and have not begun."""
        self.written = 0
        """The count that the engine has for this host."""
        self.news = asyncio.Event()
        self.at_work = False


async def _wait_for_news(news: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LOOK * random.uniform(0.5, 1.0)):  # noqa: S311 - spreads hosts that lost a race
            await news.wait()
