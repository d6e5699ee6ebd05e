"""How skills with limits of their own are described, and opened for calls."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from prowess.settings.limits import Limits
from prowess.settings.settings import Settings
from prowess_host.catalog import isolated
from prowess_host.catalog.isolated import IsolatedSkills
from prowess_host.confinement.confine import system
from prowess_host.workers.placement import Placement, Unplaced

pytestmark = pytest.mark.skipif(bool(system().lacking(Limits())), reason="this system enforces no limits")

SKILL = "# /// script\n# [tool.prowess.sandbox]\n# ///\nfrom prowess import skill_command\n"


class Described:
    """The skills of a project, and how often their descriptions were asked for."""

    def __init__(self, root: Path) -> None:
        (root / "skills").mkdir()
        (root / "skills/tiny.py").write_text(SKILL)
        self.root = root
        self.times = 0
        self.failure: ChildProcessError | None = None
        self.save_at_end = False
        self.skills = IsolatedSkills(root, describe=self._describe, report=lambda *_: None, on_change=lambda: None)

    async def read(self) -> IsolatedSkills:
        await self.skills.read([self.root / "skills"], Settings.load(self.root, environ={}), self.root)
        return self.skills

    async def _describe(self, _placement: Placement, skills: Collection[str]) -> None:
        self.times += 1
        if self.save_at_end:  # after the last step of the task that describes, and before it is known to be done
            self.save_at_end = False
            asyncio.get_running_loop().call_soon(self.skills.prepare, {*skills})
        if self.failure is not None:
            raise self.failure


async def test_a_save_just_after_a_description_is_described_as_well(tmp_path: Path):
    """No turn of the loop lies between the end of one description and the next."""
    described = Described(tmp_path)
    skills = await described.read()
    described.save_at_end = True
    skills.prepare({"tiny"})
    await skills.settled()
    assert 2 == described.times
    assert isinstance(skills.placement_of("tiny"), Placement)


async def test_a_call_long_after_a_failed_description_has_the_skill_described_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It does not run what has never been described. Calls before that hear what is wrong."""
    described = Described(tmp_path)
    skills = await described.read()
    described.failure = ChildProcessError("it ended")
    skills.prepare({"tiny"})
    await skills.settled()
    assert Unplaced("it ended") == skills.placement_of("tiny")
    assert 1 == described.times

    monkeypatch.setattr(isolated, "_AGAIN", -1.0)
    assert Unplaced() == skills.placement_of("tiny")
    await skills.settled()
    assert (2, {"tiny"}) == (described.times, skills.lost)
    described.failure = None
    assert Unplaced() == skills.placement_of("tiny")
    await skills.settled()
    assert (3, set()) == (described.times, skills.lost)
    assert isinstance(skills.placement_of("tiny"), Placement)


@pytest.mark.parametrize("kept", [(), ("tiny",)], ids=["left", "half saved"])
async def test_a_skill_that_comes_from_elsewhere_is_described_where_it_is(tmp_path: Path, kept: Collection[str]):
    """Although the manifest knows it. One that was there at the last start need not be."""
    described = Described(tmp_path)
    described.skills.expect({"tiny"})
    skills = await described.read()
    skills.prepare(())
    await skills.settled()
    assert 0 == described.times

    file = tmp_path / "skills/tiny.py"
    file.write_text("from prowess import skill_command\n")
    await described.read()
    skills.leave(kept)
    assert bool(kept) is bool(skills.limits)
    file.write_text(SKILL)
    await described.read()
    skills.prepare(())
    await skills.settled()
    assert 1 == described.times


async def test_a_change_of_the_settings_has_every_skill_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also if the first attempt to read what skills need with them fails, as in a process without room for open files."""
    described = Described(tmp_path)
    described.skills.expect({"tiny"})
    skills = await described.read()
    (tmp_path / "prowess.toml").write_text("[shop]\nname = 'x'\n")
    with monkeypatch.context() as patch:
        patch.setattr(isolated, "read_needs", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await described.read()
    await described.read()
    skills.prepare(())
    await skills.settled()
    assert 1 == described.times
