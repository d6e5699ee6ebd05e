"""What the three formats of configuration files share: errors with a place, and how a text is indented. Pure text."""

from __future__ import annotations

from prowess.errors import ProwessError

__all__ = ["Unreadable", "indentation_of", "line_of", "newline_of"]


class Unreadable(ProwessError):
    """A text cannot be read, or cannot be edited without harm: why, and in which line."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


def line_of(text: str, offset: int) -> int:
    """The number of the line that an offset is in, from 1."""
    return text.count("\n", 0, offset) + 1


def newline_of(text: str) -> str:
    """How the lines of a text end, by its first one."""
    end = text.find("\n")
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def indentation_of(text: str, offset: int) -> str:
    """The white space at the beginning of the line that an offset is in."""
    start = text.rfind("\n", 0, offset) + 1
    line = text[start:offset] if offset > start else text[start:]
    return line[: len(line) - len(line.lstrip(" \t"))]
