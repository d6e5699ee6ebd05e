"""Helps test Prowess skills. It knows no more of Prowess than what is public."""

from __future__ import annotations

__all__: list[str] = []
