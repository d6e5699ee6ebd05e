"""Shared by the editors of the three file formats: errors with a line, line ends and indentation. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prowess.errors import ProwessError

__all__ = ["Unreadable", "indentation_of", "line_of", "nested", "newline_of"]


class Unreadable(ProwessError):
    """A text cannot be read, or not be edited safely: the reason and the line."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


def line_of(text: str, offset: int) -> int:
    """The number of the line of an offset, from 1."""
    return text.count("\n", 0, offset) + 1


def newline_of(text: str) -> str:
    """The line end of a text, taken from its first line."""
    end = text.find("\n")
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def indentation_of(text: str, offset: int) -> str:
    """The indentation of the line of an offset."""
    start = text.rfind("\n", 0, offset) + 1
    line = text[start:offset] if offset > start else text[start:]
    return line[: len(line) - len(line.lstrip(" \t"))]


def nested(path: Sequence[str], value: Any) -> Any:
    """Data in which the path leads to a value."""
    for name in reversed(path):
        value = {name: value}
    return value
