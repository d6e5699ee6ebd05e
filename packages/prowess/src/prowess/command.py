"""`skill_command`: a function becomes a command. Light on purpose: pydantic and the rest are loaded when it is first used."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar, cast, overload

from prowess.contract import Hints
from prowess.declaration import (
    NOTE,
    Declaration,
    Refusal,
    attempts,
    check,
    check_function,
    declaration_of,
    exception_types,
    place_of,
)

if TYPE_CHECKING:
    from prowess.contract import Contract
    from prowess.jsontypes import JsonObject, Schema

__all__ = ["Command", "get_script_config", "get_tool_annotations", "is_skill_command", "skill_command"]

F_co = TypeVar("F_co", bound=Callable[..., Any], covariant=True)
T_co = TypeVar("T_co", covariant=True)
_UNDECLARED: Final[Any] = inspect.Parameter.empty


class Command(Protocol[F_co, T_co]):
    """A decorated function: called, it gives a payload; `raw` is the function itself."""

    __name__: str
    __module__: str

    @property
    def raw(self) -> F_co: ...

    def __call__(self, *args: Any, **kwargs: Any) -> T_co: ...


class _Decorator(Protocol):
    @overload
    def __call__(
        self, function: Callable[..., Coroutine[Any, Any, Any]], /
    ) -> Command[Callable[..., Coroutine[Any, Any, Any]], Coroutine[Any, Any, JsonObject]]: ...
    @overload
    def __call__(self, function: Callable[..., Any], /) -> Command[Callable[..., Any], JsonObject]: ...


@overload
def skill_command(
    function: Callable[..., Coroutine[Any, Any, Any]], /
) -> Command[Callable[..., Coroutine[Any, Any, Any]], Coroutine[Any, Any, JsonObject]]: ...
@overload
def skill_command(function: Callable[..., Any], /) -> Command[Callable[..., Any], JsonObject]: ...
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
    output: Any = _UNDECLARED,
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
    """Make a command of a function. Works bare and with arguments, on sync and async functions and on generators.

    Called from Python, a command validates, injects and runs like a call from a client, and gives a payload with
    `content` and `isError`. `command.raw` is the undecorated function.
    """
    frame = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    nested = None if frame.f_locals is frame.f_globals else frame
    if function is not None:
        return _decorated(function, {}, nested)
    return lambda function: _decorated(function, options, nested)  # pyright: ignore[reportUnknownLambdaType]


def _decorated(function: object, options: dict[str, Any], frame: Any) -> Any:
    checked = check_function(function)
    declared = _declared(checked, options, frame if _postponed(checked) else None)
    check(declared)
    command: Any = _asynchronous(declared) if _is_async(checked) else _synchronous(declared)
    setattr(command, NOTE, declared)
    command.raw = checked
    return command


def _declared(function: Callable[..., Any], options: dict[str, Any], frame: Any) -> Declaration:
    """The options as a declaration, refusing what is no option."""
    given = dict(options)
    name = given.pop("name", None) or function.__name__
    refuse = Refusal(name, place_of(function))
    hints = Hints(*(given.pop(hint, None) for hint in ("read_only", "destructive", "idempotent", "open_world")))
    retry_on = exception_types(given.pop("retry_on", None), refuse)
    max_attempts = attempts(given.pop("max_attempts", None), retry_on)
    for option in ("inject_settings", "aliases", "tags", "icons"):
        given[option] = tuple(given.get(option) or ())
    given["meta"] = dict(given.get("meta") or {})
    try:
        return Declaration(
            function, name, hints=hints, retry_on=retry_on, max_attempts=max_attempts, frame=frame, **given
        )
    except TypeError:
        unknown = ", ".join(sorted(given.keys() - set(Declaration.__dataclass_fields__)))
        refuse(f"skill_command has no parameter {unknown}", "See help(skill_command)")


def _postponed(function: Callable[..., Any]) -> bool:
    """Whether annotations are texts, whose names may be local to the function that was running."""
    return any(isinstance(annotation, str) for annotation in function.__annotations__.values())


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _synchronous(declared: Declaration) -> Callable[..., JsonObject]:
    @functools.wraps(declared.function)
    def command(*args: Any, **kwargs: Any) -> JsonObject:
        from prowess.runtime import current_runtime  # noqa: PLC0415 - see the docstring of the module

        return current_runtime().call_direct_sync(declared, args, kwargs)

    return command


def _asynchronous(declared: Declaration) -> Callable[..., Coroutine[Any, Any, JsonObject]]:
    @functools.wraps(declared.function)
    async def command(*args: Any, **kwargs: Any) -> JsonObject:
        from prowess.runtime import current_runtime  # noqa: PLC0415 - see the docstring of the module

        return await current_runtime().call_direct(declared, args, kwargs)

    return command


def is_skill_command(value: object) -> bool:
    """Whether a value is a decorated function."""
    return declaration_of(value) is not None


def get_script_config(command: object) -> JsonObject | None:
    """The contract of a command as the `portable` profile shows it, or `None` for what is no command."""
    contract = _contract(command)
    if contract is None:
        return None
    from prowess.profiles import BUILT_IN  # noqa: PLC0415 - see the docstring of the module

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
    """The MCP annotations that were declared on a command, or `None` for what is no command."""
    declared = declaration_of(command)
    if declared is None:
        return None
    title = {} if declared.title is None else {"title": declared.title}
    return {**title, **declared.hints.to_mcp()}


def _contract(command: object) -> Contract | None:
    declared = declaration_of(command)
    if declared is None:
        return None
    from prowess.runtime import current_runtime  # noqa: PLC0415 - see the docstring of the module

    return current_runtime().entry_of(declared).contract
