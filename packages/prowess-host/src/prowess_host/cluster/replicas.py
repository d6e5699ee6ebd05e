"""The hosts of a cluster: each announces itself, and answers questions from the others."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final

from prowess.jsontypes import JsonObject
from prowess.worker.messages import RELEASE
from prowess_host.cluster.background import Background
from prowess_host.cluster.engine import EngineConnection, Message
from prowess_host.cluster.errors import EngineError, NoSubscriber

__all__ = ["Replicas"]

_log = logging.getLogger("prowess.cluster")
_LEASE: Final = 10
"""Seconds after which a silent host counts as gone."""
_AGAIN: Final = 2.0
"""Seconds between two announcements."""
_REMEMBERED: Final = 3600.0
"""Seconds that a host is remembered that did not say that it leaves."""
_MOST_AT_ONCE: Final = 512 * 1024
"""Bytes of the largest answer in one message. Larger ones are fetched in parts."""
_IN_PARTS: Final = b"in parts "
"""The beginning of the message that says where the parts are."""
_FETCHED: Final = 60
"""Seconds that the parts are kept."""
_MOST_ANSWERS: Final = 256 * 1024 * 1024
_PATIENCE: Final = 30.0
"""Seconds that another host has to answer. That is long since it may be busy."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0
"""Seconds between two questions to a host that is not there: it may be gone, or come back after a loss of the engine."""

_Serve = Callable[[JsonObject], Awaitable[JsonObject]]


class Replicas:
    """This host, and its questions to the others."""

    def __init__(self, engine: EngineConnection) -> None:
        self.me = os.urandom(6).hex()
        """The id of this host, new at every start."""
        self._engine = engine
        self._present = engine.bucket("hosts", seconds=_LEASE)
        self._remembered = engine.bucket("remembered", seconds=_REMEMBERED)
        self._remember_at = 0.0
        """When to have this host remembered again."""
        self._answers = engine.bucket("answers", seconds=_FETCHED, most_bytes=_MOST_ANSWERS)
        """Parts of answers that are too large for a message."""
        self._serve: _Serve | None = None
        self._background = Background()

    def start(self, serve: _Serve) -> None:
        """Announce this host, and answer questions with `serve`."""
        self._serve = serve
        self._engine.subscribe(self._subject(self.me), self._on_question)
        self._engine.on_change(self._announce_soon)
        self._background.run(self._keep_announcing())

    async def close(self) -> None:
        """Leave, and delete the announcement, so that the others know at once."""
        await self._background.close()
        if self._engine.up:
            try:
                await self._present.delete(self.me)
                await self._remembered.delete(self.me)
            except EngineError as error:
                _log.info("%s", error)

    async def alive(self) -> list[str]:
        """The ids of all running hosts."""
        return await self._present.keys()

    async def is_gone(self, host: str) -> bool:
        """Whether a host has ended or is cut off. False as long as this host itself may have been cut off."""
        knows = self._engine.up and time.monotonic() - self._engine.since > _LEASE
        return knows and host not in await self.alive()

    async def may_return(self, host: str) -> bool:
        """Whether a host that is gone may only be cut off: it was there within the hour, and did not say that it leaves."""
        return await self._remembered.get(host) is not None

    async def ask(self, host: str, question: JsonObject) -> JsonObject:
        """The answer of another host. Raises `NoSubscriber` if it is gone, and waits until it is there or certainly gone."""
        text, pause = json.dumps(question).encode(), _FIRST_PAUSE
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                data = await self._engine.request(self._subject(host), text, seconds=_PATIENCE)
                break
            except NoSubscriber as error:
                if await self.is_gone(host):
                    raise
                if time.monotonic() > end:
                    raise EngineError(
                        self._engine.address, "another host is running but does not answer questions"
                    ) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        if data.startswith(_IN_PARTS):
            name, _, count = data.removeprefix(_IN_PARTS).decode().partition(" ")
            data = await self._answers.get_large(name, int(count)) or b""
        try:
            answer = json.loads(data)
        except ValueError:
            raise EngineError(self._engine.address, "the answer of another host was lost") from None
        if "fault" in answer:
            raise EngineError(self._engine.address, f"another host could not answer: {answer['fault']}")
        return answer

    def _subject(self, host: str) -> str:
        return self._engine.subject("host", host)

    def _on_question(self, message: Message) -> None:
        self._background.run(self._answer(message))

    async def _answer(self, message: Message) -> None:
        assert self._serve is not None  # noqa: S101 - `start` has set it before the first question
        try:
            text = json.dumps(await self._serve(json.loads(message.data))).encode()
        except Exception as error:  # noqa: BLE001 - the asking host must get an answer
            _log.exception("the question of another host could not be answered")
            text = json.dumps({"fault": f"{type(error).__name__}, see its log"}).encode()
        if len(text) > _MOST_AT_ONCE:
            name = os.urandom(8).hex()
            text = _IN_PARTS + f"{name} {await self._answers.put_large(name, text)}".encode()
        self._engine.publish(message.reply, text)

    def _announce_soon(self) -> None:
        if self._engine.up:
            self._remember_at = 0.0  # another engine may not know it
            self._background.run(self._announce())

    async def _announce(self) -> None:
        await self._present.put(self.me, json.dumps({"release": RELEASE, "process": os.getpid()}).encode())
        if time.monotonic() > self._remember_at:
            await self._remembered.put(self.me, b"")
            self._remember_at = time.monotonic() + _REMEMBERED / 2

    async def _keep_announcing(self) -> None:
        while True:
            await asyncio.sleep(_AGAIN)
            try:
                await self._announce()
            except EngineError as error:
                _log.info("%s", error)
