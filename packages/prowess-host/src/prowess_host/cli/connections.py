"""Shared by `connect`, `disconnect`, `status`, `doctor` and `check`: the named clients, and the text about a trial."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from prowess_host.cli.options import ProjectOptions
from prowess_host.cli.projects import opened
from prowess_host.cli.terminal import Style, plural
from prowess_host.clients.machine import Machine
from prowess_host.clients.needs import needed_variables
from prowess_host.clients.table import CLIENTS, SCOPES, KnownClient, client_named
from prowess_host.clients.trial import Trial, TrialProblem

__all__ = [
    "ClientName",
    "client_names",
    "clients_on",
    "needed_by",
    "no_client",
    "problem_lines",
    "scope_option",
    "shown_path",
    "trial_line",
    "typed",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LOOKS: Final = {"error": ("red", "bold"), "warning": ("yellow",), "note": ("dim",)}


def client_names(every: str) -> Callable[[_Function], _Function]:
    """Add the argument `CLIENT...` and the flag `--all`, with its help."""
    names = click.argument("clients", nargs=-1, metavar="[CLIENT]...", type=ClientName())
    flag = click.option("--all", "every", is_flag=True, help=every)
    return lambda function: names(flag(function))


def scope_option(default: str) -> Callable[[_Function], _Function]:
    """Add `--scope`, with the default in words."""
    text = f"The project's own file, or the user's. Default: {default}."
    return click.option("--scope", type=click.Choice(SCOPES), help=text)


class ClientName(click.ParamType[str]):
    """The name of a client, completed from the table."""

    name = "client"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:  # noqa: ARG002 - click's signature
        """The names with this beginning."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(row.name, help=row.title) for row in CLIENTS.values() if row.name.startswith(incomplete)]

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's signature
        """The name in the table."""
        return client_named(value).name


def no_client(machine: Machine, verb: str) -> str:
    """The message if no client was named: what to type for each client that is found here, and the names of the others."""
    found = clients_on(machine)
    others = ", ".join(row.name for row in CLIENTS.values() if row not in found)
    if not found:
        return f"name a client, for example: prowess {verb} claude-code. No known client is found here. There are:\n  {others}"
    return f"name a client. Found here:{typed(verb, found)}" + (f"\nNot found here: {others}" if others else "")


def typed(verb: str, clients: Iterable[KnownClient]) -> str:
    """What to type for each client, in lines."""
    lines = [(f"  prowess {verb} {row.name}", row.title) for row in clients]
    size = max(len(line) for line, _ in lines)
    return "".join(f"\n{line:{size}}   {title}" for line, title in lines)


def clients_on(machine: Machine) -> list[KnownClient]:
    """The clients that are found on this machine."""
    return [row for row in CLIENTS.values() if row.is_found(machine)]


def needed_by(where: ProjectOptions, machine: Machine) -> list[str]:
    """The variables that the project needs from outside. Loads the commands to find out."""

    async def contracts() -> tuple[Any, ...]:
        async with opened(where) as project:
            await project.load()
            return tuple(project.catalog())

    return needed_variables(where.root, asyncio.run(contracts()), machine.environ)


def trial_line(trial: Trial) -> str:
    """The result of a trial in one line."""
    session = trial.session
    if session.failure is not None:
        return "does not work"
    count, seconds = plural(len(session.tools), "tool"), session.listed or 0
    return f"works: {count} after {seconds:.2f} s, about {trial.tokens:,} tokens"


def problem_lines(problems: Iterable[TrialProblem], style: Style) -> list[str]:
    """Problems with their remedies. Equal problems of several commands are merged."""
    lines: list[str] = []
    for problem in problems:
        prefix = f"{problem.command}: " if problem.command else ""
        lines.append(f"  {style(problem.level, *_LOOKS[problem.level])} {prefix}{problem.message}")
        if problem.remedy:
            lines.append(f"    {style(f'→ {problem.remedy}', 'dim')}")
    return lines


def shown_path(file: Path, root: Path, machine: Machine) -> str:
    """A path relative to the project or to the home folder."""
    if file.is_relative_to(root):
        return str(file.relative_to(root))
    return f"~/{file.relative_to(machine.home).as_posix()}" if file.is_relative_to(machine.home) else str(file)
