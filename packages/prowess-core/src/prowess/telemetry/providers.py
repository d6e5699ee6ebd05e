"""Sets up the OpenTelemetry SDK: where traces and metrics go, by the standard `OTEL_*` variables and the table `[otel]`.

A program that has set up OpenTelemetry itself keeps what it has.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from prowess.errors import install_command
from prowess.settings.keys import OtelSettings

__all__ = ["set_up"]

_log = logging.getLogger("prowess")
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "http/json": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""Names of exporters by `OTEL_EXPORTER_OTLP_PROTOCOL`. Python's exporter for HTTP writes protobuf only."""


def set_up(own: OtelSettings, root: Path) -> None:
    """Export traces and metrics of this process from now on, unless the program has set up OpenTelemetry itself."""
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    if own.endpoint is not None:  # every exporter reads the variable, in whatever version
        os.environ.setdefault("OTEL_EXPORTER_OTLP_ENDPOINT", own.endpoint)
    resource = _resource(own, root)
    # Closing sends what is left within a second. The SDK would wait at the exit for as long as a receiver that hangs.
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in _exporters("traces"):
        tracers.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(tracers)
    readers = [PeriodicExportingMetricReader(exporter) for exporter in _exporters("metrics")]
    metrics.set_meter_provider(MeterProvider(readers, resource=resource, shutdown_on_exit=False))


def _resource(own: OtelSettings, root: Path) -> Resource:
    """The resource attributes of all traces and metrics. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` win."""
    ours = {
        "service.name": own.service_name or root.name or "prowess",
        "service.instance.id": str(uuid.uuid4()),  # several workers count calls at once
    }
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})


def _exporters(signal: str) -> Iterator[Any]:
    """The exporters that `OTEL_TRACES_EXPORTER` or `OTEL_METRICS_EXPORTER` name; OTLP over HTTP by default."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    for name in filter(None, map(str.strip, os.environ.get(variable, "otlp").split(","))):
        if name != "none":
            try:
                yield _exporter(signal, name)
            except Exception as error:  # noqa: BLE001 - an exporter may raise anything about its variables
                _log.warning("%s: %s are not exported to %r: %s", variable, signal, name, error)


def _exporter(signal: str, name: str) -> Any:
    if name == "otlp":
        specific, general = f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"
        protocol = os.environ.get(specific) or os.environ.get(general) or "http/protobuf"
        name = _OTLP.get(protocol, protocol)
    found = list(entry_points(group=f"opentelemetry_{signal}_exporter", name=name))
    if not found:
        package = f"opentelemetry-exporter-{name.replace('_', '-')}"
        raise LookupError(f"no exporter {name!r} is installed. Install one, perhaps with {install_command(package)}")
    return found[0].load()()
