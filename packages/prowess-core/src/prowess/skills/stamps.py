"""The version of a file, by its status, or by its content if the status is inconclusive. All of Prowess uses this one.

Light: the host uses it before the first answer.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "ABSENT",
    "Seen",
    "Sightings",
    "Stamp",
    "as_imported",
    "changed",
    "digest_of",
    "listing",
    "look",
    "look_again",
    "read",
    "refreshed",
    "stamp",
]

_RACE: Final = 2_000_000_000
"""Nanoseconds within which two writes may have the same time, because file systems round times and clocks change."""


_GRAIN: Final = 20_000_000
"""Nanoseconds by which the time of a file may lag behind the clock."""


class Stamp(NamedTuple):
    """The version of a file by its status. Versions are compared by this."""

    mtime_ns: int
    ctime_ns: int
    """Only the system sets this time: `cp -p` and `touch -d` cannot set it back, as they can `mtime`."""
    size: int
    inode: int


ABSENT: Final = Stamp(0, 0, 0, 0)
"""The stamp of a missing file."""


class Seen(NamedTuple):
    """The state of a file at one moment."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int
    digest: str
    at_ns: int
    """The time of the check, on the clock of file times."""


Sightings: TypeAlias = "Mapping[str, Seen]"


def stamp(path: str) -> Stamp:
    """The version of the file at a path."""
    try:
        return _stamp(os.stat(path))
    except OSError:
        return ABSENT


def digest_of(content: bytes) -> str:
    """The version of a file by its content."""
    return hashlib.sha256(content).hexdigest()


def read(path: str) -> bytes:
    """The content of a regular file. Raises `OSError` for others, because reading from a FIFO or a device may never end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return file.read()


def look(path: str, now_ns: int) -> Seen | None:
    """The state of a file now, or `None` for a missing one.

    If a file changes during the check, its state gets an impossible time, which forces another check.
    """
    try:
        before = os.stat(path)
        content = read(path)
        after = os.stat(path)
    except OSError:
        return None
    steady = _stamp(before) == _stamp(after) and after.st_size == len(content)
    then = _stamp(after)._replace(size=len(content))
    return Seen(*(then if steady else then._replace(mtime_ns=-1)), digest_of(content), now_ns)


def as_imported(seen: Seen, digest: str | None, since_ns: int) -> Seen:
    """The state of a file at its import: with this digest or, if that is unknown, at some time after `since_ns`.

    If it may have changed since, it gets an impossible time, which forces another check.
    """
    if digest is not None:
        return seen if digest == seen.digest else seen._replace(mtime_ns=-1, digest=digest)
    saved_since = max(seen.mtime_ns, seen.ctime_ns) > since_ns - _GRAIN
    return seen._replace(mtime_ns=-1, digest="") if saved_since else seen


def look_again(path: str, seen: Seen) -> bool:
    """Whether a file still has the same content."""
    try:
        status = os.stat(path)
        if status.st_size != seen.size or not stat.S_ISREG(status.st_mode):
            return False
        return _is_conclusive(status, seen) or digest_of(read(path)) == seen.digest
    except OSError:
        return False


def refreshed(sightings: Sightings, now_ns: int) -> dict[str, Seen]:
    """The same sightings, with newer ones for unchanged files that every check has to read."""
    fresh = dict(sightings)
    for path, seen in sightings.items():
        found = None if _is_steady(path, seen) else look(path, now_ns)
        if found is not None and found.digest == seen.digest:
            fresh[path] = found
    return fresh


def changed(sightings: Sightings) -> set[str]:
    """The files whose content has changed."""
    return {path for path, seen in sightings.items() if not look_again(path, seen)}


def listing(folders: Iterable[str], endings: tuple[str, ...]) -> str:
    """A digest of the entries of folders whose names have one of the endings: of the times of folders, the content of files."""
    entries: list[str] = []
    for folder in folders:
        try:
            entries.extend(_dated(f"{folder}/{name}") for name in sorted(os.listdir(folder)) if name.endswith(endings))
        except OSError:
            entries.append(f"{folder} is missing")
    return digest_of("\n".join(entries).encode("utf-8", "surrogateescape"))


def _dated(path: str) -> str:
    try:
        found = os.stat(path)
        if stat.S_ISREG(found.st_mode):
            # Its times change whenever uv links the same file into another environment.
            return f"{path} {digest_of(read(path))}"
    except OSError:
        return path
    return f"{path} {' '.join(map(str, _stamp(found)))}"


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def _is_steady(path: str, seen: Seen) -> bool:
    try:
        return _is_conclusive(os.stat(path), seen)
    except OSError:
        return True


def _is_conclusive(found: os.stat_result, seen: Seen) -> bool:
    """Whether the status is conclusive: unchanged, and so old that another change would have another time."""
    long_after = seen.at_ns - max(seen.mtime_ns, seen.ctime_ns) > _RACE
    return long_after and _stamp(found) == seen[:4]
