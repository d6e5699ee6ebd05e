"""Whatever interrupts an update: in the end the host lists and calls the newest version, without a further save."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from anyio import fail_after
from inside import inside
from patience import PATIENCE
from piped import Client, make_project, replace_worker, until, write_skill

from prowess.settings.limits import Limits
from prowess_host.catalog import attempts, updates
from prowess_host.catalog.listing import DIAGNOSTICS
from prowess_host.catalog.updates import CatalogUpdates
from prowess_host.catalog.watcher import Watcher
from prowess_host.confinement.confine import system
from prowess_host.workers.describe import LostWorker
from prowess_host.workers.generations import Successor

ONE = """
    @skill_command
    def version() -> str:
        return "one"
"""
TWO = ONE.replace("one", "two")
DESCRIBED = """
    @skill_command
    def version() -> str:
        \"\"\"Says one.\"\"\"
        return "one"
"""
NAMED = """
    @skill_command
    def name() -> str:
        return NAME
"""
MORE = """
    @skill_command
    def b_c() -> str:
        return "more"
"""


def gated(project: Path, imports: str) -> str:
    """A skill that goes on after these imports as soon as `gate` is there, and says by `begun` that it waits."""
    told = f"open({str(project / 'begun')!r}, 'w').close()\n"
    return f"{imports}{told}while not os.path.exists({str(project / 'gate')!r}):\n    time.sleep(0.01)\n{dedent(NAMED)}"


async def comes(host: Client, name: str, text: str) -> None:
    """Until a command answers like this."""
    with fail_after(PATIENCE):
        while text != await host.text(name):  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.01)


async def without_faults(host: Client) -> list[str]:
    """The tools, as soon as nothing is wrong."""
    with fail_after(PATIENCE):
        while "prowess_diagnostics" in (tools := await host.tools()):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    return tools


def updates_of(host: Any) -> CatalogUpdates:
    """For what happens at a moment that no test can choose otherwise."""
    return host.project._updates


def losing(monkeypatch: pytest.MonkeyPatch, workers: Any, name: str, times: int) -> None:
    """Something outside ends each worker that describes a generation, so many times."""
    lost, real = 0, getattr(workers, name)

    async def lose(*asked: Any) -> Successor:
        nonlocal lost
        lost += 1
        if lost <= times:
            raise LostWorker("killed from outside")
        return await real(*asked)

    monkeypatch.setattr(workers, name, lose)


# Modules of the project


async def test_module_that_a_command_imports_when_it_is_called_is_followed(tmp_path: Path):
    """No import of the skill itself has read it."""
    body = "@skill_command\ndef name() -> str:\n    from lib import NAME\n    return NAME\n"
    (tmp_path / "lib.py").write_text("NAME = 'one'\n")
    async with inside(make_project(tmp_path, t=body)) as host:
        assert "one" == await host.text("t_name")
        (tmp_path / "lib.py").write_text("NAME = 'two'\n")
        await comes(host, "t_name", "two")


@pytest.mark.parametrize("is_there", [True, False])
async def test_module_that_is_saved_after_its_import_and_before_the_description_counts(tmp_path: Path, is_there: bool):
    """Nobody knew before the description that the skill imports it, or would import it."""
    imports = "try:\n    from lib import NAME\nexcept ImportError:\n    NAME = 'one'\n"
    if is_there:
        (tmp_path / "lib.py").write_text("NAME = 'one'\n")
    async with inside(make_project(tmp_path, t=gated(tmp_path, imports))) as host:
        listing = host.request("tools/list")
        await until((tmp_path / "begun").exists)
        (tmp_path / "lib.py").write_text("NAME = 'two'\n")
        (tmp_path / "gate").touch()
        await listing
        await comes(host, "t_name", "two")


# The start


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
async def test_skill_that_is_saved_before_the_host_first_looks_at_its_files_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
):
    """The thread that looks gets no processor before. The skill may be known from the last run, or have been imported by then."""
    make_project(tmp_path, t=DESCRIBED, u=ONE)
    if known:
        async with inside(tmp_path) as host:
            await host.tools()
        write_skill(tmp_path, "u.py", TWO)  # so that the host starts with one of two
    waits, look, start = threading.Event(), Watcher._look, Watcher.start

    def look_late(self: Watcher) -> Any:
        if not self.ready.is_set():
            while not (waits.is_set() or (tmp_path / "imported").exists()):
                time.sleep(0.01)
            write_skill(tmp_path, "t.py", DESCRIBED.replace("one", "two"))
        return look(self)

    class Ready(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.set()
            return super().wait(timeout)

    def start_late(self: Watcher) -> None:
        self.ready = Ready()
        start(self)

    monkeypatch.setattr(Watcher, "start", start_late)
    monkeypatch.setattr(Watcher, "_look", look_late)
    if known:
        waits.set()
    else:
        begun = f"open({str(tmp_path / 'imported')!r}, 'w').close()\n"
        write_skill(tmp_path, "u.py", f"from .t import version as other\n{begun}{dedent(ONE)}")
    async with inside(tmp_path) as host:
        with fail_after(PATIENCE):
            while "Says two." not in str(await host.ask("tools/list")):  # noqa: ASYNC110 - another process decides
                await asyncio.sleep(0.01)


# The last good version, and the one after it


async def test_skill_that_stayed_at_an_earlier_version_for_a_clash_gets_the_newest_one(tmp_path: Path):
    """It was described while the earlier version stayed, and need not be described again when the other skill yields."""
    make_project(tmp_path, a=ONE + MORE, a_b=ONE)
    async with inside(tmp_path) as host:
        tools = await host.tools()
        write_skill(tmp_path, "a.py", TWO + MORE)
        write_skill(tmp_path, "a_b.py", TWO + MORE.replace("b_c", "c"))
        await until(lambda: "is also claimed by" in host.stderr)
        await replace_worker(host)  # the next one has imported nothing
        write_skill(tmp_path, "a_b.py", TWO)
        assert tools == await without_faults(host)
        await comes(host, "a_version", "two")


async def test_skill_that_is_whole_again_when_another_one_is_described_gets_the_newest_version(tmp_path: Path):
    """The worker that describes the other one was started since, and finds the file; the host has not noticed the save yet."""
    make_project(tmp_path, t=ONE, u=ONE)
    async with inside(tmp_path) as host:
        assert "one" == await host.text("t_version")
        (tmp_path / "skills/t.py").write_text('"""What\n')
        await until(lambda: "the last good version stays in use" in host.stderr)
        updating = updates_of(host)
        updating._watcher.stop()
        await replace_worker(host)
        write_skill(tmp_path, "t.py", TWO)
        await updating._describe_again({"u"})
        assert "one" == await host.text("t_version")
        await replace_worker(host)
        await updating._take_save()
        assert "two" == await host.text("t_version")
        await replace_worker(host)
        assert "two" == await host.text("t_version")
        assert ["t_version", "u_version"] == await host.tools()


# Attempts that fail


async def test_skill_that_ends_a_worker_when_it_is_described_again_is_tried_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What was described at a call instead of a save stands like any other."""
    monkeypatch.setattr(attempts, "_PAUSES", (0.0,) * 1000)
    deadly = tmp_path / "deadly"
    make_project(tmp_path, t=f"if os.path.exists({str(deadly)!r}): os._exit(5)\n{dedent(ONE)}")
    async with inside(tmp_path) as host:
        assert "one" == await host.text("t_version")
        await replace_worker(host)
        deadly.touch()
        await updates_of(host)._describe_again({"t"})
        assert "prowess_diagnostics" in await host.tools()
        deadly.unlink()
        assert ["t_version"] == await without_faults(host)


async def test_host_that_is_behind_tries_again_however_often_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Until it works, since nobody saves again."""
    monkeypatch.setattr(attempts, "_PAUSES", (0.0,) * 2)
    async with inside(make_project(tmp_path, t=ONE)) as host:
        assert "one" == await host.text("t_version")
        losing(monkeypatch, host.project.workers.generations, "next_generation", 20)
        write_skill(tmp_path, "t.py", TWO)
        await comes(host, "t_version", "two")
        assert ["t_version"] == await without_faults(host)


async def test_host_that_is_behind_waits_for_no_import_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A skill that ended workers is tried again afterwards: that may take minutes."""
    monkeypatch.setattr(attempts, "_PAUSES", (0.0,) * 4)
    async with inside(make_project(tmp_path, t=ONE)) as host:
        assert "one" == await host.text("t_version")
        workers = host.project.workers.generations

        async def hang(_skills: Collection[str]) -> set[str]:
            return await asyncio.Future()

        monkeypatch.setattr(workers, "importable", hang)
        losing(monkeypatch, workers, "next_generation", 3)
        write_skill(tmp_path, "t.py", TWO)
        await comes(host, "t_version", "two")


async def test_settings_count_for_all_skills_although_one_is_described_before_they_are_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The workers are those of the former settings, because no others could be started."""
    async with inside(make_project(tmp_path, t=ONE, u=ONE)) as host:
        assert ["t_version", "u_version"] == await host.tools()
        await replace_worker(host)
        losing(monkeypatch, host.project.workers.generations, "next_generation", 3)
        (tmp_path / "prowess.toml").write_text('cache_dir = "cache"\nnames = "dotted"\n')
        await until(lambda: "the previous version stays in use" in host.stderr)
        await updates_of(host)._describe_again({"t"})
        assert ["t.version", "u.version"] == await without_faults(host)


async def test_error_of_ours_costs_no_later_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And the save itself is taken up again."""
    monkeypatch.setattr(attempts, "_PAUSES", (0.0,) * 1000)
    async with inside(make_project(tmp_path, t=ONE)) as host:
        assert "one" == await host.text("t_version")
        known, lost = updates_of(host)._known, [True] * 2
        real = known.standing
        monkeypatch.setattr(known, "standing", lambda: real() if not lost or not lost.pop() else 1 / 0)
        write_skill(tmp_path, "t.py", TWO)
        await comes(host, "t_version", "two")
        assert "ZeroDivisionError" in host.stderr
        assert ["t_version"] == await without_faults(host)


LIMITS = "# /// script\n# [tool.prowess.sandbox]\n# ///\n"
limited = pytest.mark.skipif(bool(system().lacking(Limits())), reason="this system enforces no limits")


@limited
async def test_module_that_a_limited_skill_imports_first_in_its_new_version_counts_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """No worker could describe these; in the description of both, a module has one version."""
    monkeypatch.setattr(attempts, "_PAUSES", (3600.0,))
    body = "from lib import NAME\n@skill_command\ndef name(given: str = NAME) -> str:\n    return given\n"
    (tmp_path / "lib.py").write_text("NAME = 'one'\n")

    async def defaults(host: Client) -> list[str]:
        tools = (await host.ask("tools/list"))["tools"]
        return [tool["inputSchema"]["properties"]["given"]["default"] for tool in tools if tool["name"] != DIAGNOSTICS]

    async with inside(make_project(tmp_path, a=LIMITS.replace("]", "]\n# read = ['.']") + body, t=body)) as host:
        with fail_after(PATIENCE):
            while ["one", "one"] != await defaults(host):  # noqa: ASYNC110 - another process decides
                await asyncio.sleep(0.01)
        await replace_worker(host)
        losing(monkeypatch, host.project.workers.generations, "next_generation", 3)
        (tmp_path / "lib.py").write_text("NAME = 'two'\n")
        with fail_after(PATIENCE):
            while ["two", "one"] != await defaults(host):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        await until(lambda: "the previous version stays in use" in host.stderr)
        await updates_of(host)._try_again()
        assert ["two", "two"] == await defaults(host)


@limited
@pytest.mark.parametrize("times", [1, 5])
async def test_limited_skill_whose_worker_is_killed_when_it_describes_is_described_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
):
    """At once, and if that does not help, later. A command that it no longer has keeps no earlier version in use."""
    monkeypatch.setattr(attempts, "_PAUSES", (0.0,) * 4)
    async with inside(make_project(tmp_path, t=LIMITS + dedent(ONE + MORE))) as host:
        assert "one" == await host.text("t_version")
        losing(monkeypatch, host.project.workers.generations, "next_of", times)
        write_skill(tmp_path, "t.py", LIMITS + dedent(TWO))
        await comes(host, "t_version", "two")
        assert ["t_version"] == await without_faults(host)


@pytest.mark.parametrize("how", ["while True: pass", "time.sleep(1000)"])
@pytest.mark.parametrize("is_first_start", [False, True], ids=["running", "first start"])
async def test_save_mends_an_import_that_hangs(
    tmp_path: Path, how: str, is_first_start: bool, monkeypatch: pytest.MonkeyPatch
):
    """The host does not wait for the import of a file that has changed, as it would for `host.import_limit`."""
    monkeypatch.setattr(updates, "_LONG", 0.1)
    project = make_project(tmp_path, t=ONE)
    tried = project / "tried"
    hanging = f"import time\nopen({str(tried)!r}, 'w')\n{how}\n"
    if is_first_start:
        write_skill(project, "t.py", hanging)
    async with inside(project) as host:
        if not is_first_start:
            assert "one" == await host.text("t_version")
            write_skill(project, "t.py", hanging)
        await until(tried.exists)
        write_skill(project, "t.py", TWO)
        while "two" not in str(await host.start_call("t_version")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await until(lambda: len(host.workers()) == 1)


async def test_save_of_a_module_mends_the_import_that_hangs_in_it(tmp_path: Path):
    """It is not in the folder of the skills, so it may be any skill's."""
    project = make_project(tmp_path)
    module, tried = project / "_slow.py", project / "tried"
    module.write_text("NAME = 'one'\n")
    write_skill(project, "t.py", "from _slow import NAME\n@skill_command\ndef version() -> str:\n    return NAME\n")
    async with inside(project) as host:
        assert "one" == await host.text("t_version")
        module.write_text(f"import time\nopen({str(tried)!r}, 'w')\ntime.sleep(1000)\n")
        await until(tried.exists)
        module.write_text("NAME = 'two'\n")
        while "two" not in str(await host.start_call("t_version")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
