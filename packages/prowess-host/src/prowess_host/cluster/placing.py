"""Chooses the agent for the next worker, and the worker for the next call. Pure: no I/O and no clock; callers pass the randomness.

Hosts know agents from heartbeats that may be a second old. If each took the least busy agent, all would take the same
one at once. So a choice compares two candidates drawn at random ("the power of two choices"), and draws a fast
candidate with many slots more often. The simulation in `tests/simulation` shows how well the load spreads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from random import Random
from typing import Final, TypeVar

from prowess.frozen import frozen

__all__ = ["Candidate", "Slowness", "choose", "labels_of", "why_none"]

C = TypeVar("C", bound="Candidate")

_SLOWEST: Final = 16.0
"""A slower candidate still gets calls now and then, so that it is noticed when it has recovered."""
_SHORTEST: Final = 0.001
"""Seconds. Shorter run times depend on the network and the scheduler more than on the machine."""
_NEWS: Final = 0.1
"""Weight of one run time in the slowness of an agent: about the last ten calls count."""
_TREND: Final = 0.02
"""Weight of one run time in the usual time of a command."""


@frozen
class Candidate:
    """An agent that may get a worker, or a worker that may get a call."""

    name: str
    labels: frozenset[str] = frozenset()
    slots: int = 1
    """Workers or calls that it runs at the same time, at most."""
    busy: int = 0
    """Workers or calls that it runs now."""
    slowness: float = 1.0
    """Its run times, compared with those of the others: at 2.0, calls take twice as long."""

    @property
    def load(self) -> float:
        """The expected wait after one more call or worker, in run times of an average candidate."""
        return (self.busy + 1) * self.slowness / self.slots


def labels_of(run_on: str) -> frozenset[str]:
    """The labels in `run_on`, all of which an agent must have: `"gpu"`, `"gpu, zone=eu"`."""
    return frozenset(filter(None, re.split(r"[,\s]+", run_on)))


def choose(candidates: Sequence[C], draw: Random, needed: Collection[str] = ()) -> C | None:
    """The candidate for the next worker or call; `None` if none has the labels and a free slot."""
    able = [each for each in candidates if each.busy < each.slots and each.labels.issuperset(needed)]
    if len(able) < 2:
        return able[0] if able else None
    first = _drawn(able, draw)
    second = _drawn([each for each in able if each is not first], draw)
    return min(first, second, key=lambda each: each.load)


def _drawn(able: Sequence[C], draw: Random) -> C:
    """A random candidate, weighted by its capacity, so that slow ones do not fill up while fast ones have room."""
    return draw.choices(able, [each.slots / each.slowness for each in able])[0]


def why_none(candidates: Collection[Candidate], needed: Collection[str]) -> str:
    """Why `choose` found no candidate, for messages."""
    if not candidates:
        return "no agent has joined the cluster; start one with `prowess agent --join URL`"
    able = [each for each in candidates if each.labels.issuperset(needed)]
    labels = ", ".join(sorted(needed))
    if not able:
        found = "; ".join(
            f"{each.name} has {', '.join(sorted(each.labels)) or 'none'}" for each in list(candidates)[:5]
        )
        return f"no agent has the labels {labels} ({found}); add them to the setting agent.labels of one"
    which = f" with the labels {labels}" if needed else ""
    return f"all {sum(each.slots for each in able)} slots of the {len(able)} agents{which} are in use"


class Slowness:
    """Estimates the slowness of agents by comparing run times of the same commands.

    It models a run time as the usual time of the command, times the slowness of the agent. Each call moves both estimates a
    little, so an agent does not seem slow because it gets long commands, nor a command long because it runs on a slow agent.
    """

    def __init__(self) -> None:
        self._usual: dict[str, float] = {}
        """The logarithm of the seconds that a command takes, by its id."""
        self._agents: dict[str, float] = {}
        """The logarithm of the slowness, by the name of the agent. Logarithms keep one long call from counting like many."""

    def note(self, agent: str, command: str, seconds: float) -> None:
        """Record the run time of a call."""
        took = math.log(max(seconds, _SHORTEST))
        slow = self._agents.get(agent, 0.0)
        usual = self._usual.setdefault(command, took - slow)
        surprise = took - usual - slow
        self._usual[command] = usual + _TREND * surprise
        self._agents[agent] = slow + _NEWS * surprise

    def of(self, agent: str) -> float:
        """The slowness of an agent, 1.0 while nothing is known."""
        return min(max(math.exp(self._agents.get(agent, 0.0)), 1 / _SLOWEST), _SLOWEST)

    def forget(self, agent: str) -> None:
        """Drop the estimate of an agent that has left the cluster."""
        self._agents.pop(agent, None)
