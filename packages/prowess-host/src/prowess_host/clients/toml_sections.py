"""Edits TOML whose entries are tables of their own, like `[mcp_servers.prowess]`, and changes no other byte.

A new table goes to the end of the file, so that it cannot split another table. The caller compares the data before and
after, and so refuses files in another form (an inline table, dotted keys).
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from prowess_host.clients.text_edits import Unreadable, newline_of

__all__ = ["drop", "parse", "put"]

_HEADER: Final = re.compile(r"[ \t]*\[(?!\[)([^\]\n]*)\][ \t]*(?:#[^\n]*)?\r?$")
_ANY_HEADER: Final = re.compile(r"[ \t]*\[")
_PART: Final = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|$)""")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_PLACE: Final = re.compile(r"\(at line (\d+)")
_MULTILINE: Final = ('"""', "'''")


def parse(text: str) -> Any:
    """The data of a text. Raises `Unreadable`."""
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        found = _PLACE.search(str(error))
        line = int(found[1]) if found else text.rstrip("\n").count("\n") + 1
        raise Unreadable(line, str(error)) from None


def put(text: str, path: Sequence[str], value: Mapping[str, Any]) -> str:
    """The text with a table at a path: in place of the existing one, else at the end."""
    newline = newline_of(text)
    section = newline.join(_table(path, value)) + newline
    spans = _spans(text, path)
    if not spans:
        start = text if not text or text.endswith("\n") else text + newline
        return start + (newline if start.strip() else "") + section
    lines = text.splitlines(keepends=True)
    for first, last in reversed(spans[1:]):
        del lines[first:last]
    first, last = spans[0]
    return "".join([*lines[:first], section, *lines[last:]])


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the table at a path and the tables below it."""
    lines = text.splitlines(keepends=True)
    for first, last in reversed(_spans(text, path)):
        if first and not lines[first - 1].strip():
            first -= 1
        elif not first and last < len(lines) and not lines[last].strip():
            last += 1
        del lines[first:last]
    return "".join(lines)


# --- finding --------------------------------------------------------------------------------------


class _Span(NamedTuple):
    """The lines of a table: from its header to its last key."""

    first: int
    end: int


def _spans(text: str, path: Sequence[str]) -> list[_Span]:
    """The tables at and below a path, each without the blank lines and comments before the next table."""
    lines = text.splitlines(keepends=True)
    headers = list(_headers(lines))
    spans: list[_Span] = []
    for (first, name), (following, _) in zip(headers, [*headers[1:], (len(lines), None)], strict=False):
        if name is not None and name[: len(path)] == tuple(path):
            end = following
            while end > first + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
                end -= 1
            if spans and not "".join(lines[spans[-1].end : first]).strip():
                first = spans.pop().first
            spans.append(_Span(first, end))
    return spans


def _headers(lines: list[str]) -> list[tuple[int, tuple[str, ...] | None]]:
    """The lines with a table header, and the name of the table; `None` for an array of tables."""
    found: list[tuple[int, tuple[str, ...] | None]] = []
    inside = ""
    for number, line in enumerate(lines):
        was_inside, inside = inside, _open_text(line, inside)
        if not was_inside and _ANY_HEADER.match(line) and not _is_item(line):
            header = _HEADER.match(line)
            found.append((number, _parts(header[1]) if header else None))
    return found


def _is_item(line: str) -> bool:
    """Whether a line that looks like a header is an item of a list, which has a comma or more text after it."""
    stripped = line.split("#", 1)[0].strip()
    return not stripped.endswith("]") or "," in stripped


def _open_text(line: str, inside: str) -> str:
    """The quotes of a multi-line string that is still open at the end of a line."""
    at = 0
    while True:
        if inside:
            end = line.find(inside, at)
            if end < 0:
                return inside
            at, inside = end + 3, ""
        starts = [(place, quotes) for quotes in _MULTILINE if (place := line.find(quotes, at)) >= 0]
        if not starts:
            return ""
        place, inside = min(starts)
        at = place + 3


def _parts(name: str) -> tuple[str, ...]:
    parts: list[str] = []
    at = 0
    while at < len(name) and (found := _PART.match(name, at)):
        quoted, literal, bare = found.groups()
        parts.append(bare if bare is not None else literal if literal is not None else _unquoted(quoted))
        at = found.end()
    return tuple(parts)


def _unquoted(quoted: str) -> str:
    try:
        return json.loads(f'"{quoted}"')
    except ValueError:
        return quoted


# --- writing --------------------------------------------------------------------------------------


def _table(path: Sequence[str], value: Mapping[str, Any]) -> list[str]:
    """The lines of a table: its plain keys first, then the tables below."""
    tables = {name: cast("Mapping[str, Any]", item) for name, item in value.items() if isinstance(item, Mapping)}
    lines = [f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(name)} = {_value(item)}" for name, item in value.items() if name not in tables]
    for name, item in tables.items():
        lines += ["", *_table([*path, name], item)]
    return lines


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return f"{{ {', '.join(f'{_key(name)} = {_value(item)}' for name, item in table.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, cast('list[Any]', value)))}]"
    return repr(value)
