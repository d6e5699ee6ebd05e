"""What skills need: reads the environments and the limits that their files and the settings declare.

Light to import: the modules that make environments and check limits are imported when a skill needs them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prowess.contracts.catalog import Failure
from prowess.frozen import frozen
from prowess.settings.keys import OwnSettings
from prowess.settings.settings import Settings
from prowess.skills.discovery import Source, needs_of, survey
from prowess.skills.stamps import read
from prowess_host.catalog.labels import labels_of_skill
from prowess_host.catalog.limited import read_limits
from prowess_host.workers.placement import Placement

if TYPE_CHECKING:
    from prowess_host.environments.builds import Needed

__all__ = ["NeededEnvironments", "SkillNeeds", "read_environments", "read_needs"]

_MENTION: Final = b"# /// script"


@frozen
class SkillNeeds:
    """The environment and the limits of one skill; either may be absent."""

    environment: Needed | None
    placement: Placement
    """Where it runs as soon as the environment exists. Skills with equal placements share workers."""
    file: str
    """The file with the declaration."""

    def on_agents(self, labels: str) -> Placement:
        """The placement on agents, which make the environment themselves."""
        return Placement(self.environment and self.environment.key, self.placement.limits, labels)


@frozen
class NeededEnvironments:
    """The environments that the files declare."""

    needed: Mapping[str, Needed]
    """The required environments by skill."""
    broken: Mapping[str, Failure]
    """The reasons of unreadable declarations by skill."""


def read_needs(
    folders: tuple[Path, ...], settings: Settings, root: Path, cache: Path
) -> dict[str, SkillNeeds | Failure]:
    """The skills that need an environment or limits, by name. A failure says why a declaration cannot be read."""
    sources = survey(folders).sources
    limited = read_limits(sources, folders, settings, root)
    found = read_environments(sources, settings.own, root, limited.grants)
    needs: dict[str, SkillNeeds | Failure] = {**found.broken, **limited.broken}
    by_name = {source.name: source for source in sources}
    for skill in sorted({*found.needed, *limited.grants} - needs.keys()):
        environment = found.needed.get(skill)
        python, labels, file = None, "", settings.sandbox.origin
        if environment is not None:
            from prowess_host.environments.store import EnvironmentStore

            labels = labels_of_skill(by_name[skill], settings.own) if settings.own.cluster.url else ""
            python = environment.key if labels else str(EnvironmentStore(cache).python(environment.key))
            file = environment.declared.file
        needs[skill] = SkillNeeds(environment, Placement(python, limited.grants.get(skill), labels), file)
    return needs


def read_environments(
    sources: Iterable[Source], own: OwnSettings, root: Path, limited: Collection[str] = ()
) -> NeededEnvironments:
    """The environments of skills. Most need none, and then no further module is imported. `limited` names those with limits."""
    saying = [source for source in sources if _says_something(source)]
    if not saying:
        return NeededEnvironments({}, {})
    from prowess_host.environments.builds import Needed
    from prowess_host.environments.declared import declared_by
    from prowess_host.environments.errors import NeedsError

    needed: dict[str, Needed] = {}
    broken: dict[str, Failure] = {}
    for source in saying:
        try:
            found = declared_by(source)
            if found is not None:
                needed[source.name] = Needed.by(source, found, own, root, limited=source.name in limited)
        except NeedsError as error:
            broken[source.name] = Failure(source.name, error.reason, str(error.file))
    return NeededEnvironments(needed, broken)


def _says_something(source: Source) -> bool:
    if any(file.is_file() for file in needs_of(source)):
        return True
    for file in source.files:
        try:
            if _MENTION in read(str(file)):
                return True
        except OSError:
            continue
    return False
