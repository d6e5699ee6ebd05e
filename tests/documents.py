"""Reads the code blocks of a Markdown document, for the tests that follow a document step by step."""

from __future__ import annotations

import doctest
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["FLAGS", "Block", "blocks", "steps"]

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")
NOT_RUN = re.compile(r"^\s*<!-- not run: \S.*-->\s*$")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and options, the line of its first line of code, and the code."""

    language: str
    options: tuple[str, ...]
    line: int
    text: str
    before: str
    """The paragraph before the block."""

    @property
    def title(self) -> str | None:
        return next((option.removeprefix("title=") for option in self.options if option.startswith("title=")), None)


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a Markdown text, without those that are not run."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        number += 1
        if not opening:
            continue
        start = number
        while number < len(lines) and not is_closing(lines[number], opening["ticks"]):
            number += 1
        language, *options = shlex.split(opening["info"]) or [""]
        if not (start > 1 and NOT_RUN.match(lines[start - 2])):
            code = textwrap.dedent("\n".join(lines[start:number]) + "\n")
            yield Block(language, tuple(options), start + 1, code, paragraph_before(lines, start - 1))
        number += 1


def steps(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that the document shows."""
    for step in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        yield command, expected


def paragraph_before(lines: list[str], fence: int) -> str:
    """The text before a fence, up to the next empty line."""
    above = lines[:fence]
    while above and not above[-1].strip():
        above.pop()
    found: list[str] = []
    while above and above[-1].strip():
        found.insert(0, above.pop())
    return "\n".join(found)


def is_closing(line: str, ticks: str) -> bool:
    return line.strip().startswith(ticks) and not line.strip().strip("`")
