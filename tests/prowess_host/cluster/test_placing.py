"""Which agent gets the next worker: labels, free slots, slowness, two at random."""

from __future__ import annotations

from collections import Counter
from random import Random

from prowess_host.cluster.placing import Candidate, Slowness, choose, labels_of, why_none


def test_agent_must_have_all_labels() -> None:
    """A label is a word, or anything without a comma or a space."""
    agents = [Candidate("a", frozenset({"gpu"})), Candidate("b", frozenset({"gpu", "zone=eu"})), Candidate("c")]
    needed = labels_of("gpu, zone=eu")

    assert {"gpu", "zone=eu"} == needed
    assert frozenset() == labels_of("")
    assert {"b"} == {found.name for seed in range(20) if (found := choose(agents, Random(seed), needed))}


def test_full_agent_gets_nothing() -> None:
    """Where all are full, nobody is chosen, and the reason can be told."""
    full = Candidate("full", slots=2, busy=2)

    assert choose([full, Candidate("free")], Random(1)) == Candidate("free")
    assert choose([full], Random(1)) is None
    assert why_none([full], ()) == "all 2 slots of the 1 agents are in use"


def test_reason_names_labels_and_what_agents_have() -> None:
    """A person sees at once which side has the typing mistake."""
    told = why_none([Candidate("a", frozenset({"gpus"})), Candidate("b")], {"gpu"})

    assert told == "no agent has the labels gpu (a has gpus; b has none); add them to the setting agent.labels of one"
    assert "prowess agent --join" in why_none([], ())


def test_choice_is_the_same_for_the_same_seed() -> None:
    """A simulation, and a fault that somebody reports, can be repeated."""
    agents = [Candidate(str(number), slots=4, busy=number % 4) for number in range(50)]

    def run(seed: int) -> list[str]:
        draw = Random(seed)
        return [found.name for _ in range(50) if (found := choose(agents, draw))]

    assert run(7) == run(7)
    assert run(7) != run(8)


def test_choices_with_outdated_news_spread() -> None:
    """With the same outdated news, the least busy agent is not overrun by everybody."""
    agents = [Candidate(str(number), slots=100, busy=min(number, 1)) for number in range(20)]
    draw = Random(3)

    chosen = Counter(found.name for _ in range(1000) if (found := choose(agents, draw)))

    assert len(chosen) == 20
    assert max(chosen.values()) < 1000 / 20 * 2.5


def test_slow_agent_gets_less() -> None:
    """As much less as it is slower, or nearly: it is compared by load, and drawn by what it can do."""
    slow, quick = "slow", ["q1", "q2", "q3"]
    busy, draw, slowness = Counter[str](), Random(5), Slowness()
    for _ in range(40):
        slowness.note(slow, "x.y", 0.4)
        for name in quick:
            slowness.note(name, "x.y", 0.1)
    for _ in range(400):
        agents = [Candidate(name, slots=1000, busy=busy[name], slowness=slowness.of(name)) for name in [slow, *quick]]
        found = choose(agents, draw)
        assert found is not None
        busy[found.name] += 1

    assert 400 / 13 * 0.5 < busy[slow] < 400 / 13 * 2
    assert max(busy[name] for name in quick) < 1.25 * min(busy[name] for name in quick)


def test_slowness_is_measured_per_command() -> None:
    """An agent that gets the long commands is not slow."""
    slowness = Slowness()
    for _ in range(100):
        slowness.note("a", "long.one", 10.0)
        slowness.note("b", "short.one", 0.01)
        slowness.note("a", "short.one", 0.01)

    assert 0.9 < slowness.of("a") / slowness.of("b") < 1.1


def test_slowness_is_bounded_and_forgotten() -> None:
    """So an agent that has recovered is tried again, and one that comes back is new."""
    slowness = Slowness()
    for _ in range(300):
        slowness.note("quick", "x.y", 0.01)
    for _ in range(300):
        slowness.note("stuck", "x.y", 1000.0)
    assert slowness.of("stuck") == 16.0
    for _ in range(300):
        slowness.note("stuck", "x.y", 0.01)
        slowness.note("quick", "x.y", 0.01)
    assert slowness.of("stuck") < 2

    slowness.note("stuck", "x.y", 1000.0)
    slowness.forget("stuck")

    assert slowness.of("stuck") == 1.0


def test_run_times_below_a_millisecond_are_equal() -> None:
    """They are those of the network and the scheduler."""
    slowness = Slowness()
    for _ in range(50):
        slowness.note("a", "x.y", 0.00001)
        slowness.note("b", "x.y", 0.0009)

    assert slowness.of("a") == slowness.of("b") == 1.0
