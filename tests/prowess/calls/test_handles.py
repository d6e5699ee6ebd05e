"""Work that goes on while nobody waits: who may ask for it, and what is forgotten when."""

from __future__ import annotations

import contextlib

import pytest

from prowess.calls.handles import Handles
from prowess.errors import TooMuchWork


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


def test_a_handle_gives_its_work_to_its_owner_alone() -> None:
    """To everybody else it does not exist."""
    handles: Handles[str] = Handles()
    handle = handles.add("work", "ada")
    assert "work" == handles.get(handle, "ada")
    assert [None, None] == [handles.get(handle, "bob"), handles.get(handle)]


def test_handles_begin_with_a_mark_where_there_is_one() -> None:
    """It says which process has the work."""
    assert Handles[str](mark="host-").add("work").startswith("host-")


@pytest.mark.parametrize("handle", ["unknown", 5, None, ["x"], {}])
def test_what_is_no_handle_leads_nowhere(handle: object) -> None:
    """Whatever it is."""
    assert Handles[str]().get(handle) is None


def test_handles_cannot_be_guessed() -> None:
    """Each has 24 random bytes."""
    handles: Handles[int] = Handles()
    made = {handles.add(number) for number in range(100)}
    assert 100 == len(made)
    assert {32} == {len(handle) for handle in made}


def test_a_result_is_kept_for_its_time_and_running_work_for_ever() -> None:
    """The time begins when the work has ended."""
    clock = Clock()
    handles: Handles[str] = Handles(kept=10, now=clock)
    ended, running = handles.add("ended"), handles.add("running")
    clock.time = 100
    handles.over(ended)
    clock.time = 110
    assert "ended" == handles.get(ended)
    clock.time = 110.1
    assert handles.get(ended) is None
    assert ["running"] == handles.works() == [handles.get(running)]


def test_refused_client_is_told_when_a_work_has_probably_ended() -> None:
    """By how long works take, and by how long those that run have taken; a minute at most."""
    clock = Clock()
    handles: Handles[str] = Handles(most=4, now=clock)

    def refused(client: str) -> int:
        with pytest.raises(TooMuchWork) as error:
            handles.add("more", client)
        assert f"try again in {error.value.seconds} s" in str(error.value)
        return error.value.seconds

    ended = handles.add("ended", "ada")
    clock.time = 100
    handles.over(ended)  # one in ten counts: works take ten seconds
    handles.add("a", "ada")
    handles.add("b", "ada")
    assert 5 == refused("ada")
    clock.time = 130
    assert 15 == refused("ada")
    clock.time = 1000
    assert 60 == refused("ada")


def test_work_is_dropped_as_if_it_had_never_been_there() -> None:
    """Ended or not, it makes room once."""
    handles: Handles[str] = Handles(most=2)
    running = handles.add("running", "ada")
    handles.drop(running)
    ended = handles.add("ended", "ada")
    handles.over(ended)
    handles.drop(ended)
    handles.drop("unknown")
    assert [] == handles.works()
    handles.add("again", "ada")
    with pytest.raises(TooMuchWork, match="already have 1 call in the background"):
        handles.add("more", "ada")


def test_no_more_work_goes_on_than_may() -> None:
    """Work that goes on is never forgotten for other work."""
    handles: Handles[int] = Handles(most=4)
    first = handles.add(1)
    handles.add(2)
    with pytest.raises(TooMuchWork, match="you already have 2 calls in the background") as refused:
        handles.add(3)
    assert refused.value.own
    handles.over(first)
    handles.add(3)
    handles.over(handles.add(4, "bob"))
    handles.add(5, "bob")
    assert [2, 3, 4, 5] == handles.works()


def test_each_client_may_run_as_much_as_there_is_room_for_more() -> None:
    """So however many flood the store, one more finds room, and what has ended makes room for everybody."""
    handles: Handles[str] = Handles(most=100)
    given: dict[str, list[str]] = {"ada": [], "bob": [], "cid": [], "dan": []}
    for who, own in given.items():
        with contextlib.suppress(TooMuchWork):
            own.extend(handles.add("work", who) for _ in range(100))
    assert [50, 25, 13, 6] == [len(each) for each in given.values()]
    for handle in given["ada"]:
        handles.over(handle)
    more = [handles.add("more", "eve") for _ in range(20)]
    assert "more" == handles.get(more[-1], "eve")


def test_where_nothing_is_left_it_is_the_room_of_all() -> None:
    """Not that of the client."""
    handles: Handles[int] = Handles(most=2)
    handles.add(1, "ada")
    handles.add(2, "bob")
    with pytest.raises(
        TooMuchWork, match="all clients together already have 2 calls in the background, which"
    ) as refused:
        handles.add(3, "cid")
    assert not refused.value.own


def test_work_counts_for_the_client_and_belongs_to_the_owner() -> None:
    """Where anybody may call, all have one owner, and each address has its own room."""
    handles: Handles[int] = Handles(most=4)
    handles.add(1, "anybody", "here")
    handles.add(2, "anybody", "here")
    with pytest.raises(TooMuchWork):
        handles.add(3, "anybody", "here")
    there = handles.add(4, "anybody", "there")
    assert 4 == handles.get(there, "anybody")


def test_results_that_were_fetched_are_forgotten_first() -> None:
    """Then the oldest ones."""
    handles: Handles[str] = Handles(most_bytes=10)
    old, fetched = handles.add("old"), handles.add("fetched")
    handles.over(old, 5)
    handles.over(fetched, 5)
    handles.get(fetched)
    handles.over(handles.add("new"), 5)
    assert ["old", "new"] == handles.works()
    handles.over(handles.add("newer"), 5)
    assert ["new", "newer"] == handles.works()


@pytest.mark.parametrize("limits", [{"most": 20}, {"most_bytes": 20}])
def test_whoever_keeps_most_loses_results_first(limits: dict[str, int]) -> None:
    """So one client that makes results without end drops its own ones alone."""
    handles: Handles[str] = Handles(**limits)
    kept = [handles.add("kept", "ada") for _ in range(5)]
    for handle in kept:
        handles.over(handle, 1)
        handles.get(handle, "ada")
    for _ in range(100):
        handles.over(handles.add("flood", "bob"), 1)
    assert ["kept"] * 5 == [handles.get(handle, "ada") for handle in kept]
    assert 20 == len(handles.works())


def test_the_newest_result_outlives_all_others() -> None:
    """Nobody can have fetched it; only one that is larger than all that is kept is dropped itself."""
    handles: Handles[str] = Handles(most_bytes=10)
    small = [handles.add("small", who) for who in ("ada", "bob", "cid")]
    for handle in small:
        handles.over(handle, 2)
    handles.over(handles.add("large", "dan"), 10)
    assert ["large"] == handles.works()
    handles.over(handles.add("too large", "dan"), 11)
    assert [] == handles.works()


def test_a_handle_that_was_forgotten_may_end() -> None:
    """Whoever tells of the end need not know."""
    handles: Handles[str] = Handles()
    handles.over("forgotten", 5)
    assert [] == handles.works()
