"""The hosts that share an engine: each tells that it is there, and answers what is asked of it by name."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Final

from prowess.jsontypes import JsonObject
from prowess.worker.messages import RELEASE
from prowess_host.cluster.engine import Engine, Message
from prowess_host.cluster.errors import EngineError

__all__ = ["Replicas"]

_log = logging.getLogger("prowess.cluster")
_LEASE: Final = 10
"""Seconds after which a host that said nothing counts as gone."""
_AGAIN: Final = 2.0
_PART: Final = 512 * 1024
_IN_PARTS: Final = b"in parts "
"""How an answer begins that is fetched in parts of that size."""
_FETCHED: Final = 60
"""Seconds in which that happens."""
_MOST_ANSWERS: Final = 256 * 1024 * 1024
_PATIENCE: Final = 30.0
"""Seconds for another host to answer: it may be busy, and that it is gone would be known at once."""

_Serve = Callable[[JsonObject], Awaitable[JsonObject]]


class Replicas:
    """This host among the others."""

    def __init__(self, engine: Engine) -> None:
        self.me = os.urandom(6).hex()
        """The id of this host: new with every start."""
        self._engine = engine
        self._present = engine.bucket("hosts", seconds=_LEASE)
        self._answers = engine.bucket("answers", seconds=_FETCHED, most_bytes=_MOST_ANSWERS)
        """Parts of answers that are too large for a message."""
        self._serve: _Serve | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, serve: _Serve) -> None:
        """Be there, and answer questions from now on."""
        self._serve = serve
        self._engine.subscribe(self._subject(self.me), self._asked)
        self._engine.on_change(self._tell_soon)
        self._soon(self._stay())

    async def close(self) -> None:
        """Leave: the others need not wait for that to show."""
        for task in list(self._tasks):
            task.cancel()
        if self._engine.up:
            try:
                await self._present.delete(self.me)
            except EngineError as error:
                _log.info("%s", error)

    async def alive(self) -> list[str]:
        """All hosts that are there."""
        return await self._present.keys()

    async def ask(self, host: str, question: JsonObject) -> JsonObject:
        """What another host answers. An `EngineError` says that it is gone."""
        text = json.dumps(question).encode()
        answer = await self._engine.request(self._subject(host), text, seconds=_PATIENCE)
        if answer.startswith(_IN_PARTS):
            name, _, count = answer.removeprefix(_IN_PARTS).decode().partition(" ")
            parts = [await self._answers.get(f"{name}.{part}") for part in range(int(count))]
            answer = b"".join(part.value for part in parts if part is not None)
        try:
            return json.loads(answer)
        except ValueError:
            raise EngineError(self._engine.place, "the answer of another host was lost") from None

    def _subject(self, host: str) -> str:
        return self._engine.subject("host", host)

    def _asked(self, message: Message) -> None:
        self._soon(self._answer(message))

    async def _answer(self, message: Message) -> None:
        assert self._serve is not None  # noqa: S101 - it is, before the first question
        text = json.dumps(await self._serve(json.loads(message.data))).encode()
        if len(text) > _PART:
            name, parts = os.urandom(8).hex(), [text[start : start + _PART] for start in range(0, len(text), _PART)]
            for number, part in enumerate(parts):
                await self._answers.put(f"{name}.{number}", part)
            text = _IN_PARTS + f"{name} {len(parts)}".encode()
        self._engine.publish(message.reply, text)

    def _tell_soon(self) -> None:
        if self._engine.up:
            self._soon(self._tell())

    async def _tell(self) -> None:
        await self._present.put(self.me, json.dumps({"release": RELEASE, "process": os.getpid()}).encode())

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(_AGAIN)
            try:
                await self._tell()
            except EngineError as error:
                _log.info("%s", error)

    def _soon(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(_told(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _told(work: Awaitable[None]) -> None:
    try:
        await work
    except EngineError as error:
        _log.info("%s", error)
    except Exception:  # noqa: BLE001 - a fault with one question is no other's
        _log.exception("another host could not be answered")
