"""Reads `.env` files: lines of `NAME=value`, in the dialect that Docker, Node and python-dotenv have in common.

The maintained library for this takes 15 ms to import, at every start of a host. `$NAME` inside a value is not expanded.
Values never appear in messages.
"""

from __future__ import annotations

import re

from prowess.patterns import lazy_pattern

__all__ = ["parse"]

_BLANK = lazy_pattern(r"[^\S\n]*(?:#[^\n]*)?(?:\n|\Z)")
_ASSIGNMENT = lazy_pattern(
    r"""[^\S\n]*(?:export[^\S\n]+)?(?P<name>[^\W\d]\w*)[^\S\n]*=[^\S\n]*
    (?:
        (?:'(?P<single>[^']*)' | "(?P<double>(?:[^"\\]|\\.)*)") [^\S\n]*(?:\#[^\n]*)?
        | (?P<plain>(?!['"])[^\n]*)
    )(?:\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT = lazy_pattern(r"(?:^|\s)#")
_ESCAPED = lazy_pattern(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def parse(text: str) -> tuple[dict[str, str], list[int]]:
    """The variables of a file, and the numbers of the lines that could not be read."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    values: dict[str, str] = {}
    wrong: list[int] = []
    at = 0
    while at < len(text):
        if found := _ASSIGNMENT.match(text, at):
            values[found["name"]] = _value(found)
        elif not (found := _BLANK.match(text, at)):
            wrong.append(text.count("\n", 0, at) + 1)
        at = found.end() if found else text.find("\n", at) + 1 or len(text)
    return values, wrong


def _value(found: re.Match[str]) -> str:
    if found["plain"] is not None:
        return _COMMENT.split(found["plain"], maxsplit=1)[0].strip()
    if found["single"] is not None:
        return found["single"]
    return _ESCAPED.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), found["double"])
