"""Traces and metrics of calls with OpenTelemetry: a plugin, registered if the setting `otel.on` is true."""
