"""What the host does about faults, its own and others', without losing the session. Here it runs in the test's loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after
from patience import PATIENCE
from piped import HANDSHAKE, hosted, make_project, result, until, write_skill

from prowess.errors import SettingsError
from prowess.settings.settings import Settings
from prowess.worker.progress import Progress
from prowess_host import connection as connection_module
from prowess_host import stdio
from prowess_host.catalog import updates as learning_module
from prowess_host.cli.main import PlainOptions, main, plain_options, project_root
from prowess_host.project import Project
from prowess_host.protocol.identity import Server
from prowess_host.protocol.rpc import EncodeError
from prowess_host.stdio import StdioHost
from prowess_host.transports import pipes
from prowess_host.transports.claim import Claim
from prowess_host.workers import generations as generations_module

SAY = "@skill_command\ndef say(text: str = '') -> str:\n    return text\n"


class Inside:
    """A host in this loop, and the client's ends of its pipes."""

    def __init__(self, project: Path) -> None:
        reading, self.writing = os.pipe()
        self.reading, writing = os.pipe()
        self.ends = [reading, writing, self.writing, self.reading]
        settings = Settings.load(project, environ={}, flags={})
        self.project = Project(settings, {}, {})
        self.host = StdioHost(Claim(reading, writing), self.project, Server("inside", "1"))
        self.task = asyncio.ensure_future(self.host.run())
        self._rest = b""

    def send(self, *messages: Any) -> None:
        for message in messages:
            os.write(self.writing, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def next(self) -> dict:
        with fail_after(PATIENCE):
            while b"\n" not in self._rest:
                self._rest += await asyncio.to_thread(os.read, self.reading, 65536)
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    async def answer(self, message: dict) -> dict:
        self.send(message)
        return await self.next()


@contextlib.asynccontextmanager
async def inside(project: Path) -> AsyncGenerator[Inside]:
    client = Inside(project)
    told = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    try:
        assert 0 == (await client.answer({"id": 0, "method": "initialize", "params": told}))["id"]
        client.send({"method": "notifications/initialized"})
        yield client
        client.ends.remove(client.writing)
        os.close(client.writing)
        with fail_after(PATIENCE):
            assert 0 == await client.task
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
        for fd in client.ends:
            os.close(fd)


def call(number: Any, name: str = "t_say", **arguments: Any) -> dict:
    return {"id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


async def test_a_fault_of_the_host_costs_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not the ones after it in the same chunk."""
    route = connection_module.route

    def fail_once(*args: Any) -> Any:
        monkeypatch.setattr(connection_module, "route", route)
        raise RuntimeError("a fault")

    async with inside(make_project(tmp_path, t=SAY)) as client:
        assert 9 == (await client.answer({"id": 9, "method": "ping"}))["id"]
        monkeypatch.setattr(connection_module, "route", fail_once)
        client.send({"id": 1, "method": "ping"}, {"id": 2, "method": "ping"})
        assert 2 == (await client.next())["id"]


async def test_a_call_that_the_host_cannot_serve_is_an_internal_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With its id, and nothing of the reason on the wire."""

    def fail(*_: Any) -> None:
        raise RuntimeError("a secret")

    async with inside(make_project(tmp_path, t=SAY)) as client:
        assert "result" in await client.answer({"id": 1, "method": "tools/list"})
        monkeypatch.setattr(client.project.workers, "submit", fail)
        refused = await client.answer(call(2))
        assert (2, -32603) == (refused["id"], refused["error"]["code"])
        assert "secret" not in json.dumps(refused)


@pytest.mark.parametrize(("method", "code"), [("tools/list", -32603), ("prompts/get", -32600)])
async def test_only_a_tool_is_answered_by_a_result_of_a_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, code: int
):
    """If the request or a definition cannot be written as JSON, whatever the reason."""

    def fail(*_: Any) -> None:
        raise EncodeError("a definition", ValueError("it is odd"))

    async with inside(
        make_project(tmp_path, t=SAY + "from prowess import prompt\n@prompt\ndef p() -> str:\n    return 'p'\n")
    ) as client:
        assert "result" in await client.answer({"id": 1, "method": "tools/list"})
        monkeypatch.setattr(connection_module.Connection, "_list", fail)
        monkeypatch.setattr(connection_module.Connection, "_call_served", fail)
        refused = await client.answer({"id": 2, "method": method, "params": {"name": "t_p"}})
        assert (2, code) == (refused["id"], refused["error"]["code"])
        assert "a definition cannot be" in refused["error"]["message"]


async def test_skills_that_take_long_to_load_do_not_hold_up_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It says what is missing, and the client is told when it has come."""
    monkeypatch.setattr(learning_module, "_LOADING", 0.1)
    gate = tmp_path / "gate"
    slow = f"while not os.path.exists({str(gate)!r}):\n    time.sleep(0.01)\n{SAY}"
    async with inside(make_project(tmp_path, t=slow)) as client:
        listed = await client.answer({"id": 1, "method": "tools/list"})
        assert ["prowess_diagnostics"] == [tool["name"] for tool in listed["result"]["tools"]]
        gate.touch()
        assert "notifications/tools/list_changed" == (await client.next())["method"]
        listed = await client.answer({"id": 2, "method": "tools/list"})
        assert ["t_say"] == [tool["name"] for tool in listed["result"]["tools"]]


async def test_skills_that_load_on_a_busy_machine_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Only time in which their worker could run counts."""
    monkeypatch.setattr(learning_module, "_LOADING", 0.1)
    monkeypatch.setattr(generations_module, "_SLOWEST", 1e6)
    checked, usable = 0, 0.0

    def measured(*_: object) -> float:
        nonlocal checked
        checked += 1
        return usable

    monkeypatch.setattr(Progress, "usable", measured)
    slow = f"while not os.path.exists({str(tmp_path / 'gate')!r}):\n    time.sleep(0.01)\n{SAY}"
    async with inside(make_project(tmp_path, "[host]\nstall_limit = 0.2\n", t=slow)) as client:
        listing = asyncio.ensure_future(client.answer({"id": 1, "method": "tools/list"}))
        await until(lambda: checked > 20)
        assert not listing.done()
        usable = 1.0
        assert "prowess_diagnostics" in json.dumps(await listing)
        (tmp_path / "gate").touch()


async def test_calls_on_a_busy_machine_are_waited_for_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Only time in which their worker could run counts."""
    began, gate, checked, usable = tmp_path / "began", tmp_path / "gate", 0, 0.0
    hold = (
        f"open({str(began)!r}, 'w').close()\n    while not os.path.exists({str(gate)!r}):\n        time.sleep(0.01)\n"
    )

    def measured(*_: object) -> float:
        nonlocal checked
        checked += 1
        return usable

    monkeypatch.setattr(Progress, "usable", measured)
    project = make_project(
        tmp_path, "[host]\ndrain = 0.1\n", t=f"@skill_command\ndef hold() -> str:\n    {hold}    return 'x'\n"
    )
    async with inside(project) as client:
        client.send({"id": 1, "method": "tools/call", "params": {"name": "t_hold", "arguments": {}}})
        await until(began.exists)
        client.host._ended.set()
        at_end = checked
        await until(lambda: checked > at_end + 10)
        gate.touch()
        assert "x" == (await client.next())["result"]["content"][0]["text"]


async def test_a_client_that_does_not_read_is_not_read_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Until it has read; nothing is lost."""
    monkeypatch.setattr(pipes, "_MOST_BACKLOG", 1000)
    async with inside(make_project(tmp_path, t=SAY)) as client:
        assert "result" in await client.answer(call(1))
        await asyncio.to_thread(client.send, call(2, text="x" * 50_000), call(3, text="x" * 50_000))
        await until(lambda: client.host._writer.full)
        client.send({"id": 4, "method": "ping"})
        await until(lambda: not client.host._reader._active)
        await asyncio.to_thread(client.send, {"id": 5, "method": "ping"})
        got = [(await client.next())["id"] for _ in range(4)]
        assert [2, 3, 4, 5] == sorted(got)


async def test_a_client_that_leaves_without_reading_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Although it is not read from any more."""
    monkeypatch.setattr(pipes, "_MOST_BACKLOG", 1000)
    monkeypatch.setattr(stdio, "_FLUSH", 0.05)
    async with inside(make_project(tmp_path, t=SAY)) as client:
        assert "result" in await client.answer(call(1))
        await asyncio.to_thread(client.send, call(2, text="x" * 200_000), {"id": 3, "method": "ping"})
        await until(lambda: client.host._writer.full)
        client.send({"id": 4, "method": "ping"})
        await until(lambda: not client.host._reader._active)


async def test_a_host_hears_signals_while_it_waits_for_a_client_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its loop goes on, so that whoever does not want to read can end it."""
    waiting, go_on, went_on = threading.Event(), threading.Event(), list[bool]()

    def flush(_writer: object, _seconds: float) -> None:
        waiting.set()
        went_on.append(go_on.wait(PATIENCE))

    monkeypatch.setattr(pipes.Writer, "flush", flush)
    async with inside(make_project(tmp_path, t=SAY)) as client:
        assert "result" in await client.answer(call(1))
        await asyncio.to_thread(client.send, call(2, text="x" * 200_000))
        await until(lambda: client.host._writer.backlog)
        client.host._ended.set()
        await until(waiting.is_set)
        go_on.set()
    assert [True] == went_on


async def test_a_batch_of_calls_that_are_cancelled_and_answered(tmp_path: Path):
    """Each action of a group is done."""
    async with hosted(make_project(tmp_path, t=SAY), version="2025-03-26", forked=True) as host:
        answers = [host.expect(1), host.expect(2, "tools/list")]
        host.send([{"jsonrpc": "2.0", **call(1, text="x")}, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}])
        assert "x" == (await result(answers[0]))["content"][0]["text"]
        assert ["t_say"] == [tool["name"] for tool in (await result(answers[1]))["tools"]]


async def test_a_command_answers_to_its_id_and_its_aliases(tmp_path: Path):
    body = "@skill_command(aliases=['other'])\ndef say() -> str:\n    return 'x'\n"
    async with hosted(make_project(tmp_path, t=body), forked=True) as host:
        for name in ("t_say", "t.say", "t/say", "other"):
            assert "x" == await host.text(name)


async def test_what_no_client_could_be_shown_is_a_failure_of_its_own(tmp_path: Path):
    """The others are listed; and a profile of a plugin shows a command like any other."""
    profile = """
        from prowess import hookimpl
        from prowess.profiles.profile import BUILT_IN
        from dataclasses import replace

        @hookimpl
        def prowess_profiles(register):
            register(replace(BUILT_IN["portable"], name="mine"))
            register(replace(BUILT_IN["portable"], name="failing", input_steps=(lambda schema: 1 / 0,)))

        @skill_command(profile="mine")
        def good() -> None: ...

        @skill_command(profile="failing")
        def odd() -> None: ...
    """
    async with hosted(make_project(tmp_path, t=SAY, p=profile), forked=True) as host:
        assert ["p_good", "prowess_diagnostics", "t_say"] == sorted(await host.tools())
        assert "p.odd" in await host.text("prowess_diagnostics")


async def test_failures_at_the_start_are_told_on_stderr(tmp_path: Path):
    project = make_project(tmp_path, t=SAY)
    write_skill(project, "b.py", "import nothing_of_this_name\n")
    write_skill(project, "c.py", "@skill_command\ndef go(x): ...\n")
    async with hosted(project, forked=True) as host:
        assert ["c_go", "prowess_diagnostics", "t_say"] == await host.tools()
        await host.heard("nothing_of_this_name")
        await host.heard("c.go (skills/c.py:4): parameter 'x' has no annotation")
        assert "nothing_of_this_name" in await host.text("prowess_diagnostics")


async def test_the_project_is_found_from_the_working_directory(tmp_path: Path):
    """Clients start servers wherever they like; the nearest project counts. `prowess host` is the same."""
    project = make_project(tmp_path, t=SAY)
    below = project / "some/where"
    below.mkdir(parents=True)
    init = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    messages = [{"id": 0, "method": "initialize", "params": init}, call(1, text="x")]
    text = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    command = [sys.executable, "-c", "from prowess_host.cli.main import main; main(['host'])"]
    done = await asyncio.to_thread(
        subprocess.run, command, input=text, capture_output=True, text=True, cwd=below, timeout=PATIENCE, check=True
    )
    assert ["x"] == [json.loads(line)["result"]["content"][0]["text"] for line in done.stdout.splitlines()[1:]]


def test_a_working_directory_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A client may start the host in a folder that was deleted meanwhile."""
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(SettingsError, match="the working directory no longer exists"):
        project_root(None)


@pytest.mark.parametrize(
    "argv, options",
    [
        ([], PlainOptions(None, [])),
        (["--project", "p", "--set", "a=1", "--set", "b=2"], PlainOptions("p", ["a=1", "b=2"])),
        (["--project=p", "--set", "a=1"], None),
        (["--project=p"], None),
    ],
)
def test_plain_options_are_read_without_a_library(argv: list[str], options: PlainOptions | None):
    """Those that an IDE writes; all others are for the command line as a whole."""
    assert options == plain_options(argv)


async def test_options_may_be_written_either_way(tmp_path: Path):
    """The host serves the project that it is told, however the option is written."""
    project = make_project(tmp_path, t=SAY)
    init = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    messages = [{"id": 0, "method": "initialize", "params": init}, call(1, text="x")]
    text = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    command = [sys.executable, "-m", "prowess_host", f"--project={project}"]
    done = await asyncio.to_thread(
        subprocess.run, command, input=text, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert "x" == json.loads(done.stdout.splitlines()[1])["result"]["content"][0]["text"]


@pytest.mark.parametrize("argv", [["--no-such", "x"], ["--project"]])
def test_wrong_options_are_refused(argv: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(["host", *argv])
    assert "See `prowess host --help`." in capsys.readouterr().err


@pytest.mark.parametrize("option", ["timeout", "timeuot=5"])
async def test_a_wrong_setting_ends_the_host_with_a_reason(tmp_path: Path, option: str):
    command = [sys.executable, "-m", "prowess_host", "--project", str(tmp_path), "--set", option]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE
    )
    assert (2, "", True) == (done.returncode, done.stdout, "timeout" in done.stderr)
