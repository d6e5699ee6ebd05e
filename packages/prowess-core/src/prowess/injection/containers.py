"""The dependency-injector container of a runtime. Importing this costs up to 110 ms: only who needs a provider does.

A project's own container becomes part of it: its providers make and keep what they are asked for, `Configuration` is filled
with the settings, and overriding is the container's own. What Prowess adds is the thread or the loop in which they run, one
maker at a time for what is kept, and fresh copies of what was made with the thing that is overridden.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from typing import Any, Final, cast

from dependency_injector import containers, providers, resources
from pydantic import BaseModel

from prowess.calls.threads import Place, Raised
from prowess.errors import InjectionError
from prowess.frozen import frozen
from prowess.injection.provided import is_data, is_key, result_type

__all__ = ["Container", "Named"]

_KEPT: Final = (providers.BaseSingleton, providers.BaseResource)
"""Providers that keep what they made."""
_READY: Final = (providers.Singleton, providers.ThreadSafeSingleton, providers.Object, providers.BaseResource)
"""Providers that give the same thing in every thread, at once after the first time."""


@frozen
class Named:
    """A provider of a container: its dotted name, and the type by which it is found, if there is one."""

    name: str
    provider: Any
    type: Any
    needs: tuple[tuple[str, Any], ...]
    """What others have to provide for it: the dependencies that its container declares and leaves open."""


class Container:
    """Everything of dependency-injector that one runtime uses, in one container."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        own: Mapping[type[Any], Any],
        ask: Callable[[Any], Coroutine[Any, Any, Any]],
    ) -> None:
        """`own` are things that are there already; `ask` gets what anybody else provides for a type."""
        self._settings = settings
        self._own = own
        self._ask = ask
        self._asked: dict[Any, tuple[str, Any]] = {}
        """The dependencies that others fill: the name and the type of each."""
        self._root: Any = containers.DynamicContainer()
        self._lock = threading.RLock()
        self._made: set[Any] = set()
        """Providers that have made what they keep, and all that it needs."""
        self._replaced: list[Any] = []
        """Resources that took the place of others while something was overridden."""

    def adopt(self, given: Any, name: str | None) -> list[Named]:
        """Take a container in, by a name or as it is; gives all its providers."""
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
        """Take a single provider in."""
        self._root.set_provider(f"provided_{len(self._root.providers)}", provider)

    def _feed(self, container: Any) -> None:
        """Fill in what Prowess knows: the settings, and the dependencies on its own types."""
        for provider in container.traverse(types=[providers.Configuration, providers.Dependency]):
            if _is(provider, providers.Configuration):
                if not provider.overridden:  # else it shows a part of another one
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

    # Getting what a provider gives

    def is_per_call(self, provider: Any) -> bool:
        """Whether a provider makes a new thing each time, which then lives for one call."""
        return _is(provider, providers.Factory)

    def is_async(self, provider: Any) -> bool:
        """Whether a provider, or one that it needs, has to run on the event loop."""
        return any(map(_is_async, _graph(provider)))

    async def prepare(self, provider: Any, threads: Place) -> None:
        """Make what a provider needs and its container keeps, each thing once."""
        if provider in self._made or self.is_async(provider):
            return

        def make() -> None:
            with self._lock:  # of two threads that begin at once, one would make what nobody keeps
                for each in _graph(provider):
                    if _is(each, *_KEPT):
                        each()

        await threads.run(make)
        self._made.add(provider)

    async def get(self, provider: Any, place: Place) -> Any:
        """What a provider gives, as it is: opening and closing it is the container's business."""
        if self.is_async(provider) or (provider in self._made and _is(provider, *_READY)):
            try:
                made = provider()
                return await made if inspect.isawaitable(made) else made
            except Exception as error:
                raise Raised(error) from error
        return await place.run(provider)

    # Overriding

    @contextlib.contextmanager
    def override(self, provider: Any, value: Any) -> Generator[None]:
        """Give a value in the place of a provider. What was made with it is made anew, and is as before afterwards."""
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
        """What closes each resource that was opened, and whether that has to run on the loop; those first that need others."""
        opened = [
            each for each in {*self._root.traverse(types=[providers.BaseResource]), *self._replaced} if each.initialized
        ]
        for each in sorted(opened, key=lambda item: len(set(_graph(item)) & set(opened)), reverse=True):
            yield each.shutdown, self.is_async(each)


def _is(thing: Any, *kinds: Any) -> bool:
    return isinstance(thing, kinds)


def _type_of(provider: Any) -> Any:
    """The type by which a provider is found, if there is one."""
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
    """A type by which things are found. Plain data is none, nor are models, which clients send: those have names."""
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
