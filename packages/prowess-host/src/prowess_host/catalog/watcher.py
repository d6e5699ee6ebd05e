"""Detects saved files, and waits until a series of saves is over.

The watcher polls the files every second. Notifications from the operating system only shorten the wait, so folders that do
not exist yet, are replaced, are links, or cannot be watched need no special care.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from prowess.daemons import NO_THREAD, can_start_threads, start_thread
from prowess.settings.paths import ConfigPaths
from prowess.skills.folders import TreeFolder, out_of_files, walk
from prowess.skills.stamps import Stamp, stamp
from prowess.worker.heap import share_one_heap

__all__ = ["Sight", "Watcher", "look"]

_log = logging.getLogger("prowess.host")
_SETTLE: Final = 0.05
"""Seconds without a further change after which saving is over. An editor's write and rename take a few milliseconds."""
_STORM: Final = 1.0
"""Seconds after which a series of changes is handled although it continues."""
_PAUSE: Final = 1.0
"""Seconds between two polls without a notification; more if a poll takes long."""
_SHARE: Final = 50
"""Polling takes at most this fraction (1/50) of the time."""
_MEASURED: Final = 3
"""The last polls, the shortest of which counts: a process that was stopped for a while during one is not slow."""
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})

_NAMED: Final = frozenset({"SKILL.md", "pyproject.toml", "requirements.txt", "requirements.lock"})

Sight: TypeAlias = "dict[str, Stamp]"
"""The stamp of every file that matters."""


class Watcher:
    """Calls `on_change` after files that matter have changed; one call at a time, no change forgotten.

    `imported` gives further files that matter, as they were when they were imported. `on_notice` is called with the files at
    once, perhaps while an earlier change is still handled.
    """

    def __init__(
        self,
        paths: ConfigPaths,
        on_change: Callable[[], Awaitable[None]],
        imported: Callable[[], Mapping[str, Stamp]],
        on_notice: Callable[[Collection[str]], None],
    ) -> None:
        self.settings_files = paths.settings_files
        """Files of settings. The settings can name another one (`env_file`)."""
        self.folders: tuple[Path, ...] = paths.skills_dirs
        """Folders with skills. Plugins can add more."""
        self._on_change = on_change
        self._imported = imported
        self._on_notice = on_notice
        self._changed = asyncio.Event()
        self.ready = threading.Event()
        """Set when the first state has been read."""
        self._watching = threading.Event()
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._entered: list[TreeFolder] = []
        """The folders of the last poll."""
        self._costs: deque[float] = deque(maxlen=_MEASURED)
        """The seconds that the last polls took."""
        self._warned = False
        self._is_blind = False
        """Whether the last poll failed."""

    def start(self) -> None:
        """Read the current state. Later changes count, also those before `poll`."""
        share_one_heap()  # the probes of `_notices` would leave others
        if start_thread("prowess-files", self._watch) is None:
            _log.warning("saves are not noticed: %s", NO_THREAD)
            self.ready.set()

    def poll(self) -> None:
        """Poll the files from now on, and call `on_notice`."""
        self._watching.set()

    async def run(self) -> None:
        """Poll, and handle changes until cancelled."""
        self.poll()
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._on_change()

    def stop(self) -> None:
        """Stop polling."""
        self._stop.set()
        self._watching.set()

    # In the thread

    def _watch(self) -> None:
        seen: Sight = {}
        try:
            with contextlib.suppress(OSError):  # after a failure, the first poll finds that everything has changed
                seen = self._look()
        finally:
            self.ready.set()
        self._watching.wait()
        watched: list[tuple[int, int]] | None = None
        wait: Callable[[], bool] = self._rest
        while not self._stop.is_set():
            there = [folder.identity for folder in self._entered]
            if watched != there:  # before the poll, so that no change is missed
                watched, wait = there, self._notices([folder.path for folder in self._entered])
            try:
                seen = {**self._imported(), **seen}
                now = self._look()
                if _changes(seen, now):
                    now = self._settled(now)
                    self._notify(_changes(seen, now))
                seen = now
            except OSError as error:
                self._warn_of_blindness(error)
            except Exception:  # noqa: BLE001 - the end of this thread would hide all later saves
                _log.exception("the files could not be polled")
            rested = time.monotonic()
            while (
                not wait()
                and time.monotonic() - rested < min(self._costs, default=0) * _SHARE
                and not self._stop.is_set()
            ):
                pass

    def _settled(self, seen: Sight) -> Sight:
        until = time.monotonic() + _STORM
        while time.monotonic() < until and not self._stop.wait(_SETTLE):
            now = self._look()
            if now == seen:
                break
            seen = now
        return seen

    def _notify(self, changed: Collection[str]) -> None:
        def notice() -> None:
            self._changed.set()
            self._on_notice(changed)

        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(notice)

    def _look(self) -> Sight:
        begun = time.monotonic()
        self._entered = _below(self.folders)
        seen = _sight(self.settings_files, self._entered, self._imported().keys())
        self._costs.append(time.monotonic() - begun)
        self._is_blind = False
        return seen

    def _rest(self) -> bool:
        """Wait until the next poll. True only if there is no need to wait any longer."""
        return self._stop.wait(_PAUSE)

    def _notices(self, folders: list[str]) -> Callable[[], bool]:
        """A function that waits for a notification, up to a limit, and returns whether there was one."""
        if not folders:
            return self._rest
        try:
            from watchfiles import watch  # loaded after the first answer
        except ImportError:  # no build for this system: polling is enough
            return self._rest
        changes = watch(
            *folders,
            watch_filter=None,
            debounce=int(_STORM * 1000),
            step=int(_SETTLE * 1000),
            stop_event=self._stop,
            rust_timeout=int(_PAUSE * 1000),
            yield_on_timeout=True,
            recursive=False,  # a recursive watch follows every link, also one to a whole disk
            ignore_permission_denied=True,
        )
        began = False

        def wait() -> bool:
            """Wait once. After a failure, poll: the exhausted generator would return at once for ever."""
            nonlocal began
            began = began or can_start_threads()
            if not began:  # the library would end this process
                return self._rest()
            try:
                return bool(next(changes))
            except StopIteration:
                return self._rest()
            except Exception as error:  # noqa: BLE001 - the system may refuse with any error
                self._warn_of_polling(error, len(folders))
                return self._rest()

        return wait

    def _warn_of_blindness(self, error: OSError) -> None:
        """Warn once, until a poll succeeds again. Saves in between are noticed then."""
        if not self._is_blind:
            self._is_blind = True
            hint = "allow the host more open files (`ulimit -n`), or close some"
            _log.warning("saves are not noticed at the moment: %s%s", error, f"; {hint}" if out_of_files(error) else "")

    def _warn_of_polling(self, error: Exception, count: int) -> None:
        """Warn once per host: saves are noticed up to a second later."""
        if self._warned or isinstance(error, FileNotFoundError):  # the folder was just deleted
            return
        self._warned = True
        hint = ""
        if "limit" in str(error).lower() or getattr(error, "errno", None) in (errno.ENOSPC, errno.EMFILE):
            hint = ". To raise the limits: sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=1024"
        _log.warning(
            "the system does not watch %d folders of skills (%s); saves are found by polling every %g s%s",
            count,
            error,
            _PAUSE,
            hint,
        )


def _changes(before: Sight, now: Sight) -> set[str]:
    """The files that were added, changed or deleted. A file that is no longer imported does not count."""
    changed = {path for path, then in now.items() if before.get(path) != then}
    return changed | {path for path, then in before.items() if path not in now and stamp(path) != then}


def look(files: Iterable[Path], folders: Collection[Path], imported: Collection[str]) -> Sight:
    """The state of all files that matter: settings, skills, and what skills import."""
    return _sight(files, _below(folders), imported)


def _below(folders: Iterable[Path]) -> list[TreeFolder]:
    """Every folder that skills may be in, once each."""
    found = {below.identity: below for top in folders for below in walk(str(top), _enters).folders}
    return list(found.values())


def _sight(files: Iterable[Path], folders: Iterable[TreeFolder], imported: Collection[str]) -> Sight:
    paths = [*map(str, files), *imported]
    for folder in folders:
        paths.extend(os.path.join(folder.path, name) for name in folder.files if _matters(name))
    return {path: stamp(path) for path in dict.fromkeys(paths)}  # most imported files are in these folders


def _matters(name: str) -> bool:
    return name.endswith((".py", ".py.lock")) or name in _NAMED


def _enters(path: str) -> bool:
    name = os.path.basename(path)
    return name not in _SKIPPED and not name.startswith(".")
