"""The injectable objects of a runtime: finds the provider of a parameter, and keeps the objects that live as long as the runtime.

The providers of a project's own dependency-injector container are recipes too, but that container makes and keeps its
objects itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_origin

from pydantic_core import to_jsonable_python

from prowess.calls.threads import Lane, ThreadRunner, Threads
from prowess.contracts.signature import MISSING, is_union
from prowess.errors import InjectionError, message_of
from prowess.injection.provided import (
    Key,
    ancestors,
    implements,
    is_data,
    is_key,
    is_record,
    key_of,
    names_of,
    same_type,
    shown,
)
from prowess.injection.recipes import (
    PER_CALL,
    Inject,
    Lifetime,
    Need,
    Recipe,
    contained_recipe,
    is_async_factory,
    is_of_library,
    marker_of,
    needs_of,
    providing,
)
from prowess.injection.scopes import Resources
from prowess.injection.singletons import Singletons
from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings

if TYPE_CHECKING:
    from prowess.injection.containers import Container

__all__ = ["Injectables"]

_ISOLATED: Final = (
    "this skill runs in its own process, so it cannot use objects of the project's plugins: inject a setting instead, "
    "implement `prowess_injectables` in the skill, or provide data with a name and `sendable=True` (not for skills "
    "with limits)"
)


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
        self.isolated = False
        """Whether the shared providers of the project are missing in this environment."""
        self._ready: dict[Key, Any] = {Settings: settings, ConfigPaths: paths}
        self.sendable: dict[Key, Any] = {}
        """The data for skills in other environments, by name."""
        self.sent: frozenset[Key] = frozenset()
        """The names of data received from the project."""
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
        if is_of_library(type_, "containers"):
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
        elif is_of_library(factory, "providers"):
            container = self._library()
            container.add(factory)
            self._add([contained_recipe(container, key, kind, factory, ())])
        else:
            self._add([Recipe(key, kind, factory, lifetime, tuple(needs_of(factory)), is_async_factory(factory))])
        return [key]

    def _sendable(self, key: Key, factory: Callable[..., Any], lifetime: Lifetime) -> Any:
        """Make the data for other environments now, so that data that cannot be sent is an error at load."""
        if not isinstance(key, str):
            raise InjectionError(
                f"{shown(key)} is a type, and sendable data needs a name: "
                f'provide({shown(key)}, ..., name="...", sendable=True)'
            )
        needs = () if is_of_library(factory, "providers") else tuple(needs_of(factory))
        if lifetime != "singleton" or is_of_library(factory, "providers") or is_async_factory(factory):
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
        marker = marker_of(type_, None)
        key: Key = name or (marker and marker.name) or (type_ if isinstance(type_, str) else _exact(type_))
        if isinstance(key, str):
            self._check_free(key)
            return key
        bare = key_of(key)
        if is_data(bare) and key is bare:
            raise InjectionError(
                f"a provider of {shown(bare)} would fill every parameter of that type in every skill; give it a name, "
                f'provide({shown(bare)}, ..., name="..."), and ask for it with Annotated[{shown(bare)}, Inject("...")]'
            )
        if not is_key(bare):
            raise InjectionError(f"{type_!r} is not a type that can be provided; give a class, a generic or a name")
        self._check_free(key)
        return key

    def _check_free(self, key: Key) -> None:
        if key in self._recipes or key in self._ready or key in PER_CALL:
            raise InjectionError(f"{shown(key)} already has a provider; give this one a name, or remove one of them")

    def adopt(self, given: Any, name: str | None = None) -> list[Key]:
        """Add all providers of a dependency-injector container by their dotted names."""
        if not is_of_library(given, "containers"):
            raise InjectionError(f"{given!r} is not a container of dependency-injector")
        container = self._library()
        named = container.adopt(given, name)
        for each in named:
            self._check_free(each.name)
        self._add([contained_recipe(container, each.name, each.type, each.provider, each.needs) for each in named])
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
        return {*self._recipes, *self._ready, *PER_CALL, *(override.key for override in self._overrides)}

    def knows(self, key: Key) -> bool:
        """Whether a key has a provider. Raises an error if it is ambiguous."""
        return self.given(key)[0] or key in PER_CALL or self._find(key) is not None

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
        if key in self._ready or key in PER_CALL or _is_of_standard_library(key):
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
            if inner is None and key not in PER_CALL:
                raise InjectionError(f"{what}: {self.why_missing(key)}")
            if inner is not None and inner.key in path:
                chain = " -> ".join(shown(item) for item in (*path, inner.key))
                raise InjectionError(f"providers depend on each other in a circle: {chain}")
            if recipe.is_contained and (inner is None or inner.lifetime == "call"):
                raise InjectionError(
                    f"{what} is {shown(key)}, which is made for each call, and a container can only use singletons; "
                    f"give {shown(key)} lifetime='singleton', or make {shown(recipe.key)} with a factory"
                )
            if recipe.lifetime == "singleton" and (inner is None or inner.lifetime == "call"):
                raise InjectionError(
                    f"{what} is {shown(key)}, which is made for each call, but {shown(recipe.key)} is a singleton; "
                    f"give {shown(recipe.key)} lifetime='call'"
                )
            if inner is not None:
                self._check(inner, path)

    def need(self, parameter: str, annotation: Any, default: Any, *, autowire: bool) -> Need | None:
        """The need of one parameter, or `None` if clients send it."""
        marker = marker_of(annotation, default)
        if marker is None and not autowire:
            return None
        try:
            return self._need(parameter, annotation, default, marker)
        except InjectionError as error:
            raise InjectionError(f"parameter {parameter!r}: {error.reason}") from None

    def _need(self, parameter: str, annotation: Any, default: Any, marker: Inject | None) -> Need | None:
        fallback = MISSING if isinstance(default, Inject) else default
        key: Key = (marker and marker.name) or self._key_of(annotation)
        if marker is None and is_record(key) and not self._is_itself_provided(key):
            return None  # data of clients: a provider of a subtype must not take the argument away
        if (isinstance(key, str) or get_origin(key) is Annotated or is_key(key)) and self.knows(key):
            return Need(parameter, "provider", key, fallback)
        if marker is None:
            return None
        if fallback is MISSING:
            raise InjectionError(self.why_missing(key))
        return Need(parameter, "provider", key, fallback)

    def _is_itself_provided(self, key: Key) -> bool:
        """Whether the exact type has a provider or an override, not only a subtype."""
        known = (*self.keys, *(recipe.type for recipe in self._recipes.values()))
        named = {override.key for override in self._overrides if isinstance(override.key, str)}
        return any(same_type(one, key) for one in known) or not named.isdisjoint(names_of(key))

    def _key_of(self, annotation: Any) -> Key:
        """The key of an annotation: the whole `Annotated` if that has a provider, else the type in it."""
        bare, exact = key_of(annotation), _exact(annotation)
        return exact if exact is not bare and exact in self._recipes else bare

    def why_missing(self, key: Any) -> str:
        """The message for a type without a provider, with the nearest type that has one."""
        known = sorted({shown(item) for item in self.keys})
        import difflib  # for a mistake alone

        near = difflib.get_close_matches(shown(key), known, n=1, cutoff=0.4)
        hint = f"the nearest is {near[0]}" if near else f"there are {', '.join(known)}"
        if near == [shown(key)]:
            hint = "another class of the same name has one"
        way = _ISOLATED if self.isolated else "a plugin adds providers with `prowess_injectables`"
        return f"there is no provider for {shown(key)}; {hint} ({way})"

    # Objects

    def given(self, key: Key) -> tuple[bool, Any]:
        """Whether a key has an existing object, from an override or the runtime itself, and that object."""
        if not self._overrides:
            return (True, self._ready[key]) if key in self._ready else (False, None)
        if key not in self._values:
            self._values[key] = self._given(key)
        found, value = self._values[key]
        return (True, value()) if is_of_library(value, "providers") else (found, value)

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
            raise InjectionError(self.why_missing(key))
        return recipe

    def reached(self, recipe: Recipe) -> frozenset[Recipe]:
        """A recipe with all its direct and indirect dependencies, except existing objects."""
        if recipe not in self._reached:
            todo, reached = [recipe], {recipe}
            while todo:
                keys = [key for _, key in todo.pop().needs if key not in PER_CALL and not self.given(key)[0]]
                todo.extend(set(map(self.recipe, keys)) - reached)
                reached.update(todo)
            self._reached[recipe] = frozenset(reached)
        return self._reached[recipe]

    async def prepare(self, recipe: Recipe) -> None:
        """Make the kept objects of a provider."""
        with providing(recipe.key):
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
        with providing(recipe.key):
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

    async def contained(self, recipe: Recipe, lane: ThreadRunner) -> Any:
        """The object of a provider of the container, which decides how long it lives."""
        with providing(recipe.key):
            return await self._library().get(recipe.factory, lane)

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

    def replaces(self, key: Key, asked: Iterable[Key]) -> bool:
        """Whether an override of a key has an effect on the providers here, or on commands that ask for these keys."""
        key = _named_key(key)
        if not isinstance(key, str) and is_data(key):
            raise InjectionError(
                f"an override of {shown(key)} would replace every parameter of that type in every skill; override a name"
            )
        return any(self._means(key, each) for each in (*self._asked(asked), *self._ready, *PER_CALL))

    def why_unused(self, key: Key, asked: Iterable[Key]) -> tuple[str, bool]:
        """The message for an override without an effect, and whether it is a slip. Empty if nothing is provided or asked for."""
        if not (known := self._asked(asked)):
            return "", False
        import difflib  # for a mistake alone

        name, names = shown(_named_key(key)), {shown(each) for each in (*known, *self._ready, *PER_CALL)}
        near = [
            close
            for part in (name, name.rpartition(".")[2])
            for close in difflib.get_close_matches(part, sorted(names))
        ][:1]
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(names))}"
        if near == [name]:
            hint = "another class of that name has one"
        return f"the override of {name!r} replaces nothing: it has no provider, and nothing asks for it; {hint}", bool(
            near
        )

    def _asked(self, asked: Iterable[Key]) -> set[Key]:
        """Everything with a provider, and everything that providers or others ask for."""
        recipes = self._recipes.values()
        typed = (recipe.type for recipe in recipes if recipe.type is not None)
        return {*self._recipes, *typed, *(need for recipe in recipes for _, need in recipe.needs), *asked}

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


def _is_type(kind: Any, expected: Any) -> bool:
    return bool(kind == expected)


def _is_kind_of(kind: Any, base: Any) -> bool:
    return base in ancestors(kind)


def _is_of_standard_library(key: Any) -> bool:
    """Whether a type is of the standard library. A parameter of it must not get a provider of a subtype."""
    return is_data(key) or _top(key) in _STANDARD


def _top(key: Any) -> str:
    return getattr(get_origin(key) or key, "__module__", "").partition(".")[0]


_STANDARD: Final = sys.stdlib_module_names
