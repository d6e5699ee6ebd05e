"""`@frozen` makes what `@dataclass(frozen=True, slots=True)` makes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, astuple, dataclass, field, is_dataclass, replace
from typing import Any

import pytest

from prowess.frozen import frozen


@frozen
class Point:
    """With fields of every kind."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=lambda: ["new"])
    note: str = field(default="", compare=False, repr=False)


@frozen
class Nothing:
    """Without any."""


@frozen
class Named:
    """With methods of its own."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name.lower() == other.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())

    def __repr__(self) -> str:
        return self.name


def pair(decorator: Callable[[type], type]) -> type:
    """The same class, made by another decorator."""

    class Pair:
        """Of two."""

        left: int
        right: tuple[int, ...] = ()

    return decorator(Pair)


def test_instances_have_their_fields() -> None:
    """By place, by name, by default."""
    assert (1, 2, ["new"], "") == astuple(Point(1))
    assert (1, 3, [], "n") == astuple(Point(1, y=3, tags=[], note="n"))
    assert Point(1).tags is not Point(1).tags
    assert is_dataclass(Point)
    assert {"name": "a"} == asdict(Named("a"))
    assert ("x", "y", "tags", "note") == Point.__match_args__
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()  # pyright: ignore[reportCallIssue]


def test_instances_never_change() -> None:
    """But a changed copy can be made."""
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="x"):
        point.x = 2  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(FrozenInstanceError, match="x"):
        del point.x
    with pytest.raises(FrozenInstanceError):
        point.other = 2  # pyright: ignore[reportAttributeAccessIssue]
    assert not hasattr(point, "__dict__")
    assert 5 == replace(point, x=5).x


def test_instances_are_compared_by_value() -> None:
    """As far as their fields are to be compared."""
    assert Point(1, note="a") == Point(1, note="b")
    assert Point(1) != Point(2)
    assert Point(1) != (1, 2, ["new"], "")
    assert Nothing() == Nothing()
    assert {Named("a")} == {Named("A")}
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))


def test_instances_show_their_fields() -> None:
    """As far as they are to be shown."""
    assert "Point(x=1, y=2, tags=['new'])" == repr(Point(1, note="hidden"))
    assert "Nothing()" == repr(Nothing())
    assert "n" == repr(Named("n"))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_instances_can_be_copied(copied: Callable[[Any], Any]) -> None:
    """And sent."""
    point = Point(1, tags=["a"], note="kept")
    assert astuple(point) == astuple(copied(point))


def test_both_decorators_make_the_same() -> None:
    """Hashes and texts are equal, too."""
    ours, usual = pair(frozen), pair(dataclass(frozen=True, slots=True))
    assert hash(usual(1, (2,))) == hash(ours(1, (2,)))
    assert repr(usual(1, (2,))) == repr(ours(1, (2,)))
    assert usual.__slots__ == ours.__slots__
    assert usual.__init__.__qualname__ == ours.__init__.__qualname__


def test_what_it_does_not_know_is_refused() -> None:
    """Nothing is left out silently."""

    class Prepared:
        """With more to do."""

        x: int

        def __post_init__(self) -> None: ...

    class Later:
        """Set by somebody else."""

        x: int = field(init=False)

    for asking in (Prepared, Later):
        with pytest.raises(TypeError, match=r"use @dataclass\(frozen=True, slots=True\)"):
            frozen(asking)
