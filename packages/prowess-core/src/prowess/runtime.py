"""`Runtime`: loads the skills of one project and runs calls. Used by embedding programs, tests, workers and direct calls."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Generator, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from prowess.calls.channel import Channel
from prowess.calls.outcome import Outcome
from prowess.calls.threads import Raised, Threads, is_stuck, stuck
from prowess.contracts.catalog import Catalog
from prowess.contracts.contract import Contract
from prowess.contracts.declaration import Declaration
from prowess.errors import UnknownCommand
from prowess.injection.injectables import Injectables
from prowess.injection.provided import Key
from prowess.jsontypes import JsonObject
from prowess.plugins import Plugins
from prowess.profiles.profile import BUILT_IN, Profile
from prowess.results.normalize import text_result
from prowess.settings.paths import ConfigPaths, find_project_root
from prowess.settings.settings import Settings
from prowess.skills.description import Description
from prowess.skills.entry import Entry, Services
from prowess.skills.library import Library, Share
from prowess.skills.loading import Given

__all__ = ["Runtime", "current_runtime"]

_log = logging.getLogger("prowess")
_current: Final[contextvars.ContextVar[Runtime | None]] = contextvars.ContextVar("prowess_runtime", default=None)
_implicit: Final[dict[Path, Runtime]] = {}
_roots: Final[dict[str, Path]] = {}
_implicit_lock: Final = threading.Lock()


class Runtime:
    """Runs the commands of one project in this process. Create one with `Runtime.open`."""

    offers_tasks = True
    """Calls may go on without a waiting caller."""

    def __init__(
        self,
        root: Path,
        *,
        overrides: Mapping[Any, Any] | None = None,
        flags: Mapping[str, Any] | None = None,
        timer: Callable[[], float] = time.monotonic,
        settings: Settings | None = None,
        on_import: Callable[[str, str], None] | None = None,
        share: Share | None = None,
    ) -> None:
        """`settings` are those that were loaded already. `on_import` hears the name and the file of every skill that is
        about to be imported, and two empty texts afterwards. `share` says which skills are imported here at all.
        """
        self.root = root.resolve()
        if settings is None:
            settings = Settings.load(self.root, environ=os.environ, flags=flags or {})
            for warning in settings.warnings:
                _log.warning("%s", warning)
        self.settings = settings
        self.paths = ConfigPaths.of(self.settings, os.environ)
        threads = Threads(self.settings.own.threads)
        injectables = Injectables(self.settings, self.paths, threads, overrides)
        self._services = Services(self.root, self.settings, injectables, Plugins(), dict(BUILT_IN), threads, timer)
        self._library = Library(self._services, self.paths.skills_dirs, on_import, share or Share())
        self._portal: tuple[BlockingPortal, int] | None = None
        self._portal_lock = threading.Lock()
        self._portal_end = contextlib.ExitStack()
        self.closed = False

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
        try:
            with runtime.as_current():
                yield runtime
        finally:
            await runtime.aclose()

    def catalog(self) -> Catalog:
        """All contracts, and all failures with file, line and reason. Imports every skill."""
        with self.as_current():
            return self._library.catalog()

    def describe(self, known: Collection[str] = (), *, most: int | None = None) -> Description:
        """The skills but for the known ones, with the files they are made of: what a host keeps to start without them.

        If there are more than `most`, none is imported but those with hooks: `names` says which there are.
        """
        with self.as_current():
            return self._library.describe(known, most)

    def describe_part(self, skills: Collection[str]) -> Description:
        """These skills alone, to be `combined` with what `describe` gave, perhaps in another process."""
        with self.as_current():
            return self._library.describe_part(skills)

    @property
    def loaded(self) -> Collection[str]:
        """The skills that have been imported, now and whenever one looks."""
        return self._library.loaded

    def reasons(self, command: str) -> list[str]:
        """Why a command cannot be found: what failed of the skill that it would be in."""
        return self._library.reasons(command)

    def contracts_of(self, skill: str) -> tuple[Contract, ...]:
        """What an imported skill promises."""
        return self._library.contracts_of(skill)

    def give(self, given: Given) -> None:
        """Import a skill from these sources from now on, whatever its files say."""
        self._library.give(given)

    def texts_of(self, files: Iterable[str]) -> dict[str, bytes]:
        """What files say: as they were read for an import, else as they are now."""
        return self._library.texts_of(files)

    async def call(self, command: str, arguments: Any = None, *, channel: Channel | None = None) -> Outcome:
        """Call a command by id, wire name or alias, with JSON arguments. Always gives an outcome."""
        entry = self._library.known(command) or await self._find(command)
        if entry is None:
            return await self._unknown(str(command))
        token = _current.set(self)
        try:
            return await entry.call({} if arguments is None else arguments, channel)
        finally:
            _current.reset(token)

    def known(self, command: str) -> Entry | None:
        """The command that answers to a name, if it is loaded already."""
        return self._library.known(command)

    async def find(self, command: str, *, everywhere: bool = True) -> Entry | None:
        """The command that answers to a name, loaded if need be. An id need not be looked for `everywhere`."""
        return self._library.known(command) or await self._find(command, everywhere)

    async def contract_of(self, command: str) -> Contract | None:
        """The contract of the command that answers to a name, loaded if need be."""
        entry = await self.find(command)
        return entry.contract if entry is not None else None

    def module(self, skill: str) -> ModuleType:
        """The module of a skill, imported if need be: `notes`, or `text.scan` for a file in a skill that is a folder.

        For tests: skills are modules under names of their own, so `import` does not find them. Raises what the module
        raises.
        """
        with self.as_current():
            return self._library.module(skill)

    @contextlib.contextmanager
    def as_current(self) -> Generator[None]:
        """Have direct calls of decorated functions run in this runtime, inside a `with` block."""
        token = _current.set(self)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # some test runners end a fixture in another context
                _current.reset(token)

    def override(self, key: Key, value: Any) -> contextlib.AbstractContextManager[None]:
        """Inject a value in the place of what is provided for a type or a name, inside a `with` block."""
        return self._services.injectables.override(key, value)

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The ways to show contracts and results, by name; those of plugins once the skills are loaded."""
        return self._services.profiles

    @property
    def abandoned_threads(self) -> int:
        """The number of sync calls that still run although their caller has left."""
        return self._services.threads.count_left_behind

    async def aclose(self) -> None:
        """Close singletons and modules. Calls that are still running lose what was injected for good."""
        if self.closed:
            return
        self.closed = True
        with anyio.CancelScope(shield=True):
            await self._tell_closing()
            await self._services.injectables.aclose()
            if self._portal is not None:
                await self._services.threads.run(self._portal_end.close)
        self._library.close()

    async def _tell_closing(self) -> None:
        for name, close in self._services.plugins.each("prowess_closing"):
            try:
                await self._services.threads.run(close)
            except Raised as raised:
                _log.error("plugin %s failed in prowess_closing", name, exc_info=raised.error)

    # Direct calls: what a decorated function does when Python code calls it

    async def call_direct(self, declared: Declaration, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> JsonObject:
        """Run a decorated function like any other call, and show its payload."""
        return await self._call_direct(self.entry_of(declared), args, kwargs)

    def call_direct_sync(self, declared: Declaration, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> JsonObject:
        """The same from sync code, whether or not an event loop runs in this thread."""
        entry = self.entry_of(declared)  # here and not on the loop: a module that is being imported may call a command
        return self._blocking(lambda: self._call_direct(entry, args, kwargs))

    async def _call_direct(self, entry: Entry, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> JsonObject:
        token = _current.set(self)
        try:
            return (await entry.call_python(args, kwargs)).payload()
        finally:
            _current.reset(token)

    def entry_of(self, declared: Declaration) -> Entry:
        """A decorated function, compiled for this runtime."""
        with self.as_current():
            return self._library.entry_of(declared)

    def close(self) -> None:
        """`aclose`, from sync code. Starts no thread: this is how an implicit runtime ends with its process."""
        self._services.threads.stay_inline()
        portal, self._portal = self._portal, None
        if portal is not None:
            portal[0].call(self.aclose)
            self._portal_end.close()
        else:
            asyncio.run(self.aclose())

    def _blocking(self, run: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a coroutine to its end from sync code: on the loop in the background, unless that one may wait for us."""
        portal, thread = self._background()
        if threading.get_ident() != thread and not is_stuck(thread):
            return portal.call(run)
        with stuck(), start_blocking_portal() as another:
            return another.call(run)

    def _background(self) -> tuple[BlockingPortal, int]:
        """The loop in the background, and its thread."""
        with self._portal_lock:
            if self._portal is None:
                portal = self._portal_end.enter_context(start_blocking_portal())
                self._portal = portal, portal.call(threading.get_ident)
            return self._portal

    async def _find(self, command: object, everywhere: bool = True) -> Entry | None:
        if not isinstance(command, str):
            return None
        return await self._in_thread(lambda: self._library.find(command, everywhere=everywhere))

    async def _unknown(self, command: str) -> Outcome:
        catalog: Catalog = await self._in_thread(self._library.catalog)
        unknown = UnknownCommand(command, [contract.id for contract in catalog], catalog.reasons(command))
        result = text_result(str(unknown), is_error=True)
        return Outcome(command, "unknown", result, profiles=self._services.profiles)

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        with self.as_current():
            try:
                return await self._services.threads.run(function)
            except Raised as raised:
                raise raised.error from None


def current_runtime() -> Runtime:
    """The runtime that the code runs in, else an implicit one for the project of the working directory."""
    running = _current.get()
    if running is not None and not running.closed:  # a context may outlive the runtime that was current in it
        return running
    here = os.getcwd()  # noqa: PTH109 - a text, and asked for with every direct call
    with _implicit_lock:
        if here not in _roots:
            _roots[here] = find_project_root(Path(here))
        root = _roots[here]
        if root not in _implicit:
            _implicit[root] = Runtime(root)
            atexit.register(_implicit[root].close)
        return _implicit[root]
