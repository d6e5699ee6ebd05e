"""The queue of calls without a free place, fair between callers, their clients and their commands. Pure: no clock, no loop.

Each item waits under a path, such as caller, client, command. At every level of the path, the next place goes to the entry
with the fewest places, among equals to the one that has waited longest for a turn. So the only call of a quiet client
waits for one place, however many calls of another client wait, and however long they run. The simulation of a fleet
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
"""One place in this many is out of reach for any single caller, a second one for any single client, a third one for any
single command. So a newcomer finds a place while another client floods the host. Fewer places have no reserve."""
_SHORTEST: Final = 1
_LONGEST: Final = 60
"""The limit of `retry_after`, in seconds, because the estimate may be wrong."""


def retry_after(ahead: int, running: int, ended: int, seconds: float) -> int:
    """Whole seconds until all waiting items have a place, if calls end as fast as in the last `seconds`.

    Until as many have ended as run, the running ones count as if they ended now, since they have run at least that long.
    """
    estimate = ahead * seconds / max(ended, running, 1)
    return min(max(math.ceil(estimate), _SHORTEST), _LONGEST)


def certain(places: int) -> int:
    """The number of these places that a single command of a single client can take."""
    return places - 3 * (places // _RESERVE)


class Node(Generic[T]):
    """A caller, a client or a command, with its running and waiting items."""

    __slots__ = ("_turns", "children", "items", "key", "parent", "running", "waiting")

    def __init__(self, parent: Node[T] | None = None, key: Hashable = None) -> None:
        self.parent = parent
        self.key = key
        self.running = 0
        self.waiting = 0
        self.children: dict[Hashable, Node[T]] = {}
        self._turns: dict[int, OrderedDict[Hashable, Node[T]]] = {}
        """The children with waiting items, by their number of running items, in the order of their turns."""
        self.items: OrderedDict[T, None] = OrderedDict()

    def child(self, key: Hashable) -> Node[T]:
        """The child with a key, which is made if necessary."""
        found = self.children.get(key)
        if found is None:
            found = self.children[key] = Node(self, key)
        return found

    def by_turn(self, most: int) -> Iterator[Node[T]]:
        """The children with waiting items and fewer places than `most`, those with the fewest first."""
        for running in sorted(self._turns):
            if running >= most:
                return
            yield from self._turns[running].values()

    def change(self, running: int, waiting: int) -> None:
        """Add to the counts, here and in the parents. A node whose places change becomes the last among its equals."""
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
    """The waiting items, and the places in use. `since` is the time from which it counts ended items."""

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
        """Give a newcomer a place, if none of its own items wait and a place is free for it.

        Returns the argument for `end`.
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
        """Free the place of an item that has ended or moved."""
        self._ended += 1
        leaf.change(-1, 0)

    # The queue

    def put(self, path: Path, item: T, *, first: bool = False) -> None:
        """Add a waiting item: the last of its line, or the `first` if it has had a place already."""
        leaf = self._leaf(path)
        leaf.items[item] = None
        if first:
            leaf.items.move_to_end(item, last=False)
        leaf.change(0, 1)

    def remove(self, path: Path, item: T) -> bool:
        """Remove a waiting item. Returns whether it was there."""
        node: Node[T] | None = self._root
        for key in path:
            node = node and node.children.get(key)
        if node is None or item not in node.items:
            return False
        del node.items[item]
        node.change(0, -1)
        return True

    def take(self, places: int, ready: Callable[[T], bool]) -> tuple[T, Node[T]] | None:
        """Take the next item out, with its place for `end`.

        `None` if no place is free, or no waiting item is `ready`.
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
        """Remove and return the newest item of the entry with the most waiting items."""
        node = self._root
        while not node.items:
            node = max(node.children.values(), key=lambda each: each.waiting)
        item, _ = node.items.popitem()
        node.change(0, -1)
        return item

    def retry_after(self, now: float) -> int:
        """Seconds after which a refused client should try again."""
        seconds = now - self._since
        estimate = retry_after(len(self), self.running, self._ended, seconds)
        if self._ended > self.running and seconds > _LONGEST:  # older calls count less
            self._ended //= 2
            self._since = now - seconds / 2
        return estimate

    def _leaf(self, path: Path) -> Node[T]:
        node = self._root
        for key in path:
            node = node.child(key)
        return node


def _next(node: Node[T], most: int, reserve: int, ready: Callable[[T], bool]) -> Node[T] | None:
    """The leaf with the next turn."""
    if node.items:
        return node if ready(next(iter(node.items))) else None
    for child in node.by_turn(most - reserve):
        found = _next(child, most - reserve, reserve, ready)
        if found is not None:
            return found
    return None
