"""Recipes: what an injected parameter needs, and how a factory makes its object from other objects."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from prowess.calls.channel import Call
from prowess.calls.context import Context
from prowess.calls.threads import Raised
from prowess.contracts.signature import MISSING, metadata
from prowess.errors import InjectionError
from prowess.frozen import frozen
from prowess.injection.provided import Key, annotations_of, key_of, shown

if TYPE_CHECKING:
    from prowess.injection.containers import Container

__all__ = [
    "PER_CALL",
    "Inject",
    "Lifetime",
    "Need",
    "Recipe",
    "contained_recipe",
    "is_async_factory",
    "is_of_library",
    "marker_of",
    "needs_of",
    "providing",
]

Lifetime: TypeAlias = Literal["singleton", "call"]
_LIBRARY: Final = "dependency_injector."
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


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


def contained_recipe(
    container: Container, key: Key, kind: Any, provider: Any, needs: tuple[tuple[str, Key], ...]
) -> Recipe:
    """The recipe for a provider of a dependency-injector container."""
    lifetime: Lifetime = "call" if container.is_per_call(provider) else "singleton"
    return Recipe(key, kind, provider, lifetime, needs, container.is_async(provider), is_contained=True)


def needs_of(factory: Callable[..., Any]) -> Iterator[tuple[str, Key]]:
    """The injected parameters of a factory: those without a default, and those with `Inject`."""
    for parameter, resolve in annotations_of(factory):
        required = parameter.default is MISSING and parameter.kind not in _VARIADIC
        try:
            annotation = resolve()
        except InjectionError:
            if required:
                raise
            annotation = Any
        marker = marker_of(annotation, parameter.default)
        if marker is not None or required:
            key = (marker.name if marker else None) or key_of(annotation)
            yield parameter.name, key


def marker_of(annotation: Any, default: Any) -> Inject | None:
    """The `Inject` in an annotation or as the default of a parameter."""
    return next((item for item in (*metadata(annotation), default) if isinstance(item, Inject)), None)


def is_async_factory(factory: Any) -> bool:
    """Whether a factory is an async function or an async generator, or an object with such a `__call__`."""
    forms = factory, getattr(factory, "__call__", None)  # noqa: B004 - wanted is the method, whose kind is asked for
    return any(inspect.iscoroutinefunction(form) or inspect.isasyncgenfunction(form) for form in forms)


def is_of_library(thing: object, module: str) -> bool:
    """Whether an object comes from a module of dependency-injector, without importing it."""
    return any(base.__module__ == _LIBRARY + module for base in type(thing).__mro__)


@contextlib.contextmanager
def providing(key: Key) -> Generator[None]:
    """Mark exceptions as raised by a provider instead of the command."""
    try:
        yield
    except Raised as raised:
        raised.error.add_note(f"while {shown(key)} was being provided")
        raise


def _logger(call: Call) -> logging.Logger:
    return logging.getLogger(f"prowess.skill.{call.command}")


PER_CALL: Final[dict[Key, Callable[[Call], Any]]] = {Context: Context, logging.Logger: _logger}
"""The objects that the call itself provides."""
