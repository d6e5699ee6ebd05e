"""A system that refuses threads, as it does at its limit of processes or of memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator

__all__ = ["TOO_LARGE", "no_more_threads"]

TOO_LARGE = 1 << 46
"""Bytes of a stack that no system of today has room for."""


@contextlib.contextmanager
def no_more_threads() -> Generator[None]:
    """Until the end, this process can start no thread."""
    before = threading.stack_size(TOO_LARGE)
    try:
        yield
    finally:
        threading.stack_size(before)
