"""`prowess status`: which clients the project is connected to, and whether that works."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from prowess_host.cli.connections import needed_by, problem_lines, shown_path, trial_line
from prowess_host.cli.exit_codes import DONE, FAILED
from prowess_host.cli.options import ProjectOptions, json_option, project_options
from prowess_host.cli.projects import agents_of, check_project, settings_of
from prowess_host.cli.terminal import Style, pretty
from prowess_host.clients.connecting import ServerEntry, connections_of
from prowess_host.clients.machine import Machine
from prowess_host.clients.table import CLIENTS
from prowess_host.clients.trial import Trial, try_connection

__all__ = ["command"]


@click.command("status")
@project_options
@click.option("--no-try", "untried", is_flag=True, help="Only read the files; start nothing.")
@json_option("Print everything as JSON.")
def command(where: ProjectOptions, *, untried: bool, as_json: bool) -> int:
    """Show which clients the project is connected to, and whether each still works.

    Tries every connection: starts the host as that client starts it. The exit code is 1 if one does not work.
    """
    machine = Machine.this()
    check_project(where)
    connections = list(connections_of(where.root, machine))
    needed = needed_by(where, machine) if connections and not untried else []
    trials = [None if untried else _tried(each, where, machine, needed) for each in connections]
    both = list(zip(connections, trials, strict=True))
    agents = asyncio.run(agents_of(settings_of(where)))
    print(_as_json(both, agents) if as_json else "\n".join([_as_text(both, where, machine), *agents]))
    return FAILED if any(_is_bad(*each) for each in both) else DONE


def _tried(connection: ServerEntry, where: ProjectOptions, machine: Machine, needed: list[str]) -> Trial | None:
    if connection.launch is None:
        return None
    work = try_connection(connection.client, connection.name, connection.launch, where.root, machine, needed=needed)
    return asyncio.run(work)


def _is_bad(connection: ServerEntry, trial: Trial | None) -> bool:
    return connection.problem is not None or (trial is not None and not trial.works)


def _as_json(both: list[tuple[ServerEntry, Trial | None]], agents: list[str]) -> str:
    rows: list[dict[str, Any]] = [
        {
            "client": connection.client.name,
            "scope": connection.scope,
            "name": connection.name,
            "file": str(connection.file),
            "problem": connection.problem,
            "switched_off": connection.is_off,
            "trial": None if trial is None else trial.to_json(),
        }
        for connection, trial in both
    ]
    return pretty({"connections": rows, **({"cluster": agents} if agents else {})})


def _as_text(both: list[tuple[ServerEntry, Trial | None]], where: ProjectOptions, machine: Machine) -> str:
    style = Style.of(sys.stdout)
    if not both:
        found = [row.name for row in CLIENTS.values() if row.is_found(machine)]
        example = f"prowess connect {' '.join(found[:3]) or 'claude-code'}"
        return f"{where.root} is connected to no client. Connect it: {example}"
    lines: list[str] = []
    for connection, trial in both:
        place = shown_path(connection.file, where.root, machine)
        name = f" as {connection.name}" if connection.name else ""
        lines.append(f"{style(connection.client.title, 'bold')}{name}  {style(f'{connection.scope}: {place}', 'dim')}")
        if connection.problem is not None:
            lines.append(f"  {style('cannot be read', 'red')} {connection.problem}")
        if connection.is_off:
            lines.append(f"  {style('switched off in the client: enable the server there', 'yellow')}")
        if trial is not None:
            lines.append(f"  {style(trial_line(trial), 'green' if trial.works else 'red')}")
            lines += problem_lines(trial.problems, style)
    return "\n".join(lines)
