"""A stdio MCP server as a process of ours: ids that cannot clash, every message to the request it belongs to.

It knows JSON-RPC, not HTTP, and no tool. What a server may never do on stdio (foreign output, an answer nobody waits
for, news that belong to no request, staying or failing at the end of its input) it collects as faults.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

__all__ = ["MAX_MESSAGE", "Call", "Message", "Server", "meta_of"]

Message = dict[str, Any]
Key = str | int

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
MAX_MESSAGE = 64 * 1024 * 1024
EXIT_GRACE = 5.0
SHOWN = 200


def meta_of(message: Mapping[str, Any], part: str = "params") -> Message:
    """The `_meta` object of a message's params or result; empty where there is none."""
    body = message.get(part)
    meta = cast("Message", body).get("_meta") if isinstance(body, dict) else None
    return cast("Message", meta) if isinstance(meta, dict) else {}


@dataclass
class Call:
    """One request in flight: what the client called it, and where its messages go (`None`: the client has left)."""

    client_id: Any
    progress_token: Any
    listens: bool
    wants_logs: bool
    inbox: asyncio.Queue[Message | None] = field(default_factory=asyncio.Queue[Message | None])


class Server:
    """One process. `stateless` says which era's rules it is judged by."""

    def __init__(self, process: asyncio.subprocess.Process, *, stateless: bool) -> None:
        self.stateless = stateless
        self.faults: list[str] = []
        self._process = process
        self._calls: dict[Key, Call] = {}
        self._abandoned: set[Key] = set()
        self._numbers = itertools.count(1)
        self._closing = False
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: list[str], *, stateless: bool) -> Server:
        """Spawn a server; its stderr is ours."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=MAX_MESSAGE)
        return cls(process, stateless=stateless)

    @property
    def ended(self) -> bool:
        """Whether its output has ended, so that it will answer nothing more."""
        return self._reader.done()

    async def request(self, message: Message) -> tuple[Key, Call]:
        """Send a request under an id of ours, of the same JSON type; the id also stands in for its progress token."""
        number = next(self._numbers)
        key: Key = f"bridge-{number}" if isinstance(message["id"], str) else number
        meta = meta_of(message)
        call = self._calls[key] = Call(
            client_id=message["id"],
            progress_token=meta.get("progressToken"),
            listens=message["method"] == "subscriptions/listen",
            wants_logs=LOG_LEVEL_KEY in meta,
        )
        if "progressToken" in meta:
            message = {**message, "params": {**message["params"], "_meta": {**meta, "progressToken": key}}}
        await self._send({**message, "id": key})
        return key, call

    async def notify(self, message: Message) -> None:
        """Pass on a notification or an answer; a cancellation names the id that the server knows."""
        if message.get("method") == "notifications/cancelled":
            params: Message = message.get("params") or {}
            key = next((key for key, call in self._calls.items() if call.client_id == params.get("requestId")), None)
            if key is None:
                return
            message = {**message, "params": {**params, "requestId": key}}
        await self._send(message)

    async def abandon(self, key: Key) -> None:
        """Cancel what is still in flight under this id."""
        if self._calls.pop(key, None):
            self._abandoned.add(key)
            await self._send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": key}})

    async def close(self) -> None:
        """End its input, as a client does, and see whether it leaves by itself."""
        self._closing = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(EXIT_GRACE):
                code = await self._process.wait()
                await self._reader
            if code:
                self.faults.append(f"left with exit code {code} at the end of its input")
        except TimeoutError:
            self.faults.append(f"still there {EXIT_GRACE:g} s after the end of its input")
            self._reader.cancel()
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _send(self, message: Message) -> None:
        assert self._process.stdin is not None
        with suppress(ConnectionError):  # whoever reads sees the end of the process, and answers for it
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            try:
                self._route(json.loads(line))
            except (ValueError, TypeError, AttributeError):
                self.faults.append(f"not a protocol message on stdout: {line[:SHOWN]!r}")
        if not self._closing:
            self.faults.append("ended before its input did")
        for call in self._calls.values():
            error = {"code": -32603, "message": "the server process ended"}
            call.inbox.put_nowait({"jsonrpc": "2.0", "id": call.client_id, "error": error})
        self._calls.clear()

    def _route(self, message: Message) -> None:
        """Hand a message to the call it belongs to, in the client's own terms."""
        if "method" in message:
            self._route_notice(message)
        elif call := self._calls.pop(message.get("id", ""), None):
            if SUBSCRIPTION_KEY in (meta := meta_of(message, "result")):
                result = {**message["result"], "_meta": {**meta, SUBSCRIPTION_KEY: call.client_id}}
                message = {**message, "result": result}
            call.inbox.put_nowait({**message, "id": call.client_id})
        elif message.get("id") not in self._abandoned:
            self.faults.append(f"an answer nobody waits for: {json.dumps(message)[:SHOWN]}")

    def _route_notice(self, message: Message) -> None:
        """A notification or a question; only progress and subscriptions say whose they are."""
        params: Message = message.get("params") or {}
        meta = meta_of(message)
        is_progress = message["method"] == "notifications/progress"
        key = params.get("progressToken") if is_progress else meta.get(SUBSCRIPTION_KEY)
        call = self._calls.get(key) if key is not None else self._newest(message["method"])
        if call is None:
            self._judge_stray(key, message)
            return
        if is_progress:
            message = {**message, "params": {**params, "progressToken": call.progress_token}}
        elif key is not None:
            message = {**message, "params": {**params, "_meta": {**meta, SUBSCRIPTION_KEY: call.client_id}}}
        call.inbox.put_nowait(message)

    def _newest(self, method: str) -> Call | None:
        """The call that a log message or a question, which names none, most likely belongs to."""
        calls = [call for call in self._calls.values() if not call.listens]
        if method == "notifications/message":
            calls = [call for call in calls if call.wants_logs] or calls
        return calls[-1] if calls else None

    def _judge_stray(self, key: Any, message: Message) -> None:
        """Late news of a closed stream are no fault; nor is a handshake server that speaks unasked."""
        unasked = key is None and (not self.stateless or message["method"] == "notifications/message")
        if not unasked and key not in self._abandoned:
            self.faults.append(f"belongs to no request: {json.dumps(message)[:SHOWN]}")
