"""Tells the syntax of newer versions of Python from mistakes, which an older Python calls invalid alike."""

from __future__ import annotations

import re
import sys
from typing import Final, NamedTuple

__all__ = ["newer_syntax"]


class _Syntax(NamedTuple):
    version: tuple[int, int]
    name: str
    line: re.Pattern[str]
    """Found in the line of the error."""
    message: re.Pattern[str] = re.compile("")
    """Found in the message of the error."""


_SYNTAXES: Final = (
    _Syntax(
        (3, 13),
        "a default of a type parameter",
        re.compile(r"^\s*(?:type|class|def|async\s+def)\s+\w+\s*\[[^\]=]*[^\]=!<>]=[^=]"),
    ),
    _Syntax((3, 12), "a `type` statement", re.compile(r"^\s*type\s+\w+\s*(?:\[.*\]\s*)?=(?!=)")),
    _Syntax(
        (3, 12),
        "a list of type parameters, like `def f[T]`",
        re.compile(r"^\s*(?:class|def|async\s+def)\s+\w+\s*\[[\s*]*\w"),
    ),
    _Syntax(
        (3, 12),
        "an f-string with its own quotes, a line break, a backslash or a comment in braces",
        re.compile(""),
        re.compile(r"^f-string(?:: unmatched|: expecting '}'|: expression expected| expression part cannot include)"),
    ),
    _Syntax(
        (3, 12),
        "an f-string with a line break in braces",
        re.compile(r"""\b[fF][rR]?(["'])[^"']*\{[^}"']*$"""),
        re.compile("^unterminated string literal"),
    ),
    _Syntax((3, 14), 'a template string, like `t"…"`', re.compile(r"""(?<![\w"'])(?:[tT][rR]?|[rR][tT])["']""")),
    _Syntax(
        (3, 14),
        "`except` with several types and no parentheses",
        re.compile(r"^\s*except\s*\*?\s*[^,:]+(?:,[^,:]+)+:"),
        re.compile("^multiple exception types must be parenthesized"),
    ),
    _Syntax((3, 15), "a lazy import", re.compile(r"^\s*lazy\s+(?:import|from)\s")),
    _Syntax(
        (3, 15),
        "unpacking in a comprehension",
        re.compile(""),
        re.compile("^(?:iterable|dict) unpacking cannot be used in (?:dict )?comprehension"),
    ),
)
"""The newest version of a line comes first."""


def newer_syntax(error: SyntaxError, version: tuple[int, ...] = sys.version_info[:2]) -> str:
    """The advice for a line that looks like the syntax of a newer Python; empty for other lines."""
    for syntax in _SYNTAXES:
        if version < syntax.version and syntax.line.search(error.text or "") and syntax.message.search(error.msg):
            needed, own = (".".join(map(str, each[:2])) for each in (syntax.version, version))
            return (
                f"{syntax.name[:1].upper()}{syntax.name[1:]} needs Python {needed}, and skills run in Python {own} "
                f"({sys.executable}): write it in the older way, or name a newer Python by the setting `python`"
            )
    return ""
