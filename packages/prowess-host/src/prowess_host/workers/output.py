"""Turns the output of workers into labelled lines. Reads the records that `prowess.worker.output` writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prowess.contracts.visible import visible
from prowess.worker.output import END, LABEL_END, NUMBER_END, START

__all__ = ["LabelledLines"]

_MOST_PRINTED: Final = 64 * 1024
"""Bytes of a printed line that is passed on in one piece."""
_MOST_RECORD: Final = 8 * 1024
"""Bytes after which an unfinished record is treated as text."""
_MOST_LABELS: Final = 256
"""Unfinished lines of different labels that are kept."""


class LabelledLines:
    """Splits the output of a worker into whole lines with labels.

    Python code in a worker prints records (`prowess.worker.output`) with the label of its call. Everything between them comes
    from native code and from child processes, and gets the label of the worker.
    """

    def __init__(self, label: str, on_print: Callable[[int, bytes], None] | None = None, *, limited: str = "") -> None:
        """`on_print` gets the number of a call, and a line that it printed.

        `limited` names the skill of a limited worker: its lines get no other label, and no control characters for terminals.
        """
        self._on_print = on_print
        self._limited = limited
        self._label = label.encode("utf-8", "backslashreplace")
        self._rest = b""
        """The beginning of a record."""
        self._unfinished: dict[bytes, bytes] = {}
        """Unfinished lines by label."""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that these bytes complete."""
        lines: list[bytes] = []
        data, self._rest = self._rest + data, b""
        raw, *records = data.split(START)
        self._add(self._label, raw, lines)
        for index, record in enumerate(records, 1):
            head, end, raw = record.partition(END)
            if end:
                label, _, text = head.rpartition(LABEL_END)
                self._add(label or self._label, text, lines)
                self._add(self._label, raw, lines)
            elif index == len(records) and len(record) < _MOST_RECORD:
                self._rest = START + record
            else:
                self._add(self._label, record, lines)
        return lines

    def close(self) -> list[bytes]:
        """The unfinished lines at the end."""
        lines: list[bytes] = []
        self._add(self._label, self._rest.removeprefix(START), lines)
        self._rest = b""
        self._finish(lines)
        return lines

    def _add(self, label: bytes, text: bytes, lines: list[bytes]) -> None:
        if not text:
            return
        *ended, rest = (self._unfinished.pop(label, b"") + text).split(b"\n")
        for line in ended:
            self._complete(label, line, lines)
        if len(rest) > _MOST_PRINTED:
            self._complete(label, rest, lines)
        elif rest:
            self._unfinished[label] = rest
            if len(self._unfinished) > _MOST_LABELS:
                self._finish(lines)

    def _finish(self, lines: list[bytes]) -> None:
        for label, rest in self._unfinished.items():
            self._complete(label, rest, lines)
        self._unfinished.clear()

    def _complete(self, label: bytes, line: bytes, lines: list[bytes]) -> None:
        number, is_call, command = label.partition(NUMBER_END)
        if is_call and self._on_print is not None and number.isdigit():
            self._on_print(int(number), line)
        label = command if is_call else label
        if self._limited:
            if label != self._label and not label.startswith(f"{self._limited}.".encode()):
                label = self._label
            label, line = (visible(text.decode("utf-8", "backslashreplace")).encode() for text in (label, line))
        lines.append(b"[%b] %b\n" % (label, line))
