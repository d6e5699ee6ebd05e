"""Whatever is saved, and whenever: once the saves are over, the newest version of every skill answers, where its limits want it."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from anyio import create_task_group, fail_after
from patience import PATIENCE
from piped import Client, hosted, make_project

from prowess.settings.limits import Limits
from prowess_host.confinement.confine import system

pytestmark = pytest.mark.skipif(bool(system().lacking(Limits())), reason="this system enforces no limits")

NAMES = ("a", "b", "c")
SEEDS = [int(seed) for seed in os.environ.get("CONVERGENCE_SEEDS", "2").split()]
"""More of them are for those who change how skills are kept up to date."""
ROUNDS = 8
SHARED = "skills/_shared.py"
UNREADABLE = (
    "",
    "def (\n    from prowess",
    "import prowess\n1 / 0\n",
    "# /// script\n# [tool.prowess.sandbox]\n# memory = 'much'\n# ///\nimport prowess\n",
    "# /// script\n# [tool.prowess.sandbox]\n# ///\nimport os, prowess\nos._exit(1)\n",
)


@dataclass(frozen=True)
class Skill:
    """A version of a skill."""

    version: int
    limits: tuple[str, ...] | None = None
    """The lines of its limits, if it has any."""
    shares: bool = False
    """Whether it imports a module that others import as well."""
    has_other: bool = False
    """Whether it has another command, which other versions lack."""

    @classmethod
    def some(cls, version: int, chance: random.Random) -> Skill:
        limits = chance.choice([None, None, (), (), ("memory = '400 MB'",)])
        return cls(version, limits, chance.random() < 0.3, chance.random() < 0.3)

    @property
    def text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.limits is not None:
            yield from ("# /// script", "# [tool.prowess.sandbox]", f"# read = ['{SHARED}']")
            yield from (*(f"# {line}" for line in self.limits), "# ///")
        yield "from prowess import skill_command"
        yield "from . import _shared" if self.shares else ""
        yield f"@skill_command\ndef version() -> str:\n    return f'{self.version}{'-{_shared.VALUE}' if self.shares else ''}'"
        if self.has_other:
            yield f"@skill_command\ndef other{self.version}() -> None: ..."


class Saves:
    """A project whose files are saved in all ways, and what its skills should answer."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.chance = chance
        self.skills = {name: Skill.some(number, chance) for number, name in enumerate(NAMES)}
        self.there = set(NAMES)
        """The skills that can be loaded."""
        self._version = len(NAMES)
        self.shared = 0
        self.root = make_project(root)
        (self.root / SHARED).write_text("VALUE = 0\n")
        for name, skill in self.skills.items():
            self._file(name).write_text(skill.text)

    def _file(self, name: str) -> Path:
        return self.root / "skills" / f"{name}.py"

    def wanted(self, name: str) -> str:
        skill = self.skills[name]
        return f"{skill.version}-{self.shared}" if skill.shares else str(skill.version)

    async def save(self) -> None:
        name = self.chance.choice(NAMES)
        self._version += 1
        match self.chance.choice(["save", "save", "torn", "other", "broken", "deleted", "shared"]):
            case "shared":
                self.shared += 1
                (self.root / SHARED).write_text(f"VALUE = {self.shared}\n")
            case "broken":
                self._file(name).write_text(self.chance.choice(UNREADABLE))
                self.there.discard(name)
            case "deleted":
                self._file(name).unlink(missing_ok=True)
                self.there.discard(name)
            case how:
                another = Skill.some(self._version, self.chance)
                self.skills[name] = another if how == "other" else replace(self.skills[name], version=self._version)
                self.there.add(name)
                with self._file(name).open("w") as file:
                    if how == "torn":
                        await asyncio.sleep(self.chance.random() * 0.3)
                    file.write(self.skills[name].text)
        await asyncio.sleep(self.chance.choice([0.0, 0.1, 0.4]) * self.chance.random())


async def until_answered(host: Client, name: str, wanted: str) -> None:
    """Call until this version answers. It may be unknown until it has been described."""
    with fail_after(PATIENCE):
        while True:
            with suppress(AssertionError):
                if await host.text(f"{name}_version") == wanted:
                    return
            await asyncio.sleep(0.05)


async def call_all_the_time(host: Client, chance: random.Random) -> None:
    """As clients do while files are saved."""
    while True:
        with suppress(AssertionError):
            await host.call(f"{chance.choice(NAMES)}_version")
        await asyncio.sleep(chance.choice([0.0, 0.01, 0.05]))


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_newest_version_answers_after_any_saves(seed: int, tmp_path: Path) -> None:
    saves = Saves(tmp_path, random.Random(seed))
    async with hosted(saves.root, forked=True) as host, create_task_group() as tasks:
        tasks.start_soon(call_all_the_time, host, random.Random(seed))
        for _ in range(ROUNDS):
            for _ in range(saves.chance.randint(1, 3)):
                await saves.save()
            for name in sorted(saves.there):
                await until_answered(host, name, saves.wanted(name))
        tasks.cancel_scope.cancel()
