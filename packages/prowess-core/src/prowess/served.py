"""`resource` and `prompt`: turn a function into a resource or a prompt. Light, like `command`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_overloads, overload

from prowess.contracts.declaration import Location, Refusal
from prowess.contracts.kinds import PROMPT, RESOURCE
from prowess.decorating import Awaited, Command, Decorator, decorated

if TYPE_CHECKING:
    from prowess.jsontypes import JsonObject

__all__ = ["prompt", "resource"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def resource(
    uri: str,
    *,
    name: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    category: str = "general",
    title: str | None = None,
    complete: Mapping[str, Sequence[str] | Callable[..., Any]] | None = None,
    inject_root: bool = False,
    inject_settings: Sequence[str] | None = None,
    autowire: bool = True,
    retry_on: type[Exception] | tuple[type[Exception], ...] | None = None,
    max_attempts: int | None = None,
    cache_ttl: float = 0.0,
    timeout: float | None = None,
    concurrency: int | None = None,
    thread: bool | None = None,
    tags: Sequence[str] | None = None,
    icons: Sequence[JsonObject] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Decorator: ...
@overload
def resource(uri: str, **unknown: Any) -> Decorator: ...
def resource(uri: str, **options: Any) -> Any:
    """Turn a function into a resource: `@resource("notes://today")`, or `@resource("notes://{id}")` for many.

    The variables of the URI are the parameters of the function: `{id}` is one segment, `{+path}` is several, and
    `{?first,second}` are optional. The function returns the content for clients: a string, bytes, data (as JSON), a
    `File`, or a list of contents.

    For clients:
        name, title, description, category, tags, icons, meta: as for `skill_command`.
        mime_type: the type of the content; by default plain text for strings and JSON for data.
        complete: values for the variables, or functions that return them, like {"id": all_ids}. Choices (`Literal`,
            `Enum`, `bool`) need no entry.

    Injection and running:
        inject_root, inject_settings, autowire, timeout, retry_on, max_attempts, cache_ttl, concurrency, thread: as for
            `skill_command`.
    """
    frame = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    if not isinstance(uri, str):  # pyright: ignore[reportUnnecessaryIsInstance] - `@resource` without a URI
        location = Location(frame.f_code.co_filename, frame.f_lineno)
        shown = getattr(uri, "__name__", repr(uri))
        Refusal(shown, location, RESOURCE)("a resource needs a URI", 'Write it like @resource("notes://today")')
    return decorated(RESOURCE, _RESOURCE, None, {**options, "uri": uri}, frame)


@overload
def prompt(  # pyright: ignore[reportOverlappingOverload] - the first one that fits counts
    function: Callable[P, Coroutine[Any, Any, R]], /
) -> Command[Callable[P, Coroutine[Any, Any, R]], Awaited]: ...
@overload
def prompt(  # pyright: ignore[reportOverlappingOverload]
    function: Callable[P, AsyncIterator[R]], /
) -> Command[Callable[P, AsyncIterator[R]], Awaited]: ...
@overload
def prompt(function: Callable[P, R], /) -> Command[Callable[P, R], JsonObject]: ...
@overload
def prompt(
    *,
    name: str | None = None,
    description: str | None = None,
    category: str = "general",
    title: str | None = None,
    complete: Mapping[str, Sequence[str] | Callable[..., Any]] | None = None,
    inject_root: bool = False,
    inject_settings: Sequence[str] | None = None,
    autowire: bool = True,
    timeout: float | None = None,
    concurrency: int | None = None,
    thread: bool | None = None,
    aliases: Sequence[str] = (),
    tags: Sequence[str] | None = None,
    icons: Sequence[JsonObject] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Decorator: ...
def prompt(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Turn a function into a prompt, which people choose in their client. Works with and without arguments.

    The function returns the messages: a string is one message of the user; a list may contain strings, pairs like
    `("assistant", "...")`, images, files and MCP messages. Clients send arguments as strings, which are converted to the
    types in the signature.

    For clients:
        name, title, description, category, aliases, tags, icons, meta: as for `skill_command`.
        complete: values for the arguments, or functions that return them, like {"language": ["en", "fr"]}. Choices
            (`Literal`, `Enum`, `bool`) need no entry.

    Injection and running:
        inject_root, inject_settings, autowire, timeout, concurrency, thread: as for `skill_command`.
    """
    frame = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return decorated(PROMPT, _PROMPT, function, options, frame)


_RESOURCE = inspect.signature(get_overloads(resource)[0])
resource.__signature__ = _RESOURCE  # what `help` shows
_PROMPT = inspect.signature(get_overloads(prompt)[-1])
prompt.__signature__ = _PROMPT
