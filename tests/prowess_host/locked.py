"""Who waits for a lock on a file, by the table of the kernel."""

from __future__ import annotations

from pathlib import Path

__all__ = ["is_waited_for"]


def is_waited_for(path: Path) -> bool:
    """Whether somebody waits for a lock on this file."""
    waiting = (line for line in Path("/proc/locks").read_text().splitlines() if "->" in line)
    return any(f":{path.stat().st_ino} " in line for line in waiting)
