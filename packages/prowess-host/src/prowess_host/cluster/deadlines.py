"""Time limits of the calls of one worker, enforced by its agent while the host is cut off.

The host enforces the same limits a moment earlier, so this code acts only without it. A call that overruns its time, or
continues after its cancellation, ends with its worker. Other calls in the worker get the grace. What the worker has to do in
time goes by a clock that stands still while it gets no processor.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Final

from prowess.settings.keys import HostSettings
from prowess.worker.messages import LAST, Kind

__all__ = ["LIMIT", "RemoteDeadlines"]

LIMIT: Final = struct.Struct("!Qd")
"""The number of a call, and its remaining seconds."""
_LATER: Final = 1.0
"""Seconds by which the host is earlier."""
_ANSWER: Final = 1.0
"""Seconds that a worker has to answer whether cancelled calls still run."""
_LOOK: Final = 0.1
"""Seconds between two looks at the clock of the worker."""
_LAST: Final = LAST | {Kind.UNBEGUN}
_OWN, _OF_HOST = True, False


class RemoteDeadlines:
    """Watches the frames in both directions. `ping` asks the worker how many cancelled calls still run, and `kill` ends it."""

    def __init__(
        self, host: HostSettings, ping: Callable[[], None], kill: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        """`clock` returns the seconds that the worker could use so far."""
        self._grace = host.grace
        self._wait = host.cancel_grace + _LATER
        self._ping = ping
        self._kill = kill
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._due: dict[int, float] = {}
        """The time at which each call must have ended."""
        self._remaining: dict[int, float] = {}
        """The remaining seconds of each call that waits for a person."""
        self._suspected: float | None = None
        """The time, by the clock of the worker, to ask whether cancelled calls still run."""
        self._pings: deque[bool] = deque()
        """The senders of the unanswered pings."""
        self._doomed = ""
        self._doom_at = 0.0
        """The time, by the clock of the worker, at which it is killed."""
        self._timer: asyncio.TimerHandle | None = None

    def limit(self, number: int, seconds: float) -> None:
        """Set the time limit of a call before it is sent to the worker."""
        self._due[number] = self._loop.time() + seconds + self._wait
        self._look_by(self._due[number])

    def from_host(self, kind: int, number: int) -> None:
        """Note a frame from the host."""
        if kind == Kind.PING:
            self._pings.append(_OF_HOST)
        elif kind == Kind.ANSWERS and number in self._remaining:
            self.limit(number, self._remaining.pop(number))
        elif kind == Kind.CANCEL:
            self._forget(number)
            self._suspect()

    def from_worker(self, kind: int, number: int) -> bool:
        """Note a frame from the worker. Returns whether it is for the host."""
        if kind in _LAST:
            self._forget(number)
        elif kind == Kind.QUESTIONS and number in self._due:
            self._remaining[number] = self._due.pop(number) - self._loop.time() - self._wait
        elif kind == Kind.LINGERING:
            self._suspect()
        elif kind == Kind.PONG and self._pings:
            if not number:
                self._suspected = None
            if self._pings.popleft() is _OWN:
                if number:
                    self._doom("a cancelled or overdue call in it did not end")
                return False
        return True

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _forget(self, number: int) -> None:
        self._due.pop(number, None)
        self._remaining.pop(number, None)
        if self._doomed and not self._due and not self._remaining:
            self._kill(self._doomed)

    def _suspect(self) -> None:
        if self._suspected is None:
            self._suspected = self._clock() + self._wait
            self._look_by(self._loop.time() + _LOOK)

    def _doom(self, why: str) -> None:
        """Kill the worker, at once if nothing else runs in it, else after the grace."""
        if self._doomed:
            return
        self._doomed = f"{why}, and its host was silent"
        if self._due or self._remaining:
            self._doom_at = self._clock() + self._grace
            self._look_by(self._loop.time() + _LOOK)
        else:
            self._kill(self._doomed)

    def _look_by(self, when: float) -> None:
        if self._timer is None or when < self._timer.when():
            self.close()
            self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer, now, usable = None, self._loop.time(), self._clock()
        late = [number for number, due in self._due.items() if due <= now]
        for number in late:
            del self._due[number]
        if late:
            self._doom("a call in it overran its time limit")
        if self._suspected is not None and self._suspected <= usable:
            if _OWN in self._pings:
                self._doom("it did not say whether a cancelled call still runs")
            else:
                self._pings.append(_OWN)
                self._ping()
                self._suspected = usable + _ANSWER
        if self._doomed and self._doom_at <= usable:
            self._kill(self._doomed)
            return
        if self._suspected is not None or self._doomed:
            self._look_by(now + _LOOK)
        if self._due:
            self._look_by(min(self._due.values()))
