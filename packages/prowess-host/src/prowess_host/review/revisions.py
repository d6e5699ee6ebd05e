"""Reads the committed catalog from a git revision."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from prowess.errors import ProwessError
from prowess_host.review.snapshot import Snapshot, parse_snapshot

__all__ = ["RevisionError", "read_revision"]

_SECONDS: Final = 60


class RevisionError(ProwessError):
    """Git cannot read the catalog in a revision."""


def read_revision(file: Path, root: Path, revision: str) -> Snapshot | None:
    """The catalog in a revision; `None` if it has none."""
    _git(root, "rev-parse", "--git-dir", failing=f"{root} is not in a git repository")
    _git(
        root,
        *("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"),
        failing=f"git knows no revision {revision!r}; fetch it first (in CI, with the whole history: fetch-depth: 0)",
    )
    path = Path(os.path.relpath(file, root)).as_posix()
    known = _git(root, "ls-tree", "--name-only", revision, "--", path, failing=f"{file} is outside of the repository")
    if not known.strip():
        return None
    text = _git(
        root, "show", "--end-of-options", f"{revision}:./{path}", failing=f"{file} cannot be read in {revision}"
    )
    return parse_snapshot(file, text)


def _git(root: Path, *words: str, failing: str) -> str:
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except FileNotFoundError as error:
        raise RevisionError("git is not installed, and `--against` needs it") from error
    except subprocess.TimeoutExpired as error:
        raise RevisionError(f"{failing}: git did not answer within {_SECONDS} s") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise RevisionError(f"{failing}{f' ({said})' if said else ''}")
    return done.stdout.decode("utf-8", "replace")
