"""Finds numbers that JSON allows or Python reads, but that cannot be passed on: NaN, infinities, and integers with too many digits."""

from __future__ import annotations

import json
import sys
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

__all__ = ["MOST_DIGITS", "OddNumber", "number_problems", "read_integer"]

MOST_DIGITS: Final = 4300
"""Digits of the longest integer that is read, which is Python's own default: time grows with their square."""
_MOST_PROBLEMS: Final = 5


class OddNumber(float):
    """A number that could not be parsed. Encoders refuse it, because it is not finite."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> Self:
        """Keep the text of the number."""
        made = super().__new__(cls, "nan")
        made.text = text
        return made

    text: str


def read_integer(text: str) -> int | OddNumber:
    """Parse an integer, or keep it as an `OddNumber`."""
    limit = sys.get_int_max_str_digits() or MOST_DIGITS
    return int(text) if len(text.lstrip("-")) <= limit else OddNumber(text)


def number_problems(value: Any, path: str = "") -> list[str]:
    """The invalid numbers in JSON data, one line for each of the first few."""
    lines: list[str] = []
    for place, number in _odd_numbers(value, path):
        if len(lines) == _MOST_PROBLEMS:
            return [*lines, "and more like these"]
        lines.append(f"{place}: {_problem(number)}")
    return lines


def _problem(number: float) -> str:
    text = getattr(number, "text", "")
    if text.lstrip("-").isdigit():
        digits = len(text.lstrip("-"))
        return f"expected an integer of fewer digits, got one of {digits}; send it as a string if its digits matter"
    if text:
        return f"expected a finite number, got {text}, which is not JSON"
    return "expected a number that fits into 64 bits, got one that is too large"


def _odd_numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Search without recursion, because the data may be nested deeper than Python's call stack allows."""
    waiting: list[tuple[str, Any]] = [(path, value)]
    while waiting:
        place, held = waiting.pop()
        if isinstance(held, dict):
            items = cast("dict[str, Any]", held).items()
            waiting.extend([(_below(place, name), item) for name, item in items][::-1])
        elif isinstance(held, list):
            items = enumerate(cast("list[Any]", held))
            waiting.extend([(f"{place}[{index}]", item) for index, item in items][::-1])
        elif isinstance(held, float) and not isfinite(held):
            yield place, held


def _below(place: str, name: str) -> str:
    if name.isidentifier():
        return f"{place}.{name}" if place else name
    return f"{place}[{json.dumps(name)}]"
