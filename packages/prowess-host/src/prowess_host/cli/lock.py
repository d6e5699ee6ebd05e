"""`prowess lock`: writes the exact versions of the dependencies of a skill to a file beside the skill."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from prowess_host.cli.exit_codes import DONE, FAILED
from prowess_host.cli.needs import Needs, needs_of_project
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import settings_of, shown_path
from prowess_host.cli.terminal import complain
from prowess_host.environments.builds import run
from prowess_host.environments.errors import BuildError

__all__ = ["command"]


@click.command("lock")
@click.argument("skills", nargs=-1, metavar="[SKILL]...")
@project_options
def command(where: ProjectOptions, *, skills: tuple[str, ...]) -> int:
    """Write lock files with the exact versions of the dependencies of skills."""
    return asyncio.run(_lock(needs_of_project(settings_of(where)), skills))


async def _lock(needs: Needs, skills: tuple[str, ...]) -> int:
    chosen = needs.among(skills)
    failed = needs.complain(skills)
    if not chosen and not failed:
        print("No skill has an environment of its own.")
    for skill, needed in chosen.items():

        def report(line: str, skill: str = skill) -> None:
            print(f"{skill}: {line}", file=sys.stderr)

        file = needed.lock_file
        try:
            order = needed.order(needs.cache, lock=str(file), locked="")
            await run(order, report, needed.own.environments.build_timeout)
        except BuildError as error:
            complain(f"{skill}: {error}")
            failed = True
        else:
            print(f"{shown_path(Path(file), needs.root)} written.")
    return FAILED if failed else DONE
