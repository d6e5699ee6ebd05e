"""How long tests wait for something that is bound to happen.

A test waits for an event, and this is when it gives up: long enough for a machine ten times slower than yours with other
work on it. A run where everything happens never waits this long.
"""

from __future__ import annotations

__all__ = ["PATIENCE"]

PATIENCE = 240.0
