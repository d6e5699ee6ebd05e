"""Makes environments in helper processes, so that the event loop need not wait: one build for each environment.

The host itself never calls uv. A helper ends with the host.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from prowess.daemons import NO_THREAD, start_thread
from prowess.frozen import frozen
from prowess.settings.keys import OwnSettings
from prowess.skills.discovery import Source, lock_of
from prowess_host.environments.declared import Declared, check_limited
from prowess_host.environments.errors import BuildError
from prowess_host.environments.store import EnvironmentStore, base_python, key_of
from prowess_host.workers import process_tree

__all__ = ["Builds", "Needed", "run"]

_AT_ONCE: Final = 2
"""Builds that run at the same time; each may use several processors and the whole network."""
_BEAT: Final = 5.0
"""Seconds between progress reports to waiting calls, so that clients do not time out."""
_LAST_WORDS: Final = 2000


@frozen
class Needed:
    """The environment of some skills."""

    key: str
    declared: Declared
    skills: tuple[str, ...]
    own: OwnSettings = field(compare=False)
    root: Path = field(compare=False)
    lock_file: str = ""
    """The path of the lock file, existing or not."""
    limited: bool = False
    """Whether the skill has limits. Then none of its code may run while the environment is made."""

    @classmethod
    def by(cls, source: Source, declared: Declared, own: OwnSettings, root: Path, *, limited: bool = False) -> Needed:
        """The environment for declared needs and settings. Raises `NeedsError` for needs that limits forbid."""
        if limited:
            check_limited(declared)
        lock = lock_of(source.path, is_folder=source.is_folder)
        key = key_of(declared, own, root, limited=limited)
        return cls(key, declared, (source.name,), own, root, str(lock), limited)

    def order(self, cache: Path, **more: Any) -> dict[str, Any]:
        """The order for the helper process."""
        declared, settings = self.declared, self.own.environments
        ours = settings.prowess
        path = self.root / Path(ours).expanduser() if ours else None
        return {
            "cache": str(cache),
            "key": self.key,
            "skills": list(self.skills),
            "file": declared.file,
            "dependencies": list(declared.dependencies),
            "by_file": bool(declared.by_file),
            "requires_python": declared.requires_python,
            "python": declared.python,
            "needs": declared.digest,
            "lock_file": declared.lock,
            "locked": declared.locked,
            "base": base_python(self.own),
            "uv": settings.uv,
            "prowess": str(path) if path is not None and path.exists() else ours,
            "index": settings.index,
            "find_links": [_found(each, self.root) for each in settings.find_links],
            "offline": settings.offline,
            "python_downloads": settings.python_downloads,
            "limited": self.limited,
            "anew": False,
            **more,
        }


class Builds:
    """The builds of one host."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.store = EnvironmentStore(cache)
        self._going_on: dict[str, asyncio.Task[None]] = {}
        self._reports: dict[str, list[Callable[[str], None]]] = {}
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._held: dict[str, int | None] = {}

    async def ready(self, needed: Needed, report: Callable[[str], None]) -> str:
        """The interpreter of an environment, made if it is missing. Raises `BuildError`."""
        key = needed.key
        if not self.store.is_ready(key):
            held = self._held.pop(key, None)  # it was deleted: its builder needs the exclusive lock
            if held is not None:
                os.close(held)
            await self._built(needed, report)
        if key not in self._held:
            self._held[key] = self.store.hold(key, needed.root)  # prevents its deletion while this process lives
        return str(self.store.python(key))

    async def _built(self, needed: Needed, report: Callable[[str], None]) -> None:
        key = needed.key
        if key not in self._going_on:
            self._reports[key] = []
            task = asyncio.get_running_loop().create_task(self._build(needed))
            task.add_done_callback(lambda done: self._over(key, done))
            self._going_on[key] = task
        self._reports[key].append(report)
        await asyncio.shield(self._going_on[key])

    def _over(self, key: str, task: asyncio.Task[None]) -> None:
        del self._going_on[key], self._reports[key]
        _ = task.cancelled() or task.exception()  # retrieves the exception, in case no call waits

    async def _build(self, needed: Needed) -> None:
        def report(line: str) -> None:
            for each in self._reports.get(needed.key, ()):  # the last lines of a helper may come after its end
                each(line)

        async with self._at_once:
            await run(needed.order(self.cache), report, needed.own.environments.build_timeout)

    def close(self) -> None:
        """End all builds. The next build of the same environment removes their drafts."""
        for task in self._going_on.values():
            task.cancel()
        for descriptor in self._held.values():
            if descriptor is not None:
                os.close(descriptor)
        self._held.clear()


async def run(order: dict[str, Any], report: Callable[[str], None], seconds: float) -> None:
    """Run an order in a helper process. Raises `BuildError`."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[str] = loop.create_future()
    helper = _Helper(order, loop, report, over)
    deadline = loop.time() + seconds
    last = "preparing the environment"

    def note(line: str) -> None:
        nonlocal last
        last = line
        report(line)

    helper.report = note
    helper.start()
    try:
        while not over.done():
            left = deadline - loop.time()
            if left <= 0:
                raise BuildError(f"it took more than {seconds:g} s, the setting environments.build_timeout: {last}")
            await asyncio.wait([over], timeout=min(left, _BEAT))
            if not over.done():
                report(last)
        failure = over.result()
        if failure:
            raise BuildError(failure)
    finally:
        helper.end()


class _Helper:
    """One helper process, with a thread that reads its output."""

    def __init__(
        self,
        order: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        report: Callable[[str], None],
        over: asyncio.Future[str],
    ) -> None:
        self.report = report
        self._order = order
        self._loop = loop
        self._over = over
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it. If that fails, it ends with the reason."""
        cache = Path(self._order["cache"])
        try:
            cache.mkdir(parents=True, exist_ok=True)
            self._process = process_tree.spawn(
                [sys.executable, "-P", "-m", "prowess_host.environments.build"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        except OSError as error:
            self._over.set_result(f"{cache} cannot be used, or {sys.executable} cannot be run: {error}")
            return
        if start_thread("prowess-build", self._read, self._process) is None:
            self.end()
            self._over.set_result(NO_THREAD)

    def end(self) -> None:
        """Kill the helper with all its children."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        words = b""
        failure: str | None = None
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        assert process.stdout is not None  # noqa: S101 - as above
        with contextlib.suppress(OSError):
            process.stdin.write(json.dumps(self._order).encode() + b"\n")
            process.stdin.flush()
        for line in process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                words = (words + line)[-_LAST_WORDS:]  # a traceback, or a warning
                continue
            if "told" in event:
                self._call(self.report, event["told"])
            else:
                failure = event.get("failed", "")
        process.wait()
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        process_tree.forget(process)
        if failure is None:
            failure = f"the process that makes the environment ended without a result: {words.decode(errors='replace')}"
        self._call(self._finish, failure)

    def _finish(self, failure: str) -> None:
        if not self._over.done():
            self._over.set_result(failure)

    def _call(self, callback: Callable[[str], None], text: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, text)


def _found(link: str, root: Path) -> str:
    """An absolute path for a folder, relative to the project; a URL stays as it is."""
    return link if "://" in link else str(root / Path(link).expanduser())
