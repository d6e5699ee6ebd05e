"""A selector looks a moment longer before it sleeps, and less often where that is in vain."""

from __future__ import annotations

import itertools
import selectors
import socket
from collections.abc import Callable, Generator

import pytest

from prowess.worker.polling import Attentive


@pytest.fixture
def pair() -> Generator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def watching(sock: socket.socket, clock: Callable[[], float], give_way: Callable[[], None]) -> Attentive:
    selector = Attentive(clock, give_way)
    selector.register(sock, selectors.EVENT_READ)
    return selector


def test_what_comes_within_the_moment_is_seen_without_sleeping(pair: tuple[socket.socket, socket.socket]):
    """The clock stands still, so that only input ends the look; nobody would wake it afterwards."""
    ours, theirs = pair
    looks = itertools.count(1)

    def give_way() -> None:
        if next(looks) == 3:
            theirs.send(b"x")

    with watching(ours, lambda: 0.0, give_way) as selector:
        assert [ours] == [key.fileobj for key, _ in selector.select()]
    assert 4 == next(looks)


def test_looking_in_vain_makes_it_look_less_often_until_it_pays_again(pair: tuple[socket.socket, socket.socket]):
    """Every look begins by asking for the time: the numbers of the waits that did so."""
    ours, theirs = pair
    waits = itertools.count(1)
    asked: list[int] = []

    def wait(selector: Attentive, times: int) -> list[int]:
        """Which of so many waits began with a look."""
        asked.clear()
        return [number for number in itertools.islice(waits, times) if selector.select(1e-9) is not None and looked()]

    def looked() -> bool:
        return bool(asked) and not asked.clear()

    step = 0.0002

    def clock() -> float:
        asked.append(1)
        return len(asked) * step

    with watching(ours, clock, lambda: None) as selector:
        assert [1, 2, 5, 12, 27] == wait(selector, 30)
        theirs.send(b"x")
        step = 0.0
        assert [58, 59, 60] == wait(selector, 30)


@pytest.mark.parametrize(("late", "looked"), [(0.0005, [1, 2, 3]), (0.5, [1])])
def test_a_look_that_took_too_long_was_in_vain_also_where_something_came(
    late: float, looked: list[int], pair: tuple[socket.socket, socket.socket]
):
    """Others want the processor then, and whoever sleeps there is woken sooner than he gets his turn."""
    ours, theirs = pair
    theirs.send(b"x")
    asked: list[int] = []
    number = 1

    def clock() -> float:
        asked.append(number)
        return 1.0 if len(asked) % 2 else 1.00015 + late

    with watching(ours, clock, lambda: None) as selector:
        while number <= 3:
            assert selector.select()
            number += 1
    assert looked == list(dict.fromkeys(asked))


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_whoever_does_not_wait_does_not_look_either(timeout: float, pair: tuple[socket.socket, socket.socket]):
    """A loop that has something to do asks only for what is there."""
    asked = itertools.count()
    with watching(pair[0], lambda: float(next(asked)), lambda: None) as selector:
        assert [] == selector.select(timeout)
    assert 0 == next(asked)


def test_a_single_processor_is_not_spent_on_looking(pair: tuple[socket.socket, socket.socket]):
    """There it would only keep the other process from answering."""
    asked = itertools.count()
    with Attentive(lambda: float(next(asked)), never=True) as selector:
        selector.register(pair[0], selectors.EVENT_READ)
        assert [] == selector.select(1e-9)
    assert 0 == next(asked)


def test_after_a_long_wait_that_a_timer_ended_it_sleeps_at_once(pair: tuple[socket.socket, socket.socket]):
    """Nobody is about to answer then."""
    ours, _ = pair
    asked: list[int] = []

    def clock() -> float:
        asked.append(1)
        return len(asked) * 0.0002

    def looks(selector: Attentive, seconds: float) -> bool:
        asked.clear()
        selector.select(seconds)
        return bool(asked)

    with watching(ours, clock, lambda: None) as selector:
        assert [True, False, True] == [looks(selector, seconds) for seconds in (0.011, 1e-9, 1e-9)]


def test_events_are_those_that_were_asked_for(pair: tuple[socket.socket, socket.socket]):
    """Reading, writing, both, and the end of the other side, which counts as whatever was asked for."""
    ours, theirs = pair
    with watching(ours, lambda: 0.0, lambda: None) as selector:
        assert [] == selector.select(0)
        selector.modify(ours, selectors.EVENT_READ | selectors.EVENT_WRITE)
        assert [selectors.EVENT_WRITE] == [mask for _, mask in selector.select(0)]
        theirs.send(b"x")
        assert [selectors.EVENT_READ | selectors.EVENT_WRITE] == [mask for _, mask in selector.select(0)]
        selector.modify(ours, selectors.EVENT_WRITE)
        theirs.close()
        assert [selectors.EVENT_WRITE] == [mask for _, mask in selector.select(0)]


def test_a_descriptor_that_is_not_known_any_more_has_no_events(pair: tuple[socket.socket, socket.socket]):
    """The system reports it as long as a copy is open, if it was closed before it was removed."""
    ours, theirs = pair
    with watching(ours, lambda: 0.0, lambda: None) as selector, ours.dup():
        number = ours.fileno()
        ours.close()
        selector.unregister(number)
        theirs.send(b"x")
        assert [] == selector.select(0)
