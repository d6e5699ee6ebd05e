"""Background work by handle. The caller that started it asks for the result later.

The tasks of MCP and the `accepted` of envelopes are kept in such stores. A handle cannot be guessed, and only its owner can
use it. A store has limits on the number of works, the bytes of their results, and the time that a result is kept. No client
can use it up: each may run as many works as there is room for more, and the client that keeps most loses results first.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from prowess.errors import TooMuchWork

__all__ = ["KEPT", "MOST_BYTES", "MOST_WORKS", "Handles"]

KEPT: Final = 3600.0
"""Seconds that a result is kept after the end of the work."""
MOST_WORKS: Final = 2000
"""Works at the same time. A single client gets half of them, two get a third each, and so on, so there is always room for another."""
MOST_BYTES: Final = 128 * 1024 * 1024
"""Bytes of all results. A single one may have half of them, so that it never drops all the others."""

_NEWS: Final = 0.1
"""Weight of one work in how long works take: about the last ten count."""
_LONGEST: Final = 60
"""Seconds after which a refused client may always try again: an estimate can be wrong."""

T = TypeVar("T")


@dataclass(slots=True)
class _Held(Generic[T]):
    work: T
    owner: Hashable
    client: Hashable
    began: float
    ended: float | None = None
    size: int = 0
    fetched: bool = False
    """Whether the owner has fetched the result."""


class Handles(Generic[T]):
    """Background work by handle, the oldest first. Not thread-safe."""

    def __init__(
        self,
        *,
        most: int = MOST_WORKS,
        most_bytes: int = MOST_BYTES,
        kept: float = KEPT,
        now: Callable[[], float] = time.monotonic,
        mark: str = "",
    ) -> None:
        """`mark` begins all handles, so that they show which of several processes made them."""
        self.largest = most_bytes // 2
        """The largest result that can be kept."""
        self.kept = kept
        self._most = most
        self._most_bytes = most_bytes
        self._now = now
        self._mark = mark
        self._held: dict[str, _Held[T]] = {}
        self._running: Counter[Hashable] = Counter()
        """How many works each client runs."""
        self._bytes = 0
        """Of all results."""
        self._oldest = math.inf
        """When the oldest kept work has ended, or earlier."""
        self._usual = 0.0
        """The usual duration in seconds, from work that has ended."""

    def add(self, work: T, owner: Hashable = None, client: Hashable = None) -> str:
        """Store running work and return its handle. It counts for the client, by default the owner.

        Raises `TooMuchWork` if the client runs as many works as there is room for further ones.
        """
        client = owner if client is None else client
        own, running = self._running[client], self._running.total()
        if own >= self._most - running:
            seconds = self._retry_after(client if own else None)
            raise TooMuchWork(own or running, own=own > 0, seconds=seconds)
        self._forget(room_for=1)
        handle = f"{self._mark}{secrets.token_urlsafe(24)}"
        self._held[handle] = _Held(work, owner, client, self._now())
        self._running[client] += 1
        return handle

    def get(self, handle: object, owner: Hashable = None) -> T | None:
        """The work of a handle; only its owner can find it."""
        held = self._held.get(handle) if isinstance(handle, str) else None
        if held is None or held.owner != owner:
            return None
        if self._is_old(held):
            self._forget()
            return None
        held.fetched = held.ended is not None
        return held.work

    def over(self, handle: str, size: int = 0) -> None:
        """Mark work as ended, with the size of its result in bytes. It may be deleted from now on."""
        held = self._held.get(handle)
        if held is not None:
            held.ended, held.size = self._now(), size
            self._bytes += size
            self._oldest = min(self._oldest, held.ended)
            self._usual += (held.ended - held.began - self._usual) * _NEWS
            self._running[held.client] -= 1
            if not self._running[held.client]:
                del self._running[held.client]
            self._forget(newest=handle)

    def drop(self, handle: str) -> None:
        """Forget work, as if it had never been there."""
        held = self._held.get(handle)
        if held is not None and held.ended is None:
            self.over(handle)
        if handle in self._held:
            self._remove(handle)

    def works(self) -> list[T]:
        """All stored work, the oldest first."""
        return [held.work for held in self._held.values()]

    def _retry_after(self, client: Hashable) -> int:
        """Seconds until one of the running works has probably ended: of those of one client, or of all."""
        now = self._now()
        running = [each for each in self._held.values() if each.ended is None and client in (None, each.client)]
        count = max(len(running), 1)
        usual = max(self._usual, sum(now - each.began for each in running) / count)
        return min(max(math.ceil(usual / count), 1), _LONGEST)

    def _is_old(self, held: _Held[T]) -> bool:
        return held.ended is not None and held.ended < self._now() - self.kept

    def _forget(self, room_for: int = 0, newest: str = "") -> None:
        """Delete expired results. Above a limit, the client that keeps most loses fetched results first, then the oldest ones.

        The newest result goes last, because its owner cannot have fetched it yet.
        """
        if self._oldest < self._now() - self.kept:
            for handle in [handle for handle, held in self._held.items() if self._is_old(held)]:
                self._remove(handle)
            self._oldest = min((held.ended for held in self._held.values() if held.ended is not None), default=math.inf)
        if self._bytes > self._most_bytes:
            self._drop(newest, lambda held: held.size, self._bytes - self._most_bytes)
        elif len(self._held) + room_for > self._most:
            self._drop(newest, lambda _: 1, len(self._held) + room_for - self._most)

    def _remove(self, handle: str) -> _Held[T]:
        held = self._held.pop(handle)
        self._bytes -= held.size
        return held

    def _drop(self, newest: str, weight: Callable[[_Held[T]], int], excess: int) -> None:
        """Delete results until the excess is gone."""
        ended = {handle: held for handle, held in self._held.items() if held.ended is not None}
        kept: Counter[Hashable] = Counter()
        of: dict[Hashable, deque[str]] = {}
        for handle in sorted(ended, key=lambda each: (each == newest, not ended[each].fetched)):
            of.setdefault(ended[handle].client, deque()).append(handle)
        for held in ended.values():
            kept[held.client] += weight(held)
        while excess > 0:
            client = max(of, key=lambda each: (of[each][0] != newest, kept[each]))
            handle = of[client].popleft()
            if not of[client]:
                del of[client]
            gone = weight(self._remove(handle))
            kept[client] -= gone
            excess -= gone
