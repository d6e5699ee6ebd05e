"""Lists the files of a folder and reads one, without links, hidden files and files outside, up to a limit."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

__all__ = ["LARGEST", "MOST_FILES", "FoundFile", "Pattern", "list_files", "read_file", "read_pattern"]

MOST_FILES: Final = 10_000
"""Files of one folder that are listed and served."""
LARGEST: Final = 16 * 1024 * 1024
"""Bytes of one served file: the Skills extension allows this for a whole skill."""
_DEEPEST: Final = 32
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FoundFile(NamedTuple):
    """A file and its state."""

    path: str
    """Relative to the folder, with slashes."""
    size: int
    changed_ns: int
    """Part of the state: a file has changed if this tuple has."""
    identity: tuple[int, int]


class Pattern(NamedTuple):
    """A folder and a condition for its files."""

    folder: str
    """Relative to the project."""
    matches: Callable[[str], object]
    """Called with a path relative to the folder."""


def read_pattern(text: str) -> Pattern:
    """Parse `docs/**/*.md` into a folder and a condition. Raises `ValueError` for a malformed pattern."""
    parts = text.split("/")
    if not text or text.startswith("/") or "\\" in text or "\0" in text:
        raise ValueError("it must be a relative path with slashes")
    if any(part.startswith(".") or not part for part in parts):
        raise ValueError("it must not contain .. or name hidden files")
    fixed = next((place for place, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts) - 1)
    folder, rest = "/".join(parts[:fixed]), parts[fixed:]
    pattern = ""
    for place, part in enumerate(rest):
        last = place == len(rest) - 1
        if part == "**":
            pattern += ".*" if last else "(?:[^/]+/)*"
        else:
            pattern += _segment(part) if last else f"{_segment(part)}/"
    try:
        return Pattern(folder, re.compile(pattern, re.DOTALL).fullmatch)
    except re.error as error:
        raise ValueError(f"{text!r} cannot be matched: {error.msg}") from None


def _segment(part: str) -> str:
    """One segment of a pattern as a regular expression: `*`, `?` and `[...]` match anything but a slash."""
    signs = {"*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*|\?|\[!?[^\]]+\])", part)
    return "".join(
        signs.get(piece) or (_set(piece[1:-1]) if place % 2 else re.escape(piece)) for place, piece in enumerate(pieces)
    )


def _set(inner: str) -> str:
    """A set of characters, in which only `!` at the beginning and `-` between two characters are special."""
    letters = inner.removeprefix("!")
    escaped = re.sub(r"[\[\]^&~|]", r"\\\g<0>", letters)
    return f"[{'^' if letters != inner else ''}{escaped}]"


def list_files(folder: str, accepts: Callable[[str], object], most: int = MOST_FILES) -> list[FoundFile]:
    """The files below a folder, in order, without links and hidden files."""
    found: list[FoundFile] = []
    for each in _walk(folder, "", 0):
        if accepts(each.path):
            found.append(each)
        if len(found) >= most:
            break
    return sorted(found)


def _walk(folder: str, inside: str, depth: int) -> Iterator[FoundFile]:
    try:
        with os.scandir(os.path.join(folder, inside)) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _SKIPPED or not _can_be_named(entry.name):
            continue
        path = f"{inside}{entry.name}"
        try:
            facts = entry.stat(follow_symlinks=False)
        except OSError:  # just deleted
            continue
        if stat.S_ISDIR(facts.st_mode) and depth < _DEEPEST:
            yield from _walk(folder, f"{path}/", depth + 1)
        elif stat.S_ISREG(facts.st_mode):
            yield FoundFile(path, facts.st_size, facts.st_mtime_ns, (facts.st_dev, facts.st_ino))


def _can_be_named(name: str) -> bool:
    """Whether a name is valid text, which a URI needs."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_file(folder: str, path: str, most: int = LARGEST) -> bytes:
    """Read a file. Raises `OSError` unless it is a regular file in the folder.

    Every part of the path is opened relative to its parent, without following links, so that a folder that is replaced by
    a link meanwhile cannot lead outside.
    """
    *folders, name = path.split("/")
    if "\0" in path or any(not part or part.startswith(".") for part in (*folders, name)):
        raise FileNotFoundError(path)
    here = os.open(folder, _FOLDER)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        file = os.open(name, _FILE, dir_fd=here)
    finally:
        os.close(here)
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise FileNotFoundError(path)
        text = opened.read(most + 1)
    if len(text) > most:
        raise OSError(f"{path} is larger than {most} bytes")
    return text
