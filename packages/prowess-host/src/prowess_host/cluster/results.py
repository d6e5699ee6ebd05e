"""Results of cached commands that hosts share. The first host runs the command; the others wait for its result.

A key holds a claim, then the result. A claim expires soon unless it is renewed, so a dead host does not block others.
After any fault of the engine there is no shared result, and the command runs here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from prowess.worker.messages import KeepHead, Kind
from prowess_host.cluster.background import Background
from prowess_host.cluster.engine import EngineConnection, Message
from prowess_host.cluster.errors import EngineError

__all__ = ["Asking", "ClusterResults"]

_log = logging.getLogger("prowess.cluster")
_CLAIM: Final = b"c"
_RESULT: Final = b"r"
"""The first byte of a value says which of them it is."""
_LEASE: Final = 10
_RENEWED: Final = 3.0
"""Seconds after which a claim expires, and after which it is renewed."""
_LOOK: Final = 1.0
"""Seconds between two looks at a claim, in case the message about its end was lost."""
_MOST_BYTES: Final = 256 * 1024 * 1024
_MOST_RESULT: Final = 512 * 1024
"""Bytes of the largest shared result. The worker keeps larger ones for itself."""


class Asking(Protocol):
    """The worker that asks."""

    def send(self, kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"") -> None:
        """Send it a frame."""
        ...


class ClusterResults:
    """The shared results, for the workers of this host."""

    def __init__(self, engine: EngineConnection, digest: Callable[[str], Awaitable[str]]) -> None:
        """`digest` makes the keys. It hides arguments from readers of the engine's keys."""
        self._engine = engine
        self._digest = digest
        self._kept = engine.bucket("results", most_bytes=_MOST_BYTES)
        self._subject = engine.subject("results")
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._claims: dict[tuple[Asking, int], tuple[str, asyncio.Task[None]]] = {}
        """The key and the renewing task of each claim, by worker and question, until the worker reports."""
        self._asked: set[tuple[Asking, int]] = set()
        """The questions that workers wait for."""
        self._background = Background()
        self.hits = self.misses = 0

    def start(self) -> None:
        """Listen for results of other hosts."""
        self._engine.subscribe(self._subject, self._on_shared)
        self._engine.on_change(self._wake_all)

    @property
    def waiting(self) -> int:
        """The number of results that other hosts are computing for us."""
        return len(self._waiting)

    async def close(self) -> None:
        """Cancel all tasks. Claims expire."""
        await self._background.close()

    # Messages from workers

    def find(self, worker: Asking, number: int, key: str) -> None:
        """Answer a worker that asks for a result. An empty answer tells it to run the command."""
        self._asked.add((worker, number))
        self._background.run(self._answer(worker, number, key))

    def keep(self, worker: Asking, number: int, head: bytes, body: bytes) -> None:
        """Share the result that a worker reports, or release its claim if there is none."""
        claim = self._claims.pop((worker, number), None)
        if claim is not None:
            name, renewing = claim
            renewing.cancel()
            report: KeepHead = json.loads(head)
            self._background.run(self._share(name, body, report["seconds"]))

    def gone(self, worker: Asking) -> None:
        """Release the claims of a worker that has ended."""
        self._asked = {question for question in self._asked if question[0] is not worker}
        for question in [question for question in self._claims if question[0] is worker]:
            self.keep(*question, b'{"seconds": 0}', b"")

    async def _answer(self, worker: Asking, number: int, key: str) -> None:
        name, revision, found = "", 0, None
        try:
            name = await self._digest(key)
            found = await self._found(name)
            if found is None:
                revision = await self._kept.create(name, _CLAIM, seconds=_LEASE) or 0
                if not revision:
                    found = await self._landed(name)
        except EngineError as error:
            _log.info("%s", error)
        except Exception:  # noqa: BLE001 - the worker must get an answer
            _log.exception("the result of another host could not be found")
        waits = (worker, number) in self._asked
        self._asked.discard((worker, number))
        if revision and waits:
            self._claims[worker, number] = name, self._background.run(self._renew(name, revision))
        self.hits += found is not None
        self.misses += found is None
        worker.send(Kind.FOUND, number, body=found or b"")
        if revision and not waits:
            await self._share(name, b"", 0)

    async def _found(self, name: str) -> bytes | None:
        entry = await self._kept.get(name)
        return entry.value[1:] if entry is not None and entry.value[:1] == _RESULT else None

    async def _landed(self, name: str) -> bytes | None:
        """The result that another host is computing. `None` if that host has failed or gone."""
        landed = asyncio.Event()
        self._waiting.setdefault(name, set()).add(landed)
        try:
            while (entry := await self._kept.get(name)) is not None and entry.value[:1] == _CLAIM:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await landed.wait()
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

    def _on_shared(self, message: Message) -> None:
        for landed in self._waiting.get(message.data.decode(), ()):
            landed.set()

    def _wake_all(self) -> None:
        for events in self._waiting.values():
            for landed in events:
                landed.set()
