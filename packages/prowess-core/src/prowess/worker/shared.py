"""Shared results from the worker's side: it asks its host over the link."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import Callable

from prowess.worker.link import Frame
from prowess.worker.messages import FindHead, KeepHead, Kind

__all__ = ["LinkedResults"]


class LinkedResults:
    """Asks the host for results, and reports new ones. `settings` is a digest that is part of all keys."""

    def __init__(self, send: Callable[..., None], settings: str) -> None:
        self._send = send
        self._settings = settings
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._running: dict[str, int] = {}
        """The numbers of the questions without an answer, by key: the host waits for their results."""

    async def find(self, key: str) -> bytes:
        """The result of another host, or empty bytes."""
        number = next(self._numbers)
        self._asked[number] = future = asyncio.get_running_loop().create_future()
        head: FindHead = {"key": hashlib.sha256(f"{self._settings} {key}".encode()).hexdigest()}
        self._send(Kind.FIND, number, json.dumps(head).encode())
        try:
            found = await future
        except asyncio.CancelledError:
            if not future.cancelled() and not future.result():  # the answer arrived just before the cancellation
                self._send_keep(number, b"", 0)
            raise
        finally:
            del self._asked[number]
        if not found:
            self._running[key] = number
        return found

    def found(self, frame: Frame) -> None:
        """Handle an answer of the host. If the asking call is gone, report that there will be no result."""
        future = self._asked.get(frame.number)
        if future is not None and not future.done():
            future.set_result(frame.body)
        elif not frame.body:
            self._send_keep(frame.number, b"", 0)

    def keep(self, key: str, result: bytes, seconds: int) -> None:
        """Give a result to the host for other hosts."""
        number = self._running.pop(key, None)
        if number is not None:  # else the host had a result that could not be read
            self._send_keep(number, result, seconds)

    def _send_keep(self, number: int, result: bytes, seconds: int) -> None:
        head: KeepHead = {"seconds": seconds}
        self._send(Kind.KEEP, number, json.dumps(head).encode(), result)
