"""A conversation over an engine that may lose what it carries: each message arrives once and in order, or the other end is silent.

Each side numbers its messages and keeps them until the other one has them. Beats tell what has arrived, so that the rest
is sent again after the network was cut. Beats are counted and not timed: a process that was starved itself has missed none.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Final

from prowess_host.cluster.engine import Engine
from prowess_host.cluster.errors import EngineError

__all__ = ["Stream", "beats"]

_BEATS: Final = 10
"""Beats that the other end may miss before it counts as gone, at least."""
_SLOWEST: Final = 2.0
"""Seconds between two beats, at most."""
_HEADER: Final = struct.Struct("!BII")
_BEAT: Final = 0
_AGAIN: Final = 254
"""The connection is a new one: say again what was not confirmed."""
_END: Final = 255
"""The other end wants to hear no more, whatever was sent before."""
_ABOUT_ITSELF: Final = (_BEAT, _AGAIN, _END)
_MOURNED: Final = 60.0
"""Seconds in which an end that was given up is told so whenever it says something."""
_PART: Final = 256 * 1024
"""Bytes of one message: the engine takes a megabyte."""
_FULL: Final = 8 * 1024 * 1024
"""Bytes that the other end has not confirmed, after which no more should be sent for now."""
_CONFIRM: Final = 1024 * 1024
"""Bytes after which what has arrived is confirmed before the next beat."""


def beats(silence: float) -> tuple[float, int]:
    """The seconds between two beats, and how many of them make a silence."""
    interval = min(silence / _BEATS, _SLOWEST)
    return interval, round(silence / interval)


class Stream:
    """One end. `hear` is called with the kind and the data of each message, and `on_silence` when the other end is silent or gone.

    It beats from `start` on, several times within the `silence` in seconds after which an end counts as gone.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        own: str,
        other: str,
        silence: float,
        hear: Callable[[int, bytes], None],
        on_silence: Callable[[], None],
    ) -> None:
        """`own` and `other` are the subjects on which the two ends listen."""
        self._engine = engine
        self._other = other
        self._hear = hear
        self._on_silence = on_silence
        self._interval, self._most_missed = beats(silence)
        self._loop = asyncio.get_running_loop()
        self.sent = self._received = 0
        self.left = 0
        """The number of the last message that may have arrived at the other end."""
        self._kept: deque[tuple[int, bytes]] = deque()
        """What the other end has not confirmed."""
        self.size = 0
        """Bytes of that."""
        self._old = self._confirmed = 0
        """What was sent, and what was confirmed, at the last beat of the other end."""
        self._unconfirmed = 0
        self._missed = 0
        self._timer: asyncio.TimerHandle | None = None
        self.full = False
        """Whether too much of what was sent has not arrived."""
        self.on_room: Callable[[], object] = bool
        """Called when it is no longer full."""
        self._on_over: Callable[[], None] | None = None
        self._closed = self._abandoned = False
        self._subscription = engine.subscribe(own, lambda message: self._take(message.data))
        self._forget = engine.on_change(self._reconnected)

    def start(self) -> None:
        """Beat from now on."""
        self._tick()

    def send(self, kind: int, data: bytes | memoryview = b"") -> None:
        """Send a message, in parts if it is large: only bytes that may be cut anywhere are as large."""
        for start in range(0, len(data), _PART) or (0,):
            self.sent += 1
            part = bytes(data[start : start + _PART])
            self._kept.append((self.sent, _HEADER.pack(kind, self.sent, 0)[:-4] + part))
            self.size += len(part)
            self._publish(self._kept[-1][1])
        self.full = self.size > _FULL

    def finish(self, on_over: Callable[[], None]) -> None:
        """Call this when all that was sent has arrived, or the other end is gone."""
        self._on_silence = self._on_over = on_over
        if not self._kept:
            on_over()

    def close(self) -> None:
        """Hear and send nothing more."""
        self._closed = True
        self._forget()
        self._subscription.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def abandon(self) -> None:
        """Hear nothing more, and tell the other end so, now and whenever it is heard again."""
        if self._closed or self._abandoned:
            return
        self._abandoned = True
        if self._timer is not None:
            self._timer.cancel()
        self._publish(_HEADER.pack(_END, 0, 0)[:5])
        self._timer = self._loop.call_later(_MOURNED, self.close)

    def _publish(self, message: bytes) -> None:
        """What does not leave now is sent again."""
        if self._closed:
            return
        kind, rest = message[:5], message[5:]
        try:
            self._engine.publish(self._other, b"".join((kind, self._received.to_bytes(4, "big"), rest)))
        except EngineError:
            return
        self._unconfirmed = 0
        if kind[0] not in _ABOUT_ITSELF:
            self.left = max(self.left, int.from_bytes(kind[1:], "big"))

    def _reconnected(self) -> None:
        """What was said meanwhile on both sides may be lost."""
        if self._engine.up and self._timer is not None and not self._abandoned:
            self._publish(_HEADER.pack(_AGAIN, 0, 0)[:5])
            self._say_again()

    def _say_again(self) -> None:
        for _, message in list(self._kept):
            self._publish(message)

    def _beat(self) -> None:
        self._publish(_HEADER.pack(_BEAT, self.sent, 0)[:5])

    def _tick(self) -> None:
        if self._closed or self._abandoned:
            return
        self._timer = self._loop.call_later(self._interval, self._tick)
        self._missed += 1
        self._beat()
        if self._missed > self._most_missed:
            self._on_silence()

    def _take(self, message: bytes) -> None:
        if self._closed or len(message) < _HEADER.size:
            return
        kind, number, confirmed = _HEADER.unpack_from(message)
        if self._abandoned:
            if kind != _END:
                self._publish(_HEADER.pack(_END, 0, 0)[:5])
            return
        if kind == _END:
            self._on_silence()
            return
        self._missed = 0
        while self._kept and self._kept[0][0] <= confirmed:
            self.size -= len(self._kept.popleft()[1]) - 5
        if self._on_over is not None and not self._kept:
            self._on_over()
        elif kind == _BEAT:
            self._send_again(confirmed)
        elif kind == _AGAIN:
            self._say_again()
        elif number == self._received + 1:
            self._received = number
            self._unconfirmed += len(message)
            if self._unconfirmed > _CONFIRM:
                self._beat()
            self._hear(kind, message[_HEADER.size :])
        if self.full and self.size < _FULL // 2:
            self.full = False
            self.on_room()

    def _send_again(self, confirmed: int) -> None:
        """What was sent before the last beat of the other end should have arrived by now, if any of it does."""
        old, before = self._old, self._confirmed
        self._old, self._confirmed = self.sent, confirmed
        if confirmed == before and self._kept and self._kept[0][0] <= old:
            self._say_again()
