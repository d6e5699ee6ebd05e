"""The fair queue: whose turn it is, what newcomers find, what is refused, and when to try again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from prowess_host.workers.queue import FairQueue, Node, Path, retry_after


def anything(_: object) -> bool:
    return True


def taken(queue: FairQueue[str], places: int, *, ready: Callable[[str], bool] = anything) -> list[str]:
    found: list[str] = []
    while (next_one := queue.take(places, ready)) is not None:
        found.append(next_one[0])
    return found


def queue_of(*items: tuple[Path, str]) -> FairQueue[str]:
    queue = FairQueue[str](0.0)
    for path, item in items:
        queue.put(path, item)
    return queue


def test_one_call_of_a_quiet_client_waits_for_one_place():
    """However many calls of another client wait, and however many of those run."""
    queue = queue_of(*((("loud", "x"), f"loud {number}") for number in range(1000)))
    (_, place), *others = [queue.take(4, anything) or ("", Node()) for _ in range(4)]
    assert ["loud 1", "loud 2", "loud 3"] == [item for item, _ in others]
    queue.put(("quiet", "y"), "quiet")

    queue.end(place)

    assert ["quiet"] == taken(queue, 4)


def test_places_are_shared_level_by_level():
    """Two callers share half and half, whatever number of clients one of them has, and so do commands of one client."""
    ones = [(("one", str(client), "x"), f"one {client}") for client in range(8) for _ in range(1)]
    twos = [(("two", "0", "x"), f"two x {number}") for number in range(8)]
    more = [(("two", "0", "y"), f"two y {number}") for number in range(8)]

    found = taken(queue_of(*ones, *twos, *more), 8)

    assert 4 == sum(item.startswith("one") for item in found)
    assert 2 == sum(item.startswith("two x") for item in found)
    assert len({item for item in found if item.startswith("one")}) == 4


def test_calls_of_one_command_keep_their_order():
    """First come, first served, where nobody else is concerned."""
    assert list("abc") == taken(queue_of(*((("one", "x"), item) for item in "abc")), 3)


def test_what_is_not_ready_holds_up_only_its_own_command():
    """A command at its limit of calls at once lets others pass."""
    queue = queue_of((("one", "limited"), "a"), (("one", "limited"), "b"), (("one", "free"), "c"))

    assert ["c"] == taken(queue, 9, ready=lambda item: item == "c")
    assert ["a", "b"] == taken(queue, 9)


def test_newcomers_find_a_place_beside_a_flood():
    """Of every 32 places one is not for a single caller, one more not for a single client, and one not for a single command."""
    queue = queue_of(*((("loud", "0", "x"), str(number)) for number in range(200)))

    assert 64 - 3 * 2 == len(taken(queue, 64))
    assert queue.start(("loud", "0", "x"), 64) is None
    for path in (("loud", "0", "y"), ("loud", "1", "x"), ("quiet", "0", "x")):
        assert queue.start(path, 64)


def test_few_places_have_no_reserve():
    """With two places, both are for whoever comes."""
    assert ["0", "1"] == taken(queue_of(*((("one", "0", "x"), str(number)) for number in range(9))), 2)


def test_newest_of_whoever_waits_most_is_refused():
    """So a client that keeps within its share is never refused because of another one."""
    queue = queue_of(*((("loud", "x"), f"loud {number}") for number in range(3)), (("quiet", "x"), "quiet"))

    assert ["loud 2", "loud 1"] == [queue.shed(), queue.shed()]
    assert 2 == len(queue)


def test_what_is_given_up_is_forgotten():
    """And what was never there is no news."""
    queue = queue_of((("one", "x"), "a"), (("one", "x"), "b"))

    assert queue.remove(("one", "x"), "a")
    assert not queue.remove(("one", "x"), "a")
    assert not queue.remove(("two", "x"), "a")
    assert ["b"] == list(queue)
    assert ["b"] == taken(queue, 9)
    assert (0, 1) == (len(queue), queue.running)


def test_queue_agrees_with_a_simple_model():
    """Whatever happens in whatever order: nothing is lost, doubled or counted wrongly, and no place is left free."""
    draw = Random(11)
    queue, waiting, running = FairQueue[str](0.0), dict[str, Path](), list[Node[str]]()
    for number in range(20_000):
        path = (draw.randrange(3), draw.randrange(3), draw.randrange(2))
        event = draw.random()
        if event < 0.45:
            queue.put(path, str(number))
            waiting[str(number)] = path
        elif event < 0.5 and waiting:
            item = draw.choice(list(waiting))
            assert queue.remove(waiting.pop(item), item)
        elif event < 0.52 and waiting:
            del waiting[queue.shed()]
        elif running:
            queue.end(running.pop(draw.randrange(len(running))))
        while (found := queue.take(10, anything)) is not None:
            assert waiting.pop(found[0])
            running.append(found[1])
        assert (len(waiting), len(running)) == (len(queue), queue.running)
        assert not waiting or len(running) == 10
    for item, path in waiting.items():
        assert queue.remove(path, item)
    for place in running:
        queue.end(place)
    assert (0, 0, []) == (len(queue), queue.running, list(queue))


@pytest.mark.parametrize(
    "ahead, running, ended, seconds, expected",
    [
        (100, 10, 1000, 10.0, 1),  # 100 a second
        (1000, 10, 1000, 10.0, 10),
        (40, 10, 0, 2.0, 8),  # nothing has ended in 2 s: those ten take 2 s each at least
        (10, 1, 5, 10.0, 20),
        (1_000_000, 1, 5, 10.0, 60),
        (0, 0, 0, 0.0, 1),
    ],
)
def test_estimate_follows_how_fast_calls_end(ahead: int, running: int, ended: int, seconds: float, expected: int):
    """In whole seconds, from one to sixty."""
    assert expected == retry_after(ahead, running, ended, seconds)


def test_estimate_forgets_what_was_long_ago():
    """A burst an hour ago says little about now."""
    queue = queue_of((("one", "x"), "a"))
    for _ in range(3600):
        queue.end(queue.start(("one", "y")) or Node())
    for number in range(400):
        queue.put(("one", "x"), str(number))

    assert 1 < queue.retry_after(70.0)
    assert queue.retry_after(70.0) == 8


def test_what_has_had_a_place_already_goes_to_the_front_of_its_line() -> None:
    """A call that moves because its worker ended."""
    queue: FairQueue[str] = FairQueue(0.0)
    for item in ("first", "second"):
        queue.put(("ada",), item)
    queue.put(("ada",), "moved", first=True)
    assert ["moved", "first", "second"] == [queue.take(10, lambda _: True)[0] for _ in range(3)]
