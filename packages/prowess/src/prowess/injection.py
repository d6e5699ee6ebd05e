"""Who provides an injected parameter, and for how long it lives.

Recipes live with the runtime: dependency-injector holds them as singletons or factories and knows about overrides.
Instances made for one call are opened and closed on that call's own exit stack.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import logging
import typing
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import anyio
import anyio.to_thread

from prowess.call import Call
from prowess.context import Context
from prowess.errors import InjectionError, SettingsError
from prowess.paths import ConfigPaths
from prowess.settings import Settings
from prowess.signature import MISSING, metadata, without_none

if TYPE_CHECKING:
    from dependency_injector.providers import Provider

__all__ = ["CallScope", "Inject", "Injectables", "Key", "Lifetime", "Need"]

Key: TypeAlias = "type[Any] | str"
Lifetime: TypeAlias = Literal["singleton", "call"]
_CLOSING: Final = 5.0
_log = logging.getLogger("prowess")


@dataclass(frozen=True, slots=True)
class Inject:
    """Marks a parameter as provided: `db: Annotated[Database, Inject()]`, or `Inject("name")` for a named provider."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """One injected parameter: where its value comes from."""

    parameter: str
    source: Literal["provider", "root", "setting"]
    key: Key = ""
    default: Any = MISSING


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How to make a thing, and what it needs itself."""

    key: Key
    factory: Callable[..., Any]
    lifetime: Lifetime
    needs: tuple[tuple[str, Key], ...]
    opens: Literal["value", "generator", "async generator", "async"]


class Injectables:
    """All that can be injected. Lives with the runtime."""

    def __init__(self, settings: Settings, paths: ConfigPaths, overrides: Mapping[Any, Any] | None = None) -> None:
        self._recipes: dict[Key, _Recipe] = {}
        self._providers: dict[Key, Provider[Any]] = {}
        self._ready: dict[Key, Any] = {Settings: settings, ConfigPaths: paths}
        self._made: dict[Key, Any] = {}
        self._overrides: dict[Key, Any] = dict(overrides or {})
        self._lock: anyio.Lock | None = None
        self._closing = contextlib.AsyncExitStack()

    def provide(
        self, type_: type[Any], factory: Callable[..., Any], *, lifetime: Lifetime = "singleton", name: str | None = None
    ) -> None:
        """Teach a type, or a name, to be injected.

        `factory` may be a class, a function, a generator that yields once and then cleans up, the async form of
        either, or a provider of dependency-injector. Its own annotated parameters are injected too. What it makes is
        entered where it is a context manager.
        """
        key: Key = name or type_
        if key in self._recipes or key in self._ready or key in _PER_CALL:
            raise InjectionError(f"{_shown(key)} already has a provider")
        if lifetime not in ("singleton", "call"):
            raise InjectionError(f"{_shown(key)}: lifetime is 'singleton' or 'call', not {lifetime!r}")
        self._recipes[key] = _Recipe(key, factory, lifetime, tuple(self._needs(factory)), _opens(factory))

    def forget(self, keys: Iterable[Key]) -> None:
        """Take back what a plugin that failed, or left, had provided."""
        for key in list(keys):
            self._recipes.pop(key, None)
            self._providers.pop(key, None)

    @property
    def keys(self) -> set[Key]:
        """Everything that has a provider."""
        return {*self._recipes, *self._ready, *_PER_CALL, *self._overrides}

    def check(self) -> None:
        """Refuse recipes that need what nobody provides, themselves, or something that lives shorter."""
        for recipe in self._recipes.values():
            self._check(recipe, ())

    def need(self, parameter: str, annotation: Any, default: Any, *, autowire: bool) -> Need | None:
        """The need of one parameter, or `None` where a client has to send it."""
        marker = next((item for item in (*metadata(annotation), default) if isinstance(item, Inject)), None)
        key = without_none(annotation)
        fallback = MISSING if isinstance(default, Inject) else default
        if marker is not None:
            key = marker.name or key
            if not self._knows(key) and fallback is MISSING:
                raise InjectionError(f"parameter {parameter!r}: {self.nobody(key)}")
            return Need(parameter, "provider", key, fallback)
        if autowire and isinstance(key, type) and self._knows(key):
            return Need(parameter, "provider", key, fallback)
        return None

    def nobody(self, key: Any) -> str:
        """That nobody provides something, and the nearest thing that somebody does."""
        known = sorted(_shown(item) for item in self.keys)
        near = difflib.get_close_matches(_shown(key), known, n=1, cutoff=0.4)
        hint = f"the nearest is {near[0]}" if near else f"there are {', '.join(known)}"
        return f"nobody provides {_shown(key)}; {hint} (a plugin adds providers with `prowess_injectables`)"

    async def singleton(self, recipe: _Recipe) -> Any:
        """The one instance of a recipe, made at its first use."""
        if recipe.key in self._made:
            return self._made[recipe.key]
        if self._lock is None:
            self._lock = anyio.Lock()
        async with self._lock:
            if recipe.key not in self._made:
                self._made[recipe.key] = await self._make(recipe)
        return self._made[recipe.key]

    async def _make(self, recipe: _Recipe) -> Any:
        parts = {name: await self._part(key) for name, key in recipe.needs}
        return await _open(self._closing, recipe, self.provider(recipe), parts)

    async def _part(self, key: Key) -> Any:
        found, value = self.given(key)
        return value if found else await self.singleton(self._recipes[key])

    def provider(self, recipe: _Recipe) -> Provider[Any]:
        """The dependency-injector provider behind a recipe."""
        if recipe.key not in self._providers:
            from dependency_injector import providers  # noqa: PLC0415 - 25 to 110 ms, paid only by who injects

            if isinstance(recipe.factory, providers.Provider):
                self._providers[recipe.key] = cast("Provider[Any]", recipe.factory)
            elif recipe.lifetime == "singleton" and recipe.opens == "value":
                self._providers[recipe.key] = providers.ThreadSafeSingleton(recipe.factory)
            else:
                self._providers[recipe.key] = providers.Factory(recipe.factory)
        return self._providers[recipe.key]

    def given(self, key: Key) -> tuple[bool, Any]:
        """A value that is there without being made: an override, or one of the runtime's own."""
        for values in (self._overrides, self._ready):
            if key in values:
                return True, values[key]
        return False, None

    def recipe(self, key: Key) -> _Recipe | None:
        return self._recipes.get(key)

    @contextlib.contextmanager
    def override(self, key: Key, value: Any) -> Generator[None]:
        """Provide a value in the place of whatever was provided, for a while."""
        before = self._overrides.get(key, MISSING)
        self._overrides[key] = value
        try:
            yield
        finally:
            if before is MISSING:
                del self._overrides[key]
            else:
                self._overrides[key] = before

    async def aclose(self) -> None:
        """Close the singletons that opened something, in reverse order."""
        with anyio.CancelScope(shield=True):
            await _close(self._closing, "singletons", None)

    def _knows(self, key: Key) -> bool:
        return key in self._recipes or key in self._ready or key in _PER_CALL or key in self._overrides

    def _needs(self, factory: Callable[..., Any]) -> Iterable[tuple[str, Key]]:
        if type(factory).__module__ == "dependency_injector.providers":  # it knows its own needs
            return
        target: Any = factory.__init__ if isinstance(factory, type) else factory
        hints = typing.get_type_hints(target, include_extras=True) if hasattr(target, "__annotations__") else {}
        for name, parameter in inspect.signature(factory).parameters.items():
            key = without_none(hints.get(name, Any))
            marker = next((item for item in metadata(hints.get(name)) if isinstance(item, Inject)), None)
            if marker is not None or parameter.default is MISSING and parameter.kind not in _VARIADIC:
                yield name, (marker.name if marker and marker.name else key)

    def _check(self, recipe: _Recipe, path: tuple[Key, ...]) -> None:
        path = (*path, recipe.key)
        for name, key in recipe.needs:
            shown = f"{_shown(recipe.key)} (parameter {name!r} of its provider)"
            if key in path:
                chain = " -> ".join(_shown(item) for item in (*path, key))
                raise InjectionError(f"providers need each other in a circle: {chain}")
            if not self._knows(key):
                raise InjectionError(f"{shown}: {self.nobody(key)}")
            inner = self._recipes.get(key)
            shorter = key in _PER_CALL or (inner is not None and inner.lifetime == "call")
            if recipe.lifetime == "singleton" and shorter and key not in self._overrides:
                raise InjectionError(f"{shown} lives longer than {_shown(key)}; give it lifetime='call'")
            if inner is not None:
                self._check(inner, path)


class CallScope:
    """What is made for one call: each thing once, closed in reverse order when the call is over."""

    def __init__(self, injectables: Injectables, call: Call, settings: Settings, root: Any) -> None:
        self._injectables = injectables
        self._call = call
        self._settings = settings
        self._root = root
        self._stack = contextlib.AsyncExitStack()
        self._made: dict[Key, Any] = {}

    async def __aenter__(self) -> CallScope:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLOSING):
            await _close(self._stack, self._call.command, error)

    async def fill(self, needs: Iterable[Need]) -> None:
        """Provide every parameter that the Python caller did not pass."""
        injected = self._call.arguments.injected
        for need in needs:
            if need.parameter not in injected:
                injected[need.parameter] = await self._value(need)

    async def _value(self, need: Need) -> Any:
        if need.source == "root":
            return self._root
        if need.source == "setting":
            return self._setting(need)
        if not self._injectables._knows(need.key):  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            return need.default
        return await self._get(need.key)

    def _setting(self, need: Need) -> Any:
        key = cast("str", need.key)
        value = self._settings.get(key, need.default)
        if value is MISSING:
            value = self._settings.require(key)
        self._call.keep_secret(value)
        return value

    async def _get(self, key: Key) -> Any:
        found, value = self._injectables.given(key)
        if found:
            return value
        if key in _PER_CALL:
            return _PER_CALL[key](self._call)
        if key not in self._made:
            recipe = self._injectables.recipe(key)
            assert recipe is not None  # noqa: S101 - check() refused otherwise
            self._made[key] = await self._open(recipe)
        return self._made[key]

    async def _open(self, recipe: _Recipe) -> Any:
        if recipe.lifetime == "singleton":
            return await self._injectables.singleton(recipe)
        parts = {name: await self._get(key) for name, key in recipe.needs}
        return await _open(self._stack, recipe, self._injectables.provider(recipe), parts)


async def _open(
    stack: contextlib.AsyncExitStack, recipe: _Recipe, make: Callable[..., Any], parts: dict[str, Any]
) -> Any:
    """Make one thing; what opens something is entered on the stack. Sync factories run in a thread: they may block."""
    if recipe.opens == "async generator":
        return await stack.enter_async_context(_AsyncYielded(cast("Any", make)(**parts)))
    if recipe.opens == "async":
        made = await cast("Any", make)(**parts)
    elif recipe.opens == "generator":
        return await stack.enter_async_context(_Yielded(cast("Any", make)(**parts)))
    else:
        made = await anyio.to_thread.run_sync(functools.partial(make, **parts))
    if hasattr(type(made), "__aenter__"):
        return await stack.enter_async_context(made)
    if hasattr(type(made), "__enter__"):
        return await stack.enter_async_context(_Threaded(made))
    return made


class _Threaded:
    """A sync context manager whose two ends run in threads."""

    def __init__(self, manager: contextlib.AbstractContextManager[Any]) -> None:
        self._manager = manager

    async def __aenter__(self) -> Any:
        return await anyio.to_thread.run_sync(self._manager.__enter__)

    async def __aexit__(self, *raised: Any) -> None:
        await anyio.to_thread.run_sync(self._leave, *raised)

    def _leave(self, *raised: Any) -> None:
        try:
            self._manager.__exit__(*raised)
        except BaseException as error:
            if error is not raised[1]:  # what the command raised passes through, and is not ours to report
                raise


class _Yielded(_Threaded):
    """A generator that yields a resource once."""

    def __init__(self, generator: Generator[Any]) -> None:
        super().__init__(contextlib.contextmanager(lambda: generator)())


class _AsyncYielded:
    """An async generator that yields a resource once. It cannot swallow what it is told of."""

    def __init__(self, generator: AsyncGenerator[Any]) -> None:
        self._manager = contextlib.asynccontextmanager(lambda: generator)()

    async def __aenter__(self) -> Any:
        return await self._manager.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        await self._manager.__aexit__(*raised)


async def _close(stack: contextlib.AsyncExitStack, owner: str, error: BaseException | None) -> None:
    """Close everything. A clean-up that fails is logged and neither stops the next one nor changes the outcome."""
    try:
        await stack.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)
    except Exception as failed:
        if failed is not error:
            _log.warning("closing what was provided for %s failed", owner, exc_info=failed)
    except BaseException as failed:
        if failed is not error:
            raise


def _opens(factory: Callable[..., Any]) -> Literal["value", "generator", "async generator", "async"]:
    if inspect.isasyncgenfunction(factory):
        return "async generator"
    if inspect.iscoroutinefunction(factory):
        return "async"
    return "generator" if inspect.isgeneratorfunction(factory) else "value"


def _logger(call: Call) -> logging.Logger:
    return logging.getLogger(f"prowess.skill.{call.command}")


_PER_CALL: Final[dict[Key, Callable[[Call], Any]]] = {Context: Context, logging.Logger: _logger}
"""What the call itself provides."""

_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _shown(key: Any) -> str:
    return key if isinstance(key, str) else getattr(key, "__qualname__", repr(key))


def settings_needs(keys: Iterable[str]) -> dict[str, str]:
    """Parameter names with their setting keys, from `"api.key"` (fills `api_key`) or `"api.key:name"`."""
    needs: dict[str, str] = {}
    for item in keys:
        key, _, name = item.partition(":")
        if not key:
            raise SettingsError(f"inject_settings holds {item!r}, which names no setting")
        needs[name or key.replace(".", "_").replace("-", "_")] = key
    return needs
