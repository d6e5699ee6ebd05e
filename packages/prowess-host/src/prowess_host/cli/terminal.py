"""Text for people: colours and the width of the terminal; plain text in a pipe.

rich is imported by `console()` only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO
from unicodedata import combining, east_asian_width

from prowess.contracts.visible import visible
from prowess.frozen import frozen

if TYPE_CHECKING:
    from types import FrameType

    from rich.console import Console

__all__ = [
    "Style",
    "complain",
    "console",
    "has_colours",
    "interruptible",
    "plural",
    "pretty",
    "table",
    "width",
    "wrapped",
]

_CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_PIPED_WIDTH: Final = 160
"""Columns without a terminal, for output in a file."""
_GAP: Final = "  "
_LEAST: Final = 24
_NARROWEST: Final = 4
_LOOK: Final = 0.2
"""Seconds between two looks for a Ctrl-C."""


@contextlib.contextmanager
def interruptible() -> Generator[None]:
    """Ctrl-C ends what waits for a person in here. In an event loop it would only cancel the task, after that.

    A Ctrl-C that comes just before a read blocks would go unnoticed until there is input. So a timer interrupts the read.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = signal.signal(signal.SIGALRM, _look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, timer)
        signal.signal(signal.SIGINT, before)


def _look(_number: int, _frame: FrameType | None) -> None:
    """Does nothing: before a read that was interrupted goes on, Python looks at all signals that have come."""


def has_colours(stream: TextIO) -> bool:
    """Whether to use colours: on a terminal, unless `NO_COLOR` is set or the terminal is dumb."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width(stream: TextIO) -> int:
    """The columns of the terminal, or a default without one."""
    return shutil.get_terminal_size((120, 24)).columns if stream.isatty() else _PIPED_WIDTH


@frozen
class Style:
    """Colours text, if the stream shows colours."""

    colours: bool

    @classmethod
    def of(cls, stream: TextIO) -> Style:
        """The style for a stream."""
        return cls(has_colours(stream))

    def __call__(self, text: str, *looks: str) -> str:
        """The text with these styles, for example `bold` and `red`."""
        if not self.colours or not looks or not text:
            return text
        return f"\x1b[{';'.join(_CODES[look] for look in looks)}m{text}\x1b[0m"


def pretty(data: Any) -> str:
    """JSON for people, and for programs that read what people read."""
    return json.dumps(data, indent=2, ensure_ascii=False)


def complain(message: str) -> None:
    """Print an error on stderr."""
    style = Style.of(sys.stderr)
    print(f"{style('prowess:', 'bold', 'red')} {visible(message)}", file=sys.stderr)


def console(*, stderr: bool = False) -> Console:
    """A console of rich. Its import takes about 80 ms."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    colours: Any = {} if has_colours(stream) else {"no_color": True, "highlight": False}
    return Console(stderr=stderr, width=None if stream.isatty() else _PIPED_WIDTH, **colours)


def table(
    rows: Sequence[Sequence[str]],
    columns: int,
    *,
    yields: int = 1,
    wraps: bool = False,
    looks: Iterable[Sequence[str]] = (),
    style: Style,
) -> list[str]:
    """Lay out rows in columns; the first row is the header. If they do not fit, the column `yields` becomes narrower.

    A text that is too long is cut, or continues on further lines if the table `wraps`. On a very narrow terminal it then
    stands on lines of its own, and without `wraps` the other columns are cut, too.
    """
    rows = [[visible(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(_cells(row[column]) for row in rows) for column in range(len(rows[0]))]
    others = sum(widths) - widths[yields] + len(_GAP) * (len(widths) - 1)
    widths[yields] = max(min(widths[yields], columns - others), min(widths[yields], _LEAST))
    painted = [*looks] or [()] * len(widths)
    if columns < _PIPED_WIDTH and others + widths[yields] > columns:
        if wraps:
            return _stacked(rows, columns, yields, painted, style)
        widths = _narrowed(widths, columns)
    header, *body = rows
    lines = [style(_line(header, widths), "dim")]
    for row in body:
        texts = textwrap.wrap(row[yields], widths[yields]) if wraps else []
        for number, text in enumerate(texts or [row[yields]]):
            cells = [text if column == yields else "" if number else cell for column, cell in enumerate(row)]
            lines.append(_line(cells, widths, style, painted))
    return lines


def _stacked(
    rows: Sequence[Sequence[str]], columns: int, yields: int, looks: Sequence[Sequence[str]], style: Style
) -> list[str]:
    """The table without the column `yields`, whose texts stand below their rows."""
    rest = [[cell for column, cell in enumerate(row) if column != yields] for row in rows]
    painted = [look for column, look in enumerate(looks) if column != yields]
    lines: list[str] = []
    for row, line in zip(rows, table(rest, columns, yields=len(rest[0]) - 1, looks=painted, style=style), strict=True):
        lines.append(line)
        if row is not rows[0]:
            lines += textwrap.wrap(row[yields], columns, initial_indent="    ", subsequent_indent="    ")
    return lines


def _narrowed(widths: Sequence[int], columns: int) -> list[int]:
    """The widths for a terminal that is too narrow: the last columns become narrower first, and the first one stays."""
    narrowed = [*widths]
    for column in range(len(widths) - 1, 0, -1):
        over = sum(narrowed) + len(_GAP) * (len(widths) - 1) - columns
        narrowed[column] = min(narrowed[column], max(narrowed[column] - over, _NARROWEST))
    return narrowed


def _line(
    cells: Sequence[str], widths: Sequence[int], style: Style | None = None, looks: Sequence[Sequence[str]] = ()
) -> str:
    """One line of a table, without trailing spaces."""
    fitted = [_fitted(text, size) for text, size in zip(cells, widths, strict=True)]
    while fitted and not fitted[-1].strip():
        fitted.pop()
    if fitted:
        fitted[-1] = fitted[-1].rstrip()
    if style is not None:
        fitted = [style(text, *look) for text, look in zip(fitted, looks, strict=False)]
    return _GAP.join(fitted)


def wrapped(text: str, style: Style, *looks: str, hanging: int = 2) -> list[str]:
    """Wrap a text to the width of the terminal, with its further lines indented more."""
    lines: list[str] = []
    indent = " " * (2 + hanging)
    for part in visible(text).splitlines():
        lines += textwrap.wrap(
            part,
            width(sys.stdout),
            initial_indent="  " if not lines else indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return [style(line, *looks) for line in lines]


def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _fitted(text: str, size: int) -> str:
    """The text, cut or padded to a number of columns."""
    cells = _cells(text)
    if cells <= size:
        return text + " " * (size - cells)
    kept, used = "", 0
    for letter in text:
        used += _cells(letter)
        if used > size - 1:
            break
        kept += letter
    return f"{kept}…" + " " * (size - 1 - _cells(kept))


def _cells(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)
