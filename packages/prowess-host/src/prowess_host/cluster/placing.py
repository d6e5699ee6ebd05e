"""Which agent gets the next worker, and which worker the next call. Pure: no input or output, no clock, no randomness but the given.

Hosts see agents by heartbeats, so what they know is a second old. If each took the least busy agent, all would take the
same one at once. Therefore a choice compares two candidates drawn at random ("the power of two choices"), and a fast
candidate with many slots is drawn more often. The simulation in `tests/simulation` shows the bounds of that.
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
"""Seconds: shorter run times say more about the network and the scheduler than about the machine."""
_NEWS: Final = 0.1
"""Weight of one run time in the slowness of an agent: about the last ten calls count."""
_TREND: Final = 0.02
"""Weight of one run time in what a command usually takes."""


@frozen
class Candidate:
    """An agent that may get a worker, or a worker that may get a call."""

    name: str
    labels: frozenset[str] = frozenset()
    slots: int = 1
    """Workers, or calls, that it takes at the same time."""
    busy: int = 0
    """Those that it has."""
    slowness: float = 1.0
    """Its run times, compared with those of the others: at 2.0, calls take twice as long."""

    @property
    def load(self) -> float:
        """The expected wait with one more, in run times of an average candidate."""
        return (self.busy + 1) * self.slowness / self.slots


def labels_of(run_on: str) -> frozenset[str]:
    """The labels in `run_on`, all of which an agent must have: `"gpu"`, `"gpu, zone=eu"`."""
    return frozenset(filter(None, re.split(r"[,\s]+", run_on)))


def choose(
    candidates: Sequence[C], draw: Random, needed: Collection[str] = (), *, avoid: Collection[str] = ()
) -> C | None:
    """The candidate for the next worker or call; `None` where none has the labels and a free slot.

    `avoid` has the names of those that have just refused or failed. They get it only if there is no other.
    """
    able = [each for each in candidates if each.busy < each.slots and each.labels.issuperset(needed)]
    able = [each for each in able if each.name not in avoid] or able
    if len(able) < 2:
        return able[0] if able else None
    first = _drawn(able, draw)
    second = _drawn([each for each in able if each is not first], draw)
    return min(first, second, key=lambda each: each.load)


def _drawn(able: Sequence[C], draw: Random) -> C:
    """One of them, by what it can do at most. By that, slow ones cannot fill up while fast ones have room."""
    return draw.choices(able, [each.slots / each.slowness for each in able])[0]


def why_none(candidates: Collection[Candidate], needed: Collection[str]) -> str:
    """Why `choose` found nobody, for people."""
    if not candidates:
        return "no agent has joined the cluster; start one with `prowess agent --join URL`"
    able = [each for each in candidates if each.labels.issuperset(needed)]
    labels = ", ".join(sorted(needed))
    if not able:
        found = "; ".join(
            f"{each.name} has {', '.join(sorted(each.labels)) or 'none'}" for each in list(candidates)[:5]
        )
        return f"no agent has the labels {labels} ({found}); give them to one with the setting agent.labels"
    which = f" with the labels {labels}" if needed else ""
    return f"all {sum(each.slots for each in able)} slots of the {len(able)} agents{which} are in use"


class Slowness:
    """Measures the slowness of agents by comparing run times of the same commands.

    A run time is taken for what its command usually takes, times the slowness of the agent. Each call moves both estimates
    a little, so an agent that gets the long commands is not slow, and a slow agent does not make a command a long one.
    """

    def __init__(self) -> None:
        self._usual: dict[str, float] = {}
        """The logarithm of the seconds that a command takes, by its id."""
        self._agents: dict[str, float] = {}
        """The logarithm of the slowness, by the name of the agent. Logarithms keep one long call from counting like many."""

    def note(self, agent: str, command: str, seconds: float) -> None:
        """A call ran there for so long."""
        took = math.log(max(seconds, _SHORTEST))
        slow = self._agents.get(agent, 0.0)
        usual = self._usual.setdefault(command, took - slow)
        surprise = took - usual - slow
        self._usual[command] = usual + _TREND * surprise
        self._agents[agent] = slow + _NEWS * surprise

    def of(self, agent: str) -> float:
        """The slowness of an agent, 1.0 where nothing is known."""
        return min(max(math.exp(self._agents.get(agent, 0.0)), 1 / _SLOWEST), _SLOWEST)

    def forget(self, agent: str) -> None:
        """The agent has left the cluster."""
        self._agents.pop(agent, None)
