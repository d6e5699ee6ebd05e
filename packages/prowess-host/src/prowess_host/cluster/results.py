"""Results of cached commands, shared by hosts: whoever runs a command first lets the others wait for its result.

A claim and a result are values of the same key. A claim ends soon unless it is renewed, so a host that died holds nobody up.
Whatever goes wrong with the engine, the answer is that there is no result, and the command runs here.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Awaitable
from typing import Any, Final, Protocol

from prowess.worker.messages import KeepHead, Kind
from prowess_host.cluster.engine import Engine, Message
from prowess_host.cluster.errors import EngineError

__all__ = ["Asking", "Results"]

_log = logging.getLogger("prowess.cluster")
_CLAIM: Final = b"c"
_RESULT: Final = b"r"
"""How the values begin."""
_LEASE: Final = 10
_RENEWED: Final = 3.0
"""Seconds that a claim is good for, and after which it is renewed."""
_LOOK: Final = 1.0
"""Seconds between two looks at a claim, in case the news of its end was lost."""
_MOST_BYTES: Final = 256 * 1024 * 1024
_MOST_RESULT: Final = 512 * 1024
"""Bytes of the largest shared result. The worker keeps larger ones for itself."""


class Asking(Protocol):
    """The worker that asks."""

    def send(self, kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"") -> None:
        """Send it a frame."""
        ...


class Results:
    """What the workers of this host ask other hosts for."""

    def __init__(self, engine: Engine, secret: bytes) -> None:
        """`secret` is what all hosts know: keys of the engine tell nothing without it."""
        self._engine = engine
        self._secret = secret
        self._kept = engine.bucket("results", most_bytes=_MOST_BYTES)
        self._subject = engine.subject("results")
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._claims: dict[tuple[Asking, int], tuple[str, asyncio.Task[None]]] = {}
        """By question: the key, and what renews the claim until the worker says what came of it."""
        self._asked: set[tuple[Asking, int]] = set()
        """The questions that workers wait for."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self.hits = self.misses = 0

    def start(self) -> None:
        """Hear of results."""
        self._engine.subscribe(self._subject, self._hear)
        self._engine.on_change(self._wake_all)

    @property
    def waiting(self) -> int:
        """How many results of other hosts are waited for."""
        return len(self._waiting)

    def close(self) -> None:
        """Let go of everything. Claims end by themselves."""
        for task in (*self._tasks, *(task for _, task in self._claims.values())):
            task.cancel()

    # What workers say

    def find(self, worker: Asking, number: int, key: str) -> None:
        """A worker wants a result. It gets one, or an empty answer."""
        self._asked.add((worker, number))
        name = hmac.digest(self._secret, key.encode(), "sha256").hex()
        self._soon(self._answer(worker, number, name))

    def keep(self, worker: Asking, number: int, head: bytes, body: bytes) -> None:
        """A worker has a result, or says that there is none."""
        claim = self._claims.pop((worker, number), None)
        if claim is not None:
            name, renewing = claim
            renewing.cancel()
            told: KeepHead = json.loads(head)
            self._soon(self._share(name, body, told["seconds"]))

    def gone(self, worker: Asking) -> None:
        """A worker has ended, and what it ran has no result."""
        self._asked = {question for question in self._asked if question[0] is not worker}
        for question in [question for question in self._claims if question[0] is worker]:
            self.keep(*question, b'{"seconds": 0}', b"")

    async def _answer(self, worker: Asking, number: int, name: str) -> None:
        revision = 0
        try:
            found = await self._found(name)
            if found is None:
                revision = await self._kept.create(name, _CLAIM, seconds=_LEASE) or 0
                if not revision:
                    found = await self._landed(name)
        except EngineError as error:
            _log.info("%s", error)
            found = None
        waits = (worker, number) in self._asked
        self._asked.discard((worker, number))
        if revision and waits:
            self._claims[worker, number] = name, asyncio.ensure_future(_told(self._renew(name, revision)))
        elif revision:
            await self._share(name, b"", 0)
        self.hits += found is not None
        self.misses += found is None
        worker.send(Kind.FOUND, number, body=found or b"")

    async def _found(self, name: str) -> bytes | None:
        entry = await self._kept.get(name)
        return entry.value[1:] if entry is not None and entry.value[:1] == _RESULT else None

    async def _landed(self, name: str) -> bytes | None:
        """The result that another host works at. If it has none, nobody is waited for again."""
        landed = asyncio.Event()
        self._waiting.setdefault(name, set()).add(landed)
        try:
            while (entry := await self._kept.get(name)) is not None and entry.value[:1] == _CLAIM:
                try:
                    await asyncio.wait_for(landed.wait(), _LOOK)
                except TimeoutError:
                    continue
                landed.clear()
            return None if entry is None else entry.value[1:]
        finally:
            self._waiting[name].discard(landed)
            if not self._waiting[name]:
                del self._waiting[name]

    async def _renew(self, name: str, revision: int | None) -> None:
        while revision:
            await asyncio.sleep(_RENEWED)
            revision = await self._kept.update(name, _CLAIM, revision, seconds=_LEASE)

    async def _share(self, name: str, body: bytes, seconds: int) -> None:
        if body and seconds >= 1 and len(body) <= _MOST_RESULT:
            await self._kept.put(name, _RESULT + body, seconds=seconds)
        else:
            await self._kept.delete(name)
        self._engine.publish(self._subject, name.encode())

    # News

    def _hear(self, message: Message) -> None:
        for landed in self._waiting.get(message.data.decode(), ()):
            landed.set()

    def _wake_all(self) -> None:
        for events in self._waiting.values():
            for landed in events:
                landed.set()

    def _soon(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(_told(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _told(work: Awaitable[None]) -> None:
    try:
        await work
    except EngineError as error:
        _log.info("%s", error)
