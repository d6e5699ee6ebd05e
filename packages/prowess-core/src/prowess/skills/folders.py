"""Walks through folders with links: visits every folder once, never goes upwards, and always ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["Tree", "TreeFolder", "leads_up", "out_of_files", "raise_shortage", "walk"]

_MOST: Final = 20_000
"""The most folders in one tree: enough for 2,000 skills with some folders each, but not for a link to a whole disk."""
_DEEPEST: Final = 64


class TreeFolder(NamedTuple):
    """One folder of a tree."""

    path: str
    identity: tuple[int, int]
    """Device and inode, which show whether a folder was replaced."""
    files: tuple[str, ...]
    """The names of everything except folders: regular files, broken links, devices."""


class Tree(NamedTuple):
    """A folder with all folders below it."""

    folders: tuple[TreeFolder, ...]
    whole: bool = True
    """Whether the tree is complete. Very large and very deep trees are cut."""


def walk(top: str, enters: Callable[[str], bool]) -> Tree:
    """The tree below a folder. `enters` decides for each path whether it counts.

    Links are followed last, so that a folder is found at its real place. A link to a folder above the top is skipped.
    Raises `OSError` if this process may open no more files: the folders would seem to be empty.
    """
    tree: list[TreeFolder] = []
    known: set[tuple[int, int]] = set()
    waiting, links = [(top, 0)], list[tuple[str, int]]()
    whole = True
    while waiting or links:
        path, depth = waiting.pop() if waiting else links.pop(0)
        if len(tree) >= _MOST or depth > _DEEPEST:
            whole = False
            continue
        try:
            found = os.stat(path)
            identity = found.st_dev, found.st_ino
            if identity in known:
                continue
            with os.scandir(path) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:
            raise_shortage(error)
            continue
        known.add(identity)
        folders = [entry for entry in entries if _is_folder(entry)]
        among = {entry.name for entry in folders}
        tree.append(TreeFolder(path, identity, tuple(entry.name for entry in entries if entry.name not in among)))
        for entry in folders:
            if not enters(entry.path):
                continue
            if not entry.is_symlink():
                waiting.append((entry.path, depth + 1))
            elif not leads_up(entry.path, top):
                links.append((entry.path, depth + 1))
    return Tree(tuple(tree), whole)


def out_of_files(error: OSError) -> bool:
    """Whether this process, or the system, has too many open files."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def raise_shortage(error: OSError) -> None:
    """Raise an error about too many open files. Any other error means that there is nothing to see."""
    if out_of_files(error):
        raise error


def leads_up(path: str, top: str) -> bool:
    """Whether a path leads to a folder or to one of its parents."""
    target, inside = os.path.realpath(path), os.path.realpath(top)
    return target == inside or inside.startswith(target.rstrip(os.sep) + os.sep)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link whose target cannot be read
        return False
