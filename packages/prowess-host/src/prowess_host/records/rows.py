"""The stored form of a call."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

__all__ = ["COLUMNS", "ORDINARY", "OrdinaryRow", "Row"]


class Row(NamedTuple):
    """One call."""

    id: str
    command: str
    client: str
    began: float
    """Seconds since the epoch."""
    duration: float | None
    """Seconds; `None` while the call runs."""
    kind: str
    """`ok`, a kind of failure, `running`, or `cancelled`."""
    attempts: int
    cached: int
    host: int
    """The process that served the call."""
    worker: int
    """The process that ran it; 0 if none did."""
    arguments: str | None
    """JSON; `None` if they were not kept."""
    withheld: str
    """JSON: the paths of the arguments that were not kept, or `["*"]`."""
    result: str | None
    """JSON: the payload that the client got; `None` if it was not kept."""
    shortened: int
    """Whether the result was shortened."""
    events: str
    """JSON: the events, each as `[seconds since the beginning, kind, data]`."""


COLUMNS: Final = Row._fields

OrdinaryRow: TypeAlias = tuple[str, float, float | None, int, str, str, str, str, int]
"""An ordinary call: the values for the question marks in `ORDINARY`."""
ORDINARY: Final = {
    **dict.fromkeys(("id", "began", "duration", "worker", "arguments", "result", "command", "client", "host"), "?"),
    "kind": "'ok'",
    "attempts": "1",
    "cached": "0",
    "withheld": "'[]'",
    "shortened": "0",
    "events": "'[]'",
}
"""The columns of an ordinary row, and the SQL expression of each."""
