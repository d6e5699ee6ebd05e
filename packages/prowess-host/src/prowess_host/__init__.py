"""Serves Prowess skills to MCP clients. The host talks to the clients; workers import and run the skills."""

from __future__ import annotations

__all__: list[str] = []
