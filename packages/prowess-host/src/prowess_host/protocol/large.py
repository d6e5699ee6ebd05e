"""Reads the arguments of a large request with the parser of pydantic-core, which is several times faster with long texts.

Everything that this parser handles differently from Python's (lone surrogates, numbers that are too large) is left to the
usual way, which reports it. So both ways give the same message.
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
"""The size in bytes from which importing pydantic-core (10 ms, once) pays off."""
_END: Final = 4096
_MOST_ENDS: Final = 16
"""The number of last brackets, and of last bytes, among which the end of the arguments is searched."""
_ARGUMENTS: Final = re.compile(rb'"arguments"[ \t\r\n]*:[ \t\r\n]*(?=\{)')
_SAMPLE: Final = 16 * 1024
_MOST_MEMBERS: Final = 64
"""Members of objects in a sample. With more of them, the search for infinities costs more than the parser saves."""
_HOLE: Final = os.urandom(16).hex()


class LargeRequest(NamedTuple):
    """A message whose `params.arguments` is an object."""

    value: Any
    arguments: bytes
    """The bytes of that object."""
    rest: bytes
    """The message with a placeholder instead of the arguments."""


def read_large(line: bytes, parse: Callable[[str], Any]) -> LargeRequest | None:
    """The message on a line; `None` without arguments, or with unusual ones.

    `parse` reads the message around the arguments, with a placeholder in their place, which proves that the place was right.
    """
    place = _ARGUMENTS.search(line)
    if place is None or _has_many_members(line):
        return None
    if 0 < sys.get_int_max_str_digits() < MOST_DIGITS:  # the other parser has its own limit
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
    """Whether a number is too large for Python. The parser returns infinity for it."""
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
