"""Environments where things go wrong, and at the other entrances. Each test costs a second or two of processor time."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from anyio import fail_after
from locked import is_waited_for
from patience import PATIENCE
from piped import error, hosted, make_project, until, write_skill
from shell import prowess
from web import served_over_http

from prowess.settings.keys import OwnSettings
from prowess_host.environments.builds import Builds, Needed
from prowess_host.environments.declared import Declared
from prowess_host.environments.store import EnvironmentStore, InUse

pytest.importorskip("uv")

TINY = "import tinypackage\n@skill_command\ndef version() -> str:\n    return tinypackage.version\n"


def block(*dependencies: str, more: str = "") -> str:
    lines = ["/// script", f"dependencies = {json.dumps(dependencies)}", *more.splitlines(), "///"]
    return "".join(f"# {line}\n" for line in lines)


def project(root: Path, wheels: Path, more: str = "", **skills: str) -> Path:
    settings = f'[environments]\nindex = ""\noffline = true\nfind_links = [{json.dumps(str(wheels))}]\n{more}'
    return make_project(root, settings, **skills)


async def test_a_lock_that_was_deleted_holds_nothing(tmp_path: Path) -> None:
    """Who waited for it takes the next one, as everybody who comes later does."""
    store, key, go_on = EnvironmentStore(tmp_path), "a" * 24, threading.Event()

    def build() -> None:
        with store.alone(key):
            go_on.wait(PATIENCE)

    lock = store.folder / f"{key}.lock"
    with store.alone(key):
        building = asyncio.create_task(asyncio.to_thread(build))
        await until(lambda: is_waited_for(lock))
        lock.unlink()  # as `remove` does
    await until(lambda: is_locked(lock))
    with pytest.raises(InUse), store.alone(key, wait=False):
        pass
    go_on.set()
    await building


def is_locked(path: Path) -> bool:
    """Whether somebody has a lock on this file, if it exists."""
    return path.exists() and f":{path.stat().st_ino} " in Path("/proc/locks").read_text()


async def test_uv_that_hangs_is_ended(tmp_path: Path, wheels: Path) -> None:
    """With all that it has started. The setting is named, and the others go on."""
    hanging = tmp_path / "hanging"
    hanging.write_text("#!/bin/sh\nsleep 600 &\nwait\n")
    hanging.chmod(0o755)
    plain = "@skill_command\ndef fine() -> str:\n    return 'fine'\n"
    made = project(tmp_path / "p", wheels, "build_timeout = 1\n", tiny=block("tinypackage") + TINY, plain=plain)
    async with hosted(made, env={"PROWESS_ENVIRONMENTS__UV": str(hanging)}, forked=True) as host:
        assert "fine" == await host.text("plain_fine")
        told = (await error(host.start_call("tiny_version")))["message"]
        assert "it took more than 1 s, the setting environments.build_timeout" in told
        assert "fine" == await host.text("plain_fine")
        await host.leave()
        await host.alone()


async def test_last_lines_of_a_build_that_was_ended_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread reads what is left in the pipe. Nobody waits for it any more."""
    talking = tmp_path / "talking"
    talking.write_text('#!/bin/sh\nyes \'{"told": "at work"}\' | head -n 2000\n')
    talking.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(talking))
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    builds = Builds(tmp_path)
    needed = Needed("key", Declared("tiny.py"), ("tiny",), OwnSettings(), tmp_path)
    with pytest.raises(asyncio.CancelledError):
        await builds.ready(needed, lambda _: builds.close())
    await until(lambda: "prowess-build" not in {thread.name for thread in threading.enumerate()})
    assert [] == faults


NEW_MOUNTS = ["unshare", "--mount", "--propagation", "private"]


@pytest.mark.skipif(
    subprocess.run([*NEW_MOUNTS, "true"], capture_output=True, check=False).returncode != 0,
    reason="nothing may be mounted here",
)
async def test_full_disk_is_a_failure_with_the_words_of_the_system(tmp_path: Path, wheels: Path) -> None:
    """Nothing of the half environment counts, and the project's own commands answer."""
    plain = "@skill_command\ndef fine() -> str:\n    return 'fine'\n"
    made = project(tmp_path / "p", wheels, tiny=block("tinypackage") + TINY, plain=plain)
    cache = made / "cache"
    cache.mkdir()
    small = f'mount -t tmpfs -o size=4m tmpfs {cache} && exec "$@"'
    async with hosted(made, through=[*NEW_MOUNTS, "sh", "-c", small, "sh"]) as host:
        assert "fine" == await host.text("plain_fine")
        told = (await error(host.start_call("tiny_version")))["message"]
        assert "its environment cannot be made" in told
        assert "No space left" in told or "os error 28" in told
        assert "fine" == await host.text("plain_fine")


async def test_storm_of_edits_ends_with_what_was_written_last(tmp_path: Path, wheels: Path) -> None:
    """Calls meanwhile are answered by one version or another."""
    made = project(tmp_path / "p", wheels, tiny=block("tinypackage==1.0") + TINY)
    async with hosted(made, forked=True) as host:
        with fail_after(PATIENCE):
            while await host.text("tiny_version") != "1.0":  # noqa: ASYNC110 - another process decides
                await asyncio.sleep(0.05)
        for number in range(12):
            version = "2.0" if number % 2 else "1.0"
            write_skill(made, "tiny.py", f"{block(f'tinypackage=={version}')}{TINY}# {number}\n")
            assert await host.text("tiny_version") in ("1.0", "2.0")
        with fail_after(PATIENCE):
            while await host.text("tiny_version") != "2.0":  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)


async def test_many_first_starts_at_once_make_one_environment(tmp_path: Path, wheels: Path) -> None:
    """A lock keeps the builders apart; whoever comes later finds it made."""
    env = {"PROWESS_CACHE_DIR": str(tmp_path / "cache")}
    roots = [project(tmp_path / f"p{number}", wheels, tiny=block("tinypackage==1.0") + TINY) for number in range(6)]
    code = "import sys; from prowess_host.cli.commands import run; sys.exit(run(sys.argv[1:]))"

    async def sync(root: Path) -> str:
        command = [sys.executable, "-c", code, "sync", "--project", str(root)]
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said
        return said.decode()

    told = await asyncio.gather(*map(sync, roots))

    assert all("Python" in each for each in told)
    folder = tmp_path / "cache" / "environments"
    assert 1 == len([each for each in await asyncio.to_thread(lambda: [*folder.iterdir()]) if each.is_dir()])


def test_environments_and_limits_hold_at_every_entrance(tmp_path: Path, wheels: Path) -> None:
    """HTTP and envelopes: the same package, and the same refusal."""
    limited = "\n@skill_command\ndef read() -> str:\n    return open('/etc/hostname').read()\n"
    made = project(
        tmp_path / "p",
        wheels,
        tiny=block("tinypackage==1.0") + TINY,
        walled=block("tinypackage==2.0", more="[tool.prowess.sandbox]") + TINY + limited,
    )
    assert 0 == prowess("sync", "--project", str(made)).returncode
    request = {"id": "a", "version": "1.0.0", "timestamp": "2026-01-31T12:00:00Z", "payload": {}}
    lines = [json.dumps({**request, "tool": f"{skill}/version"}) for skill in ("tiny", "walled")]
    lines.append(json.dumps({**request, "tool": "walled/read"}))
    done = prowess("invoke", "--project", str(made), given="\n".join(lines).encode())
    tiny, walled, read = (json.loads(line) for line in done.stdout.splitlines())
    assert ["1.0", "2.0"] == [tiny["output"], walled["output"]]
    assert "is not open to this skill" in json.dumps(read)
    with served_over_http(made) as web:
        assert "1.0" in web.call("tiny_version").text
        assert "2.0" in web.call("walled_version").text
        assert "is not open to this skill" in web.call("walled_read").text
