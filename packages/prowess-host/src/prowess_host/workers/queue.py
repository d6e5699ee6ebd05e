"""The queue of what finds no free place: fair between callers, their clients and their commands. Pure: no clock, no loop.

Each item waits under a path, such as caller, client, command. At every level of the path the next place goes to whoever
has the fewest places now, and among equals to whoever has waited longest for a turn. So one call of a quiet client waits
for one place, however many calls of another one wait, and however long those run. The simulation of a fleet
(`tests/simulation`) runs this code.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeAlias, TypeVar

__all__ = ["FairQueue", "Node", "Path", "certain", "retry_after"]

T = TypeVar("T", bound=Hashable)
Path: TypeAlias = tuple[Hashable, ...]

_RESERVE: Final = 32
"""One place in so many is out of reach for any single caller, a second one for any single client, a third one for any
single command. So a newcomer finds a place although somebody floods the host. Small numbers of places have no reserve."""
_SHORTEST: Final = 1
_LONGEST: Final = 60
"""Bounds of `retry_after`, in seconds: a wrong estimate must cost neither the host nor the client too much."""


def retry_after(ahead: int, running: int, ended: int, seconds: float) -> int:
    """Whole seconds until what waits now has got a place, if work goes on to end as fast as in the last `seconds`.

    Until as many have ended as run, those that run count as if they ended now: they have run that long at least.
    """
    estimate = ahead * seconds / max(ended, running, 1)
    return min(max(math.ceil(estimate), _SHORTEST), _LONGEST)


def certain(places: int) -> int:
    """How many of these places nobody is kept from taking alone: a single command of a single client gets so many."""
    return places - 3 * (places // _RESERVE)


class Node(Generic[T]):
    """A caller, a client or a command: how much of it runs, and what of it waits."""

    __slots__ = ("_turns", "children", "items", "key", "parent", "running", "waiting")

    def __init__(self, parent: Node[T] | None = None, key: Hashable = None) -> None:
        self.parent = parent
        self.key = key
        self.running = 0
        self.waiting = 0
        self.children: dict[Hashable, Node[T]] = {}
        self._turns: dict[int, OrderedDict[Hashable, Node[T]]] = {}
        """The children for which something waits, by how many of theirs run, in the order of their turns."""
        self.items: OrderedDict[T, None] = OrderedDict()

    def child(self, key: Hashable) -> Node[T]:
        """The child with a key, made where it is new."""
        found = self.children.get(key)
        if found is None:
            found = self.children[key] = Node(self, key)
        return found

    def by_turn(self, most: int) -> Iterator[Node[T]]:
        """The children for which something waits, those with the fewest places first, as far as they have less than `most`."""
        for running in sorted(self._turns):
            if running >= most:
                return
            yield from self._turns[running].values()

    def change(self, running: int, waiting: int) -> None:
        """Count, here and in the parents. What changes its number of places stands last among those with as many."""
        node, parent = self, self.parent
        while parent is not None:
            if node.waiting:
                turns = parent._turns  # noqa: SLF001 - of this class
                stands = turns[node.running]
                del stands[node.key]
                if not stands:
                    del turns[node.running]
            node.running += running
            node.waiting += waiting
            if node.waiting:
                parent._turns.setdefault(node.running, OrderedDict())[node.key] = node  # noqa: SLF001 - as above
            elif not node.running:
                del parent.children[node.key]
            node, parent = parent, parent.parent
        node.running += running
        node.waiting += waiting


class FairQueue(Generic[T]):
    """What waits, and who has how many of the places. `since` is the time from which on it counts what ends."""

    def __init__(self, since: float) -> None:
        self._root: Node[T] = Node()
        self._since = since
        self._ended = 0

    def __len__(self) -> int:
        return self._root.waiting

    @property
    def running(self) -> int:
        """The number of places in use."""
        return self._root.running

    def __iter__(self) -> Iterator[T]:
        nodes = [self._root]
        for node in nodes:
            nodes.extend(node.children.values())
            yield from node.items

    # Places

    def start(self, path: Path, places: float = math.inf) -> Node[T] | None:
        """Give a newcomer a place, if nothing of its own waits and there is a place that it may have.

        Gives what `end` takes.
        """
        node, most, reserve = self._root, places, places // _RESERVE
        if node.running >= most:
            return None
        for key in path:
            found = node.children.get(key)
            if found is None:
                node = self._leaf(path)
                break
            node, most = found, most - reserve
            if node.running >= most:
                return None
        if node.items:
            return None
        node.change(1, 0)
        return node

    def end(self, leaf: Node[T]) -> None:
        """One of them has ended, or gone elsewhere."""
        self._ended += 1
        leaf.change(-1, 0)

    # The queue

    def put(self, path: Path, item: T) -> None:
        """Let an item wait."""
        leaf = self._leaf(path)
        leaf.items[item] = None
        leaf.change(0, 1)

    def remove(self, path: Path, item: T) -> bool:
        """Take an item out, because nobody waits for it any more. Returns whether it was there."""
        node: Node[T] | None = self._root
        for key in path:
            node = node and node.children.get(key)
        if node is None or item not in node.items:
            return False
        del node.items[item]
        node.change(0, -1)
        return True

    def take(self, places: int, ready: Callable[[T], bool]) -> tuple[T, Node[T]] | None:
        """The next item, with the place that it has from now on, for `end`.

        `None` where no place is free, or nothing that waits is `ready`.
        """
        if self._root.running >= places or not self._root.waiting:
            return None
        leaf = _next(self._root, places, places // _RESERVE, ready)
        if leaf is None:
            return None
        item, _ = leaf.items.popitem(last=False)
        leaf.change(1, -1)
        return item, leaf

    def shed(self) -> T:
        """Take out the newest item of whoever has most waiting: that makes room for somebody else's."""
        node = self._root
        while not node.items:
            node = max(node.children.values(), key=lambda each: each.waiting)
        item, _ = node.items.popitem()
        node.change(0, -1)
        return item

    def retry_after(self, now: float) -> int:
        """Seconds after which somebody who was refused should try again."""
        seconds = now - self._since
        estimate = retry_after(len(self), self.running, self._ended, seconds)
        if self._ended > self.running and seconds > _LONGEST:  # what is long ago counts less and less
            self._ended //= 2
            self._since = now - seconds / 2
        return estimate

    def _leaf(self, path: Path) -> Node[T]:
        node = self._root
        for key in path:
            node = node.child(key)
        return node


def _next(node: Node[T], most: int, reserve: int, ready: Callable[[T], bool]) -> Node[T] | None:
    """The leaf whose turn it is."""
    if node.items:
        return node if ready(next(iter(node.items))) else None
    for child in node.by_turn(most - reserve):
        found = _next(child, most - reserve, reserve, ready)
        if found is not None:
            return found
    return None
