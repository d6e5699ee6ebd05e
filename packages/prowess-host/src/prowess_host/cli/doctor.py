"""`prowess doctor`: finds faults, from the interpreter to each client, and names the remedies."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Final

import click

from prowess.contracts.contract import Contract
from prowess_host.cli.catalogs import profile_of
from prowess_host.cli.exit_codes import DONE, FAILED
from prowess_host.cli.options import ProjectOptions, json_option, project_options
from prowess_host.cli.projects import opened, settings_of
from prowess_host.cli.terminal import Style, plural, pretty, table, width
from prowess_host.clients.machine import Machine
from prowess_host.doctor.checks import CheckedProject, examine
from prowess_host.doctor.context import Cost, costs_of
from prowess_host.doctor.findings import Finding
from prowess_host.doctor.matrix import Matrix, matrix_of
from prowess_host.review import lint

__all__ = ["command"]

_MARKS: Final = {
    "ok": ("✓", ("green",)),
    "note": ("·", ("dim",)),
    "warning": ("!", ("yellow",)),
    "error": ("✗", ("red", "bold")),
}
_SHOWN: Final = 20

_EPILOG = """\b
Examples:
  prowess doctor              the whole chain, with every connected client started
  prowess doctor --matrix     which command breaks which rule of which client
  prowess doctor --context    what the list of tools costs in tokens, and what to shorten
"""


@click.command("doctor", epilog=_EPILOG)
@project_options
@click.option("--matrix", is_flag=True, help="A table of commands and clients, with the rules that are broken.")
@click.option("--context", is_flag=True, help="What each command costs a model, and what to shorten.")
@click.option("--server", default="prowess", metavar="NAME", help="The server's name in clients, for --matrix.")
@click.option("--no-try", "untried", is_flag=True, help="Do not start the host as each client does.")
@json_option("Print everything as JSON.")
def command(where: ProjectOptions, *, matrix: bool, context: bool, server: str, untried: bool, as_json: bool) -> int:
    """Find what is wrong: Python, settings, skills, the manifest and each connected client.

    The exit code is 1 if there is an error. Secrets are never printed.
    """
    if matrix or context:
        contracts, profile = asyncio.run(_contracts(where)), profile_of(settings_of(where).own.profile)
        return (
            _print_matrix(matrix_of(contracts, profile, server), as_json=as_json)
            if matrix
            else (_print_context(costs_of(contracts, profile), as_json=as_json))
        )
    checked = CheckedProject(where.root, Machine.this(), where.flags, live=not untried)
    return asyncio.run(_print_findings(checked, as_json=as_json))


async def _contracts(where: ProjectOptions) -> tuple[Contract, ...]:
    async with opened(where) as project:
        await project.load()
        return project.catalog().tools


# --- findings -------------------------------------------------------------------------------------


async def _print_findings(checked: CheckedProject, *, as_json: bool) -> int:
    """Print each finding at once: trying the clients takes a while."""
    style, area, found = Style.of(sys.stdout), "", list[Finding]()
    async for finding in examine(checked):
        found.append(finding)
        if as_json:
            continue
        if finding.area != area:
            area = finding.area
            print(style(area, "bold"))
        print("\n".join(_lines(finding, style)), flush=True)
    errors, warnings = (sum(each.level == level for each in found) for level in ("error", "warning"))
    if as_json:
        data = {"findings": [each.to_json() for each in found], "errors": errors, "warnings": warnings}
        print(pretty(data))
    else:
        print(style(f"\n{plural(errors, 'error')}, {plural(warnings, 'warning')}", "bold"))
    return FAILED if errors else DONE


def _lines(finding: Finding, style: Style) -> list[str]:
    mark, looks = _MARKS[finding.level]
    lines = [f"  {style(mark, *looks)} {finding.message}"]
    return [*lines, f"    {style(f'→ {finding.remedy}', 'dim')}"] if finding.remedy else lines


# --- the matrix -----------------------------------------------------------------------------------


def _print_matrix(matrix: Matrix, *, as_json: bool) -> int:
    is_bad = any(each.level == "error" for findings in matrix.cells.values() for each in findings)
    print(pretty(matrix.to_json()) if as_json else _matrix_text(matrix))
    return FAILED if is_bad else DONE


def _matrix_text(matrix: Matrix) -> str:
    """The table, with numbers in the cells and a legend below, so that it fits any terminal."""
    style = Style.of(sys.stdout)
    unruled = f"No rules are known for {', '.join(matrix.unruled)}."
    if not matrix.cells:
        return (
            f"{plural(len(matrix.commands), 'command')}: no rule of {', '.join(matrix.clients)} is broken.\n{unruled}"
        )
    clients = [name for name in matrix.clients if any(client == name for _, client in matrix.cells)]
    commands = [name for name in ("", *matrix.commands) if any(command == name for command, _ in matrix.cells)]
    rules = sorted({each.rule for findings in matrix.cells.values() for each in findings})
    numbers = {rule: str(number) for number, rule in enumerate(rules, 1)}
    rows = [("COMMAND", *clients)]
    for command in commands:
        cells = (matrix.cells.get((command, client), ()) for client in clients)
        rows.append((command or "(all tools)", *(_cell(findings, numbers) for findings in cells)))
    looks = [("bold",), *[("yellow",)] * len(clients)]
    lines = table(rows, width(sys.stdout), yields=0, looks=looks, style=style)
    fine = len(matrix.commands) - len([each for each in commands if each])
    others = [name for name in matrix.clients if name not in clients]
    lines += ["", *_legend(matrix, numbers, style), ""]
    lines += [f"{plural(fine, 'other command')}: nothing broken."] if fine else []
    lines += [f"Nothing is broken in {', '.join(others)}."] if others else []
    lines.append(unruled)
    return "\n".join(lines).rstrip()


def _cell(findings: Sequence[lint.LintFinding], numbers: dict[str, str]) -> str:
    """The numbers of the broken rules. Rules that make the client drop the tool have a mark."""
    bad = {each.rule for each in findings if each.level == "error"}
    return " ".join(f"{numbers[rule]}{'!' if rule in bad else ''}" for rule in sorted({each.rule for each in findings}))


def _legend(matrix: Matrix, numbers: dict[str, str], style: Style) -> list[str]:
    """Each rule with its message about the first command that breaks it."""
    lines = [style("! the client rejects the tool; without a mark, it cuts or changes it", "dim")]
    every = [(each.rule, command, each.message) for (command, _), found in matrix.cells.items() for each in found]
    for rule, cases in groupby(sorted(every), key=lambda case: case[0]):
        first = next(cases)
        prefix = f"{first[1]}: " if first[1] else ""
        lines.append(f"{style(numbers[rule], 'yellow')} {style(rule, 'bold')}  {prefix}{first[2]}")
    return lines


# --- the context ----------------------------------------------------------------------------------


def _print_context(costs: Sequence[Cost], *, as_json: bool) -> int:
    total = sum(cost.total for cost in costs)
    if as_json:
        print(pretty({"tokens": total, "commands": [cost.to_json() for cost in costs]}))
        return DONE
    style = Style.of(sys.stdout)
    rows = [("COMMAND", "TOKENS", "DESCRIPTION", "ARGUMENTS")]
    rows += [(cost.command, str(cost.total), str(cost.description), str(cost.arguments)) for cost in costs]
    lines = table(rows, width(sys.stdout), yields=0, looks=[("bold",), ("yellow",), (), ()], style=style)
    advice = [(cost.command, text) for cost in costs for text in cost.shorten][:_SHOWN]
    lines += ["", "What to shorten, with its tokens:"] if advice else []
    lines += [f"  {style(name, 'bold')}: {text}" for name, text in advice]
    lines += ["", f"{plural(len(costs), 'command')}, about {total:,} tokens in every prompt."]
    lines += ["The setting hide leaves commands out."] if costs else []
    print("\n".join(lines))
    return DONE
