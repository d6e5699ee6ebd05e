"""The dependencies of the skills of a project, for the commands about environments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from prowess.errors import ProwessError, did_you_mean
from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess.skills.discovery import survey
from prowess_host.catalog.known import KnownCatalog
from prowess_host.catalog.limited import read_limits
from prowess_host.catalog.needs import NeededEnvironments, read_environments
from prowess_host.cli.terminal import complain
from prowess_host.environments.builds import Needed

__all__ = ["Needs", "grouped", "needs_of_project"]


class Needs(NamedTuple):
    """The environments of one project."""

    root: Path
    cache: Path
    found: NeededEnvironments

    def among(self, skills: tuple[str, ...]) -> dict[str, Needed]:
        """The environments of some skills, by skill; of all skills if none is named."""
        needed = self.found.needed
        for skill in skills:
            if skill not in needed and skill not in self.found.broken:
                hint = did_you_mean(skill, [*needed])
                raise ProwessError(f"there is no skill {skill!r} with an environment of its own{hint}")
        return {skill: needs for skill, needs in needed.items() if not skills or skill in skills}

    def complain(self, skills: tuple[str, ...]) -> bool:
        """Print unreadable declarations; returns whether there were any."""
        broken = [each for skill, each in self.found.broken.items() if not skills or skill in skills]
        for failure in broken:
            complain(str(failure))
        return bool(broken)


def needs_of_project(settings: Settings) -> Needs:
    """The declared dependencies in the current files of the skills."""
    paths = ConfigPaths.of(settings, os.environ)
    known = KnownCatalog(paths, settings.own)
    known.recall()
    folders = dict.fromkeys((*paths.skills_dirs, *map(Path, known.description.folders)))
    sources, root = survey(folders).sources, paths.project_root
    limited = read_limits(sources, folders, settings, root)
    # Limits are not checked: a container image may be built on a system that cannot enforce them.
    names = {*limited.grants, *limited.broken}
    return Needs(root, paths.cache_dir, read_environments(sources, settings.own, root, names))


def grouped(needed: dict[str, Needed]) -> list[tuple[Needed, tuple[str, ...]]]:
    """Each environment with the skills that share it."""
    keys = {needs.key: needs for needs in needed.values()}
    return [(needs, tuple(skill for skill, other in needed.items() if other.key == key)) for key, needs in keys.items()]
