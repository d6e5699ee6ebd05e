"""Gives memory back to the system when large messages are over. Knows one function of one C library, and no message.

glibc maps a large block apart and unmaps it when it is freed, but whatever it frees so raises the size from which on it
does that, up to 32 MiB. After the first large messages all others come from the heap, where any small block that lives
on keeps what is freed below it: a host with 5 MB in use held 25 to 50 MB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Final

__all__ = ["LARGE", "give_back_soon"]

LARGE: Final = 128 * 1024
"""Bytes of a large message: what glibc would map, before it has learned not to."""
_QUIET: Final = 1.0
"""Seconds after which a large message has probably gone its way. Trimming takes half a millisecond, so that it may be
repeated as long as there are large messages. To have glibc always map them would cost each of them page faults: a call
with 1 MB takes twice as long then."""

_due: asyncio.TimerHandle | None = None
_again = False


def give_back_soon() -> None:
    """A large message has been sent, received or let go of: have the allocator return in a while what that leaves free.

    To be called where an event loop runs.
    """
    global _due, _again  # noqa: PLW0603 - there is one allocator
    loop = asyncio.get_running_loop()
    if _due is not None and _due.when() > loop.time():
        _again = True
    else:  # a timer whose time has passed has done its work, or its loop is gone
        _due = loop.call_later(_QUIET, _give_back)


def _give_back() -> None:
    global _due, _again  # noqa: PLW0603 - as above
    _due = None
    trim = _trimmer()
    if trim is not None:
        trim(0)
    if _again:  # that was less than a while ago
        _again = False
        give_back_soon()


@cache
def _trimmer() -> Callable[[int], object] | None:
    """`malloc_trim`, where there is such a thing: not in macOS, not in musl, not in a Python without ctypes."""
    try:
        import ctypes  # 1.3 ms and 0.4 MB, which only those pay who have large messages

        trim = ctypes.CDLL(None).malloc_trim
        trim.argtypes = [ctypes.c_size_t]
    except (ImportError, OSError, TypeError, AttributeError):
        return None
    return trim
