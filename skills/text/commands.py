"""Search the project's files, find them by name, read parts of them. Changes nothing, and stays inside the project."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

import anyio
from pydantic import Field

from prowess import ConfigPaths, Context, Settings, SkillError, skill_command

from .scan import IGNORED, Case, Globs, Matches, Query, Unreadable, Walk, opened, shown  # noqa: TID252 - skills are no packages: siblings are found relatively

SCANNER: Final = Path(__file__).with_name("scan.py")
MOST_FILE_BYTES: Final = 2_000_000  # above that, a text is data
SEARCH_SECONDS: Final = 20.0
LINE_CHARS: Final = 2_000
SLICE_CHARS: Final = 60_000


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
    """Some lines of a file, from `start` to `end`, which count from 1. `more` says whether lines follow."""

    path: str
    start: int
    end: int
    more: bool
    text: str
    note: NotRequired[str]


@skill_command(title="Search text", category="files", read_only=True, idempotent=True, open_world=False, timeout=60, concurrency=4)
async def search(
    pattern: Annotated[str, Field(min_length=1, max_length=1000)],
    paths: ConfigPaths,
    settings: Settings,
    path: str = ".",
    *,
    regex: bool = False,
    case: Case = "smart",
    globs: Annotated[Sequence[str], Field(max_length=50)] = (),
    context: Annotated[int, Field(ge=0, le=20)] = 0,
    max_results: Annotated[int, Field(ge=1, le=1000)] = 100,
) -> Matches:
    """Search the text of the project's files, line by line.

    Gives path, line number and text of each line that matches. Binary and very large files, symbolic links, and folders
    like .git, node_modules and virtual environments are left out.

    Args:
        pattern: What to look for: a literal text, or a regular expression (Python syntax) if regex is true.
        path: The file or folder to search, relative to the project root.
        regex: Whether the pattern is a regular expression.
        case: "smart" ignores case unless the pattern has capital letters.
        globs: Which files: "*.py" at any depth, "src/**/*.{ts,tsx}", and "!*.min.js" for those to leave out.
        context: How many lines to show before and after each match.
        max_results: When to stop.
    """
    start = _existing(paths, path)
    query = Query(
        pattern=pattern,
        regex=regex,
        case=case,
        context=context,
        max_results=max_results,
        max_file_bytes=int(settings.get("text.max_file_bytes", MOST_FILE_BYTES)),
        seconds=float(settings.get("text.seconds", SEARCH_SECONDS)),
    )
    asked = {
        "root": str(paths.project_root),
        "start": str(start),
        "globs": list(globs),
        "ignored": sorted(_ignored(settings)),
        "query": dataclasses.asdict(query),
    }
    return await _scanned(asked)


async def _scanned(asked: dict[str, Any]) -> Matches:
    """What the scanner answers. Being cancelled, or out of time, kills it."""
    command = [sys.executable, "-I", "-S", str(SCANNER)]
    done = await anyio.run_process(command, input=json.dumps(asked).encode(), check=False)
    if done.returncode:
        raise RuntimeError(f"the scanner ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    told = json.loads(done.stdout)
    if "error" in told:
        raise SkillError(told["error"])
    return told["answer"]


@skill_command(title="Find files", category="files", read_only=True, idempotent=True, open_world=False, timeout=60)
def find(
    glob: Annotated[str, Field(min_length=1, max_length=500)],
    paths: ConfigPaths,
    settings: Settings,
    ctx: Context,
    path: str = ".",
    *,
    order: Literal["path", "newest"] = "path",
    max_results: Annotated[int, Field(ge=1, le=2000)] = 200,
) -> Found:
    """Find files of the project by name.

    Gives path, size and time of the last change. Symbolic links, and folders like .git, node_modules and virtual
    environments are left out.

    Args:
        glob: "*.py" at any depth, or a path with "**" for any number of folders: "src/**/test_*.{ts,tsx}".
        path: The folder to look in, relative to the project root.
        order: By path, or those that were changed last first.
        max_results: How many files to give at most.
    """
    walk = Walk(paths.project_root, _existing(paths, path), _globs(glob), _ignored(settings), stop=lambda: ctx.cancelled)
    wanted = max_results + 1
    found = [entry for file in walk if (entry := _described(file.path, file.name))] if order == "newest" else list(
        itertools.islice((entry for file in walk if (entry := _described(file.path, file.name))), wanted)
    )
    return Found(files=found)
