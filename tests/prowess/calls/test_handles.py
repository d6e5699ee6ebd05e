"""Work that goes on while nobody waits: who may ask for it, and what is forgotten when."""

from __future__ import annotations

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


def test_no_more_work_goes_on_than_may() -> None:
    """Work that goes on is never forgotten for other work."""
    handles: Handles[int] = Handles(most=2)
    first = handles.add(1)
    handles.add(2)
    with pytest.raises(TooMuchWork, match="2 calls already run in the background"):
        handles.add(3)
    handles.over(first)
    handles.add(3)
    assert [2, 3] == handles.works()


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


def test_a_handle_that_was_forgotten_may_end() -> None:
    """Whoever tells of the end need not know."""
    handles: Handles[str] = Handles()
    handles.over("forgotten", 5)
    assert [] == handles.works()
