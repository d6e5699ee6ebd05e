"""`Runtime`: loads the skills of one project and runs calls. Used by embedding programs, tests, workers and direct calls."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import functools
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Generator, Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import anyio

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

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

__all__ = ["Runtime", "current_runtime"]

_log = logging.getLogger("prowess")
_current: Final[contextvars.ContextVar[Runtime | None]] = contextvars.ContextVar("prowess_runtime", default=None)
_implicit: Final[dict[Path, Runtime]] = {}
_roots: Final[dict[str, Path]] = {}
_implicit_lock: Final = threading.Lock()


class Runtime:
    """Runs the commands of one project in this process. Create one with `Runtime.open`."""

    offers_tasks = True
    """Whether calls may continue in the background."""

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
        """`settings` are already loaded ones. `on_import` is called with the name and the file of every skill before its
        import, and with two empty strings afterwards. `share` limits the skills that are imported here.
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
        self.known = self._library.known
        """Returns the command with a name, if it is loaded already."""
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

        `overrides` replaces injected values, by type or by name. `flags` are settings that override files and environment.
        `timer` is the clock of the cache. Raises `InjectionError` for an override that replaces nothing.
        """
        runtime = cls(Path(project_root), overrides=overrides, flags=flags, timer=timer)
        try:
            for key in overrides or ():
                await runtime._in_thread(functools.partial(runtime._library.check_override, key))
            with runtime.as_current():
                yield runtime
        finally:
            await runtime.aclose()

    def catalog(self) -> Catalog:
        """All contracts, and all failures with file, line and reason. Imports every skill."""
        with self.as_current():
            return self._library.catalog()

    def describe(self, known: Collection[str] = (), *, most: int | None = None) -> Description:
        """Describe all skills except the known ones, with their files. A host saves this to start without importing them.

        If there are more than `most`, only those with hooks are imported, and `names` lists all.
        """
        with self.as_current():
            return self._library.describe(known, most)

    def describe_part(self, skills: Collection[str]) -> Description:
        """Describe only these skills, to be `combined` with the result of `describe`, perhaps in another process."""
        with self.as_current():
            return self._library.describe_part(skills)

    @property
    def loaded(self) -> Mapping[str, tuple[Contract, ...]]:
        """The contracts of the skills whose commands can be called; another object after each change."""
        return self._library.loaded

    def reasons(self, command: str) -> list[str]:
        """Why a command cannot be found: the failures of the skill that would have it."""
        return self._library.reasons(command)

    def give(self, given: Given) -> None:
        """Import a skill from these sources from now on, instead of from its files."""
        self._library.give(given)

    def texts_of(self, files: Iterable[str]) -> dict[str, bytes]:
        """The texts of files at the time of their import, else their current texts."""
        return self._library.texts_of(files)

    async def call(self, command: str, arguments: Any = None, *, channel: Channel | None = None) -> Outcome:
        """Call a command by id, wire name or alias, with JSON arguments. Always returns an outcome."""
        entry = self.known(command) or await self._find(command)
        if entry is None:
            return await self._unknown(str(command))
        token = _current.set(self)
        try:
            return await entry.call({} if arguments is None else arguments, channel)
        finally:
            _current.reset(token)

    async def find(self, command: str, *, everywhere: bool = True) -> Entry | None:
        """The command with a name, loaded if necessary. For an id, it is enough to search one skill instead of `everywhere`."""
        return self.known(command) or await self._find(command, everywhere)

    async def contract_of(self, command: str) -> Contract | None:
        """The contract of the command with a name, loaded if necessary."""
        entry = await self.find(command)
        return entry.contract if entry is not None else None

    def module(self, skill: str) -> ModuleType:
        """The module of a skill, imported if necessary: `notes`, or `text.scan` for a file in a folder skill.

        For tests: skills have synthetic module names, so `import` does not find them. Raises the exceptions of the module.
        """
        with self.as_current():
            return self._library.module(skill)

    @contextlib.contextmanager
    def as_current(self) -> Generator[None]:
        """Run direct calls of decorated functions in this runtime, inside a `with` block."""
        token = _current.set(self)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # some test runners end a fixture in another context
                _current.reset(token)

    @contextlib.contextmanager
    def override(self, key: Key, value: Any) -> Generator[None]:
        """Replace the injected value of a type or a name, inside a `with` block. Raises `InjectionError` if that replaces nothing."""
        with self._services.injectables.override(key, value):
            with self.as_current():
                self._library.check_override(key)
            yield

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The profiles by name, including those of plugins once the skills are loaded."""
        return self._services.profiles

    @property
    def abandoned(self) -> AbstractSet[Hashable]:
        """The threads of cancelled sync calls, and the cancelled executions of cached commands, that still run, at any time."""
        return self._services.threads.abandoned

    async def aclose(self) -> None:
        """Close singletons and modules. Running calls lose their injected singletons."""
        if self.closed:
            return
        self.closed = True
        with anyio.CancelScope(shield=True):
            await self._call_closing_hooks()
            await self._services.injectables.aclose()
            if self._portal is not None:
                await self._services.threads.run(self._portal_end.close)
        self._library.close()

    async def _call_closing_hooks(self) -> None:
        for name, close in self._services.plugins.each("prowess_closing"):
            try:
                await self._services.threads.run(close)
            except Raised as raised:
                _log.error("plugin %s failed in prowess_closing", name, exc_info=raised.error)

    # Direct calls of decorated functions by Python code

    async def call_direct(self, declared: Declaration, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> JsonObject:
        """Run a decorated function like any other call, and return the payload."""
        return await self._call_direct(self.entry_of(declared), args, kwargs)

    def call_direct_sync(self, declared: Declaration, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> JsonObject:
        """The same from sync code, whether or not an event loop runs in this thread."""
        entry = self.entry_of(declared)  # in this thread, because a module may call a command during its import
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
        """`aclose` for sync code. Starts no thread, because an implicit runtime closes when the process exits."""
        self._services.threads.stay_inline()
        portal, self._portal = self._portal, None
        if portal is not None:
            portal[0].call(self.aclose)
            self._portal_end.close()
        else:
            asyncio.run(self.aclose())

    def _blocking(self, run: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a coroutine from sync code: on the background loop, unless that may wait for this thread."""
        portal, thread = self._background()
        if threading.get_ident() != thread and not is_stuck(thread):
            return _call_in(portal, run)
        from anyio.from_thread import start_blocking_portal  # workers need no portal

        with stuck(), start_blocking_portal() as another:
            return _call_in(another, run)

    def _background(self) -> tuple[BlockingPortal, int]:
        """The background loop and its thread."""
        with self._portal_lock:
            if self._portal is None:
                from anyio.from_thread import start_blocking_portal  # as above

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
        late = f"the runtime was closed before the call of {command}; call inside of `async with Runtime.open(...)`"
        result = text_result(late if self.closed else str(unknown), is_error=True)
        return Outcome(command, "unknown", result, profiles=self._services.profiles)

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        with self.as_current():
            try:
                return await self._services.threads.run(function)
            except Raised as raised:
                raise raised.error from None


def _call_in(portal: BlockingPortal, run: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine on the loop of a portal. If Ctrl-C interrupts the waiting thread, the coroutine is cancelled."""
    running = portal.start_task_soon(run)
    try:
        return running.result()
    except BaseException:
        running.cancel()  # has no effect on one that has raised this
        raise


def current_runtime() -> Runtime:
    """The current runtime, else an implicit one for the project of the working directory."""
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
