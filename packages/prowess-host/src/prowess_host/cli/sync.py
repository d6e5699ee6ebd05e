"""`prowess sync`: makes the environments of skills before their first call."""

from __future__ import annotations

import asyncio
import sys

import click

from prowess_host.cli.exit_codes import DONE, FAILED
from prowess_host.cli.needs import Needs, grouped, needs_of_project
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import settings_of
from prowess_host.cli.terminal import complain
from prowess_host.environments.builds import Builds, Needed, run
from prowess_host.environments.errors import BuildError
from prowess_host.environments.store import in_megabytes

__all__ = ["command"]


@click.command("sync")
@click.argument("skills", nargs=-1, metavar="[SKILL]...")
@click.option("--rebuild", is_flag=True, help="Recreate existing environments.")
@project_options
def command(where: ProjectOptions, *, skills: tuple[str, ...], rebuild: bool) -> int:
    """Make the environments of skills before their first call."""
    return asyncio.run(_sync(needs_of_project(settings_of(where)), skills, rebuild=rebuild))


async def _sync(needs: Needs, skills: tuple[str, ...], *, rebuild: bool) -> int:
    groups = grouped(needs.among(skills))
    failed = needs.complain(skills)
    if not groups and not failed:
        print("No skill has an environment of its own.")
    builds = Builds(needs.cache)
    try:
        for needed, sharing in groups:
            failed = not await _made(builds, needed, sharing, rebuild=rebuild) or failed
    finally:
        builds.close()
    return FAILED if failed else DONE


async def _made(builds: Builds, needed: Needed, skills: tuple[str, ...], *, rebuild: bool) -> bool:
    names = ", ".join(skills)
    was_there = builds.store.is_ready(needed.key)

    def report(line: str) -> None:
        print(f"{names}: {line}", file=sys.stderr)

    try:
        if rebuild:
            await run(needed.order(builds.cache, anew=True), report, needed.own.environments.build_timeout)
        await builds.ready(needed, report)
    except BuildError as error:
        complain(f"{names}: {error}")
        return False
    found = builds.store.look(needed.key)
    if found is not None:
        state = "is there" if was_there and not rebuild else "made"
        print(f"{names}: {state}, Python {found.python}, {in_megabytes(found.size)}, {found.path}")
    return True
