"""One HTTP request and its response over ASGI: bounded bodies, complete responses, and streams that end when the client disconnects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from prowess_host.http.binding import Refused
from prowess_host.http.headers import Headers
from prowess_host.http.replies import COMMENT, JSON_TYPE
from prowess_host.protocol.rpc import RpcError

if TYPE_CHECKING:
    from prowess_host.http.replies import Outlet

__all__ = ["Exchange", "Field", "dump_json"]

Field: TypeAlias = tuple[bytes, bytes]
_Message: TypeAlias = MutableMapping[str, Any]
_CLOSE: Final = (b"connection", b"close")
_SILENCE: Final = 15.0
"""Seconds without an event after which a stream sends a keep-alive."""
_SOON: Final = 0.05
"""Seconds in which most answers are ready. Only then the connection is watched for a disconnect."""
_UNSTREAMED: Final = 5.0
"""Seconds without an answer after which a response becomes a stream, so that proxies do not time out."""


def dump_json(value: Any) -> bytes:
    """Encode JSON for a response."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class Exchange:
    """One request and its response."""

    def __init__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = Headers(scope["headers"])
        self._scope = scope
        self.status = 0
        self.fields: list[Field] = []
        """Headers of every response to this request."""
        self._receive = receive
        self._send = send

    # The request

    @property
    def address(self) -> str:
        """The address of the client."""
        client: tuple[str, int] | None = self._scope.get("client")
        return "" if client is None else client[0]

    async def body(self, most: int) -> bytes | Refused:
        """Read the whole body, or return the refusal. Raises `ConnectionError` if the client disconnects."""
        length = self.headers.get("content-length")
        if length is not None and length.isascii() and length.isdigit() and int(length) > most:
            return _too_large(most)
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > most:
                return _too_large(most)
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def left(self) -> None:
        """Wait until the client disconnects."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    # The response

    async def refuse(self, refused: Refused) -> None:
        """Send the response of a refusal."""
        body = refused.body
        await self.answer(refused.status, body, *((JSON_TYPE,) if body else ()), *refused.headers)

    async def json(self, status: int, value: Any, *fields: Field) -> None:
        """Answer with JSON."""
        await self.answer(status, dump_json(value), JSON_TYPE, *fields)

    async def answer(self, status: int, body: bytes = b"", *fields: Field) -> None:
        """Send a complete response."""
        length = () if status in (204, 304) else ((b"content-length", b"%d" % len(body)),)
        await self._begin(status, (*length, *fields))
        await self._put(body, more=False)

    async def _begin(self, status: int, fields: tuple[Field, ...]) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": [*fields, *self.fields]})

    async def _put(self, body: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def stream(
        self,
        outlet: Outlet,
        news: asyncio.Event,
        *,
        silent: Callable[[], None] | None = None,
        began: Callable[[], None] | None = None,
        most: float = 0.0,
    ) -> bool:
        """Send from an outlet until it ends. Returns `False` if the client disconnects, or after `most` seconds.

        `silent` is called after a while without data, and `began` when the response begins as a stream.
        """
        loop = asyncio.get_running_loop()
        due = float("inf")
        if not news.is_set():
            await _comes(news, _SOON)
        if await self._send_news(outlet, began):
            return True
        gone = loop.create_task(self.left())
        gone.add_done_callback(lambda _: news.set())
        try:
            while True:
                news.clear()
                if await self._send_news(outlet, began):
                    return True
                now = loop.time()
                if gone.done():
                    return False
                if self.status and most:
                    due = min(due, now + most)
                if now >= due:
                    await self._put(b"", more=False)
                    return False
                if not news.is_set() and not await _comes(
                    news, min(_SILENCE if self.status else _UNSTREAMED, due - now)
                ):
                    if self.status:
                        outlet.put(COMMENT)
                    elif silent is not None:
                        silent()
        finally:
            gone.cancel()

    async def _send_news(self, outlet: Outlet, began: Callable[[], None] | None) -> bool:
        """Send the waiting bytes. Returns whether they were the last."""
        head = outlet.head
        if head is not None and head.whole:
            await self.answer(head.status, head.body, *head.headers)
            return True
        if head is None:
            if outlet.ended:
                await self.answer(202)
            return outlet.ended
        if not self.status:
            if began is not None:
                began()
            await self._begin(head.status, head.headers)
        ended, data = outlet.ended, outlet.take()
        if data or ended:
            await self._put(data, more=not ended)
        return ended


async def _comes(news: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, and return whether it was set in time."""
    try:
        async with asyncio.timeout(max(seconds, 0.0)):
            await news.wait()
    except TimeoutError:
        return False
    return True


def _too_large(most: int) -> Refused:
    reason = f"the body is larger than {most} bytes; serve.max_body allows more"
    return Refused(413, RpcError.invalid_request(reason), headers=(_CLOSE,))
