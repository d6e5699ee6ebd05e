"""Saving a file shows at once, whatever an editor or git does; and what breaks costs nothing that worked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path

import pytest
from anyio import fail_after
from inside import inside
from patience import PATIENCE
from piped import HANDSHAKE, STATELESS, Client, hosted, make_project, result, until, write_skill

from prowess_host.catalog.watcher import Watcher

CHANGED = "notifications/tools/list_changed"
ONE = """
    @skill_command
    def version() -> str:
        return "one"

    @skill_command
    async def wait(gate: str) -> str:
        while not os.path.exists(gate):
            await asyncio.sleep(0.01)
        return "one"
"""
TWO = """
    @skill_command
    def version(more: int = 0) -> str:
        return "two"
"""
BROKEN = "import nothing_of_this_name\n@skill_command\ndef version() -> str: ...\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path, t=ONE)


def changes(host: Client) -> int:
    return len([note for note in host.notes if note["method"] == CHANGED])


async def serving(host: Client, name: str, text: str) -> None:
    """Until a command answers like this. Each call is answered one way or the other."""
    with fail_after(PATIENCE):
        while text != (await host.start_call(name)).get("result", {"content": [{"text": ""}]})["content"][0]["text"]:  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_a_save_shows_in_the_list_and_in_calls(project: Path, version: str):
    """Clients of both eras are told, once."""
    async with hosted(project, version=version, forked=True) as host:
        if version == STATELESS:
            host.request("subscriptions/listen", notifications={"toolsListChanged": True})
        assert "one" == await host.text("t_version")
        write_skill(project, "t.py", TWO)
        await host.noted(CHANGED)
        assert ["t_version"] == await host.tools()
        assert "two" == await host.text("t_version")
        assert 1 == changes(host)


async def test_dotenv_reaches_the_workers_and_nothing_else(project: Path):
    """As settings, by injection and as environment variables; a save counts. A stray name only causes a warning."""
    write_skill(project, "t.py", """
        @skill_command(inject_settings=["env:API_KEY:key", "api.url"])
        def version(key: str, api_url: str) -> str:
            if api_url == "fail":
                raise ValueError(f"not {key}")
            return f"{key} {api_url} {os.environ['API_KEY']} {'PROWESS_API__URL' in os.environ}"
    """)  # fmt: skip
    file = project / ".env"
    file.write_text("API_KEY=hush-one\nPROWESS_API__URL=u\nPROWESS_HOME=hush-home\n")
    async with hosted(project, forked=True) as host:
        assert "hush-one u hush-one False" == await host.text("t_version")
        file.write_text("API_KEY=hush-two\nPROWESS_API__URL=v\n")
        await serving(host, "t_version", "hush-two v hush-two False")
        file.write_text("API_KEY=hush-two\nPROWESS_API__URL=fail\n")
        while "not ***" not in (found := (await host.start_call("t_version"))["result"]["content"][0]["text"]):
            assert "hush-two v" in found
        assert "PROWESS_HOME is ignored: unknown setting 'home'" in host.stderr
        assert "hush" not in host.stderr
    assert not [each for each in (project / "cache").rglob("*") if each.is_file() and b"hush" in each.read_bytes()]


async def test_add_rename_delete(project: Path):
    async with inside(project) as host:
        await host.tools()
        added = write_skill(project, "u.py", TWO)
        await host.noted(CHANGED, 1)
        assert ["t_version", "t_wait", "u_version"] == await host.tools()
        added.rename(project / "skills/v.py")
        await host.noted(CHANGED, 2)
        assert ["t_version", "t_wait", "v_version"] == await host.tools()
        (project / "skills/v.py").unlink()
        await host.noted(CHANGED, 3)
        assert ["t_version", "t_wait"] == await host.tools()


async def test_a_save_of_the_init_file_of_a_folder_skill_shows(project: Path):
    """It may have commands. In another encoding it breaks, and its last good version stays."""
    (project / "skills/notes").mkdir()
    async with inside(project) as host:
        assert "one" == await host.text("t_version")
        write_skill(project, "notes/__init__.py", ONE)
        await host.noted(CHANGED)
        await serving(host, "notes_version", "one")
        write_skill(project, "notes/__init__.py", ONE.replace("one", "two"))
        await serving(host, "notes_version", "two")
        file = project / "skills/notes/__init__.py"
        file.write_bytes(file.read_text().replace("two", "three").encode("utf-16"))
        await until(lambda: "save it in that encoding" in host.stderr)
        assert "prowess_diagnostics" in await host.tools()
        assert "two" == await host.text("notes_version")
        file.write_text(file.read_bytes().decode("utf-16"))
        await serving(host, "notes_version", "three")


async def test_an_edit_that_no_client_can_see_is_not_told(project: Path):
    """The new code runs all the same."""
    async with inside(project) as host:
        assert "one" == await host.text("t_version")
        file = project / "skills/t.py"
        file.write_text(file.read_text().replace('"one"', '"uno"') + "# a comment\n")
        await serving(host, "t_version", "uno")
        assert 0 == changes(host)


async def test_a_write_that_keeps_time_and_size_is_seen(project: Path):
    """As `cp -p` does it: onto the same file, or by renaming another one into its place."""
    file = project / "skills/t.py"
    async with inside(project) as host:
        assert "one" == await host.text("t_version")
        then = file.stat()
        for text in ("two", "six"):
            body = file.read_bytes().replace(b'"one"', f'"{text}"'.encode()).replace(b'"two"', f'"{text}"'.encode())
            target = file if text == "two" else project / "skills/.draft"
            target.write_bytes(body)
            os.utime(target, ns=(then.st_atime_ns, then.st_mtime_ns))
            target.rename(file)
            assert (then.st_size, then.st_mtime_ns) == (file.stat().st_size, file.stat().st_mtime_ns)
            await serving(host, "t_version", text)
    async with inside(project) as host:
        assert "six" == await host.text("t_version")


async def test_a_project_module_that_keeps_time_and_size_is_seen(tmp_path: Path):
    """Whatever bytecode there is of it."""
    module = tmp_path / "prices.py"
    module.write_text("NAME = 'one'\n")
    body = "from prices import NAME\n@skill_command\ndef f() -> str:\n    return NAME\n"
    env = {"PYTHONDONTWRITEBYTECODE": ""}
    async with inside(make_project(tmp_path, t=body), env=env) as host:
        assert "one" == await host.text("t_f")
        then = module.stat()
        module.write_text("NAME = 'two'\n")
        os.utime(module, ns=(then.st_atime_ns, then.st_mtime_ns))
        await serving(host, "t_f", "two")
    async with inside(tmp_path, env=env) as host:
        assert "two" == await host.text("t_f")


async def test_an_editor_writes_beside_and_renames(project: Path):
    async with hosted(project, forked=True) as host:
        await host.tools()
        draft = write_skill(project, ".t.py.swp", TWO)
        draft.rename(project / "skills/t.py")
        await host.noted(CHANGED)
        assert "two" == await host.text("t_version")


async def test_forty_files_at_once_settle_once(project: Path):
    """Like a checkout of another branch."""
    async with inside(project) as host:
        await host.tools()
        for number in range(40):
            write_skill(project, f"s{number}.py", TWO)
        (project / "skills/t.py").unlink()
        await until(lambda: changes(host))
        await until_stable(host, 40)
        assert changes(host) <= 2


async def until_stable(host: Client, count: int) -> None:
    while len(await host.tools()) != count:  # noqa: ASYNC110 - it is the host's answer that counts
        await asyncio.sleep(0.01)


async def test_a_storm_of_saves_loses_no_request(project: Path):
    """Every call is answered while the file is saved over and over, and the last version counts."""
    async with inside(project) as host:
        await host.tools()
        for number in range(30):
            text = ONE if number % 3 else BROKEN
            write_skill(project, "t.py", text.replace("one", f"v{number}"))
            assert (await host.call("t_version"))["isError"] is False
            await asyncio.sleep(0.01)
        write_skill(project, "t.py", TWO)
        await serving(host, "t_version", "two")
        assert ["t_version"] == await host.tools()
        await host.worker()


async def test_calls_in_flight_finish_on_the_old_generation(project: Path, tmp_path: Path):
    async with inside(project) as host:
        gate = tmp_path / "gate"
        answer = host.start_call("t_wait", gate=str(gate))
        await host.barrier()
        write_skill(project, "t.py", TWO)
        await host.noted(CHANGED)
        assert "two" == await host.text("t_version")
        gate.touch()
        assert "one" == (await result(answer))["content"][0]["text"]
        await host.worker()


async def test_a_broken_edit_keeps_the_last_good_version(project: Path):
    """It is told on stderr once, and shown by a tool that is there only meanwhile."""
    write_skill(project, "u.py", TWO)
    async with inside(project) as host:
        await host.tools()
        write_skill(project, "t.py", BROKEN)
        await host.noted(CHANGED, 1)
        assert ["prowess_diagnostics", "t_version", "t_wait", "u_version"] == await host.tools()
        assert "nothing_of_this_name" in await host.text("prowess_diagnostics")
        assert "one" == await host.text("t_version")
        write_skill(project, "u.py", ONE)
        await host.noted(CHANGED, 2)
        assert ("one", "one") == (await host.text("t_version"), await host.text("u_version"))
        assert 1 == host.stderr.count("No module named 'nothing_of_this_name'")
        write_skill(project, "t.py", TWO)
        await host.noted(CHANGED, 3)
        assert ["t_version", "u_version", "u_wait"] == await host.tools()
        assert "two" == await host.text("t_version")
        await host.worker()


async def test_an_edit_that_ends_every_worker_at_import_keeps_everything(project: Path):
    async with inside(project) as host:
        assert "one" == await host.text("t_version")
        write_skill(project, "t.py", "os._exit(4)\n@skill_command\ndef version() -> str: ...\n")
        await host.noted(CHANGED)
        assert "exit code 4" in await host.text("prowess_diagnostics")
        assert "one" == await host.text("t_version")
        write_skill(project, "t.py", TWO)
        await host.noted(CHANGED, 2)
        assert ["t_version"] == await host.tools()


async def test_a_skills_folder_may_come_later_go_and_come_back(tmp_path: Path):
    (tmp_path / "prowess.toml").write_text('cache_dir = "cache"\n')
    async with inside(tmp_path) as host:
        assert ["prowess_diagnostics"] == await host.tools()
        write_skill(tmp_path, "t.py", ONE)
        await host.noted(CHANGED, 1)
        assert "one" == await host.text("t_version")
        shutil.rmtree(tmp_path / "skills")
        await host.noted(CHANGED, 2)
        assert ["prowess_diagnostics"] == await host.tools()
        write_skill(tmp_path, "t.py", TWO)
        await host.noted(CHANGED, 3)
        assert "two" == await host.text("t_version")
        write_skill(tmp_path, "t.py", ONE)
        await host.noted(CHANGED, 4)


async def test_a_folder_without_commands_is_told_on_stderr(tmp_path: Path):
    """Once, until the last skill is gone: a client in the wrong folder would only miss its tools."""
    told = f"There are no commands in the project {tmp_path}. Folders that were searched: {tmp_path / 'skills'}"
    async with inside(tmp_path) as host:
        await until(lambda: f"{told} (there is no such folder)" in host.stderr)
        assert ["prowess_diagnostics"] == await host.tools()
        (tmp_path / "skills").mkdir()
        write_skill(tmp_path, "t.py", ONE)
        await serving(host, "t_version", "one")
        assert 1 == host.stderr.count(told)
        (tmp_path / "skills/t.py").unlink()
        await until(lambda: 2 == host.stderr.count(told))


async def test_folders_that_the_settings_or_a_plugin_name_later_are_watched(project: Path):
    """As those that were there from the start."""
    async with inside(project) as host:
        assert "one" == await host.text("t_version")
        write_skill(project, "../more/u.py", ONE)
        (project / "prowess.toml").write_text('cache_dir = "cache"\nskills = ["skills", "more"]\n')
        await serving(host, "u_version", "one")
        write_skill(project, "../more/u.py", TWO)
        await serving(host, "u_version", "two")
        write_skill(project, "../plugged/v.py", ONE)
        hook = "from prowess import hookimpl\n@hookimpl\ndef prowess_skill_folders(): return 'plugged'\n"
        write_skill(project, "w.py", hook)
        await serving(host, "v_version", "one")
        write_skill(project, "../plugged/x.py", TWO)
        await serving(host, "x_version", "two")


async def test_project_modules_that_skills_import_are_watched(tmp_path: Path):
    """By absolute import, from the project root."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/prices.py").write_text("NAME = 'one'\n")
    body = "from shop.prices import NAME\n@skill_command(name=NAME)\ndef f() -> str:\n    return NAME\n"
    async with inside(make_project(tmp_path, t=body)) as host:
        assert ["t_one"] == await host.tools()
        (tmp_path / "shop/prices.py").write_text("NAME = 'other'\n")
        await host.noted(CHANGED)
        assert ["t_other"] == await host.tools()
        assert "other" == await host.text("t_other")


async def test_settings_are_read_again(project: Path):
    async with inside(project) as host:
        assert ["t_version", "t_wait"] == await host.tools()
        (project / "prowess.toml").write_text(
            'cache_dir = "cache"\nhide = ["t.wait"]\n[wire_names]\n"t.version" = "v"\n'
        )
        await host.noted(CHANGED)
        assert ["v"] == await host.tools()


async def test_folders_that_are_links_are_watched(project: Path, tmp_path_factory: pytest.TempPathFactory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write_skill(elsewhere, "a.py", ONE)
    (project / "skills/linked").symlink_to(elsewhere / "skills")
    async with inside(project) as host:
        assert "linked_version" in await host.tools()
        write_skill(elsewhere, "a.py", TWO)
        await host.noted(CHANGED)
        assert "linked_wait" not in await host.tools()


async def test_links_in_circles_and_odd_files_do_not_stop_reloading(project: Path):
    """Links that lead up, folders that lead to each other, a link to the whole disk, pipes, and a very deep tree."""
    folders = [project / "skills/s/scripts", *(project / f"skills/s/scripts/n{number}" for number in range(8))]
    write_skill(project, "s/scripts/main.py", ONE)
    for folder in folders:
        folder.mkdir(exist_ok=True)
        for number in range(3):
            (folder / f"up{number}").symlink_to("..")
            (project / f"skills/up{number}").unlink(missing_ok=True)
            (project / f"skills/up{number}").symlink_to("..")
        for other in folders:
            (folder / f"to_{other.name}").symlink_to(other)
    (folders[1] / "disk").symlink_to("/")
    folders[2].joinpath(*["deep"] * 80).mkdir(parents=True)
    os.mkfifo(folders[3] / "pipe.py")
    os.mkfifo(project / "skills/pipe.py")
    (project / "skills/zero.py").symlink_to("/dev/zero")
    async with inside(project) as host:
        tools = await host.tools()
        assert {"s_version", "s_wait", "t_version", "t_wait"} <= set(tools)
        assert "too many folders, or too deep ones" in await host.text("prowess_diagnostics")
        write_skill(project, "s/scripts/main.py", TWO)
        await host.noted(CHANGED)
        assert "two" == await host.text("s_version")
        write_skill(project, "s/scripts/n5/more.py", TWO.replace("version", "other"))
        await host.noted(CHANGED, 2)
        assert "s_other" in await host.tools()


async def test_what_a_command_writes_beside_itself_is_no_change(project: Path):
    """A worker that wrote a file would else be replaced with every call, and its state with it."""
    body = "@skill_command\ndef count() -> int:\n    open(__file__ + '.json', 'a').write('x')\n    return os.getpid()\n"
    write_skill(project, "c.py", body)
    async with inside(project) as host:
        await host.tools()
        first = await host.text("c_count")
        write_skill(project, "d.py", TWO)
        await host.noted(CHANGED)
        second = await host.text("c_count")
        write_skill(project, "e.py", TWO)
        await host.noted(CHANGED, 2)
        assert first != second
        assert 2 == changes(host)


def test_the_watcher_is_importable_without_the_extension():
    """It is loaded after the first answer."""
    assert Watcher.__module__ == "prowess_host.catalog.watcher"


async def test_a_worker_that_is_killed_while_a_save_is_described_has_a_successor(project: Path):
    """No further save would come to tell of the first one."""
    async with inside(project) as host:
        assert "one" == await host.text("t_version")
        before = set(host.workers())
        write_skill(project, "t.py", TWO)
        (successor,) = await until(lambda: set(host.workers()) - before)
        with contextlib.suppress(ProcessLookupError):
            os.kill(successor, signal.SIGKILL)
        await serving(host, "t_version", "two")
