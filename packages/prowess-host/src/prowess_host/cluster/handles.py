"""Background work as all hosts see it: its owner, its answer, and whether its host is gone.

A running host answers for its own work. The engine keeps the answers of ended work, which outlive the host. Work that a host
left unfinished is lost: the first host that is asked records that, so that all hosts give the same answer, and a host that
was only cut off gives the work up when it is back.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from prowess.calls.handles import KEPT, MOST_BYTES, MOST_WORKS
from prowess.contracts.contract import Contract
from prowess.jsontypes import JsonObject
from prowess_host.cluster.background import Background
from prowess_host.cluster.engine import EngineConnection
from prowess_host.cluster.errors import EngineError
from prowess_host.workers.jobs import lost_text

__all__ = ["AcceptedEnvelopes", "LostWork", "SharedHandles"]

_log = logging.getLogger("prowess.cluster")
_FORGOTTEN: Final = 7 * 86400.0
"""Seconds that the record of unfinished work is kept."""
_MOST_BYTES: Final = 256 * 1024 * 1024
_ATTEMPTS: Final = 5
"""Attempts to change a record that other hosts change at the same time."""


class LostWork(NamedTuple):
    """Work whose host is gone, with its answer."""

    facts: JsonObject
    answer: bytes


@dataclass(slots=True, eq=False)
class _Work:
    """Work of this host whose answer the engine does not have yet."""

    handle: str
    owner: str
    facts: JsonObject
    on_lost: Callable[[], None]
    answer: bytes | None = None
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedHandles:
    """Shares the handles of this host with others, and answers for those of hosts that are gone."""

    def __init__(
        self,
        engine: EngineConnection,
        me: str,
        digest: Callable[[str], Awaitable[str]],
        owner_of: Callable[[Hashable], str],
    ) -> None:
        """`digest` makes keys that reveal nothing, and `owner_of` gives the identity of a caller as a string."""
        self._engine = engine
        self._me = me
        self._digest = digest
        self._owner_of = owner_of
        self._kept = engine.bucket("handles", seconds=_FORGOTTEN, most_bytes=_MOST_BYTES, memory=False)
        self._works: dict[str, _Work] = {}
        self._unsent: dict[str, int] = {}
        """The sizes of the answers that the engine does not have yet, by handle, the oldest first."""
        self._background = Background()

    def start(self) -> None:
        """Send the missing answers whenever the engine is back."""
        self._engine.on_change(self._changed)

    async def close(self) -> None:
        """Wait until the engine has all answers."""
        await self._background.over()

    async def begin(self, handle: str, owner: Hashable, facts: JsonObject, on_lost: Callable[[], None]) -> None:
        """Register new work. Other hosts know it when this returns, unless the engine is gone.

        `facts` have its `kind`, its `command`, and whether it `may_repeat`. `on_lost` is called if others have given it up.
        """
        await self._write(self._add(handle, owner, facts, on_lost))

    def _add(self, handle: str, owner: Hashable, facts: JsonObject, on_lost: Callable[[], None]) -> _Work:
        work = self._works[handle] = _Work(handle, self._owner_of(owner), facts, on_lost)
        return work

    def begin_soon(
        self, handle: str, owner: Hashable, facts: JsonObject, on_lost: Callable[[], None], then: Callable[[], None]
    ) -> None:
        """Like `begin`, in the background; `then` is called afterwards."""
        work = self._add(handle, owner, facts, on_lost)  # at once: it may end before anything else happens

        async def begin() -> None:
            try:
                await self._write(work)
            finally:
                then()

        self._background.run(begin())

    def end(self, handle: str, answer: bytes) -> None:
        """Store the answer of work that has ended."""
        work = self._works.get(handle)
        if work is not None:
            work.answer = answer
            self._unsent[handle] = len(answer)
            while len(self._unsent) > MOST_WORKS or (sum(self._unsent.values()) > MOST_BYTES and len(self._unsent) > 1):
                self._forget(next(iter(self._unsent)))  # as this host does: the engine may be gone for days
            self._background.run(self._write(work))

    def _forget(self, handle: str) -> None:
        self._works.pop(handle, None)
        self._unsent.pop(handle, None)

    async def settle(self, handle: object) -> None:
        """Return when the engine has the answer of ended work, unless it is gone: what a client has seen must not change."""
        work = self._works.get(handle) if isinstance(handle, str) else None
        if work is not None and work.answer is not None:
            await self._write(work)

    async def knows(self, handle: str) -> bool:
        """Whether the engine has the record of a handle."""
        return await self._kept.get(await self._name(handle)) is not None

    async def find(
        self, handle: str, owner: Hashable, kind: str, lost: Callable[[JsonObject], bytes]
    ) -> LostWork | None:
        """Work whose host is gone. Unfinished work gets the answer of `lost` for good, on all hosts."""
        name = await self._name(handle)
        for _ in range(_ATTEMPTS):
            entry = await self._kept.get(name)
            if entry is None:
                return None
            record: JsonObject = json.loads(entry.value)
            if record["kind"] != kind or record["owner"] != await self._digest(self._owner_of(owner)):
                return None
            if "parts" in record:
                answer = await self._kept.get_large(record["at"], record["parts"])
                return None if answer is None else LostWork(record["facts"], answer)
            await self._put(name, {**record, "by": self._me}, lost(record["facts"]), entry.revision)
        raise EngineError(self._engine.address, "the record of a handle changes again and again")

    async def _write(self, work: _Work) -> None:
        """Write the record of work to the engine."""
        async with work.writing:
            try:
                for _ in range(_ATTEMPTS):
                    if work.handle not in self._works or await self._is_written(work):
                        return
            except EngineError as error:  # sent when it is back
                _log.info("%s", error)

    async def _is_written(self, work: _Work) -> bool:
        name = await self._name(work.handle)
        entry = await self._kept.get(name)
        if entry is not None and json.loads(entry.value)["by"] != self._me:  # other hosts have taken this one for gone
            self._forget(work.handle)
            work.on_lost()
            return True
        if entry is not None and work.answer is None:
            return True
        kind, owner = work.facts["kind"], await self._digest(work.owner)
        record: JsonObject = {"by": self._me, "kind": kind, "owner": owner, "facts": work.facts}
        answer = work.answer
        if not await self._put(name, record, answer, 0 if entry is None else entry.revision):
            return False
        if answer is not None:
            self._forget(work.handle)
        return work.answer is answer

    async def _put(self, name: str, record: JsonObject, answer: bytes | None, revision: int) -> bool:
        seconds = 0
        if answer is not None:
            seconds, record["at"] = round(KEPT), f"{name}.{os.urandom(8).hex()}"  # only this host writes there
            record["parts"] = await self._kept.put_large(record["at"], answer, seconds=seconds)
        text = json.dumps(record).encode()
        return await self._kept.update(name, text, revision, seconds=seconds) is not None

    async def _name(self, handle: str) -> str:
        return await self._digest(f"handle {handle}")

    def _changed(self) -> None:
        if self._engine.up:
            for work in list(self._works.values()):
                self._background.run(self._write(work))


class AcceptedEnvelopes:
    """The accepted work of envelopes, as `prowess.envelopes` needs it: see its protocol `Others`."""

    def __init__(self, handles: SharedHandles, mark: str, contract_of: Callable[[str], Contract | None]) -> None:
        self.mark = mark
        self._handles = handles
        self._contract_of = contract_of

    async def accepted(self, handle: str, owner: Hashable, command: str, on_lost: Callable[[], None]) -> None:
        """Register work."""
        contract = self._contract_of(command)
        facts = {"kind": "envelope", "command": command, "may_repeat": bool(contract and contract.hints.may_repeat)}
        await self._handles.begin(handle, owner, facts, on_lost)

    def over(self, handle: str, response: JsonObject) -> None:
        """Store a response."""
        self._handles.end(handle, json.dumps(response).encode())

    async def settle(self, handle: str) -> None:
        """Return when other hosts have the response of ended work."""
        await self._handles.settle(handle)

    async def find(self, handle: str, owner: Hashable) -> tuple[str, JsonObject] | None:
        """The command and the response of work whose host is gone. Raises `EngineError` if the engine cannot be asked."""
        found = await self._handles.find(handle, owner, "envelope", _lost_response)
        return None if found is None else (found.facts["command"], json.loads(found.answer))


def _lost_response(facts: JsonObject) -> bytes:
    text = lost_text(facts["command"], "the host that ran it is gone", may_repeat=facts["may_repeat"])
    is_safe: bool = facts["may_repeat"]
    response = {
        "id": "",
        "version": "1.0.0",
        "status": {"code": "retry" if is_safe else "error", "http": 503 if is_safe else 500, "message": text},
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "duration_ms": 0.0,
        "metadata": {"tool": facts["command"]},
        "errors": [{"code": "worker_lost", "message": text, "path": ""}],
        **({"headers": {"Retry-After": "0"}} if is_safe else {}),
    }
    return json.dumps(response).encode()
