"""Keeps the folder of manifests in the cache tidy. The only module that deletes files.

The cache folder may belong to the user (`cache_dir = "."`). So a file is deleted only if its folder has our mark, its name
has the form of a manifest, and its content begins like a manifest.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from pathlib import Path
from typing import Final

from prowess_host.catalog.manifest_names import FOLDERS

__all__ = ["folder_in", "put", "read_own"]

_TAG: Final = "CACHEDIR.TAG"
_MARK: Final = b"""Signature: 8a477f597d28d172789f06886806bc55
# Prowess made this folder. What is in it can be made again, so it may be deleted at any time.
"""
"""Backup programs look for the first line, see https://bford.info/cachedir/."""
_KEPT: Final = re.compile(r"[0-9a-f]{24}\.json")
_DRAFT: Final = re.compile(r"[0-9a-f]{24}\.[0-9a-f]{16}")
_BEGINNING: Final = re.compile(rb'[0-9a-f]{64}\n\{"form": ')
_STALE: Final = 90 * 86400.0
"""Seconds after which an unchanged manifest is deleted. If its project still exists, its skills are described again."""
_FORGOTTEN: Final = 3600.0
"""The same for a draft: its host was killed while writing."""


def folder_in(cache: Path) -> Path:
    """The folder of manifests in a cache folder; it need not exist yet."""
    first, second = (cache / name for name in FOLDERS)
    return first if not os.path.lexists(first) or _is_ours(first) else second


def read_own(path: Path) -> bytes:
    """The content of a regular file that belongs to this user, so that no other user can change what clients see."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{path} is not a file of this user")
        return file.read()


def put(path: Path, content: bytes) -> None:
    """Replace a file in one step, so that no reader finds half of it, then delete stale manifests beside it."""
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    if not _is_ours(folder):
        raise PermissionError(f"{folder} holds files that Prowess did not write")
    draft = folder / f"{path.stem}.{os.urandom(8).hex()}"
    try:
        if not os.path.lexists(folder / _TAG):
            _mark(folder)
        draft.write_bytes(content)
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    _sweep(folder)


def _is_ours(folder: Path) -> bool:
    """Whether a folder has our mark, or only files with our names: a host may have been killed before it set the mark."""
    try:
        if folder.is_symlink():
            return False
        names = os.listdir(folder)  # once, because another host may set the mark meanwhile
        if _TAG in names:
            return read_own(folder / _TAG) == _MARK
        return all(_KEPT.fullmatch(name) or _DRAFT.fullmatch(name) for name in names)
    except OSError:
        return False


def _mark(folder: Path) -> None:
    """Set the mark in one step: several hosts may do this at once."""
    draft = folder / f"{'0' * 24}.{os.urandom(8).hex()}"
    draft.write_bytes(_MARK)
    os.replace(draft, folder / _TAG)


def _sweep(folder: Path) -> None:
    now = time.time()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another host may have been faster
                if _is_out_of_date(entry, now):
                    os.unlink(entry)


def _is_out_of_date(entry: os.DirEntry[str], now: float) -> bool:
    kept, draft = _KEPT.fullmatch(entry.name), _DRAFT.fullmatch(entry.name)
    if (not kept and not draft) or not entry.is_file(follow_symlinks=False):
        return False
    if now - entry.stat(follow_symlinks=False).st_mtime <= (_STALE if kept else _FORGOTTEN):
        return False
    with open(os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        beginning = file.read(128)
    return bool(_BEGINNING.match(beginning)) or bool(draft and _is_torn(beginning))


def _is_torn(beginning: bytes) -> bool:
    """Whether a draft ends before the bytes that identify it as ours."""
    return len(beginning) < 128 and (_MARK.startswith(beginning) or bool(re.fullmatch(rb"[0-9a-f]{0,64}", beginning)))
