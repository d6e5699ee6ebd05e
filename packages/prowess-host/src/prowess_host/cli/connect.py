"""`prowess connect`: adds a project to MCP clients, and tries first whether it will work there."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from prowess.errors import ProwessError
from prowess.frozen import frozen
from prowess_host.cli.asking import can_ask
from prowess_host.cli.connections import (
    client_names,
    clients_on,
    needed_by,
    no_client,
    problem_lines,
    scope_option,
    shown_path,
    trial_line,
)
from prowess_host.cli.exit_codes import DONE, FAILED, WRONG_USE
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import check_project
from prowess_host.cli.terminal import Style, complain, interruptible
from prowess_host.clients.connecting import ConnectTarget, FileChange, execute, plan_connect
from prowess_host.clients.documents import ClientFileError
from prowess_host.clients.launches import Launch, host_launch
from prowess_host.clients.ledger import Ledger
from prowess_host.clients.machine import Machine
from prowess_host.clients.table import CLIENTS, KnownClient, client_named
from prowess_host.clients.trial import Trial, try_connection

__all__ = ["command", "diff_lines"]

_EPILOG = """\b
Examples:
  prowess connect                               choose among the clients found here
  prowess connect claude-code                   in the project's .mcp.json
  prowess connect cursor vscode --dry-run       only show what would change
  prowess connect codex --scope user --name notes
  prowess connect claude-code --env GITHUB_TOKEN  pass on a variable, without its value
"""


_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The names that every shell and every client can refer to."""


@frozen
class _Request:
    """The options, without the clients."""

    where: ProjectOptions
    root: Path
    scope: str | None
    name: str
    variables: tuple[str, ...]
    dry_run: bool
    untried: bool


@click.command("connect", epilog=_EPILOG)
@project_options
@client_names("All clients found on this machine.")
@scope_option("the project's, where the client has one")
@click.option("--name", default="prowess", show_default=True, help="The server's name in the client.")
@click.option("--env", "variables", metavar="NAME[=VALUE]", multiple=True, help="A variable that the host needs.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--no-try", "untried", is_flag=True, help="Do not start the host to see whether it works.")
def command(
    where: ProjectOptions,
    *,
    clients: tuple[str, ...],
    every: bool,
    scope: str | None,
    name: str,
    variables: tuple[str, ...],
    dry_run: bool,
    untried: bool,
) -> int:
    """Put the project into MCP clients.

    First starts the host as the client will start it, and checks its tools against the client's limits. Then writes the
    entry into the client's own file and keeps a backup. The rest of the file stays as it is, with comments, order and layout.
    """
    _check_variables(variables)
    machine = Machine.this()
    root = check_project(where)
    found = clients_on(machine)
    chosen = found if every else [CLIENTS[each] for each in dict.fromkeys(clients)]
    if not chosen and found and can_ask():
        chosen = _ask_for_clients(found)
    if not chosen:
        raise ProwessError(no_client(machine, "connect"))
    request = _Request(where, root, scope, name, variables, dry_run, untried)
    needed = () if dry_run or untried else needed_by(where, machine)
    codes = [_connect(row, request, machine, tuple(needed)) for row in chosen]
    return max(codes)


def _ask_for_clients(found: Sequence[KnownClient]) -> list[KnownClient]:
    """Let the person choose among the clients that are found here. Every other one can be named, too."""
    names = [row.name for row in found]
    print("Found here:", file=sys.stderr)
    for number, row in enumerate(found, 1):
        print(f"  {number:2}  {row.name:16} {row.title}", file=sys.stderr)

    def chosen(text: str) -> list[str]:
        words = text.replace(",", " ").split()
        return names if words == ["all"] else [_name(word, names) for word in words]

    with interruptible():
        typed = click.prompt("Connect which? Type numbers or names, or all", value_proc=chosen, err=True)
    return [CLIENTS[each] for each in dict.fromkeys(typed)]


def _name(word: str, numbered: Sequence[str]) -> str:
    """The name of the client that the person typed, by its number or its name."""
    if word.isdecimal():
        if not 1 <= int(word) <= len(numbered):
            raise click.UsageError(f"type a number from 1 to {len(numbered)}")
        return numbered[int(word) - 1]
    try:
        return client_named(word).name
    except ProwessError as error:
        raise click.UsageError(str(error)) from None


def _check_variables(words: Sequence[str]) -> None:
    for word in words:
        name = word.partition("=")[0]
        if not _VARIABLE.fullmatch(name):
            raise ProwessError(
                f"--env {name}: {name!r} is not the name of an environment variable; "
                "write letters, digits and underscores, without a digit at the start: --env NAME or --env NAME=VALUE"
            )


def _connect(client: KnownClient, request: _Request, machine: Machine, needed: Sequence[str]) -> int:
    """Connect one client. An error does not stop the others."""
    ledger, style = Ledger(machine.own_state), Style.of(sys.stdout)
    target = ConnectTarget(client, request.scope or client.usual_scope, request.name, request.root)
    try:
        launch = _launch(client, request, machine, needed)
        plan = plan_connect(target, launch, machine, ledger)
        _announce(plan, request.root, machine, style)
        if request.dry_run:
            return DONE
        trial = None if request.untried else asyncio.run(_try(plan, launch, machine, needed))
        if trial is not None and not _show_trial(trial, style):
            complain(f"{client.title} was not connected: nothing was written. --no-try skips the trial and writes")
            return FAILED
        backup = execute(plan, ledger, lambda: plan_connect(target, launch, machine, ledger))
    except ClientFileError as error:
        complain(str(error))
        return FAILED
    except ProwessError as error:
        complain(str(error))
        return WRONG_USE
    _conclude(plan, backup, machine, style)
    return DONE


def _launch(client: KnownClient, request: _Request, machine: Machine, needed: Sequence[str]) -> Launch:
    """The command, with the requested variables and those that the client would drop."""
    given = dict(word.split("=", 1) for word in request.variables if "=" in word)
    named = [word for word in request.variables if "=" not in word]
    if named and not client.can_refer():
        words = " ".join(f"--env {name}=VALUE" for name in named)
        raise ProwessError(f"{client.title} cannot refer to variables of its environment: write {words}, or use .env")
    dropped = [
        name
        for name in needed
        if name in machine.environ and client.can_refer() and client.environment.drops(name, windows=machine.is_windows)
    ]
    launch = host_launch(request.root, flags=request.where.set)
    names = [name for name in (*named, *dropped) if name not in given]
    launch = launch.needing(names, client.reference) if names else launch
    return replace(launch, env={**launch.env, **given})


async def _try(plan: FileChange, launch: Launch, machine: Machine, needed: Sequence[str]) -> Trial:
    target = plan.target
    return await try_connection(target.client, target.name, launch, target.root, machine, needed=needed)


def diff_lines(plan: FileChange, style: Style) -> list[str]:
    """The difference, coloured."""
    looks = {"+": "green", "-": "red", "@": "cyan"}
    return [f"  {style(line, looks[line[0]]) if line[:1] in looks else line}" for line in plan.diff()]


def _announce(plan: FileChange, root: Path, machine: Machine, style: Style) -> None:
    client = plan.target.client
    print(f"{style(client.title, 'bold')}  {shown_path(plan.file, root, machine)}")
    print(
        "\n".join(diff_lines(plan, style)) if plan.changes else "  nothing to change: the file already has this entry"
    )


def _show_trial(trial: Trial, style: Style) -> bool:
    """Print the result of the trial. Returns whether the client would get its tools."""
    is_usable = trial.works and all(each.level != "error" or each.command for each in trial.problems)
    print(f"  {style(trial_line(trial), 'green' if trial.works else 'red')}")
    print("".join(f"{line}\n" for line in problem_lines(trial.problems, style)), end="")
    return is_usable


def _conclude(plan: FileChange, backup: Path | None, machine: Machine, style: Style) -> None:
    target = plan.target
    if backup is not None:
        print(f"  {style(f'backup: {shown_path(backup, target.root, machine)}', 'dim')}")
    if plan.changes and target.scope == "project":
        print(f"  {style('the file contains paths of this machine, which other machines cannot use', 'dim')}")
    if plan.changes:
        print(f"  connected as {target.name}; next: {target.client.next_step}")
