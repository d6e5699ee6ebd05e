"""The second start of a host: at once, from what the first one has kept, and never with a wrong contract."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from inside import inside
from patience import PATIENCE
from piped import HANDSHAKE, STATELESS, Client, hosted, make_project, processes, until, write_skill

from prowess_host.catalog.manifest import read_manifest
from prowess_host.cli.main import PlainOptions, _worker_of_new_project

CHANGED = "notifications/tools/list_changed"
HEAVY = {
    *("nats", "prowess_host.cluster"),
    *("pydantic", "pydantic_core", "pluggy", "dependency_injector", "tenacity", "cachetools", "jsonschema"),
    *(
        "prowess.worker.serving",
        "prowess.runtime",
        "prowess.skills.library",
        "prowess.command",
        "prowess.skills.compile",
    ),
}


def noting(project: Path, name: str) -> str:
    """A skill that notes each time that it is imported."""
    return f"""
with open({str(project / "imports")!r}, "a") as file:
    file.write("{name} ")

@skill_command
def say(text: str = "{name}") -> str:
    return text
"""


def imports(project: Path) -> list[str]:
    """The skills that were imported since the last look."""
    file = project / "imports"
    names = file.read_text().split() if file.exists() else []
    file.unlink(missing_ok=True)
    return names


def manifests(project: Path) -> list[Path]:
    return sorted((project / "cache").glob("manifests/*.json"))


async def listed(project: Path, *options: str, apart: bool = False, **more: str) -> list[str]:
    """What a host lists that is started for this alone, `apart` in a process of its own."""
    starting = hosted(project, *options, env=more) if options or apart else inside(project, env=more)
    async with starting as host:
        return await host.tools()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_project(tmp_path)
    for name in ("a", "b", "c"):
        write_skill(tmp_path, f"{name}.py", noting(tmp_path, name))
    return tmp_path


ALL = ["a_say", "b_say", "c_say"]


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_second_start_imports_no_skill_before_it_is_called(project: Path, version: str):
    """And then that one alone."""
    assert ALL == await listed(project)
    assert ["a", "b", "c"] == imports(project)
    async with hosted(project, version=version) as host:
        assert ALL == await host.tools()
        await host.worker()
        assert "hello" == await host.text("b_say", text="hello")
        assert ["b"] == imports(project)


async def test_host_holds_no_skill_and_nothing_heavy(project: Path):
    """By the imports that the interpreter itself reports of the process, through a whole session."""
    python = project / "python"
    python.write_text(f'#!/bin/sh\nunset PYTHONPROFILEIMPORTTIME\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (project / "prowess.toml").write_text(f'cache_dir = "cache"\npython = "{python}"\n')
    for _ in range(2):
        async with hosted(project, env={"PYTHONPROFILEIMPORTTIME": "1"}) as host:
            assert ALL == await host.tools()
            assert "a" == await host.text("a_say")
            write_skill(project, "b.py", noting(project, "b") + "#")
            await host.text("b_say")
        modules = {
            line.rpartition("|")[2].strip() for line in host.stderr.splitlines() if line.startswith("import time:")
        }
        assert {"prowess_host.stdio", "prowess_host.catalog.manifest", "asyncio"} <= modules
        assert set() == modules & HEAVY
        assert not [name for name in modules if name.startswith(("prowess_skills", "skills"))]


async def test_requests_that_are_piped_in_leave_a_manifest(project: Path):
    """A session that is over at once has learned something all the same."""
    requests: list[dict[str, object]] = [
        {
            "id": 0,
            "method": "initialize",
            "params": {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {}},
        },
        {"id": 1, "method": "tools/list"},
    ]
    text = "".join(json.dumps({"jsonrpc": "2.0", **request}) + "\n" for request in requests)
    command = [sys.executable, "-m", "prowess_host", "--project", str(project)]
    await asyncio.to_thread(
        subprocess.run, command, input=text.encode(), capture_output=True, check=True, timeout=PATIENCE
    )
    (path,) = manifests(project)
    manifest = read_manifest(path)
    assert manifest is not None
    assert ("a", "b", "c") == manifest.description.names


async def test_only_what_changed_is_described_again(project: Path):
    """An edit, an added file, one that was deleted."""
    await listed(project)
    imports(project)
    write_skill(project, "a.py", noting(project, "a").replace("text:", "more: int = 0, text:"))
    write_skill(project, "d.py", noting(project, "d"))
    (project / "skills/c.py").unlink()
    async with inside(project) as host:
        tools = (await host.ask("tools/list"))["tools"]
        assert ["a_say", "b_say", "d_say"] == [tool["name"] for tool in tools]
        assert {"more", "text"} == set(tools[0]["inputSchema"]["properties"])
    assert ["a", "d"] == imports(project)
    assert ["a_say", "b_say", "d_say"] == await listed(project)
    assert [] == imports(project)


async def test_what_is_known_can_be_called_while_the_rest_is_described(project: Path):
    """The list waits, because it must."""
    await listed(project)
    gate = project / "gate"
    waiting = f"while not os.path.exists({str(gate)!r}):\n    time.sleep(0.01)\n"
    write_skill(project, "d.py", waiting + noting(project, "d"))
    write_skill(project, "e.py", noting(project, "e"))
    async with inside(project) as host:
        listing = host.request("tools/list")
        called = host.start_call("a_say")
        await host.worker()
        gate.touch()
        assert "a" == (await called)["result"]["content"][0]["text"]
        assert [*ALL, "d_say", "e_say"] == [tool["name"] for tool in (await listing)["result"]["tools"]]


async def test_start_with_a_broken_skill_imports_nothing_for_the_list(project: Path):
    """The reason is known, too; whether it still holds is looked into once nobody waits for it."""
    broken = noting(project, "bad") + "\nif 'MENDED' not in os.environ:\n    raise RuntimeError('broken')\n"
    write_skill(project, "bad.py", broken)
    assert ["a_say", "b_say", "c_say", "prowess_diagnostics"] == sorted(await listed(project))
    imports(project)
    async with inside(project) as host:
        assert "prowess_diagnostics" in await host.tools()
        assert "RuntimeError: broken" in await host.text("prowess_diagnostics")
        await until(lambda: (project / "imports").exists() and (project / "imports").read_text())
        assert ["bad"] == imports(project)
        assert [] == host.notes
    async with inside(project, env={"MENDED": "1"}) as host:
        await host.tools()
        await host.noted(CHANGED)
        assert ["a_say", "b_say", "bad_say", "c_say"] == await host.tools()
    assert ["a_say", "b_say", "bad_say", "c_say"] == await listed(project, MENDED="1")


async def test_contract_that_no_key_can_see_is_put_right_by_the_first_call(project: Path):
    """The live contract decides the call, clients are told, and the next start knows."""
    shaped = "KINDS = __import__('typing').Literal[tuple(os.environ['KINDS'].split())]\n"
    write_skill(project, "d.py", f"{shaped}@skill_command\ndef pick(kind: KINDS) -> str:\n    return kind\n")
    (project / "skills/d.py").write_text(
        (project / "skills/d.py").read_text().replace("from __future__ import annotations\n", "")
    )

    async def kinds(host: Client) -> list[str]:
        tools = {tool["name"]: tool for tool in (await host.ask("tools/list"))["tools"]}
        return tools["d_pick"]["inputSchema"]["properties"]["kind"]["enum"]

    async with inside(project, env={"KINDS": "x y"}) as host:
        assert ["x", "y"] == await kinds(host)
    async with inside(project, env={"KINDS": "y z"}) as host:
        assert ["x", "y"] == await kinds(host)
        assert "z" == await host.text("d_pick", kind="z")
        await host.noted(CHANGED)
        assert ["y", "z"] == await kinds(host)
        assert (await host.call("d_pick", kind="x"))["isError"]
    async with inside(project, env={"KINDS": "y z"}) as host:
        assert ["y", "z"] == await kinds(host)
        assert "z" == await host.text("d_pick", kind="z")
        await host.barrier()
        assert [] == host.notes


async def test_contract_that_is_another_one_each_time_is_looked_at_once(project: Path):
    """No loop of looking, finding it different, and looking again."""
    odd = "@skill_command(description=str(time.time_ns()))\ndef now() -> str:\n    return 'x'\n"
    write_skill(project, "d.py", odd + noting(project, "d"))
    await listed(project)
    async with inside(project) as host:
        await host.tools()
        imports(project)
        assert "x" == await host.text("d_now")
        await host.noted(CHANGED)
        assert "x" == await host.text("d_now")
        await host.barrier()
        assert ["d"] == imports(project)
        assert 1 == len(host.notes)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "foreign": lambda path: path.write_bytes(b'{"some": "thing"}'),
    "altered": lambda path: path.write_bytes(path.read_bytes().replace(b"b_say", b"z_say")),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "unreadable link": lambda path: (path.unlink(), path.symlink_to(path)),
}


async def test_damaged_manifest_costs_time_and_nothing_else(project: Path, tmp_path_factory: pytest.TempPathFactory):
    """Everything is described again. One that is put back as it was is believed."""
    await listed(project)
    (path,) = manifests(project)
    good = shutil.copy2(path, tmp_path_factory.mktemp("good"))
    imports(project)
    for damage in DAMAGE.values():
        damage(path)
        assert ALL == await listed(project)
        assert ["a", "b", "c"] == imports(project)
        path.rmdir() if path.is_dir() else path.unlink()
        shutil.copy2(good, path)
    assert ALL == await listed(project)
    assert [] == imports(project)


async def test_cache_that_takes_nothing_costs_time_and_nothing_else(project: Path):
    """A file in the place of the folder stands for every folder that cannot be written to."""
    (project / "cache").touch()
    for _ in range(2):
        assert ALL == await listed(project)
        assert ["a", "b", "c"] == imports(project)


async def test_full_disk_costs_time_and_nothing_else(project: Path):
    """Nothing can be written at all, not one byte; and no half of a manifest is left behind."""
    script = f'ulimit -f 0; exec "{sys.executable}" -m prowess_host --project "{project}"'
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    host = Client(process, HANDSHAKE)
    host.mark = "none"
    await host.open()
    assert "a_say" in await host.tools() or "prowess_diagnostics" in await host.tools()
    assert 0 == await host.leave()
    assert [] == [path for path in (project / "cache").glob("manifests/*") if path.stat().st_size]


@pytest.mark.parametrize("limit", ["-f 0", "-n 24"], ids=["no bytes", "few files"])
async def test_small_limits_of_the_system_do_not_stop_calls(limit: str, tmp_path: Path):
    """Where not even memory can be shared as a file, frames do the same."""
    project = make_project(tmp_path, t="@skill_command\nasync def say() -> str:\n    return 'served'\n")
    async with hosted(project, through=("/bin/sh", "-c", f'ulimit {limit}; exec "$@"', "sh")) as host:
        assert "served" == await host.text("t_say")


async def test_too_few_files_are_named(tmp_path: Path):
    project = make_project(tmp_path, t="@skill_command\nasync def say() -> str:\n    return 'served'\n")
    async with hosted(project, through=("/bin/sh", "-c", 'ulimit -n 12; exec "$@"', "sh")) as host:
        assert "allow the host more open files (`ulimit -n`)" in await host.text("t_say")


async def test_hosts_that_start_at_once_all_know_the_same(project: Path):
    """Whoever writes last wins, and what is there is whole."""
    assert [ALL] * 4 == await asyncio.gather(*(listed(project, apart=True) for _ in range(4)))
    imports(project)
    assert [ALL] * 4 == await asyncio.gather(*(listed(project, apart=True) for _ in range(4)))
    assert [] == imports(project)
    assert 1 == len(manifests(project))


def contents(project: Path) -> dict[Path, bytes]:
    """Every file of a project but those that the skills of these tests write."""
    return {path: path.read_bytes() for path in project.rglob("*.*") if path.is_file()}


async def test_cache_in_the_project_itself_costs_nobody_a_file(project: Path):
    """Also where a folder of the project has the name that the cache would use, and its files are old."""
    (project / "prowess.toml").write_text('cache_dir = "."\n')
    for name in ("manifests/web.yaml", "manifests/old.json", "prowess-manifests.yaml"):
        file = project / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("kind: Deployment\n")
        os.utime(file, (1, 1))
    before = contents(project)
    assert ALL == await listed(project)
    imports(project)
    assert ALL == await listed(project)
    assert [] == imports(project), "the second start did not find what the first one had learned"
    assert before.items() <= contents(project).items()
    assert ["old.json", "web.yaml"] == sorted(path.name for path in (project / "manifests").iterdir())


async def test_hosts_with_other_settings_do_not_take_each_others_place(project: Path):
    """Each finds its own manifest."""
    dotted = ["a.say", "b.say", "c.say"]
    assert ALL == await listed(project)
    assert dotted == await listed(project, "--set", "names=dotted")
    imports(project)
    assert (ALL, dotted) == (await listed(project), await listed(project, "--set", "names=dotted"))
    assert [] == imports(project)


@pytest.mark.parametrize("years", [-20, 20])
async def test_clock_that_was_set_proves_nothing(project: Path, years: int):
    """Where times can have repeated themselves, or were set by hand, the content decides."""
    file = project / "skills/a.py"
    when = file.stat().st_mtime_ns + years * 31_536_000_000_000_000
    os.utime(file, ns=(when, when))
    await listed(project)
    file.write_text(file.read_text().replace("text:", "tent:"))
    os.utime(file, ns=(when, when))
    os.utime(project / "skills", ns=(when, when))
    async with inside(project) as host:
        tools = (await host.ask("tools/list"))["tools"]
    assert {"tent"} == set(tools[0]["inputSchema"]["properties"])


async def test_file_that_changes_while_it_is_imported_is_known_as_it_is(project: Path):
    """What was read is not what is there: the next start sees the difference."""
    new = noting(project, "d").replace("text:", "tent:")
    write_skill(project, "d.py", new)
    final = (project / "skills/d.py").read_text()
    (project / "final").write_text(final)
    swap = f"import shutil\nshutil.copy({str(project / 'final')!r}, __file__)\n"
    write_skill(project, "d.py", swap + noting(project, "d"))
    async with hosted(project) as host:
        await host.tools()
        os.kill(host.pid, signal.SIGKILL)  # it must not see the change itself
        await host.ended()
    await until(lambda: not processes(host.mark))
    async with hosted(project) as host:
        tools = {tool["name"]: tool for tool in (await host.ask("tools/list"))["tools"]}
        assert {"tent"} == set(tools["d_say"]["inputSchema"]["properties"])


async def test_save_between_the_manifest_and_the_watcher_is_seen(project: Path):
    """What is saved just after the start counts like any other save."""
    await listed(project)
    async with hosted(project) as host:
        await host.tools()
        write_skill(project, "d.py", noting(project, "d"))
        await host.noted(CHANGED)
        assert [*ALL, "d_say"] == await host.tools()
    assert [*ALL, "d_say"] == await listed(project)


async def test_new_hook_has_everything_described(project: Path):
    """It may shape the contracts of skills that did not change."""
    body = "class Clock: ...\n\n@skill_command\ndef now(clock: 'Clock', n: int = 0) -> int:\n    return n\n"
    write_skill(project, "d.py", f"from lib import Clock\n{body.partition(chr(10))[2]}")
    (project / "lib.py").write_text("class Clock: ...\n")
    assert "d_now" not in await listed(project)
    plug = "from lib import Clock\nfrom prowess import hookimpl\n@hookimpl\n"
    write_skill(project, "plug.py", f"{plug}def prowess_injectables(provide):\n    provide(Clock, Clock)\n")
    imports(project)
    async with inside(project) as host:
        tools = {tool["name"]: tool for tool in (await host.ask("tools/list"))["tools"]}
        assert {"n"} == set(tools["d_now"]["inputSchema"]["properties"])
        assert "0" == await host.text("d_now")
    assert ["a", "b", "c"] == imports(project)
    assert "d_now" in await listed(project)
    assert [] == imports(project)


async def test_skill_that_ends_its_process_hides_no_other(project: Path):
    """It is a failure like any other, known at the next start, and tried again when it was edited."""
    write_skill(project, "bad.py", noting(project, "bad") + "os._exit(3)\n")
    for expected in (["a", "bad", "b", "c"], []):
        async with inside(project) as host:
            assert [*ALL, "prowess_diagnostics"] == sorted(await host.tools())
            told = await host.text("prowess_diagnostics")
            assert "bad.py" in told
            assert "its import ended the process (exit code 3)" in told
            assert "a" == await host.text("a_say")
        assert set(expected) <= {"a", *imports(project)}
    write_skill(project, "bad.py", noting(project, "bad"))
    assert ["a_say", "b_say", "bad_say", "c_say"] == await listed(project)


async def test_skill_that_ends_its_process_is_tried_again_when_what_it_imports_is_mended(project: Path):
    """Its files are known, although nobody could ask the skill."""
    (project / "lib.py").write_text("import os\nos._exit(3)\n")
    write_skill(project, "bad.py", "import lib\n" + noting(project, "bad"))
    assert "prowess_diagnostics" in await listed(project)
    (project / "lib.py").write_text("")
    assert ["a_say", "b_say", "bad_say", "c_say"] == await listed(project)


async def test_skill_that_is_mended_while_it_ends_its_process_is_tried_again(project: Path):
    """What ended the process is not what is there by then."""
    mended = noting(project, "bad")
    write_skill(project, "bad.py", mended)
    (project / "mended").write_text((project / "skills/bad.py").read_text())
    write_skill(project, "bad.py", f"import shutil\nshutil.copy({str(project / 'mended')!r}, __file__)\nos._exit(3)\n")
    async with inside(project) as host:
        await host.tools()
        while "bad_say" not in await host.tools():  # noqa: ASYNC110 - the client may have asked before or after
            await asyncio.sleep(0.01)
    assert ["a_say", "b_say", "bad_say", "c_say"] == await listed(project)


async def test_reload_keeps_warm_what_was_used(project: Path):
    """The new generation has imported it before it is called; the others it imports when they are."""
    await listed(project)
    async with inside(project) as host:
        await host.text("a_say")
        imports(project)
        write_skill(project, "c.py", noting(project, "c").replace("text:", "tent:"))
        await host.noted(CHANGED)
        assert ["a", "c"] == imports(project)
        assert "a" == await host.text("a_say")
        assert [] == imports(project)


async def test_broken_edit_of_a_skill_that_was_never_imported_costs_nothing(project: Path):
    """The host knows its last good source from the files as they were at the start."""
    await listed(project)
    async with inside(project) as host:
        assert "a" == await host.text("a_say")
        write_skill(project, "b.py", "import nothing_of_this_name\n")
        write_skill(project, "a.py", "import nothing_of_this_name\n")
        await host.noted(CHANGED)
        assert [*ALL, "prowess_diagnostics"] == sorted(await host.tools())
        assert "a" == await host.text("a_say")
        assert "b" == await host.text("b_say")
        for name in ("a", "b"):
            write_skill(project, f"{name}.py", noting(project, name))
        await until(lambda: len([note for note in host.notes if note["method"] == CHANGED]) > 1)
        assert "b" == await host.text("b_say")


SITE = """
import os, sys
if "prowess.worker" in sys.orig_argv:
    with open(os.environ["STARTS"], "a") as file:
        file.write(f"{os.getpid()} ")
"""


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """A project without settings, in a folder with a module that notes which workers start."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    write_skill(tmp_path / "project", "a.py", "@skill_command\ndef pid() -> int:\n    return os.getpid()\n")
    return tmp_path / "project"


def session(project: Path) -> tuple[int, list[int], list[int]]:
    """The exit code of a host in which one call is made, the workers that it started, and the worker that answered."""
    starts = project.parent / "starts"
    starts.write_text("")
    home = {"XDG_CACHE_HOME": str(project.parent / "cache"), "PYTHONPATH": str(project.parent / "site")}
    told = [
        {
            "id": 0,
            "method": "initialize",
            "params": {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {}},
        },
        {"id": 1, "method": "tools/call", "params": {"name": "a_pid"}},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "prowess_host", "--project", str(project)],
        input="".join(json.dumps({"jsonrpc": "2.0", **request}) + "\n" for request in told).encode(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, **home, "STARTS": str(starts)},
    )
    answers = [json.loads(line).get("result", {}).get("structuredContent") for line in done.stdout.splitlines()]
    return (
        done.returncode,
        [int(pid) for pid in starts.read_text().split()],
        [each["result"] for each in answers if each],
    )


def test_worker_of_a_new_project_starts_before_its_settings_are_read(new: Path, monkeypatch: pytest.MonkeyPatch):
    """Even if they cannot be read. Without a named project, the settings have to be found first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(new.parent / "cache"))
    (new / "prowess.toml").write_text("[host\n")
    ahead = _worker_of_new_project(PlainOptions(str(new), []))
    assert ahead is not None
    ahead.discard()
    for named in (None, str(new / "missing")):
        assert _worker_of_new_project(PlainOptions(named, [])) is None


def test_first_and_second_session_of_a_project_start_one_worker_each(new: Path):
    """In the first one it starts before the settings are read, in the second one later."""
    for _ in range(2):
        code, started, answered = session(new)
        assert (0, started) == (code, answered)
        assert 1 == len(started)


def test_worker_that_started_before_the_settings_were_read_is_replaced_if_they_ask_for_another_one(new: Path):
    """And it has gone."""
    (new / "prowess.toml").write_text("[host]\nshared_memory = false\n")
    code, started, answered = session(new)
    assert (0, answered) == (code, started[-1:])
    assert len(started) <= 2  # the first one may be ended before it runs
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]


def test_settings_that_cannot_be_read_leave_no_worker(new: Path):
    (new / "prowess.toml").write_text("[host\n")
    code, started, answered = session(new)
    assert (2, []) == (code, answered)
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
