"""The end of a session, in all the ways it can come: bounded, clean, with the right exit code, and nobody left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from anyio import fail_after
from patience import PATIENCE
from piped import HANDSHAKE, MARK, STATELESS, hosted, make_project, processes, result, until

SKILL = """
    import re
    from pathlib import Path

    @skill_command
    def say(text: str = "") -> str:
        return text

    @skill_command
    def big(size: int) -> str:
        return "x" * size

    @skill_command
    async def wait() -> str:
        await asyncio.sleep(600)

    @skill_command
    def block(started: str) -> str:
        Path(started).touch()
        time.sleep(600)

    @skill_command
    async def block_loop(started: str) -> str:
        Path(started).touch()
        time.sleep(600)

    @skill_command
    def ponder(started: str) -> str:
        Path(started).touch()
        re.match(r"(a+)+$", "a" * 64 + "b")

    @skill_command
    def parent(started: str) -> str:
        subprocess.Popen(["sleep", "600"])
        Path(started).touch()
        time.sleep(600)

    @skill_command
    async def chatter(started: str, ctx: Context) -> str:
        Path(started).touch()
        for number in range(1_000_000):
            ctx.progress(number, None, "x" * 10_000)
            await asyncio.sleep(0)
"""


def make(tmp_path: Path) -> Path:
    return make_project(tmp_path, "[host]\ndrain = 0.5\n", t=SKILL)


def handshake() -> list[dict]:
    told = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    return [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": told},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]


def call(number: int, **arguments: object) -> dict:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "t_say", "arguments": arguments}}


@pytest.mark.parametrize("count", [3, 50])
def test_row_43_requests_and_the_end_of_input_at_once(tmp_path: Path, count: int):
    """All are answered, also while the worker is still coming up."""
    messages = [*handshake(), *(call(number, text=str(number)) for number in range(1, count + 1))]
    text = "".join(json.dumps(message) + "\n" for message in messages).rstrip("\n")  # the last one without a newline
    command = [sys.executable, "-m", "prowess_host", "--project", str(make(tmp_path))]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert list(range(count + 1)) == sorted(answer["id"] for answer in answers)
    assert all("result" in answer for answer in answers)


def test_input_may_be_a_file(tmp_path: Path):
    """Which no event loop can wait for."""
    session = tmp_path / "session"
    session.write_text("".join(json.dumps(message) + "\n" for message in [*handshake(), call(1)]))
    command = [sys.executable, "-m", "prowess_host", "--project", str(make(tmp_path))]
    with session.open() as given, (tmp_path / "out").open("w") as output:
        subprocess.run(command, stdin=given, stdout=output, timeout=PATIENCE, check=True)
    assert [0, 1] == sorted(json.loads(line)["id"] for line in (tmp_path / "out").read_text().splitlines())


async def test_row_40_the_end_of_input_is_the_end(tmp_path: Path):
    """Nothing runs: at once, with 0."""
    async with hosted(make(tmp_path)) as host:
        await host.tools()
        assert 0 == await host.leave()


@pytest.mark.parametrize("name", ["t_wait", "t_block", "t_block_loop"], ids=["41-async", "42-thread", "42-loop"])
async def test_a_call_that_does_not_end_is_answered_for(tmp_path: Path, name: str):
    """After the time it has to end: its worker is ended, and says so in the answer."""
    started = tmp_path / "started"
    async with hosted(make(tmp_path)) as host:
        await host.text("t_say")
        answer = host.start_call(name, **({} if name == "t_wait" else {"started": str(started)}))
        if name == "t_wait":
            await host.barrier()
        else:
            await until(started.exists)
        assert 0 == await host.leave()
        assert (await result(answer))["isError"]


async def test_row_44_a_subscription_ends_with_a_result(tmp_path: Path):
    async with hosted(make(tmp_path), version=STATELESS) as host:
        listening = host.request("subscriptions/listen", notifications={"toolsListChanged": True})
        await host.noted("notifications/subscriptions/acknowledged")
        assert 0 == await host.leave()
        assert "complete" == (await result(listening))["resultType"]


class Deaf:
    """A client that holds the pipes itself, so that it can stop reading."""

    def __init__(self, project: Path, *options: str, over: str = "pipe") -> None:
        self.mark = uuid.uuid4().hex
        if over == "socket":
            ours, theirs = socket.socketpair()
            self.output, writing = ours.detach(), theirs.detach()
        else:
            self.output, writing = os.pipe()
        if over == "non-blocking pipe":
            os.set_blocking(writing, False)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "prowess_host", "--project", str(project), *options],
            stdin=subprocess.PIPE,
            stdout=writing,
            stderr=subprocess.PIPE,
            env={**os.environ, MARK: self.mark},
        )
        os.close(writing)

    def send(self, *messages: dict) -> None:
        assert self.process.stdin is not None
        for message in messages:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    async def ended(self) -> int:
        await until(lambda: self.process.poll() is not None)
        await until(lambda: not processes(self.mark))
        assert self.process.stderr is not None
        self.complaints = self.process.stderr.read().decode()
        self.process.stderr.close()
        return self.process.returncode


@pytest.mark.parametrize("over", ["pipe", "socket", "non-blocking pipe"])
async def test_row_45_a_client_that_stops_reading_and_leaves(tmp_path: Path, over: str):
    """The writer is stuck for good; the host leaves all the same."""
    client = Deaf(make(tmp_path), over=over)
    client.send(*handshake(), {**call(1), "params": {"name": "t_big", "arguments": {"size": 3_000_000}}})
    await asyncio.to_thread(os.read, client.output, 1)
    client.process.stdin.close()
    assert 0 == await client.ended()
    os.close(client.output)


async def test_a_flood_of_progress_for_a_client_that_does_not_read_is_dropped(tmp_path: Path):
    """It is of the moment: the host neither keeps it nor waits."""
    client = Deaf(make(tmp_path))
    started = tmp_path / "started"
    flood = {"name": "t_chatter", "arguments": {"started": str(started)}, "_meta": {"progressToken": 1}}
    client.send(*handshake(), {**call(1), "params": flood})
    await until(started.exists)
    client.process.stdin.close()
    assert 0 == await client.ended()
    os.close(client.output)


@pytest.mark.parametrize("over", ["pipe", "socket", "non-blocking pipe"])
async def test_a_slow_client_gets_everything(tmp_path: Path, over: str):
    """Large answers and small ones, whole and in order, whatever the wire is."""
    client = Deaf(make(tmp_path), over=over)
    big = [{**call(n), "params": {"name": "t_big", "arguments": {"size": 300_000}}} for n in range(1, 6)]
    client.send(*handshake(), *big, *(call(n, text="x") for n in range(6, 60)))
    client.process.stdin.close()

    def read() -> bytes:
        with os.fdopen(client.output, "rb") as output:
            return output.read()

    with fail_after(PATIENCE):
        said = await asyncio.to_thread(read)
    assert 0 == await client.ended()
    assert list(range(60)) == sorted(json.loads(line)["id"] for line in said.splitlines())


@pytest.mark.parametrize("over", ["pipe", "socket"])
async def test_row_46_a_client_that_closes_its_end(tmp_path: Path, over: str):
    """Quietly, with 0, although the input stays open."""
    client = Deaf(make(tmp_path), over=over)
    os.close(client.output)
    client.send(*handshake())
    assert 0 == await client.ended()
    client.process.stdin.close()
    assert "" == client.complaints


async def test_a_client_that_does_not_read_complaints_stops_nobody(tmp_path: Path):
    """Stderr is full, and nobody drains it: the host drops what it had to say there."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    project = make_project(tmp_path, t=SKILL, broken="import nothing_of_this_name")
    command = [sys.executable, "-m", "prowess_host", "--project", str(project)]
    text = "".join(json.dumps(message) + "\n" for message in [*handshake(), call(1)])
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        input=text.encode(),
        stdout=subprocess.PIPE,
        stderr=writing,
        timeout=PATIENCE,
        check=True,
    )
    os.close(reading)
    os.close(writing)
    assert 2 == len(done.stdout.splitlines())


# Signals


@pytest.mark.parametrize(
    ("number", "name"),
    [
        pytest.param(signal.SIGTERM, None, id="47-term-idle"),
        pytest.param(signal.SIGTERM, "t_wait", id="47-term-async"),
        pytest.param(signal.SIGTERM, "t_block_loop", id="47-term-loop"),
        pytest.param(signal.SIGINT, None, id="48-int-idle"),
        pytest.param(signal.SIGINT, "t_block", id="48-int-thread"),
    ],
)
async def test_a_signal_ends_the_session_in_good_order(tmp_path: Path, number: signal.Signals, name: str | None):
    """Within bounds, with 128 + n, whatever runs."""
    started = tmp_path / "started"
    async with hosted(make(tmp_path)) as host:
        await host.text("t_say")
        if name == "t_wait":
            host.start_call(name)
            await host.barrier()
        elif name:
            host.start_call(name, started=str(started))
            await until(started.exists)
        host.process.send_signal(number)
        assert 128 + number == await host.ended()
        await host.alone()


async def test_row_48_a_second_signal_ends_it_at_once(tmp_path: Path):
    """Also with a call that had a minute to end."""
    project = make_project(tmp_path, "[host]\ndrain = 60\n", t=SKILL)
    started = tmp_path / "started"
    async with hosted(project) as host:
        host.start_call("t_block", started=str(started))
        await until(started.exists)
        host.process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.1)
        with contextlib.suppress(ProcessLookupError):
            host.process.send_signal(signal.SIGINT)
        assert 130 == await host.ended()
        await host.alone()


@pytest.mark.parametrize("name", ["t_block", "t_block_loop", "t_ponder", "t_parent"])
async def test_nobody_outlives_a_host_that_is_killed(tmp_path: Path, name: str):
    """Not a worker whose interpreter is held by native code, not the child of a command."""
    started = tmp_path / "started"
    async with hosted(make(tmp_path)) as host:
        host.start_call(name, started=str(started))
        await until(started.exists)
        if name == "t_parent":
            await until(lambda: "sleep 600" in " ".join(processes(host.mark).values()))
        host.process.kill()
        assert -signal.SIGKILL == await host.ended()
        await host.alone()


async def test_nobody_outlives_a_host_that_ends_in_good_order(tmp_path: Path):
    """The children of commands go with the workers."""
    started = tmp_path / "started"
    async with hosted(make(tmp_path)) as host:
        host.start_call("t_parent", started=str(started))
        await until(started.exists)
        assert 0 == await host.leave()
        await host.alone()


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_call_that_the_end_interrupts_cleans_up(tmp_path: Path, is_cancelled: bool):
    """The worker gets a moment for that, whether the client or the end of its input has stopped the call."""
    cleaning = """
        from pathlib import Path
        from prowess import hookimpl

        here = Path(__file__).parent

        class Thing: ...
        class Shared: ...

        def thing():
            yield Thing()
            (here / "closed").touch()

        def shared():
            yield Shared()
            (here / "shared").touch()

        @hookimpl
        def prowess_injectables(provide):
            provide(Thing, thing, lifetime="call")
            provide(Shared, shared)

        @skill_command
        async def wait(thing: Thing, shared: Shared) -> None:
            (here / "begun").touch()
            await asyncio.sleep(600)
    """
    skills = make_project(tmp_path, "[host]\ndrain = 0.1\n", t=cleaning) / "skills"
    async with hosted(tmp_path, forked=True) as host:
        call = host.start_call("t_wait")
        await until((skills / "begun").exists)
        if is_cancelled:
            host.cancel(call)
        assert 0 == await host.leave()
        assert is_cancelled or "the host is shutting down" in str((await result(call))["content"])
    assert (skills / "closed").exists()
    assert (skills / "shared").exists()


async def test_a_host_with_wrong_settings_says_so_and_leaves(tmp_path: Path):
    """With 2, and nothing on the wire."""
    project = make_project(tmp_path, "timeuot = 5\n")
    command = [sys.executable, "-m", "prowess_host", "--project", str(project)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE, input="")
    assert (2, "") == (done.returncode, done.stdout)
    assert "timeout" in done.stderr
