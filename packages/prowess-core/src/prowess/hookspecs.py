"""Every hook of Prowess, with one docstring each. A plugin implements the hooks it needs, with `@hookimpl`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from prowess.frozen import frozen

if TYPE_CHECKING:
    from prowess.calls.outcome import Outcome
    from prowess.settings.settings import Settings

__all__ = [
    "CallInfo",
    "hookimpl",
    "hookspec",
    "prowess_call_finished",
    "prowess_call_refused",
    "prowess_call_retried",
    "prowess_call_started",
    "prowess_closing",
    "prowess_commands",
    "prowess_injectables",
    "prowess_profiles",
    "prowess_render",
    "prowess_skill_folders",
    "prowess_wrap_call",
]

hookspec = pluggy.HookspecMarker("prowess")
hookimpl = pluggy.HookimplMarker("prowess")


@frozen
class CallInfo:
    """The facts about a call for observers, without injected values."""

    command: str
    """The id of the command, the resource or the prompt."""
    call_id: str
    arguments: Mapping[str, Any]
    client_name: str
    trace_id: str
    kind: str = "tool"
    """The kind: `"tool"`, `"resource"`, `"prompt"`, or `"completion"` of an argument."""
    uri: str = ""
    """For a resource: the requested URI."""
    wire_name: str = ""
    """The name that clients use."""
    protocol_version: str = ""
    """The MCP revision of the client; empty for calls without MCP."""
    transport: str = ""
    """The transport as OpenTelemetry names it: `pipe` for stdio, `tcp` for HTTP."""
    request_id: str = ""
    """The JSON-RPC id of the request. The host sends it only with `otel.on`, because it costs time in every call."""
    trace_context: Mapping[str, str] = field(default_factory=dict[str, str])
    """`traceparent`, `tracestate` and `baggage`, as the client sent them in `_meta`."""


@hookspec
def prowess_skill_folders(project_root: Path, settings: Settings) -> Iterable[Path]:  # pyright: ignore[reportReturnType]
    """Return further folders with skills, in addition to those of the setting `skills`."""


@hookspec
def prowess_commands(register: Callable[[Any], None]) -> None:
    """Call `register(command)` for each decorated function of this plugin.

    That may be a command, a resource or a prompt.
    """


@hookspec
def prowess_injectables(provide: Callable[..., None]) -> None:
    """Call `provide(type, factory, lifetime="singleton" | "call", name=None, sendable=False)` for each type to inject.

    `sendable=True` marks data with a name that skills with their own environments can get too.
    `provide(container)` adds all providers of a dependency-injector container.
    """


@hookspec
def prowess_render(value: Any) -> Any:
    """Convert a value of a foreign type to something simpler: data, a content helper, or a tool result.

    Called with results, items of a list, and values inside data. Return `None` for other types, and the next plugin is
    asked. With such a plugin, a command may be annotated with a type without a schema.
    """


@hookspec
def prowess_profiles(register: Callable[[Any], None]) -> None:
    """Call `register(profile)` for each further profile: a named pair of schema transform and value transform."""


@hookspec
def prowess_call_started(call: CallInfo) -> None:
    """A call with valid arguments is about to run. Exceptions of this hook are logged and have no other effect."""


@hookspec
def prowess_call_refused(call: CallInfo, outcome: Outcome) -> None:
    """A call did not start, because its arguments are invalid. `call.arguments` is empty.

    Exceptions of this hook are logged and have no other effect.
    """


@hookspec
def prowess_call_retried(call: CallInfo, attempt: int, error: BaseException) -> None:
    """An attempt failed with an error that is worth another attempt. The next one follows after a pause.

    `attempt` is the number of the failed attempt, from 1. Exceptions of this hook are logged and have no other effect.
    """


@hookspec
def prowess_call_finished(call: CallInfo, outcome: Outcome) -> None:
    """A call has its outcome. Exceptions of this hook are logged and have no other effect."""


@hookspec
def prowess_wrap_call(call: CallInfo, proceed: Callable[[], Awaitable[Outcome]]) -> Awaitable[Outcome]:  # pyright: ignore[reportReturnType]
    """Wrap a call: an async function that awaits `proceed()` and returns its outcome or another one.

    Plugins are called in the order of their names; the first one is the outermost. An exception of this hook fails the call.
    """


@hookspec
def prowess_closing() -> None:
    """The runtime closes after its last call: send or save buffered data.

    Runs in a thread. A worker has about a second for all of its plugins. Exceptions of this hook are logged.
    """
