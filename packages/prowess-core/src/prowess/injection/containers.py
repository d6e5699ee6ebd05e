"""The dependency-injector container of a runtime. Importing it costs up to 110 ms, so it is imported with the first provider.

A project's own container becomes part of it: its providers make and keep their objects, `Configuration` gets the settings,
and overriding uses the container. Prowess adds the thread or the loop in which providers run, a lock while a kept object is
made, and new copies of objects that were made with an overridden one.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from typing import Any, Final, cast

from dependency_injector import containers, providers, resources
from pydantic import BaseModel

from prowess.calls.threads import Raised, ThreadRunner
from prowess.errors import InjectionError
from prowess.frozen import frozen
from prowess.injection.provided import is_data, is_key, result_type

__all__ = ["Container", "Named"]

_KEPT: Final = (providers.BaseSingleton, providers.BaseResource)
"""Providers that keep their object."""
_READY: Final = (providers.Singleton, providers.ThreadSafeSingleton, providers.Object, providers.BaseResource)
"""Providers that return the same object in every thread, without waiting after the first time."""


@frozen
class Named:
    """A provider of a container, with its dotted name and the type for look-ups, if there is one."""

    name: str
    provider: Any
    type: Any
    needs: tuple[tuple[str, Any], ...]
    """The open dependencies of its container, which others have to provide."""


class Container:
    """The container with all providers of one runtime."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        own: Mapping[type[Any], Any],
        ask: Callable[[Any], Coroutine[Any, Any, Any]],
    ) -> None:
        """`own` are existing objects; `ask` returns the object that other providers have for a type."""
        self._settings = settings
        self._own = own
        self._ask = ask
        self._asked: dict[Any, tuple[str, Any]] = {}
        """The names and types of dependencies that others fill."""
        self._root: Any = containers.DynamicContainer()
        self._lock = threading.RLock()
        self._made: set[Any] = set()
        """Providers that have made their object and its dependencies."""
        self._replaced: list[Any] = []
        """Resources that replaced others during an override."""

    def adopt(self, given: Any, name: str | None) -> list[Named]:
        """Add a container, with or without a name, and return its providers."""
        container: Any = given() if isinstance(given, type) else given
        with _reported():
            self._feed(container)
            container.check_dependencies()
        if name is None:
            for each, provider in container.providers.items():
                self._root.set_provider(each, provider)
        else:
            self._root.set_provider(name, providers.Container(cast("Any", type(container)), container))
        return list(self._named(container.providers, f"{name}." if name else ""))

    def add(self, provider: Any) -> None:
        """Add a single provider."""
        self._root.set_provider(f"provided_{len(self._root.providers)}", provider)

    def _feed(self, container: Any) -> None:
        """Fill `Configuration` with the settings, and dependencies on types of Prowess."""
        for provider in container.traverse(types=[providers.Configuration, providers.Dependency]):
            if _is(provider, providers.Configuration):
                if not provider.overridden:  # otherwise it is a part of another configuration
                    provider.from_dict(dict(self._settings))
            elif not provider.overridden and provider.instance_of in self._own:
                provider.override(providers.Object(self._own[provider.instance_of]))
            elif not provider.is_defined and _found_by(provider.instance_of) is not None:
                self._asked[provider] = (provider.parent_name or "", provider.instance_of)
                provider.override(providers.Coroutine(self._ask, provider.instance_of))

    def _named(self, members: Mapping[str, Any], prefix: str) -> Iterator[Named]:
        for name, provider in members.items():
            needs = tuple(self._asked[each] for each in _graph(provider) if each in self._asked)
            yield Named(prefix + name, provider, _type_of(provider), needs)
            if _is(provider, providers.Container):
                yield from self._named(provider.providers, f"{prefix}{name}.")

    # Objects of providers

    def is_per_call(self, provider: Any) -> bool:
        """Whether a provider makes a new object each time, which then lives for one call."""
        return _is(provider, providers.Factory)

    def is_async(self, provider: Any) -> bool:
        """Whether a provider or one of its dependencies has to run on the event loop."""
        return any(map(_is_async, _graph(provider)))

    async def prepare(self, provider: Any, threads: ThreadRunner) -> None:
        """Make the kept objects that a provider needs, each once."""
        if provider in self._made or self.is_async(provider):
            return

        def make() -> None:
            with self._lock:  # two threads at once would make the object twice
                for each in _graph(provider):
                    if _is(each, *_KEPT):
                        each()

        await threads.run(make)
        self._made.add(provider)

    async def get(self, provider: Any, lane: ThreadRunner) -> Any:
        """The object of a provider. The container opens and closes it."""
        if self.is_async(provider) or (provider in self._made and _is(provider, *_READY)):
            try:
                made = provider()
                return await made if inspect.isawaitable(made) else made
            except Exception as error:
                raise Raised(error) from error
        return await lane.run(provider)

    # Overriding

    @contextlib.contextmanager
    def override(self, provider: Any, value: Any) -> Generator[None]:
        """Replace a provider by a value. Objects that were made with it are made again, and restored afterwards."""
        dependents = [each for each in self._root.traverse(types=list(_KEPT)) if provider in each.traverse()]
        with contextlib.ExitStack() as undo:
            undo.callback(self._made.clear)
            for overridden, by in ((provider, _as_provider(value)), *((each, self._copy(each)) for each in dependents)):
                overridden.override(by)
                undo.callback(overridden.reset_last_overriding)
            self._made.clear()
            yield

    def _copy(self, provider: Any) -> Any:
        copy = type(provider)(provider.provides, *provider.args, **provider.kwargs)
        if _is(provider, providers.BaseResource):
            self._replaced.append(copy)
        else:
            copy.add_attributes(**provider.attributes)
        return copy

    # Closing

    def closers(self) -> Iterator[tuple[Callable[[], Any], bool]]:
        """The functions that close the open resources, and whether they run on the loop. Dependent resources come first."""
        opened = [
            each for each in {*self._root.traverse(types=[providers.BaseResource]), *self._replaced} if each.initialized
        ]
        for each in sorted(opened, key=lambda item: len(set(_graph(item)) & set(opened)), reverse=True):
            yield each.shutdown, self.is_async(each)


def _is(thing: Any, *kinds: Any) -> bool:
    return isinstance(thing, kinds)


def _type_of(provider: Any) -> Any:
    """The type for look-ups of a provider, or `None`."""
    if _is(provider, providers.Object):
        kind: Any = cast("Any", type(provider()))
    elif _is(provider, providers.Dependency):
        kind = provider.instance_of
    elif _is(provider, providers.Callable, providers.Factory, *_KEPT):
        kind = _provided_type(provider.provides)
    else:
        return None
    return _found_by(kind)


def _found_by(kind: Any) -> Any:
    """A type for look-ups, or `None` for plain data and models: clients send these, so they are found by name."""
    is_model = inspect.isclass(kind) and issubclass(cast("Any", kind), BaseModel)
    return kind if is_key(kind) and not is_data(kind) and not is_model else None


def _provided_type(provides: Any) -> Any:
    if _is(provides, providers.Provider):
        return _type_of(provides)
    is_resource = isinstance(provides, type) and issubclass(provides, (resources.Resource, resources.AsyncResource))
    return result_type(cast("Any", provides).init if is_resource else provides)


def _graph(provider: Any) -> Iterator[Any]:
    yield provider
    yield from provider.traverse()


def _is_async(provider: Any) -> bool:
    if _is(provider, providers.Coroutine):
        return True
    provides: Any = getattr(provider, "provides", None)
    if inspect.isclass(provides) and issubclass(provides, resources.AsyncResource):
        return True
    function: Any = inspect.unwrap(provides) if callable(provides) else None
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _as_provider(value: Any) -> Any:
    return value if _is(value, providers.Provider) else providers.Object(value)


@contextlib.contextmanager
def _reported() -> Generator[None]:
    try:
        yield
    except Exception as error:
        raise InjectionError(f"the container cannot be used: {error}") from error
