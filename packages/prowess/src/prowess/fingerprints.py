"""Whether files are still what they were: by their status first, by their content where the status leaves a doubt.

Knows files, no skills. Light: the host uses it on its way to the first answer.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

__all__ = ["Seen", "Sightings", "changed", "listing", "look", "look_again"]

_RACE: Final = 2_000_000_000
"""Nanoseconds within which two writes may leave the same time: file systems count in steps, and clocks are set."""


class Seen(NamedTuple):
    """A file as it was when somebody looked."""

    mtime_ns: int
    size: int
    digest: str
    at_ns: int
    """When it was looked at, on the clock that file times are of."""


Sightings: TypeAlias = "Mapping[str, Seen]"


def look(path: str, now_ns: int, content: bytes | None = None) -> Seen | None:
    """A file as it is now, or `None` where there is none. `content` is what was really read, where that is known.

    A file that changes while it is looked at is seen with a time that fits nothing, so that it is looked at again.
    """
    try:
        before = os.stat(path)
        if content is None:
            with open(path, "rb") as file:
                content = file.read()
        after = os.stat(path)
    except OSError:
        return None
    steady = (
        (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size) == (after.st_mtime_ns, len(content))
    )
    return Seen(after.st_mtime_ns if steady else -1, len(content), _digest(content), now_ns)


def look_again(path: str, seen: Seen) -> bool:
    """Whether a file still says what it said."""
    try:
        status = os.stat(path)
        if status.st_size != seen.size or not stat.S_ISREG(status.st_mode):
            return False
        certain = abs(seen.at_ns - seen.mtime_ns) > _RACE and seen.mtime_ns < seen.at_ns
        if certain and status.st_mtime_ns == seen.mtime_ns:
            return True
        with open(path, "rb") as file:
            return _digest(file.read()) == seen.digest
    except OSError:
        return False


def changed(sightings: Sightings) -> set[str]:
    """The files that do not say what they said."""
    return {path for path, seen in sightings.items() if not look_again(path, seen)}


def listing(folders: Iterable[str], endings: tuple[str, ...]) -> str:
    """A digest of the names in folders that have one of the endings."""
    names: list[str] = []
    for folder in folders:
        try:
            names.extend(f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name.endswith(endings))
        except OSError:
            names.append(f"{folder} is not there")
    return _digest("\n".join(names).encode("utf-8", "surrogateescape"))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
