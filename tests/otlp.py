"""A receiver of OTLP over HTTP on loopback: it keeps the spans and the measurements that arrive."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

__all__ = ["Received", "receiver"]


@dataclass
class Received:
    """What has arrived."""

    url: str = ""
    spans: list[Any] = field(default_factory=list)
    metrics: list[Any] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)

    def span(self, name: str) -> Any:
        """The only span of a name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def durations(self) -> list[tuple[dict[str, Any], int]]:
        """The attributes and the count of each series of the histogram of calls."""
        return [
            (attributes(point), point.count)
            for metric in self.metrics
            if metric.name == "mcp.server.operation.duration" and metric.unit == "s"
            for point in metric.histogram.data_points
        ]


def attributes(thing: Any) -> dict[str, Any]:
    """The attributes of a span, an event, a point or a resource."""
    return {it.key: getattr(it.value, it.value.WhichOneof("value")) for it in thing.attributes}


@contextmanager
def receiver() -> Generator[Received]:
    """A server on a free port, for as long as the block runs."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            answer: Any = None
            if self.path == "/v1/traces":
                answer = ExportTraceServiceResponse()
                for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                    received.resources.append(attributes(each.resource))
                    received.spans += [span for scope in each.scope_spans for span in scope.spans]
            elif self.path == "/v1/metrics":
                answer = ExportMetricsServiceResponse()
                for each in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    received.resources.append(attributes(each.resource))
                    received.metrics += [metric for scope in each.scope_metrics for metric in scope.metrics]
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(b"" if answer is None else answer.SerializeToString())

        def log_message(self, *_: Any) -> None:
            """A test prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()
