"""Shared by `logs`, `replay` and `test-from`: the record of a project, and the text about its calls."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from prowess.contracts.visible import visible
from prowess.jsontypes import JsonObject
from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess_host.cli.options import ProjectOptions
from prowess_host.cli.projects import settings_of
from prowess_host.cli.terminal import Style, pretty
from prowess_host.protocol.kinds import as_content
from prowess_host.records.reading import RecordedCall, RecordReader
from prowess_host.records.record_path import record_path

__all__ = [
    "CALL_ID",
    "OUTCOMES",
    "arguments_line",
    "call_line",
    "call_row",
    "content_lines",
    "look",
    "record_of",
    "record_of_cluster",
    "short_id",
    "story",
    "took",
]

OUTCOMES: Final = {"ok": "green", "running": "cyan", "input_required": "cyan", "cancelled": "yellow", "lost": "yellow"}
CALL_ID: Final = re.compile(r" ?\(call [\w-]+\)")
"""The call id in the text of a failure, which differs from call to call."""
_INDENT: Final = "  "
_LONG: Final = 16
"""Characters of an id. Longer ones are random, and the first characters are enough to name a call."""
_SHORT: Final = 9
_MOST_FETCHED: Final = 2000
"""Calls that are fetched from an engine."""


def record_of(where: ProjectOptions) -> RecordReader:
    """The record of the project that the options name."""
    return RecordReader(record_path(ConfigPaths.of(settings_of(where), os.environ)))


@contextmanager
def record_of_cluster(where: ProjectOptions) -> Generator[RecordReader]:
    """The newest calls of all hosts of the cluster, fetched from its engine."""
    from prowess_host.records.rows import Row
    from prowess_host.records.store import RecordStore

    settings = settings_of(where)
    rows = [Row(*json.loads(text)) for text in asyncio.run(_fetched(settings))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.sqlite"
        store = RecordStore(path, settings.own.record.max_bytes, settings.own.record.max_days)
        store.write(rows, [])
        store.close()
        yield RecordReader(path)


async def _fetched(settings: Settings) -> list[bytes]:
    from prowess_host.cluster.sharing import newest_calls  # needs an extra

    return await newest_calls(settings, _MOST_FETCHED)


def look(kind: str) -> str:
    """The colour of an outcome."""
    return OUTCOMES.get(kind, "red")


def took(seconds: float | None) -> str:
    """A duration in words."""
    if seconds is None:
        return ""
    if seconds < 0.9995:
        return f"{seconds * 1000:.{0 if seconds >= 0.01 else 1}f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def arguments_line(call: RecordedCall) -> str:
    """The arguments in one line."""
    if call.arguments is None:
        return "(not kept)"
    return " ".join(f"{name}={_plain(value)}" for name, value in call.arguments.items())


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def story(call: RecordedCall, style: Style) -> list[str]:
    """All details of a call."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(call.began))
    facts = [_flat(call.client) or "unknown client", when]
    facts += [f"{call.attempts} attempts"] if call.attempts > 1 else []
    facts += ["from the cache"] if call.cached else []
    facts += [f"worker {call.worker}" if call.worker else "no worker", f"host {call.host}"]
    ended = f"{call.kind} after {took(call.duration)}" if call.duration is not None else call.kind
    lines = [f"{style(_flat(call.command), 'bold')}  {style(ended, look(call.kind))}  {style(call.id, 'dim')}"]
    lines += [style(" · ".join(facts), "dim"), "", style("Arguments", "bold")]
    if call.arguments is None:
        lines.append(f"{_INDENT}(not kept)")
    else:
        lines += _indented(pretty(call.arguments))
    if call.withheld and call.arguments is not None:
        lines.append(style(f"{_INDENT}not kept: {_flat(', '.join(call.withheld))}", "yellow"))
    if call.events:
        lines += ["", style("What happened", "bold")]
        for event in call.events:
            first, *more = visible(event.text).splitlines() or [""]
            lines.append(f"{_INDENT}{style(f'{event.at:8.3f} s  {event.kind:9}', 'dim')} {first}")
            lines += [f"{' ' * 23}{line}" for line in more]
    lines += ["", style("Result", "bold")]
    lines += _indented("\n".join(content_lines(call.result))) if call.result else [f"{_INDENT}(none kept)"]
    if call.shortened:
        lines.append(style(f"{_INDENT}the record keeps only the beginning", "yellow"))
    return lines


def content_lines(payload: JsonObject) -> list[str]:
    """A result as text, with structured data indented."""
    structured = payload.get("structuredContent")
    lines: list[str] = []
    for block in as_content(payload).get("content", ()):
        if block.get("type") == "text":
            lines += (
                [] if structured is not None and _is_same(block["text"], structured) else block["text"].splitlines()
            )
        elif "data" in block:
            lines.append(f"[{block['type']} {block.get('mimeType', '')}, {len(block['data']) * 3 // 4} bytes]")
        else:
            lines.append(json.dumps(block, ensure_ascii=False))
    if structured is not None:
        lines += pretty(_unboxed(structured)).splitlines()
    return lines


def _unboxed(structured: Any) -> Any:
    """Structured content without the box."""
    return structured["result"] if isinstance(structured, dict) and list(structured) == ["result"] else structured  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _is_same(text: str, structured: Any) -> bool:
    try:
        said = json.loads(text)
    except ValueError:
        said = text
    return said in (structured, _unboxed(structured))


def _indented(text: str) -> list[str]:
    return [f"{_INDENT}{line}" for line in visible(text).splitlines()]


def _flat(text: str) -> str:
    return " ".join(visible(text).split())


def call_row(call: RecordedCall) -> tuple[str, ...]:
    """The columns of a call: time, id, command, client, outcome, duration, arguments."""
    day = time.strftime("%m-%d %H:%M:%S", time.localtime(call.began))
    kind = call.kind + (f" ×{call.attempts}" if call.attempts > 1 else "") + (" (cache)" if call.cached else "")
    row = (
        day,
        short_id(call),
        call.command or "?",
        call.client,
        kind,
        took(call.duration),
        arguments_line(call),
    )
    return tuple(map(_flat, row))


def short_id(call: RecordedCall) -> str:
    """The id, or its beginning if it is long: commands take both."""
    return call.id[:_SHORT] if len(call.id) > _LONG else call.id


def call_line(call: RecordedCall, style: Style) -> str:
    """One line about a call."""
    when, name, command, client, kind, duration, arguments = call_row(call)
    text = f"{when}  {style(name, 'dim')}  {style(command, 'bold')}  {client}  {style(kind, look(call.kind))}"
    return "  ".join(filter(None, (text, duration, style(arguments[:200], "dim"))))
