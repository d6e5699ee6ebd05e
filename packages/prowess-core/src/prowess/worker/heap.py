"""Returns memory to the system after large messages, with two functions of the C library glibc.

glibc maps a large block separately and unmaps it when it is freed, but each time it also raises the size from which it
does so, up to 32 MiB. After the first large messages all others come from the heap, where any small live block keeps the
free memory below it: a host with 5 MB in use held 25 to 65 MB. So the heap is trimmed after large messages.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import cache
from typing import Final

__all__ = ["GARBAGE", "LARGE", "give_back_soon", "share_one_heap"]

GARBAGE: Final = (5_000, 5, 5)
"""The thresholds of the garbage collector in a host. The objects of a request are freed by reference counting, so collections
are rare, and those of old objects even more so: with factors of 10 there was none within five minutes of chaos, so what ended
workers and old catalogs leave behind stayed.
"""
LARGE: Final = 128 * 1024
"""Bytes of a large message, which glibc maps before it raises its threshold."""
_QUIET: Final = 1.0
"""Seconds after which a large message has probably been processed. Trimming takes half a millisecond, so it may be repeated
while there are large messages."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters in `malloc.h`."""
_MOST_FREE: Final = 32 * 1024 * 1024
"""Free bytes at the end of the heap that are kept for the next large message. Fetching pages from the system for each message
would double the time of a call with a result of 1 MB."""
_MOST_KEPT: Final = 8 * 1024 * 1024
"""Bytes of the largest block in the heap. Larger ones are mapped separately."""

_due: asyncio.TimerHandle | None = None
_again = False


def give_back_soon() -> None:
    """Schedule a trim, because a large message is being sent, received or freed. Needs a running event loop."""
    global _due, _again  # noqa: PLW0603 - there is one allocator
    _keep_until_then()
    loop = asyncio.get_running_loop()
    if _due is not None and _due.when() > loop.time():
        _again = True
    else:  # the timer has fired, or its loop is gone
        _due = loop.call_later(_QUIET, _give_back)


def _give_back() -> None:
    global _due, _again  # noqa: PLW0603 - as above
    _due = None
    trim = _function("malloc_trim", "c_size_t")
    if trim is not None:  # pragma: no branch - elsewhere than with glibc
        trim(0)
    if _again:  # there was another large message since
        _again = False
        give_back_soon()


def share_one_heap() -> None:
    """Let all threads allocate from the first heap. Call it before starting a second thread.

    Only the first heap is trimmed completely. Each other one (there are up to eight for each processor) would keep the
    memory of its largest blocks. Only one thread at a time runs Python, so one heap is enough.
    """
    _set(_ARENA_MAX, 1)


@cache
def _keep_until_then() -> None:
    _set(_TRIM_THRESHOLD, _MOST_FREE)
    _set(_MMAP_THRESHOLD, _MOST_KEPT)


def _set(parameter: int, value: int) -> None:
    """Tune the allocator, unless the environment already does."""
    if not any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        tune = _function("mallopt", "c_int", "c_int")
        if tune is not None:  # pragma: no branch - as above
            tune(parameter, value)


@cache
def _function(name: str, *types: str) -> Callable[..., object] | None:
    """A function of glibc's allocator, or `None`: macOS and musl lack them, and ctypes may be missing."""
    try:
        import ctypes  # 1.3 ms and 0.4 MB, only with large messages

        function = getattr(ctypes.CDLL(None), name)
        function.argtypes = [getattr(ctypes, each) for each in types]
    except (ImportError, OSError, TypeError, AttributeError):
        return None
    return function
