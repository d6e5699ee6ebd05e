"""Finds the provider of an injected parameter, and decides how long its object lives.

Recipes and singletons live as long as the runtime. Objects of one call are opened and closed with that call. The providers
of a project's own dependency-injector container are recipes too, but that container makes and keeps its objects itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import functools
import inspect
import json
import logging
import re
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias, cast, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from prowess.calls.channel import Call
from prowess.calls.context import Context
from prowess.calls.threads import Inline, Lane, Place, Raised, Threads
from prowess.contracts.signature import MISSING, is_union, metadata
from prowess.errors import InjectionError, SettingsError, message_of
from prowess.frozen import frozen
from prowess.injection.provided import (
    Key,
    ancestors,
    annotations_of,
    implements,
    is_data,
    is_key,
    is_record,
    key_of,
    names_of,
    same_type,
    shown,
)
from prowess.injection.scopes import Resources
from prowess.injection.singletons import Singletons
from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings

if TYPE_CHECKING:
    from prowess.injection.containers import Container

__all__ = ["CallScope", "Inject", "Injectables", "Lifetime", "Need", "Recipe"]

Lifetime: TypeAlias = Literal["singleton", "call"]
_LIBRARY: Final = "dependency_injector."
_APART: Final = (
    "this skill runs apart from the others, and what the project provides stays with those: "
    "take a setting instead, have the project provide data with a name and `sendable=True` (which skills with limits do not "
    "get), or implement `prowess_injectables` in the skill"
)


@frozen
class Inject:
    """Marks a parameter as injected: `db: Annotated[Database, Inject()]`, or `Inject("name")` for a named provider."""

    name: str | None = None


@frozen
class Need:
    """One injected parameter, with the source of its value."""

    parameter: str
    source: Literal["provider", "root", "setting", "environment variable"]
    key: Key = ""
    default: Any = MISSING
    read: Callable[[Any], Any] | None = field(default=None, compare=False)
    """Converts a setting to the annotated type, because environment variables are text."""


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How to make an object, with its dependencies. Each recipe has its own object."""

    key: Key
    type: Any
    """The type for look-ups; `None` if it is found only by its name."""
    factory: Callable[..., Any]
    lifetime: Lifetime
    needs: tuple[tuple[str, Key], ...]
    is_async: bool
    """Whether the factory returns an awaitable, so that it runs on the event loop."""
    is_contained: bool = False
    """Whether the factory is a provider of dependency-injector, whose container makes and keeps the object."""

    @property
    def is_asking(self) -> bool:
        """Whether it needs its own type from others, like the `Dependency` of a container."""
        return any(key == self.type for _, key in self.needs)


@dataclass(eq=False)
class _Override:
    """A value that replaces the provider of a key."""

    key: Key
    value: Any
    undo: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Removes it from the container."""


class Injectables:
    """All injectable objects of a runtime."""

    def __init__(
        self, settings: Settings, paths: ConfigPaths, threads: Threads, overrides: Mapping[Any, Any] | None = None
    ) -> None:
        self._recipes: dict[Key, Recipe] = {}
        self.apart = False
        """Whether the shared providers of the project are missing in this environment."""
        self._ready: dict[Key, Any] = {Settings: settings, ConfigPaths: paths}
        self.sendable: dict[Key, Any] = {}
        """The data that skills apart are sent, by name."""
        self.sent: frozenset[Key] = frozenset()
        """The names of data that was sent here."""
        self._overrides = [_Override(_named_key(key), value) for key, value in (overrides or {}).items()]
        self._threads = threads
        self._singletons = Singletons(lambda: Resources("the runtime", threads))
        self._container: Container | None = None
        self._closing: dict[asyncio.Task[None], Lane] = {}
        """Tasks that close the objects of calls with an abandoned thread."""
        # Caches of the above, cleared when it changes.
        self._found: dict[Key, Recipe | InjectionError | None] = {}
        self._values: dict[Key, tuple[bool, Any]] = {}
        self._reached: dict[Recipe, frozenset[Recipe]] = {}

    # Providers

    def provide(
        self,
        type_: Any,
        factory: Callable[..., Any] | None = None,
        *,
        lifetime: Lifetime = "singleton",
        name: str | None = None,
        sendable: bool = False,
    ) -> list[Key]:
        """Make a type or a name injectable, and return the new keys.

        `factory` may be a class, a function, a generator that yields once and then cleans up, the async form of either, or
        a provider of dependency-injector; by default, it is the type itself. Its annotated parameters are injected too. If
        its object is a context manager, it is entered. A container of dependency-injector adds all of its providers.
        With `sendable`, skills with environments of their own can ask for the object as well, which must be data with a name.
        """
        if _is_of_library(type_, "containers"):
            return self.adopt(type_, name)
        key = self._new_key(type_, name)
        factory = type_ if factory is None else factory
        if lifetime not in ("singleton", "call"):
            raise InjectionError(f"{shown(key)}: lifetime is 'singleton' or 'call', not {lifetime!r}")
        if not callable(factory):
            raise InjectionError(f"{shown(key)}: {factory!r} must be a factory: a class, a function or a provider")
        kind = key if is_key(key) else None
        if sendable:
            value = self._sendable(key, factory, lifetime)
            self._add([Recipe(key, kind, lambda: value, lifetime, (), is_async=False)])
        elif _is_of_library(factory, "providers"):
            container = self._library()
            container.add(factory)
            self._add([_contained(container, key, kind, factory, ())])
        else:
            self._add([Recipe(key, kind, factory, lifetime, tuple(_needs(factory)), _is_async(factory))])
        return [key]

    def _sendable(self, key: Key, factory: Callable[..., Any], lifetime: Lifetime) -> Any:
        """Make what is sendable, now: what cannot be sent is an error at load."""
        if not isinstance(key, str):
            raise InjectionError(
                f"{shown(key)} is a type, which stays in its environment; give what is sendable a name: "
                f'provide({shown(key)}, ..., name="...", sendable=True)'
            )
        needs = () if _is_of_library(factory, "providers") else tuple(_needs(factory))
        if lifetime != "singleton" or _is_of_library(factory, "providers") or _is_async(factory):
            raise InjectionError(f"{key}: a sendable provider must be a plain function that returns data once")
        if lacking := [name for name, need in needs if need not in self._ready]:
            raise InjectionError(
                f"{key}: a sendable provider can only ask for settings and paths, not {', '.join(lacking)}"
            )
        try:
            value = factory(**{name: self._ready[need] for name, need in needs})
            self.sendable[key] = json.loads(json.dumps(to_jsonable_python(value), allow_nan=False))
        except Exception as error:
            raise InjectionError(f"{key} cannot be sent to other environments: {message_of(error)}") from error
        return value

    def receive(self, sent: Mapping[str, Any]) -> None:
        """Take data of the project's providers, by name, in a worker that does not have these providers."""
        self._ready.update(sent)
        self.sent = frozenset(sent)

    def _new_key(self, type_: Any, name: str | None) -> Key:
        marker = _marker(type_, None)
        key: Key = name or (marker and marker.name) or (type_ if isinstance(type_, str) else _exact(type_))
        if isinstance(key, str):
            self._check_free(key)
            return key
        bare = key_of(key)
        if is_data(bare) and key is bare:
            raise InjectionError(
                f"a provider of {shown(bare)} would take every parameter of that type in every skill; give it a name, "
                f'provide({shown(bare)}, ..., name="..."), and ask for it with Annotated[{shown(bare)}, Inject("...")]'
            )
        if not is_key(bare):
            raise InjectionError(f"{type_!r} is not a type that can be provided; give a class, a generic or a name")
        self._check_free(key)
        return key

    def _check_free(self, key: Key) -> None:
        if key in self._recipes or key in self._ready or key in _PER_CALL:
            raise InjectionError(f"{shown(key)} already has a provider; give this one a name, or take one of them out")

    def adopt(self, given: Any, name: str | None = None) -> list[Key]:
        """Add all providers of a dependency-injector container by their dotted names."""
        if not _is_of_library(given, "containers"):
            raise InjectionError(f"{given!r} is not a container of dependency-injector")
        container = self._library()
        named = container.adopt(given, name)
        for each in named:
            self._check_free(each.name)
        self._add([_contained(container, each.name, each.type, each.provider, each.needs) for each in named])
        return [each.name for each in named]

    def _library(self) -> Container:
        if self._container is None:
            from prowess.injection.containers import Container  # 25 to 110 ms, only with a provider

            self._container = Container(self._ready[Settings].as_dict(), self._ready, self._ask)
        return self._container

    async def _ask(self, key: Key) -> Any:
        """The object for a `Dependency` of a dependency-injector container."""
        return (await self._part(key))[0]

    def _add(self, recipes: list[Recipe]) -> None:
        self._recipes.update({recipe.key: recipe for recipe in recipes})
        self._changed()
        for override in self._overrides:
            self._reach(override, recipes)

    def forget(self, keys: Iterable[Key]) -> None:
        """Remove the providers of a plugin that has failed or is gone."""
        for key in list(keys):
            self._recipes.pop(key, None)
            self.sendable.pop(key, None)
        self._changed()

    def _changed(self) -> None:
        self._found, self._values, self._reached = {}, {}, {}

    @property
    def keys(self) -> set[Key]:
        """Everything that has a provider."""
        return {*self._recipes, *self._ready, *_PER_CALL, *(override.key for override in self._overrides)}

    def knows(self, key: Key) -> bool:
        """Whether a key has a provider. Raises an error if it is ambiguous."""
        return self.given(key)[0] or key in _PER_CALL or self._find(key) is not None

    def _find(self, key: Key) -> Recipe | None:
        """The recipe for a key: the exact one, the one of its type, or the only one of a subtype."""
        if key not in self._found:
            try:
                self._found[key] = self._search(key)
            except InjectionError as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, InjectionError):
            raise InjectionError(found.reason)
        return found

    def _search(self, key: Key) -> Recipe | None:
        if key in self._recipes or isinstance(key, str):
            return self._recipes.get(key)
        if key in self._ready or key in _PER_CALL or _is_of_standard_library(key):
            return None
        typed = [recipe for recipe in self._recipes.values() if recipe.type is not None and not recipe.is_asking]
        for is_one in (_is_type, _is_kind_of, implements):
            fitting = [recipe for recipe in typed if is_one(recipe.type, key)]
            if len(fitting) > 1:
                names = ", ".join(sorted(shown(recipe.key) for recipe in fitting))
                raise InjectionError(
                    f"{shown(key)} matches several providers: {names}; ask for one of them by its own type or name "
                    f'(Annotated[{shown(key)}, Inject("name")]), or provide {shown(key)} itself'
                )
            if fitting:
                return fitting[0]
        return None

    # Errors

    def broken(self) -> dict[Key, InjectionError]:
        """The recipes that need something without a provider, themselves, or an object that lives shorter; with the reasons."""
        broken: dict[Key, InjectionError] = {}
        for recipe in self._recipes.values():
            try:
                self._check(recipe, ())
            except InjectionError as error:
                broken[recipe.key] = error
        return broken

    def _check(self, recipe: Recipe, path: tuple[Key, ...]) -> None:
        path = (*path, recipe.key)
        for name, key in recipe.needs:
            asker = "dependency" if recipe.is_contained else "parameter"
            what = f"{shown(recipe.key)} ({asker} {name!r} of its provider)"
            if self.given(key)[0]:
                continue
            try:
                inner = self._find(key)
            except InjectionError as error:
                raise InjectionError(f"{what}: {error.reason}") from None
            if inner is None and key not in _PER_CALL:
                raise InjectionError(f"{what}: {self.nobody(key)}")
            if inner is not None and inner.key in path:
                chain = " -> ".join(shown(item) for item in (*path, inner.key))
                raise InjectionError(f"providers depend on each other in a circle: {chain}")
            if recipe.is_contained and (inner is None or inner.lifetime == "call"):
                raise InjectionError(
                    f"{what} is {shown(key)}, which lives for one call, and containers get only what lives as long as "
                    f"the runtime; give {shown(key)} lifetime='singleton', or make {shown(recipe.key)} with a factory"
                )
            if recipe.lifetime == "singleton" and (inner is None or inner.lifetime == "call"):
                raise InjectionError(f"{what} lives longer than {shown(key)}; give it lifetime='call'")
            if inner is not None:
                self._check(inner, path)

    def need(self, parameter: str, annotation: Any, default: Any, *, autowire: bool) -> Need | None:
        """The need of one parameter, or `None` if clients send it."""
        marker = _marker(annotation, default)
        if marker is None and not autowire:
            return None
        try:
            return self._need(parameter, annotation, default, marker)
        except InjectionError as error:
            raise InjectionError(f"parameter {parameter!r}: {error.reason}") from None

    def _need(self, parameter: str, annotation: Any, default: Any, marker: Inject | None) -> Need | None:
        fallback = MISSING if isinstance(default, Inject) else default
        key: Key = (marker and marker.name) or self._asked(annotation)
        if marker is None and is_record(key) and not self._is_itself_provided(key):
            return None  # data of clients: a provider of a subtype must not take the argument away
        if (isinstance(key, str) or get_origin(key) is Annotated or is_key(key)) and self.knows(key):
            return Need(parameter, "provider", key, fallback)
        if marker is None:
            return None
        if fallback is MISSING:
            raise InjectionError(self.nobody(key))
        return Need(parameter, "provider", key, fallback)

    def _is_itself_provided(self, key: Key) -> bool:
        """Whether the exact type has a provider or an override, not only a subtype."""
        known = (*self.keys, *(recipe.type for recipe in self._recipes.values()))
        named = {override.key for override in self._overrides if isinstance(override.key, str)}
        return any(same_type(one, key) for one in known) or not named.isdisjoint(names_of(key))

    def _asked(self, annotation: Any) -> Key:
        """The key of an annotation: the whole `Annotated` if that has a provider, else the type in it."""
        bare, exact = key_of(annotation), _exact(annotation)
        return exact if exact is not bare and exact in self._recipes else bare

    def nobody(self, key: Any) -> str:
        """The message that a type has no provider, with the nearest type that has one."""
        known = sorted({shown(item) for item in self.keys})
        near = difflib.get_close_matches(shown(key), known, n=1, cutoff=0.4)
        hint = f"the nearest is {near[0]}" if near else f"there are {', '.join(known)}"
        way = _APART if self.apart else "a plugin adds providers with `prowess_injectables`"
        return f"there is no provider for {shown(key)}; {hint} ({way})"

    # Objects

    def given(self, key: Key) -> tuple[bool, Any]:
        """Whether a key has an existing object, from an override or the runtime itself, and that object."""
        if not self._overrides:
            return (True, self._ready[key]) if key in self._ready else (False, None)
        if key not in self._values:
            self._values[key] = self._given(key)
        found, value = self._values[key]
        return (True, value()) if _is_of_library(value, "providers") else (found, value)

    def _given(self, key: Key) -> tuple[bool, Any]:
        for override in reversed(self._overrides):
            if self._means(override.key, key):
                return True, override.value
        return (True, self._ready[key]) if key in self._ready else (False, None)

    def _means(self, overridden: Key, key: Key) -> bool:
        """Whether an override applies to a key: to the same key, to the recipe that it finds, or to a type of that name."""
        if same_type(overridden, key):
            return True
        if isinstance(overridden, str) and not isinstance(key, str) and overridden not in self._recipes:
            return overridden in names_of(key)
        with contextlib.suppress(InjectionError):
            recipe = self._find(key)
            return recipe is not None and recipe is self._find(overridden)
        return False

    def recipe(self, key: Key) -> Recipe:
        """The recipe for a key without an existing object."""
        recipe = self._find(key)
        if recipe is None:
            raise InjectionError(self.nobody(key))
        return recipe

    def reached(self, recipe: Recipe) -> frozenset[Recipe]:
        """A recipe with all its direct and indirect dependencies, except existing objects."""
        if recipe not in self._reached:
            todo, reached = [recipe], {recipe}
            while todo:
                keys = [key for _, key in todo.pop().needs if key not in _PER_CALL and not self.given(key)[0]]
                todo.extend(set(map(self.recipe, keys)) - reached)
                reached.update(todo)
            self._reached[recipe] = frozenset(reached)
        return self._reached[recipe]

    async def prepare(self, recipe: Recipe) -> None:
        """Make the kept objects of a provider."""
        with _providing(recipe.key):
            await self._library().prepare(recipe.factory, self._threads)

    async def singleton(self, recipe: Recipe) -> tuple[Any, bool]:
        """The one instance of a recipe, and whether it belongs to this event loop.

        While one of its dependencies is overridden, there is another instance, which is made with the override.
        """
        place = (recipe, self._overridden_in(recipe)) if self._overrides else recipe
        return await self._singletons.get(place, functools.partial(self._make, recipe))

    def _overridden_in(self, recipe: Recipe) -> tuple[_Override, ...]:
        keys = {key for each in self._all_below(recipe) for _, key in each.needs}
        return tuple(each for each in self._overrides if any(self._means(each.key, key) for key in keys))

    def _all_below(self, recipe: Recipe) -> set[Recipe]:
        """A recipe with all its dependencies, ignoring overrides."""
        todo, below = [recipe], {recipe}
        while todo:
            for _, key in todo.pop().needs:
                with contextlib.suppress(InjectionError):
                    inner = self._find(key)
                    if inner is not None and inner not in below:
                        below.add(inner)
                        todo.append(inner)
        return below

    async def _make(self, recipe: Recipe, opened: Resources) -> tuple[Any, bool]:
        parts = {name: await self._part(key) for name, key in recipe.needs}
        values = {name: value for name, (value, _) in parts.items()}
        with _providing(recipe.key):
            make = functools.partial(recipe.factory, **values)
            value, bound = await opened.open(make, on_loop=recipe.is_async)
        return value, bound or any(bound for _, bound in parts.values())

    async def _part(self, key: Key) -> tuple[Any, bool]:
        found, value = self.given(key)
        if found:
            return value, False
        recipe = self.recipe(key)
        if not recipe.is_contained:
            return await self.singleton(recipe)
        await self.prepare(recipe)
        return await self.contained(recipe, self._threads), False

    async def contained(self, recipe: Recipe, place: Place) -> Any:
        """The object of a provider of the container, which decides how long it lives."""
        with _providing(recipe.key):
            return await self._library().get(recipe.factory, place)

    # Overriding

    @contextlib.contextmanager
    def override(self, key: Key, value: Any) -> Generator[None]:
        """Replace a provider by a value for a while, also in objects that were made before."""
        override = _Override(_named_key(key), value)
        self._overrides = [*self._overrides, override]
        self._changed()
        self._reach(override, list(self._recipes.values()))
        try:
            yield
        finally:
            override.undo.close()
            self._overrides = [each for each in self._overrides if each is not override]
            self._changed()

    def _reach(self, override: _Override, recipes: list[Recipe]) -> None:
        """Override the matching providers in the container, because other providers may need them."""
        for recipe in recipes:
            if not recipe.is_contained:
                continue
            if self._means(override.key, recipe.key) or (
                recipe.type is not None and self._means(override.key, recipe.type)
            ):
                override.undo.enter_context(self._library().override(recipe.factory, override.value))

    # Closing

    def close_later(self, opened: Resources, lane: Lane, error: BaseException | None) -> None:
        """Close the objects of a call after its abandoned function has ended."""
        closing: Coroutine[Any, Any, None] = opened.close_after(lane, error)
        task = asyncio.get_running_loop().create_task(closing)
        self._closing[task] = lane
        task.add_done_callback(self._closing.pop)

    async def aclose(self) -> None:
        """Close the objects that live as long as the runtime, in reverse order."""
        loop = asyncio.get_running_loop()
        closing = [task for task, lane in self._closing.items() if task.get_loop() is loop and not lane.is_busy]
        if closing:
            await asyncio.wait(closing)
        await self._singletons.aclose()
        if self._container is not None:
            await self._close_container(self._container)

    async def _close_container(self, container: Container) -> None:
        closing = Resources("the runtime", self._threads)
        for close, on_loop in reversed(list(container.closers())):
            closing.add(close, on_loop=on_loop)
        await closing.close()


class CallScope:
    """The objects of one call: each is made once, and all are closed in reverse order at the end of the call.

    Sync factories run in one thread, where their objects are also closed, and a sync command runs in the same thread.
    `inline` is for a sync command on the event loop: that is its thread.
    """

    def __init__(
        self, injectables: Injectables, call: Call, threads: Threads, root: Path, *, inline: bool, is_async: bool
    ) -> None:
        self._injectables = injectables
        self._call = call
        self._threads = threads
        self._root = root
        self._inline = inline
        self._is_async = is_async
        self._resources: Resources | None = None
        self._needs: dict[str, Recipe] = {}
        """The recipes by parameter."""
        self._made: dict[Recipe, Any] = {}
        self._on_loop: set[Recipe] = set()
        """The recipes whose objects were opened on the event loop."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, Raised) and self._needs:
            self._explain(error.error)
        if self._resources is None:
            return
        lane = self._call.place
        if isinstance(lane, Inline):
            await self._resources.close(error)
        elif lane.is_left_behind:
            self._injectables.close_later(self._resources, lane, error)
        else:
            try:
                await self._resources.close(error)
            finally:
                lane.release()

    async def fill(self, needs: Iterable[Need]) -> None:
        """Fill every parameter that the Python caller did not pass. Settings come first: they may be missing, and open nothing."""
        call = self._call
        call.provided = dict(call.arguments.injected)
        for value in call.provided.values():
            self._keep_secret(value)
        wanted: list[tuple[str, Recipe]] = []
        for need in needs:
            if need.parameter in call.provided:
                continue
            found, value = self._at_hand(need)
            if found:
                call.provided[need.parameter] = value
            elif need.source != "provider":
                call.provided[need.parameter] = await self._setting(need)
            else:
                wanted.append((need.parameter, self._injectables.recipe(need.key)))
        if wanted:
            await self._make_all(wanted)

    def _at_hand(self, need: Need) -> tuple[bool, Any]:
        """Whether a parameter has an existing value, and the value."""
        if need.source == "root":
            return True, self._root
        if need.source != "provider":
            return False, None
        found, value = self._injectables.given(need.key)
        if found:
            self._keep_secret(value)
            return True, _read(need, value)
        if need.key in _PER_CALL:
            return True, _PER_CALL[need.key](self._call)
        return need.default is not MISSING and not self._injectables.knows(need.key), need.default

    def _keep_secret(self, value: object) -> None:
        """Note an injected text as a secret, because it may be a token. Texts inside objects are not noted."""
        if isinstance(value, str):
            self._call.keep_secret(value)

    async def _setting(self, need: Need) -> Any:
        key = cast("str", need.key)
        settings: Settings = self._injectables.given(Settings)[1]
        default = () if need.default is MISSING else (need.default,)
        if need.source == "environment variable":
            value = settings.variable(key, *default)
        elif settings.may_wait(key):
            value = await self._threads.run(lambda: settings.get(key, *default))
        else:
            value = settings.get(key, *default)
        self._call.keep_secret(value)
        return _read(need, value)

    async def _make_all(self, wanted: list[tuple[str, Recipe]]) -> None:
        self._needs = dict(wanted)
        injectables = self._injectables
        # Singletons first: making them needs threads, and a call that waits for one must not hold another.
        for each in {each for _, recipe in wanted for each in injectables.reached(recipe)}:
            if each.is_contained:
                await injectables.prepare(each)
            elif each.lifetime == "singleton":
                self._made[each] = (await injectables.singleton(each))[0]
        for parameter, recipe in wanted:
            value = self._call.provided[parameter] = await self._get(recipe)
            self._keep_secret(value)

    async def _part(self, key: Key) -> Any:
        found, value = self._injectables.given(key)
        if found:
            return value
        return _PER_CALL[key](self._call) if key in _PER_CALL else await self._get(self._injectables.recipe(key))

    async def _get(self, recipe: Recipe) -> Any:
        if recipe not in self._made:
            self._made[recipe] = await self._make(recipe)
        return self._made[recipe]

    async def _make(self, recipe: Recipe) -> Any:
        opened = self._opened()
        if recipe.lifetime == "singleton":  # a singleton of the container: all others are made by now
            return await self._injectables.contained(recipe, self._call.place)
        needs = () if recipe.is_contained else recipe.needs  # the container resolves its own dependencies
        parts = {name: await self._part(key) for name, key in needs}
        with _providing(recipe.key):
            value, on_loop = await opened.open(functools.partial(recipe.factory, **parts), on_loop=recipe.is_async)
        if on_loop:
            self._on_loop.add(recipe)
        return value

    def _opened(self) -> Resources:
        """The resources of the call in its thread. From now on, the command runs there too."""
        if self._resources is None:
            place = self._call.place = Inline() if self._inline else Lane(self._threads, self._call.id)
            self._resources = Resources(self._call.command, place, self._call.shown)
        return self._resources

    def _explain(self, error: BaseException) -> None:
        """Add to an error about threads which parameters were made in another thread."""
        if _THREAD.search(str(error)) is None:
            return
        for parameter, recipe in self._needs.items():
            below = sorted(self._injectables.reached(recipe) - {recipe}, key=lambda each: shown(each.key))
            for each in (recipe, *below):
                problem = self._misplaced(each)
                if problem is not None:
                    made = "" if each is recipe else f" needs {shown(each.key)}, which"
                    error.add_note(f"the parameter {parameter!r}{made} {problem}")
                    break

    def _misplaced(self, recipe: Recipe) -> str | None:
        if recipe.lifetime == "singleton":
            return "is shared by all threads: provide it with lifetime='call' if it is bound to one"
        if self._inline or (recipe in self._on_loop) == self._is_async:
            return None
        if self._is_async:
            return (
                "was made in another thread by a sync factory, and an async command runs on the event loop: "
                "make the factory async, or the command sync"
            )
        return (
            "was made on the event loop by an async factory, and a sync command runs in a thread: "
            "make the factory sync, or the command async"
        )


def _read(need: Need, value: Any) -> Any:
    """The value as the parameter is annotated."""
    if need.read is None or value is need.default:
        return value
    try:
        return need.read(value)
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise SettingsError(
            f"the {need.source} {need.key!r} does not fit the parameter {need.parameter!r}: {reason}"
        ) from None


@contextlib.contextmanager
def _providing(key: Key) -> Generator[None]:
    """Mark exceptions as raised by a provider instead of the command."""
    try:
        yield
    except Raised as raised:
        raised.error.add_note(f"while {shown(key)} was being provided")
        raise


def _contained(container: Container, key: Key, kind: Any, provider: Any, needs: tuple[tuple[str, Key], ...]) -> Recipe:
    lifetime: Lifetime = "call" if container.is_per_call(provider) else "singleton"
    return Recipe(key, kind, provider, lifetime, needs, container.is_async(provider), is_contained=True)


def _needs(factory: Callable[..., Any]) -> Iterator[tuple[str, Key]]:
    """The injected parameters of a factory: those without a default, and those with `Inject`."""
    for parameter, resolve in annotations_of(factory):
        required = parameter.default is MISSING and parameter.kind not in _VARIADIC
        try:
            annotation = resolve()
        except InjectionError:
            if required:
                raise
            annotation = Any
        marker = _marker(annotation, parameter.default)
        if marker is not None or required:
            key = (marker.name if marker else None) or key_of(annotation)
            yield parameter.name, key


def _marker(annotation: Any, default: Any) -> Inject | None:
    return next((item for item in (*metadata(annotation), default) if isinstance(item, Inject)), None)


def _exact(annotation: Any) -> Any:
    """The whole `Annotated` if it is hashable, else the type."""
    parts = [item for item in get_args(annotation) if item is not type(None)] if is_union(annotation) else [annotation]
    if get_origin(parts[0]) is Annotated and len(parts) == 1:
        with contextlib.suppress(TypeError):  # the metadata may be unhashable
            hash(parts[0])
            return parts[0]
    return key_of(annotation)


def _named_key(key: Key) -> Key:
    return key if isinstance(key, str) else key_of(key)


def _is_type(kind: Any, wanted: Any) -> bool:
    return bool(kind == wanted)


def _is_kind_of(kind: Any, wanted: Any) -> bool:
    return wanted in ancestors(kind)


def _is_of_standard_library(key: Any) -> bool:
    """Whether a type is of the standard library. A parameter of it must not get a provider of a subtype."""
    return is_data(key) or _top(key) in _STANDARD


def _top(key: Any) -> str:
    return getattr(get_origin(key) or key, "__module__", "").partition(".")[0]


def _is_async(factory: Any) -> bool:
    forms = factory, getattr(factory, "__call__", None)  # noqa: B004 - wanted is the method, whose kind is asked for
    return any(inspect.iscoroutinefunction(form) or inspect.isasyncgenfunction(form) for form in forms)


def _is_of_library(thing: object, module: str) -> bool:
    """Whether an object comes from a module of dependency-injector, without importing it."""
    return any(base.__module__ == _LIBRARY + module for base in type(thing).__mro__)


def _logger(call: Call) -> logging.Logger:
    return logging.getLogger(f"prowess.skill.{call.command}")


_PER_CALL: Final[dict[Key, Callable[[Call], Any]]] = {Context: Context, logging.Logger: _logger}
"""The objects that the call itself provides."""

_STANDARD: Final = sys.stdlib_module_names
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_THREAD: Final = re.compile(r"\bthreads?\b", re.IGNORECASE)
