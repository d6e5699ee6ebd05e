"""Look at the project's git repository: status, history, changes, and who wrote what.

Changes nothing, not even git's index, and runs nothing that the repository's own configuration names: a repository may
come from a stranger. Clean filters, fsmonitor and external diffs of a repository are therefore off; those that the user
has configured for all repositories (Git LFS) work.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias, TypedDict

import anyio
from anyio.abc import ByteReceiveStream
from pydantic import Field

from prowess import ConfigPaths, SkillError, skill_command

MOST_BYTES: Final = 4_000_000  # read from git for one answer; then it is stopped
MOST_MESSAGE_BYTES: Final = 10_000
EMPTY_TREES: Final = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
KEPT_VARIABLES: Final = ("PATH", "HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "TMPDIR")
VARIABLES: Final = {
    "LC_ALL": "C.UTF-8",
    "GIT_OPTIONAL_LOCKS": "0",  # `git status` would else refresh the index
    "GIT_LITERAL_PATHSPECS": "1",  # a path is a path: no globs, no `:(top)`
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",  # a partial clone would else fetch what it lacks
    "GIT_ALLOW_PROTOCOL": "none",  # and so would a git that does not know the variable above
    "GIT_PAGER": "cat",
}
CONFIGURATION: Final = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",
    "diff.autoRefreshIndex": "false",  # `git diff` writes the index, whatever GIT_OPTIONAL_LOCKS says
    "log.showSignature": "false",  # would run gpg.program
    "blame.ignoreRevsFile": "",
}
DIFF_OPTIONS: Final = [
    *("--no-color", "--no-ext-diff", "--no-textconv", "--find-renames", "--relative", "-O/dev/null"),
    *("--submodule=short", "--ignore-submodules=dirty", "--src-prefix=a/", "--dst-prefix=b/"),
]
NO_REVISION: Final = re.compile(r"^-|[\s:\x00-\x1f\x7f]|^$")

Change: TypeAlias = Literal[
    "added", "modified", "deleted", "renamed", "copied", "retyped", "untracked", "conflicted", "unknown"
]
CHANGES: Final[dict[str, Change]] = {
    **{"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "C": "copied", "T": "retyped"},
}
Revision: TypeAlias = Annotated[str, Field(max_length=500)]
