"""Search the project's files, find them by name, read parts of them. Changes nothing, and stays inside the project."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import json
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, NotRequired, TypedDict

import anyio
from pydantic import Field

from prowess import ConfigPaths, Context, Settings, SkillError, skill_command

from .scan import IGNORED, Case, File, Globs, Matches, Query, Unreadable, Walk, opened, shown

SCANNER: Final = Path(__file__).with_name("scan.py")
FILE_BYTES: Final = 2_000_000  # what is larger is data, not text; the setting text.max_file_bytes changes it
SEARCH_SECONDS: Final = 20.0  # well within the timeout, so that what was found gets out; the setting is text.seconds
LINE_BYTES: Final = 4_000
SLICE_CHARS: Final = 60_000
BINARY_SAMPLE: Final = 8192


class FoundFile(TypedDict):
    """A file, its size, and when it was last changed."""

    path: str
    bytes: int
    modified: datetime


class Found(TypedDict):
    """The files that were found. `note` says what was left out."""

    files: list[FoundFile]
    note: NotRequired[str]


class Slice(TypedDict):
    """The lines of a file from `start` to `end`, both counted from 1."""

    path: str
    start: int
    end: int
    text: str
    note: NotRequired[str]


# --- search ---------------------------------------------------------------------------------------


@skill_command(
    title="Search text", category="files", read_only=True, idempotent=True, open_world=False, timeout=60, concurrency=4
)
async def search(
    pattern: Annotated[str, Field(min_length=1, max_length=1000)],
    paths: ConfigPaths,
    settings: Settings,
    path: str = ".",
    *,
    regex: bool = False,
    case: Case = "smart",
    globs: Annotated[tuple[Annotated[str, Field(max_length=1000)], ...], Field(max_length=50)] = (),
    context: Annotated[int, Field(ge=0, le=20)] = 0,
    max_results: Annotated[int, Field(ge=1, le=1000)] = 100,
) -> Matches:
    """Search the text of the project's files, line by line.

    Gives path, line number and text of each line that matches. Leaves out binary and very large files, symbolic links,
    and folders like .git, node_modules and virtual environments.

    Args:
        pattern: What to look for: a literal text, or a regular expression (Python syntax) if regex is true.
        path: The file or folder to search, relative to the project root.
        regex: Whether the pattern is a regular expression.
        case: "smart" ignores case unless the pattern has capital letters.
        globs: Which files: "*.py" at any depth, "src/**/*.{ts,tsx}"; with "!" in front, which files not.
        context: How many lines to show before and after each match.
        max_results: How many matches to give at most.
    """
    query = Query(
        pattern=pattern,
        regex=regex,
        case=case,
        context=context,
        max_results=max_results,
        max_file_bytes=int(settings.get("text.max_file_bytes", FILE_BYTES)),
        seconds=float(settings.get("text.seconds", SEARCH_SECONDS)),
    )
    return await _scan(
        root=str(paths.project_root),
        start=str(_existing(paths, path)),
        globs=globs,
        ignored=sorted(_ignored(settings)),
        query=dataclasses.asdict(query),
    )


async def _scan(**asked: Any) -> Matches:
    """What the scanner answers, in a process of its own. A call that is cancelled or out of time kills it."""
    command = [sys.executable, "-I", "-S", str(SCANNER)]
    done = await anyio.run_process(command, input=json.dumps(asked).encode(), check=False)
    if done.returncode:
        reason = done.stderr.decode(errors="replace")
        raise RuntimeError(f"the scanner ended with {done.returncode}: {reason}")
    told = json.loads(done.stdout)
    if "error" in told:
        raise SkillError(told["error"])
    return told["answer"]


# --- find -----------------------------------------------------------------------------------------


@skill_command(title="Find files", category="files", read_only=True, idempotent=True, open_world=False, timeout=60)
def find(
    glob: Annotated[str, Field(min_length=1, max_length=1000)],
    paths: ConfigPaths,
    settings: Settings,
    ctx: Context,
    path: str = ".",
    *,
    order: Literal["path", "newest"] = "path",
    max_results: Annotated[int, Field(ge=1, le=2000)] = 200,
) -> Found:
    """Find files of the project by name.

    Gives path, size and time of the last change. Leaves out symbolic links, and folders like .git, node_modules and
    virtual environments.

    Args:
        glob: "*.py" at any depth, or a path in which "**" stands for any folders: "src/**/test_*.{ts,tsx}".
        path: The folder to look in, relative to the project root.
        order: By path, or what was changed last first.
        max_results: How many files to give at most.
    """
    try:
        globs = Globs([glob])
    except ValueError as error:
        raise SkillError(str(error)) from error
    start = _existing(paths, path)
    if not start.is_dir():
        raise SkillError(f"{path!r} is a file; give the folder to look in, or read the file with text_read")
    walk = Walk(paths.project_root, start, globs, _ignored(settings), stop=lambda: ctx.cancelled)
    found: Iterable[FoundFile] = filter(None, map(_described, walk))
    if order == "newest":
        found = sorted(found, key=lambda file: file["modified"], reverse=True)
    files = list(islice(found, max_results + 1))
    notes = [f"there are more than {max_results}: use a narrower glob, or raise max_results"] * (
        len(files) > max_results
    )
    notes += walk.notes
    result = Found(files=files[:max_results])
    if notes:
        result["note"] = "; ".join(notes)
    return result


def _described(file: File) -> FoundFile | None:
    try:
        stat = file.path.lstat()
    except OSError:  # gone in the meantime
        return None
    try:
        modified = datetime.fromtimestamp(int(stat.st_mtime), UTC)
    except (ValueError, OverflowError, OSError):  # a time that no clock shows
        modified = datetime.max.replace(tzinfo=UTC)
    return FoundFile(path=file.name, bytes=stat.st_size, modified=modified)


# --- read -----------------------------------------------------------------------------------------


@skill_command(title="Read lines", category="files", read_only=True, idempotent=True, open_world=False, timeout=60)
def read(
    file: str,
    paths: ConfigPaths,
    ctx: Context,
    start: Annotated[int, Field(ge=-10_000, le=1_000_000_000_000)] = 1,
    limit: Annotated[int, Field(ge=1, le=5000)] = 500,
) -> Slice:
    """Read some lines of a text file of the project.

    Args:
        file: The file, relative to the project root.
        start: The first line to read, counted from 1; a negative number counts from the end: -50 reads the last 50.
        limit: How many lines to read at most.
    """
    path = _existing(paths, file)
    try:
        lines = _lines(path, ctx)
        wanted = deque(lines, -start) if start < 0 else islice(lines, max(start, 1) - 1, None)
        return _slice(file, list(_bounded(wanted, limit)), max(start, 1), limit)
    except Unreadable as reason:
        raise SkillError(f"{file} cannot be read as text: {reason}") from reason


class Line(NamedTuple):
    """A line: its number, its text, whether that is only its beginning, and whether all of it is UTF-8."""

    number: int
    text: str
    cut: bool
    utf8: bool


def _slice(file: str, lines: list[Line], start: int, limit: int) -> Slice:
    """The lines as a result; one more than there should be says that lines follow."""
    follows = len(lines) > limit or sum(len(line.text) for line in lines) > SLICE_CHARS
    if follows and len(lines) > 1:
        lines = lines[:-1]
    if not lines and start > 1:
        raise SkillError(f"{file} ends before line {start}; a negative start counts from its end")
    first, last = (lines[0].number, lines[-1].number) if lines else (1, 0)
    result = Slice(path=file, start=first, end=last, text="\n".join(line.text for line in lines))
    notes = [f"lines follow: go on with start={last + 1}"] if follows else []
    if any(line.cut for line in lines):
        notes.append(f"lines of more than {LINE_BYTES:,} bytes were cut, and end with …")
    if not all(line.utf8 for line in lines):
        notes.append("the file is not UTF-8: what could not be read is shown as \N{REPLACEMENT CHARACTER}")
    if notes:
        result["note"] = "; ".join(notes)
    return result


def _bounded(lines: Iterable[Line], limit: int) -> Iterator[Line]:
    """At most one line more than the limits let through, in number and in length."""
    chars = 0
    for before, line in enumerate(lines):
        yield line
        chars += len(line.text)
        if before == limit or chars > SLICE_CHARS:
            return


def _lines(path: Path, ctx: Context) -> Iterator[Line]:
    """The lines of a file that may be of any size; overlong ones are cut."""
    with os.fdopen(opened(path), "rb") as file:
        sample = file.peek(BINARY_SAMPLE)[:BINARY_SAMPLE]
        if b"\0" in sample:
            raise Unreadable("it is binary")
        if sample.startswith(codecs.BOM_UTF8):
            file.seek(len(codecs.BOM_UTF8))
        most = LINE_BYTES + len("\r\n")
        for number in count(1):
            line = file.readline(most)
            if not line or ctx.cancelled:
                return
            cut = len(line) == most and not line.endswith(b"\n")
            yield Line(number, *_text(line[:LINE_BYTES] if cut else line, cut=cut))
            while cut and (rest := file.readline(LINE_BYTES)) and not rest.endswith(b"\n") and not ctx.cancelled:
                pass


def _text(line: bytes, *, cut: bool) -> tuple[str, bool, bool]:
    """The text of a line, and two facts about it. A character that is cut in two is left out."""
    try:
        text, utf8 = codecs.utf_8_decode(line, "strict", not cut)[0], True
    except UnicodeDecodeError:
        text, utf8 = codecs.utf_8_decode(line, "replace", not cut)[0], False
    return (f"{text}…" if cut else text.rstrip("\r\n")), cut, utf8


# --- shared ---------------------------------------------------------------------------------------


def _existing(paths: ConfigPaths, path: str) -> Path:
    found = paths.inside(path)
    if "\N{REPLACEMENT CHARACTER}" in path and not found.exists():
        found = paths.inside(_meant(found))
    if not found.exists():
        raise SkillError(f"there is no {path!r} in the project; text_find finds files by name")
    return found


def _meant(path: Path) -> Path:
    """The path whose names, which are not UTF-8, are shown like those of this path, if there is exactly one."""
    here = Path(path.anchor)
    for part in path.parts[1:]:
        alike: list[str] = []
        if not (here / part).exists():
            with contextlib.suppress(OSError):
                alike = [each.name for each in here.iterdir() if shown(each.name) == part]
        here /= alike[0] if len(alike) == 1 else part
    return here


def _ignored(settings: Settings) -> frozenset[str]:
    """Folders to leave out: those everybody has, and the setting text.ignore."""
    more = settings.get("text.ignore", [])
    return IGNORED | set(more.split(",") if isinstance(more, str) else more)
