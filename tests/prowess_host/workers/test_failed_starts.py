"""Workers that cannot start, and skills that end them at import: clients are told why."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from patience import PATIENCE
from piped import Client, hosted, make_project, until, write_skill
from tests.prowess_host.workers.supervised import make, text

from prowess.worker.messages import RELEASE, VERSION


async def explained(host: Client) -> str:
    """The list has one tool that says what is wrong; a call says it too."""
    assert ["prowess_diagnostics"] == await host.tools()
    why = await host.text("prowess_diagnostics")
    failed = await host.call("t_say")
    assert failed["isError"]
    assert why in failed["content"][0]["text"]
    return why


async def test_an_interpreter_that_is_not_there_is_a_diagnosis(tmp_path: Path):
    async with hosted(make(tmp_path, 'python = "/no/such/python"\n'), forked=True) as host:
        assert "/no/such/python cannot be run" in await explained(host)


async def test_an_interpreter_without_prowess_is_a_diagnosis(tmp_path: Path):
    """It ends at once, and is not started over and over."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\necho started >> {tmp_path}/starts\nexit 3\n")
    script.chmod(0o755)
    settings = f'python = "{script}"\n[host]\nrestart_window = {PATIENCE}\n'
    async with hosted(make(tmp_path, settings), forked=True) as host:
        assert "exit code 3" in await explained(host)
        for _ in range(20):
            await host.call("t_say")
        assert (tmp_path / "starts").read_text().count("started") < 8


async def test_broken_settings_are_a_diagnosis_and_no_outage(tmp_path: Path):
    """The reason is told, and whatever the file says, also a new worker goes by what it said before."""
    project = make(tmp_path)
    async with hosted(project, forked=True) as host:
        assert "x" == await host.text("t_say", text="x")
        first = await host.worker()
        (project / "prowess.toml").write_text('cache_dir = "cache"\ntimeuot = 5\n')
        await host.noted("notifications/tools/list_changed")
        assert "timeuot" in await host.text("prowess_diagnostics")
        assert "x" == await host.text("t_say", text="x")
        os.kill(first, signal.SIGKILL)
        await until(lambda: first not in host.workers())
        assert "x" == await host.text("t_say", text="x")
        (project / "prowess.toml").write_text('cache_dir = "cache"\n')
        await host.noted("notifications/tools/list_changed", 2)
        assert "prowess_diagnostics" not in await host.tools()


async def test_a_skill_that_ends_the_worker_at_import_is_a_diagnosis(tmp_path: Path):
    project = make_project(tmp_path, "", t="os._exit(5)\n@skill_command\ndef say() -> None: ...\n")
    async with hosted(project, forked=True) as host:
        assert "exit code 5" in await explained(host)
        write_skill(project, "t.py", "@skill_command\ndef say() -> str:\n    return 'mended'\n")
        await host.noted("notifications/tools/list_changed")
        assert "mended" == await host.text("t_say")


async def test_a_skill_that_ends_the_worker_at_import_takes_no_other_call_with_it(tmp_path: Path):
    """What waited beside it for a skill to be imported is called in the next worker."""
    fatal, begun = tmp_path / "fatal", tmp_path / "begun"
    hold = f"import ctypes\nif os.path.exists({str(fatal)!r}):\n    usleep = ctypes.PyDLL(None).usleep\n"
    hold += f"    open({str(begun)!r}, 'w').close()\n    usleep(300_000)\n    os._exit(5)\n"  # nothing else begins
    say = "@skill_command\ndef say() -> str:\n    return 'y'\n"
    project = make_project(tmp_path, "", t=f"{hold}{say}", u=say)
    async with hosted(project, forked=True) as host:  # this one leaves a manifest
        await host.tools()
    fatal.touch()
    async with hosted(project, forked=True) as host:
        lost = host.start_call("t_say")
        await until(begun.exists)
        others = [host.start_call("u_say") for _ in range(2)]
        assert "ended" in await text(lost)
        assert ["y", "y"] == [await text(other) for other in others]


async def test_a_worker_of_another_interpreter_is_used(tmp_path: Path):
    """The setting `python` decides."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nOTHER=yes exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    body = "@skill_command\ndef other() -> str:\n    return os.environ['OTHER']\n"
    async with hosted(make_project(tmp_path, f'python = "{script}"\n', t=body), forked=True) as host:
        assert "yes" == await host.text("t_other")


STRANGER = """
import json, runpy, sys
import prowess.worker.messages as messages

messages.VERSION, messages.RELEASE = (9, 1), "9.1.0"
messages.mismatch = lambda *_: ""
sys.argv = ["worker", *sys.argv[4:]]
runpy.run_module("prowess.worker", run_name="__main__")
"""


def stranger(folder: Path, code: str = STRANGER) -> Path:
    """An interpreter whose worker says something else of its version."""
    script = folder / "python"
    (folder / "stranger.py").write_text(code)
    script.write_text(f"""#!/bin/sh\nexec "{sys.executable}" "{folder / "stranger.py"}" "$@"\n""")
    script.chmod(0o755)
    return script


async def test_a_worker_with_another_version_of_the_link_is_a_diagnosis(tmp_path: Path):
    """It would serve, and the host refuses it: with both versions and the remedy."""
    script = stranger(tmp_path)
    async with hosted(make(tmp_path, f'python = "{script}"\n'), forked=True) as host:
        why = await explained(host)
        link = ".".join(map(str, VERSION))
        assert f"the host has link {link} (release {RELEASE}), the worker link 9.1 (release 9.1.0)" in why
        assert f"`{script} -m pip install prowess-core=={RELEASE}`" in why


async def test_a_worker_that_says_nothing_of_its_version_is_a_diagnosis(tmp_path: Path):
    """As an older release would."""
    script = stranger(tmp_path, STRANGER.replace("messages.VERSION", "messages.hello = dict  #"))
    async with hosted(make(tmp_path, f'python = "{script}"\n'), forked=True) as host:
        assert "the worker link no version (release unknown)" in await explained(host)


async def test_a_skill_that_ended_its_worker_is_listed_when_the_cause_has_gone(tmp_path: Path):
    """Nothing was saved: the list is tried again after a pause, apart from the worker that is called."""
    fatal = tmp_path / "fatal"
    fatal.touch()
    body = f"if os.path.exists({str(fatal)!r}):\n    os._exit(5)\n@skill_command\ndef say() -> str:\n    return 'x'\n"
    project = make_project(tmp_path, "", t=body, u="@skill_command\ndef pid() -> int:\n    return os.getpid()\n")
    async with hosted(project, forked=True) as host:
        assert ["prowess_diagnostics", "u_pid"] == sorted(await host.tools())
        before = await host.text("u_pid")
        fatal.unlink()
        await host.noted("notifications/tools/list_changed")
        assert ["t_say", "u_pid"] == sorted(await host.tools())
        assert "x" == await host.text("t_say")
        assert before == await host.text("u_pid")
