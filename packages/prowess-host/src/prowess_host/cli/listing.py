"""`prowess list`: what there is to call, and what could not be loaded."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from typing import Any, Final

from prowess.contracts.catalog import Catalog
from prowess.contracts.contract import Contract
from prowess_host.cli.main import add_project_options
from prowess_host.cli.projects import opened

__all__ = ["add", "table"]

_GAP: Final = "  "
_LEAST: Final = 24
_HINTS: Final = {
    "readOnlyHint": ("read-only", ""),
    "destructiveHint": ("destructive", "harmless"),
    "idempotentHint": ("idempotent", ""),
    "openWorldHint": ("open-world", "closed-world"),
}


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser("list", help="list the commands of a project")
    add_project_options(parser)
    parser.add_argument("--json", action="store_true", help="print contracts and failures as JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    return asyncio.run(_list(options))


async def _list(options: argparse.Namespace) -> int:
    async with opened(options) as project:
        await project.load()
        catalog = project.catalog()
    print(_as_json(catalog) if options.json else _as_text(catalog))
    return 0


def _as_json(catalog: Catalog) -> str:
    failures = [
        {"source": item.source, "reason": item.reason, "file": item.file, "line": item.line}
        for item in catalog.failures
    ]
    told = {"commands": [contract.to_json() for contract in catalog], "failures": failures}
    return json.dumps(told, indent=2, ensure_ascii=False)


def _as_text(catalog: Catalog) -> str:
    width = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 160
    rows = [("COMMAND", "SUMMARY", "HINTS", "SOURCE"), *(_row(contract) for contract in catalog)]
    lines = table(rows, width) if catalog.contracts else ["No commands. Put a file with a @skill_command into skills/."]
    if catalog.failures:
        lines += [
            "",
            f"{len(catalog.failures)} could not be loaded:",
            *(f"  {failure}" for failure in catalog.failures),
        ]
    return "\n".join(lines)


def _row(contract: Contract) -> tuple[str, ...]:
    declared = contract.hints.to_mcp()
    hints = [_HINTS[name][0 if value else 1] for name, value in declared.items()]
    return contract.id, contract.summary, ", ".join(hint for hint in hints if hint), contract.source


def table(rows: list[tuple[str, ...]], width: int) -> list[str]:
    """Rows in columns; the second one gives way where they do not all fit."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    others = sum(widths) - widths[1] + len(_GAP) * (len(widths) - 1)
    widths[1] = max(min(widths[1], width - others), min(widths[1], _LEAST))
    return [_GAP.join(_cell(text, size) for text, size in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cell(text: str, size: int) -> str:
    return text.ljust(size) if len(text) <= size else f"{text[: size - 1]}…"
