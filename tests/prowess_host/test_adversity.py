"""Places and amounts that are no fault of ours: nothing may be written, nothing may be read, too much of everything."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from inside import inside
from piped import Message, hosted, make_project, result, write_skill
from refused import TOO_LARGE

SAY = """
@skill_command
def say(text: str = "hello") -> str:
    return text
"""
NO_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
"""Even for root a mode is a mode then, and a file of another user is one."""
NO_PROC = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
if os.geteuid():
    NO_PROC[1:2] = ["--user", "--map-root-user", "--mount"]
CHANGED = "notifications/tools/list_changed"


def works(command: list[str]) -> bool:
    with contextlib.suppress(OSError):
        return not subprocess.run([*command, "true"], capture_output=True, check=False).returncode
    return False


def modes(root: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mode for path in sorted(root.rglob("*"))}


def most_memory(pid: int) -> int:
    """KiB."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0])


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A project that nobody may write to."""
    make_project(tmp_path / "project", a=SAY, b=SAY)
    folders = [tmp_path / "project", tmp_path / "project/skills"]
    for folder in folders:
        folder.chmod(0o555)
    yield tmp_path / "project"
    for folder in folders:
        folder.chmod(0o755)


async def test_a_project_that_nobody_may_write_to_is_served(locked: Path):
    """Its cache cannot be made, so every start is a first one; nothing appears in it."""
    before = modes(locked)
    for _ in range(2):
        async with hosted(locked, through=NO_RIGHTS) as host:
            assert ["a_say", "b_say"] == await host.tools()
            assert "hello" == await host.text("a_say")
    assert before == modes(locked)


def read_only(folder: Path) -> list[str]:
    """Starts a program for which the file system of a folder is read-only, whoever runs it."""
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    rights = ["--user", "--map-root-user"] if os.geteuid() else []
    return ["unshare", *rights, "--mount", "sh", "-c", script, str(folder)]


TRY = """
@skill_command
def write(path: str) -> str:
    try:
        open(path, "w").close()
    except OSError as error:
        return error.strerror
    return "written"
"""


async def test_a_project_on_a_read_only_file_system_is_served(tmp_path: Path):
    """Also where there is a manifest from better times; and what is saved from elsewhere is loaded."""
    project = make_project(tmp_path / "project", a=SAY, t=TRY)
    through = read_only(project)
    if not works(through):
        pytest.skip("this system lets nobody mount here")
    for round_ in range(2):
        if round_:
            async with hosted(project, forked=True) as host:
                await host.tools()
        before = modes(project)
        async with hosted(project, through=through) as host:
            assert {"a_say", "t_write"} <= set(await host.tools())
            assert "hello" == await host.text("a_say")
            assert "Read-only file system" == await host.text("t_write", path=str(project / "skills" / "x.txt"))
            assert before == modes(project)
            write_skill(project, f"new{round_}.py", SAY)
            await host.noted(CHANGED)
            assert "hello" == await host.text(f"new{round_}_say")


@pytest.mark.parametrize("mode", [0o000, 0o500, 0o700], ids=oct)
async def test_the_cache_folder_of_another_user_is_left_alone(tmp_path: Path, mode: int):
    """Whatever its mode lets one do: nothing in it is believed, and nothing in it changes."""
    project = make_project(tmp_path, a=SAY)
    async with hosted(project, forked=True) as host:  # a manifest that could be believed
        await host.tools()
    cache = project / "cache"
    before = {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    assert before
    if os.geteuid() == 0:
        for path in (cache, *cache.rglob("*")):
            os.chown(path, 54321, 54321)
    cache.chmod(mode)
    try:
        async with hosted(project, through=NO_RIGHTS) as host:
            assert ["a_say"] == await host.tools()
            assert "hello" == await host.text("a_say")
            assert not [note for note in host.notes if note["method"] == CHANGED]
    finally:
        cache.chmod(0o700)
    if os.geteuid() == 0 or mode != 0o700:  # without rights no folder can be made another user's
        assert before == {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()}


async def test_a_skill_that_may_not_be_read_hides_no_other(tmp_path: Path):
    """It is a failure with its file and the reason, and comes as soon as it may be read."""
    project = make_project(tmp_path, a=SAY, b=SAY)
    (project / "skills/b.py").chmod(0)
    (project / "skills/c").mkdir(mode=0)
    try:
        async with hosted(project, through=NO_RIGHTS) as host:
            assert {"a_say"} <= set(await host.tools()) <= {"a_say", "prowess_diagnostics"}
            assert "hello" == await host.text("a_say")
            (project / "skills/b.py").chmod(0o644)
            await host.noted(CHANGED)
            assert {"a_say", "b_say"} <= set(await host.tools())
            assert "hello" == await host.text("b_say")
    finally:
        (project / "skills/c").chmod(0o755)


@pytest.mark.skipif(not works(NO_PROC), reason="this system lets nobody take /proc away")
async def test_without_proc_everything_works(tmp_path: Path):
    """A worker that ends is noticed and replaced, and nothing outlives the host."""
    body = f"{SAY}\n@skill_command\ndef die() -> str:\n    os._exit(3)\n"
    async with hosted(make_project(tmp_path, a=body), through=NO_PROC) as host:
        assert ["a_die", "a_say"] == await host.tools()
        assert "hello" == await host.text("a_say")
        assert "exit code 3" in await host.text("a_die")
        assert "hello" == await host.text("a_say")
        assert 0 == await host.leave()


NO_THREADS = f"""
import runpy, sys, threading
threading.stack_size({TOO_LARGE})
sys.argv = sys.argv[3:]
runpy.run_module("prowess_host", run_name="__main__", alter_sys=True)
"""


async def test_a_host_that_may_start_no_threads_serves(tmp_path: Path):
    """A client that reads slowly gets everything too. What is missing is on stderr."""
    body = f"{SAY}\n@skill_command\ndef die() -> str:\n    os._exit(3)\n"
    make_project(tmp_path, a=body)
    async with hosted(tmp_path, through=[sys.executable, "-c", NO_THREADS]) as host:
        assert ["a_die", "a_say"] == await host.tools()
        assert "exit code 3" in await host.text("a_die")
        assert "x" * 1_000_000 == await host.text("a_say", text="x" * 1_000_000)
        await host.heard("saves are not noticed: the system lets this process start no more threads")
        assert 0 == await host.leave()
        assert "calls cannot be recorded at the moment" in host.stderr
        assert "Traceback" not in host.stderr


async def test_a_worker_that_may_start_no_threads_says_so(tmp_path: Path):
    """To those who need one."""
    body = (
        f"threading.stack_size({TOO_LARGE})\n{SAY}\n@skill_command\nasync def think() -> str:\n    return 'thought'\n"
    )
    async with inside(make_project(tmp_path, a=body)) as host:
        assert "no thread can be started for it" in await host.text("a_say")
        assert "thought" == await host.text("a_think")


async def test_a_million_reports_of_progress_stop_nobody(tmp_path: Path):
    """What comes too fast is left out. What is told goes forward, and the answer is there."""
    body = f"{SAY}\n@skill_command\ndef report(n: int, ctx: Context) -> int:\n"
    body += "    for number in range(1, n + 1):\n        ctx.progress(number, n)\n    return n\n"
    async with hosted(make_project(tmp_path, a=body), forked=True) as host:
        answer = host.start_call("a_report", progress="p", n=1_000_000)
        await host.noted("notifications/progress")
        assert "hello" == await host.text("a_say")
        assert "1000000" == (await result(answer))["content"][0]["text"]
        told = [note["params"]["progress"] for note in host.notes if note["method"] == "notifications/progress"]
        assert all(earlier < later for earlier, later in itertools.pairwise(told))
        assert most_memory(host.pid) < 128 * 1024


async def test_two_thousand_skill_files(tmp_path: Path):
    """The first start describes them all, on several pages; the second one imports what is called."""
    project = make_project(tmp_path)
    for number in range(2000):
        line = f"Path({str(tmp_path / 'imported')!r}).open('a').write('{number} ')"
        write_skill(project, f"s{number:04}.py", f"from pathlib import Path\n{line}{SAY}")
    for imported in (range(2000), [1234]):
        (tmp_path / "imported").write_text("")
        async with hosted(project, forked=True) as host:
            names: list[str] = []
            page: Message = {}
            while not names or "nextCursor" in page:
                page = await host.ask("tools/list", **({"cursor": page["nextCursor"]} if names else {}))
                names += [tool["name"] for tool in page["tools"]]
            assert [f"s{number:04}_say" for number in range(2000)] == names
            assert "hello" == await host.text("s1234_say")
        found = [int(number) for number in (tmp_path / "imported").read_text().split()]
        assert [*imported] == sorted(set(found))
        assert len(found) <= len(imported) + 1  # the worker that is called may not be the one that described the skill
