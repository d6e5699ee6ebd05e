"""`prowess list`: what there is to call, and what could not be loaded."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

import click

from prowess.contracts.catalog import Catalog
from prowess.contracts.contract import Contract
from prowess_host.cli.exit_codes import DONE
from prowess_host.cli.options import ProjectOptions, json_option, project_options
from prowess_host.cli.projects import opened
from prowess_host.cli.terminal import Style, table, width

__all__ = ["command"]

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
    """List the commands of a project, and what could not be loaded."""
    return asyncio.run(_list(where, as_json=as_json))


async def _list(where: ProjectOptions, *, as_json: bool) -> int:
    async with opened(where) as project:
        await project.load()
        catalog = project.catalog()
    print(_as_json(catalog) if as_json else _as_text(catalog))
    return DONE


def _as_json(catalog: Catalog) -> str:
    failures = [
        {"source": item.source, "reason": item.reason, "file": item.file, "line": item.line}
        for item in catalog.failures
    ]
    told = {"commands": [contract.to_json() for contract in catalog], "failures": failures}
    return json.dumps(told, indent=2, ensure_ascii=False)


def _as_text(catalog: Catalog) -> str:
    style = Style.of(sys.stdout)
    rows = [("COMMAND", "SUMMARY", "HINTS", "SOURCE"), *(_row(contract) for contract in catalog)]
    lines = (
        table(rows, width(sys.stdout), looks=_LOOKS, style=style)
        if catalog.contracts
        else ["No commands. Put a file with a @skill_command into skills/."]
    )
    if catalog.failures:
        lines += [
            "",
            f"{len(catalog.failures)} could not be loaded:",
            *(style(f"  {failure}", "red") for failure in catalog.failures),
        ]
    if catalog.warnings:
        lines += ["", *(style(f"warning: {warning}", "yellow") for warning in catalog.warnings)]
    return "\n".join(lines)


def _row(contract: Contract) -> tuple[str, ...]:
    declared = contract.hints.to_mcp()
    hints = [_HINTS[name][0 if value else 1] for name, value in declared.items()]
    return contract.id, contract.summary, ", ".join(hint for hint in hints if hint), contract.source
