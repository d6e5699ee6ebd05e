"""`prowess disconnect`: undoes what `connect` did to a client's file."""

from __future__ import annotations

import sys

import click

from prowess.errors import ProwessError
from prowess_host.cli.connect import diff_lines
from prowess_host.cli.connections import client_names, no_client, scope_option, shown_path, typed
from prowess_host.cli.exit_codes import DONE, FAILED
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.terminal import Style, complain
from prowess_host.clients.connecting import ConnectTarget, connections_of, execute, plan_disconnect
from prowess_host.clients.documents import ClientFileError
from prowess_host.clients.ledger import Ledger
from prowess_host.clients.machine import Machine
from prowess_host.clients.table import CLIENTS

__all__ = ["command"]

_EPILOG = """\b
Examples:
  prowess disconnect cursor
  prowess disconnect --all --dry-run
"""


@click.command("disconnect", epilog=_EPILOG)
@project_options
@client_names("All clients.")
@scope_option("both")
@click.option("--name", help="Only the server of this name. Default: every one that serves the project.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
def command(
    where: ProjectOptions, *, clients: tuple[str, ...], every: bool, scope: str | None, name: str | None, dry_run: bool
) -> int:
    """Remove the project from MCP clients.

    Restores a file byte for byte if it is unchanged since `connect`; otherwise removes only the entry. Deletes the files
    and folders that `connect` created.
    """
    machine = Machine.this()
    if not clients and not every:
        connected = {each.client.name: each.client for each in connections_of(where.root, machine) if each.launch}
        if connected:
            raise ProwessError(f"name a client. Connected:{typed('disconnect', connected.values())}")
        raise ProwessError(no_client(machine, "disconnect"))
    named = [CLIENTS[each] for each in dict.fromkeys(clients)] or list(CLIENTS.values())
    failed, found = False, False
    for connection in connections_of(where.root, machine, named):
        if scope not in (None, connection.scope) or (name is not None and name != connection.name):
            continue
        found = True
        if connection.problem is not None:
            complain(connection.problem)
            failed = True
            continue
        target = ConnectTarget(connection.client, connection.scope, connection.name, where.root)
        failed = not _disconnect(target, machine, dry_run=dry_run) or failed
    if not found:
        whose = " or ".join(row.title for row in named) if clients else "any client"
        called = f" as {name!r}" if name is not None else ""
        print(f"nothing to do: no file of {whose} contains {where.root}{called}")
    return FAILED if failed else DONE


def _disconnect(target: ConnectTarget, machine: Machine, *, dry_run: bool) -> bool:
    style, ledger = Style.of(sys.stdout), Ledger(machine.own_state)
    try:
        plan = plan_disconnect(target, machine, ledger)
        print(f"{style(target.client.title, 'bold')}  {shown_path(plan.file, target.root, machine)}")
        print("\n".join(diff_lines(plan, style)))
        if not dry_run:
            execute(plan, ledger, lambda: plan_disconnect(target, machine, ledger))
            gone = "" if plan.file.exists() else "; the file was created for it, and is deleted"
            print(f"  disconnected: {target.name}{gone}")
    except ClientFileError as error:
        complain(str(error))
        return False
    return True
