"""Starts and saves that are made to go wrong: what a host knows of its skills is right in the end, and stays so."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from inside import inside
from piped import Client, Message, hosted, make_project, processes, until, write_skill
from test_start import CHANGED, imports, listed, noting

ALL = ["a_say", "b_say", "c_say"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_project(tmp_path, "[sandbox]\next = false\n")  # the package of some tests is allowed to run
    for name in ("a", "b", "c"):
        write_skill(tmp_path, f"{name}.py", noting(tmp_path, name))
    return tmp_path


# Names


async def test_alias_that_is_the_id_of_a_skill_not_yet_imported_takes_no_call_away(project: Path):
    """The id wins whichever of the two skills a worker has imported first."""
    other = "\n@skill_command(aliases=['b.say'])\ndef other(text: str = 'wrong') -> str:\n    return text\n"
    write_skill(project, "a.py", noting(project, "a") + other)
    await listed(project)
    async with inside(project) as host:
        assert "a" == await host.text("a_say")
        assert "b" == await host.text("b_say")


async def test_alias_is_called_as_the_client_would_write_it(project: Path):
    """A client that has listed the tools before a command was renamed knows only its name on the wire."""
    other = "\n@skill_command(aliases=['a.former'])\ndef other() -> str:\n    return 'other'\n"
    write_skill(project, "a.py", noting(project, "a") + other)
    async with inside(project) as host:
        assert ["other"] * 2 == [await host.text(name) for name in ("a_former", "a.former")]


@pytest.mark.skipif(sys.platform == "darwin", reason="its file system has no such names")
@pytest.mark.parametrize("text", ["x = 1", "import prowess"])
async def test_file_whose_name_is_no_text_hides_no_skill(project: Path, text: str):
    """Whether or not it would be a skill itself."""
    (project / "skills" / os.fsdecode(b"d\xff.py")).write_text(text)
    assert ALL == [name for name in await listed(project) if name != "prowess_diagnostics"]
    imports(project)
    async with inside(project) as host:
        assert set(ALL) <= set(await host.tools())
        if "prowess" in text:
            assert r"d\udcff.py" in await host.text("prowess_diagnostics")
    assert [] == imports(project)


# Workers that end while they describe


def gated(project: Path, name: str) -> str:
    """A skill whose import takes until `gate` is there, and says that it is at it."""
    waiting = f"while not os.path.exists({str(project / 'gate')!r}):\n    time.sleep(0.01)\n"
    return f"open({str(project / 'begun')!r}, 'w').close()\n{waiting}{noting(project, name)}"


async def listed_despite(project: Path, host: Client, mishap: Callable[[], Awaitable[object]]) -> list[str]:
    """What a host lists, to which something happens while a worker of it imports `d`."""
    listing = host.request("tools/list")
    await until((project / "begun").exists)
    await mishap()
    (project / "gate").touch()
    return [tool["name"] for tool in (await listing)["result"]["tools"]]


async def test_skill_whose_worker_was_killed_by_somebody_else_is_not_to_blame(project: Path):
    """It is imported once more, and nothing bad is remembered of it."""
    write_skill(project, "d.py", gated(project, "d"))
    async with inside(project) as host:

        async def mishap() -> None:
            os.kill(await host.worker(), signal.SIGKILL)

        assert [*ALL, "d_say"] == await listed_despite(project, host, mishap)


async def test_skill_is_described_although_a_call_ends_the_worker(project: Path):
    """Somewhere else, where nothing is called."""
    hook = "from prowess import hookimpl\n@hookimpl\ndef prowess_call_started(call): ...\n"  # so it is imported first
    die = "@skill_command\ndef die() -> str:\n    os._exit(4)\n"
    write_skill(project, "a.py", f"{noting(project, 'a')}\n{hook}\n{die}")
    saved = (project / "prowess.toml").stat().st_ctime_ns
    await until(lambda: time.time_ns() > saved + 100_000_000)  # else it counts as changed, and `a` as unknown
    await listed(project)
    write_skill(project, "d.py", gated(project, "d"))
    async with inside(project) as host:
        tools = await listed_despite(project, host, lambda: host.call("a_die"))
        assert ["a_die", *ALL, "d_say"] == tools, host.stderr


async def test_skill_is_described_again_although_a_call_ends_the_worker(project: Path):
    """After a start, a skill that was broken before is tried once more. No save would make up for a lost attempt."""
    write_skill(project, "a.py", noting(project, "a") + "\n@skill_command\ndef die() -> str:\n    os._exit(4)\n")
    broken = "if 'MENDED' not in os.environ:\n    raise RuntimeError('broken')\n"
    write_skill(project, "d.py", broken + gated(project, "d"))
    await listed(project)
    async with inside(project, env={"MENDED": "1"}) as host:
        assert "d_say" not in await host.tools()
        await until((project / "begun").exists)
        await host.call("a_die")
        (project / "gate").touch()
        await host.noted(CHANGED)
        assert ["a_die", *ALL, "d_say"] == await host.tools(), host.stderr


async def test_skill_is_described_although_a_call_is_killed_with_its_worker(project: Path):
    """The host ends the worker itself, since the call does not end in time."""
    slow = "\n@skill_command(timeout=0.2)\ndef slow() -> str:\n    while True:\n        time.sleep(0.01)\n"
    write_skill(project, "a.py", noting(project, "a") + slow)
    await listed(project)
    write_skill(project, "d.py", gated(project, "d"))
    async with inside(project) as host:
        mishap = partial(host.out_of_time, "a_slow")
        assert ["a_say", "a_slow", "b_say", "c_say", "d_say"] == await listed_despite(project, host, mishap)


async def test_skill_is_described_although_another_one_ends_the_worker_when_it_is_called(project: Path):
    """That one was all right when it was seen last."""
    write_skill(project, "b.py", "if os.environ.get('DIE'):\n    os._exit(3)\n" + noting(project, "b"))
    await listed(project)
    write_skill(project, "d.py", gated(project, "d"))
    write_skill(project, "e.py", noting(project, "e"))
    async with inside(project, env={"DIE": "1"}) as host:

        async def mishap() -> None:
            called.append(host.start_call("b_say"))
            await host.ask("ping")

        called: list[asyncio.Future[Message]] = []
        assert [*ALL, "d_say", "e_say"] == await listed_despite(project, host, mishap), host.stderr
        assert "while it was loaded" in (await called[0])["result"]["content"][0]["text"]


async def test_skill_that_stops_everything_while_it_is_imported_is_not_to_blame(project: Path):
    """A call waits at the time, so that the worker looks stuck and is replaced."""
    (project / "prowess.toml").write_text('cache_dir = "cache"\n[host]\nstall_limit = 0.2\n')
    await listed(project)
    write_skill(project, "d.py", "import ctypes\nctypes.PyDLL(None).usleep(900_000)\n" + noting(project, "d"))
    async with inside(project) as host:
        listing = host.request("tools/list")
        assert "a" == await host.text("a_say")
        assert [*ALL, "d_say"] == [tool["name"] for tool in (await listing)["result"]["tools"]]


# Files that nobody has seen


async def test_link_that_leads_nowhere_is_followed_once_it_leads_somewhere(project: Path):
    """It was known as a failure, and cost the starts in between nothing."""
    link, later = project / "skills/d.py", project / "later.py"
    link.symlink_to(later)
    for _ in range(2):
        assert [*ALL, "prowess_diagnostics"] == await listed(project)
    imports(project)
    await listed(project)
    assert [] == imports(project)
    write_skill(project, "../later.py", noting(project, "d"))
    assert [*ALL, "d_say"] == await listed(project)


async def test_skill_that_is_deleted_while_others_are_imported_is_not_remembered(project: Path):
    """The host is killed before it sees that."""
    rid = f"import contextlib\nwith contextlib.suppress(OSError):\n    os.unlink({str(project / 'skills/a.py')!r})\n"
    write_skill(project, "c.py", rid + noting(project, "c"))
    async with hosted(project) as host:
        await host.tools()
        await until(lambda: list((project / "cache").glob("manifests/*.json")))
        os.kill(host.pid, signal.SIGKILL)
        await host.ended()
    await until(lambda: not processes(host.mark))
    assert ["b_say", "c_say"] == await listed(project)


# Settings


@pytest.mark.parametrize("told", ["hide = ['a.*']", "names = 'dotted'"])
async def test_settings_that_are_saved_just_after_the_start_count(project: Path, told: str):
    """Before anybody watches them."""
    await listed(project)
    async with inside(project) as host:
        before = await host.tools()
        (project / "prowess.toml").write_text(f'cache_dir = "cache"\n{told}\n')
        await host.noted("notifications/tools/list_changed")
        assert before != await host.tools()


@pytest.mark.parametrize("file", ["prowess.toml", "pyproject.toml"])
async def test_settings_that_a_hook_goes_by_have_everything_described(project: Path, file: str):
    """Whatever they are called, and wherever they stand."""
    plug = "from pathlib import Path\nfrom prowess import hookimpl\n@hookimpl\n"
    plug += "def prowess_skill_folders(settings):\n    return [Path(it) for it in settings.get('more.folders', [])]\n"
    write_skill(project, "plug.py", plug)
    write_skill(project, "../extra/d.py", noting(project, "d"))
    cache = {"PROWESS_CACHE_DIR": str(project / "cache")}
    (project / "prowess.toml").unlink()
    assert ALL == await listed(project, **cache)
    table = "more" if file == "prowess.toml" else "tool.prowess.more"
    (project / file).write_text(f"[{table}]\nfolders = [{str(project / 'extra')!r}]\n")
    assert [*ALL, "d_say"] == await listed(project, **cache)


# Packages


def install(folder: Path, entry_points: str = "[prowess.skills]\next = ext\n") -> None:
    """What an installer leaves in a folder of packages: one with a skill."""
    facts = folder / "ext-1.0.dist-info"
    shutil.rmtree(facts, ignore_errors=True)
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: ext\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(entry_points)
    (folder / "ext.py").write_text("from prowess import skill_command\n@skill_command\ndef hi() -> None: ...\n")


async def test_package_that_is_installed_anew_in_the_same_version_is_looked_at(project: Path):
    """As one does with a package that one works on."""
    install(project / "site", entry_points="")
    assert ALL == await listed(project, apart=True, PYTHONPATH=str(project / "site"))
    install(project / "site")
    assert [*ALL, "ext_hi"] == await listed(project, apart=True, PYTHONPATH=str(project / "site"))


async def test_other_path_to_packages_is_another_catalog(project: Path):
    """What was known on the old one says nothing of it."""
    install(project / "site")
    assert ALL == await listed(project)
    assert [*ALL, "ext_hi"] == await listed(project, apart=True, PYTHONPATH=str(project / "site"))
    assert ALL == await listed(project)


# Imports that no text tells of, and files that were not there


def picking(kind: str) -> str:
    """A skill that takes what something that it imports says."""
    return f"""
KIND = {kind}

@skill_command
def pick(kind: 'KIND') -> None: ...
"""


async def picked(project: Path, **env: str) -> object:
    """What `d_pick` takes, by a host that is started for this alone."""
    async with inside(project, env=env) as host:
        tools = {tool["name"]: tool for tool in (await host.ask("tools/list"))["tools"]}
        return tools["d_pick"]["inputSchema"]["properties"]["kind"].get("type")


async def test_module_that_one_skill_imports_by_name_and_another_by_a_value_shapes_both(project: Path):
    """The text tells of the one alone."""
    (project / "lib.py").write_text("KIND = int\n")
    write_skill(project, "a.py", "import lib\n" + noting(project, "a"))
    write_skill(project, "d.py", picking("__import__('importlib').import_module('lib').KIND"))
    assert "integer" == await picked(project)
    imports(project)
    (project / "lib.py").write_text("KIND = str\n")
    assert "string" == await picked(project)
    assert ["a"] == imports(project)


async def test_module_beside_the_skills_that_one_of_them_finds_by_a_path_shapes_it(project: Path):
    """It could be a skill itself, by its place."""
    (project / "skills/helper.py").write_text("KIND = int\n")
    way = "sys.path.insert(0, os.path.dirname(__file__))\nimport helper\n"
    write_skill(project, "d.py", way + picking("helper.KIND"))
    assert "integer" == await picked(project)
    imports(project)
    (project / "skills/helper.py").write_text("KIND = str\n")
    assert "string" == await picked(project)
    assert [] == imports(project)


async def test_module_that_comes_to_be_there_is_seen(project: Path):
    """The skill could do without it, but it does otherwise with it."""
    write_skill(
        project, "d.py", "try:\n    from local import KIND\nexcept ImportError:\n    KIND = int\n" + picking("KIND")
    )
    assert "integer" == await picked(project)
    (project / "local.py").write_text("KIND = str\n")
    assert "string" == await picked(project)


async def test_module_that_nobody_imports_any_more_is_forgotten(project: Path):
    """That it is gone has everything described once, and not at every start."""
    (project / "lib.py").touch()
    write_skill(project, "d.py", "__import__('lib')\n" + noting(project, "d"))
    await listed(project)
    (project / "lib.py").unlink()
    write_skill(project, "d.py", noting(project, "d"))
    await listed(project)
    imports(project)
    await listed(project)
    assert [] == imports(project)


async def test_module_that_a_skill_fails_without_is_noticed_when_it_is_there(project: Path):
    """In the session, without a further save."""
    write_skill(project, "d.py", "import local\n" + noting(project, "d"))
    async with inside(project) as host:
        assert "No module named 'local'" in await host.text("prowess_diagnostics")
        (project / "local.py").touch()
        await host.noted("notifications/tools/list_changed")
        assert [*ALL, "d_say"] == await host.tools()


async def test_module_that_is_saved_twice_within_a_second_is_read_as_it_is(project: Path):
    """Bytecode is trusted by whole seconds, and would hide the second save for ever."""
    cached = {"PYTHONDONTWRITEBYTECODE": ""}
    for place in ("lib.py", "pack/__init__.py"):
        file, second = project / place, time.time_ns() // 1_000_000_000 * 1_000_000_000 - 60_000_000_000
        file.parent.mkdir(exist_ok=True)
        write_skill(
            project, "d.py", f"from {place.partition('/')[0].removesuffix('.py')} import KIND\n{picking('KIND')}"
        )
        for count, (kind, shown) in enumerate((("int", "integer"), ("str", "string"))):
            file.write_text(f"KIND = {kind}\n")
            os.utime(file, ns=(second + count, second + count))
            assert shown == await picked(project, **cached)
