"""The life of a worker: the table by itself, and any order of events."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prowess_host.workers.lifecycle import ENDING, GETS_CALLS, TABLE, Action, Event, State, step

A, E, S = Action, Event, State
KILLS = {A.KILL}
BOUNDED = {A.KILL, A.KILL_LATER, A.QUIT, A.QUIT_SOON}
"""Each of them ends the process, by and by."""


def rows() -> list[tuple[State, Event]]:
    return [(state, event) for state in TABLE for event in TABLE[state]]


def test_every_state_is_in_the_table():
    assert set(State) == set(TABLE)
    assert {S.STARTING, S.READY, S.SILENT, S.IMPORTING} == GETS_CALLS
    assert {S.RETIRING, S.STUCK, S.DRAINING} == ENDING


def test_every_event_and_every_action_has_a_use():
    assert set(Event) == {event for _, event in rows()}
    assert set(Action) == {action for state, event in rows() for action in TABLE[state][event].actions}


@pytest.mark.parametrize("state", [state for state in State if state is not S.GONE])
def test_an_exit_is_reported_in_every_state(state: State):
    """Whatever was expected: the calls that are still in the worker are answered for."""
    assert (S.GONE, (A.REPORT,)) == step(state, E.EXITED)


@pytest.mark.parametrize("event", Event)
def test_nothing_happens_to_a_worker_that_is_gone(event: Event):
    """A timer may come late."""
    assert (S.GONE, ()) == step(S.GONE, event)


@pytest.mark.parametrize("state, event", rows())
def test_a_worker_that_gets_no_calls_any_more_is_replaced_and_gives_back_what_it_has_not_begun(
    state: State, event: Event
):
    """Unless its exit does that, which follows at once."""
    new, actions = TABLE[state][event]
    retires = state in GETS_CALLS and new in ENDING
    assert retires == (A.REPLACE in actions)
    assert retires == (A.MOVE_CALLS in actions)


@pytest.mark.parametrize("state, event", rows())
def test_nobody_comes_back_from_retirement(state: State, event: Event):
    """Its calls may have moved, and another worker is in its place."""
    if state not in GETS_CALLS:
        assert TABLE[state][event].state not in GETS_CALLS


@pytest.mark.parametrize("state, event", rows())
def test_whoever_is_killed_is_killed(state: State, event: Event):
    new, actions = TABLE[state][event]
    assert (new is S.KILLED) == (A.KILL in actions)
    if new is S.DRAINING and state is not S.DRAINING:
        assert A.KILL_LATER in actions
    if new is S.LEAVING:
        assert {A.QUIT, A.QUIT_SOON} & set(actions)


@pytest.mark.parametrize("event", [E.UNANSWERED, E.IMPORT_HOLDS, E.IMPORT_ENDED, E.FRAME, E.UP])
@pytest.mark.parametrize("state", State)
def test_a_slow_import_ends_nothing(state: State, event: Event):
    """Only an import over its limit does."""
    assert not BOUNDED & set(step(state, event).actions)


@pytest.mark.parametrize("state", [S.STARTING, S.SILENT, S.IMPORTING, S.STUCK, S.DRAINING])
def test_who_does_not_answer_is_not_asked_to_leave(state: State):
    assert (S.KILLED, (A.KILL,)) == step(state, E.HOST_LEAVES)


class Life(RuleBasedStateMachine):
    """Events in any order, as far as the pool and the timeouts can send them: what must never be, and what must be."""

    def __init__(self) -> None:
        super().__init__()
        self.state = S.STARTING
        self.calls = 0
        self.stand_ins = 0
        self.in_pool = True
        self.doomed = False
        """Something will end it, or has."""
        self.reports = 0

    def send(self, event: Event) -> None:
        """As the pool does."""
        self.state, actions = step(self.state, event)
        for action in actions:
            self.do(action)
        if self.state in ENDING and not self.calls:
            self.send(E.EMPTY)

    def do(self, action: Action) -> None:
        if action is A.REPLACE:
            assert self.in_pool
            self.in_pool = False
        elif action is A.MOVE_CALLS:
            self.calls = 0 if self.calls == 1 else self.calls // 2  # the rest has begun
        elif action in BOUNDED:
            assert self.state is not S.GONE
            self.doomed = True
        elif action is A.END_STAND_INS:
            self.stand_ins = 0
        elif action is A.REPORT:
            self.reports += 1
            self.calls = 0

    @rule(event=st.sampled_from(sorted(set(Event) - {E.EMPTY, E.ABANDONED, E.EXITED}, key=lambda it: it.value)))
    def happens(self, event: Event) -> None:
        self.send(event)

    @precondition(lambda self: self.state in GETS_CALLS)
    @rule()
    def gets_a_call(self) -> None:
        self.calls += 1

    @precondition(lambda self: self.calls)
    @rule()
    def call_ends(self) -> None:
        self.calls -= 1
        if self.state in ENDING and not self.calls:
            self.send(E.ABANDONED)

    @precondition(lambda self: self.state is S.IMPORTING)
    @rule()
    def stand_in_starts(self) -> None:
        self.stand_ins += 1

    @precondition(lambda self: self.state is not S.GONE)
    @rule()
    def exits(self) -> None:
        self.send(E.EXITED)

    @invariant()
    def who_is_retired_and_idle_is_on_its_way_out(self) -> None:
        """Nobody stays without a use."""
        if self.state not in GETS_CALLS and self.state is not S.GONE and not self.calls:
            assert self.doomed

    @invariant()
    def who_gets_calls_is_in_the_pool(self) -> None:
        if self.state in GETS_CALLS:
            assert self.in_pool
            assert not self.doomed

    @invariant()
    def stand_ins_serve_only_beside_an_import(self) -> None:
        if self.state is S.READY:
            assert not self.stand_ins

    @invariant()
    def exit_is_reported_once(self) -> None:
        assert (self.state is S.GONE) == (self.reports == 1)


TestLife = Life.TestCase
