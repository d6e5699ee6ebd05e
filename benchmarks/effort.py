"""How much is measured: a minute's worth, three minutes' worth, or enough for numbers to be quoted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["FULL", "QUICK", "SHORT", "Effort"]


@dataclass(frozen=True)
class Effort:
    """How often, how many and how long."""

    batches: int = 15
    """In memory: batches of each kind, the subjects in turn."""
    batch_seconds: float = 0.04
    """In memory: how long a batch is meant to take."""
    starts: int = 11
    rehearsals: int = 1
    """Starts ahead of those that count: they write bytecode and manifests."""
    rounds: int = 9
    """On the wire: batches of calls, the servers in turn."""
    calls: int = 300
    recorded: int = 2000
    """Calls in a batch that is measured with and without the record."""
    recorders: int = 9
    """Pairs of hosts with and without it."""
    pipelined: int = 1000
    large: int = 10
    """Results of 1 MB, and arguments of 1.5 MB, in one batch."""
    busy_rounds: int = 5
    """The same while every core is kept busy."""
    busy_starts: int = 5
    memory: int = 3
    skills: int = 300
    slow: int = 30
    slow_seconds: float = 0.2
    many: int = 3
    """Starts with all these skills."""
    sleep: float = 20.0
    """What runs when input ends."""
    late: float = 6.0
    """How late the file is written that a deadline of 1 s should prevent."""
    growth: int = 100_000


FULL: Final = Effort()
SHORT: Final = Effort(
    batches=7,
    batch_seconds=0.02,
    starts=3,
    rounds=5,
    calls=200,
    pipelined=500,
    large=4,
    busy_rounds=3,
    busy_starts=2,
    memory=1,
    skills=100,
    slow=10,
    many=1,
    sleep=6.0,
    late=3.0,
    growth=20_000,
)
QUICK: Final = Effort(
    batches=2,
    batch_seconds=0.005,
    starts=1,
    rehearsals=0,
    rounds=2,
    calls=50,
    recorded=50,
    recorders=1,
    pipelined=200,
    large=2,
    busy_rounds=1,
    busy_starts=1,
    memory=1,
    skills=20,
    slow=2,
    many=1,
    sleep=4.0,
    late=2.5,
    growth=20_000,
)
