"""Traces over a real host: opened in the worker, below the span of the client, and sent when the worker ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from patience import PATIENCE
from piped import HANDSHAKE, STATELESS, hosted, make_project, result, until

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from otlp import attributes, receiver

SKILL = """
    from opentelemetry import trace

    @skill_command
    async def current() -> str:
        return format(trace.get_current_span().get_span_context().span_id, "016x")

    @skill_command
    def in_thread() -> str:
        return format(trace.get_current_span().get_span_context().span_id, "016x")

    @skill_command(timeout=0.2)
    def stuck() -> None:
        while True:
            time.sleep(0.01)
"""
META = {
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "baggage": "user=ada",
    "tracestate": 5,
}


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_a_call_is_traced_from_the_client_to_the_worker(tmp_path: Path, version: str):
    """Parent, request id, revision and transport reach the worker, and all spans arrive when the host ends."""
    with receiver() as received:
        project = make_project(tmp_path, f'[otel]\non = true\nendpoint = "{received.url}"\n', demo=SKILL)
        async with hosted(project, version=version) as host:
            told = [
                await result(host.request("tools/call", "first", name="demo_current", _meta=META)),
                await result(host.request("tools/call", 17, name="demo_in_thread")),
                await result(host.request("tools/call", 18, name="demo_in_thread")),
            ]

    first = received.span("tools/call demo_current")
    others = [span for span in received.spans if span.name == "tools/call demo_in_thread"]
    seen = [each["content"][0]["text"] for each in told]
    assert [first.span_id.hex(), *(span.span_id.hex() for span in others)] == seen
    assert ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7") == (
        first.trace_id.hex(),
        first.parent_span_id.hex(),
    )
    assert ["first", "17", "18"] == [attributes(span)["jsonrpc.request.id"] for span in (first, *others)]
    assert {(version, "pipe")} == {
        (attributes(span)["mcp.protocol.version"], attributes(span)["network.transport"]) for span in received.spans
    }
    assert {"demo_current": 1, "demo_in_thread": 2} == {
        facts["gen_ai.tool.name"]: count for facts, count in received.durations()
    }


async def test_a_timeout_is_sent_before_its_worker_is_killed(tmp_path: Path):
    """The span of a call that goes on although nobody waits for it."""
    with receiver() as received:
        settings = f'[otel]\non = true\nendpoint = "{received.url}"\n[host]\ncancel_grace = {PATIENCE}\n'
        async with hosted(make_project(tmp_path, settings, demo=SKILL)) as host:
            assert (await host.request("tools/call", name="demo_stuck"))["result"]["isError"]
            await until(lambda: received.spans)

    assert "timeout" == attributes(received.span("tools/call demo_stuck"))["error.type"]
