"""`skill_command`: turns a function into a command. Light on purpose: pydantic and other heavy modules load at the first use."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, cast, get_overloads, overload

from prowess.contracts.contract import Hints
from prowess.contracts.declaration import (
    Declaration,
    Place,
    Refusal,
    attempts,
    check,
    check_function,
    check_options,
    declaration_of,
    exception_types,
    is_async,
    place_of,
    take_note,
)
from prowess.errors import did_you_mean

if TYPE_CHECKING:
    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject, Schema

__all__ = ["Command", "get_script_config", "get_tool_annotations", "is_skill_command", "skill_command"]

P = ParamSpec("P")
R = TypeVar("R")
F_co = TypeVar("F_co", bound=Callable[..., Any], covariant=True)
T_co = TypeVar("T_co", covariant=True)


class Command(Protocol[F_co, T_co]):
    """A decorated function: called, it gives a payload; `raw` is the function itself."""

    __name__: str
    __qualname__: str
    __module__: str

    @property
    def raw(self) -> F_co:
        """The function as it was written."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> T_co:
        """Run it like any other call. What is injected may be left out."""
        ...


_Awaited: TypeAlias = Coroutine[Any, Any, "JsonObject"]


class _Decorator(Protocol):
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] - the first one that fits counts
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Command[Callable[P, Coroutine[Any, Any, R]], _Awaited]: ...
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, function: Callable[P, AsyncIterator[R]], /
    ) -> Command[Callable[P, AsyncIterator[R]], _Awaited]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Command[Callable[P, R], JsonObject]: ...


@overload
def skill_command(  # pyright: ignore[reportOverlappingOverload] - the first one that fits counts
    function: Callable[P, Coroutine[Any, Any, R]], /
) -> Command[Callable[P, Coroutine[Any, Any, R]], _Awaited]: ...
@overload
def skill_command(  # pyright: ignore[reportOverlappingOverload]
    function: Callable[P, AsyncIterator[R]], /
) -> Command[Callable[P, AsyncIterator[R]], _Awaited]: ...
@overload
def skill_command(function: Callable[P, R], /) -> Command[Callable[P, R], JsonObject]: ...
@overload
def skill_command(
    *,
    name: str | None = None,
    description: str | None = None,
    category: str = "general",
    title: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    inject_root: bool = False,
    inject_settings: Sequence[str] | None = None,
    autowire: bool = True,
    retry_on: type[Exception] | tuple[type[Exception], ...] | None = None,
    max_attempts: int | None = None,
    cache_ttl: float = 0.0,
    timeout: float | None = None,
    concurrency: int | None = None,
    thread: bool | None = None,
    output: Any = None,
    output_field: str | None = None,
    input_schema: Schema | Literal["any"] | None = None,
    output_schema: Schema | Literal["any"] | None = None,
    aliases: Sequence[str] = (),
    force: bool = False,
    tags: Sequence[str] | None = None,
    icons: Sequence[JsonObject] | None = None,
    meta: Mapping[str, Any] | None = None,
    profile: str | None = None,
) -> _Decorator: ...
def skill_command(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Turn a function into a command. Works with and without arguments, on sync and async functions and on generators.

    Called from Python, a command validates, injects and runs like a call from a client, and gives a payload with
    `content` and `isError`. `command.raw` is the undecorated function.

    What clients are shown:
        name: the name of the command; by default that of the function.
        description: the text for the model; by default the docstring.
        title: a title for people.
        category: a word for grouping.
        aliases: further names that the command answers to, like ["search/web"].
        tags, icons, meta: sent to clients where the protocol has a field for them.
        profile: how its contract and results are shown; by default the setting `profile`.

    Hints, of which only those you write are sent:
        read_only: it changes nothing.
        destructive: it may delete or overwrite.
        idempotent: a second identical call changes nothing more.
        open_world: it reaches beyond this machine and project.

    What is injected:
        inject_root: fills the parameter `project_root`.
        inject_settings: settings and environment variables that fill parameters: ["api.key"] fills `api_key`,
            ["api.key:token"] fills `token`, ["env:API_KEY"] fills `api_key` from the environment or `.env`.
        autowire: whether parameters are filled by their type (`Context`, `Settings`, what plugins provide).

    How it runs:
        timeout: seconds for the whole call; by default the setting `timeout`.
        retry_on: exceptions that are worth another attempt, like (ConnectionError,).
        max_attempts: attempts in all, the first one included; 3 with `retry_on`.
        cache_ttl: seconds for which a successful result is kept.
        concurrency: calls that run at once; further ones wait in order.
        thread: `thread=False` runs a sync function on the event loop instead of a thread.
        force: allows a cache or retries on a destructive command that is not idempotent.

    Schemas, where the signature does not say enough:
        output: the return type, where you cannot annotate it.
        output_field: the field that holds a bare value; by default `result`.
        input_schema, output_schema: a JSON Schema that is used unchanged, or "any".
    """
    frame = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    if function is not None:
        return _decorated(function, {}, frame)

    def decorator(function: object) -> Any:
        return _decorated(function, options, frame)

    return decorator


_WRITTEN = inspect.signature(get_overloads(skill_command)[-1])
_PARAMETERS: Mapping[str, inspect.Parameter] = _WRITTEN.parameters
skill_command.__signature__ = _WRITTEN  # what `help` shows


def _decorated(function: object, options: dict[str, Any], frame: FrameType) -> Any:
    checked = check_function(function, Place(frame.f_code.co_filename, frame.f_lineno))
    nested = frame.f_locals is not frame.f_globals and _postponed(checked)
    declared = _declared(checked, options, frame if nested else None)
    check(declared)
    command: Any = _asynchronous(declared) if is_async(checked) else _synchronous(declared)
    command.raw = checked
    take_note(declared, command, frame.f_globals)
    return command


def _declared(function: Callable[..., Any], options: dict[str, Any], frame: FrameType | None) -> Declaration:
    """The options as a declaration, refusing what is no option."""
    name = options.get("name")
    refuse = Refusal(function.__name__ if name is None else str(name), place_of(function))
    for unknown in sorted(options.keys() - _PARAMETERS.keys()):
        near = did_you_mean(unknown, _PARAMETERS).removeprefix("; ").capitalize()
        refuse(f"skill_command has no parameter {unknown!r}", near or "See help(skill_command)")
    given = {name: parameter.default for name, parameter in _PARAMETERS.items()}
    given.update({option: value for option, value in options.items() if value is not None})
    check_options(given, refuse)
    hints = Hints(*(given.pop(hint) for hint in ("read_only", "destructive", "idempotent", "open_world")))
    given["name"] = function.__name__ if name is None else name
    given["retry_on"] = exception_types(given["retry_on"], refuse)
    given["max_attempts"] = attempts(given["max_attempts"], given["retry_on"])
    for option in ("inject_settings", "aliases", "tags", "icons"):
        given[option] = tuple(given[option] or ())
    given["meta"] = dict(given["meta"] or {})
    return Declaration(function, hints=hints, frame=frame, **given)


def _postponed(function: Callable[..., Any]) -> bool:
    """Whether annotations are texts, whose names may be local to the function that was running."""
    return any(isinstance(annotation, str) for annotation in function.__annotations__.values())


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


def is_skill_command(value: object) -> bool:
    """Whether a value is a decorated function."""
    return declaration_of(value) is not None


def get_script_config(command: object) -> JsonObject | None:
    """The contract of a command as the `portable` profile shows it, or `None` for other values."""
    contract = _contract(command)
    if contract is None:
        return None
    from prowess.profiles.profile import BUILT_IN

    portable = BUILT_IN["portable"]
    declared = cast("Declaration", declaration_of(command))
    policies = contract.policies
    return {
        "name": contract.name,
        "description": contract.description,
        "category": contract.category,
        "annotations": get_tool_annotations(command),
        "input_schema": portable.input_schema(contract),
        "output_schema": portable.output_schema(contract),
        "execution": {
            "inject_root": declared.inject_root,
            "inject_settings": list(declared.inject_settings),
            "autowire": declared.autowire,
            "retry_on": declared.retry_on,
            "max_attempts": policies.max_attempts,
            "cache_ttl": policies.cache_ttl,
            "timeout": policies.timeout,
            "concurrency": policies.concurrency,
            "thread": policies.thread,
        },
    }


def get_tool_annotations(command: object) -> JsonObject | None:
    """The declared MCP annotations of a command, or `None` for other values."""
    declared = declaration_of(command)
    if declared is None:
        return None
    title = {} if declared.title is None else {"title": declared.title}
    return {**title, **declared.hints.to_mcp()}


def _contract(command: object) -> Contract | None:
    declared = declaration_of(command)
    if declared is None:
        return None
    from prowess.runtime import current_runtime

    return current_runtime().entry_of(declared).contract
