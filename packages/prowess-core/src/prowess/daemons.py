"""Daemon threads of our own. The system may refuse a thread at any time, which must cost a function and never the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

__all__ = ["NO_THREAD", "can_start_threads", "start_thread"]

NO_THREAD: Final = (
    "the system lets this process start no more threads: "
    "raise its limit of processes (`ulimit -u`, or that of its container) or its limit of memory"
)

_SPARE: Final = 3
"""Threads of a probe. For a moment after its end, a thread still counts."""


def start_thread(name: str, function: Callable[..., object], *args: object) -> threading.Thread | None:
    """Start a thread that does not keep the process alive; `None` if the system refuses it."""
    thread = threading.Thread(target=function, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def can_start_threads() -> bool:
    """Whether the system allows a few more threads. Libraries in other languages may end the process where it does not."""
    done = threading.Event()
    probes = [start_thread("prowess-probe", done.wait) for _ in range(_SPARE)]
    done.set()
    for probe in filter(None, probes):
        probe.join()
    return all(probes)
