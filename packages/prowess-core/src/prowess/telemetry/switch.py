"""Turns telemetry on. Imports no part of OpenTelemetry unless the settings ask for it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from prowess.errors import install_command
from prowess.settings.settings import Settings

__all__ = ["telemetry_of"]

_log = logging.getLogger("prowess")


def telemetry_of(settings: Settings, root: Path) -> object | None:
    """The plugin that traces calls, or `None` if it is off or OpenTelemetry is not installed."""
    if not settings.own.otel.on or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    try:
        from prowess.telemetry.providers import set_up
        from prowess.telemetry.spans import Spans
    except ImportError as error:
        _log.warning(
            "otel.on is set, but calls are not traced, because OpenTelemetry is not installed (%s). Install it: %s",
            error,
            install_command("prowess-core[otel]"),
        )
        return None
    set_up(settings.own.otel, root)
    return Spans()
