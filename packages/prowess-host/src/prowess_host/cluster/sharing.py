"""All that the hosts of one project share through the engine, as one object."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from prowess.settings.credentials import Caller
from prowess_host.cluster.engine import EngineConnection, Log, Message
from prowess_host.cluster.errors import EngineError, NoSubscriber
from prowess_host.cluster.handles import AcceptedEnvelopes, SharedHandles
from prowess_host.cluster.replicas import Replicas
from prowess_host.cluster.results import ClusterResults
from prowess_host.cluster.secret import Secret
from prowess_host.cluster.slots import ClusterSlots

if TYPE_CHECKING:
    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject
    from prowess.settings.settings import Settings

__all__ = ["ClusterSharing", "newest_calls"]

_IDENTITY: Final = ("auth.token", "auth.credentials", "serve.oauth_issuer", "serve.oauth_audience")
"""Settings that identify callers. Hosts answer only hosts with the same values."""
_HOST: Final = re.compile("[0-9a-f]{12}")
_MOST_ROW: Final = 64 * 1024
"""Bytes of a call in the shared record. A larger one is stored without arguments and result."""


_UNCERTAIN: Final = 20.0
"""Seconds in which a lost connection is noticed. What was sent before that has arrived."""
_MOST_UPDATES: Final = 1000
"""Changed resources that are kept for the next connection. Beyond that, all of them count as changed."""


class ClusterSharing:
    """Results, limits, handles and the record of calls, shared with the other hosts of the cluster."""

    def __init__(
        self,
        engine: EngineConnection,
        settings: Settings,
        secret: bytes | None,
        on_room: Callable[[], None],
        answer: Callable[[JsonObject, Caller | None], Awaitable[JsonObject]],
        *,
        on_news: Callable[[JsonObject], None],
    ) -> None:
        """`secret` is the key that the hosts share, if they do. `answer` answers a question of another host, and `on_news`
        is called with its news.
        """
        self.engine = engine
        self.replicas = Replicas(self.engine)
        self._secret = Secret(engine, secret)
        self.results = ClusterResults(self.engine, self._secret.digest)
        self.slots = ClusterSlots(self.engine, self.replicas.me, self.replicas.alive, on_room)
        self._calls = _log(engine, settings)
        self.handles = SharedHandles(engine, self.replicas.me, self._secret.digest, self._owner_of)
        self._callers = json.dumps([settings.get(name, None) for name in _IDENTITY], default=str)
        """Identifies the authentication settings of this host."""
        self._updates: dict[str, float] = {}
        """The news of changed resources that may be lost, with their times."""
        self._answer = answer
        self._on_news = on_news
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Start to share. While the engine is down, each host works alone."""
        self.replicas.start(self._serve)
        self.results.start()
        self.slots.start()
        self.handles.start()
        self.engine.subscribe(self.engine.subject("news"), self._on_message)
        self.engine.on_change(self._reconnected)

    async def close(self) -> None:
        """Tell the others that this host leaves."""
        await self.results.close()
        await self.slots.close()
        await self.handles.close()
        await self.replicas.close()

    # News

    def broadcast(self, news: JsonObject) -> None:
        """Send news to all other hosts. What may be lost about changed resources is sent again on the next connection."""
        text = json.dumps({**news, "by": self.replicas.me})
        if "updated" in news:
            self._remember(text)
        self._send(text)

    def _send(self, text: str) -> None:
        with contextlib.suppress(EngineError):
            self.engine.publish(self.engine.subject("news"), text.encode())

    def _remember(self, text: str) -> None:
        now = time.monotonic()
        self._updates.pop(text, None)
        self._updates[text] = now
        while self.engine.up and next(iter(self._updates.values())) < now - _UNCERTAIN:
            del self._updates[next(iter(self._updates))]
        if len(self._updates) > _MOST_UPDATES:
            self._updates = {json.dumps({"missed": True, "by": self.replicas.me}): now}

    def _reconnected(self) -> None:
        """Make up for the news that this host missed, and send its own again that may be lost. Hosts announce their lists on every connection."""
        if not self.engine.up:
            return
        if self.engine.connections > 1:
            self._on_news({"missed": True})
        self._updates = dict.fromkeys(self._updates, time.monotonic())
        for text in self._updates:
            self._send(text)

    def _on_message(self, message: Message) -> None:
        news = json.loads(message.data)
        if news["by"] != self.replicas.me:
            self._on_news(news)

    # Handles

    @property
    def mark(self) -> str:
        """The beginning of all handles of this host."""
        return f"{self.replicas.me}-"

    def host_of(self, handle: object) -> str:
        """The id of the other host that made a handle; empty if none did."""
        host, dash, _ = handle.partition("-") if isinstance(handle, str) else ("", "", "")
        return host if dash and host != self.replicas.me and _HOST.fullmatch(host) else ""

    def accepted(self, contract_of: Callable[[str], Contract | None]) -> AcceptedEnvelopes:
        """The work of envelopes."""
        return AcceptedEnvelopes(self.handles, self.mark, contract_of)

    async def ask(self, host: str, question: JsonObject, caller: object, handle: str = "") -> JsonObject:
        """The answer of another host to a caller that this host has authenticated.

        Raises `NoSubscriber` if it is gone, unless it may be cut off, and have accepted the handle since.
        """
        who = [caller.number, caller.subject, _listed(caller.scopes)] if isinstance(caller, Caller) else None
        callers = await self._secret.digest(self._callers)
        try:
            return await self.replicas.ask(host, {**question, "caller": who, "who": callers})
        except NoSubscriber:
            if handle and not await self.handles.knows(handle) and await self.replicas.may_return(host):
                raise EngineError(self.engine.address, "the host is silent, and may be cut off") from None
            raise

    def _owner_of(self, caller: object) -> str:
        """The owner of a handle, equal on hosts with the same credentials and independent of the caller's scopes."""
        return json.dumps([self._callers, str(caller) if isinstance(caller, Caller) else None])

    async def _serve(self, question: JsonObject) -> JsonObject:
        if question.pop("who") != await self._secret.digest(self._callers):
            return {}
        who = cast("list[Any] | None", question.pop("caller"))
        caller = None if who is None else Caller(who[0], None if who[2] is None else frozenset(who[2]), who[1])
        return await self._answer(question, caller)

    # The record

    def record(self, rows: Sequence[Any]) -> None:
        """Add calls to the shared record, for `prowess logs --cluster`. Called in the thread of the record."""
        texts = [_row(row) for row in rows if row.duration is not None]
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._append, texts)

    def _append(self, texts: list[bytes]) -> None:
        with contextlib.suppress(EngineError):
            for text in texts:
                self._calls.append(text)

    # State

    def state(self) -> JsonObject:
        """The state of the engine, for `/readyz`, which strangers may ask."""
        return {"cluster": self.engine.name, "engine": self.engine.since_when}


def _log(engine: EngineConnection, settings: Settings) -> Log:
    """The shared record of all hosts."""
    own = settings.own.record
    return engine.log("calls", seconds=own.max_days * 86400, most_bytes=own.max_bytes)


async def newest_calls(settings: Settings, most: int) -> list[bytes]:
    """The newest rows of the shared record. Raises `EngineError` if the engine cannot be reached."""
    engine = EngineConnection(settings)
    try:
        if not await engine.ready():
            raise EngineError(engine.address, engine.state)
        return await _log(engine, settings).tail(most)
    finally:
        await engine.close()


def _listed(scopes: frozenset[str] | None) -> list[str] | None:
    return None if scopes is None else sorted(scopes)


def _row(row: Any) -> bytes:
    """A row of the record as JSON, shortened if it is too large."""
    text = json.dumps(row)
    if len(text) > _MOST_ROW:
        text = json.dumps(row._replace(arguments=None, withheld='["*"]', result=None, events="[]", shortened=1))
    return text.encode()
