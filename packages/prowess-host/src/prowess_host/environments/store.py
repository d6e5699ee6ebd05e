"""The folder of environments in the user's cache: one for each set of needs, shared by skills with equal needs.

An environment is built as a draft and moved to its place in one step. A host holds a shared lock on each environment that it
uses; building and deleting need the exclusive lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import prowess
from prowess.frozen import frozen
from prowess.settings.keys import OwnSettings
from prowess.worker.messages import RELEASE
from prowess_host.environments.declared import Declared

__all__ = ["BuiltEnvironment", "EnvironmentStore", "InUse", "base_python", "in_megabytes", "key_of", "source_tree"]

_FORM: Final = 1
_NOTE: Final = "prowess.json"
_USERS: Final = "users"
_KEY: Final = re.compile(r"[0-9a-f]{24}")
_DRAFT: Final = re.compile(r"[0-9a-f]{24}\.[0-9a-f]{8}")


class InUse(OSError):
    """Another process uses this environment."""


@frozen
class BuiltEnvironment:
    """A complete environment."""

    key: str
    path: Path
    python: str
    """The version of its Python."""
    dependencies: tuple[str, ...]
    size: int
    """The size of its files in bytes. Some may be shared with the cache of uv."""
    made: float
    used: float
    """The time of the last start of a worker in it, in seconds since 1970."""

    def in_words(self, now: float) -> str:
        """One line about it, for people."""
        return f"Python {self.python}, {in_megabytes(self.size)}, made {_ago(now - self.made)}, used {_ago(now - self.used)}"


def key_of(declared: Declared, own: OwnSettings, root: Path, *, limited: bool = False) -> str:
    """The name of the environment for some needs: a digest of everything that affects the installed packages."""
    settings = own.environments
    ours = settings.prowess
    data = [
        *(_FORM, RELEASE, declared.digest, declared.locked, base_python(own)),
        *(str(root / ours) if ours and (root / ours).exists() else ours, str(source_tree() or "")),
        *(settings.index, sorted(settings.find_links), sys.platform, platform.machine()),
        *(["limited"] if limited else ()),
    ]
    return hashlib.sha256(json.dumps(data).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def base_python(own: OwnSettings) -> str:
    """The default interpreter: that of the project's workers, without its packages."""
    if own.python is not None:
        return own.python
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def source_tree() -> Path | None:
    """The folder of Prowess if it is imported from a checkout, else `None`."""
    folder = Path(prowess.__file__).resolve().parents[1]
    return folder if (folder.parent / "pyproject.toml").is_file() else None


class EnvironmentStore:
    """The environments of one user."""

    def __init__(self, cache: Path) -> None:
        self.folder = cache / "environments"

    def path(self, key: str) -> Path:
        """The path of an environment, existing or not."""
        return self.folder / key

    def python(self, key: str) -> Path:
        """The interpreter of an environment."""
        return self.path(key) / "bin" / "python"

    def is_ready(self, key: str) -> bool:
        """Whether an environment is complete, and its interpreter still exists."""
        return (self.path(key) / _NOTE).is_file() and self.python(key).exists()

    def note(self, path: Path, facts: dict[str, Any]) -> None:
        """Write the facts about a draft, which marks it as complete."""
        text = json.dumps({**facts, "made": time.time(), "size": _size(path), "release": RELEASE})
        (path / _NOTE).write_text(text, encoding="utf-8")

    def draft(self, key: str) -> Path:
        """An empty folder to build in. The draft of an earlier build is removed: its builder would hold the lock."""
        for each in self.folder.glob(f"{key}.*"):
            if _DRAFT.fullmatch(each.name):
                shutil.rmtree(each, ignore_errors=True)
        return self.folder / f"{key}.{os.urandom(4).hex()}"

    def move_in(self, draft: Path, key: str) -> None:
        """Move a complete draft to its place in one step."""
        self._move_out(key)
        draft.rename(self.path(key))

    def _move_out(self, key: str) -> None:
        place = self.path(key)
        if place.exists():
            gone = self.folder / f"{key}.{os.urandom(4).hex()}"
            place.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    @contextlib.contextmanager
    def alone(self, key: str, *, wait: bool = True) -> Generator[None]:
        """Hold the exclusive lock of an environment, to build or delete it. Without `wait`, raises `InUse` if it is used."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path, how = self.folder / f"{key}.lock", fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        while True:
            with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123 - as everywhere with locks
                try:
                    fcntl.flock(file, how)
                except BlockingIOError:
                    raise InUse(
                        f"the environment {self.path(key)} is in use; stop the hosts that use it first"
                    ) from None
                if _is_still(file.fileno(), path):
                    yield
                    return

    def hold(self, key: str, root: Path) -> int | None:
        """Hold the shared lock of an environment for a project while this process lives. Returns the descriptor, if possible."""
        with contextlib.suppress(OSError):
            os.utime(self.path(key) / _NOTE)
            users = self.path(key) / _USERS
            users.mkdir(exist_ok=True)
            name = hashlib.sha256(os.fsencode(root)).hexdigest()[:24]
            (users / name).write_bytes(os.fsencode(root))
        try:
            descriptor = os.open(self.folder / f"{key}.lock", os.O_RDONLY)
        except OSError:  # the cache is read-only, so nothing can be deleted from it either
            return None
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return descriptor

    def users(self, key: str) -> list[Path]:
        """The projects that have used an environment."""
        try:
            return sorted(Path(os.fsdecode(each.read_bytes())) for each in (self.path(key) / _USERS).iterdir())
        except OSError:
            return []

    def known(self) -> list[BuiltEnvironment]:
        """All complete environments, by name."""
        try:
            names = sorted(each.name for each in self.folder.iterdir())
        except OSError:
            return []
        found = (self.look(name) for name in names if _KEY.fullmatch(name))
        return [each for each in found if each is not None]

    def look(self, key: str) -> BuiltEnvironment | None:
        """An environment, if it is complete."""
        note = self.path(key) / _NOTE
        try:
            facts = json.loads(note.read_text("utf-8"))
            used = note.stat().st_mtime
            return BuiltEnvironment(
                key,
                self.path(key),
                str(facts["python"]),
                tuple(facts["dependencies"]),
                int(facts["size"]),
                float(facts["made"]),
                used,
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remove(self, key: str) -> None:
        """Delete an environment. Raises `InUse` if it is used."""
        with self.alone(key, wait=False):
            self._move_out(key)
            with contextlib.suppress(OSError):
                (self.folder / f"{key}.lock").unlink()

    def remove_drafts(self) -> int:
        """Delete the drafts of unfinished builds. Returns their number."""
        count = 0
        for each in list(self.folder.glob("*.*")):
            if not _DRAFT.fullmatch(each.name):
                continue
            with contextlib.suppress(OSError), self.alone(each.name.partition(".")[0], wait=False):
                shutil.rmtree(each, ignore_errors=True)
                count += 1
        return count


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether a file still has its path: `remove` deletes the lock for which others may wait, and these must take the next one."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _size(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())


def in_megabytes(count: int) -> str:
    """Bytes, for people."""
    return f"{count / 1e6:.1f} MB"


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit} ago"
    return "just now"
