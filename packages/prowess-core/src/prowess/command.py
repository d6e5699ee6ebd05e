"""`skill_command`: turns a function into a command. Light: pydantic and other heavy modules are imported at the first use."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast, get_overloads, overload

from prowess.contracts.contract import TOOL
from prowess.contracts.declaration import declaration_of
from prowess.decorating import Awaited, Command, Decorator, decorated
from prowess.jsontypes import copied

if TYPE_CHECKING:
    from prowess.contracts.contract import Contract
    from prowess.contracts.declaration import Declaration
    from prowess.jsontypes import JsonObject, Schema

__all__ = ["get_script_config", "get_tool_annotations", "is_skill_command", "skill_command"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def skill_command(  # pyright: ignore[reportOverlappingOverload] - the first one that fits counts
    function: Callable[P, Coroutine[Any, Any, R]], /
) -> Command[Callable[P, Coroutine[Any, Any, R]], Awaited]: ...
@overload
def skill_command(  # pyright: ignore[reportOverlappingOverload]
    function: Callable[P, AsyncIterator[R]], /
) -> Command[Callable[P, AsyncIterator[R]], Awaited]: ...
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
    run_on: str = "",
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
) -> Decorator: ...
def skill_command(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Turn a function into a command. Works with and without arguments, on sync and async functions and on generators.

    Called from Python, a command validates, injects and runs like a call from a client, and returns a payload with
    `content` and `isError`. `command.raw` is the undecorated function.

    For clients:
        name: the name of the command; by default that of the function.
        description: the text for the model; by default the docstring.
        title: a title for people.
        category: a word for grouping.
        aliases: further names of the command, like ["search/web"].
        tags, icons, meta: sent to clients if the protocol has a field for them.
        profile: the form of its contract and results; by default the setting `profile`.

    Hints (only those you write are sent):
        read_only: it changes nothing.
        destructive: it may delete or overwrite.
        idempotent: a second identical call changes nothing more.
        open_world: it reaches beyond this machine and project.

    Injected parameters:
        inject_root: fills the parameter `project_root`.
        inject_settings: settings and environment variables that fill parameters: ["api.key"] fills `api_key`,
            ["api.key:token"] fills `token`, ["env:API_KEY"] fills `api_key` from the environment or `.env`.
        autowire: whether parameters are filled by their type (`Context`, `Settings`, types of plugins).

    Running:
        timeout: seconds for the whole call; by default the setting `timeout`.
        retry_on: exceptions that are worth another attempt, like (ConnectionError,).
        max_attempts: attempts in all, the first one included; 3 with `retry_on`.
        cache_ttl: seconds for which a successful result is kept.
        concurrency: calls that run at once; further ones wait in order.
        thread: `thread=False` runs a sync function on the event loop instead of a thread.
        run_on: labels of the agents of a cluster that may run it, like "gpu"; by default it runs on this machine.
        force: allows a cache or retries on a destructive command that is not idempotent.

    Schemas, if the signature is not enough:
        output: the return type, if you cannot annotate it.
        output_field: the field that holds a bare value; by default `result`.
        input_schema, output_schema: a JSON Schema that is used unchanged, or "any".
    """
    frame = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return decorated(TOOL, _WRITTEN, function, options, frame)


_WRITTEN = inspect.signature(get_overloads(skill_command)[-1])
skill_command.__signature__ = _WRITTEN  # what `help` shows


def is_skill_command(value: object) -> bool:
    """Whether a value is a function decorated with `skill_command`."""
    return _tool(value) is not None


def get_script_config(command: object) -> JsonObject | None:
    """The contract of a command as the `portable` profile shows it, or `None` for other values."""
    contract = _contract(command)
    if contract is None:
        return None
    from prowess.profiles.profile import BUILT_IN

    portable = BUILT_IN["portable"]
    declared = cast("Declaration", _tool(command))
    policies = contract.policies
    return {
        "name": contract.name,
        "description": contract.description,
        "category": contract.category,
        "annotations": get_tool_annotations(command),
        "input_schema": copied(portable.input_schema(contract)),
        "output_schema": copied(portable.output_schema(contract)),
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
    declared = _tool(command)
    if declared is None:
        return None
    title = {} if declared.title is None else {"title": declared.title}
    return {**title, **declared.hints.to_mcp()}


def _contract(command: object) -> Contract | None:
    declared = _tool(command)
    if declared is None:
        return None
    from prowess.runtime import current_runtime

    return current_runtime().entry_of(declared).contract


def _tool(value: object) -> Declaration | None:
    declared = declaration_of(value)
    return declared if declared is not None and declared.kind == TOOL else None
