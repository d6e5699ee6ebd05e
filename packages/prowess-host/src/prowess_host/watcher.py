"""Notices that files were saved, and waits until the saving is over.

The operating system's notice is an accelerator; what counts is a look at the files, every second at least. So it does not
matter whether a folder exists yet, is replaced, is a link, or lies where there are no notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from prowess.fingerprints import Stamp, stamp
from prowess.paths import ConfigPaths

__all__ = ["Sight", "Watcher", "look"]

_SETTLE: Final = 0.05
"""Seconds without a further change after which saving is over. An editor's write and rename take a few milliseconds."""
_STORM: Final = 1.0
"""Seconds after which a storm of changes is acted on, although it goes on."""
_PAUSE: Final = 1.0
"""Seconds between two looks that nobody asked for; more where a look takes long."""
_SHARE: Final = 50
"""A look is taken so rarely that this is one part in so many of the time."""
_CONFIG: Final = ("prowess.toml", "pyproject.toml")
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})

Sight: TypeAlias = "dict[str, Stamp]"
"""What tells one state of the files from another."""


class Watcher:
    """Calls `on_change` after files that matter have changed; one call at a time, no change forgotten.

    `imported` gives further files that matter, as they were when they were imported.
    """

    def __init__(
        self, paths: ConfigPaths, on_change: Callable[[], Awaitable[None]], imported: Callable[[], Mapping[str, Stamp]]
    ) -> None:
        self._root = paths.project_root
        self.folders: tuple[Path, ...] = paths.skills_dirs
        """Where skills are; others may turn out to count as well."""
        self._on_change = on_change
        self._imported = imported
        self._changed = asyncio.Event()
        self.ready = threading.Event()
        """It is known how the files were."""
        self._watching = threading.Event()
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Remember how the files are now. Changes from here on count, also those before `run`."""
        threading.Thread(target=self._watch, name="prowess-files", daemon=True).start()

    async def run(self) -> None:
        """Act on changes until cancelled."""
        self._watching.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._on_change()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        self._watching.set()

    # In the thread

    def _watch(self) -> None:
        seen = self._look()
        self.ready.set()
        self._watching.wait()
        folders: list[str] | None = None
        wait: Callable[[], object] = self._rest
        while not self._stop.is_set():
            if folders != (there := self._folders()):
                folders, wait = there, self._notices(there)
            begun = time.monotonic()
            seen = {**self._imported(), **seen}
            now = self._look()
            cost = time.monotonic() - begun
            if _differs(seen, now):
                now = self._settled(now)
                self._tell()
            seen = now
            rested = time.monotonic()
            while not wait() and time.monotonic() - rested < cost * _SHARE and not self._stop.is_set():
                pass

    def _settled(self, seen: Sight) -> Sight:
        until = time.monotonic() + _STORM
        while time.monotonic() < until and not self._stop.wait(_SETTLE):
            now = self._look()
            if now == seen:
                break
            seen = now
        return seen

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._changed.set)

    def _look(self) -> Sight:
        return look(self._root, self.folders, self._imported().keys())

    def _rest(self) -> object:
        return self._stop.wait(_PAUSE)

    def _notices(self, folders: list[str]) -> Callable[[], object]:
        """A function that waits for a notice of changes below the folders, but not for ever; false if there was none."""
        if not folders:
            return self._rest
        try:
            from watchfiles import watch  # loaded after the first answer

            changes = watch(
                *folders,
                watch_filter=None,
                debounce=int(_STORM * 1000),
                step=int(_SETTLE * 1000),
                stop_event=self._stop,
                rust_timeout=int(_PAUSE * 1000),
                yield_on_timeout=True,
                ignore_permission_denied=True,
            )
        except ImportError:  # a foreign build: looking is enough
            return self._rest

        def wait() -> object:
            try:
                return next(changes, True)
            except Exception:  # noqa: BLE001 - the folder has gone, or the system has no more watches to give
                return self._rest()

        return wait

    def _folders(self) -> list[str]:
        """What can be watched, links followed."""
        found: set[str] = set()
        for folder in self.folders:
            if folder.is_dir():
                with contextlib.suppress(OSError):
                    found.update(os.path.realpath(each) for each in (folder, *folder.iterdir()) if each.is_dir())
        inside = {each for each in found if any(each.startswith(f"{other}{os.sep}") for other in found)}
        return sorted(found - inside)


def _differs(before: Sight, now: Sight) -> bool:
    """Whether a file has come, changed or gone. One that is only not imported any more has not."""
    if any(before.get(path) != then for path, then in now.items()):
        return True
    return any(stamp(path) != then for path, then in before.items() if path not in now)


def look(root: Path, folders: Collection[Path], imported: Collection[str]) -> Sight:
    """The state of all files that matter: settings, skills, and what skills import."""
    paths = [*(str(root / name) for name in _CONFIG), *imported]
    for folder in folders:
        paths.extend(_sources(str(folder)))
    return {path: stamp(path) for path in paths}


def _sources(folder: str) -> Iterator[str]:
    for place, names, files in os.walk(folder, followlinks=True):
        names[:] = [name for name in names if name not in _SKIPPED and not name.startswith(".")]
        for name in files:
            if name.endswith(".py") or name == "SKILL.md":
                yield os.path.join(place, name)
