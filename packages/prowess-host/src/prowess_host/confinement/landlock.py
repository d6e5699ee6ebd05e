"""The Landlock rules of a limited worker: the files that it may read and change, by the version of the interface.

Pure functions from limits to numbers; `launch` passes them to the kernel.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["LEAST", "READ", "SIGNALS", "Rights", "rights"]

LEAST: Final = 3
"""Linux 6.2. Earlier versions do not control truncation."""
SIGNALS: Final = 6
"""Linux 6.12 also controls signals and abstract sockets."""

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_SYM = 1 << 7, 1 << 8, 1 << 9, 1 << 10, 1 << 12
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ALL: Final = (1 << 15) - 1
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_SCOPES: Final = 3
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
"""The rights that a rule for a file, not a folder, may have."""

READ: Final = _EXECUTE | _READ_FILE | _READ_DIR


class Rights(NamedTuple):
    """The controlled actions, and the granted ones."""

    handled: int
    """All controlled actions on files; those without a rule are refused."""
    network: int
    """The same for TCP, in addition to the filter of system calls."""
    scoped: int
    list: int
    read: int
    use: int
    """For devices such as /dev/null."""
    write: int
    of_files: int


def rights(version: int, *, network: bool) -> Rights:
    """The rights for a version of the interface, at least `LEAST`."""
    handled = _ALL | (_IOCTL_DEV if version >= 5 else 0)
    write = READ | _WRITE_FILE | _TRUNCATE | _REFER | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM
    return Rights(
        handled=handled,
        network=_BIND_TCP | _CONNECT_TCP if version >= 4 and not network else 0,
        scoped=_SCOPES if version >= SIGNALS else 0,
        list=_READ_DIR,
        read=READ,
        use=_READ_FILE | _WRITE_FILE,
        write=write | _MAKE_FIFO | _MAKE_SOCK,
        of_files=_OF_FILES,
    )
