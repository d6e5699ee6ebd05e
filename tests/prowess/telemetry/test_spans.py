"""Spans and measurements of calls, by the real SDK of OpenTelemetry with exporters that keep everything in memory."""

from __future__ import annotations

import asyncio
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from patience import PATIENCE

from prowess import Runtime
from prowess.calls.channel import Channel
from prowess.calls.deadline import TIMED_OUT

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

TRACE, PARENT = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
TRACEPARENT = f"00-{TRACE:032x}-{PARENT:016x}-01"
SKILL = """
    import asyncio, time
    from opentelemetry import baggage, trace
    from prowess import SkillError, prompt, resource, skill_command

    def current():
        span = trace.get_current_span()
        return [format(span.get_span_context().span_id, "016x"), baggage.get_baggage("user")]

    @skill_command
    async def here() -> list[str | None]:
        return current()

    @skill_command
    def in_thread() -> list[str | None]:
        with trace.get_tracer("skill").start_as_current_span("inner"):
            return current()

    @skill_command(cache_ttl=60)
    def kept(key: str) -> list[str | None]:
        return current()

    left = [2]

    @skill_command(retry_on=(KeyError, OSError), max_attempts=3)
    async def flaky() -> int:
        if left[0]:
            left[0] -= 1
            raise KeyError("s3cr3t") if left[0] else OSError("s3cr3t")
        return trace.get_current_span().set_attribute("mine", 1) or 7

    @skill_command
    def fails(how: str = "failed") -> int:
        if how == "s3cr3t":
            return how
        raise SkillError("no such town") if how == "failed" else ValueError("boom")

    @skill_command(timeout=0.05)
    async def slow() -> None:
        await asyncio.sleep(3600)

    @skill_command
    async def forever() -> None:
        await asyncio.sleep(3600)

    @resource("notes://{day}")
    def note(day: str) -> str:
        return day

    @prompt
    def review(language: str) -> str:
        return language
"""


@pytest.fixture(scope="session")
def sdk() -> tuple[InMemorySpanExporter, InMemoryMetricReader]:
    """The providers of this process: they can be set once."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(MeterProvider([reader]))
    return exporter, reader


@pytest.fixture
def spans(sdk: tuple[InMemorySpanExporter, InMemoryMetricReader]) -> Iterator[InMemorySpanExporter]:
    sdk[0].clear()
    yield sdk[0]
    sdk[0].clear()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "demo.py").write_text(textwrap.dedent(SKILL))
    (tmp_path / "prowess.toml").write_text("[otel]\non = true\n[retry]\ninitial = 0.0\nmaximum = 0.0\n")
    return tmp_path


def over_mcp(**more: Any) -> Channel:
    """A call of a client over stdio."""
    return Channel(wire={"protocol": "2025-11-25", "transport": "pipe"}, **more)


def only(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = [span for span in spans.get_finished_spans() if span.name == name]
    return found


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_call_over_mcp_is_a_server_span_below_the_span_of_the_client(
    project: Path, spans: InMemorySpanExporter
):
    """The attributes of the conventions; the command sees the span as the current one, and the baggage."""
    sent = {"traceparent": TRACEPARENT, "tracestate": "rojo=00f067aa0ba902b7", "baggage": "user=ada"}
    async with Runtime.open(project) as runtime:
        outcome = await runtime.call("demo.here", channel=over_mcp(request_id="7", trace_context=sent, call_id="c1"))

    span = only(spans, "tools/call demo_here")
    assert (SpanKind.SERVER, StatusCode.UNSET) == (span.kind, span.status.status_code)
    assert (TRACE, PARENT) == (span.context.trace_id, span.parent and span.parent.span_id)
    assert "00f067aa0ba902b7" == span.context.trace_state["rojo"]
    assert [f"{span.context.span_id:016x}", "ada"] == outcome.value
    assert {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "network.transport": "pipe",
        "jsonrpc.request.id": "7",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "demo_here",
        "gen_ai.tool.type": "function",
        "prowess.call.id": "c1",
        "prowess.command": "demo.here",
    } == facts(span)


@pytest.mark.parametrize("baggage", ["user=\ud800", "user=é", f"user=ada,more={'x' * 9000}"])
async def test_a_context_that_no_client_may_send_is_left_out(
    baggage: str, project: Path, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
):
    """The call runs below the span of the client, and no log is filled with it. What else the client chose is cut."""
    context = {"traceparent": TRACEPARENT, "baggage": baggage}
    async with Runtime.open(project) as runtime:
        outcome = await runtime.call("demo.here", channel=over_mcp(trace_context=context, request_id="7" * 1000))

    span = only(spans, "tools/call demo_here")
    assert [format(span.get_span_context().span_id, "016x"), None] == outcome.value
    assert span.parent is not None
    assert PARENT == span.parent.span_id
    assert "7" * 500 == facts(span)["jsonrpc.request.id"]
    assert "" == caplog.text


async def test_code_in_a_thread_is_inside_the_span(project: Path, spans: InMemorySpanExporter):
    """What a sync command traces itself is a child of its call."""
    async with Runtime.open(project) as runtime:
        await runtime.call("demo.in_thread", channel=over_mcp())

    outer, inner = only(spans, "tools/call demo_in_thread"), only(spans, "inner")
    assert outer.context.span_id == (inner.parent and inner.parent.span_id)


async def test_a_call_without_mcp_is_an_internal_span_below_the_current_one(project: Path, spans: InMemorySpanExporter):
    """An embedder's own span is the parent; beside a client's span it is linked."""
    async with Runtime.open(project) as runtime:
        with trace.get_tracer("test").start_as_current_span("program") as program:
            await runtime.call("demo.here")
            await runtime.call("demo.here", channel=over_mcp(trace_context={"traceparent": TRACEPARENT}))

    direct, remote = only(spans, "execute_tool demo_here"), only(spans, "tools/call demo_here")
    around = program.get_span_context().span_id
    assert (SpanKind.INTERNAL, around) == (direct.kind, direct.parent and direct.parent.span_id)
    assert {"gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.type", "prowess.call.id", "prowess.command"} == {
        *facts(direct)
    }
    assert (PARENT, [around]) == (remote.parent and remote.parent.span_id, [it.context.span_id for it in remote.links])
    assert not direct.links


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (("fails", {}), "failed", "no such town"),
        (("fails", {"how": "crash"}), "crashed", "ValueError: boom"),
        (("fails", {"how": 5}), "input", None),
        (("fails", {"how": "s3cr3t"}), "output", None),
        (("slow", {}), "timeout", "demo.slow timed out after 0.05 s"),
    ],
)
async def test_a_failure_has_its_kind_as_error_type(
    project: Path, spans: InMemorySpanExporter, call: tuple[str, Any], kind: str, text: str | None
):
    """The status is an error, with the message; arguments and results that do not fit are not shown."""
    command, arguments = call
    async with Runtime.open(project) as runtime:
        await runtime.call(f"demo.{command}", arguments, channel=over_mcp())

    span = only(spans, f"tools/call demo_{command}")
    assert (kind, StatusCode.ERROR) == (facts(span)["error.type"], span.status.status_code)
    assert (span.status.description or "").startswith(text or "")
    assert (text is None) == (span.status.description is None)
    assert (span.end_time or 0) >= (span.start_time or 0)


async def test_failed_attempts_are_events(project: Path, spans: InMemorySpanExporter):
    """Without their messages, which may hold secrets. The number of attempts is an attribute."""
    async with Runtime.open(project) as runtime:
        assert 7 == (await runtime.call("demo.flaky", channel=over_mcp())).value

    span = only(spans, "tools/call demo_flaky")
    events = [(event.name, dict(event.attributes or {})) for event in span.events]
    assert [
        ("prowess.retry", {"prowess.attempt": 1, "exception.type": "KeyError"}),
        ("prowess.retry", {"prowess.attempt": 2, "exception.type": "OSError"}),
    ] == events
    assert (3, 1) == (facts(span)["prowess.attempts"], facts(span)["mine"])


async def test_an_answer_from_the_cache_is_marked(project: Path, spans: InMemorySpanExporter):
    """The first call ran, in its own span; the second one did not."""
    async with Runtime.open(project) as runtime:
        values = [(await runtime.call("demo.kept", {"key": "a"}, channel=over_mcp())).value for _ in range(2)]

    first, second = spans.get_finished_spans()
    assert [f"{first.context.span_id:016x}", None] == values[0] == values[1]
    assert [None, True] == [facts(span).get("prowess.cached") for span in (first, second)]


@pytest.mark.parametrize("reason, kind", [(None, "cancelled"), (TIMED_OUT, "timeout")])
async def test_a_cancelled_call_ends_its_span(
    project: Path, spans: InMemorySpanExporter, reason: str | None, kind: str
):
    """With `cancelled` as its error type, or `timeout` where a host cancels it because of that."""
    async with Runtime.open(project) as runtime:
        runtime.catalog()  # an import in a thread would count as blocked
        task = asyncio.ensure_future(runtime.call("demo.forever", channel=over_mcp()))
        with anyio.fail_after(PATIENCE):
            await anyio.wait_all_tasks_blocked()
            task.cancel(reason)
            await asyncio.wait([task])

    assert kind == facts(only(spans, "tools/call demo_forever"))["error.type"]


async def test_another_wrapper_that_fails_is_the_failure_of_the_call(project: Path, spans: InMemorySpanExporter):
    """The span is outermost, whatever the names of plugins: it sees the failure."""
    (project / "skills" / "a.py").write_text(
        "from prowess import hookimpl\n@hookimpl\nasync def prowess_wrap_call(call, proceed):\n    raise LookupError('no')\n"
    )
    async with Runtime.open(project) as runtime:
        runtime.catalog()
        outcome = await runtime.call("demo.here", channel=over_mcp())

    assert "crashed" == outcome.kind
    assert "LookupError" == facts(only(spans, "tools/call demo_here"))["error.type"]


async def test_resources_and_prompts_have_spans_of_their_own_methods(project: Path, spans: InMemorySpanExporter):
    """A prompt is named; of resources there may be any number, so their URI is an attribute only."""
    async with Runtime.open(project) as runtime:
        await runtime.call("demo.note", {"day": "monday"}, channel=over_mcp())
        await runtime.call("demo.review", {"language": "c"}, channel=over_mcp())
        await runtime.call("demo.note", {"day": "monday"})

    read, got, direct = (
        (span.name, facts(span).get("mcp.method.name"), facts(span).get("mcp.resource.uri"))
        for span in spans.get_finished_spans()
    )
    assert ("resources/read", "resources/read", "notes://monday") == read
    assert ("prompts/get demo_review", "prompts/get", None) == got
    assert ("resources/read", None, "notes://monday") == direct
    assert "demo_review" == facts(only(spans, "prompts/get demo_review"))["gen_ai.prompt.name"]
    assert "gen_ai.operation.name" not in facts(only(spans, "prompts/get demo_review"))


async def test_durations_are_measured_by_tool_and_failure(
    project: Path, spans: InMemorySpanExporter, sdk: tuple[InMemorySpanExporter, InMemoryMetricReader]
):
    """The histogram of the conventions, with their buckets. Calls without MCP are not in it."""
    sdk[1].get_metrics_data()
    async with Runtime.open(project) as runtime:
        for channel in (over_mcp(), over_mcp(), None):
            await runtime.call("demo.fails", {}, channel=channel)

    found: Any = sdk[1].get_metrics_data()
    (metric,) = found.resource_metrics[0].scope_metrics[0].metrics
    points = [it for it in metric.data.data_points if it.attributes.get("error.type") == "failed"]
    assert ("mcp.server.operation.duration", "s") == (metric.name, metric.unit)
    assert {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "demo_fails",
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "network.transport": "pipe",
        "error.type": "failed",
    } == dict(points[0].attributes)
    assert (0.01, 300.0, 14) == (*points[0].explicit_bounds[::13], len(points[0].explicit_bounds))


async def test_spans_are_sent_when_the_runtime_closes(project: Path, spans: InMemorySpanExporter):
    """`prowess_closing` flushes; a receiver that hangs holds it for a second at most."""
    held, asked = threading.Event(), threading.Event()

    class Hanging(SimpleSpanProcessor):
        def force_flush(self, timeout_millis: int = 30000) -> bool:
            asked.set()
            return held.wait(PATIENCE)

    provider: Any = trace.get_tracer_provider()
    provider.add_span_processor(hanging := Hanging(InMemorySpanExporter()))
    try:
        with anyio.fail_after(PATIENCE):
            async with Runtime.open(project):
                pass
        assert asked.is_set()
        assert not held.is_set()
    finally:
        held.set()
        processor: Any = provider._active_span_processor
        processor._span_processors = tuple(it for it in processor._span_processors if it is not hanging)
