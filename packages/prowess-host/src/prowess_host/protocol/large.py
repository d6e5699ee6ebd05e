"""Reads the arguments of a large request with the parser of pydantic-core, which takes a seventh of the time for long texts.

Whatever that parser does not take as well as Python's does, from half a surrogate pair to a number that is too large, is
left to the usual way: it says what is wrong. So both ways give the same message.
"""

from __future__ import annotations

import os
import re
import sys
from math import isinf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from prowess_host.protocol.numbers import MOST_DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from prowess.jsontypes import JsonObject

__all__ = ["LARGE", "LargeRequest", "read_large"]

LARGE: Final = 256 * 1024
"""Bytes from which on this is worth importing pydantic-core, which a host does without otherwise: 10 ms, once."""
_END: Final = 4096
_MOST_ENDS: Final = 16
"""The arguments are looked for by the last so many brackets, among the last so many bytes: little follows them."""
_ARGUMENTS: Final = re.compile(rb'"arguments"[ \t\r\n]*:[ \t\r\n]*(?=\{)')
_SAMPLE: Final = 16 * 1024
_MOST_MEMBERS: Final = 64
"""Members of objects in a sample. With more of them, looking for infinities costs what the other parser saves."""
_HOLE: Final = os.urandom(16).hex()


class LargeRequest(NamedTuple):
    """A message whose `params.arguments` is an object."""

    value: Any
    arguments: bytes
    """That object, as it arrived."""
    rest: bytes
    """The message with a short text in the place of the arguments."""


def read_large(line: bytes, parse: Callable[[str], Any]) -> LargeRequest | None:
    """The message on a line; `None` where it has no arguments, or where these are not as most are.

    `parse` reads the message around the arguments. A text of our own stands in their place: it shows that the place was
    the right one, whatever else the message says.
    """
    place = _ARGUMENTS.search(line)
    if place is None or _has_many_members(line):
        return None
    if 0 < sys.get_int_max_str_digits() < MOST_DIGITS:  # the other parser goes by its own limit
        return None
    start, end = place.end(), len(line)
    for _ in range(_MOST_ENDS):
        last = line.rfind(b"}", max(start, len(line) - _END), end)
        if last < 0:
            return None
        end = last
        rest = b'%b"%b"%b' % (line[:start], _HOLE.encode(), line[last + 1 :])
        try:
            value = parse(rest.decode())
            params: JsonObject = value["params"]
            if params["arguments"] == _HOLE:
                return _with_arguments(value, line[start : last + 1], rest)
        except (ValueError, RecursionError, TypeError, KeyError, IndexError):
            continue
    return None


def _has_many_members(line: bytes) -> bool:
    middle = len(line) // 2
    return any(line.count(b'":', at, at + _SAMPLE) > _MOST_MEMBERS for at in (0, middle))


def _with_arguments(value: Any, text: bytes, rest: bytes) -> LargeRequest | None:
    from pydantic_core import from_json  # see `LARGE`

    try:
        arguments = from_json(text, allow_inf_nan=False)
    except ValueError:
        return None
    if _has_infinity(arguments):
        return None
    value["params"]["arguments"] = arguments
    return LargeRequest(value, text, rest)


def _has_infinity(value: Any) -> bool:
    """Whether there is a number that is too large for Python, which the parser gives as infinity."""
    waiting: list[Any] = [value]
    while waiting:
        held = waiting.pop()
        if isinstance(held, dict):
            waiting.extend(cast("JsonObject", held).values())
        elif isinstance(held, list):
            waiting.extend(cast("list[Any]", held))
        elif isinstance(held, float) and isinf(held):
            return True
    return False
