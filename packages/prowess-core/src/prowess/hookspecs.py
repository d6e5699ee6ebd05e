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
    """What an observer may know of a call. Injected values are not in it."""

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
    """Give further folders to look for skills in, besides those of the setting `skills`."""


@hookspec
def prowess_commands(register: Callable[[Any], None]) -> None:
    """Call `register(command)` for each decorated function of this plugin.

    That may be a command, a resource or a prompt.
    """


@hookspec
def prowess_injectables(provide: Callable[..., None]) -> None:
    """Call `provide(type, factory, lifetime="singleton" | "call", name=None)` for each thing to be injected.

    `provide(container)` adds all providers of a dependency-injector container.
    """


@hookspec
def prowess_render(value: Any) -> Any:
    """Turn a value that is no data into something simpler: data, a content helper, or a tool result.

    Asked about results, items of a list, and values inside data. Return `None` for values that are not yours: the next
    plugin is asked. While there is such a plugin, a command may be annotated with a type that has no schema.
    """


@hookspec
def prowess_profiles(register: Callable[[Any], None]) -> None:
    """Call `register(profile)` for each further profile: a named pair of schema transform and value transform."""


@hookspec
def prowess_call_started(call: CallInfo) -> None:
    """A call with valid arguments is about to run. What is raised here is logged and changes nothing."""


@hookspec
def prowess_call_refused(call: CallInfo, outcome: Outcome) -> None:
    """A call did not start, because its arguments are not valid. `call.arguments` is empty.

    What is raised here is logged and changes nothing.
    """


@hookspec
def prowess_call_retried(call: CallInfo, attempt: int, error: BaseException) -> None:
    """An attempt failed with an error that is worth another attempt. The next one follows after a pause.

    `attempt` is the number of the failed attempt, from 1. What is raised here is logged and changes nothing.
    """


@hookspec
def prowess_call_finished(call: CallInfo, outcome: Outcome) -> None:
    """A call came to an outcome. What is raised here is logged and changes nothing."""


@hookspec
def prowess_wrap_call(call: CallInfo, proceed: Callable[[], Awaitable[Outcome]]) -> Awaitable[Outcome]:  # pyright: ignore[reportReturnType]
    """Wrap a call: an async function that awaits `proceed()` and gives an outcome, that one or another.

    Plugins stand in the order of their names: the first one is the outermost. What is raised here fails the call.
    """


@hookspec
def prowess_closing() -> None:
    """The runtime closes, after its last call: send or save what you still hold.

    Runs in a thread. A worker has about a second for all of its plugins. What is raised here is logged.
    """
