"""Writes a user's file completely or not at all: first a backup, then a new file renamed over the old one.

Mode and owner stay. A link stays a link: its target is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

from prowess.frozen import frozen

__all__ = ["WrittenFile", "back_up", "digest", "remove", "write"]

_WRITABLE: Final = 0o222


@frozen
class WrittenFile:
    """The file and the folders that a write has made."""

    file: bool
    folders: tuple[Path, ...]
    """The outermost one first."""


def digest(content: bytes) -> str:
    """A fingerprint of a content."""
    return hashlib.sha256(content).hexdigest()


def write(file: Path, content: bytes) -> WrittenFile:
    """Replace a file in one step, and make its folders. After an `OSError`, nothing has changed.

    A rename would also replace a file that is read-only, so the mode is checked: somebody wanted the file to stay.
    """
    target = Path(os.path.realpath(file))
    missing: list[Path] = []
    folder = target.parent
    while not folder.exists():
        missing.insert(0, folder)
        folder = folder.parent
    target.parent.mkdir(parents=True, exist_ok=True)
    before = target.stat() if target.exists() else None
    if before is not None and not before.st_mode & _WRITABLE:
        raise PermissionError(errno.EACCES, "it is read-only", str(target))
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        _dress(Path(name), before)
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    return WrittenFile(before is None, tuple(missing))


def _dress(file: Path, before: os.stat_result | None) -> None:
    """Set the mode and owner of the replaced file, or the usual ones for a new file."""
    if before is None:
        mask = os.umask(0)
        os.umask(mask)
        file.chmod(0o666 & ~mask)
        return
    file.chmod(before.st_mode & 0o7777)
    now = file.stat()
    if hasattr(os, "chown") and (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        with contextlib.suppress(PermissionError):  # only an administrator can change the owner
            os.chown(file, before.st_uid, before.st_gid)
            file.chmod(before.st_mode & 0o7777)  # changing the owner clears special bits


def back_up(folder: Path, file: Path, content: bytes) -> Path:
    """Save a content where only the user can read it. Equal contents are saved once."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = folder / f"{digest(content)[:16]}-{file.name}"
    if not kept.exists():
        handle = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
    return kept


def remove(file: Path, folders: tuple[Path, ...]) -> list[Path]:
    """Remove a file, and then the folders that are empty, innermost first. Returns the removed paths."""
    target = Path(os.path.realpath(file))
    gone: list[Path] = []
    with contextlib.suppress(FileNotFoundError):
        target.unlink()
        gone.append(file)
    for folder in reversed(folders):
        try:
            folder.rmdir()
        except OSError:  # not empty any more, or gone
            break
        gone.append(folder)
    return gone
