"""`Runtime`: the skills of one project, and calls to them. The way in for embedders, tests, workers and direct calls."""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from prowess.call import Channel
from prowess.catalog import Catalog
from prowess.declaration import Declaration
from prowess.entry import Entry, Services
from prowess.errors import UnknownCommand
from prowess.injection import Injectables, Key
from prowess.jsontypes import JsonObject
from prowess.library import Library
from prowess.normalize import text_result
from prowess.outcome import Outcome
from prowess.paths import ConfigPaths, find_project_root
from prowess.plugins import Plugins
from prowess.profiles import BUILT_IN
from prowess.settings import Settings

__all__ = ["Runtime", "current_runtime"]

_current: Final[contextvars.ContextVar[Runtime | None]] = contextvars.ContextVar("prowess_runtime", default=None)
_implicit: Final[dict[Path, Runtime]] = {}
_implicit_lock: Final = threading.Lock()


class Runtime:
    """The commands of one project. Make one with `Runtime.open`."""

    def __init__(
        self,
        root: Path,
        *,
        overrides: Mapping[Any, Any] | None = None,
        flags: Mapping[str, Any] | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.root = root.resolve()
        self.settings = Settings.load(self.root, environ=os.environ, flags=flags or {})
        self.paths = ConfigPaths.of(self.settings, os.environ)
        injectables = Injectables(self.settings, self.paths, overrides)
        self._services = Services(self.root, self.settings, injectables, Plugins(), dict(BUILT_IN), timer)
        self._library = Library(self._services, self.paths.skills_dirs)
        self._portal: BlockingPortal | None = None
        self._portal_lock = threading.Lock()
        self._closing = contextlib.ExitStack()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        project_root: str | Path,
        *,
        overrides: Mapping[Any, Any] | None = None,
        flags: Mapping[str, Any] | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> AsyncGenerator[Runtime]:
        """A runtime for a project, closed at the end.

        `overrides` provides values in the place of what would be injected, by type or by name. `flags` are settings
        that win over files and environment. `timer` is the clock of the cache.
        """
        runtime = cls(Path(project_root), overrides=overrides, flags=flags, timer=timer)
        token = _current.set(runtime)
        try:
            yield runtime
        finally:
            _current.reset(token)
            await runtime.aclose()

    def catalog(self) -> Catalog:
        """All contracts, and all failures with file, line and reason. Imports every skill."""
        with self._as_current():
            return self._library.catalog()

    def reload(self) -> None:
        """See which skills were added, changed, renamed or deleted since they were loaded."""
        with self._as_current():
            self._library.reload()

    async def call(self, command: str, arguments: Any = None, *, channel: Channel | None = None) -> Outcome:
        """Call a command by id, wire name or alias, with JSON arguments. Always gives an outcome."""
        entry = self._library.known(command)
        if entry is None:
            entry = await self._find(command)
        if entry is None:
            unknown = UnknownCommand(str(command), [contract.id for contract in self._library.catalog()])
            return Outcome(str(command), "unknown", text_result(str(unknown), is_error=True), profiles=self._services.profiles)
        token = _current.set(self)
        try:
            return await entry.call({} if arguments is None else arguments, channel)
        finally:
            _current.reset(token)

    async def find(self, command: str) -> Entry | None:
        """The command that answers to a name, loaded if need be."""
        return self._library.known(command) or await self._find(command)

    def override(self, key: Key, value: Any) -> contextlib.AbstractContextManager[None]:
        """Inject a value in the place of what is provided for a type or a name, inside a `with` block."""
        return self._services.injectables.override(key, value)

    @property
    def abandoned_threads(self) -> int:
        """How many sync calls of this event loop ran on after nobody waited for them any more."""
        return self._services.threads().abandoned

    async def aclose(self) -> None:
        """Close singletons and modules. Calls that are still running lose what was injected for good."""
        await self._services.injectables.aclose()
        await anyio.to_thread.run_sync(self._closing.close)
        self._library.close()

    # Direct calls: what a decorated function does when Python code calls it

    async def call_direct(self, declared: Declaration, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> JsonObject:
        """Run a decorated function like any other call, and show its payload."""
        entry = self.entry_of(declared)
        token = _current.set(self)
        try:
            return (await entry.call_python(args, kwargs)).payload()
        finally:
            _current.reset(token)

    def call_direct_sync(self, declared: Declaration, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> JsonObject:
        """The same from sync code, whether or not an event loop runs in this thread."""
        return self._blocking(lambda: self.call_direct(declared, args, kwargs))

    def entry_of(self, declared: Declaration) -> Entry:
        """A decorated function, compiled for this runtime."""
        with self._as_current():
            return self._library.entry_of(declared)

    def close(self) -> None:
        """`aclose`, from sync code."""
        self._blocking(self.aclose)

    def _blocking(self, run: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a coroutine to its end from sync code: on a loop in the background, or, from that very loop, on a new one."""
        if getattr(_on_portal, "active", False):
            return _in_new_thread(run)
        return self._background().call(run)

    def _background(self) -> BlockingPortal:
        with self._portal_lock:
            if self._portal is None:
                self._portal = self._closing.enter_context(start_blocking_portal())
                self._portal.call(_mark_portal)
            return self._portal

    async def _find(self, command: object) -> Entry | None:
        if not isinstance(command, str):
            return None
        with self._as_current():
            return await anyio.to_thread.run_sync(self._library.find, command)

    @contextlib.contextmanager
    def _as_current(self) -> Generator[None]:
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_on_portal: Final = threading.local()


def _mark_portal() -> None:
    _on_portal.active = True


def _in_new_thread(run: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    with start_blocking_portal() as portal:
        return portal.call(run)


def current_runtime() -> Runtime:
    """The runtime that the code runs in, else an implicit one for the project of the working directory."""
    running = _current.get()
    if running is not None:
        return running
    root = find_project_root(Path.cwd())
    with _implicit_lock:
        if root not in _implicit:
            _implicit[root] = Runtime(root)
            atexit.register(_implicit[root].close)
        return _implicit[root]
