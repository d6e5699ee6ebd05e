"""`prowess logs`: the record of calls."""

from __future__ import annotations

import json
import re
import sys
import time
from contextlib import nullcontext
from datetime import datetime
from typing import Final

import click

from prowess.errors import ProwessError
from prowess_host.cli.exit_codes import DONE
from prowess_host.cli.options import ProjectOptions, json_option, project_options
from prowess_host.cli.records import call_line, call_row, look, record_of, record_of_cluster, story
from prowess_host.cli.terminal import Style, table, width
from prowess_host.records.reading import CallFilter, RecordedCall, RecordReader

__all__ = ["command", "since"]

_HEADER: Final = ("TIME", "ID", "COMMAND", "CLIENT", "OUTCOME", "TOOK", "ARGUMENTS")
_YIELDS: Final = len(_HEADER) - 1
_CLIENT: Final = _HEADER.index("CLIENT")
_FOR_ARGUMENTS: Final = 24
_LOOK_AGAIN: Final = 0.3
"""Seconds between two polls for new calls."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


_EPILOG: Final = """\b
Examples:
  prowess logs --failed --since 1h   what went wrong in the last hour
  prowess logs last                  the whole story of the newest call
  prowess logs -f                    watch what your agent does
  prowess logs --cluster             the calls of all replicas
"""


@click.command("logs", epilog=_EPILOG)
@project_options
@click.argument("call", required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep showing new calls, until Ctrl-C.")
@click.option("-n", "--count", type=click.IntRange(1), default=20, show_default=True, help="Maximum number of calls.")
@click.option(
    "--command", "name", metavar="COMMAND", default="", help="Only this command or skill, or a pattern of ids."
)
@click.option("--client", metavar="NAME", default="", help="Only clients whose names contain this.")
@click.option("--failed", is_flag=True, help="Only calls that failed.")
@click.option("--since", "begin", metavar="TIME", help="Only calls since 10m, 2h, 3d, or a time like 2026-11-19T08:30.")
@click.option("--cluster", is_flag=True, help="The calls of all hosts of the cluster, from its engine.")
@json_option("Print JSON, one call per line.")
def command(
    where: ProjectOptions,
    *,
    call: str | None,
    follow: bool,
    count: int,
    name: str,
    client: str,
    failed: bool,
    begin: str | None,
    cluster: bool,
    as_json: bool,
) -> int:
    """Show the record of calls. With CALL (an id, its beginning, or `last`), show all details of one call."""
    if cluster and follow:
        raise ProwessError("--cluster shows calls that have ended: leave out --follow")
    only = CallFilter(name, client, failed, since(begin, time.time()) if begin else 0.0)
    with record_of_cluster(where) if cluster else nullcontext(record_of(where)) as record:
        _show(record, call, only, count, follow=follow, as_json=as_json)
    return DONE


def _show(record: RecordReader, call: str | None, only: CallFilter, count: int, *, follow: bool, as_json: bool) -> None:
    style = Style.of(sys.stdout)
    if call is not None:
        found = record.call(call)
        print(_as_json(found) if as_json else "\n".join(story(found, style)))
        return
    last = record.last_number()
    calls = record.newest(only, count)
    if as_json:
        for each in calls:
            print(_as_json(each))
    elif calls:
        print("\n".join(_table(calls, style)))
    elif not follow:
        print(_nothing(record, only))
    if follow:
        _follow(record, only, last, style, as_json=as_json)


def since(text: str, now: float) -> float:
    """Parse a duration ("2h" ago) or a date into seconds since the epoch."""
    ago = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text.strip())
    if ago:
        return now - float(ago[1]) * _UNITS[ago[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        raise ProwessError(f"--since {text!r} is not a time: write 10m, 2h, 3d, or 2026-11-19T08:30") from None


def _follow(record: RecordReader, only: CallFilter, last: int, style: Style, *, as_json: bool) -> None:
    while True:
        sys.stdout.flush()
        time.sleep(_LOOK_AGAIN)
        if record.last_number() < last:  # it was deleted
            last = 0
        for call in record.after(last, only):
            last = call.number
            print(_as_json(call) if as_json else call_line(call, style))


def _as_json(call: RecordedCall) -> str:
    text = json.dumps(call.to_json(), ensure_ascii=False)
    return text if text.isprintable() else json.dumps(call.to_json())


def _table(calls: list[RecordedCall], style: Style) -> list[str]:
    """The table. A narrow terminal has no place for the client, which is in the details of a call."""
    rows, columns = [_HEADER, *map(call_row, calls)], width(sys.stdout)
    narrowest = sum(max(len(row[column]) + 2 for row in rows) for column in range(_YIELDS)) + _FOR_ARGUMENTS
    if narrowest > columns:
        rows = [(*row[:_CLIENT], *row[_CLIENT + 1 :]) for row in rows]
    lines = table(rows, columns, yields=len(rows[0]) - 1, style=Style(colours=False))
    return [style(lines[0], "dim"), *(_painted(line, call, style) for line, call in zip(lines[1:], calls, strict=True))]


def _painted(line: str, call: RecordedCall, style: Style) -> str:
    """The line, with the outcome in its colour."""
    kind = call_row(call)[4]
    before, found, after = line.partition(f"  {kind}")
    return f"{before}  {style(kind, look(call.kind))}{after}" if found else line


def _nothing(record: RecordReader, only: CallFilter) -> str:
    if only != CallFilter():
        return "No recorded call matches."
    return f"No calls yet. They are recorded in {record.path}."
