"""Which tasks and threads close the objects of a call. They are not cancelled, and do not count as stuck, for some seconds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Hashable
from typing import Final

__all__ = ["allow_closing", "closing", "end_closing", "is_closing"]

_until: Final[dict[Hashable, float]] = {}
"""The time by which each has to be done."""


@contextlib.contextmanager
def closing(task: Hashable, seconds: float) -> Generator[None]:
    """Note that a task closes an object."""
    before = _until.get(task)  # a clean-up may call a command, which closes objects too
    allow_closing(task, seconds)
    try:
        yield
    finally:
        end_closing(task)
        if before is not None:
            _until[task] = before


def allow_closing(closer: Hashable, seconds: float) -> None:
    """Give a task or a thread some seconds from now, until `end_closing`."""
    _until[closer] = time.monotonic() + seconds


def end_closing(closer: Hashable) -> None:
    """Note that a task or a thread closes nothing any more."""
    _until.pop(closer, None)


def is_closing(closer: Hashable) -> bool:
    """Whether a task or a thread closes an object, and has time left."""
    return _until.get(closer, 0.0) > time.monotonic()
