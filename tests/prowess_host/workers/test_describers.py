"""Many skills are described by several workers; each skill that ends its worker costs only itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after
from patience import PATIENCE
from piped import until

from prowess.settings.settings import Settings
from prowess.skills.description import Description, SkillFacts
from prowess.worker.board import Importing
from prowess.worker.messages import DescribeHead
from prowess_host.catalog.known import described
from prowess_host.workers import describers
from prowess_host.workers.describe import LostImport, LostWorker
from prowess_host.workers.describers import Describers
from prowess_host.workers.lifecycle import Event
from prowess_host.workers.supervisor import Supervisor

COUNT = 50
NAMES = tuple(f"s{number:02}" for number in range(COUNT))

# With real workers

SKILL = """
import os, time
from pathlib import Path
from prowess import skill_command

notes = Path({notes!r})
with open(notes / {name!r}, "a") as file:
    file.write(f"{{os.getpid()}} ")
while len({{pid for note in notes.iterdir() for pid in note.read_text().split()}}) < {workers}:
    time.sleep(0.01)
{head}

@skill_command
def say() -> str:
    return {name!r}
"""


def project(root: Path, workers: int, **heads: str) -> Path:
    """Skills that note who imports them, and wait until that was done by so many workers."""
    (root / "skills").mkdir()
    (root / "notes").mkdir()
    for name in NAMES:
        text = SKILL.format(notes=str(root / "notes"), name=name, workers=workers, head=heads.get(name, ""))
        (root / "skills" / f"{name}.py").write_text(text, "utf-8")
    return root


def imports(root: Path, name: str) -> list[str]:
    return (root / "notes" / name).read_text("utf-8").split()


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describers, "processors", lambda: 2)


async def test_many_skills_are_described_by_several_workers(tmp_path: Path):
    """Each is imported once, and afterwards only the worker that will be called is there."""
    root = project(tmp_path, 2)
    supervisor = Supervisor(root, Settings.load(root, environ={}), {})
    try:
        with fail_after(PATIENCE):
            async with supervisor.generations.describers() as ask:
                description = await described(ask, (), root)
        assert NAMES == tuple(description.skills) == description.names
        assert [f"{name}.say" for name in NAMES] == [
            each.id for facts in description.skills.values() for each in facts.contracts
        ]
        assert {str(root / "skills" / f"{name}.py") for name in NAMES} <= set(description.texts)
        everyone = [pid for name in NAMES for pid in imports(root, name)]
        assert (COUNT, 2) == (len(everyone), len(set(everyone)))
        await until(lambda: len(supervisor.pools.own.workers) == 1)
        assert supervisor.pools.own.workers == supervisor.pools.own.active
        assert supervisor.pools.loaded < set(NAMES)
    finally:
        await supervisor.close()


async def test_skills_that_end_their_workers_cost_only_themselves(tmp_path: Path):
    """Both at once: each is a failure with its reason, and all others are described."""
    root = project(tmp_path, 2, s03="os._exit(7)", s30="os._exit(8)")
    supervisor = Supervisor(root, Settings.load(root, environ={}), {})
    try:
        with fail_after(PATIENCE):
            async with supervisor.generations.describers() as ask:
                description = await described(ask, (), root)
        lost = {name: facts.failures[0].reason for name, facts in description.skills.items() if facts.fatal}
        assert {"s03", "s30"} == set(lost)
        assert "exit code 7" in lost["s03"]
        assert "exit code 8" in lost["s30"]
        assert NAMES == tuple(sorted(description.skills))
        assert [1, 1] == [len(imports(root, name)) for name in lost]
    finally:
        await supervisor.close()


# With workers that do as they are told


def part(*skills: str, **more: Any) -> Description:
    return Description({skill: SkillFacts() for skill in skills}, NAMES, **more)


@dataclass(eq=False)
class Fake:
    """A worker, or the process of one."""

    has_own_process: bool = True
    gets_calls: bool = True
    asked: list[DescribeHead] = field(default_factory=list)

    @property
    def process(self) -> Fake:
        return self


class FakePool:
    """Workers as they are needed, as long as there are some."""

    def __init__(self, main: Fake | None, helpers: Iterable[Fake] = ()) -> None:
        self.active = [main] if main else []
        self.helpers: Iterator[Fake] = iter(helpers)
        self.retired: list[Any] = []

    def fill(self) -> None: ...

    def why_none(self) -> str:
        return "there is none"

    def spawn_helper(self) -> Fake | None:
        return next(self.helpers, None)

    def send(self, worker: Fake, event: Event) -> None:
        assert event is Event.RETIRE
        self.retired.append(worker)


Answer = Callable[[Fake, DescribeHead], Awaitable[Description]]


async def answer(worker: Fake, told: DescribeHead) -> Description:
    """Names first, then what is asked for."""
    worker.asked.append(told)
    await asyncio.sleep(0)
    if "only" in told:
        return part(*told["only"])
    wanted = [name for name in NAMES if name not in told["known"]]
    return part(*wanted) if len(wanted) <= told.get("most", COUNT) else part()


def made(pool: FakePool, answer: Answer = answer) -> Describers:
    return Describers(pool, answer)  # type: ignore[arg-type]


async def test_few_skills_are_described_by_one_worker_with_one_question():
    main = Fake()
    known = set(NAMES[20:])
    assert set(NAMES) - known == set((await made(FakePool(main)).ask(known)).skills)
    assert 1 == len(main.asked)


async def test_worker_in_this_process_describes_all(monkeypatch: pytest.MonkeyPatch):
    """Helpers would have the same interpreter."""
    main = Fake(has_own_process=False)
    assert set(NAMES) == set((await made(FakePool(main)).ask(())).skills)
    assert [{"known": []}] == main.asked


async def test_single_processor_has_no_helpers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(describers, "processors", lambda: 1)
    main = Fake()
    await made(FakePool(main)).ask(())
    assert [{"known": []}] == main.asked


async def test_without_a_worker_nothing_is_described():
    with pytest.raises(ChildProcessError, match="there is none"):
        await made(FakePool(None)).ask(())


@pytest.mark.parametrize("helpers", [0, 1])
async def test_helper_that_cannot_be_had_or_ends_is_done_without(helpers: int):
    """What it was to describe is described by the others, also if it ends last."""
    main, helper = Fake(), Fake()
    main_is_done = asyncio.Event()

    async def ending(worker: Fake, told: DescribeHead) -> Description:
        if worker is helper:
            await main_is_done.wait()
            raise LostWorker("killed")
        if len(told.get("only", [])) == 1:
            asyncio.get_running_loop().call_later(0.01, main_is_done.set)
        return await answer(worker, told)

    pool = FakePool(main, [helper][:helpers])
    asking = made(pool, ending)
    with fail_after(PATIENCE):
        assert set(NAMES) == set((await asking.ask(())).skills)
    asking.close()
    assert [helper][:helpers] == pool.retired


async def test_worker_that_is_called_and_ends_is_told_of():
    """It may have been a call."""

    async def ending(worker: Fake, told: DescribeHead) -> Description:
        if "only" in told:
            raise LostWorker("killed")
        return await answer(worker, told)

    with pytest.raises(LostWorker):
        await made(FakePool(Fake()), ending).ask(())


async def test_import_of_another_skill_that_ends_a_worker_is_told_of():
    """It was called just then."""

    async def ending(worker: Fake, told: DescribeHead) -> Description:
        if "only" in told:
            raise LostImport(Importing(0, "hooks", "/hooks.py"), "ended")
        return await answer(worker, told)

    with pytest.raises(LostImport, match="hooks"):
        await made(FakePool(Fake()), ending).ask(())


@pytest.mark.parametrize(
    ("more", "deaths"), [({}, 0), ({"killed": True}, 1), ({"others": True}, 3), ({"killed": True, "others": True}, 3)]
)
async def test_skill_is_tried_again_if_something_else_may_have_ended_its_worker(
    tmp_path: Path, more: dict[str, bool], deaths: int
):
    """A kill from outside, or a call for another skill that was imported at the same time, which may end three workers."""
    lost = LostImport(Importing(0, "s01", str(tmp_path / "s01.py")), "ended", **more)

    async def failures(times: int) -> list[str]:
        answers = iter([lost] * times)

        async def ask(known: Collection[str]) -> Description:
            for error in answers:
                raise error
            return part(*(name for name in NAMES if name not in known))

        skills = (await described(ask, (), tmp_path)).skills
        assert set(NAMES) == set(skills)
        return [name for name, facts in skills.items() if facts.failures]

    assert [] == await failures(deaths)
    assert ["s01"] == await failures(deaths + 1)


async def test_what_was_described_is_not_described_again():
    """After a skill has ended a worker, and after the question was put again without it."""
    fatal, asked = {"s05", "s40"}, list[str]()

    async def ending(worker: Fake, told: DescribeHead) -> Description:
        for name in told.get("only", ()):
            if name in fatal:
                worker.gets_calls = False
                raise LostImport(Importing(0, name, f"/{name}.py"), "ended")
        asked.extend(told.get("only", ()))
        return await answer(worker, told)

    asking = made(FakePool(Fake(), iter(Fake, None)), ending)
    lost = set[str]()
    with fail_after(PATIENCE):
        while True:
            try:
                whole = await asking.ask(lost)
            except LostImport as error:
                lost.add(error.importing.skill)
            else:
                break
    assert fatal == lost
    assert set(NAMES) - fatal == set(whole.skills)
    assert len(set(asked)) == len(asked)


async def test_parts_that_contradict_each_other_are_described_by_one_worker():
    """Something was saved meanwhile."""
    main = Fake()

    async def odd(worker: Fake, told: DescribeHead) -> Description:
        if "only" in told:
            return part(*told["only"], environment="another")
        return await answer(worker, told)

    assert set(NAMES) == set((await made(FakePool(main), odd).ask(("x",))).skills)
    assert {"known": ["x"]} == main.asked[-1]
