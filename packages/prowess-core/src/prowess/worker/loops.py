"""Event loops that call the readers of descriptors while they wait, without a turn of the loop for each message.

In asyncio a message takes a turn: the selector returns, the reader is scheduled, timers are looked at, the reader runs, and
the next wait is computed. A small call consists of three messages, and these turns are a tenth of its Python functions.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import time
from typing import Any, Final

from prowess.worker.polling import Attentive, Ready

__all__ = ["new_loop", "processors"]

_STATE: Final = {"_debug", "_ready", "_scheduled", "_stopping"}
"""What tells whether a loop has something to do. A future Python may name these attributes differently."""


class _Selector(Attentive):
    """Calls readers itself as long as the loop would only wait again. Everything else it leaves to the loop."""

    loop: dict[str, Any] | None = None
    """The attributes of the loop; `None` if they have other names."""

    def select(self, timeout: float | None = None) -> Ready:
        """Wait like `select`, and call readers meanwhile. Returns the other events."""
        loop = self.loop
        if loop is None or loop["_debug"] or (timeout is not None and timeout <= 0):
            return super().select(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        wait, timers = super().select, len(loop["_scheduled"])
        while True:
            events = wait(timeout)
            others: Ready = []
            for event in events:
                key, mask = event
                if mask == selectors.EVENT_READ and not (reader := key.data[0])._cancelled:  # noqa: SLF001 - a call less
                    reader._run()  # noqa: SLF001 - reports exceptions and sets the context, as in a turn of the loop
                else:
                    others.append(event)
            # A new timer may be the next one, and a turn removes those that are cancelled.
            is_due = timeout == 0 or len(loop["_scheduled"]) != timers
            if others or not events or is_due or loop["_ready"] or loop["_stopping"]:
                return self._current(others)
            timeout = None if end is None else max(end - time.monotonic(), 0.0)

    def _current(self, events: Ready) -> Ready:
        """The events without those whose descriptor a reader has since registered anew, or closed.

        The loop would take such a cancelled reader for the new one, and remove that. The system reports again what is ready.
        """
        registered = self.get_map()
        return [event for event in events if registered.get(event[0].fd) is event[0]]


class _Loop(asyncio.SelectorEventLoop):
    """Does with as many threads as the system allows."""

    _has_executor = False

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """Like that of asyncio."""
        if executor is None and not self._has_executor:
            from prowess.worker.executor import Executor  # takes a millisecond, and a short host needs no threads

            self.set_default_executor(Executor())
            self._has_executor = True
        return super().run_in_executor(executor, func, *args)


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop for one end of the link, for a process that does little else."""
    selector = _Selector(never=processors() == 1)
    loop = _Loop(selector)
    loop.time = time.monotonic  # the same clock, without a function of Python around it
    if vars(loop).keys() >= _STATE:
        selector.loop = vars(loop)
    return loop


def processors() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # another system, or a sandbox
        return os.cpu_count() or 1
