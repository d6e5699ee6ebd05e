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

__all__ = ["LARGE", "give_back_soon", "share_one_heap"]

LARGE: Final = 128 * 1024
"""Bytes of a large message: what glibc would map, before it has learned not to."""
_QUIET: Final = 1.0
"""Seconds after which a large message has probably gone its way. Trimming takes half a millisecond, so that it may be
repeated as long as there are large messages."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Names of `malloc.h`."""
_MOST_FREE: Final = 32 * 1024 * 1024
"""Bytes at the end of the heap that wait for the next large message, until they are given back. Otherwise each message
would fetch its pages from the system anew, which makes a call that gives 1 MB take twice as long."""
_MOST_KEPT: Final = 8 * 1024 * 1024
"""Bytes of the largest block that may come from there. Larger ones are mapped apart."""

_due: asyncio.TimerHandle | None = None
_again = False


def give_back_soon() -> None:
    """A large message is being sent, received or let go of: return in a while what that leaves free.

    To be called where an event loop runs.
    """
    global _due, _again  # noqa: PLW0603 - there is one allocator
    _keep_until_then()
    loop = asyncio.get_running_loop()
    if _due is not None and _due.when() > loop.time():
        _again = True
    else:  # a timer whose time has passed has done its work, or its loop is gone
        _due = loop.call_later(_QUIET, _give_back)


def _give_back() -> None:
    global _due, _again  # noqa: PLW0603 - as above
    _due = None
    trim = _function("malloc_trim", "c_size_t")
    if trim is not None:  # pragma: no branch - elsewhere than with glibc
        trim(0)
    if _again:  # that was less than a while ago
        _again = False
        give_back_soon()


def share_one_heap() -> None:
    """Have all threads allocate where the first one does. To be called before there is a second thread.

    Only the first heap is trimmed to its end. Each other one, and there are up to eight for a processor, would keep what
    its largest blocks have left; and as only one thread at a time runs Python, one heap is enough.
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
    """A function of glibc's allocator, where there is such a thing: not in macOS, not in musl, not without ctypes."""
    try:
        import ctypes  # 1.3 ms and 0.4 MB, which a host without large messages does not pay

        function = getattr(ctypes.CDLL(None), name)
        function.argtypes = [getattr(ctypes, each) for each in types]
    except (ImportError, OSError, TypeError, AttributeError):
        return None
    return function
