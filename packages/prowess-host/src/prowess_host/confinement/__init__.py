"""Limits of skills, enforced by the operating system; see `confine`. Hosts without limited skills import none of it."""

from __future__ import annotations

from typing import Final

__all__ = ["FAILED"]

FAILED: Final = 97
"""The exit code of a worker whose limits could not be set, as in `launch`, which imports nothing of ours."""
