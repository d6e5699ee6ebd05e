"""Walking folders and matching lines. Also a program of its own, so that a search can be stopped in the middle of a match.

`re` holds the interpreter while it matches: a pattern like `(a+)+$` would stall everything else in this process, timeouts
included. A child process has an alarm clock, and can be killed. Knows the standard library only: the child starts bare.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import signal
import stat
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, NotRequired, TypeAlias, TypedDict

__all__ = ["IGNORED", "Case", "File", "Globs", "Match", "Matches", "Unreadable", "Walk", "opened", "search", "shown"]

Case: TypeAlias = Literal["smart", "sensitive", "insensitive"]
Parts: TypeAlias = tuple[str, ...]

IGNORED: Final = frozenset(
    ".git .hg .svn .jj .venv venv node_modules __pycache__ .tox .nox .mypy_cache .ruff_cache .pytest_cache .hypothesis".split()
)
MOST_ENTRIES: Final = 200_000  # files and folders that a walk looks at; a checkout of Linux has 90,000
MOST_DEPTH: Final = 100  # folders within folders; deeper ones are somebody's experiment
MOST_ALTERNATIVES: Final = 64  # what the `{a,b}` of one glob may unfold to
MATCHED_CHARS: Final = 10_000  # of a line; longer ones were generated, and are what makes slow patterns slow
SHOWN_CHARS: Final = 400  # of a line, around the match
MOST_CHARS: Final = 60_000  # of all matches together: more than that no model reads with care
BINARY_SAMPLE: Final = 8192  # bytes in which a zero means binary, as git has it


class Match(TypedDict):
    """One line that matches. `before` and `after` are there when context was asked for."""

    path: str
    line: int
    text: str
    before: NotRequired[list[str]]
    after: NotRequired[list[str]]


class Matches(TypedDict):
    """The lines that match, ordered by path. `note` says what was left out."""

    matches: list[Match]
    files_searched: int
    note: NotRequired[str]


class Unreadable(Exception):
    """A file that is not read as text: "binary", "too large", "not a file", or what the system says."""


def shown(path: str | os.PathLike[str]) -> str:
    """A path as text, also where its bytes are none."""
    return os.fsencode(path).decode("utf-8", "replace").replace(os.sep, "/")


# --- globs ----------------------------------------------------------------------------------------


class Globs:
    """Which files are wanted: `*.py` at any depth, `src/**/*.ts` from the root or the start, `!*.min.js` not at all."""

    def __init__(self, globs: Sequence[str]) -> None:
        self._wanted = [_segments(one) for glob in globs if not glob.startswith("!") for one in _unfolded(glob)]
        self._refused = [_segments(one) for glob in globs if glob.startswith("!") for one in _unfolded(glob[1:])]

    def want(self, *ways: Parts) -> bool:
        """Whether a file is wanted, given by the ways that lead to it: from the root, and from the start."""
        return not self._wanted or any(_fits(glob, way) for glob in self._wanted for way in ways)

    def refuse(self, *ways: Parts) -> bool:
        """Whether a file, or a folder with all that is in it, is not wanted."""
        return any(_fits(glob, way) for glob in self._refused for way in ways)


def _unfolded(glob: str) -> list[str]:
    """`*.{js,ts}` as `*.js` and `*.ts`."""
    globs = [glob]
    while found := re.search(r"\{([^{}]*)\}", globs[0]):
        globs = [one.replace(found[0], choice, 1) for one in globs for choice in found[1].split(",")]
        if len(globs) > MOST_ALTERNATIVES:
            raise ValueError(f"the glob {glob!r} has too many alternatives; give several shorter ones")
    return globs


def _segments(glob: str) -> Parts:
    parts = tuple(part for part in glob.split("/") if part not in ("", "."))
    if not parts:
        raise ValueError(f"{glob!r} is no glob; use something like *.py or src/**/*.ts")
    anywhere = ("**",) if "/" not in glob.rstrip("/") else ()
    return (*anywhere, *parts, "**") if glob.endswith("/") else (*anywhere, *parts)


def _fits(glob: Parts, way: Parts) -> bool:
    """Segment by segment, so that no glob takes longer than its length times that of the path."""
    reached: set[int] = {0}
    for segment in glob:
        if not reached:
            return False
        if segment == "**":
            reached = set(range(min(reached), len(way) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(way) and fnmatch.fnmatchcase(way[at], segment)}
    return len(way) in reached


# --- walking --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class File:
    """A file: where it is, and what a caller calls it."""

    path: Path
    name: str


@dataclass
class Walk:
    """The files below a folder, or one file, ordered by path. Symbolic links are never followed."""

    root: Path
    start: Path
    globs: Globs
    ignored: frozenset[str] = IGNORED
    stop: Callable[[], bool] = lambda: False
    entries: int = 0
    unreadable: int = 0
    too_deep: int = 0

    def __iter__(self) -> Iterator[File]:
        """The files. One that is named itself is given whatever the globs say."""
        if not self.start.is_dir():
            return iter([File(self.start, self._name(self._base))])
        return self._below(self.start, ())

    @property
    def notes(self) -> list[str]:
        """What was not walked."""
        notes = [f"stopped after {MOST_ENTRIES:,} files and folders: give a narrower path"] if self._full else []
        if self.too_deep:
            notes.append(f"{self.too_deep} folders that lie deeper than {MOST_DEPTH} were left out")
        return notes + ([f"{self.unreadable} folders could not be opened"] if self.unreadable else [])

    @property
    def _full(self) -> bool:
        return self.entries >= MOST_ENTRIES

    @property
    def _base(self) -> Parts:
        """The way from the root to the start; from the root of the file system where it leads out of the project."""
        inside = self.start.is_relative_to(self.root)
        return self.start.relative_to(self.root).parts if inside else self.start.parts

    def _below(self, folder: Path | os.DirEntry[str], way: Parts) -> Iterator[File]:
        for entry in self._listed(folder):
            self.entries += 1
            if self._full or self.stop():
                return
            here = (*way, entry.name)
            ways = (self._base + here, here)
            if self.globs.refuse(*ways):
                continue
            if entry.is_dir(follow_symlinks=False):
                if not self._ignores(entry, here):
                    yield from self._below(entry, here)
            elif entry.is_file(follow_symlinks=False) and self.globs.want(*ways):
                yield File(Path(entry), self._name(ways[0]))

    def _ignores(self, folder: os.DirEntry[str], way: Parts) -> bool:
        if len(way) > MOST_DEPTH:
            self.too_deep += 1
            return True
        return folder.name in self.ignored or Path(folder, "pyvenv.cfg").exists()

    def _listed(self, folder: Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError:
            self.unreadable += 1
            return []

    def _name(self, way: Parts) -> str:
        return shown(Path(*way))


# --- reading and matching -------------------------------------------------------------------------


def opened(path: Path) -> int:
    """A descriptor of an ordinary file: never of a link that was put there meanwhile, never one that blocks."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unreadable("not a file")
    return descriptor


def _load(path: Path, most_bytes: int) -> tuple[list[str], bool]:
    """The lines of a text file, and whether it is UTF-8."""
    with os.fdopen(opened(path), "rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise Unreadable("too large")
    if b"\0" in data[:BINARY_SAMPLE]:
        raise Unreadable("binary")
    try:
        text, utf8 = data.decode("utf-8-sig"), True
    except UnicodeDecodeError:
        text, utf8 = data.decode("utf-8-sig", "replace"), False
    lines = text.split("\n")  # not splitlines(): line numbers are those of an editor
    return [line.removesuffix("\r") for line in (lines[:-1] if not lines[-1] else lines)], utf8


@dataclass(kw_only=True)
class Query:
    """What to search for, and the bounds of it."""

    pattern: str
    regex: bool
    case: Case
    context: int
    max_results: int
    max_file_bytes: int
    seconds: float

    def compiled(self) -> re.Pattern[str]:
        """The pattern; raises `ValueError` with what is wrong with it."""
        if "\n" in self.pattern:
            raise ValueError("a pattern with a line break finds nothing: lines are searched one by one")
        folded = self.case == "insensitive" or (self.case == "smart" and self.pattern == self.pattern.lower())
        try:
            with warnings.catch_warnings(action="ignore"):
                return re.compile(
                    self.pattern if self.regex else re.escape(self.pattern), re.IGNORECASE if folded else 0
                )
        except (re.error, OverflowError, RecursionError) as error:
            hint = "escape what is meant literally, or set regex to false"
            raise ValueError(f"{self.pattern!r} is no regular expression: {error}; {hint}") from error


@dataclass
class Hunt:
    """A search under way."""

    query: Query
    walk: Walk
    matches: list[Match] = field(default_factory=list[Match])
    searched: int = 0
    too_large: int = 0
    binary: int = 0
    refused: int = 0
    not_utf8: int = 0
    overlong: int = 0
    chars: int = 0
    now: str = ""

    def run(self) -> Matches:
        """Search until the end, or until a bound is reached."""
        pattern = self.query.compiled()
        try:
            with _alarm(self.query.seconds):
                return self._result(self._search(pattern))
        except OutOfTime:
            spent = (
                f"gave up after {self.query.seconds:g} s, in {self.now}: a simpler pattern or narrower globs will help"
            )
            return self._result(spent)

    def _search(self, pattern: re.Pattern[str]) -> str:
        """Search file by file; gives the reason for stopping early, or nothing."""
        for file in self.walk:
            self.now = file.name
            for match in self._in_file(file, pattern):
                if len(self.matches) == self.query.max_results:
                    return (
                        f"there are more than {self.query.max_results} matches: narrow the search, or raise max_results"
                    )
                self.chars += len(json.dumps(match, ensure_ascii=False))
                if self.chars > MOST_CHARS:
                    return f"cut off after {len(self.matches)} matches, for length: narrow the search, or ask for less context"
                self.matches.append(match)
        return ""

    def _in_file(self, file: File, pattern: re.Pattern[str]) -> Iterator[Match]:
        try:
            lines, utf8 = _load(file.path, self.query.max_file_bytes)
        except Unreadable as reason:
            self.too_large += str(reason) == "too large"
            self.binary += str(reason) == "binary"
            self.refused += str(reason) not in ("too large", "binary")
            return
        self.searched += 1
        self.not_utf8 += not utf8
        self.overlong += any(len(line) > MATCHED_CHARS for line in lines)
        for index, line in enumerate(lines):
            if found := pattern.search(line[:MATCHED_CHARS]):
                yield self._match(file.name, lines, index, found.start())

    def _match(self, name: str, lines: Sequence[str], index: int, column: int) -> Match:
        match = Match(path=name, line=index + 1, text=_excerpt(lines[index], column))
        if around := self.query.context:
            match["before"] = [_excerpt(line) for line in lines[max(0, index - around) : index]]
            match["after"] = [_excerpt(line) for line in lines[index + 1 : index + 1 + around]]
        return match

    def _result(self, stopped: str) -> Matches:
        notes = [stopped] if stopped else []
        notes += self.walk.notes
        if self.too_large:
            notes.append(f"{self.too_large} files of more than {self.query.max_file_bytes:,} bytes were left out")
        if self.binary and not self.walk.start.is_dir():  # in a folder there are always some
            notes.append("the file is binary, or not UTF-8, and was left out")
        if self.not_utf8 and not self.query.pattern.isascii():
            notes.append(f"{self.not_utf8} files are not UTF-8: only ASCII is found in them")
        if self.overlong:
            notes.append(
                f"{self.overlong} files have long lines, of which only the first {MATCHED_CHARS:,} characters were searched"
            )
        if self.refused:
            notes.append(f"{self.refused} files could not be read")
        result = Matches(matches=self.matches, files_searched=self.searched)
        if notes:
            result["note"] = "; ".join(notes)
        return result


def _excerpt(line: str, column: int = 0) -> str:
    """The part of a long line around a column."""
    if len(line) <= SHOWN_CHARS:
        return line
    start = max(0, min(column - SHOWN_CHARS // 4, len(line) - SHOWN_CHARS))
    cut = line[start : start + SHOWN_CHARS]
    return f"{'…' if start else ''}{cut}{'…' if start + SHOWN_CHARS < len(line) else ''}"


# --- the child ------------------------------------------------------------------------------------


class OutOfTime(Exception):
    """The alarm clock of the child rang."""


def _ring(*_: object) -> NoReturn:
    raise OutOfTime


@contextlib.contextmanager
def _alarm(seconds: float) -> Generator[None]:
    """Stop after so much time, in the middle of a match too: `re` looks for signals while it matches."""
    if not hasattr(signal, "setitimer"):  # no alarm on Windows: there the timeout of the command has to do
        yield
        return
    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def search(root: Path, start: Path, globs: Sequence[str], ignored: Sequence[str], query: Query) -> Matches:
    """The lines that match, in the files below a folder. Raises `ValueError` for a bad pattern or glob."""
    return Hunt(query, Walk(root, start, Globs(globs), frozenset(ignored))).run()


def main() -> None:
    """A question as JSON on standard input, the answer as JSON on standard output."""
    asked: dict[str, Any] = json.load(sys.stdin)
    try:
        query = Query(**asked["query"])
        answer = search(Path(asked["root"]), Path(asked["start"]), asked["globs"], asked["ignored"], query)
    except ValueError as error:
        json.dump({"error": str(error)}, sys.stdout)
    else:
        json.dump({"answer": answer}, sys.stdout)


if __name__ == "__main__":
    main()
