"""A fleet in virtual time: hosts, clients, agents and an engine, with the queue and the placing code of the product.

No sockets, no sleeps, no processes: events in the order of their virtual time. The same seed gives the same run. What a run
showed is in a `Seen`; `docs/cluster.md` has the bounds, and where they stop to hold.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any

from prowess_host.cluster.placing import Candidate, Slowness, choose
from prowess_host.workers.queue import FairQueue, Node

__all__ = ["Fleet", "Scene", "Seen"]

# Measured, or the settings of the product: docs/cluster.md says how. The bounds are multiples of run times and of these, so they
# hold on a machine ten times slower as well.
TRIP = 0.00066
"""Seconds of a call without work on an agent, there and back."""
STARTING = 1.4
"""Seconds until a new worker has answered its first call."""
BEAT = 1.0
"""Seconds between two beats of an agent: what hosts know of its slots is as old as that."""
SILENCE = 15.0
"""Seconds without a beat after which a host gives an agent up."""
ASK_AGAIN = 5.0
"""Seconds before a host that found no free slot asks again."""


@dataclass(frozen=True)
class Scene:
    """The fleet, and what happens to it."""

    hosts: int = 1000
    agents: int = 250
    slots: int = 12
    """Workers that an agent takes."""
    workers: int = 2
    """Workers that each host wants on agents."""
    threads: int = 4
    """Calls that run at once in a worker."""
    quiet: int = 3
    """Clients of each host that call now and then."""
    loud: int = 2
    """Clients of each host that send everything at once."""
    flood: int = 25
    calls: int = 5
    """Calls of each loud client, and of each quiet one."""
    pause: float = 1.0
    """Mean seconds between two calls of a quiet client."""
    commands: int = 8
    """Commands; the first are called most, and each takes 1.5 times as long as the one before."""
    shortest: float = 0.05
    longest: float = 0.0
    """Seconds of a command that quiet clients never call; 0 for none."""
    slow: int = 8
    """One agent in so many takes four times as long."""
    killed: int = 5
    """Agents that are killed, at random times of the first seconds."""
    engine_gone: tuple[float, float] = (0.0, 0.0)
    """From when to when the engine is away."""
    bound: int = 10_000
    beat: float = BEAT
    aware: bool = True
    """Whether hosts measure how slow agents are."""

    def bound_of_waits(self, seen: Seen) -> float:
        """The longest wait of a quiet client: everybody else of its host has a turn before it, and each place is free after a run."""
        away = self.engine_gone[1] - self.engine_gone[0]
        turns = math.ceil((self.quiet + self.loud) / (self.workers * self.threads))
        lost = SILENCE + STARTING + ASK_AGAIN if self.killed or away > SILENCE else 0.0
        return turns * seen.longest_run + away + lost


@dataclass
class Seen:
    """What a run showed."""

    calls: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    """Ends of calls by kind."""
    twice: int = 0
    """Calls that ended more than once."""
    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds from a call to its beginning, by the kind of client."""
    shares: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Seconds of places that each loud client of a host had while all of them had something waiting."""
    work: Counter[bool] = field(default_factory=Counter)
    """Calls that ran on slow agents, and on others."""
    refused: int = 0
    """Workers that an agent refused, because what the host knew was old."""
    placed: int = 0
    fullest: float = 0.0
    """The fullest agent, compared with the mean, when all hosts had their workers."""
    longest_run: float = 0.0
    over: float = 0.0

    @property
    def lost(self) -> int:
        """Calls that were answered `worker_lost`."""
        return self.ended["lost loud"] + self.ended["lost quiet"]

    @property
    def longest_wait(self) -> float:
        """Of a quiet client."""
        return max(self.waits["quiet"])

    @property
    def unfairness(self) -> float:
        """The share of the loud client that had most, compared with the one that had least, on the worst host."""
        hosts: dict[int, list[float]] = defaultdict(list)
        for (host, _), seconds in self.shares.items():
            hosts[host].append(seconds)
        return max(max(shares) / min(shares) for shares in hosts.values())


class _Agent:
    def __init__(self, name: str, slots: int, slowness: float) -> None:
        self.name, self.slots, self.slowness = name, slots, slowness
        self.told = self.busy = 0
        """Its workers as of its last beat, and now."""
        self.alive = True


@dataclass(eq=False)
class _Worker:
    agent: _Agent
    jobs: dict[_Call, Node[_Call]] = field(default_factory=dict)
    up: bool = True


@dataclass(eq=False)
class _Call:
    client: str
    command: int
    since: float
    ends: int = 0
    loud: bool = False

    @property
    def path(self) -> tuple[str, int]:
        return self.client, self.command


class _Host:
    def __init__(self, name: int) -> None:
        self.name = name
        self.workers: list[_Worker] = []
        self.asking = 0
        """Workers that it is about to get."""
        self.queue: FairQueue[_Call] = FairQueue(0.0)
        self.known: Slowness = Slowness()
        self.waiting: Counter[str] = Counter()


class Fleet:
    """One run."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.seen = Seen()
        self.now = 0.0
        self._draw = Random(seed)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = count()
        slow = scene.slow
        self.agents = [_Agent(str(n), scene.slots, 4.0 if slow and n % slow == 0 else 1.0) for n in range(scene.agents)]
        self.hosts = [_Host(number) for number in range(scene.hosts)]
        longest = scene.shortest * 1.5 ** (scene.commands - 1)
        self.seen.longest_run = max(longest, scene.longest) * (4.0 if slow else 1.0) + TRIP

    def run(self) -> Seen:
        """Everything, until nothing happens any more."""
        scene, draw = self.scene, self._draw
        for host in self.hosts:
            begin = draw.uniform(0.0, 2.0)
            host.asking = scene.workers
            for _ in range(scene.workers):
                self._at(begin, self._find_worker, host)
            for number in range(scene.loud):
                for _ in range(scene.flood):
                    self._at(begin + STARTING, self._call, host, f"loud {number}", 0)
            for number in range(scene.quiet):
                self._at(
                    begin + STARTING + draw.expovariate(1 / scene.pause),
                    self._call,
                    host,
                    f"quiet {number}",
                    scene.calls - 1,
                )
        for agent in draw.sample(self.agents, scene.killed):
            self._at(draw.uniform(1.0, 8.0), self._kill, agent)
        gone, back = scene.engine_gone
        if back - gone >= SILENCE:
            self._at(gone + SILENCE, self._give_all_up)
        self._at(back, self._engine_back)
        self._at(0.0, self._beat)
        planned = scene.hosts * (scene.loud * scene.flood + scene.quiet * scene.calls)
        while self._events and self.seen.ended.total() < planned:
            self.now, _, event, arguments = heapq.heappop(self._events)
            event(*arguments)
        self.seen.over = self.now
        return self.seen

    def _at(self, when: float, event: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (when, next(self._number), event, arguments))

    @property
    def _engine_up(self) -> bool:
        gone, back = self.scene.engine_gone
        return not gone <= self.now < back

    # Agents and workers

    def _beat(self) -> None:
        for agent in self.agents:
            agent.told = agent.busy
        self._at(self.now + self.scene.beat, self._beat)

    def _find_worker(self, host: _Host, avoid: tuple[str, ...] = ()) -> None:
        """Ask the chosen agent for a worker; if it refuses, another one."""
        if not self._engine_up:
            host.asking -= 1  # until it is back
            return
        known = {each.name: each for each in self.agents}
        seen = [
            Candidate(each.name, slots=each.slots, busy=each.told, slowness=self._slowness(host, each))
            for each in self.agents
            if each.alive and each.name not in avoid
        ]
        found = choose(seen, self._draw)
        if found is None:
            self._at(self.now + ASK_AGAIN, self._find_worker, host)
        elif known[found.name].busy >= found.slots:
            self.seen.refused += 1
            self._find_worker(host, (*avoid, found.name))
        else:
            agent = known[found.name]
            agent.busy += 1
            self.seen.placed += 1
            if self.seen.placed == self.scene.hosts * self.scene.workers:
                taken = [each.busy for each in self.agents]
                self.seen.fullest = max(taken) * len(taken) / sum(taken)
            self._at(self.now + STARTING, self._started, host, _Worker(agent))

    def _slowness(self, host: _Host, agent: _Agent) -> float:
        return host.known.of(agent.name) if self.scene.aware else 1.0

    def _started(self, host: _Host, worker: _Worker) -> None:
        if not worker.agent.alive:
            self._find_worker(host)
            return
        host.workers.append(worker)
        host.asking -= 1
        self._release(host)

    def _kill(self, agent: _Agent) -> None:
        """It is gone at once. The hosts learn it by its silence, and answer then what it had begun."""
        agent.alive = False
        for host in self.hosts:
            for worker in [each for each in host.workers if each.agent is agent]:
                worker.up = False
                self._at(self.now + SILENCE, self._lose, host, worker)

    def _lose(self, host: _Host, worker: _Worker) -> None:
        if worker not in host.workers:
            return
        host.workers.remove(worker)
        for call, place in list(worker.jobs.items()):
            self._end(host, worker, call, place, "lost")
        host.asking += 1
        self._find_worker(host)

    def _give_all_up(self) -> None:
        """Hosts and agents have heard nothing of each other for too long."""
        for host in self.hosts:
            for worker in list(host.workers):
                worker.agent.busy -= 1
                self._lose(host, worker)

    def _engine_back(self) -> None:
        for host in self.hosts:
            for _ in range(self.scene.workers - len(host.workers) - host.asking):
                host.asking += 1
                self._find_worker(host)

    # Calls

    def _call(self, host: _Host, client: str, more: int) -> None:
        scene, seen = self.scene, self.seen
        seen.calls += 1
        loud = client.startswith("loud")
        ranks = range(scene.commands)
        command = self._draw.choices(ranks, [1 / (rank + 1) for rank in ranks])[0]
        call = _Call(client, -1 if loud and scene.longest else command, self.now, loud=loud)
        host.queue.put(call.path, call)
        host.waiting[client] += 1
        if len(host.queue) > scene.bound:
            self._over(host, host.queue.shed(), "busy")
        self._release(host)
        if more:
            self._at(self.now + self._draw.expovariate(1 / scene.pause), self._call, host, client, more - 1)

    def _release(self, host: _Host) -> None:
        places = len(host.workers) * self.scene.threads
        while (found := host.queue.take(places, lambda _: True)) is not None:
            call, place = found
            host.waiting[call.client] -= 1
            worker = min(host.workers, key=lambda each: (len(each.jobs) + 1) * self._slowness(host, each.agent))
            worker.jobs[call] = place
            self.seen.waits["loud" if call.loud else "quiet"].append(self.now - call.since)
            usual = self.scene.longest if call.command < 0 else self.scene.shortest * 1.5**call.command
            took = usual * worker.agent.slowness * self._draw.uniform(0.8, 1.0) + TRIP
            self._at(self.now + took, self._answered, host, worker, call, place, took)

    def _answered(self, host: _Host, worker: _Worker, call: _Call, place: Node[_Call], took: float) -> None:
        gone, back = self.scene.engine_gone
        if not worker.up or call not in worker.jobs:
            return  # it died, or was given up: what it says does not count
        if not self._engine_up:  # what it says waits for the engine
            if back - gone < SILENCE:
                self._at(back, self._answered, host, worker, call, place, took)
            return
        host.known.note(worker.agent.name, str(call.command), took)
        self.seen.work[worker.agent.slowness > 1] += 1
        if call.loud and all(host.waiting[f"loud {number}"] for number in range(self.scene.loud)):
            self.seen.shares[host.name, call.client] += took
        self._end(host, worker, call, place, "ok")

    def _end(self, host: _Host, worker: _Worker, call: _Call, place: Node[_Call], kind: str) -> None:
        del worker.jobs[call]
        host.queue.end(place)
        self._over(host, call, kind)
        self._release(host)

    def _over(self, host: _Host, call: _Call, kind: str) -> None:
        if kind == "busy":
            host.waiting[call.client] -= 1
        call.ends += 1
        self.seen.twice += call.ends > 1
        self.seen.ended[f"{kind} {'loud' if call.loud else 'quiet'}"] += 1


def main() -> None:
    """The long form: larger fleets and many seeds, as the table of docs/cluster.md."""
    everyday = Scene(hosts=2000, agents=500, killed=10, flood=50)
    scenes = {
        "everyday": everyday,
        "slowness is not measured": replace(everyday, aware=False),
        "engine away for 5 s": replace(everyday, engine_gone=(5.0, 10.0)),
        "engine away for 60 s": replace(everyday, engine_gone=(5.0, 65.0)),
        "beats every 30 s": replace(everyday, beat=30.0),
        "95 % of the slots wanted": replace(everyday, slots=8, hosts=1900),
        "four times as many clients as places": replace(everyday, hosts=500, quiet=30),
        "loud clients call a command of 60 s": replace(everyday, hosts=500, longest=60.0, flood=20),
        "the same, one of them, 64 threads": replace(everyday, hosts=500, longest=60.0, flood=200, threads=64, loud=1),
    }
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 2):
        for name, scene in scenes.items():
            seen = Fleet(scene, seed).run()
            assert (seen.calls, 0) == (seen.ended.total(), seen.twice), name
            told = f"{seed} {name:36} {seen.calls:8} calls, {seen.lost:5} lost; longest wait of a quiet client {seen.longest_wait:6.2f} s, bound {scene.bound_of_waits(seen):.1f} s"
            print(f"{told}; fullest agent {seen.fullest:.2f}; refused {seen.refused}", flush=True)


if __name__ == "__main__":
    main()
