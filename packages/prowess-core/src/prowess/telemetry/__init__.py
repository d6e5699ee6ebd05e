"""Traces and metrics of calls for OpenTelemetry: a plugin, registered where the setting `otel.on` asks for it."""
