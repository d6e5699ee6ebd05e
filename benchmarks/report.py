"""What was measured, as one table with ratios and one with the budgets. Measures nothing itself."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from projects import FASTMCP, FLOOR, NAMES, OURS, RELAY, SDK

__all__ = ["BUDGETS", "BUSY", "ROWS", "Budget", "Report", "Row"]

BUSY: Final = "busy_"
"""Stands before the keys of rows that are measured while every core is kept busy."""
_COLUMNS: Final = (OURS, SDK, FASTMCP, FLOOR, RELAY)

Unit = Literal["us", "ms", "s", "MB", "per s", "x", "yes/no"]
_SHOWN: Final[dict[str, tuple[str, float, str]]] = {
    "us": ("µs", 1e6, ".1f"),
    "ms": ("ms", 1e3, ".2f"),
    "s": ("s", 1, ".2f"),
    "MB": ("MB", 1, ".1f"),
    "per s": ("per s", 1, ",.0f"),
    "x": ("×", 1, ".3f"),
    "yes/no": ("", 1, ""),
}


@dataclass(frozen=True)
class Row:
    """One line of the table: what its numbers are, and which of the samples stands for all."""

    key: str
    title: str
    unit: Unit
    pick: Literal["median", "min", "max"] = "median"
    missing: str = "–"
    """What is shown where there is no number."""


def _row(key: str, title: str, unit: Unit, pick: Literal["median", "min", "max"] = "median", missing: str = "–") -> Row:
    return Row(key, title, unit, pick, missing)


def _isolated(part: str, what: str) -> tuple[Row, ...]:
    """Rows about an isolated skill: the same plain skill alone, beside it, and the skill itself."""
    whose = {
        "alone": "a plain skill, alone",
        "plain": f"a plain skill, beside one with {what}",
        "own": f"a skill with {what}",
    }
    kinds: tuple[tuple[str, str, Unit], ...] = (
        ("list", "tools/list, a second start", "ms"),
        ("first", "first call, a second start", "ms"),
        ("p50", "async no-op, one at a time, p50", "us"),
        ("processor", "async no-op, one at a time, processor time", "us"),
    )
    rows = tuple(
        _row(f"{part}_{key}_{kind}", f"{title}: {who}", unit)
        for kind, title, unit in kinds
        for key, who in whose.items()
        if (kind, key) != ("list", "own")
    )
    return (
        (*rows, _row(f"{part}_made", "an environment, made with a full cache of uv", "s"))
        if part == "environments"
        else rows
    )


_IDLE: Final[dict[str, tuple[Row, ...]]] = {
    "In memory": (
        _row("contract_simple", "contract of a command: one int", "us", "min"),
        _row("contract_rich", "contract of a command: five parameters, models in and out", "us", "min"),
        _row("memory_async", "call, async no-op; peers by their Client", "us", "min"),
        _row("memory_sync", "call, sync no-op in a thread; peers by their Client", "us", "min"),
        _row("direct_async", "call, async no-op; peers by server.call_tool", "us", "min"),
        _row("direct_sync", "call, sync no-op; peers by server.call_tool", "us", "min"),
        _row("value_nothing", "value to result bytes: None", "us", "min"),
        _row("value_words", "value to result bytes: str", "us", "min"),
        _row("value_number", "value to result bytes: int", "us", "min"),
        _row("value_mapping", "value to result bytes: dict", "us", "min"),
        _row("value_integers", "value to result bytes: list of 1,000 integers", "us", "min"),
        _row("value_model", "value to result bytes: nested model", "us", "min"),
        _row("value_data_class", "value to result bytes: dataclass", "us", "min"),
        _row("value_picture", "value to result bytes: image of 10 kB", "us", "min"),
    ),
    "From spawn to the answer": (
        _row("initialize", "initialize", "ms"),
        _row("list_warm", "tools/list, 1 skill, a second start", "ms"),
        _row("list_cold", "tools/list, 1 skill, a first start", "ms"),
        _row("first_call", "first call, 1 skill", "ms"),
        _row("many_list_warm", "tools/list, {skills} skills, a second start", "ms"),
        _row("many_list_cold", "tools/list, {skills} skills, a first start", "ms"),
        _row("many_call", "first call, {skills} skills, a first start", "ms"),
    ),
    "Calls on the wire": (
        _row("async_p50", "async no-op, one at a time, p50 of the best batch", "us", "min"),
        _row("async_usual_p50", "async no-op, one at a time, p50 of the median batch", "us"),
        _row("async_p99", "async no-op, one at a time, p99", "us"),
        _row("sync_p50", "sync no-op, one at a time, p50 of the best batch", "us", "min"),
        _row("sync_usual_p50", "sync no-op, one at a time, p50 of the median batch", "us"),
        _row("sync_p99", "sync no-op, one at a time, p99", "us"),
        _row("pipelined", "async no-op, all sent at once", "per s"),
        _row("pipelined_best", "async no-op, all sent at once, best batch", "per s", "max"),
        _row("pipelined_sync", "sync no-op, all sent at once", "per s"),
        _row("large_text", "result of 1 MB of text", "ms", "min"),
        _row("large_records", "result of 1 MB of JSON, 10,000 records", "ms", "min"),
        _row("take_text", "arguments of 1.5 MB, one text", "ms", "min"),
        _row("take_records", "arguments of 1.5 MB, 15,000 records", "ms", "min"),
        _row("pss", "memory of all processes after 1,000 calls, PSS", "MB"),
        _row("rss", "memory of all processes after 1,000 calls, RSS", "MB"),
        _row("growth", "memory after {growth:,} calls, by that after a tenth of them", "x"),
    ),
    "Processor time per call, all processes": (
        _row("async_processor", "async no-op, one at a time", "us"),
        _row("sync_processor", "sync no-op, one at a time", "us"),
        _row("pipelined_processor", "async no-op, all sent at once", "us"),
        _row("pipelined_sync_processor", "sync no-op, all sent at once", "us"),
        _row("recorded_processor", "async no-op, one at a time, writing of the record included", "us"),
        _row("unrecorded_processor", "the same without a record of calls", "us"),
    ),
    "Skills with an environment of their own": _isolated("environments", "an environment"),
    "Skills with limits": _isolated("limits", "limits"),
    "Over HTTP, 64 clients at once": (
        _row("http_stateless_rate", "async no-op, 2026-07-28", "per s"),
        _row("http_stateless_p99", "async no-op, 2026-07-28, p99", "ms"),
        _row("http_stateless_processor", "async no-op, 2026-07-28, processor time of all processes", "us"),
        _row("http_handshake_rate", "async no-op, a session of 2025-11-25", "per s"),
        _row("http_handshake_p99", "async no-op, a session of 2025-11-25, p99", "ms"),
        _row("http_handshake_processor", "async no-op, a session of 2025-11-25, processor time of all processes", "us"),
        _row("http_sessions_pss", "memory of all processes with 100 idle sessions, PSS", "MB"),
    ),
    "Stopping": (
        _row("exit_idle", "end of input to exit, idle", "ms"),
        _row("exit_busy", "end of input to exit, a sync call sleeps for {sleep:g} s", "s"),
        _row("late_answer", "timeout=1, a sync call sleeps for {late:g} s: answered after", "s", missing="never"),
        _row("late_written", "... and is its file written after all?", "yes/no", "max"),
    ),
}


_ON_IDLE_MACHINES_ONLY: Final = ("recorded_", "unrecorded_", "many_", "pss", "rss", "growth")


def _with_busy(idle: dict[str, tuple[Row, ...]]) -> dict[str, tuple[Row, ...]]:
    """The rows about starts and calls once more, for a machine with no core to spare."""
    again = {
        f"{title}, every core kept busy": tuple(
            replace(row, key=BUSY + row.key) for row in idle[title] if not row.key.startswith(_ON_IDLE_MACHINES_ONLY)
        )
        for title in ("From spawn to the answer", "Calls on the wire", "Processor time per call, all processes")
    }
    return {**idle, **again}


ROWS: Final = _with_busy(_IDLE)


@dataclass(frozen=True)
class Budget:
    """A promise: a number of ours, at most or at least so much, or so many times another number."""

    row: str
    limit: float
    of: str | None = None
    """A peer; else the limit is a number in the unit of the row (seconds for times)."""
    of_row: str | None = None
    """Another row of ours."""
    least: bool = False

    def figure(self, report: Report) -> float | None:
        """What is held against the limit."""
        ours = report.value(self.row, OURS)
        if self.of is None and self.of_row is None:
            return ours
        other = report.value(self.row, self.of) if self.of else report.value(str(self.of_row), OURS)
        return ours / other if ours is not None and other else None

    def verdict(self, report: Report) -> str:
        """Whether the promise is kept."""
        figure = self.figure(report)
        if figure is None:
            return "not measured"
        kept = figure >= self.limit if self.least else figure <= self.limit
        return "pass" if kept else "falls short"

    def must(self, report: Report) -> str:
        """The promise."""
        sign = "≥" if self.least else "≤"
        if self.of or self.of_row:
            against = NAMES[self.of] if self.of else f"our {report.title(report.row(str(self.of_row)))}"
            return f"{sign} {self.limit:.3g} × {against}"
        row = report.row(self.row)
        return "no" if row.unit == "yes/no" else f"{sign} {_quantity(row.unit, self.limit)}"

    def found(self, report: Report) -> str:
        """The figure, as the promise counts it."""
        figure = self.figure(report)
        if figure is None:
            return "–"
        if self.of or self.of_row:
            return f"{figure:.3g} ×"
        return _quantity(report.row(self.row).unit, figure)


BUDGETS: Final = (
    Budget("list_warm", 1 / 5, of=FASTMCP),
    Budget("many_list_warm", 1.5, of_row="list_warm"),
    Budget("list_cold", 1, of=FASTMCP),
    Budget("many_list_cold", 0.6, of=FASTMCP),
    Budget("first_call", 1 / 4, of=FASTMCP),
    Budget("async_usual_p50", 1 / 5, of=FASTMCP),
    Budget("async_usual_p50", 1 / 3, of=SDK),
    Budget("async_usual_p50", 2, of=RELAY),
    Budget("sync_usual_p50", 1 / 3, of=FASTMCP),
    Budget("async_processor", 1 / 4, of=SDK),
    Budget("async_processor", 1 / 5, of=FASTMCP),
    Budget("recorded_processor", 1.05, of_row="unrecorded_processor"),
    Budget(BUSY + "async_usual_p50", 1 / 4, of=FASTMCP),
    Budget(BUSY + "async_usual_p50", 1 / 3, of=SDK),
    Budget("pipelined", 6, of=SDK, least=True),
    Budget("memory_async", 1 / 5, of=FASTMCP),
    Budget("value_picture", 1, of=SDK),
    Budget("take_text", 1, of=SDK),
    Budget("take_records", 1, of=SDK),
    Budget("pss", 0.95, of=SDK),
    Budget("growth", 1.05),
    Budget("http_stateless_rate", 4, of=FASTMCP, least=True),
    Budget("http_stateless_rate", 4, of=SDK, least=True),
    Budget("http_handshake_rate", 4, of=FASTMCP, least=True),
    Budget("http_handshake_rate", 4, of=SDK, least=True),
    Budget("http_stateless_p99", 1 / 2, of=FASTMCP),
    Budget("http_stateless_p99", 1 / 2, of=SDK),
    Budget("http_sessions_pss", 1, of=SDK),
    Budget("exit_idle", 0.1),
    Budget("exit_busy", 2.5),
    Budget("late_answer", 1.2),
    Budget("late_written", 0),
)


@dataclass
class Report:
    """The samples of every row and subject."""

    facts: dict[str, Any]
    """The machine, the versions, the effort: whatever a reader needs to place the numbers."""
    words: dict[str, Any]
    """What stands in the titles of rows."""
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict[str, dict[str, list[float]]])

    def add(self, row: str, subject: str, *values: float) -> None:
        """Keep samples."""
        self.samples.setdefault(row, {}).setdefault(subject, []).extend(values)

    def merge(self, samples: dict[str, dict[str, list[float]]]) -> None:
        """Keep the samples of another process."""
        for row, subjects in samples.items():
            for subject, values in subjects.items():
                self.add(row, subject, *values)

    def row(self, key: str) -> Row:
        """The row with this key."""
        return next(row for rows in ROWS.values() for row in rows if row.key == key)

    def title(self, row: Row) -> str:
        """The title, with the numbers of this run in it."""
        return row.title.format(**self.words)

    def value(self, row: str, subject: str) -> float | None:
        """The one number for a row and a subject."""
        samples = self.samples.get(row, {}).get(subject)
        if not samples:
            return None
        picks: dict[str, Callable[[Iterable[float]], float]] = {"median": statistics.median, "min": min, "max": max}
        return picks[self.row(row).pick](samples)

    def ratio(self, row: str, peer: str) -> float | None:
        """Ours by theirs."""
        ours, theirs = self.value(row, OURS), self.value(row, peer)
        return ours / theirs if ours is not None and theirs and self.row(row).unit != "yes/no" else None

    # As text

    def text(self) -> str:
        """All of it, as Markdown that is readable as it stands."""
        head = ["", *(NAMES[key] for key in _COLUMNS), "by SDK", "by FastMCP"]
        parts = [", ".join(f"{name} {value}" for name, value in self.facts.items())]
        for title, rows in ROWS.items():
            shown = [self._cells(row) for row in rows if row.key in self.samples]
            if any(row.key in self.samples for row in rows):
                parts.append(_table([title, *head[1:]], shown))
        parts.append(_table(["Budget", "must be", "is", ""], [self._budget(budget) for budget in BUDGETS]))
        return "\n\n".join(parts)

    def _cells(self, row: Row) -> list[str]:
        cells = [self.title(row)]
        for subject in _COLUMNS:
            value = self.value(row.key, subject)
            asked = subject == OURS or subject in self.samples.get(row.key, {})
            cells.append(_quantity(row.unit, value) if value is not None else row.missing if asked else "–")
        for peer in (SDK, FASTMCP):
            ratio = self.ratio(row.key, peer)
            cells.append(f"{ratio:.2f} ×" if ratio is not None else "")
        return cells

    def _budget(self, budget: Budget) -> list[str]:
        title = self.title(self.row(budget.row))
        if budget.row.startswith(BUSY):
            title += ", every core kept busy"
        if budget.row.endswith("_processor"):
            title += ", processor time"
        return [title, budget.must(self), budget.found(self), budget.verdict(self)]

    # As data

    def to_json(self) -> dict[str, Any]:
        """Every sample, and what was made of them."""
        rows = [row for rows in ROWS.values() for row in rows]
        return {
            "facts": self.facts,
            "rows": {
                row.key: {
                    "title": self.title(row),
                    "unit": {"us": "s", "ms": "s"}.get(row.unit, row.unit),
                    "values": {subject: self.value(row.key, subject) for subject in self.samples[row.key]},
                    "ratios": {peer: self.ratio(row.key, peer) for peer in (SDK, FASTMCP)},
                    "samples": self.samples[row.key],
                }
                for row in rows
                if row.key in self.samples
            },
            "budgets": [
                dict(zip(("what", "must", "is", "verdict"), self._budget(item), strict=True)) for item in BUDGETS
            ],
        }


def _quantity(unit: Unit, value: float) -> str:
    if unit == "yes/no":
        return "yes" if value else "no"
    name, factor, digits = _SHOWN[unit]
    return f"{value * factor:{digits}} {name}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in (head, *rows)) for column in range(len(head))]
    lines = [_aligned(head, widths), "|" + "|".join(_rule(column, width) for column, width in enumerate(widths)) + "|"]
    return "\n".join([*lines, *(_aligned(row, widths) for row in rows)])


def _rule(column: int, width: int) -> str:
    return "-" * (width + 2) if column == 0 else "-" * (width + 1) + ":"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (f"{cell:{'<' if column == 0 else '>'}{widths[column]}}" for column, cell in enumerate(cells))
    return "| " + " | ".join([first, *rest]) + " |"
