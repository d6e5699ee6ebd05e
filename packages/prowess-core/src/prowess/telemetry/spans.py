"""One span and one measurement for each call, by the semantic conventions of OpenTelemetry for MCP and generative AI.

A request of a client over MCP is a SERVER span, like `tools/call <tool>`. Any other call is an INTERNAL span, like
`execute_tool <tool>`.
Uses the public hooks alone. Arguments and results are not in the spans.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from prowess.calls.deadline import TIMED_OUT
from prowess.calls.outcome import Outcome
from prowess.daemons import start_thread
from prowess.errors import named_error
from prowess.hookspecs import CallInfo, hookimpl

__all__ = ["Spans"]

_log = logging.getLogger("prowess")
_SCOPE: Final = "prowess"
_METHODS: Final = {
    "tool": "tools/call",
    "resource": "resources/read",
    "prompt": "prompts/get",
    "completion": "completion/complete",
}
_BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Bucket boundaries in seconds, from the conventions."""
_NO_FAILURE: Final = frozenset({"ok", "input_required"})
_MOST_TEXT: Final = 500
"""The most characters of a text in a span: of a failure message, and of what a client has chosen."""
_MOST_NAMED: Final = 8192
"""The most characters of a field with the context of a client, from the standard. OpenTelemetry logs longer ones whole."""
_FLUSHING: Final = 1.0
"""Seconds for the last export when the runtime closes."""


class Spans:
    """The plugin."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer(_SCOPE)
        self._duration = metrics.get_meter(_SCOPE).create_histogram(
            "mcp.server.operation.duration",
            unit="s",
            description="Duration of an MCP request, from the start of its processing in the worker to its outcome",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._export = _export()

    @hookimpl(tryfirst=True)
    async def prowess_wrap_call(self, call: CallInfo, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Run the call in a span, which is current in the command and its threads."""
        begun = time.perf_counter()
        span, within = self._start(call)
        token = context.attach(within)
        try:
            outcome = await proceed()
        except BaseException as error:
            self._end(span, call, time.perf_counter() - begun, _kind(error), "")
            if isinstance(error, asyncio.CancelledError):
                self._export.soon()
            raise
        finally:
            context.detach(token)
        self._finish(span, call, outcome, time.perf_counter() - begun)
        return outcome

    @hookimpl
    def prowess_call_refused(self, call: CallInfo, outcome: Outcome) -> None:
        """Make the span of a refused call, with a start in the past."""
        since = time.time_ns() - int(outcome.duration * 1e9)
        span, _ = self._start(call, since)
        self._finish(span, call, outcome, outcome.duration)

    @hookimpl
    def prowess_call_retried(self, attempt: int, error: BaseException) -> None:
        """Add an event for the failed attempt to the span of the call."""
        kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        # Without its message: that may hold injected secrets.
        trace.get_current_span().add_event("prowess.retry", {"prowess.attempt": attempt, "exception.type": kind})

    @hookimpl
    def prowess_closing(self) -> None:
        """Export the pending spans within a second, so that a silent receiver does not delay the end of the worker."""
        self._export.within(_FLUSHING)

    def _start(self, call: CallInfo, since: int | None = None) -> tuple[Span, context.Context]:
        """A span below the one that the client named, else below the one that is current in this program.

        With it the context for the command, which has the client's baggage as well.
        """
        named = {name: text for name, text in call.trace_context.items() if len(text) <= _MOST_NAMED and text.isascii()}
        before = propagate.extract(named, context.get_current())
        around = trace.get_current_span().get_span_context()
        parent = trace.get_current_span(before).get_span_context()
        links = [Link(around)] if around.is_valid and around != parent else []
        span = self._tracer.start_span(
            _name(call),
            before,
            SpanKind.SERVER if call.protocol_version else SpanKind.INTERNAL,
            {**_shared(call), **_of_one(call)},
            links,
            since,
        )
        return span, trace.set_span_in_context(span, before)

    def _finish(self, span: Span, call: CallInfo, outcome: Outcome, seconds: float) -> None:
        if outcome.cached:
            span.set_attribute("prowess.cached", True)
        if outcome.attempts > 1:
            span.set_attribute("prowess.attempts", outcome.attempts)
        failure = "" if outcome.kind in _NO_FAILURE else outcome.kind
        text = "" if failure in ("input", "output") else outcome.text  # which shows the values that did not fit
        self._end(span, call, seconds, failure, text[:_MOST_TEXT])
        if failure == "timeout":
            self._export.soon()

    def _end(self, span: Span, call: CallInfo, seconds: float, failure: str, text: str) -> None:
        facts = _shared(call)
        if failure:
            facts["error.type"] = failure
            span.set_attribute("error.type", failure)
            span.set_status(Status(StatusCode.ERROR, text or None))
        span.end()
        if call.protocol_version:
            self._duration.record(seconds, facts, trace.set_span_in_context(span))


def _name(call: CallInfo) -> str:
    """The method and its target. URIs of resources are left out, because their number is unbounded."""
    if call.kind == "tool" and not call.protocol_version:
        return f"execute_tool {call.wire_name}"
    method = _METHODS[call.kind]
    return f"{method} {call.wire_name}" if call.kind in ("tool", "prompt") else method


def _shared(call: CallInfo) -> dict[str, str]:
    """The attributes of spans and measurements."""
    facts: dict[str, str] = {}
    if call.kind == "tool":
        facts = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.wire_name}
    elif call.kind == "prompt":
        facts = {"gen_ai.prompt.name": call.wire_name}
    if call.protocol_version:
        facts["mcp.method.name"] = _METHODS[call.kind]
        facts["mcp.protocol.version"] = call.protocol_version
        facts["network.transport"] = call.transport
    return facts


def _of_one(call: CallInfo) -> Mapping[str, str]:
    """The attributes of spans only. Clients choose the ids of requests, and the URIs."""
    facts = {
        "gen_ai.tool.type": "function" if call.kind == "tool" else "",
        "mcp.resource.uri": call.uri,
        "jsonrpc.request.id": call.request_id,
        "prowess.call.id": call.call_id,
        "prowess.command": call.command,
    }
    return {name: value[:_MOST_TEXT] for name, value in facts.items() if value}


def _kind(error: BaseException) -> str:
    """The type of an exception of another plugin, or the kind for a cancelled call or a timeout."""
    if isinstance(error, asyncio.CancelledError):
        return "timeout" if TIMED_OUT in error.args else "cancelled"
    return type(error).__qualname__


class _Export:
    """Exports pending spans in a thread, because the host may kill a worker whose command does not stop.

    It is one thread for the process: a receiver that hangs would hold one for each call, and none can be started at the exit.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked = self._done = 0
        """The numbers of the last request, and of the last one that is served."""
        start_thread("prowess-telemetry", self._run)

    def soon(self) -> int:
        """Ask for an export. Returns the number of the request."""
        with self._changed:
            self._asked += 1
            self._changed.notify_all()
            return self._asked

    def within(self, seconds: float) -> None:
        """Export, and wait for the end, for a while."""
        number = self.soon()
        with self._changed:
            self._changed.wait_for(lambda: self._done >= number, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked > self._done)
                number = self._asked
            _flush()
            with self._changed:
                self._done = number
                self._changed.notify_all()


@cache
def _export() -> _Export:
    """That of this process, like the providers."""
    return _Export()


def _flush() -> None:
    """Export pending spans, if the provider can."""
    providers: Iterable[Any] = (trace.get_tracer_provider(), metrics.get_meter_provider())
    for provider in providers:
        flush = getattr(provider, "force_flush", None)
        if flush is not None:
            try:
                flush()
            except Exception as error:  # noqa: BLE001 - that of a program may raise anything
                _log.warning("traces or metrics could not be exported: %s", named_error(error))
