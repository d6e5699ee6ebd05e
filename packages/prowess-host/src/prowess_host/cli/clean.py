"""`prowess clean`: deletes unused environments."""

from __future__ import annotations

import os
from pathlib import Path

import click

from prowess.errors import ProwessError
from prowess.settings.settings import Settings
from prowess_host.cli.exit_codes import DONE
from prowess_host.cli.needs import needs_of_project
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import settings_of
from prowess_host.environments.store import EnvironmentStore, InUse, in_megabytes

__all__ = ["command"]


@click.command("clean")
@click.option("--all", "everything", is_flag=True, help="Delete every environment that no running host uses.")
@click.option("--dry-run", is_flag=True, help="Only list what would be deleted.")
@project_options
def command(where: ProjectOptions, *, everything: bool, dry_run: bool) -> int:
    """Delete the environments that no project uses."""
    here = needs_of_project(settings_of(where))
    store = EnvironmentStore(here.cache)
    count, freed = 0, 0
    for found in store.known():
        users = {*store.users(found.key), here.root}
        if not everything and any(_wants(root, where, found.key) for root in users):
            continue
        if not dry_run:
            try:
                store.remove(found.key)
            except InUse:
                continue
        count, freed = count + 1, freed + found.size
        print(f"{found.path}: {', '.join(found.dependencies) or 'no dependencies'}, {in_megabytes(found.size)}")
    drafts = 0 if dry_run else store.remove_drafts()
    more = f", and {drafts} that were not finished" if drafts else ""
    print(f"{count} environments {'would be ' if dry_run else ''}deleted{more}, {in_megabytes(freed)}.")
    return DONE


def _wants(root: Path, where: ProjectOptions, key: str) -> bool:
    """Whether a project needs an environment. A project with unreadable settings may need it."""
    if not root.is_dir():
        return False
    try:
        needs = needs_of_project(Settings.load(root, environ=os.environ, flags=where.flags))
    except ProwessError:
        return True
    return any(needed.key == key for needed in needs.found.needed.values())
