"""Edits JSON with comments and trailing commas, and changes no other byte.

A tolerant reader records the position of each member, and an edit is a splice of the text. Comments, order, indentation,
line ends and a trailing comma stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from prowess_host.clients.text_edits import Unreadable, indentation_of, line_of, nested, newline_of

__all__ = ["drop", "parse", "put"]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_SAME_LINE: Final = re.compile(r"(?:[ \t]+|/\*[^\n]*?\*/)*(?://[^\n\r]*)?(?=\r?\n|\Z)")
"""White space and comments after a member, up to the end of the line. They belong to the member."""
_STRING: Final = re.compile(r'"(?:[^"\\\n\r]|\\.)*"')
_WORD: Final = re.compile(r"[^\s,:\[\]{}\"/]+")
_INDENTED: Final = re.compile(r"\n([ \t]+)\S")
_USUAL_INDENT: Final = "  "
_DEEPEST: Final = 200


def parse(text: str) -> Any:
    """The data of a text; an empty one is an empty object. Raises `Unreadable`."""
    return _read(text).value


def put(text: str, path: Sequence[str], value: Any) -> str:
    """The text with a value at a path. Objects are merged member by member, so that only differences are written."""
    root = _read(text)
    if root.is_missing:
        return _document(text, nested(path, value))
    node = root
    for depth, name in enumerate(path):
        if node.members is None:
            raise Unreadable(line_of(text, node.start), _not_object(path[:depth]))
        member = node.member(name)
        if member is None:
            return _inserted(text, node, name, nested(path[depth + 1 :], value))
        node = member.value
    return _merged(text, node, path, value)


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the member at a path; unchanged if there is none."""
    node = _read(text)
    for name in path[:-1]:
        member = node.member(name)
        if member is None:
            return text
        node = member.value
    member = node.member(path[-1])
    return text if member is None else _removed(text, node, member)


# --- reading --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """A value and its position."""

    start: int
    end: int
    value: Any
    members: list[_Member] | None = None
    """The members of an object; `None` for other values."""
    is_missing: bool = False
    """The text has no value."""

    def member(self, name: str) -> _Member | None:
        """The member with a name; the last one if there are several."""
        return next((each for each in reversed(self.members or ()) if each.name == name), None)


@dataclass(slots=True)
class _Member:
    name: str
    start: int
    value: _Node
    comma: int | None = field(default=None)
    """The position of the comma after it, if there is one."""

    @property
    def end(self) -> int:
        return self.value.end if self.comma is None else self.comma + 1


def _read(text: str) -> _Node:
    reader = _Reader(text)
    reader.skip()
    if reader.at == len(text):
        return _Node(reader.at, reader.at, {}, [], is_missing=True)
    node = reader.value()
    reader.skip()
    if reader.at < len(text):
        raise reader.wrong("the end of the file was expected")
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._depth = 0

    def wrong(self, reason: str) -> Unreadable:
        found = self.text[self.at : self.at + 1]
        shown = f", not {json.dumps(found, ensure_ascii=False)}" if found else ", not the end of the file"
        return Unreadable(line_of(self.text, self.at), reason + shown)

    def skip(self) -> None:
        if found := _BLANK.match(self.text, self.at):
            self.at = found.end()
        if self.text.startswith("/*", self.at):
            raise Unreadable(line_of(self.text, self.at), "the comment is never closed: write */ at its end")

    def take(self, character: str) -> bool:
        self.skip()
        if not self.text.startswith(character, self.at):
            return False
        self.at += 1
        return True

    def value(self) -> _Node:
        self.skip()
        start = self.at
        if self._depth > _DEEPEST:
            raise Unreadable(line_of(self.text, start), f"more than {_DEEPEST} levels of objects and lists")
        self._depth += 1
        if self.take("{"):
            members = self._members()
            node = _Node(start, self.at, {each.name: each.value.value for each in members}, members)
        elif self.take("["):
            items = self._items()
            node = _Node(start, self.at, items)
        else:
            value = self._scalar()
            node = _Node(start, self.at, value)
        self._depth -= 1
        return node

    def _members(self) -> list[_Member]:
        members: list[_Member] = []
        while not self.take("}"):
            if members and members[-1].comma is None:
                raise self.wrong("a comma or } was expected")
            start = self.at
            name = self._string("a name in double quotes was expected")
            if not self.take(":"):
                raise self.wrong(f"a colon was expected after {json.dumps(name)}")
            member = _Member(name, start, self.value())
            if self.take(","):
                member.comma = self.at - 1
            members.append(member)
        return members

    def _items(self) -> list[Any]:
        items: list[Any] = []
        more = True
        while not self.take("]"):
            if not more:
                raise self.wrong("a comma or ] was expected")
            items.append(self.value().value)
            more = self.take(",")
        return items

    def _string(self, expected: str) -> str:
        self.skip()
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise self.wrong(expected)
        try:
            read = json.loads(found[0], strict=False)
        except ValueError as error:
            raise Unreadable(line_of(self.text, self.at), f"a string that is not valid JSON: {error}") from None
        self.at = found.end()
        return read

    def _scalar(self) -> Any:
        if self.text.startswith('"', self.at):
            return self._string("a string that ends in its line was expected")
        found = _WORD.match(self.text, self.at)
        try:
            read = json.loads(found[0] if found else "")
        except ValueError:
            raise self.wrong("a value was expected") from None
        self.at = found.end() if found else self.at
        return read


# --- writing --------------------------------------------------------------------------------------


def _not_object(path: Sequence[str]) -> str:
    where = json.dumps(".".join(path)) if path else "the whole file"
    return f"{where} must be an object in braces"


def _document(text: str, value: Any) -> str:
    """A text with only comments, with a value added."""
    newline = newline_of(text)
    start = text if not text or text.endswith("\n") else text + newline
    return start + _rendered(value, "", _USUAL_INDENT, newline) + newline


def _rendered(value: Any, base: str, unit: str, newline: str) -> str:
    """A value as JSON; its first line is already indented."""
    text = json.dumps(value, indent=unit, ensure_ascii=False)
    return text.replace("\n", newline + base)


def _merged(text: str, node: _Node, path: Sequence[str], value: Any) -> str:
    """The text with a value replaced."""
    if node.value == value and type(node.value) is type(value):
        return text
    if node.members and isinstance(value, Mapping):
        for name, item in cast("Mapping[str, Any]", value).items():
            text = put(text, [*path, name], item)
        for name in [each.name for each in node.members if each.name not in value]:
            text = drop(text, [*path, name])
        return text
    base = indentation_of(text, node.start)
    fresh = (
        json.dumps(value, ensure_ascii=False)
        if _is_compact(text, node, value)
        else _rendered(value, base, _unit(text), newline_of(text))
    )
    return text[: node.start] + fresh + text[node.end :]


def _is_compact(text: str, node: _Node, value: Any) -> bool:
    """Whether a list was on one line and stays there."""
    return isinstance(value, list) and isinstance(node.value, list) and "\n" not in text[node.start : node.end]


def _unit(text: str) -> str:
    """One step of indentation, taken from the first indented line."""
    found = _INDENTED.search(text)
    return found[1] if found else _USUAL_INDENT


def _inserted(text: str, node: _Node, name: str, value: Any) -> str:
    """The text with a member added at the end of an object."""
    members = node.members or []
    if members and "\n" not in text[node.start : node.end]:
        return _inserted_inline(text, members[-1], name, value)
    newline, unit = newline_of(text), _unit(text)
    if not members:
        return _first(text, node, name, value)
    last = members[-1]
    base = indentation_of(text, last.start)
    at = _behind(text, last)
    comma = "," if last.comma is not None else ""
    member = f"{newline}{base}{json.dumps(name, ensure_ascii=False)}: {_rendered(value, base, unit, newline)}{comma}"
    if last.comma is not None:
        return text[:at] + member + text[at:]
    return text[: last.end] + "," + text[last.end : at] + member + text[at:]


def _inserted_inline(text: str, last: _Member, name: str, value: Any) -> str:
    gap = "" if last.comma is not None else ","
    member = f"{gap} {json.dumps(name, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
    return text[: last.end] + member + text[last.end :]


def _first(text: str, node: _Node, name: str, value: Any) -> str:
    """The text with the first member of an object; comments in it stay before the member."""
    newline, unit = newline_of(text), _unit(text)
    outer = indentation_of(text, node.start)
    base = outer + unit
    inside = text[node.start + 1 : node.end - 1].rstrip()
    member = f"{json.dumps(name, ensure_ascii=False)}: {_rendered(value, base, unit, newline)}"
    return f"{text[: node.start]}{{{inside}{newline}{base}{member}{newline}{outer}}}{text[node.end :]}"


def _behind(text: str, member: _Member) -> int:
    """The end of the line of a member, after its comma and comments; else the end of the member."""
    found = _SAME_LINE.match(text, member.end)
    return found.end() if found else member.end


def _removed(text: str, node: _Node, member: _Member) -> str:
    """The text without a member, its line, and a comma that has become the last one."""
    members = node.members or []
    place = members.index(member)
    if len(members) == 1:
        return _emptied(text, node, member)
    if place < len(members) - 1:
        return _removed_before(text, member, members[place + 1])
    before = members[place - 1]
    at = _behind(text, before)
    if at > member.start:  # on one line
        at = before.end
    cut = text[:at] + text[_behind(text, member) if "\n" in text[at : member.start] else member.end :]
    if member.comma is None and before.comma is not None:
        cut = cut[: before.comma] + cut[before.comma + 1 :]
    return cut


def _removed_before(text: str, member: _Member, following: _Member) -> str:
    start = text.rfind("\n", 0, member.start) + 1
    if text[start : member.start].strip():
        return text[: member.start] + text[following.start :]
    end = _behind(text, member)
    return (
        text[:start] + text[text.find("\n", end) + 1 :]
        if "\n" in text[end : following.start]
        else (text[: member.start] + text[following.start :])
    )


def _emptied(text: str, node: _Node, member: _Member) -> str:
    """The text without the only member. The object closes on the same line unless it has comments."""
    inside = text[node.start + 1 : member.start].rstrip() + text[member.end : node.end - 1].rstrip()
    if not inside.strip():
        return text[: node.start] + "{}" + text[node.end :]
    closing = newline_of(text) + indentation_of(text, node.end - 1)
    return text[: node.start] + "{" + inside + closing + text[node.end - 1 :]
