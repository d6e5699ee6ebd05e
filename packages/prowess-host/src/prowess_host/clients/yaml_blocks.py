"""Edits YAML whose entries are members of a mapping, like `extensions:` of Goose, and changes no other byte.

ruamel.yaml gives the position of each node, and an edit is a splice of lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from prowess_host.clients.text_edits import Unreadable, nested, newline_of

__all__ = ["drop", "parse", "put"]

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NOT_PLAIN: Final = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
_USUAL_INDENT: Final = 2


def parse(text: str) -> Any:
    """The data of a text; an empty one is an empty mapping. Raises `Unreadable`."""
    data = _guarded("load", text)
    return {} if data is None else data


def put(text: str, path: Sequence[str], value: Any) -> str:
    """The text with a value at a path: in place of the existing one, else at the end of its mapping."""
    root = _guarded("compose", text)
    newline = newline_of(text)
    if root is None:
        start = text if not text or text.endswith("\n") else text + newline
        return start + _lines(nested(path, value), 0, newline)
    node = root
    for depth, name in enumerate(path):
        _check_block(node, path[:depth])
        member = _member(node, name)
        if member is None:
            return _inserted(text, node, {name: nested(path[depth + 1 :], value)}, newline)
        key, node = member
        if depth < len(path) - 1 and _is_empty(node):
            return _replaced(text, key, node, {name: nested(path[depth + 1 :], value)}, newline)
        if depth == len(path) - 1:
            return _replaced(text, key, node, {name: value}, newline)
    raise AssertionError(path)


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the member at a path."""
    node = _guarded("compose", text)
    for name in path[:-1]:
        member = _member(node, name)
        if member is None:
            return text
        node = member[1]
    member = _member(node, path[-1])
    if member is None:
        return text
    _check_block(node, path[:-1])
    key, value = member
    if len(node.value) == 1 and len(path) > 1:
        above = _guarded("compose", text)
        for name in path[:-1]:
            key, value = cast("tuple[Any, Any]", _member(above, name))
            above = value
        return _replaced(text, key, value, {path[-2]: {}}, newline_of(text))
    lines = text.splitlines(keepends=True)
    del lines[key.start_mark.line : _last_line(value) + 1]
    return "".join(lines)


# --- reading --------------------------------------------------------------------------------------


def _guarded(method: str, text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    reader: Any = YAML(typ="safe", pure=True)
    try:
        return getattr(reader, method)(text)
    except MarkedYAMLError as error:
        marked: Any = error
        mark = marked.problem_mark or marked.context_mark
        raise Unreadable(mark.line + 1 if mark else 1, str(marked.problem or marked.context)) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise Unreadable(1, str(error).splitlines()[0] if str(error) else "no YAML") from None


def _member(node: Any, name: str) -> tuple[Any, Any] | None:
    if node is None or not node.tag.endswith(":map"):
        return None
    return next(((key, value) for key, value in node.value if key.value == name), None)


def _is_empty(node: Any) -> bool:
    return node.tag.endswith(":null") or (node.tag.endswith(":map") and not node.value)


def _check_block(node: Any, path: Sequence[str]) -> None:
    where = json.dumps(".".join(path)) if path else "the whole file"
    line = node.start_mark.line + 1
    if not node.tag.endswith(":map"):
        raise Unreadable(line, f"{where} must be a mapping")
    if node.flow_style:
        raise Unreadable(line, f"{where} is written in braces: write it as lines of its own")


def _last_line(node: Any) -> int:
    """The last line of a node, from 0, without the comments after a block, which the parser includes."""
    inside: Any = node.value
    if isinstance(inside, list) and inside and not node.flow_style:
        last = cast("list[Any]", inside)[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    line, column = node.end_mark.line, node.end_mark.column
    return line - 1 if column == 0 and line > node.start_mark.line else line


# --- writing --------------------------------------------------------------------------------------


def _inserted(text: str, node: Any, member: Mapping[str, Any], newline: str) -> str:
    """The text with a member after the last one of a mapping."""
    lines = text.splitlines(keepends=True)
    at = _last_line(node) + 1
    if at and not lines[at - 1].endswith("\n"):
        lines[at - 1] += newline
    column = node.value[0][0].start_mark.column
    return "".join([*lines[:at], _lines(member, column, newline), *lines[at:]])


def _replaced(text: str, key: Any, node: Any, member: Mapping[str, Any], newline: str) -> str:
    """The text with a member replaced."""
    lines = text.splitlines(keepends=True)
    fresh = _lines(member, key.start_mark.column, newline)
    return "".join([*lines[: key.start_mark.line], fresh, *lines[max(_last_line(node), key.start_mark.line) + 1 :]])


def _lines(value: Mapping[str, Any], column: int, newline: str) -> str:
    return "".join(f"{line}{newline}" for line in _block(value, column))


def _block(value: Mapping[str, Any], column: int) -> list[str]:
    """A mapping as lines. Strings are written as JSON, which is valid YAML."""
    gap = " " * column
    lines: list[str] = []
    for name, item in value.items():
        key = gap + _key(name)
        if isinstance(item, Mapping) and item:
            lines += [f"{key}:", *_block(cast("Mapping[str, Any]", item), column + _USUAL_INDENT)]
        elif isinstance(item, list) and item:
            items = cast("list[Any]", item)
            lines += [f"{key}:", *(f"{gap}  - {json.dumps(each, ensure_ascii=False)}" for each in items)]
        else:
            lines.append(f"{key}: {json.dumps(item, ensure_ascii=False)}")
    return lines


def _key(name: str) -> str:
    return name if _PLAIN.fullmatch(name) and name.lower() not in _NOT_PLAIN else json.dumps(name, ensure_ascii=False)
