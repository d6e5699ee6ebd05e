"""`prowess list`: what there is to call, and what could not be loaded."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import Final

import click

from prowess.contracts.catalog import Catalog, Failure
from prowess.contracts.contract import Contract
from prowess_host.cli.exit_codes import DONE, FAILED
from prowess_host.cli.options import ProjectOptions, json_option, project_options
from prowess_host.cli.projects import catalog_of, opened
from prowess_host.cli.terminal import Style, complain, table, width, wrapped

__all__ = ["command", "hints_of"]

_NEXT: Final = """\
  In a folder of your own: prowess new --project       makes a project with a first skill
  In another folder:       prowess list --project FOLDER"""
_FOR_SUMMARY: Final = 24
_GAPS: Final = 6
_LOOKS: Final = (("bold",), (), ("yellow",), ("dim",))
_HINTS: Final = {
    "readOnlyHint": ("read-only", ""),
    "destructiveHint": ("destructive", "harmless"),
    "idempotentHint": ("idempotent", ""),
    "openWorldHint": ("open-world", "closed-world"),
}


@click.command("list")
@project_options
@json_option("Print contracts and failures as JSON.")
def command(where: ProjectOptions, *, as_json: bool) -> int:
    """List the commands, resources and prompts of a project, and what could not be loaded."""
    return asyncio.run(_list(where, as_json=as_json))


async def _list(where: ProjectOptions, *, as_json: bool) -> int:
    async with opened(where) as project:
        await project.load(builds=False)
        catalog = catalog_of(project)
        environments = project.environments() if not as_json else []
        nothing = project.where_it_looked() if not catalog.contracts else ""
    if as_json:
        print(_as_json(catalog))
    elif catalog.contracts or catalog.failures:
        print("\n".join([*_as_lines(catalog), *([""] if environments else []), *environments]))
    if nothing and not catalog.failures:
        complain(f"{nothing}\n{_NEXT}")
    return DONE if catalog.contracts and not catalog.failures else FAILED


def _as_json(catalog: Catalog) -> str:
    failures = [
        {"source": item.source, "reason": item.reason, "file": item.file, "line": item.line}
        for item in catalog.failures
    ]
    told = {"commands": [contract.to_json() for contract in catalog], "failures": failures}
    return json.dumps(told, indent=2, ensure_ascii=False)


def _as_lines(catalog: Catalog) -> list[str]:
    """The table; what could not be loaded comes last, where it is still on the screen."""
    style = Style.of(sys.stdout)
    lines: list[str] = []
    if catalog.contracts:
        rows = [("COMMAND", "SUMMARY", "HINTS", "SOURCE"), *(_row(contract) for contract in catalog)]
        lines = [*_table(rows, style), ""]
    for warning in catalog.warnings:
        lines += [style(f"warning: {warning}", "yellow")]
    if not catalog.failures:
        return lines if catalog.warnings else lines[:-1]
    lines += [""] if catalog.warnings else []
    lines.append(style(f"{len(catalog.failures)} could not be loaded:", "bold", "red"))
    for reason, failures in _by_reason(catalog).items():
        whom = ", ".join(str(replace(each, reason="")).removesuffix(": ") for each in failures)
        lines += wrapped(f"{whom}: {reason}", style, "red")
    return lines


def _table(rows: list[tuple[str, ...]], style: Style) -> list[str]:
    """The columns that fit: a narrow terminal would break each line in two, so there the hints are left to `prowess show`."""
    columns = width(sys.stdout)
    name, summary, hints, source = (max(len(row[column]) for row in rows) for column in range(4))
    if name + min(summary, _FOR_SUMMARY) + hints + source + _GAPS <= columns:
        return table(rows, columns, looks=_LOOKS, style=style)
    return table([(*row[:2], row[3]) for row in rows], columns, looks=[*_LOOKS[:2], _LOOKS[3]], style=style)


def _by_reason(catalog: Catalog) -> dict[str, list[Failure]]:
    """Failures that have one cause, such as a wrong setting, are told once."""
    found: dict[str, list[Failure]] = {}
    for failure in catalog.failures:
        found.setdefault(failure.reason, []).append(failure)
    return found


def _row(contract: Contract) -> tuple[str, ...]:
    said = hints_of(contract) if contract.is_tool else filter(None, [contract.kind, contract.uri])
    return contract.id, contract.summary, " ".join(said) if contract.uri else ", ".join(said), contract.source


def hints_of(contract: Contract) -> list[str]:
    """The declared hints in words."""
    words = [_HINTS[name][0 if value else 1] for name, value in contract.hints.to_mcp().items()]
    return [word for word in words if word]
