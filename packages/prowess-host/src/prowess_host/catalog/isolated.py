"""The skills with their own environment or limits: where their calls run, and the preparation of that.

Light to import: the modules that make environments are imported when a skill needs them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prowess.contracts.catalog import Failure
from prowess.frozen import frozen
from prowess.settings.limits import Limits
from prowess.settings.settings import Settings
from prowess.skills.stamps import Stamp
from prowess_host.catalog.needs import SkillNeeds, read_needs
from prowess_host.confinement.grants import passed_settings
from prowess_host.workers.placement import OWN, Placement, Unplaced

if TYPE_CHECKING:
    from prowess_host.environments.builds import Builds, Needed

__all__ = ["IsolatedSkills", "may_be_in"]

_log = logging.getLogger("prowess.host")
_LOOK: Final = 1.0
"""Seconds between two checks that an environment in use still exists."""
_AGAIN: Final = 30.0
"""Seconds after a failure before a call starts another attempt."""


@frozen
class _Failed:
    """A failure to prepare a skill."""

    reason: str
    at: float
    is_lost: bool
    """Whether the skill could not be described although its environment exists."""


class _State(Enum):
    """How the current files of a skill compare with its description."""

    OUTDATED = auto()
    """They must be described (again)."""
    DESCRIBED = auto()
    """They are described, or are just being described."""
    UNDECLARED = auto()
    """They need nothing of their own. Calls run the former version until `leave`."""


class _Skill:
    """One skill. Its files are ahead of its calls while its placement is prepared, or if that failed."""

    def __init__(self, name: str, state: _State) -> None:
        self.name = name
        self.state = state
        self.needs: SkillNeeds | Failure | None = None
        """What its files need, or why that cannot be read; `None` for a skill of the last start, until they are read."""
        self.failed: _Failed | None = None
        """The failure of the last attempt to prepare what it needs."""
        self.placement: Placement | None = None
        """Where its calls run, once that has been prepared."""
        self.looked = 0.0
        """The time of the last check that its environment exists."""

    @property
    def is_declared(self) -> bool:
        """Whether the current files say what it needs."""
        return self.state is not _State.UNDECLARED

    @property
    def is_outdated(self) -> bool:
        """Whether it must be described (again)."""
        return self.state is _State.OUTDATED

    @property
    def wanted(self) -> Placement | None:
        """The placement that it needs."""
        return self.needs.placement if isinstance(self.needs, SkillNeeds) else None

    def declare(self, needs: SkillNeeds | Failure) -> None:
        """Set what the current files need."""
        before, is_first = self.wanted, self.needs is None
        self.needs = needs
        if not is_first and (self.wanted != before or not self.is_declared):
            # Described elsewhere or half saved, if at all: the workers of its placement may run an earlier version.
            self.state, self.failed = _State.OUTDATED, None

    def outdate(self) -> None:
        """Have it described (again) by the next attempt."""
        if self.is_declared:
            self.state = _State.OUTDATED

    def fail(self, reason: str, at: float, *, is_lost: bool = False) -> None:
        """Note that an attempt has failed."""
        self.failed = _Failed(reason, at, is_lost)
        if is_lost:
            self.outdate()

    def open(self, placement: Placement) -> None:
        """Send calls to a placement that has been prepared."""
        self.placement, self.failed = placement, None


class IsolatedSkills:
    """The skills of one project with their own environment or limits.

    `describe` describes skills in a placement and sends new calls there; it raises `ChildProcessError`. `report` reports the
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
        self._settings: Settings | None = None
        self._skills: dict[str, _Skill] = {}
        self._tasks: dict[Placement, asyncio.Task[None]] = {}
        """The running preparations. One makes the environment of its placement, and describes all skills there."""
        self._sent: Mapping[str, Any] = {}
        """The data that providers of the project send to skills with environments, by name."""
        self.files: Mapping[str, Stamp] = {}
        """Further files that declare dependencies, as they were when they were read."""

    @cached_property
    def _builds(self) -> Builds:
        from prowess_host.environments.builds import Builds

        return Builds(self._cache)

    def _readable(self) -> Iterator[tuple[_Skill, SkillNeeds]]:
        """The skills with declarations that can be read, also those of former versions that are still in use."""
        return ((skill, skill.needs) for skill in self._skills.values() if isinstance(skill.needs, SkillNeeds))

    def _group(self, placement: Placement) -> list[_Skill]:
        """The skills that need a placement."""
        return [skill for skill, needs in self._readable() if needs.placement == placement]

    # Placements

    @property
    def names(self) -> frozenset[str]:
        """The skills with an environment or limits, by their current files."""
        return frozenset(skill.name for skill in self._skills.values() if skill.is_declared)

    def placement_of(self, name: str) -> Placement | Unplaced:
        """The placement of a skill. If it is missing, the host starts to prepare it."""
        skill = self._skills.get(name)
        if skill is None:
            return OWN
        needs, failed, here = skill.needs, skill.failed, skill.placement
        if needs is None:
            return Unplaced()
        if isinstance(needs, Failure):
            return here or Unplaced(str(needs))
        if here is not None and here == needs.placement and self._still_exists(skill, needs):
            return here
        if failed and self._loop.time() - failed.at < _AGAIN and needs.placement not in self._tasks:
            return here or Unplaced(failed.reason)
        self._wake(needs)
        return Unplaced()

    def elsewhere(self, name: str, labels: str) -> Placement | Unplaced:
        """The placement of a skill on agents, which build its environment themselves."""
        skill = self._skills.get(name)
        if skill is None:
            return Placement(labels=labels)
        if isinstance(skill.needs, SkillNeeds):
            return skill.needs.on_agents(labels)
        return Unplaced(str(skill.needs or ""))

    def share_of(self, placement: Placement) -> Mapping[str, Any]:
        """The skills that the workers of a placement run."""
        if placement.is_common:
            return {"without": sorted(self.names)} if self.names else {}
        labels = placement.labels
        here = (
            skill.name
            for skill in self._skills.values()
            if placement in (skill.placement, self.elsewhere(skill.name, labels) if labels else skill.wanted)
        )
        share = {"only": sorted(here)}
        if placement.limits is None or self._settings is None:
            return {**share, "sent": dict(self._sent)} if self._sent else share
        return {**share, "flags": passed_settings(self._settings, placement.limits.limits), "written": None}

    @property
    def limits(self) -> dict[str, Limits]:
        """The limits of all limited skills."""
        grants = ((skill.name, needs.placement.limits) for skill, needs in self._readable())
        return {name: grant.limits for name, grant in grants if grant is not None}

    @property
    def failures(self) -> list[Failure]:
        """The failures of the environments and limits that the current files declare."""
        found: list[Failure] = []
        for skill in self._skills.values():
            if not skill.is_declared:
                continue
            if isinstance(skill.needs, Failure):
                found.append(skill.needs)
            elif skill.needs is not None and skill.failed is not None:
                kept = " (the last good version stays in use)" if skill.placement is not None else ""
                found.append(Failure.of(skill.name, f"{skill.failed.reason}{kept}", skill.needs.file))
        return found

    @property
    def lost(self) -> set[str]:
        """The skills that could not be described although their environment exists."""
        return {
            skill.name for skill in self._skills.values() if skill.is_declared and skill.failed and skill.failed.is_lost
        }

    def in_words(self) -> list[str]:
        """One line for people about each environment and about the limits of each skill."""
        found: list[str] = []
        for skill, needs in sorted(self._readable(), key=lambda each: each[0].name):
            if needs.environment is None:
                continue
            declared, labels = needs.environment.declared, needs.placement.labels
            there = None if labels else self._builds.store.look(needs.environment.key)
            state = there.in_words(time.time()) if there is not None else "not made yet"
            state = f"made by agents ({labels})" if labels else state
            content = ", ".join(declared.dependencies) or declared.requires_python or declared.python or declared.file
            found.append(f"environment of {skill.name}: {content}, {state}")
        return [*found, *(f"limits of {skill}: {limits.in_words()}" for skill, limits in sorted(self.limits.items()))]

    # Reading the declarations

    def expect(self, names: Iterable[str]) -> None:
        """Set the skills of the last start, which need not be described because of their needs."""
        self._skills = {name: _Skill(name, _State.DESCRIBED) for name in names}

    async def read(self, folders: Iterable[Path], settings: Settings, root: Path) -> None:
        """Read the declarations. Those that are gone hold until `leave`: calls still run the former version.

        After a change of the settings, all skills are outdated.
        """
        found = await asyncio.to_thread(read_needs, tuple(folders), settings, root, self._cache)
        has_changed = self._settings is not None and settings.written != self._settings.written
        self._settings = settings
        for name in self._skills.keys() - found.keys():
            if self._skills[name].needs is None:
                del self._skills[name]
            else:
                self._skills[name].state = _State.UNDECLARED
        for name, needs in found.items():
            skill = self._skills.setdefault(name, _Skill(name, _State.OUTDATED))
            skill.declare(needs)
            if has_changed:
                skill.outdate()
        environments = [needs.environment for _, needs in self._readable() if needs.environment is not None]
        named = [each for environment in environments for each in environment.declared.named.items()]
        self.files = dict(sorted(named, reverse=True))  # the oldest version of each: newer ones count as saves

    def leave(self, kept: Collection[str]) -> None:
        """Drop the environments and limits that no file declares, because the new version is in use.

        Skills in `kept` stay in their placement: a file that was half saved declares nothing, and lifts no limit.
        """
        self._skills = {name: skill for name, skill in self._skills.items() if skill.is_declared or name in kept}

    def send(self, sent: Mapping[str, Any], *, anew: bool = True) -> None:
        """Set the data of the project's providers. With `anew`, workers with other data are replaced."""
        changed, self._sent = sent != self._sent, sent
        if anew and changed:
            there = {
                skill.name for skill, needs in self._readable() if not needs.placement.limits and self._is_ready(needs)
            }
            self.prepare(there, others=False)

    # The preparation

    def prepare(self, outdated: Collection[str], *, others: bool = True, build: bool = True) -> None:
        """Describe these skills, where they need to run. With `others`, prepare also all others that are not ready.

        Without `others`, their environments are made at the first call of one of their commands; without `build`, all are.
        """
        for skill, needs in self._readable():
            if skill.name in outdated:
                skill.outdate()
            elif not others:
                continue
            if skill.placement == needs.placement and not skill.is_outdated and not skill.failed:
                continue
            if build or self._is_ready(needs):
                self._wake(needs)
            else:
                reason = "its environment does not exist yet: run prowess sync, or call one of its commands"
                skill.fail(reason, -_AGAIN)

    def retry_on_agents(self) -> None:
        """Describe the skills that no agent could describe, because an agent has joined."""
        failed = {skill.name for skill, needs in self._readable() if skill.failed and needs.placement.labels}
        self.prepare(failed, others=False)

    def _still_exists(self, skill: _Skill, needs: SkillNeeds) -> bool:
        """Whether an environment in use still exists. Checked at intervals, because a check costs a tenth of a call."""
        now = self._loop.time()
        if needs.environment is None or now < skill.looked + _LOOK:
            return True
        skill.looked = now
        return self._is_ready(needs)

    def _is_ready(self, needs: SkillNeeds) -> bool:
        if needs.environment is None or needs.placement.labels:
            return True
        return self._builds.store.is_ready(needs.environment.key)

    def _wake(self, needs: SkillNeeds) -> None:
        if needs.placement not in self._tasks:
            self._tasks[needs.placement] = self._loop.create_task(self._run(needs))

    async def _run(self, needs: SkillNeeds) -> None:
        from prowess_host.environments.errors import BuildError

        placement, reason = needs.placement, ""
        try:
            await self._bring_up(placement, needs.environment)
        except BuildError as error:
            reason = f"its environment cannot be made: {error}"
        except Exception as error:  # noqa: BLE001 - a call tries again
            _log.exception("an environment could not be prepared")
            reason = f"an internal error: {error}"
            for skill in self._group(placement):
                skill.outdate()
        finally:
            # Not when the task is done, which is later: what is saved in between would start no other one.
            del self._tasks[placement]
        if reason:
            for skill in self._group(placement):
                skill.fail(reason, self._loop.time())
        self._on_change()

    async def _bring_up(self, placement: Placement, environment: Needed | None) -> None:
        """Make an environment, describe its skills and open it for calls. Raises `BuildError`."""
        is_over = False
        while not is_over and (group := self._group(placement)):
            if environment is not None and not placement.labels:
                await self._builds.ready(environment, partial(self._report_preparing, [skill.name for skill in group]))
            begun = [skill for skill in self._group(placement) if skill.is_outdated]
            for skill in begun:
                skill.state = _State.DESCRIBED
            failed = await self._described(placement, [skill.name for skill in begun])
            group = self._group(placement)
            is_over = not any(skill.is_outdated for skill in group)  # else something was saved meanwhile
            for skill in group:
                if skill.name in failed:
                    skill.fail(failed[skill.name], self._loop.time(), is_lost=True)
                elif skill in begun or not skill.is_outdated:
                    skill.open(placement)

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

    def _preparing(self, command: str) -> list[asyncio.Task[None]]:
        """The preparations of skills that may contain a command; without a command, of all."""
        return [
            task
            for placement, task in self._tasks.items()
            if not command or any(may_be_in(skill.name, command) for skill in self._group(placement))
        ]

    def prepares(self, command: str) -> bool:
        """Whether a skill that may contain a command is being prepared."""
        return bool(self._preparing(command))

    async def settled(self, command: str = "") -> None:
        """Wait until all skills that may contain a command are prepared; without a command, for all."""
        while tasks := self._preparing(command):
            await asyncio.wait(tasks)

    def quick(self) -> list[asyncio.Task[None]]:
        """The preparations of skills that need no environment."""
        return [task for placement, task in self._tasks.items() if placement.python is None]

    def close(self) -> None:
        """Cancel all running preparations."""
        for task in self._tasks.values():
            task.cancel()
        if "_builds" in vars(self):  # some skill has used them
            self._builds.close()


def may_be_in(skill: str, command: str) -> bool:
    """Whether a command may belong to a skill, judged by its id or its default wire name."""
    return command.startswith((f"{skill}.", f"{skill}_"))
