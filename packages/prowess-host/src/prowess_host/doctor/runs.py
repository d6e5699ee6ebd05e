"""Counts crashes, lost workers and timeouts in the record by command, the most frequent first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prowess.errors import ProwessError
from prowess_host.doctor.findings import Finding
from prowess_host.records.reading import LOST, CallFilter, RecordReader

__all__ = ["examine_runs"]

_DAYS: Final = 7
_MOST: Final = 1000
_SHOWN: Final = 5
_KINDS: Final = {
    "worker_lost": ("lost its worker", "see what it printed last: prowess logs"),
    "crashed": ("crashed", "see the exception: prowess logs"),
    "timeout": ("ran out of time", "make it faster, or give it more: timeout= of its decorator"),
    LOST: ("was cut off with its host", "see what it did last: prowess logs"),
    "output": ("broke its output schema", "correct the return annotation, or the value"),
}
"""Kinds of failures that point to a fault. Wrong arguments and `SkillError` are ordinary answers."""


def examine_runs(path: Path, *, now: float | None = None) -> Iterator[Finding]:
    """Findings of the last days; none without a record."""
    since = (time.time() if now is None else now) - _DAYS * 86400
    try:
        calls = RecordReader(path).newest(CallFilter(failed=True, since=since), _MOST)
    except ProwessError as error:
        yield Finding("runs", "warning", str(error), f"delete {path}: the next call creates a new one")
        return
    counted = Counter((call.command, call.kind) for call in calls if call.kind in _KINDS)
    for (command, kind), count in counted.most_common(_SHOWN):
        what, remedy = _KINDS[kind]
        times = "once" if count == 1 else f"{count} times"
        yield Finding("runs", "warning", f"{command} {what} {times} in the last {_DAYS} days", remedy)
    if path.is_file() and not counted:
        yield Finding("runs", "ok", f"no crash and no stall in the last {_DAYS} days")
