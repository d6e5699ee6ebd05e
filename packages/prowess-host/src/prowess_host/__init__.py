"""Serves Prowess skills to MCP clients. The host owns the wire and never imports a skill."""

from __future__ import annotations

__all__: list[str] = []
