"""Background work by handle. The caller that started it asks for the result later.

The tasks of MCP and the `accepted` of envelopes share this store. A handle cannot be guessed, and only its owner can use it.
The store has limits on the number of works, the bytes of their results, and the time that a result is kept.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from prowess.errors import TooMuchWork

__all__ = ["KEPT", "MOST_BYTES", "MOST_WORKS", "Handles"]

KEPT: Final = 3600.0
"""Seconds that a result is kept after the end of the work."""
MOST_WORKS: Final = 1000
MOST_BYTES: Final = 64 * 1024 * 1024

T = TypeVar("T")


@dataclass(slots=True)
class _Held(Generic[T]):
    work: T
    owner: Hashable
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
        """`mark` begins all handles: where several processes have some, it says whose they are."""
        self.most_bytes = most_bytes
        """The largest result that can be kept."""
        self.kept = kept
        self._most = most
        self._now = now
        self._mark = mark
        self._held: dict[str, _Held[T]] = {}

    def add(self, work: T, owner: Hashable = None) -> str:
        """Store running work and return its handle. Raises `TooMuchWork` at the limit."""
        self._forget(room_for=1)
        if len(self._held) >= self._most:
            raise TooMuchWork(self._most)
        handle = f"{self._mark}{secrets.token_urlsafe(24)}"
        self._held[handle] = _Held(work, owner)
        return handle

    def get(self, handle: object, owner: Hashable = None) -> T | None:
        """The work of a handle; only its owner can find it."""
        self._forget()
        held = self._held.get(handle) if isinstance(handle, str) else None
        if held is None or held.owner != owner:
            return None
        held.fetched = held.ended is not None
        return held.work

    def over(self, handle: str, size: int = 0) -> None:
        """Mark work as ended, with the size of its result in bytes. It may be deleted from now on."""
        held = self._held.get(handle)
        if held is not None:
            held.ended, held.size = self._now(), size
            self._forget()

    def works(self) -> list[T]:
        """All stored work, the oldest first."""
        return [held.work for held in self._held.values()]

    def _forget(self, room_for: int = 0) -> None:
        """Delete expired results; then, above the limit, fetched results first."""
        oldest = self._now() - self.kept
        ended = {handle: held for handle, held in self._held.items() if held.ended is not None}
        size = sum(held.size for held in ended.values())
        for handle in sorted(ended, key=lambda handle: not ended[handle].fetched):
            held = ended[handle]
            is_old = held.ended is not None and held.ended < oldest
            if is_old or size > self.most_bytes or len(self._held) + room_for > self._most:
                size -= held.size
                del self._held[handle]
