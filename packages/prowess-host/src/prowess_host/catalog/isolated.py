"""The skills with their own environment or limits, and their placements.

Light to import: the modules that make environments and check limits are imported when a skill needs them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from prowess.contracts.catalog import Failure
from prowess.frozen import frozen
from prowess.settings.keys import OwnSettings
from prowess.settings.limits import Limits
from prowess.settings.settings import Settings
from prowess.skills.discovery import Source, needs_of, survey
from prowess.skills.stamps import Stamp, read
from prowess_host.catalog.labels import labels_of_skill
from prowess_host.catalog.limited import read_limits
from prowess_host.confinement.grants import Grant, passed_settings
from prowess_host.workers.placement import OWN, Placement, Unplaced

if TYPE_CHECKING:
    from prowess_host.environments.builds import Builds, Needed

__all__ = ["Declarations", "IsolatedSkills", "SkillNeeds", "may_be_in", "read_needs"]

_log = logging.getLogger("prowess.host")
_MENTION: Final = b"# /// script"
_LOOK: Final = 1.0
"""Seconds between two checks that an environment in use still exists."""
_AGAIN: Final = 30.0
"""Seconds after a failure before a call starts another attempt."""
_T = TypeVar("_T")


@frozen
class SkillNeeds:
    """The environment and the limits of one skill; either may be absent."""

    needed: Needed | None
    grant: Grant | None
    file: str
    """The file with the declaration."""
    labels: str = ""
    """The labels of the agents that run all its commands, so that only agents build its environment."""

    @property
    def key(self) -> str:
        """Skills with the same key share workers."""
        key = f"{self.needed.key} {self.labels}".rstrip() if self.needed is not None else ""
        return key if self.grant is None else f"{key} {self.grant!r} {hash(self.grant)}"


@frozen
class Declarations:
    """The declarations in the files."""

    needed: Mapping[str, Needed]
    """The required environments by skill."""
    broken: Mapping[str, Failure]
    """The reasons of unreadable declarations by skill."""


@frozen
class _Failed:
    key: str
    reason: str
    at: float


class IsolatedSkills:
    """The skills of one project with their own environment or limits.

    `describe` describes skills in a placement and sends new calls there; it raises `ChildProcessError`. `tell` reports the
    progress of an environment to waiting calls. `on_change` is called when an environment is ready or has failed.
    """

    def __init__(
        self,
        cache: Path,
        *,
        describe: Callable[[Placement, Collection[str]], Awaitable[None]],
        report: Callable[[Collection[str], str], None],
        on_change: Callable[[], None],
    ) -> None:
        self._cache = cache
        self._describe = describe
        self._report = report
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._builds: Builds | None = None
        self._settings: Settings | None = None
        self._needs: Mapping[str, SkillNeeds] = {}
        """The environments and limits by skill, also those of former versions that are still in use."""
        self._declared: frozenset[str] = frozenset()
        """The skills whose current files or settings declare an environment or limits."""
        self._broken: Mapping[str, Failure] = {}
        """The reasons of failures by skill, kept like `_needs`."""
        self._active: dict[str, tuple[str, Placement]] = {}
        """The placement and the environment by skill."""
        self._looked: dict[str, float] = {}
        """The time of the last check that an environment exists."""
        self._files: dict[str, Stamp] = {}
        self._sent: Mapping[str, Any] = {}
        """The data that providers of the project send to skills with environments, by name."""
        self._failed: dict[str, _Failed] = {}
        self._undescribed: set[str] = set()
        self._lost: set[str] = set()
        """The skills that could not be described although their environment exists."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The running preparations by environment."""
        self._expected: frozenset[str] = frozenset()
        """The separate skills of the last start, until the files are read."""

    # Placements

    @property
    def names(self) -> frozenset[str]:
        """The skills with an environment or limits, by their current files."""
        return self._expected | self._declared

    def placement_of(self, skill: str) -> Placement | Unplaced:
        """The placement of a skill. If it is missing, the host starts to prepare it."""
        needed = self._needs.get(skill)
        active = self._active.get(skill)
        if needed is None:
            broken = self._broken.get(skill)
            if broken is not None:
                return active[1] if active is not None else Unplaced(str(broken))
            return Unplaced() if skill in self._expected else OWN
        if active is not None and active[0] == needed.key and self._still_exists(needed):
            return active[1]
        failed = self._failed.get(skill)
        is_fresh = failed is not None and failed.key == needed.key and self._loop.time() - failed.at < _AGAIN
        if failed is not None and is_fresh and needed.key not in self._tasks:
            return active[1] if active is not None else Unplaced(failed.reason)
        self._wake(needed.key)
        return Unplaced()

    def elsewhere(self, skill: str, labels: str) -> Placement | Unplaced:
        """The placement of a skill on agents, which build its environment themselves."""
        needs, broken = self._needs.get(skill), self._broken.get(skill)
        if broken is not None:
            return Unplaced(str(broken))
        if needs is None:
            return Unplaced() if skill in self._expected else Placement(labels=labels)
        return Placement(needs.needed.key if needs.needed is not None else None, needs.grant, labels)

    def share_of(self, placement: Placement) -> Mapping[str, Any]:
        """The skills that the workers of a placement run."""
        if placement.is_common:
            return {"without": sorted(self.names)} if self.names else {}
        here = (skill for skill, (_, there) in self._active.items() if there == placement)
        labels = placement.labels
        coming = (
            skill
            for skill, needs in self._needs.items()
            if (self.elsewhere(skill, labels) if labels else self._placement(needs)) == placement
        )
        share = {"only": sorted({*here, *coming})}
        if placement.limits is None or self._settings is None:
            return {**share, "sent": dict(self._sent)} if self._sent else share
        return {**share, "flags": passed_settings(self._settings, placement.limits.limits), "written": None}

    def _placement(self, needs: SkillNeeds) -> Placement:
        """The placement of a skill, as far as known before its environment exists."""
        if needs.labels and needs.needed is not None:
            return Placement(needs.needed.key, needs.grant, needs.labels)
        python: str | None = None
        if needs.needed is not None:
            python = str(self._builds.store.python(needs.needed.key)) if self._builds is not None else ""
        return Placement(python, needs.grant)

    @property
    def limits(self) -> dict[str, Limits]:
        """The limits of all limited skills."""
        return {skill: needs.grant.limits for skill, needs in self._needs.items() if needs.grant is not None}

    @property
    def failures(self) -> list[Failure]:
        """The failures of the environments and limits that the current files declare."""
        found = [failure for failure in self._broken.values() if failure.source in self.names]
        for skill, failed in sorted(self._failed.items()):
            needed = self._needs.get(skill)
            if needed is not None and needed.key == failed.key and skill in self.names:
                kept = " (the last good version stays in use)" if skill in self._active else ""
                found.append(Failure.of(skill, f"{failed.reason}{kept}", needed.file))
        return found

    def in_words(self) -> list[str]:
        """One line for people about each environment and about the limits of each skill."""
        found: list[str] = []
        for skill, needs in sorted(self._needs.items()):
            needed = needs.needed
            if needed is None:
                continue
            there = self._builds.store.look(needed.key) if self._builds is not None else None
            state = there.in_words(time.time()) if there is not None else "not made yet"
            state = f"made by agents ({needs.labels})" if needs.labels else state
            content = (
                ", ".join(needed.declared.dependencies) or needed.declared.requires_python or needed.declared.python
            )
            found.append(f"environment of {skill}: {content or needed.declared.file}, {state}")
        return [*found, *(f"limits of {skill}: {limits.in_words()}" for skill, limits in sorted(self.limits.items()))]

    @property
    def lost(self) -> set[str]:
        """The skills that could not be described although their environment exists."""
        return self._lost & self._needs.keys()

    # Reading the declarations

    def expect(self, names: Iterable[str]) -> None:
        """Set the separate skills of the last start."""
        self._expected = frozenset(names)

    @property
    def files(self) -> dict[str, Stamp]:
        """Further files that declare dependencies, as they were when they were read."""
        return self._files

    async def read(self, folders: Iterable[Path], settings: Settings, root: Path) -> None:
        """Read the declarations. Those that are gone hold until `leave`: calls still run the former version."""
        self._settings = settings
        needs, broken = await asyncio.to_thread(_read, tuple(folders), settings, root)
        self._declared = frozenset({*needs, *broken})
        # Described elsewhere, if at all: the workers of its placement may run an earlier version.
        came = {skill for skill in needs.keys() - self._expected if self._key_of(skill) != needs[skill].key}
        self._needs = _without(self._needs, self._declared) | needs
        self._broken = _without(self._broken, self._declared) | broken
        self._expected = frozenset()
        all_needed = [needs.needed for needs in self._needs.values() if needs.needed is not None]
        named = [each for needed in all_needed for each in needed.declared.named.items()]
        self._files = dict(sorted(named, reverse=True))  # the oldest version of each: newer ones count as saves
        if self._builds is None and all_needed:
            from prowess_host.environments.builds import Builds

            self._builds = Builds(self._cache)
        self._undescribed = (self._undescribed | came) & self.names

    def leave(self, kept: Collection[str]) -> None:
        """Drop the environments and limits that no file declares, because the new version is in use.

        Skills in `kept` stay in their placement: a file that was half saved declares nothing, and lifts no limit.
        """
        gone = {*self._needs, *self._broken} - self._declared.union(kept)
        self._needs, self._broken = _without(self._needs, gone), _without(self._broken, gone)
        self._active, self._failed = _without(self._active, gone), _without(self._failed, gone)

    def send(self, sent: Mapping[str, Any], *, anew: bool = True) -> None:
        """Set the data of the project's providers. With `anew`, workers with other data are replaced."""
        changed, self._sent = sent != self._sent, sent
        if anew and changed:
            there = {skill for skill, needs in self._needs.items() if needs.grant is None and self._is_ready(needs)}
            self.prepare(there, there)

    def prepare(
        self, undescribed: Collection[str], among: Collection[str] | None = None, *, build: bool = True
    ) -> None:
        """Make missing environments and describe these skills. Without `build`, use existing environments only.

        With `among`, only for these skills; other environments are made at the first call of one of their commands.
        """
        self._undescribed.update(undescribed & self._needs.keys())
        self._failed = {skill: replace(failed, at=-_AGAIN) for skill, failed in self._failed.items()}
        for skill, needed in self._needs.items():
            active = self._active.get(skill)
            if among is not None and skill not in among:
                continue
            if skill in self._undescribed or active is None or active[0] != needed.key:
                if build or self._is_ready(needed):
                    self._wake(needed.key)
                else:
                    reason = "its environment does not exist yet: run prowess sync, or call one of its commands"
                    self._failed[skill] = _Failed(needed.key, reason, -_AGAIN)

    def retry_on_agents(self) -> None:
        """Describe the skills that no agent could describe, because an agent has joined."""
        failed = {skill for skill in self._failed if skill in self._needs and self._needs[skill].labels}
        if failed:
            self.prepare(failed, failed)

    def _still_exists(self, needs: SkillNeeds) -> bool:
        """Whether an environment in use still exists. Checked at intervals, because a check costs a tenth of a call."""
        now = self._loop.time()
        if needs.needed is None or now < self._looked.get(needs.key, 0.0) + _LOOK:
            return True
        self._looked[needs.key] = now
        return self._is_ready(needs)

    def _is_ready(self, needs: SkillNeeds) -> bool:
        if needs.needed is None or needs.labels:
            return True
        return self._builds is not None and self._builds.store.is_ready(needs.needed.key)

    def _wake(self, key: str) -> None:
        if key not in self._tasks:
            self._tasks[key] = self._loop.create_task(self._run(key))

    async def _run(self, key: str) -> None:
        try:
            await self._bring_up(key)
        except Exception as error:  # noqa: BLE001 - a call tries again
            _log.exception("an environment could not be prepared")
            self._fail(self._group(key), f"an internal error: {error}")
        finally:
            # Not when the task is done, which is later: what is saved in between would start no other one.
            del self._tasks[key]
        self._on_change()

    def _key_of(self, skill: str) -> str:
        needs = self._needs.get(skill)
        return needs.key if needs is not None else ""

    def _group(self, key: str) -> list[str]:
        return [skill for skill, needed in self._needs.items() if needed.key == key]

    async def _bring_up(self, key: str) -> None:
        """Make an environment, describe its skills and open it for calls."""
        from prowess_host.environments.errors import BuildError

        while skills := self._group(key):
            shared_needs = self._needs[skills[0]]
            try:
                python = await self._python(shared_needs, skills)
            except BuildError as error:
                self._fail(skills, f"its environment cannot be made: {error}")
                return
            placement = Placement(python, shared_needs.grant, shared_needs.labels)
            undescribed = [skill for skill in self._group(key) if skill in self._undescribed]
            self._undescribed.difference_update(undescribed)
            failed = dict.fromkeys(undescribed, "")
            try:
                failed = await self._described(placement, undescribed)
            finally:
                saved_meanwhile = not self._undescribed.isdisjoint(self._group(key))
                self._undescribed.update(failed)  # by the next attempt, which a call may start
            for skill in self._group(key):
                if skill in failed:
                    self._lost.add(skill)
                    self._fail([skill], failed[skill])
                elif skill in undescribed or skill not in self._undescribed:
                    self._active[skill] = key, placement
                    self._failed.pop(skill, None)
                    self._lost.discard(skill)
            if not saved_meanwhile:
                return

    async def _python(self, needs: SkillNeeds, skills: Collection[str]) -> str | None:
        """The interpreter of an environment, once it exists; `None` for that of the project."""
        if needs.needed is None:
            return None
        if needs.labels:
            return needs.needed.key
        assert self._builds is not None  # noqa: S101 - something is needed
        return await self._builds.ready(needs.needed, partial(self._report_preparing, tuple(skills)))

    async def _described(self, placement: Placement, skills: list[str]) -> dict[str, str]:
        """Describe skills, one by one if they fail together. Returns the reasons of those that failed."""
        if not skills:
            return {}
        try:
            await self._describe(placement, skills)
        except ChildProcessError as error:
            if len(skills) == 1:
                return {skills[0]: str(error)}
            found: dict[str, str] = {}
            for skill in skills:
                found |= await self._described(placement, [skill])
            return found
        return {}

    def _report_preparing(self, skills: Collection[str], line: str) -> None:
        self._report(skills, f"preparing the environment of {', '.join(skills)}: {line}")

    def _fail(self, skills: Iterable[str], reason: str) -> None:
        for skill in skills:
            needed = self._needs.get(skill)
            if needed is not None:
                self._failed[skill] = _Failed(needed.key, reason, self._loop.time())

    def prepares(self, command: str) -> bool:
        """Whether an environment is being prepared that may contain a command."""
        return any(self._may_have(key, command) for key in self._tasks)

    async def settled(self, command: str = "") -> None:
        """Wait for all environments that may contain a command; without a command, for all."""
        while tasks := [task for key, task in self._tasks.items() if self._may_have(key, command)]:
            await asyncio.wait(tasks)

    def quick(self) -> list[asyncio.Task[None]]:
        """The preparations of skills that need no new environment."""
        made = {needs.key for needs in self._needs.values() if needs.needed is not None}
        return [task for key, task in self._tasks.items() if key not in made]

    def _may_have(self, key: str, command: str) -> bool:
        return not command or any(may_be_in(skill, command) for skill in self._group(key))

    def close(self) -> None:
        """Cancel all running preparations."""
        for task in self._tasks.values():
            task.cancel()
        if self._builds is not None:
            self._builds.close()


def _without(skills: Mapping[str, _T], gone: Collection[str]) -> dict[str, _T]:
    return {skill: each for skill, each in skills.items() if skill not in gone}


def _read(
    folders: tuple[Path, ...], settings: Settings, root: Path
) -> tuple[dict[str, SkillNeeds], dict[str, Failure]]:
    """The declarations of all skills, and the settings about them."""
    sources = survey(folders).sources
    limited = read_limits(sources, folders, settings, root)
    found = read_needs(folders, settings.own, root, sources, limited.grants)
    broken = {**found.broken, **limited.broken}
    needs: dict[str, SkillNeeds] = {}
    by_name = {source.name: source for source in sources}
    for skill in {*found.needed, *limited.grants} - broken.keys():
        needed = found.needed.get(skill)
        file = needed.declared.file if needed is not None else settings.sandbox.origin
        labels = (
            labels_of_skill(by_name[skill], settings.own) if needed is not None and settings.own.cluster.url else ""
        )
        needs[skill] = SkillNeeds(needed, limited.grants.get(skill), file, labels)
    return needs, broken


def read_needs(
    folders: Iterable[Path],
    own: OwnSettings,
    root: Path,
    sources: Iterable[Source] | None = None,
    limited: Collection[str] = (),
) -> Declarations:
    """The declarations of all skills. Most have none, and then no further module is imported. `limited` names those with limits."""
    saying = [source for source in (survey(folders).sources if sources is None else sources) if _says_something(source)]
    if not saying:
        return Declarations({}, {})
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
    return Declarations(needed, broken)


def may_be_in(skill: str, command: str) -> bool:
    """Whether a command may belong to a skill, judged by its id or its default wire name."""
    return command.startswith((f"{skill}.", f"{skill}_"))


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
