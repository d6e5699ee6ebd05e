"""What skills print: on stderr with the name of who printed it, whole and in order, and never in anybody's way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from patience import PATIENCE
from piped import HANDSHAKE, MARK, Client, hosted, make_project, processes, result

from prowess.worker.output import END, LABEL_END, NUMBER_END, START
from prowess_host.workers.output import LabelledLines

SKILL = """
    import ctypes, faulthandler

    print("importing")

    @skill_command
    async def say(text: str = "") -> str:
        print(text)
        return text

    @skill_command
    def both() -> None:
        for number in range(50):
            print("out", number)
            print("err", number, file=sys.stderr)

    @skill_command
    def child() -> None:
        subprocess.run(["sh", "-c", "echo from a child; echo its complaint >&2"], check=True)
        os.write(1, b"from native code\\n")
        os.write(2, b"without an end")

    @skill_command
    async def halves(word: str, turns: int) -> None:
        for _ in range(turns):
            print(word, end=" ", flush=True)
            await asyncio.sleep(0.001)
        print("end")

    @skill_command
    async def huge(size: int) -> None:
        print("x" * size, end="")
        print("y")

    @skill_command
    def raw(size: int) -> None:
        os.write(1, b"z" * size + b"\\n")

    @skill_command
    def die(how: str) -> None:
        print("last words")
        print("half a word", end="")
        if how == "exit":
            os._exit(3)
        if how == "kill":
            os.kill(os.getpid(), 9)
        ctypes.string_at(0)

    LONG = "." * 400

    @skill_command
    async def flood(count: int) -> str:
        for number in range(count):
            print(LONG, "line", number)
        return "done"

    @skill_command
    def flood_in_thread(count: int) -> str:
        for number in range(count):
            print(LONG, "line", number)
        return "done"

    @skill_command
    async def flood_politely(count: int) -> str:
        for number in range(count):
            print(LONG, "line", number)
            if number % 100 == 0:
                await asyncio.sleep(0)
        return "done"

    @skill_command
    def flood_as_child(count: int) -> str:
        subprocess.run([sys.executable, "-c", f"for number in range({count}): print('.' * 400, 'line', number)"], check=True)
        return "done"

    @skill_command
    async def pid() -> int:
        return os.getpid()
"""
MOST = 300_000
"""Kilobytes that a host or a worker may ever take."""


def peak(pid: int) -> int:
    """The most memory that a process has taken, in kilobytes."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


async def pid_of(host: Client) -> int:
    return int((await host.call("t_pid"))["content"][0]["text"])


async def said(project: Path, name: str, **arguments: object) -> list[str]:
    """What stands on stderr after a call."""
    async with hosted(project, forked="host") as host:
        await host.call(name, **arguments)
        await host.leave()
        return host.stderr.splitlines()


def make(tmp_path: Path) -> Path:
    return make_project(tmp_path, t=SKILL)


async def test_a_line_bears_the_name_of_the_command_or_of_the_skill_that_is_imported(tmp_path: Path):
    lines = await said(make(tmp_path), "t_say", text="hello")
    assert ["[t] importing", "[t.say] hello"] == lines


async def test_both_streams_keep_their_common_order(tmp_path: Path):
    lines = await said(make(tmp_path), "t_both")
    assert [f"[t.both] {name} {number}" for number in range(50) for name in ("out", "err")] == lines[1:]


async def test_what_is_not_printed_by_python_bears_the_name_of_the_worker(tmp_path: Path):
    async with hosted(make(tmp_path), forked="host") as host:
        await host.call("t_child")
        label = f"[worker {await host.worker()}]"
        await host.leave()
    told = ["from a child", "its complaint", "from native code", "without an end"]
    assert [f"{label} {text}" for text in told] == [line for line in host.stderr.splitlines() if "[worker" in line]


async def test_half_lines_of_calls_that_run_together_are_not_mixed(tmp_path: Path):
    async with hosted(make_project(tmp_path, t=SKILL, u=SKILL), forked="host") as host:
        words = [("t_halves", "one"), ("u_halves", "uno")]
        calls = [host.start_call(name, word=word, turns=50) for name, word in words]
        for call in calls:
            await result(call)
        await host.leave()
    lines = host.stderr.splitlines()
    for name, word in words:
        assert f"[{name.replace('_', '.')}] {'{} '.format(word) * 50}end" in lines


async def test_a_huge_line_is_passed_on_in_pieces(tmp_path: Path):
    """Nobody keeps the whole of it. Every piece bears its label."""
    async with hosted(make(tmp_path), forked="host") as host:
        await host.call("t_huge", size=3_000_000)
        await host.call("t_raw", size=3_000_000)
        worker = await pid_of(host)
        assert max(peak(host.pid), peak(worker)) < MOST
        await host.leave()
    lines = host.stderr.splitlines()
    ours = [line.removeprefix("[t.huge] ") for line in lines if line.startswith("[t.huge] ")]
    native = [line.removeprefix(f"[worker {worker}] ") for line in lines if line.startswith("[worker ")]
    assert ("x" * 3_000_000 + "y", "z" * 3_000_000) == ("".join(ours), "".join(native))


@pytest.mark.parametrize("how", ["exit", "kill", "crash"])
async def test_the_last_words_of_a_worker_are_heard(tmp_path: Path, how: str):
    """Whole lines however it ends; and of a crash in native code the place."""
    async with hosted(make(tmp_path), forked="host") as host:
        assert (await host.call("t_die", how=how))["isError"]
        await host.text("t_say", text="alive")
        await host.leave()
    assert "[t.die] last words\n" in host.stderr
    if how == "crash":
        assert re.search(r"\[worker \d+\] Fatal Python error: Segmentation fault\n", host.stderr)
        assert re.search(r"\[worker \d+\]   File .*t\.py.* in die\n", host.stderr)


@pytest.mark.parametrize("name", ["t_flood", "t_flood_in_thread", "t_flood_as_child"])
async def test_a_client_that_reads_gets_every_line(tmp_path: Path, name: str):
    async with hosted(make(tmp_path), forked="host") as host:
        assert "done" == await host.text(name, count=20_000)
        await host.leave()
    lines = [line.partition(" line ")[2] for line in host.stderr.splitlines() if " line " in line]
    assert [str(number) for number in range(20_000)] == lines


class Deaf(Client):
    """A client that does not read stderr before it is told to."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str, reading: int) -> None:
        super().__init__(process, HANDSHAKE)
        self.mark = mark
        self.reading = reading

    async def _read_stderr(self) -> None:
        """Later."""

    def read_stderr(self) -> bytes:
        with open(self.reading, "rb", closefd=False) as stream:
            return stream.read()


@contextlib.asynccontextmanager
async def deaf(project: Path) -> AsyncGenerator[Deaf]:
    mark = uuid.uuid4().hex
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prowess_host", "--project", str(project)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=writing,
        limit=1 << 28,
        env={**os.environ, MARK: mark},
    )
    os.close(writing)
    host = Deaf(process, mark, reading)
    try:
        await host.open()
        yield host
    finally:
        os.close(reading)
        for pid in processes(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        await process.wait()


@pytest.mark.parametrize("name", ["t_flood", "t_flood_in_thread", "t_flood_politely", "t_flood_as_child"])
async def test_a_client_that_does_not_read_stderr_stops_nobody(tmp_path: Path, name: str):
    """Calls are answered, memory is bounded, and how much was dropped is told when somebody reads."""
    async with deaf(make(tmp_path)) as host:
        for _ in range(2):
            assert "done" == await host.text(name, count=25_000)
        worker = await pid_of(host)
        assert max(peak(host.pid), peak(worker)) < MOST
        reading = asyncio.create_task(asyncio.to_thread(host.read_stderr))
        await host.text("t_say", text="at last")
        host.close_input()
        text = (await reading).decode()
        assert 0 == await host.process.wait()
    dropped = sum(
        int(count)
        for count in re.findall(r"^prowess: (\d+) lines were dropped: nobody read stderr$", text, re.MULTILINE)
    )
    lost = sum(int(count) for count in re.findall(r"^\[prowess\] (\d+) pieces of output were lost", text, re.MULTILINE))
    there = [int(number) for number in re.findall(r" line (\d+)$", text, re.MULTILINE)]
    assert dropped > 0
    assert 49_990 <= dropped + lost + len(there) <= 50_010
    assert text.endswith("[t.say] at last\n")


async def test_other_calls_go_on_while_a_command_prints_to_nobody(tmp_path: Path):
    """The loop of the worker is not blocked by a print."""
    async with deaf(make(tmp_path)) as host:
        floods = [host.start_call(f"t_flood_{how}", count=20_000) for how in ("politely", "in_thread")]
        for number in range(20):
            assert str(number) == await host.text("t_say", text=str(number))
        for flood in floods:
            assert not (await result(flood)).get("isError")
        host.close_input()
        assert 0 == await host.process.wait()


def session(*calls: tuple[str, dict[str, object]]) -> str:
    told = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    messages: list[dict[str, object]] = [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": told},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]
    for number, (name, arguments) in enumerate(calls, 1):
        params = {"name": name, "arguments": arguments}
        messages.append({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    return "".join(json.dumps(message) + "\n" for message in messages)


@pytest.mark.parametrize("how", ["closed", "file", "full disk", "nobody"])
async def test_stderr_may_be_anything(tmp_path: Path, how: str):
    """The calls are answered; a file gets every line."""
    project, log = make(tmp_path), tmp_path / "log"
    calls = ("t_flood", {"count": 5_000}), ("t_flood_as_child", {"count": 5_000})
    target = {"closed": "2>&-", "file": f'2>"{log}"', "full disk": "2>/dev/full", "nobody": "2>&1 >&3 | true"}[how]
    script = f'exec 3>&1; "$@" {target}'
    command = ["/bin/sh", "-c", script, "sh", sys.executable, "-m", "prowess_host", "--project", str(project)]
    (project / "prowess.toml").write_text('cache_dir = "cache"\n[host]\ndrain = 200\n')
    done = await asyncio.to_thread(
        subprocess.run, command, input=session(*calls), stdout=subprocess.PIPE, text=True, timeout=PATIENCE
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [0, 1, 2] == sorted(answer["id"] for answer in answers)
    assert not any(answer["result"].get("isError") for answer in answers)
    if how == "file":
        assert 10_000 == log.read_text().count(" line ")


def test_threads_of_the_host_do_not_tear_lines(tmp_path: Path):
    """The log of the host, and what workers print, are one stream."""
    script = """
import os, threading
from prowess_host.stderr import complaints
def complain(name):
    for number in range(2000):
        complaints().write(f"{name} {number}\\n")
threads = [threading.Thread(target=complain, args=(name,)) for name in "ab"]
for thread in threads: thread.start()
for thread in threads: thread.join()
complaints().finish(60)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=True
    )
    lines = done.stderr.splitlines()
    for name in "ab":
        assert [f"{name} {number}" for number in range(2000)] == [line for line in lines if line.startswith(name)]
    assert 4000 == len(lines)


# The parts


def record(label: str, text: str) -> bytes:
    return b"\x1e%b\x1f%b\x1d" % (label.encode(), text.encode())


def labelled(*chunks: bytes) -> list[str]:
    """The lines of a worker that prints these chunks and then ends."""
    lines = LabelledLines("worker 1")
    told = [line for chunk in chunks for line in lines.feed(chunk)]
    return b"".join(told + lines.close()).decode().splitlines()


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        pytest.param(record("a.b", "one\ntwo\n"), ["[a.b] one", "[a.b] two"], id="lines of a command"),
        pytest.param(record("", "one\n"), ["[worker 1] one"], id="no label"),
        pytest.param(b"one\ntwo\n", ["[worker 1] one", "[worker 1] two"], id="no record"),
        pytest.param(b"raw " + record("a", "one\n") + b"more\n", ["[a] one", "[worker 1] raw more"], id="both"),
        pytest.param(record("a", "1 ") + record("b", "x\n") + record("a", "2\n"), ["[b] x", "[a] 1 2"], id="halves"),
        pytest.param(record("a", "half"), ["[a] half"], id="half a line at the end"),
        pytest.param(b"\x1ea\x1fhalf a record", ["[worker 1] a\x1fhalf a record"], id="half a record at the end"),
        pytest.param(b"\x1ea\x1ftorn" + record("b", "x\n"), ["[b] x", "[worker 1] a\x1ftorn"], id="a torn record"),
        pytest.param(b"\x1eno label\x1d", ["[worker 1] no label"], id="a record without a label"),
        pytest.param(record("a", "\n\n"), ["[a] ", "[a] "], id="empty lines"),
    ],
)
def test_what_a_worker_prints_becomes_lines_with_labels(data: bytes, lines: list[str]):
    """However it is cut on the way."""
    assert lines == labelled(data)
    assert lines == labelled(*(data[place : place + 1] for place in range(len(data))))


def test_a_line_that_does_not_end_is_passed_on_in_pieces():
    """What is kept of it is bounded; the same for what only begins like a record."""
    lines = LabelledLines("worker 1")
    for chunk in (b"x" * 1000, record("a", "x" * 1000)):
        told = b"".join(line for _ in range(1000) for line in lines.feed(chunk))
        assert told.count(b"x") > 900_000
    told = b"".join(line for _ in range(100) for line in lines.feed(b"\x1e" + b"y" * 10_000))
    assert told.count(b"y") > 900_000


def test_unfinished_lines_of_very_many_commands_are_not_all_kept():
    lines = LabelledLines("worker 1")
    told = [line for number in range(1000) for line in lines.feed(record(f"c{number}", "half"))]
    assert len(told) > 700


def test_limited_skill_moves_no_terminal_and_takes_no_other_label() -> None:
    """It writes to the descriptor what it likes, also what looks like the record of another skill's call."""
    lines = LabelledLines("worker 7", limited="own")
    labels = (b"1" + NUMBER_END + b"other.run", b"1" + NUMBER_END + b"own.run", b"worker 8")
    records = b"".join(START + label + LABEL_END + b"x\x1b[2J\ry\n" + END for label in labels)

    told = lines.feed(records + b"\xc2\x9b2J\n")

    line = b"x\\x1b[2J\\ry\n"
    assert told == [b"[worker 7] " + line, b"[own.run] " + line, b"[worker 7] " + line, b"[worker 7] \\x9b2J\n"]
