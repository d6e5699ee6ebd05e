"""Types as keys of injection: decides which annotation means which provided type."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast, get_args, get_origin

import typing_extensions
from pydantic import BaseModel

from prowess.contracts.signature import MISSING, annotations_on, is_union, signature_of, without_none, written_as
from prowess.errors import InjectionError

__all__ = [
    "Key",
    "ancestors",
    "annotations_of",
    "implements",
    "is_data",
    "is_key",
    "is_record",
    "key_of",
    "names_of",
    "result_type",
    "same_type",
    "shown",
]

Key: TypeAlias = Any
"""A class, a generic alias like `Repository[User]`, a NewType, or a name."""

_CALLABLE: Final[Any] = collections.abc.Callable
_DATA_MODULES: Final = frozenset(
    "abc builtins collections datetime decimal enum fractions ipaddress numbers os pathlib re types typing"
    " typing_extensions uuid".split()
)
_GIVING: Final = (
    collections.abc.Iterator,
    collections.abc.Generator,
    collections.abc.Iterable,
    collections.abc.AsyncIterator,
    collections.abc.AsyncGenerator,
    collections.abc.AsyncIterable,
    collections.abc.Awaitable,
    collections.abc.Coroutine,
)


def key_of(annotation: Any) -> Key:
    """The key for an annotation: without `None`, `Annotated` and type aliases."""
    key = without_none(annotation)
    while isinstance(key, typing_extensions.TypeAliasType) or type(key).__name__ == "TypeAliasType":
        key = without_none(key.__value__)
    return key


def is_key(key: Any) -> bool:
    """Whether a key is a type: a class, a generic alias, or a NewType."""
    if not isinstance(get_origin(key) or key, (type, typing.NewType)):
        return False
    try:
        hash(key)
    except TypeError:  # an argument like Literal[[]]
        return False
    return True


def is_data(key: Any) -> bool:
    """Whether a type is plain data, which clients send."""
    origin = get_origin(key) or key
    if origin is _CALLABLE:
        return False
    module: str = getattr(origin, "__module__", "")  # Python 3.13 has `pathlib._local`
    return isinstance(origin, TypeVar) or module.partition(".")[0] in _DATA_MODULES


def is_record(key: Any) -> bool:
    """Whether a type of an author is data with fields: a pydantic model, a dataclass or a TypedDict."""
    origin: Any = get_origin(key) or key
    is_model = inspect.isclass(origin) and issubclass(origin, BaseModel)
    return is_model or dataclasses.is_dataclass(origin) or typing_extensions.is_typeddict(origin)


def shown(key: Any) -> str:
    """A key for messages."""
    if isinstance(key, str):
        return key
    if is_union(key):
        return " | ".join(map(shown, get_args(key)))
    if get_origin(key) is not None and get_args(key):
        inner = ", ".join(map(shown, get_args(key)))
        return f"{shown(get_origin(key))}[{inner}]"
    return getattr(key, "__qualname__", None) or getattr(key, "__name__", None) or repr(key)


def names_of(key: Any) -> Iterator[str]:
    """The names of a type for tests: `Clock`, and `clocks.Clock` with the end of its module's name."""
    name = shown(key)
    yield name
    for part in reversed(getattr(key, "__module__", "").split(".")):
        name = f"{part}.{name}"
        yield name


def same_type(one: Any, other: Any) -> bool:
    """Whether two keys are the same type, or two imports of the same code, as by a skill and its test."""
    if one == other:
        return True
    if not (isinstance(one, type) and isinstance(other, type)) or one.__qualname__ != other.__qualname__:
        return False
    return (file := _file_of(one)) is not None and file == _file_of(other)


def _file_of(kind: type[Any]) -> str | None:
    return getattr(sys.modules.get(kind.__module__), "__file__", None)


# Classes


def ancestors(kind: Any) -> Iterator[Any]:
    """A class or a generic alias with all its bases, with type arguments filled in."""
    yield kind
    origin = get_origin(kind) or kind
    if not isinstance(origin, type) or origin in (Generic, Protocol):
        return
    if origin is not kind:
        yield origin
    known = dict(zip(getattr(origin, "__parameters__", ()), get_args(kind), strict=False))
    for base in vars(origin).get("__orig_bases__", origin.__bases__):
        free = getattr(base, "__parameters__", ()) if get_origin(base) not in (None, Generic, Protocol) else ()
        yield from ancestors(base[tuple(known.get(item, item) for item in free)] if free else base)


def implements(kind: Any, target: Any) -> bool:
    """Whether a class has all members of a protocol, by name."""
    origin, protocol = get_origin(kind) or kind, get_origin(target) or target
    if not isinstance(origin, type) or not typing_extensions.is_protocol(protocol):
        return False
    if typing_extensions.is_protocol(origin):
        return False
    members = typing_extensions.get_protocol_members(protocol)
    declared = {name for base in origin.__mro__ for name in annotations_on(base)}
    return bool(members) and all(hasattr(origin, name) or name in declared for name in members)


# Factories


def annotations_of(factory: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, Callable[[], Any]]]:
    """The parameters of a factory, each with a function that resolves its annotation when needed.

    Resolving raises `InjectionError` for a name that does not exist at run time.
    """
    try:
        parameters = signature_of(factory).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return
    function = _function_of(factory)
    for parameter in parameters:
        yield parameter, lambda parameter=parameter: _resolved(parameter, function, factory)


def _resolved(parameter: inspect.Parameter, function: Any, factory: Any) -> Any:
    if parameter.annotation is MISSING:
        return MISSING
    try:
        return _evaluated(parameter.annotation, function)
    except Exception as error:
        code = getattr(function, "__code__", None)
        location = (code.co_filename, code.co_firstlineno) if code else (None, None)
        raise InjectionError(
            f"the factory {shown(factory)} needs parameter {parameter.name!r}, and its annotation "
            f"{written_as(parameter.annotation)} cannot be resolved ({error}); import the name outside of `if TYPE_CHECKING:`, "
            "or give the parameter a default",
            file=location[0],
            line=location[1],
        ) from error


def _evaluated(annotation: Any, function: Any) -> Any:
    """Resolve an annotation in the scope of its function, including local names."""
    names: dict[str, Any] = {item.__name__: item for item in getattr(function, "__type_params__", ())}
    if inspect.isfunction(function):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # the enclosing function has not assigned the name yet
                names[name] = cell.cell_contents
    holder: Any = types.SimpleNamespace(__annotations__={"it": annotation})
    scope = getattr(function, "__globals__", {})
    return typing.get_type_hints(holder, scope, names, include_extras=True)["it"]


def _function_of(factory: Any) -> Any:
    """The function whose scope the annotations of a factory use."""
    factory = getattr(factory, "func", factory)  # a partial
    if isinstance(factory, type):
        kind: Any = factory
        makers = (kind.__init__, kind.__new__)
        factory = next((item for item in makers if hasattr(inspect.unwrap(item), "__globals__")), kind)
    elif not hasattr(factory, "__globals__") and not inspect.ismethod(factory):
        kind = cast("Any", type(factory))
        factory = getattr(kind, "__call__", factory)  # noqa: B004 - wanted is the method
    function: Any = inspect.unwrap(factory) if callable(factory) else factory
    return getattr(function, "__func__", function)


def result_type(factory: Any) -> Any:
    """The annotated result of a factory, `T` also for `Iterator[T]` and similar; `None` without an annotation."""
    if isinstance(get_origin(factory) or factory, type):
        return factory
    function = _function_of(factory)
    written = annotations_on(function).get("return")
    if written is None:
        return None
    try:
        returns = _evaluated(written, function)
    except Exception:  # noqa: BLE001 - names for type checkers only: it is found by its own name
        return None
    if get_origin(returns) in _GIVING and get_args(returns):
        args = get_args(returns)
        returns = args[-1] if get_origin(returns) is collections.abc.Coroutine else args[0]
    return key_of(returns)
