"""A broken save costs nothing that worked: the host keeps the last good source of every skill, for any worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from inside import inside
from piped import Client, hosted, make_project, replace_worker, result, until, write_skill

from prowess.skills.description import Description, SkillFacts
from prowess.skills.stamps import Seen
from prowess_host.catalog import attempts
from prowess_host.catalog.sources import Sources
from prowess_host.workers.describe import LostWorker
from prowess_host.workers.generations import Successor

CHANGED = "notifications/tools/list_changed"
ONE = """
    @skill_command
    def version() -> str:
        return "one"

    @skill_command
    def pid() -> int:
        return os.getpid()
"""
TWO = ONE.replace("one", "two")
BROKEN = "import nothing_of_this_name\n@skill_command\ndef version() -> str: ...\n"
HANDS = """
    from _hands import NAME
    @skill_command
    def version() -> str:
        return NAME
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path, t=ONE, u=ONE)


async def test_skill_that_ends_workers_when_it_is_described_is_called_in_its_last_good_version(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    """However often it is tried again: only calls that would import it wait for the next attempt."""
    monkeypatch.setattr(attempts, "_PAUSES", (0.0,) * 4)
    tried = project / "tried"
    async with inside(project) as host:
        assert "one" == await host.text("t_version")
        write_skill(project, "t.py", f"open({str(tried)!r}, 'a').write('x')\nos._exit(5)\n{BROKEN}")
        await until(lambda: tried.exists() and len(tried.read_text()) == 5)
        await until(lambda: len(host.workers()) == 1)
        assert "one" == await host.text("t_version")


async def test_skill_that_stops_ending_workers_is_served_without_a_save(project: Path, monkeypatch: pytest.MonkeyPatch):
    """Also if a worker has imported its last good version meanwhile, and so cannot describe the new one."""
    monkeypatch.setattr(attempts, "_PAUSES", (0.0,) * 1000)
    deadly, tried = project / "deadly", project / "tried"
    deadly.touch()
    async with inside(project) as host:
        assert "one" == await host.text("t_version")
        check = f"open({str(tried)!r}, 'w')\nif os.path.exists({str(deadly)!r}): os._exit(5)\n"
        write_skill(project, "t.py", check + dedent(TWO))
        await until(tried.exists)
        assert "one" == await host.text("t_version")
        deadly.unlink()
        while "two" != await host.text("t_version"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert "prowess_diagnostics" not in await host.tools()


async def test_save_that_no_worker_could_describe_is_described_later(project: Path, monkeypatch: pytest.MonkeyPatch):
    """Something outside ends each worker of the next generation for a while; then nobody saves again."""
    monkeypatch.setattr(attempts, "_PAUSES", (0.0,) * 1000)
    async with inside(project) as host:
        assert "one" == await host.text("t_version")
        workers = host.project.workers.generations
        lost = 0

        async def lose(known: Collection[str] = ()) -> Successor:
            nonlocal lost
            lost += 1
            if lost > 5:
                monkeypatch.undo()
                return await workers.next_generation(known)
            raise LostWorker("killed from outside")

        monkeypatch.setattr(workers, "next_generation", lose)
        write_skill(project, "t.py", TWO)
        while "two" != await host.text("t_version"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert "prowess_diagnostics" not in await host.tools()


async def told_of(host: Client, text: str) -> str:
    """What the diagnostics say, as soon as they say something with this text."""
    found = ""
    while text not in found:
        message = await host.start_call("prowess_diagnostics")
        found = message["result"]["content"][0]["text"] if "result" in message else ""
        await asyncio.sleep(0.01)
    return found


BREAKS = {
    "importing": BROKEN,
    "syntax": "import prowess\ndef f(:\n",
    "annotation": "@skill_command\ndef version(x: Nowhere) -> str: ...\n",
    "exit": "os._exit(4)\n",
    "system_exit": "raise SystemExit\n",
    "missing": "@skill_command\ndef other() -> str: ...\n1 / 0\n",
}


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
async def test_skills_that_break_are_served_by_any_worker(tmp_path: Path, warm: bool):
    """Each in its own way, also by workers that never had them, whether or not anybody had called them before."""
    project = make_project(tmp_path, u=ONE, **dict.fromkeys(BREAKS, ONE))
    if warm:
        async with inside(project) as host:
            await host.tools()
    async with hosted(project, forked=True) as host:
        before = await host.tools()
        assert "one" == await host.text("u_version")
        for name, broken in BREAKS.items():
            file = write_skill(project, f"{name}.py", broken)
            told = await told_of(host, str(file))
            assert "the last good version stays in use" in told
            assert "one" == await host.text(f"{name}_version")
        for _ in range(2):
            assert sorted([*before, "prowess_diagnostics"]) == sorted(await host.tools())
            assert {"one"} == {await host.text(f"{name}_version") for name in ("u", *BREAKS)}
            await replace_worker(host)
        write_skill(project, "u.py", TWO)
        while "two" != await host.text("u_version"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert {"one"} == {await host.text(f"{name}_version") for name in BREAKS}
        for name in BREAKS:
            write_skill(project, f"{name}.py", TWO)
        while before != await host.tools():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert {"two"} == {await host.text(f"{name}_version") for name in BREAKS}


async def test_a_call_at_the_moment_of_a_broken_save_is_answered(project: Path):
    """The skill is known, and was not imported yet; nothing vanishes from the list."""
    async with inside(project) as host:
        await host.tools()
    async with inside(project) as host:
        before = await host.tools()
        assert "one" == await host.text("u_version")
        for _ in range(3):
            await replace_worker(host)
            write_skill(project, "t.py", BROKEN)
            assert "one" == await host.text("t_version")
            assert set(before) <= set(await host.tools())
            write_skill(project, "t.py", ONE)
            assert "one" == await host.text("t_version")
            assert set(before) <= set(await host.tools())


async def test_a_worker_that_has_imported_a_broken_file_is_given_the_last_good_version(project: Path):
    """It looked at all skills when the host knew nothing of the save yet."""
    async with inside(project) as host:
        before = await host.tools()
        assert "one" == await host.text("u_version")
        for _ in range(3):
            await replace_worker(host)
            write_skill(project, "t.py", BROKEN)
            with contextlib.suppress(ChildProcessError):  # the worker may be replaced meanwhile, because of the save
                async with host.project.workers.generations.describers() as ask:
                    await ask(())
            assert "one" == await host.text("t_version")
            write_skill(project, "t.py", ONE)
            assert "one" == await host.text("t_version")
            assert set(before) <= set(await host.tools())


@pytest.mark.parametrize("torn", ["", "from prowess import skill_comm", '"""What\n', "   \n"])
async def test_half_of_a_save_takes_nothing_away(project: Path, torn: str):
    """An editor that truncates a file and then writes it may be seen in between."""
    async with inside(project) as host:
        before = await host.tools()
        (project / "skills/t.py").write_text(torn)
        assert "t.py" in await told_of(host, "last good version stays in use")
        assert "one" == await host.text("t_version")
        write_skill(project, "t.py", ONE)
        await host.noted(CHANGED, 2)
        assert before == await host.tools()


@pytest.mark.parametrize("is_empty", [False, True], ids=["no skill", "no commands"])
def test_a_file_that_was_half_of_a_save_only_for_the_worker_takes_nothing_away(tmp_path: Path, is_empty: bool):
    """The worker found nothing in it, and it is whole again when the host looks for the reason."""
    file = tmp_path / "t.py"
    file.write_text("import prowess\n")
    place = str(file)
    facts = SkillFacts(files=(place,), place=place, own=(place,))
    torn = Seen(0, 0, 0, 0, "", 0)
    sources = Sources()
    sources.hold(Description({"t": facts}, texts={place: b"import prowess\n"}), ())
    skills = {"t": facts} if is_empty else {}
    seen = Description(skills, tuple(skills), folders=(str(tmp_path),), sightings={place: torn})
    assert ["the file changed while it was read"] == [it.reason for it in sources.missed(seen)]
    assert [] == sources.missed(replace(seen, folders=())), "nobody looks in that folder any more"
    file.write_text("x = 1\n")
    assert [] == sources.missed(seen), "it is no skill any more"


async def test_what_is_taken_away_is_gone(project: Path):
    """A file that is deleted or renamed is no broken one, also while it was broken; nor is one that is no skill any more."""
    async with inside(project) as host:
        await host.tools()
        (project / "skills/t.py").rename(project / "skills/v.py")
        await host.noted(CHANGED, 1)
        assert ["u_pid", "u_version", "v_pid", "v_version"] == await host.tools()
        write_skill(project, "v.py", BROKEN)
        await host.noted(CHANGED, 2)
        (project / "skills/v.py").unlink()
        await host.noted(CHANGED, 3)
        assert ["u_pid", "u_version"] == await host.tools()
        (project / "skills/u.py").write_text("x = 1\n")
        await host.noted(CHANGED, 4)
        assert ["prowess_diagnostics"] == await host.tools()  # it says where skills are looked for


async def test_several_workers_all_serve_the_last_good_version(project: Path):
    """Whichever of them gets the call."""
    (project / "prowess.toml").write_text('cache_dir = "cache"\n[host]\nworkers = 3\n')
    async with inside(project) as host:
        await host.tools()
        write_skill(project, "t.py", BROKEN)
        await host.noted(CHANGED)
        await until(lambda: len(host.workers()) == 3)
        answers = [host.start_call("t_version") for _ in range(30)]
        assert {"one"} == {(await result(answer))["content"][0]["text"] for answer in answers}


async def test_helpers_beside_a_skill_are_kept_with_it(tmp_path: Path):
    """One that is saved so that one skill breaks and the other does not: each gets its own version of it."""
    make_project(tmp_path)
    for name, wanted in (("a", "x"), ("b", "y")):
        body = f"from ._h import {wanted}, Shared\n@skill_command\ndef version() -> int:\n    return {wanted}\n"
        write_skill(tmp_path, f"{name}.py", body)
    helper = tmp_path / "skills/_h.py"
    (tmp_path / "skills/_types.py").write_text("class Shared: ...\n")
    helper.write_text("from ._types import Shared\nx, y = 1, 1\n")
    async with inside(tmp_path) as host:
        await host.tools()
        helper.write_text("from ._types import Shared\ny = 2\n")
        await host.noted(CHANGED)
        for _ in range(2):
            assert ("1", "2") == (await host.text("a_version"), await host.text("b_version"))
            assert ("2", "1") == (await host.text("b_version"), await host.text("a_version"))
            await replace_worker(host)
        helper.write_text("from ._types import Shared\nx, y = 3, 3\n")
        await host.noted(CHANGED, 2)
        assert ("3", "3") == (await host.text("a_version"), await host.text("b_version"))


@pytest.mark.parametrize("broken", ["def f(:\n", "", None], ids=["syntax", "empty", "deleted"])
async def test_a_broken_module_of_the_project_breaks_no_skill(tmp_path: Path, broken: str | None):
    """It is imported by its absolute name, by two skills."""
    make_project(tmp_path, a=HANDS, b=HANDS, c=ONE)
    module = tmp_path / "_hands.py"
    module.write_text("NAME = 'one'\n")
    async with inside(tmp_path) as host:
        before = await host.tools()
        if broken is None:
            module.unlink()
        else:
            module.write_text(broken)
        await told_of(host, "last good version stays in use")
        for _ in range(2):
            assert ("one", "one") == (await host.text("a_version"), await host.text("b_version"))
            assert "one" == await host.text("c_version")
            await replace_worker(host)
        module.write_text("NAME = 'two'\n")
        await host.noted(CHANGED, 2)
        assert ("two", "two") == (await host.text("a_version"), await host.text("b_version"))
        assert before == await host.tools()


async def test_a_module_of_the_project_may_have_two_versions(tmp_path: Path):
    """The skill that breaks keeps the old one, and the one that does not gets the new one; both share the rest."""
    make_project(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/prices.py").write_text("x, y = 1, 1\n")
    (tmp_path / "shop/goods.py").write_text("class Good: ...\n")
    for name, wanted in (("a", "x"), ("b", "y")):
        body = (
            f"from shop.prices import {wanted}\nfrom shop import goods\n@skill_command\ndef version() -> list[int]:\n"
        )
        write_skill(tmp_path, f"{name}.py", f"{body}    from shop import prices\n    return [{wanted}, prices.y]\n")
    async with inside(tmp_path) as host:
        await host.tools()
        (tmp_path / "shop/prices.py").write_text("y = 2\n")
        await host.noted(CHANGED)
        for _ in range(2):
            assert [1, 2] == (await host.call("a_version"))["structuredContent"]["result"]
            assert [2, 2] == (await host.call("b_version"))["structuredContent"]["result"]
            await replace_worker(host)
            assert [2, 2] == (await host.call("b_version"))["structuredContent"]["result"]
            assert [1, 2] == (await host.call("a_version"))["structuredContent"]["result"]


async def test_a_broken_plugin_costs_nobody_what_it_gives(tmp_path: Path):
    """Skills that rely on what it provides keep that, by type, also in another worker."""
    plug = """
        from prowess import hookimpl
        class Clock:
            def now(self): return "noon"
        @hookimpl
        def prowess_injectables(provide): provide(Clock, Clock)
        @hookimpl
        def prowess_skill_folders(): return ["more"]
    """
    uses = "from .clock import Clock\n@skill_command\ndef now(clock: Clock) -> str:\n    return clock.now()\n"
    make_project(tmp_path, clock=plug, b=uses)
    write_skill(tmp_path, "../more/far.py", ONE)
    async with inside(tmp_path) as host:
        before = await host.tools()
        write_skill(tmp_path, "clock.py", "from prowess import hookimpl\n1 / 0\n")
        await told_of(host, "last good version stays in use")
        for _ in range(2):
            assert ("noon", "one") == (await host.text("b_now"), await host.text("far_version"))
            await replace_worker(host)
        write_skill(tmp_path, "clock.py", plug.replace("noon", "night"))
        await until(lambda: len([note for note in host.notes if note["method"] == CHANGED]) > 1)
        assert "night" == await host.text("b_now")
        assert before == await host.tools()


async def test_broken_settings_cost_nothing(project: Path):
    """Everything goes on by what they said before, also in a new worker."""
    async with inside(project) as host:
        before = await host.tools()
        (project / "prowess.toml").write_text("cache_dir = \n")
        assert "prowess.toml" in await told_of(host, "the previous version stays in use")
        await replace_worker(host)
        assert "one" == await host.text("t_version")
        assert {*before, "prowess_diagnostics"} == set(await host.tools())


async def test_a_skill_that_is_too_large_to_be_kept_says_what_is_wrong(project: Path):
    """Its commands stay, and each call gives the file, the line and the reason."""
    file = project / "skills/t.py"
    file.write_text(file.read_text() + "#" * (1 << 20))
    async with inside(project) as host:
        before = await host.tools()
        file = write_skill(project, "t.py", "x = 1\nimport nothing_of_this_name\n")
        await host.noted(CHANGED)
        assert {*before, "prowess_diagnostics"} == set(await host.tools())
        failed = await host.call("t_version")
        assert failed["isError"]
        text = failed["content"][0]["text"]
        assert f"{file}:5" in text
        assert "nothing_of_this_name" in text
        write_skill(project, "t.py", TWO)
        await host.noted(CHANGED, 2)
        assert "two" == await host.text("t_version")


async def test_two_hosts_on_one_manifest_each_keep_their_own_versions(project: Path):
    """A third one that starts while a skill is broken has nothing to serve it from, and says so."""
    async with inside(project) as one, inside(project) as other:
        await asyncio.gather(one.tools(), other.tools())
        write_skill(project, "t.py", BROKEN)
        for host in (one, other):
            await host.noted(CHANGED)
            assert "one" == await host.text("t_version")
        async with inside(project) as third:
            assert ["prowess_diagnostics", "u_pid", "u_version"] == await third.tools()
        write_skill(project, "t.py", TWO)
        for host in (one, other):
            await host.noted(CHANGED, 2)
            assert "two" == await host.text("t_version")
    async with inside(project) as host:
        assert "two" == await host.text("t_version")
