"""Finds the id of a request in a line that cannot be decoded, so that the sender gets an error and does not wait.

It scans bytes and builds no values, so nesting, huge numbers and broken text cost nothing. The work is bounded. It
returns an id only if the line is certainly one request: one closed object with a method.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prowess_host.protocol.lines import Oversized

__all__ = ["find_id", "find_id_of_oversized"]

_MOST_TOKENS: Final = 200_000
"""The most tokens to scan, which takes about 0.1 s. Longer lines are judged by their two ends."""
_END: Final = 4096

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OUTER: Final = re.compile(rb'[ \t\r\n]*+(%b|[{}\[\],:]|[^ \t\r\n"{}\[\],:]++)' % _STRING, re.DOTALL)
"""A token of the message itself."""
_INNER: Final = re.compile(rb'[^"{}\[\]]*+(%b|[{}\[\]])' % _STRING, re.DOTALL)
"""A string or bracket inside a member of the message. Everything else is skipped."""
_INTEGER: Final = re.compile(rb"-?(?:0|[1-9][0-9]{0,99})")
_LAST_MEMBERS: Final = re.compile(
    rb'[,{]\s*"id"\s*:\s*(-?[0-9]{1,100}|%b)\s*((?:,\s*"(?:jsonrpc|method)"\s*:\s*%b\s*)*)\}\s*\Z' % (_STRING, _STRING),
    re.DOTALL,
)
"""The end of an object whose last members are an id, and perhaps the version and the method."""


def find_id(line: bytes) -> int | str | None:
    """The id of the request on a line. Of repeated keys, the last one counts."""
    members, state = _members(line)
    if state == "cut":
        return _from_ends(line[:_END], line[-_END:])
    return _request_id(members) if state == "closed" else None


def find_id_of_oversized(line: Oversized) -> int | str | None:
    """The same for a line with only its two ends."""
    return _from_ends(line.head, line.tail)


def _from_ends(head: bytes, tail: bytes) -> int | str | None:
    """The id may be before or after the parameters."""
    members, _ = _members(head)
    last = _LAST_MEMBERS.search(tail)
    if last is not None:
        members[b'"id"'] = last[1]
        if b'"method"' in last[2]:
            members[b'"method"'] = b'""'
    return _request_id(members)


def _request_id(members: dict[bytes, bytes]) -> int | str | None:
    token = members.get(b'"id"', b"")
    if not members.get(b'"method"', b"").startswith(b'"'):
        return None
    if _INTEGER.fullmatch(token):
        return int(token)
    if not token.startswith(b'"'):
        return None
    try:
        text: str = json.loads(token)
        text.encode()
    except ValueError:  # not UTF-8, or with a lone surrogate
        return None
    return text


def _members(text: bytes) -> tuple[dict[bytes, bytes], str]:
    """The members of an object as tokens, and whether the text is `closed`, `broken` or `cut`.

    For a member with an object or an array, only the opening bracket is kept.
    """
    members: dict[bytes, bytes] = {}
    depth = position = 0
    key = b""
    after_colon = False
    for _ in range(_MOST_TOKENS):
        found = (_OUTER if depth < 2 else _INNER).match(text, position)
        if found is None:
            return members, "broken"
        token, position = found[1], found.end()
        if depth == 0 and token != b"{":
            return members, "broken"
        if depth == 1:
            if token == b":":
                after_colon = True
            elif after_colon:
                members[key], after_colon = token, False
            elif token.startswith(b'"'):
                key = token
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return members, "broken" if text[position:].strip() else "closed"
    return members, "cut"
