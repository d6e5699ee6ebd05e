"""`prowess check`: the changes since the committed catalog, the callers they break, and schemas that clients reject."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

import click

from prowess.errors import ProwessError
from prowess.frozen import frozen
from prowess_host.cli.catalogs import (
    Loaded,
    catalog_option,
    failure_lines,
    load,
    profile_of,
    shown_profile,
)
from prowess_host.cli.connections import ClientName
from prowess_host.cli.exit_codes import DONE, FAILED, WRONG_USE
from prowess_host.cli.options import ProjectOptions, json_option, project_options
from prowess_host.cli.projects import check_project, shown_path
from prowess_host.cli.terminal import Style, plural, pretty
from prowess_host.clients import table as clients
from prowess_host.review.compare import Difference, compare
from prowess_host.review.lint import CLIENTS, LintFinding, count_tokens, lint, wider_limits
from prowess_host.review.revisions import read_revision
from prowess_host.review.snapshot import read_snapshot

__all__ = ["command"]

_ADVICE_WIDTH: Final = 110


@frozen
class _Options:
    file: str | None
    against: str | None
    client: tuple[str, ...]
    server: str
    budget: int | None
    strict: bool
    as_json: bool


def _ruled(_context: click.Context, _option: click.Parameter, names: Sequence[str]) -> tuple[str, ...]:
    """The names of clients in the table of rules."""
    for row in (clients.CLIENTS[name] for name in names):
        if row.rules is None:
            known = ", ".join(sorted(CLIENTS))
            raise ProwessError(f"prowess check has no rules for {row.title} (there are rules for: {known})")
    return tuple(dict.fromkeys(clients.CLIENTS[name].rules or "" for name in names))


@click.command("check")
@project_options
@catalog_option("--catalog")
@click.option(
    "--against",
    metavar="REVISION",
    help="Compare with the catalog in this revision of git, for example origin/main.",
)
@click.option(
    "--client",
    multiple=True,
    type=ClientName(),
    metavar="CLIENT",
    callback=_ruled,
    help="Treat what this client rejects as an error, for example `--client cursor`. May be repeated. Default: warn "
    "about all clients.",
)
@click.option(
    "--server",
    default="prowess",
    metavar="NAME",
    help="The server's name in the client; some clients add it to tool names.",
)
@click.option(
    "--budget",
    type=click.IntRange(min=0),
    metavar="N",
    help="Tokens the catalog may cost, 0 for no limit. Default: the setting token_budget.",
)
@click.option("--strict", is_flag=True, help="Fail on warnings, too.")
@json_option("Print everything as JSON.")
def command(where: ProjectOptions, **options: Any) -> int:
    """Report breaking changes since the committed catalog, and schemas that clients reject."""
    check_project(where)
    return asyncio.run(_check(where, _Options(**options)))


@frozen
class _Report:
    loaded: Loaded
    file: str
    against: str | None
    """The git revision of the file; `None` for the file in the folder."""
    differences: list[Difference] | None
    """`None` if there is nothing to compare with."""
    findings: list[LintFinding]
    tokens: dict[str, int]
    budget: int

    @property
    def shown_file(self) -> str:
        """The file, with its revision."""
        return f"{self.file} in {self.against}" if self.against else self.file

    @property
    def breaking(self) -> list[Difference]:
        return [item for item in self.differences or () if item.breaking]

    def count(self, level: str) -> int:
        return sum(item.level == level for item in self.findings)

    def code(self, *, strict: bool) -> int:
        if self.differences is None:
            return WRONG_USE
        hurts = self.count("error") or (strict and self.count("warning"))
        return FAILED if self.breaking or hurts or self.loaded.catalog.failures else DONE


async def _check(where: ProjectOptions, options: _Options) -> int:
    report = _examine(options, await load(where))
    print(_as_json(report) if options.as_json else _as_text(report, Style.of(sys.stdout)))
    return report.code(strict=options.strict)


def _examine(options: _Options, loaded: Loaded) -> _Report:
    if options.against == "":  # from an unset variable of a CI: to compare with the folder would find nothing
        raise ProwessError("--against is empty: name a revision of git, for example origin/main")
    file = loaded.file(options.file)
    committed = read_revision(file, loaded.root, options.against) if options.against else read_snapshot(file)
    contracts = loaded.catalog.contracts
    budget = loaded.own.token_budget if options.budget is None else options.budget
    profile = profile_of(loaded.own.profile)
    return _Report(
        loaded,
        shown_path(file, loaded.root),
        options.against,
        None if committed is None else compare(committed.contracts, contracts, shown_profile(loaded.own.profile).name),
        [
            *wider_limits(loaded.limits, committed.limits if committed else {}, loaded.catalog),
            *lint(contracts, profile, server=options.server, clients=options.client, budget=budget),
            *_of_files(loaded),
        ],
        {contract.id: count_tokens(contract, profile(contract)) for contract in loaded.catalog.tools},
        budget,
    )


def _of_files(loaded: Loaded) -> Iterator[LintFinding]:
    """Failures of files that clients should be able to read."""
    for each in loaded.troubles:
        text = str(each).replace(f"{loaded.root}{os.sep}", "")
        yield LintFinding("error" if each.fatal else "warning", "files", "", text)


def _as_json(report: _Report) -> str:
    data = {
        "catalog": report.file,
        "against": report.against,
        "compared": report.differences is not None,
        "breaking": len(report.breaking),
        "differences": [item.to_json() for item in report.differences or ()],
        "errors": report.count("error"),
        "warnings": report.count("warning"),
        "findings": [item.to_json() for item in report.findings],
        "failures": [asdict(failure) for failure in report.loaded.catalog.failures],
        "tokens": {"total": sum(report.tokens.values()), "budget": report.budget, "commands": report.tokens},
    }
    return pretty(data)


# --- text -----------------------------------------------------------------------------------------


def _as_text(report: _Report, style: Style) -> str:
    sections = [
        _differences(report, style),
        _findings(report, style),
        [style(line, "red") for line in failure_lines(report.loaded)],
        _summary(report, style),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _differences(report: _Report, style: Style) -> list[str]:
    if report.differences is None:
        missing = f"There is no {report.shown_file} to compare with."
        return [missing if report.against else f"{missing} Run prowess build, and commit what it writes."]
    lines: list[str] = []
    for command, items in groupby(report.differences, key=lambda item: item.command):
        lines.append(style(command, "bold"))
        for item in items:
            mark = style("breaks ", "red") if item.breaking else style("ok     ", "green")
            lines.append(f"  {mark} {item.message}")
            lines.extend(_hanging(item.suggestion, style))
    return lines


def _hanging(advice: str | None, style: Style) -> Iterator[str]:
    for line in textwrap.wrap(advice or "", _ADVICE_WIDTH, initial_indent="→ ", subsequent_indent="  "):
        yield f"          {style(line, 'dim')}"


def _findings(report: _Report, style: Style) -> list[str]:
    lines: list[str] = []
    for command, items in groupby(report.findings, key=lambda item: item.command):
        lines.append(style(command or "the catalog", "bold"))
        lines.extend(_finding(each, style) for each in _merged(list(items)))
    return lines


def _merged(items: Sequence[LintFinding]) -> Iterator[tuple[LintFinding, list[str]]]:
    """Findings that differ only in the client, with all clients."""
    clients: dict[tuple[str, ...], list[str]] = {}
    first: dict[tuple[str, ...], LintFinding] = {}
    for item in items:
        key = (item.level, item.rule, item.message, item.where)
        first.setdefault(key, item)
        clients.setdefault(key, []).extend([item.client] if item.client else [])
    yield from ((first[key], clients[key]) for key in first)


def _finding(merged: tuple[LintFinding, list[str]], style: Style) -> str:
    item, clients = merged
    mark = style("error  ", "red") if item.level == "error" else style("warning", "yellow")
    names = f"{', '.join(clients)}: " if clients else ""
    where = style(f"  {item.where}", "dim") if item.where else ""
    return f"  {mark} {names}{item.message}{where}"


def _summary(report: _Report, style: Style) -> list[str]:
    breaking, differences = len(report.breaking), len(report.differences or ())
    compared = f"{breaking} breaking and {differences - breaking} compatible" if differences else "no"
    parts = [] if report.differences is None else [f"{compared} differences from {report.shown_file}"]
    failures = len(report.loaded.catalog.failures)
    parts += [f"{failures} could not be loaded"] if failures else []
    parts += [f"{plural(report.count('error'), 'error')}, {plural(report.count('warning'), 'warning')}"]
    limit = f" of {report.budget:,}" if report.budget else ""
    commands = plural(len(report.loaded.catalog), "command")
    parts += [
        f"{commands}, about {sum(report.tokens.values()):,}{limit} tokens as {shown_profile(report.loaded.own.profile).name}"
    ]
    text = "; ".join(parts)
    lines = [style(f"{text[0].upper()}{text[1:]}.", "bold")]
    if breaking:
        accept = "merge them: from then on, callers rely on the new contracts"
        lines.append(
            f"To accept these changes, {accept if report.against else f'run prowess build and commit {report.file}'}."
        )
    return lines
