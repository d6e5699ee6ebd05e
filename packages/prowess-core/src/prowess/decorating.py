"""The shared code of the decorators, which replace a function by an object with the declaration."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from prowess.contracts.contract import TOOL, Hints
from prowess.contracts.declaration import (
    LOADING,
    NAME,
    Declaration,
    Location,
    Refusal,
    attempts,
    check,
    check_function,
    check_options,
    exception_types,
    is_async,
    location_of,
    seconds,
    take_note,
)
from prowess.errors import DeclarationError, did_you_mean
from prowess.jsontypes import copied

if TYPE_CHECKING:
    from prowess.jsontypes import JsonObject

__all__ = ["Awaited", "Command", "Decorator", "decorated"]

P = ParamSpec("P")
R = TypeVar("R")
F_co = TypeVar("F_co", bound=Callable[..., Any], covariant=True)
T_co = TypeVar("T_co", covariant=True)


class Command(Protocol[F_co, T_co]):
    """A decorated function. A call returns a payload; `raw` is the original function."""

    __name__: str
    __qualname__: str
    __module__: str

    @property
    def raw(self) -> F_co:
        """The original function."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> T_co:
        """Run it like any other call. Injected arguments may be omitted."""
        ...


Awaited: TypeAlias = Coroutine[Any, Any, "JsonObject"]


class Decorator(Protocol):
    """The result of a decorator with arguments."""

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] - the first one that fits counts
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Command[Callable[P, Coroutine[Any, Any, R]], Awaited]: ...
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, function: Callable[P, AsyncIterator[R]], /
    ) -> Command[Callable[P, AsyncIterator[R]], Awaited]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Command[Callable[P, R], JsonObject]: ...


def decorated(
    kind: str, written: inspect.Signature, function: object, options: dict[str, Any], frame: FrameType
) -> Any:
    """The result of the decorator of a kind: the replacement of a function, or a decorator.

    `written` is the signature of the decorator, and `frame` is that of the code that uses it.
    """
    if function is not None:
        return _decorated(kind, written, function, options, frame)

    def decorator(function: object) -> Any:
        return _decorated(kind, written, function, options, frame)

    return decorator


def _decorated(
    kind: str, written: inspect.Signature, function: object, options: dict[str, Any], frame: FrameType
) -> Any:
    checked = check_function(function, Location(frame.f_code.co_filename, frame.f_lineno), kind)
    nested = frame.f_locals is not frame.f_globals and _postponed(checked)
    try:
        declared = _declared(kind, written.parameters, checked, options, frame if nested else None)
        check(declared)
    except DeclarationError as error:
        is_skill = LOADING.get()
        if is_skill is None or not is_skill(frame.f_globals.get("__name__", "")):
            raise
        name = error.command if NAME.fullmatch(error.command) else checked.__name__
        declared = Declaration(checked, name, kind=kind, refusal=error.with_traceback(None))
    command: Any = _asynchronous(declared) if is_async(checked) else _synchronous(declared)
    command.raw = checked
    take_note(declared, command, frame.f_globals)
    return command


def _declared(
    kind: str,
    parameters: Mapping[str, inspect.Parameter],
    function: Callable[..., Any],
    options: dict[str, Any],
    frame: FrameType | None,
) -> Declaration:
    """Make a declaration from the options. Rejects unknown options."""
    name = options.get("name")
    refuse = Refusal(function.__name__ if name is None else str(name), location_of(function), kind)
    for unknown in sorted(options.keys() - parameters.keys()):
        near = did_you_mean(unknown, parameters).removeprefix("; ").capitalize()
        refuse(f"{refuse.decorator} has no parameter {unknown!r}", near or f"See help({refuse.decorator})")
    given = {name: parameter.default for name, parameter in parameters.items()}
    given.update({option: value for option, value in options.items() if value is not None})
    check_options(given, refuse)
    hints = Hints(*(given.pop(hint, None) for hint in ("read_only", "destructive", "idempotent", "open_world")))
    if kind != TOOL:
        hints = Hints(read_only=True)  # a lost call may be repeated
    given["name"] = function.__name__ if name is None else name
    given["retry_on"] = exception_types(given.get("retry_on"), refuse)
    given["timeout"] = seconds(given.get("timeout"))
    given["max_attempts"] = attempts(given.get("max_attempts"), given["retry_on"])
    for option in ("input_schema", "output_schema", "meta", "icons"):
        with contextlib.suppress(RecursionError):  # data that holds itself is refused as such
            given[option] = copied(given.get(option))  # the author may change it for the next command
    for option in ("inject_settings", "aliases", "tags", "icons"):
        given[option] = tuple(given.get(option) or ())
    for option in ("meta", "complete"):
        given[option] = dict(given.get(option) or {})
    return Declaration(function, hints=hints, frame=frame, kind=kind, **given)


def _postponed(function: Callable[..., Any]) -> bool:
    """Whether annotations are strings, whose names may be local to the running function."""
    from prowess.contracts.signature import annotations_on

    return any(isinstance(annotation, str) for annotation in annotations_on(function).values())


def _synchronous(declared: Declaration) -> Callable[..., JsonObject]:
    @functools.wraps(declared.function)
    def command(*args: Any, **kwargs: Any) -> JsonObject:
        from prowess.runtime import current_runtime

        return current_runtime().call_direct_sync(declared, args, kwargs)

    return command


def _asynchronous(declared: Declaration) -> Callable[..., Coroutine[Any, Any, JsonObject]]:
    @functools.wraps(declared.function)
    async def command(*args: Any, **kwargs: Any) -> JsonObject:
        from prowess.runtime import current_runtime

        return await current_runtime().call_direct(declared, args, kwargs)

    return command
