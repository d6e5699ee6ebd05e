"""Shows the progress of a call on a terminal: a spinner, then a bar once the command reports a total.

rich is imported when a call takes longer than a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, Self

from prowess_host.cli.terminal import Style, console
from prowess_host.stderr import complaints

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["LiveCall"]

_SOON: Final = 0.4
"""Seconds before something is shown."""
_LOOKS: Final = {"debug": ("dim",), "warning": ("yellow",), "error": ("red",), "critical": ("red",)}


class LiveCall:
    """Shows a running call on stderr. `moves` says whether there is a terminal to draw on."""

    def __init__(self, command: str, *, moves: bool) -> None:
        self._command = command
        self._moves = moves
        self._drawn: Progress | None = None
        self._task: TaskID | None = None
        self._state: tuple[float | None, float | None, str] = None, None, ""
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        """Start the timer."""
        if self._moves:
            self._timer = asyncio.get_running_loop().call_later(_SOON, self._draw)
        return self

    def __exit__(self, *_: object) -> None:
        """Clear the line."""
        self._clear()

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Show the progress that the command reports."""
        self._state = done, total, message or ""
        self._update()

    def log(self, level: str, data: Any) -> None:
        """Print a log message of the command."""
        text = f"{level}: {data}"
        if self._drawn is not None:
            self._drawn.console.print(text, style=" ".join(_LOOKS.get(level, ())), markup=False, highlight=False)
        else:
            stream = sys.stderr if self._moves else complaints()  # which waits for no reader
            print(Style.of(sys.stderr)(text, *_LOOKS.get(level, ())), file=stream)

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Pause while something else draws on the terminal. If that is cancelled, the call is at its end."""
        self._clear()
        yield
        if self._moves:
            self._draw()

    def _clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._drawn is not None:
            complaints().instead = None
            self._drawn.stop()
            self._drawn = None

    def _draw(self) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        self._drawn = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=console(stderr=True),
            transient=True,
        )
        self._task = self._drawn.add_task(self._command, total=None)
        self._drawn.start()
        complaints().instead = sys.stderr.write  # rich has replaced it, and writes above what is drawn
        self._update()

    def _update(self) -> None:
        done, total, message = self._state
        if self._drawn is None or self._task is None or done is None:
            return
        count = f"{done:g}/{total:g}" if total else f"{done:g}"
        text = " ".join(filter(None, (self._command, count, message)))
        self._drawn.update(self._task, description=text, completed=done, total=total)
