"""Claims stdin and stdout for the client before other code can use them. So it imports almost nothing."""

from __future__ import annotations

import fcntl
import os
from typing import NamedTuple

__all__ = ["Claim", "claim", "ensure_open"]


class Claim(NamedTuple):
    """The descriptors that lead to the client."""

    reading: int
    writing: int


def claim() -> Claim:
    """Move descriptors 0 and 1. Afterwards, stdin is empty and prints go to stderr."""
    for fd in (0, 1, 2):
        ensure_open(fd)
    reading = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    writing = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return Claim(reading, writing)


def ensure_open(fd: int) -> None:
    """Open the null device if the parent has closed a standard descriptor, so that no later file gets its number."""
    try:
        os.fstat(fd)
    except OSError:
        nothing = os.open(os.devnull, os.O_RDWR)
        if nothing != fd:
            os.dup2(nothing, fd)
            os.close(nothing)
        os.set_inheritable(fd, True)
