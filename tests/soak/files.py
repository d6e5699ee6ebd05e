"""What is on the disk, so that what nobody was to touch can be compared."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

__all__ = ["differences", "footprint"]

Footprint = dict[str, str]


def footprint(*folders: Path) -> Footprint:
    """Every file and folder, by its path: its mode, and what is in it."""
    return {str(path): _look(path) for folder in folders for path in [folder, *sorted(folder.rglob("*"))]}


def differences(before: Footprint, after: Footprint) -> list[str]:
    """The paths that have come, gone or changed."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _look(path: Path) -> str:
    status = path.lstat()
    mode = stat.filemode(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return f"{mode} {path.readlink()}"
    if not stat.S_ISREG(status.st_mode):
        return mode
    return f"{mode} {status.st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}"
