"""What the host knows about the skills of its project: loaded from the manifest, updated by workers, saved for the next start."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from prowess.contracts.catalog import Catalog, Failure
from prowess.settings.keys import OwnSettings
from prowess.settings.limits import Sandbox
from prowess.settings.paths import ConfigPaths
from prowess.skills.description import Description, SkillFacts, View, merged
from prowess.skills.stamps import ABSENT, Stamp, as_imported, look
from prowess_host.catalog.labels import with_warnings
from prowess_host.catalog.manifest import NOTHING, Manifest, Standing, read_manifest, write_manifest
from prowess_host.catalog.manifest_path import manifest_path, shape_now
from prowess_host.catalog.sources import Sources
from prowess_host.catalog.trust import skill_of, withheld
from prowess_host.workers.describe import LostImport
from prowess_host.workers.describers import Ask

__all__ = ["KnownCatalog", "described"]

_log = logging.getLogger("prowess.host")
_MOST_BESIDE_OTHERS: Final = 3
"""Lost workers before a skill is to blame, if each imported another skill as well: a call for that one may end as many."""


class KnownCatalog:
    """The known skills of one project."""

    def __init__(self, paths: ConfigPaths, own: OwnSettings) -> None:
        self._paths = paths
        self._manifest: Manifest | None = None
        self._saving: asyncio.Task[None] | None = None
        self.sources = Sources()
        """The last good version of every skill."""
        self._newest = Description()
        """The last description."""
        self._torn: list[Failure] = []
        self.isolated: tuple[str, ...] = ()
        """The skills with environments, at the time of the description."""
        self.limited: Collection[str] = ()
        """The skills with limits; until these are known, all in `isolated`."""
        self._files: tuple[Description, Mapping[str, Stamp]] = Description(), {}
        """The result of `files` for a description: the watcher asks every second."""
        self.configure(own)

    def configure(self, own: OwnSettings) -> None:
        """Use other settings from now on."""
        self._hide = own.hide
        self._shape = shape_now(own)
        self._sandbox = Sandbox.of(own.sandbox, "")
        self._own = own

    @property
    def description(self) -> Description:
        """The last description, valid or outdated."""
        return self._manifest.description if self._manifest else Description()

    @property
    def files(self) -> Mapping[str, Stamp]:
        """Files that skills have imported or would import, with their state at that time.

        An import inside a function is followed later, and a file may have been saved between its import and the description.
        """
        description = self.description
        of, files = self._files
        if of is not description:
            skills, sightings = description.skills.values(), description.sightings
            absent = {path for facts in skills for path in facts.absent}
            # those of an installed package are not watched while it loads
            own = {path for facts in skills if facts.place or facts.failures for path in facts.files}
            seen = {path: Stamp(*sightings[path][:4]) for path in own if path in sightings}
            files = {**dict.fromkeys(absent, ABSENT), **description.imported, **seen}
            self._files = description, files
        return files

    @property
    def doubtful(self) -> set[str]:
        """Skills that failed for a reason that may have gone without a save, for example a missing package."""
        return {name for name, facts in self.description.skills.items() if facts.failures and not facts.fatal}

    @property
    def fatal(self) -> set[str]:
        """Skills whose import killed a worker or never ended."""
        return {name for name, facts in self.description.skills.items() if facts.fatal}

    def recall(self) -> Standing:
        """Read the manifest of the last run; returns its valid part."""
        self.remember()
        self.isolated = self.limited = self._manifest.isolated if self._manifest else ()
        return self.standing()

    def remember(self) -> None:
        """Read the manifest of the last run, once, without checking whether it is valid."""
        if self._manifest is None:
            self._manifest = read_manifest(self._path())

    def standing(self) -> Standing:
        """The valid part of what is known."""
        return self._manifest.standing(self._shape) if self._manifest else NOTHING

    def catalog(self, among: Collection[str] | None = None) -> Catalog:
        """The commands and the failures; with `among`, only those of these skills."""
        description = self.description
        if among is not None:
            kept = {name: facts for name, facts in description.skills.items() if name in among}
            description = replace(description, skills=kept, failures=())
        refused = withheld(description.skills, self._sandbox)
        description = replace(description, skills={**description.skills, **refused})
        found = description.catalog(self._hide, self._paths.project_root, self.limited)
        found = replace(found, failures=(*found.failures, *self._torn)) if self._torn else found
        return found if self._own.cluster.url else with_warnings(found, self._own)

    @property
    def withheld(self) -> set[str]:
        """Skills whose contracts differ from the allowed ones."""
        return {skill_of(key) for key in withheld(self.description.skills, self._sandbox)}

    def sent(self) -> dict[str, Any]:
        """The data that providers of the project send to isolated skills, by name."""
        return {name: value for facts in self.description.skills.values() for name, value in facts.sent.items()}

    def views(self) -> dict[str, View]:
        """The views for clients, by command."""
        return {name: view for facts in self.description.skills.values() for name, view in facts.views.items()}

    def differing(self, digests: Mapping[str, str]) -> set[str]:
        """The skills whose contracts have changed."""
        known = self.description.skills
        return {name for name, digest in digests.items() if name in known and known[name].digest != digest}

    async def learn(self, ask: Ask, known: Collection[str], kept: Collection[str] = ()) -> None:
        """Describe all skills except the known ones; all skills if the environment or the hooks have changed.

        What an active worker says about skills in `kept` is ignored: it may have imported them from other files.
        """
        newer = await described(ask, known, self._paths.project_root)
        older = self.description
        if known and (newer.environment, newer.hooks) != (older.environment, older.hooks):
            newer = await described(ask, (), self._paths.project_root)
        if not newer.skills.keys().isdisjoint(kept):
            newer = _without(newer, kept, older)
        torn = await asyncio.to_thread(self.sources.missed, newer)
        # From here to the adoption nothing waits: a listing in between would have the new failures, and not what is kept.
        self._newest, self._torn = newer, torn
        self._manifest = Manifest(replace(merged(self.description, newer), texts={}), self._shape, self.isolated)

    def learn_isolated(self, newer: Description, skills: Collection[str]) -> set[str]:
        """Add the description of skills with their own environment. Their hooks shape only themselves.

        Returns the other skills that were made from another version of a file that these have imported.
        """
        older = self.description
        facts = {
            key: replace(each, has_hooks=False, sent={})
            for key, each in newer.skills.items()
            if skill_of(key) in skills
        }
        files = {path for each in facts.values() for path in each.files}
        seen = {path: newer.sightings[path] for path in files if path in newer.sightings}
        found = replace(
            older,
            skills=dict(sorted({**older.skills, **facts}.items())),
            names=tuple(sorted({*older.names, *facts})),
            sightings={**older.sightings, **seen},
            imported={**older.imported, **newer.imported},
        )
        self._manifest = Manifest(found, self._shape_of_known, self.isolated)
        self._newest = replace(newer, skills=facts)
        changed = {
            path for path, now in seen.items() if path in older.sightings and older.sightings[path][:5] != now[:5]
        }
        return {name for name, each in older.skills.items() if name not in facts and not changed.isdisjoint(each.files)}

    def begin_anew(self, whole: Description) -> None:
        """Use only this description."""
        self._manifest = Manifest(replace(whole, texts={}), self._shape, self.isolated)

    def assume(self, facts: Mapping[str, SkillFacts]) -> None:
        """Use the committed catalog for skills without any other description."""
        older = self.description
        new = {name: each for name, each in facts.items() if name not in older.skills}
        if new:
            skills = dict(sorted({**older.skills, **new}.items()))
            self._manifest = Manifest(replace(older, skills=skills), self._shape_of_known, self.isolated)

    @property
    def _shape_of_known(self) -> str:
        """The shape that most of the known skills were described in. That of the settings may be newer, if no generation could start."""
        return self._manifest.shape if self._manifest else self._shape

    def hold_sources(self, kept: Collection[str]) -> None:
        """Keep the sources of the last description; for the skills in `kept`, an earlier version stays."""
        self.sources.hold(self._newest, kept)
        self.sources.replace_outdated(self.description, {*kept, *self._newest.skills})
        self._newest = Description()
        self.sources.forget_all_but({*self.description.names, *kept})

    def read_sources(self, skills: Iterable[str]) -> None:
        """Keep the sources of skills from the manifest, if their files are unchanged."""
        description = self.description
        for skill in skills:
            self.sources.read(description, skill)

    def refresh(self) -> bool:
        """Check again the files that had just been written when they were read. Returns whether the manifest should be saved."""
        before = self._manifest
        if before is not None:
            self._manifest = before.refreshed()
        return before != self._manifest

    def keep(self) -> None:
        """Save the manifest in the background. If the disk refuses it, the next start takes longer."""
        manifest, before = self._manifest, self._saving
        if manifest is not None:
            self._saving = asyncio.get_running_loop().create_task(_save(self._path, manifest, before))

    async def kept(self, seconds: float) -> None:
        """Wait until it is saved, up to this many seconds."""
        if self._saving is not None:
            await asyncio.wait([self._saving], timeout=seconds)

    def _path(self) -> Path:
        return manifest_path(self._paths.cache_dir, self._paths.project_root, self._shape)


async def described(ask: Ask, known: Collection[str], root: Path) -> Description:
    """Describe the skills that are not known. A skill whose import kills its worker becomes a failure."""
    lost: dict[str, LostImport] = {}
    spared: Counter[str] = Counter()
    while True:
        try:
            newer = await ask({*known, *lost})
        except LostImport as error:
            skill = error.importing.skill
            if skill in {*lost, *known}:
                raise  # every worker imports it: it has hooks, or it was just called
            # something else may have ended the worker: try again
            spared[skill] += 1
            if spared[skill] > (_MOST_BESIDE_OTHERS if error.others else int(error.killed)):
                lost[skill] = error
        else:
            return _with_lost(newer, lost, root) if lost else newer


def _with_lost(newer: Description, lost: Mapping[str, LostImport], root: Path) -> Description:
    """Add failures for skills that could not be described, with all their files, so that a change to any of them counts."""
    from prowess.skills.closure import closure  # rare, so not imported at start

    skills, sightings = dict(newer.skills), dict(newer.sightings)
    for name, error in lost.items():
        parts = closure([Path(error.importing.file)], [Path(folder) for folder in newer.folders], root)
        files = sorted(map(str, parts.present))
        failure = Failure(name, error.reason, error.importing.file)
        skills[name] = SkillFacts(
            failures=(failure,), files=tuple(files), absent=tuple(map(str, parts.absent)), fatal=True
        )
        for path in files:
            seen = look(path, time.time_ns())
            if seen is not None:
                sightings[path] = as_imported(seen, None, error.importing.since_ns)
    return replace(newer, skills=skills, sightings=sightings)


def _without(newer: Description, dropped: Collection[str], older: Description) -> Description:
    """A description without what it says about some skills. What is older stays; a skill that is not older is still to be described."""
    skills = {name: facts for name, facts in newer.skills.items() if name not in dropped}
    files = {path for name in newer.skills.keys() - skills.keys() for path in newer.skills[name].files}
    files.difference_update(path for facts in skills.values() for path in facts.files)
    return replace(
        newer,
        skills=skills,
        names=tuple(name for name in newer.names if name not in dropped or name in older.skills),
        sightings={path: seen for path, seen in newer.sightings.items() if path not in files},
    )


async def _save(path: Callable[[], Path], manifest: Manifest, before: asyncio.Task[None] | None) -> None:
    if before is not None:
        await asyncio.wait([before])
    if not await asyncio.to_thread(write_manifest, path(), manifest):
        _log.info("the manifest cannot be written to %s, so the next start takes longer", path())
