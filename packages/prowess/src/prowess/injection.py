"""Who provides an injected parameter, and for how long it lives.

Recipes live with the runtime, and so do the things that are made once. What is made for one call is opened and closed with
that call. dependency-injector makes the former, and its providers are welcome as recipes.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, cast

from pydantic import ValidationError

from prowess.call import Call
from prowess.context import Context
from prowess.errors import InjectionError, SettingsError
from prowess.paths import ConfigPaths
from prowess.resources import Resources
from prowess.settings import Settings
from prowess.signature import MISSING, metadata, without_none
from prowess.singletons import Singletons
from prowess.threads import Raised, Threads

__all__ = ["CallScope", "Inject", "Injectables", "Key", "Lifetime", "Need", "Recipe", "settings_needs"]

Key: TypeAlias = "type[Any] | str"
Lifetime: TypeAlias = Literal["singleton", "call"]
_PROVIDERS: Final = "dependency_injector.providers"


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
    read: Callable[[Any], Any] | None = field(default=None, compare=False)
    """Makes a setting what the parameter is annotated as: in the environment everything is text."""


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How to make a thing, and what it needs itself. A recipe that took the place of another makes another thing."""

    key: Key
    factory: Callable[..., Any]
    lifetime: Lifetime
    needs: tuple[tuple[str, Key], ...]
    is_async: bool
    """Whether the factory returns at once something to be awaited: it then needs no thread."""


class Injectables:
    """All that can be injected. Lives with the runtime."""

    def __init__(
        self, settings: Settings, paths: ConfigPaths, threads: Threads, overrides: Mapping[Any, Any] | None = None
    ) -> None:
        self._recipes: dict[Key, Recipe] = {}
        self._ready: dict[Key, Any] = {Settings: settings, ConfigPaths: paths}
        self._overrides: dict[Key, Any] = dict(overrides or {})
        self._threads = threads
        self._singletons = Singletons(lambda: Resources("the runtime", threads))

    def provide(
        self,
        type_: type[Any],
        factory: Callable[..., Any],
        *,
        lifetime: Lifetime = "singleton",
        name: str | None = None,
    ) -> None:
        """Teach a type, or a name, to be injected.

        `factory` may be a class, a function, a generator that yields once and then cleans up, the async form of
        either, or a provider of dependency-injector. Its own annotated parameters are injected too. What it makes is
        entered where it is a context manager.
        """
        key: Key = name or type_
        if key in self._recipes or key in self._ready or key in _PER_CALL:
            raise InjectionError(f"{_shown(key)} already has a provider; give this one a name, or take one of them out")
        if lifetime not in ("singleton", "call"):
            raise InjectionError(f"{_shown(key)}: lifetime is 'singleton' or 'call', not {lifetime!r}")
        self._recipes[key] = Recipe(key, factory, lifetime, tuple(_needs(factory)), _is_async(factory))

    def forget(self, keys: Iterable[Key]) -> None:
        """Take back what a plugin that failed, or left, had provided."""
        for key in list(keys):
            self._recipes.pop(key, None)

    @property
    def keys(self) -> set[Key]:
        """Everything that has a provider."""
        return {*self._recipes, *self._ready, *_PER_CALL, *self._overrides}

    def knows(self, key: Key) -> bool:
        """Whether anybody provides something."""
        return key in self._recipes or key in self._ready or key in _PER_CALL or key in self._overrides

    def broken(self) -> dict[Key, InjectionError]:
        """The recipes that need what nobody provides, themselves, or something that lives shorter; each with the reason."""
        broken: dict[Key, InjectionError] = {}
        for recipe in self._recipes.values():
            try:
                self._check(recipe, ())
            except InjectionError as error:
                broken[recipe.key] = error
        return broken

    def need(self, parameter: str, annotation: Any, default: Any, *, autowire: bool) -> Need | None:
        """The need of one parameter, or `None` where a client has to send it."""
        marker = _marker(annotation, default)
        key = without_none(annotation)
        fallback = MISSING if isinstance(default, Inject) else default
        if marker is not None:
            key = marker.name or key
            if not self.knows(key) and fallback is MISSING:
                raise InjectionError(f"parameter {parameter!r}: {self.nobody(key)}")
            return Need(parameter, "provider", key, fallback)
        if autowire and isinstance(key, type) and self.knows(key):
            return Need(parameter, "provider", key, fallback)
        return None

    def nobody(self, key: Any) -> str:
        """That nobody provides something, and the nearest thing that somebody does."""
        known = sorted(_shown(item) for item in self.keys)
        near = difflib.get_close_matches(_shown(key), known, n=1, cutoff=0.4)
        hint = f"the nearest is {near[0]}" if near else f"there are {', '.join(known)}"
        return f"nobody provides {_shown(key)}; {hint} (a plugin adds providers with `prowess_injectables`)"

    def given(self, key: Key) -> tuple[bool, Any]:
        """Whether something is there without being made, an override or one of the runtime's own, and what."""
        for values in (self._overrides, self._ready):
            if key in values:
                return True, values[key]
        return False, None

    def recipe(self, key: Key) -> Recipe:
        """How something is made that is not there yet; `broken` has seen to it that somebody knows."""
        return self._recipes[key]

    async def singleton(self, recipe: Recipe) -> tuple[Any, bool]:
        """The one instance of a recipe, and whether it belongs to this event loop."""
        return await self._singletons.get(recipe, functools.partial(self._make, recipe))

    async def _make(self, recipe: Recipe, resources: Resources) -> tuple[Any, bool]:
        make, end = _provider(recipe)
        if end is not None:
            resources.add(end)
        parts = {name: await self._part(key) for name, key in recipe.needs}
        values = {name: value for name, (value, _) in parts.items()}
        with _providing(recipe.key):
            value, bound = await resources.open(functools.partial(make, **values), blocks=not recipe.is_async)
        return value, bound or any(bound for _, bound in parts.values())

    async def _part(self, key: Key) -> tuple[Any, bool]:
        found, value = self.given(key)
        return (value, False) if found else await self.singleton(self.recipe(key))

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
        """Close what was opened for as long as the runtime lives, in reverse order."""
        await self._singletons.aclose()

    def _check(self, recipe: Recipe, path: tuple[Key, ...]) -> None:
        path = (*path, recipe.key)
        for name, key in recipe.needs:
            shown = f"{_shown(recipe.key)} (parameter {name!r} of its provider)"
            if key in path:
                chain = " -> ".join(_shown(item) for item in (*path, key))
                raise InjectionError(f"providers need each other in a circle: {chain}")
            if not self.knows(key):
                raise InjectionError(f"{shown}: {self.nobody(key)}")
            inner = self._recipes.get(key)
            shorter = key in _PER_CALL or (inner is not None and inner.lifetime == "call")
            if recipe.lifetime == "singleton" and shorter and key not in self._overrides:
                raise InjectionError(f"{shown} lives longer than {_shown(key)}; give it lifetime='call'")
            if inner is not None:
                self._check(inner, path)


class CallScope:
    """What is made for one call: each thing once, closed in reverse order when the call is over."""

    def __init__(self, injectables: Injectables, call: Call, threads: Threads, root: Path) -> None:
        self._injectables = injectables
        self._call = call
        self._root = root
        self._resources = Resources(call.command, threads, call.shown)
        self._made: dict[Key, Any] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._resources:
            await self._resources.close(error)

    async def fill(self, needs: Iterable[Need]) -> None:
        """Provide every parameter that the Python caller did not pass. What opens nothing comes first: it may be missing."""
        call = self._call
        call.provided = dict(call.arguments.injected)
        for value in call.provided.values():
            self._keep_secret(value)
        for need in sorted(needs, key=lambda need: need.source == "provider"):
            if need.parameter not in call.provided:
                call.provided[need.parameter] = await self._value(need)

    async def _value(self, need: Need) -> Any:
        if need.source == "root":
            return self._root
        if need.source == "setting":
            return self._setting(need)
        if not self._injectables.knows(need.key):
            return need.default
        value = await self._get(need.key)
        self._keep_secret(value)
        return value

    def _keep_secret(self, value: object) -> None:
        """A text that was provided may be a token; what a structure holds is its own business."""
        if isinstance(value, str):
            self._call.keep_secret(value)

    def _setting(self, need: Need) -> Any:
        key = cast("str", need.key)
        settings: Settings = self._injectables.given(Settings)[1]
        value = settings.require(key) if need.default is MISSING else settings.get(key, need.default)
        self._call.keep_secret(value)
        if need.read is None or value is need.default:
            return value
        try:
            return need.read(value)
        except ValidationError as error:
            reason = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise SettingsError(
                f"the setting {key!r} does not fit the parameter {need.parameter!r}: {reason}"
            ) from None

    async def _get(self, key: Key) -> Any:
        found, value = self._injectables.given(key)
        if found:
            return value
        if key in _PER_CALL:
            return _PER_CALL[key](self._call)
        if key not in self._made:
            self._made[key] = await self._make(self._injectables.recipe(key))
        return self._made[key]

    async def _make(self, recipe: Recipe) -> Any:
        if recipe.lifetime == "singleton":
            return (await self._injectables.singleton(recipe))[0]
        parts = {name: await self._get(key) for name, key in recipe.needs}
        make = functools.partial(recipe.factory, **parts)
        with _providing(recipe.key):
            return (await self._resources.open(make, blocks=not recipe.is_async))[0]


@contextlib.contextmanager
def _providing(key: Key) -> Generator[None]:
    """What is raised inside is raised by a provider, and not by the command: it says so."""
    try:
        yield
    except Raised as raised:
        raised.error.add_note(f"while {_shown(key)} was being provided")
        raise


def _provider(recipe: Recipe) -> tuple[Any, Callable[[], Any] | None]:
    """The provider behind a thing that is made once, and what makes it forget that it was made."""
    factory: Any = recipe.factory
    if _is_provider(factory):
        return factory, getattr(factory, "shutdown", None)  # a Resource has one
    if recipe.is_async:
        return factory, None
    from dependency_injector import providers  # 25 to 110 ms, paid only by who needs a singleton

    def boxed(**parts: Any) -> list[Any]:  # or it would take a generator for a coroutine, and await it
        return [factory(**parts)]

    single: Any = providers.ThreadSafeSingleton(boxed)

    def make(**parts: Any) -> Any:
        return single(**parts)[0]

    return make, single.reset


def _needs(factory: Callable[..., Any]) -> Iterable[tuple[str, Key]]:
    """The parameters of a factory that have to be injected: those without a default, and those that say so."""
    if _is_provider(factory):  # it knows its own needs
        return
    try:
        parameters = inspect.signature(factory, eval_str=True).parameters.values()
    except (TypeError, ValueError):  # built in, and without a signature
        return
    for parameter in parameters:
        annotation = parameter.annotation
        marker = _marker(annotation, parameter.default)
        if marker is not None and marker.name:
            yield parameter.name, marker.name
        elif marker is not None or (parameter.default is MISSING and parameter.kind not in _VARIADIC):
            yield parameter.name, without_none(annotation)


def _marker(annotation: Any, default: Any) -> Inject | None:
    return next((item for item in (*metadata(annotation), default) if isinstance(item, Inject)), None)


def _is_async(factory: Any) -> bool:
    function = inspect.unwrap(factory.provides) if _is_provider(factory) else factory
    forms = function, getattr(function, "__call__", None)  # noqa: B004 - wanted is the method, whose kind is asked for
    return any(inspect.iscoroutinefunction(form) or inspect.isasyncgenfunction(form) for form in forms)


def _is_provider(factory: object) -> bool:
    """Whether a factory is a provider of dependency-injector, told without importing that."""
    return any(base.__module__ == _PROVIDERS for base in type(factory).__mro__)


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
