"""Which tasks and threads close the objects of a call. They are not cancelled, and do not count as stuck, for some seconds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Hashable
from typing import Final

__all__ = ["closing", "is_closing"]

_until: Final[dict[Hashable, float]] = {}
"""The time by which each has to be done."""


@contextlib.contextmanager
def closing(seconds: float, *closers: Hashable) -> Generator[None]:
    """Note the tasks and threads that close an object, and have some seconds for that."""
    before = {each: _until.get(each) for each in closers}  # a clean-up may call a command, which closes objects too
    _until.update(dict.fromkeys(closers, time.monotonic() + seconds))
    try:
        yield
    finally:
        for each, until in before.items():
            if until is None:
                del _until[each]
            else:
                _until[each] = until


def is_closing(closer: Hashable) -> bool:
    """Whether a task or a thread closes an object, and has time left."""
    return _until.get(closer, 0.0) > time.monotonic()
