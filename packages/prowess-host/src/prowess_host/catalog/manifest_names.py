"""The names of manifests. Light, because a host looks for one before it imports anything else."""

# ruff: noqa: PTH112, PTH113, PTH118, PTH123, PTH208 - pathlib takes milliseconds to import

from __future__ import annotations

import binascii
import os
from collections.abc import Iterable, Mapping
from typing import Final

from prowess.settings.caches import cache_folder

__all__ = ["FOLDERS", "name_of_root", "seems_new"]

FOLDERS: Final = ("manifests", "prowess-manifests")
"""Folders of manifests in a cache folder. The second one is used if the first one belongs to another program."""
_SETTING: Final = "cache_dir"
"""The setting for another cache folder."""
_FILES: Final = ("prowess.toml", "pyproject.toml", ".env")


def name_of_root(root: str) -> str:
    """The first part of the names of all manifests of a project: eight characters."""
    return f"{binascii.crc32(os.fsencode(root)):08x}"


def seems_new(root: str, environ: Mapping[str, str], flags: Iterable[str] = ()) -> bool:
    """Whether a project was probably never served: the usual cache folder has no manifest of it.

    A guess before the settings are read. It is false if they may name another cache folder.
    """
    cache, start = cache_folder(environ), name_of_root(root)
    if cache is None or not os.path.isdir(root):
        return False
    files = (os.path.join(root, name) for name in _FILES)
    texts = (_text(file) for file in files if os.path.lexists(file))
    if any(_SETTING in text.lower() for given in (environ, flags, texts) for text in given):
        return False
    return not any(name.startswith(start) for folder in FOLDERS for name in _names(os.path.join(cache, folder)))


def _text(path: str) -> str:
    """The text of a file. What cannot be read now may name anything: a pipe has a writer that expects one reader."""
    try:
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
    except OSError:
        pass
    return _SETTING


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
