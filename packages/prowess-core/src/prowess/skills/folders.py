"""Walks through folders with links: visits every folder once, never goes upwards, and always ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["Place", "Tree", "leads_up", "walk"]

_MOST: Final = 20_000
"""Folders in one tree. 2,000 skills with some folders each fit in; a link to a whole disk does not."""
_DEEPEST: Final = 64


class Place(NamedTuple):
    """One folder of a tree."""

    path: str
    identity: tuple[int, int]
    """Device and inode: another folder may take the place of one."""
    files: tuple[str, ...]
    """The names of all that is not a folder: regular files, links that lead nowhere, devices."""


class Tree(NamedTuple):
    """The folders below one folder, and that folder itself."""

    places: tuple[Place, ...]
    whole: bool = True
    """Whether that is all: very large and very deep trees are cut off."""


def walk(top: str, enters: Callable[[str], bool]) -> Tree:
    """The tree below a folder. `enters` says of the path of each further folder whether it counts.

    Links are followed after everything else, so that a folder is found where it really is. A link that leads to a folder
    above the top is left out: what lies there is no part of the tree.
    """
    places: list[Place] = []
    known: set[tuple[int, int]] = set()
    waiting, links = [(top, 0)], list[tuple[str, int]]()
    whole = True
    while waiting or links:
        path, depth = waiting.pop() if waiting else links.pop(0)
        if len(places) >= _MOST or depth > _DEEPEST:
            whole = False
            continue
        try:
            found = os.stat(path)
            identity = found.st_dev, found.st_ino
            if identity in known:
                continue
            with os.scandir(path) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError:
            continue
        known.add(identity)
        folders = [entry for entry in entries if _is_folder(entry)]
        among = {entry.name for entry in folders}
        places.append(Place(path, identity, tuple(entry.name for entry in entries if entry.name not in among)))
        for entry in folders:
            if not enters(entry.path):
                continue
            if not entry.is_symlink():
                waiting.append((entry.path, depth + 1))
            elif not leads_up(entry.path, top):
                links.append((entry.path, depth + 1))
    return Tree(tuple(places), whole)


def leads_up(path: str, top: str) -> bool:
    """Whether a path leads to a folder that a folder lies in, or to that folder itself."""
    target, inside = os.path.realpath(path), os.path.realpath(top)
    return target == inside or inside.startswith(target.rstrip(os.sep) + os.sep)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link of which one may not know where it leads
        return False
