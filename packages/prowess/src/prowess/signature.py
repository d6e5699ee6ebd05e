"""The one place that reflects on functions: a signature becomes data, with every annotation resolved."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from prowess.declaration import Declaration, Place
from prowess.errors import SchemaError

__all__ = ["MISSING", "Parameter", "Signature", "Style", "metadata", "read", "without_none"]

MISSING: Any = inspect.Parameter.empty
Style: TypeAlias = Literal["sync", "async", "generator", "async generator"]

_ITERATORS = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One named parameter. `annotation` is `Any` where nothing was written, `default` is `MISSING` where required."""

    name: str
    annotation: Any
    default: Any = MISSING
    positional_only: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """A function as data. Variadic parameters are not among `parameters`."""

    parameters: tuple[Parameter, ...]
    returns: Any
    style: Style
    takes_args: bool = False
    extra: Any = MISSING
    """The annotation of `**kwargs`, or `MISSING` where there is none."""


def read(declared: Declaration) -> Signature:
    """The signature of a declared function; an annotation that cannot be resolved is an error that names it."""
    function = declared.function
    names = _Names(function.__globals__, declared.local_names(), declared.place)
    parameters: list[Parameter] = []
    takes_args, extra = False, MISSING
    for parameter in inspect.signature(function).parameters.values():
        annotation = names.resolve(parameter.annotation, f"parameter {parameter.name!r}")
        if parameter.kind is parameter.VAR_POSITIONAL:
            takes_args = True
        elif parameter.kind is parameter.VAR_KEYWORD:
            unpacked = _unpacked(annotation, names)
            parameters.extend(unpacked)
            extra = MISSING if unpacked else annotation
        else:
            only = parameter.kind is parameter.POSITIONAL_ONLY
            parameters.append(Parameter(parameter.name, annotation, parameter.default, only))
    style = style_of(function)
    returns = declared.output
    if returns is MISSING:
        written = inspect.signature(function).return_annotation
        returns = MISSING if written is MISSING else names.resolve(written, "the return type")
    return Signature(tuple(parameters), _result_type(returns), style, takes_args, extra)


def style_of(function: Callable[..., Any]) -> Style:
    """How a function has to be called."""
    if inspect.isasyncgenfunction(function):
        return "async generator"
    if inspect.iscoroutinefunction(function):
        return "async"
    return "generator" if inspect.isgeneratorfunction(function) else "sync"


@dataclass(frozen=True, slots=True)
class _Names:
    """The names an annotation of one function may use."""

    global_names: dict[str, Any]
    local_names: Mapping[str, Any]
    place: Place

    def resolve(self, annotation: Any, what: str) -> Any:
        """An annotation as a type, its forward references looked up; `Any` where nothing was written."""
        if annotation is MISSING:
            return Any
        holder = types.SimpleNamespace(__annotations__={"it": annotation})
        try:
            hints = typing.get_type_hints(holder, self.global_names, dict(self.local_names), include_extras=True)
        except Exception as error:
            reason = f"{what}: the annotation {_shown(annotation)} cannot be resolved ({error})"
            remedy = "import or define the name in this module, outside of `if TYPE_CHECKING:`"
            raise SchemaError(f"{reason}; {remedy}", file=self.place.file, line=self.place.line) from error
        return hints["it"]


def _shown(annotation: Any) -> str:
    return repr(annotation) if isinstance(annotation, str) else str(annotation)


def _unpacked(annotation: Any, names: _Names) -> list[Parameter]:
    """The parameters of `**options: Unpack[Options]`, or nothing."""
    if get_origin(annotation) is not typing.Unpack:
        return []
    (options,) = get_args(annotation)
    hints = typing.get_type_hints(options, include_extras=True)
    required = options.__required_keys__
    return [
        Parameter(name, _unqualified(hint), MISSING if name in required else _ABSENT)
        for name, hint in hints.items()
    ]


class Absent:
    """The default of a key that an unpacked TypedDict lets one leave out: nothing is passed."""


_ABSENT = Absent()


def _unqualified(hint: Any) -> Any:
    while get_origin(hint) in (typing.Required, typing.NotRequired):
        (hint,) = get_args(hint)
    return hint


def _result_type(returns: Any) -> Any:
    """The type of the collected result: a list for what is yielded, or what a generator returns at its end."""
    origin, arguments = get_origin(returns), get_args(returns)
    if origin is collections.abc.Generator and arguments:
        item, _, final = (*arguments, None, None)[:3]
        return list[item] if final in (None, type(None)) else final
    if origin in _ITERATORS or returns in _ITERATORS or returns is collections.abc.Generator:
        return list[arguments[0] if arguments else Any]
    return returns


def without_none(annotation: Any) -> Any:
    """`T` for `T | None` and `Optional[T]`; anything else as it is. `Annotated` around it is looked through."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [item for item in get_args(annotation) if item is not type(None)]
        if len(rest) == 1:
            return without_none(rest[0])
    return annotation


def metadata(annotation: Any) -> tuple[Any, ...]:
    """What stands beside the type in `Annotated`, also inside `Annotated[T, ...] | None`."""
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[1:]
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(item for part in get_args(annotation) for item in metadata(part))
    return ()
