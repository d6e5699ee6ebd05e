"""Reliable streams over an engine that may lose messages: each message arrives once and in order, or the stream ends.

Each side numbers its messages and keeps them until the other side has confirmed them. Heartbeats carry the confirmations, and
the number of the last message before them: an end that lacks one of these asks for it. A slow network loses nothing, and is
not asked. Silence is counted in heartbeats instead of time, so a process that got no processor time ends no stream.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Final

from prowess_host.cluster.engine import EngineConnection
from prowess_host.cluster.errors import EngineError

__all__ = ["EngineStream", "beats"]

_BEATS: Final = 10
"""Heartbeats that the other end may miss before it counts as gone, at least."""
_SLOWEST: Final = 2.0
"""Seconds between two heartbeats, at most."""
_GAP: Final = 2
"""Heartbeats without any message after which what arrives may have been sent long ago."""
_HEADER: Final = struct.Struct("!BII")
_NUMBERS: Final = 1 << 32
"""Numbers in headers start again after this many messages, which a busy stream sends within days."""
_BEAT: Final = 0
_AGAIN: Final = 254
"""After a loss or a reconnect: asks the other end to send again what was not confirmed."""
_END: Final = 255
"""Ends the stream: the sender reads nothing more."""
_ABOUT_ITSELF: Final = (_BEAT, _AGAIN, _END)
_LINGER: Final = 60.0
"""Seconds in which an abandoned stream still answers messages with `_END`."""
_PART: Final = 256 * 1024
"""Bytes of one message; the engine takes at most a megabyte."""
_FULL: Final = 8 * 1024 * 1024
"""Unconfirmed bytes above which a sender should pause."""
_LONGEST_PAUSE: Final = 8
"""Heartbeats between two requests for the same message, at most: the first one may still be on its way."""
_CONFIRM: Final = 1024 * 1024
"""Received bytes after which a confirmation is sent before the next heartbeat."""


def beats(silence: float) -> tuple[float, int]:
    """The seconds between two heartbeats, and how many missing ones make a silence."""
    interval = min(silence / _BEATS, _SLOWEST)
    return interval, round(silence / interval)


class EngineStream:
    """One end of a stream. It calls `on_message` with the kind and data of each message, and `on_silence` when the other end is gone.

    After `start` it sends several heartbeats within the `silence`, the seconds after which an end counts as gone.
    """

    def __init__(  # noqa: PLR0915 - one line for each thing that it knows
        self,
        engine: EngineConnection,
        *,
        own: str,
        other: str,
        silence: float,
        on_message: Callable[[int, bytes], None],
        on_silence: Callable[[], None],
        probe: int = 0,
    ) -> None:
        """`own` and `other` are the subjects to which the two ends subscribe.

        With a `probe`, a kind of message that the other end confirms, this end knows when messages may be late.
        """
        self._engine = engine
        self._other = other
        self._on_message = on_message
        self._on_silence = on_silence
        self._interval, self._most_missed = beats(silence)
        self._loop = asyncio.get_running_loop()
        self.sent = self._received = 0
        self.departed = 0
        """The number of the last message that may have arrived at the other end."""
        self._kept: deque[tuple[int, bytes]] = deque()
        """Messages that the other end has not confirmed."""
        self.size = 0
        """Their bytes."""
        self._lacked = -1
        """The number of the last message received before the last noticed loss."""
        self._pause = self._resting = 0
        """Heartbeats between two requests for lost messages, and how many remain until the next one."""
        self._unconfirmed = 0
        self._missed = 0
        self._timer: asyncio.TimerHandle | None = None
        self.full = False
        """Whether the sender should pause, since too much is unconfirmed."""
        self.on_room: Callable[[], object] = bool
        """Called when it is no longer full."""
        self._probe = probe
        self._probed = 0
        """The number of the last probe."""
        self._heard = self._loop.time()
        """The time of the last message."""
        self.is_late = False
        """Whether messages may have been sent long ago, and others about them may be on the way."""
        self.on_current: Callable[[], object] = bool
        """Called when that is over."""
        self._on_over: Callable[[], None] | None = None
        self._closed = self._abandoned = False
        self._subscription = engine.subscribe(own, lambda message: self._take(message.data))
        self._forget = engine.on_change(self._reconnected)

    def start(self) -> None:
        """Start the heartbeats."""
        self._tick()

    def send(self, kind: int, data: bytes | memoryview = b"") -> None:
        """Send a message. A large one becomes several messages, so its data must be a byte stream."""
        for start in range(0, len(data), _PART) or (0,):
            self.sent += 1
            part = bytes(data[start : start + _PART])
            self._kept.append((self.sent, _HEADER.pack(kind, self.sent % _NUMBERS, 0)[:-4] + part))
            self.size += len(part)
            self._publish(self._kept[-1][1])
        self.full = self.size > _FULL

    def finish(self, on_over: Callable[[], None]) -> None:
        """Call `on_over` when all messages have arrived, or the other end is gone."""
        self._on_silence = self._on_over = on_over
        if not self._kept:
            on_over()

    def close(self) -> None:
        """Stop receiving and sending."""
        self._closed = True
        self._forget()
        self._subscription.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def abandon(self) -> None:
        """Stop receiving, and tell the other end so, now and whenever it sends something."""
        if self._closed or self._abandoned:
            return
        self._abandoned = True
        if self._timer is not None:
            self._timer.cancel()
        self._publish(_HEADER.pack(_END, 0, 0)[:5])
        self._timer = self._loop.call_later(_LINGER, self.close)

    def _publish(self, message: bytes) -> None:
        """Try to send. Messages that are lost are sent again later."""
        if self._closed:
            return
        kind, rest = message[:5], message[5:]
        try:
            self._engine.publish(self._other, b"".join((kind, (self._received % _NUMBERS).to_bytes(4, "big"), rest)))
        except EngineError:
            return
        self._unconfirmed = 0
        if kind[0] not in _ABOUT_ITSELF:
            self.departed = max(self.departed, _nearest(int.from_bytes(kind[1:], "big"), self.sent))

    def _reconnected(self) -> None:
        """Repeat unconfirmed messages on both sides, which may have been lost with the connection."""
        if self._engine.up and self._timer is not None and not self._abandoned:
            self._publish(_HEADER.pack(_AGAIN, 0, 0)[:5])
            self._resend()

    def _resend(self) -> None:
        for _, message in list(self._kept):
            self._publish(message)

    def beat(self) -> None:
        """Send a heartbeat, which confirms what has arrived."""
        self._publish(_HEADER.pack(_BEAT, self.sent % _NUMBERS, 0)[:5])

    def _tick(self) -> None:
        if self._closed or self._abandoned:
            return
        self._timer = self._loop.call_later(self._interval, self._tick)
        self._missed += 1
        self.beat()
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
        number, confirmed = _nearest(number, self._received), _nearest(confirmed, self.sent)
        self._missed = 0
        self._notice_gap()
        while self._kept and self._kept[0][0] <= confirmed:
            self.size -= len(self._kept.popleft()[1]) - 5
        if self._on_over is not None and not self._kept:
            self._on_over()
        elif kind == _BEAT:
            self._notice_loss(number)
            if self.is_late and confirmed >= self._probed and number <= self._received:  # it was sent after the probe
                self.is_late = False
                self.on_current()
        elif kind == _AGAIN:
            self._resend()
        elif number == self._received + 1:
            self._received = number
            self._unconfirmed += len(message)
            if self._unconfirmed > _CONFIRM:
                self.beat()
            self._on_message(kind, message[_HEADER.size :])
        if self.full and self.size < _FULL // 2:
            self.full = False
            self.on_room()

    def _notice_gap(self) -> None:
        """Send a probe if nothing has arrived for a while, because the network or this process stood still."""
        before, self._heard = self._heard, self._loop.time()
        if self._probe and self._heard - before > _GAP * self._interval:
            self.is_late = True
            self.send(self._probe)
            self._probed = self.sent

    def _notice_loss(self, number: int) -> None:
        """Ask for messages that were sent before a heartbeat, and have not arrived before it."""
        if number <= self._received:
            return
        if self._lacked != self._received:
            self._lacked, self._pause, self._resting = self._received, 1, 0
        if self._resting:
            self._resting -= 1
            return
        self._resting, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        self._publish(_HEADER.pack(_AGAIN, 0, 0)[:5])


def _nearest(number: int, known: int) -> int:
    """The number near a known one that has this number in its header."""
    half = _NUMBERS // 2
    return known + (number - known + half) % _NUMBERS - half
