"""The rules of placement and of the queue hold their bounds in a fleet, and where they stop to. About 7 s of processor time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from fleet import SILENCE, Fleet, Scene, Seen

SMALL = Scene(hosts=200, agents=50, killed=0)


@cache
def ran(scene: Scene, seed: int = 1) -> Seen:
    """A run in which each call ended exactly once."""
    seen = Fleet(scene, seed).run()
    assert (seen.calls, 0) == (seen.ended.total(), seen.twice)
    return seen


def test_thousand_hosts_share_two_hundred_and_fifty_agents():
    """Nothing is lost or refused, quiet clients wait for one turn of the others, and no agent is twice as full as the mean."""
    scene = Scene(killed=0)
    seen = ran(scene)
    assert (50_000, 15_000) == (seen.ended["ok loud"], seen.ended["ok quiet"])
    assert seen.longest_wait <= scene.bound_of_waits(seen) == seen.longest_run
    assert seen.fullest <= 2
    assert seen.refused <= seen.placed / 20


def test_slow_agents_get_less():
    """One agent in eight is four times slower: it gets less than half of an equal share, so calls wait less."""
    scene = replace(SMALL, hosts=100, agents=25, flood=100)
    seen, unaware = ran(scene), ran(replace(scene, aware=False))
    assert seen.work[True] / seen.work.total() < 1 / 16 < unaware.work[True] / unaware.work.total()
    assert sum(seen.waits["loud"]) < sum(unaware.waits["loud"])


def test_clients_that_flood_get_equal_shares():
    """On the worst of a hundred hosts, one has a quarter more than the other, as long as both have something waiting."""
    assert ran(replace(SMALL, hosts=100, agents=25, flood=200)).unfairness <= 1.25


def test_agents_that_are_killed_cost_what_they_had_begun():
    """A call that had begun is answered as lost, once; a quiet client waits for a new worker at most."""
    scene = replace(SMALL, killed=6)
    seen = ran(scene)
    assert 0 < seen.lost <= 6 * scene.slots * scene.threads
    assert seen.longest_wait <= scene.bound_of_waits(seen)


def test_short_absence_of_the_engine_costs_time_alone():
    """What was said meanwhile arrives afterwards."""
    scene = replace(SMALL, engine_gone=(4.0, 9.0))
    seen = ran(scene)
    assert seen.lost == 0
    assert 5.0 <= seen.longest_wait <= scene.bound_of_waits(seen)


def test_long_absence_of_the_engine_costs_what_had_begun():
    """Hosts and agents give each other up, and find each other again."""
    scene = replace(SMALL, engine_gone=(4.0, 4.0 + 2 * SILENCE))
    seen = ran(scene)
    assert 0 < seen.lost
    assert seen.longest_wait <= scene.bound_of_waits(seen)


def test_only_those_who_flood_are_refused():
    """Also where the queue is short."""
    ended = ran(replace(SMALL, bound=20)).ended
    assert 0 < ended["busy loud"]
    assert (0, 1000 * 3) == (ended["busy quiet"], ended["ok quiet"])


def test_news_of_agents_may_be_old():
    """With beats every 30 s, two choices and refusals keep the fullest agent below twice the mean."""
    seen = ran(replace(SMALL, beat=30.0))
    assert seen.fullest <= 2
    assert seen.refused <= seen.placed / 4


def test_bound_of_waits_grows_with_clients_and_with_the_longest_run():
    """Here the rules stop to help: with more clients than places, and with long runs of several clients that flood."""
    crowded, endless = replace(SMALL, quiet=40, hosts=100), replace(SMALL, longest=60.0, hosts=100)
    for scene in (crowded, endless):
        seen = ran(scene)
        assert ran(SMALL).longest_run < seen.longest_wait <= scene.bound_of_waits(seen)


def test_one_client_that_floods_leaves_a_reserve():
    """From 32 places on, calls of a minute of one client cost the others next to nothing; two clients can take the reserve."""
    alone = ran(replace(SMALL, hosts=50, longest=60.0, threads=64, flood=150, loud=1))
    assert alone.longest_wait == 0.0


def test_same_seed_gives_the_same_run():
    """And another seed another one."""
    first, again, other = (Fleet(replace(SMALL, killed=3), seed).run() for seed in (1, 1, 2))
    assert (first.ended, first.waits, first.over) == (again.ended, again.waits, again.over)
    assert first.waits != other.waits
