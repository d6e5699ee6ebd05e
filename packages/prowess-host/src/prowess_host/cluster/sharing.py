"""What the hosts of one project share through the engine, as one object that a project joins and leaves."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from prowess.settings.credentials import Caller
from prowess_host.cluster.engine import Engine, Log
from prowess_host.cluster.errors import EngineError
from prowess_host.cluster.replicas import Replicas
from prowess_host.cluster.results import Results
from prowess_host.cluster.slots import Slots

if TYPE_CHECKING:
    from prowess.jsontypes import JsonObject
    from prowess.settings.settings import Settings

__all__ = ["Sharing", "newest_calls"]

_WHO: Final = ("auth.token", "auth.credentials", "serve.oauth_issuer", "serve.oauth_audience")
"""Settings that say who a caller is: hosts that differ in them do not believe each other."""
_HOST: Final = re.compile("[0-9a-f]{12}")
_MOST_ROW: Final = 64 * 1024
"""Bytes of a call in the shared record. Of a larger one the facts are kept."""


class Sharing:
    """Results, limits, handles and the record of calls, shared with the other hosts of the cluster."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        secret: bytes | None,
        on_room: Callable[[], None],
        answer: Callable[[JsonObject, Caller | None], Awaitable[JsonObject]],
    ) -> None:
        """`secret` is the key that hosts have in common, if there is one. `answer` serves what another host asks."""
        self.engine = engine
        self.replicas = Replicas(self.engine)
        key = secret or b"prowess"
        self.results = Results(self.engine, key)
        self.slots = Slots(self.engine, self.replicas.me, self.replicas.alive, on_room)
        self._calls = _log(engine, settings)
        told = json.dumps([settings.get(name, None) for name in _WHO], default=str)
        self._who = hmac.digest(key, told.encode(), "sha256").hex()
        self._answer = answer
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Share from now on. While the engine is gone, everything is as without one."""
        self.replicas.start(self._asked)
        self.results.start()
        self.slots.start()

    async def close(self) -> None:
        """Tell the others that this host leaves."""
        self.results.close()
        self.slots.close()
        await self.replicas.close()

    # Handles

    @property
    def mark(self) -> str:
        """What the handles of this host begin with."""
        return f"{self.replicas.me}-"

    def host_of(self, handle: object) -> str:
        """The other host that a handle is of; empty if it is none."""
        host, dash, _ = handle.partition("-") if isinstance(handle, str) else ("", "", "")
        return host if dash and host != self.replicas.me and _HOST.fullmatch(host) else ""

    async def ask(self, host: str, question: JsonObject, caller: object) -> JsonObject:
        """What another host answers in our place, for a caller whom we have admitted."""
        who = [caller.number, caller.subject, _listed(caller.scopes)] if isinstance(caller, Caller) else None
        return await self.replicas.ask(host, {**question, "caller": who, "who": self._who})

    async def _asked(self, question: JsonObject) -> JsonObject:
        if question.pop("who") != self._who:
            return {}
        who = cast("list[Any] | None", question.pop("caller"))
        caller = None if who is None else Caller(who[0], None if who[2] is None else frozenset(who[2]), who[1])
        return await self._answer(question, caller)

    # The record

    def record(self, rows: Sequence[Any]) -> None:
        """Let `prowess logs --cluster` see some calls. Called in the thread of the record."""
        texts = [_row(row) for row in rows if row.duration is not None]
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._append, texts)

    def _append(self, texts: list[bytes]) -> None:
        with contextlib.suppress(EngineError):
            for text in texts:
                self._calls.append(text)

    # How it is

    def state(self) -> JsonObject:
        """For `/readyz` and people."""
        return {"cluster": self.engine.name, "engine": self.engine.state}


def _log(engine: Engine, settings: Settings) -> Log:
    """The record of all hosts."""
    own = settings.own.record
    return engine.log("calls", seconds=own.max_days * 86400, most_bytes=own.max_bytes)


async def newest_calls(settings: Settings, most: int) -> list[bytes]:
    """The newest rows of the record of all hosts. Raises an `EngineError` if the engine cannot be reached."""
    engine = Engine(settings)
    try:
        if not await engine.ready():
            raise EngineError(engine.place, engine.state)
        return await _log(engine, settings).tail(most)
    finally:
        await engine.close()


def _listed(scopes: frozenset[str] | None) -> list[str] | None:
    return None if scopes is None else sorted(scopes)


def _row(row: Any) -> bytes:
    """A row of the record as JSON, within bounds."""
    text = json.dumps(row)
    if len(text) > _MOST_ROW:
        text = json.dumps(row._replace(arguments=None, withheld='["*"]', result=None, events="[]", shortened=1))
    return text.encode()
