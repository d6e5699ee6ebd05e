"""Parses docstrings into plain data: the text, its summary and the descriptions of parameters.

Understands the Google, NumPy and Sphinx styles and the dash list `- name: type - text`. Parameter sections are left out of
the text, because clients show them in the schema; all other sections (Returns, Raises, Examples, ...) stay. A section is
left out only if the parser understood all of it, so no word of the author gets lost.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import field
from typing import NamedTuple

from prowess.frozen import frozen
from prowess.patterns import lazy_pattern

__all__ = ["Docstring", "parse"]

_PARAMETER_SECTION = lazy_pattern(
    r"(arg(ument)?s|param(eter)?s|(keyword|other) (arg(ument)?s|param(eter)?s))", re.IGNORECASE
)
_OTHER_SECTION = lazy_pattern(
    r"attention|attributes|caution|danger|deprecated|errors?|examples?|hint|important|methods|notes?|raises|references|"
    r"returns?|see also|tips?|todo|warnings?|warns|yields?",
    re.IGNORECASE,
)

_NAME = r"[`*\\]*[^\W\d]\w*`?"
_NAMES = rf"(?P<names>{_NAME}(?:\s*,\s*{_NAME})*)"
_TYPE = r"(?:\s*\(.*?\))?"
_HEADER = lazy_pattern(r"([^\W\d][\w ]*?)\s*:\s*")
_UNDERLINE = lazy_pattern(r"(-{3,}|={3,})\s*")
_BULLET = lazy_pattern(r"[-*+•]\s+")
_GOOGLE = lazy_pattern(rf"{_NAMES}{_TYPE}\s*:(?:\s+(?P<text>.*))?")
_DASHED = lazy_pattern(rf"[-*+•]\s+{_NAMES}{_TYPE}(?:\s*:(?=\s|$)|\s+[-\u2013\u2014](?=\s))\s*(?P<text>.*)")
_NUMPY = lazy_pattern(rf"{_NAMES}(?:\s*:\s*(?P<text>.*))?")
_SPHINX = lazy_pattern(
    r":(?P<kind>param(?:eter)?|arg(?:ument)?|key(?:word)?|type)\s+(?P<names>[^:]*\w)\s*:\s*(?P<text>.*)"
)
_TYPE_END = lazy_pattern(r"\s[-\u2013\u2014]\s+")
_TYPE_WORDS = lazy_pattern(r"[\w.]+(?:(?:\s*[|,]\s*|\s+or\s+)[\w.]+)*(?:\s*=\s*\S+)?")
_IN_BRACKETS = lazy_pattern(r"\[[^\[\]]*\]")


@frozen
class Docstring:
    """A parsed docstring: `text` and `summary` of the function, and its `parameters`."""

    text: str = ""
    summary: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


class _Entry(NamedTuple):
    names: list[str]
    lines: list[str]


class _Block(NamedTuple):
    """A parameter section: its end, its entries, and whether all of it was parsed."""

    end: int
    entries: list[_Entry]
    understood: bool = True


def parse(doc: str | None) -> Docstring:
    """Parse a docstring in any of the known styles, or in a mixture. Never raises."""
    if not isinstance(doc, str):
        return Docstring()
    lines = inspect.cleandoc(doc).split("\n")
    kept: list[str] = []
    parameters: dict[str, str] = {}
    index = 0
    while index < len(lines):
        block = _google(lines, index) or _numpy(lines, index) or _sphinx(lines, index)
        if block is None:
            kept.append(lines[index])
            index += 1
            continue
        _collect(block.entries, parameters)
        if block.understood:
            index = _skip_blank(lines, block.end) if _ends_blank(kept) else block.end
        else:
            kept.extend(lines[index : block.end])
            index = block.end
    text = "\n".join(kept).strip()
    return Docstring(text, _summary(text), parameters)


def _collect(entries: Iterable[_Entry], parameters: dict[str, str]) -> None:
    """Add the descriptions of entries. The first non-empty one of a parameter wins."""
    for entry in entries:
        description = _joined(entry.lines)
        for name in entry.names:
            if description:
                parameters.setdefault(name, description)


# --- Google, and the dash list --------------------------------------------------------------------


def _google(lines: list[str], start: int) -> _Block | None:
    """The section whose header (`Args:`) is at `start`.

    Entries are indented deeper than the header. The section continues as long as there are entries if a dash list is not
    indented, or if the header is the first line of the docstring, whose indentation is unknown.
    """
    if not _is_section(lines[start], _PARAMETER_SECTION):
        return None
    first = _skip_blank(lines, start + 1)
    if first == len(lines):
        return None
    base = _indent(lines[first])
    pattern = _DASHED if _DASHED.fullmatch(lines[first].strip()) else _GOOGLE
    if base == 0 and pattern is _GOOGLE and start != 0:
        return None
    entries: list[_Entry] = []
    understood = True
    end = start + 1
    for index in range(first, len(lines)):
        line = lines[index].strip()
        if not line:
            _continue(entries, line)
            continue
        depth = _indent(lines[index])
        entry = pattern.fullmatch(line) if depth <= base else None
        if depth == 0 and (base > 0 or entry is None or _is_section(line, _OTHER_SECTION)):
            break
        end = index + 1
        if entry is not None:
            entries.append(_entry(entry, dashed=pattern is _DASHED))
        else:
            understood &= _continue(entries, line)
    return _Block(end, entries, understood) if entries else None


def _entry(found: re.Match[str], *, dashed: bool) -> _Entry:
    text = found["text"] or ""
    return _Entry(_names(found["names"]), [_without_type(text) if dashed else text])


def _without_type(text: str) -> str:
    """`int - some text` without its type; any other text as it is."""
    end = _TYPE_END.search(text)
    while end is not None:
        if _is_type(text[: end.start()]):
            return text[end.end() :]
        end = _TYPE_END.search(text, end.end())
    return text


def _is_type(text: str) -> bool:
    """Whether the text can be read as a type: `int`, `list[str] | None`, `str, optional`, `bool = False`."""
    count = 1
    while count:
        text, count = _IN_BRACKETS.subn("", text)
    return _TYPE_WORDS.fullmatch(text.strip()) is not None


# --- NumPy ----------------------------------------------------------------------------------------


def _numpy(lines: list[str], start: int) -> _Block | None:
    """The section whose underlined header is at `start`: entries are at the margin, descriptions indented."""
    if not _PARAMETER_SECTION.fullmatch(lines[start].strip()) or not _underlined(lines, start):
        return None
    entries: list[_Entry] = []
    understood = True
    end = start + 2
    for index in range(start + 2, len(lines)):
        line = lines[index].strip()
        if not line:
            _continue(entries, line)
        elif _indent(lines[index]):
            understood &= _continue(entries, line)
            end = index + 1
        elif _starts_numpy_entry(lines, index):
            entries.append(_numpy_entry(lines, index))
            end = index + 1
        else:
            break
    return _Block(end, entries, understood) if entries else None


def _starts_numpy_entry(lines: list[str], index: int) -> bool:
    """Whether a line begins an entry: `x : int` anywhere, a bare `x` only above its description."""
    line = lines[index]
    found = _NUMPY.fullmatch(line.strip())
    if found is None or _underlined(lines, index) or _is_section(line, _OTHER_SECTION):
        return False
    return found["text"] is not None or _is_indented(lines, index + 1)


def _numpy_entry(lines: list[str], index: int) -> _Entry:
    """The entry at a line. The text after the colon is a type, unless it is prose and the only description."""
    names, _, tail = lines[index].partition(":")
    prose = not _is_indented(lines, index + 1) and not _is_type(tail)
    return _Entry(_names(names), [tail.strip()] if prose else [])


def _underlined(lines: list[str], index: int) -> bool:
    return index + 1 < len(lines) and _UNDERLINE.fullmatch(lines[index + 1]) is not None


def _is_indented(lines: list[str], index: int) -> bool:
    return index < len(lines) and lines[index].strip() != "" and _indent(lines[index]) > 0


# --- Sphinx ---------------------------------------------------------------------------------------


def _sphinx(lines: list[str], start: int) -> _Block | None:
    """The field at `start`, with its indented continuation lines. A `:type:` field is dropped, because the schema has it."""
    found = _SPHINX.fullmatch(lines[start].rstrip())
    if found is None:
        return None
    entry = _Entry(_names(found["names"].split()[-1]), [found["text"]])
    end = start + 1
    for index in range(start + 1, len(lines)):
        line = lines[index].strip()
        if line and not _indent(lines[index]):
            break
        entry.lines.append(line)
        end = index + 1 if line else end
    return _Block(end, [] if found["kind"] == "type" else [entry])


# --- lines ----------------------------------------------------------------------------------------


def _names(text: str) -> list[str]:
    return [name.strip("`*\\ ") for name in text.split(",")]


def _continue(entries: list[_Entry], line: str) -> bool:
    """Add a line to the last entry, if there is one."""
    if entries:
        entries[-1].lines.append(line)
    return bool(entries)


def _is_section(line: str, names: re.Pattern[str]) -> bool:
    header = _HEADER.fullmatch(line)
    return header is not None and names.fullmatch(header[1]) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _skip_blank(lines: list[str], index: int) -> int:
    while index < len(lines) and not lines[index].strip():
        index += 1
    return index


def _ends_blank(lines: list[str]) -> bool:
    return not lines or not lines[-1].strip()


def _joined(lines: list[str]) -> str:
    """Join wrapped lines. Blank lines still separate paragraphs, and list items keep their own lines."""
    text = ""
    for line in (line.strip() for line in lines):
        if not line:
            text = text.rstrip("\n") + "\n\n"
        elif text and not text.endswith("\n"):
            text += f"\n{line}" if _BULLET.match(line) else f" {line}"
        else:
            text += line
    return text.strip()


def _summary(text: str) -> str:
    """The first line, with the following lines that continue its sentence."""
    first, *rest = text.split("\n")
    words = [first.strip()]
    for line in (line.strip() for line in rest):
        ended = words[-1].endswith((".", "!", "?", ":"))
        if ended or not line[:1].isalnum() or _HEADER.fullmatch(line):
            break
        words.append(line)
    return " ".join(words)
