"""Shared by `build` and `check`: the catalog of the current code, and the path of the committed one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import click

from prowess.contracts.catalog import Catalog
from prowess.contracts.contract import Contract
from prowess.errors import ProwessError, did_you_mean
from prowess.frozen import frozen
from prowess.profiles.profile import BUILT_IN, Profile
from prowess.settings.keys import OwnSettings
from prowess.settings.limits import Limits
from prowess_host.cli.options import ProjectOptions
from prowess_host.cli.projects import opened, with_short_paths
from prowess_host.files.served_files import Trouble, look
from prowess_host.review.snapshot import PLACE

__all__ = [
    "Loaded",
    "catalog_option",
    "check_profile",
    "failure_lines",
    "load",
    "profile_of",
    "shown_profile",
]


@frozen
class Loaded:
    """The code of a project, described by a worker."""

    root: Path
    own: OwnSettings
    catalog: Catalog
    troubles: tuple[Trouble, ...] = ()
    """Failures of files that clients should be able to read."""
    limits: Mapping[str, Limits] = field(default_factory=dict[str, Limits])
    """The limits of all limited skills."""

    def file(self, named: str | None) -> Path:
        """The committed catalog."""
        return Path(named) if named else self.root / PLACE


async def load(where: ProjectOptions) -> Loaded:
    """Describe the project that the options name. Raises `ChildProcessError`."""
    async with opened(where) as project:
        catalog = await project.describe()
        root, problems = project.settings.root, tuple(look(project.file_sources()).problems)
        return Loaded(root, project.own, with_short_paths(catalog, root), problems, project.limits)


def catalog_option(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add an option for another path of the committed catalog, as the parameter `file`."""
    return click.option(name, "file", metavar="FILE", help=f"The committed catalog. Default: {PLACE} in the project.")


def check_profile(name: str) -> None:
    """Reject a profile that is not built in: only workers know profiles of plugins."""
    if name not in BUILT_IN:
        raise ProwessError(f"unknown profile {name!r}{did_you_mean(name, BUILT_IN)} (there are: {', '.join(BUILT_IN)})")


def shown_profile(name: str) -> Profile:
    """The profile of a project in catalogs and reports: the portable one in place of a plugin's, which only workers know."""
    return BUILT_IN.get(name, BUILT_IN["portable"])


def profile_of(usual: str) -> Callable[[Contract], Profile]:
    """The profile of each command in a project with this one."""
    default = shown_profile(usual)
    return lambda contract: BUILT_IN.get(contract.profile or usual, default)


def failure_lines(loaded: Loaded) -> list[str]:
    """The files that failed to load, with the reasons."""
    failures = loaded.catalog.failures
    return [f"{len(failures)} could not be loaded:", *(f"  {failure}" for failure in failures)] if failures else []
