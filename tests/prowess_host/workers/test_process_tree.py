"""Whatever comes from a worker ends with it, wherever it hides, and with the host, however that goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from anyio import fail_after
from patience import PATIENCE
from piped import MARK, Client, hosted, make_project, until

from prowess_host.workers import process_tree

SKILL = """
    import signal
    from pathlib import Path

    def note(folder):
        Path(folder, str(os.getpid())).touch()

    def linger(folder):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        note(folder)
        while True:
            time.sleep(600)

    WAITING = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1], str(os.getpid())).touch(); time.sleep(600)"

    def start(folder, **options):
        subprocess.Popen([sys.executable, "-S", "-c", WAITING, folder], **options)

    def daemon(folder, env=None):
        if os.fork():
            return
        os.setsid()
        if os.fork():
            os._exit(0)
        os.execve(sys.executable, [sys.executable, "-S", "-c", WAITING, folder], os.environ if env is None else env)

    def daemon_in_steps(folder):
        if os.fork():
            return
        if os.fork():
            while not os.path.exists(os.path.join(folder, "..", "go")):
                time.sleep(0.01)
            os._exit(0)
        os.setsid()
        os.execve(sys.executable, [sys.executable, "-S", "-c", WAITING, folder], {})

    def escape(ways, folder):
        for how in ways.split(", "):
            escape_by(how, folder)
        note(folder)

    def escape_by(how, folder):
        if how == "session":
            os.setsid()
        elif how == "group":
            os.setpgid(0, 0)
        elif how == "fork":
            if not os.fork():
                os.setsid()
                linger(folder)
        elif how == "child session":
            start(folder, start_new_session=True)
        elif how == "bare child session":
            start(folder, start_new_session=True, env={})
        elif how == "daemon":
            daemon(folder)
        elif how == "bare daemon":
            daemon(folder, {})
        elif how == "bare daemon in steps":
            daemon_in_steps(folder)
        elif how == "all":
            start(folder, start_new_session=True)
            daemon(folder)
            os.setsid()
            start(folder)

    @skill_command
    async def block_loop(how: str, folder: str) -> str:
        escape(how, folder)
        linger(folder)

    @skill_command
    def block(how: str, folder: str) -> str:
        escape(how, folder)
        while True:
            time.sleep(600)

    @skill_command
    def leave_behind(how: str, folder: str) -> str:
        escape(how, folder)
        return "done"

    @skill_command
    def crash(how: str, folder: str) -> str:
        escape(how, folder)
        count = 3 if how == "all" else 1
        while len(os.listdir(folder)) < count:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    @skill_command
    def say() -> str:
        return str(os.getpid())
"""
COUNTS = {
    "session": 1,
    "group, fork": 2,
    "child session, daemon": 3,
    "bare child session": 2,
    "bare daemon": 2,
    "all": 4,
}
"""How a worker escapes, and how many processes there are then."""


def is_alive(pid: int) -> bool:
    """Whether a process is there, and is more than an entry in the table of processes."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_for_end(pids: Iterable[int]) -> None:
    """Return when all have ended: a killed process takes a moment."""
    pids = list(pids)
    latest = time.monotonic() + PATIENCE
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < latest, f"still alive: {alive}"
        time.sleep(0.01)


class Runaways:
    """The processes that a command started, each of which has left its number in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def pids(self) -> list[int]:
        return [int(file.name) for file in self.folder.iterdir()]

    async def started(self, count: int) -> None:
        await until(lambda: len(self.pids()) >= count)

    async def gone(self) -> None:
        await until(lambda: not [pid for pid in self.pids() if is_alive(pid)], PATIENCE)


@pytest.fixture
def runaways(tmp_path: Path) -> Iterator[Runaways]:
    found = Runaways(tmp_path / "pids")
    yield found
    for pid in found.pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def make(tmp_path: Path, settings: str = "[host]\ndrain = 0.5\ngrace = 0.5\n") -> Path:
    return make_project(tmp_path, settings, t=SKILL)


async def ended(host: Client) -> int:
    with fail_after(PATIENCE):
        return await host.process.wait()


@pytest.mark.parametrize(
    ("name", "how"), [*(("t_block", how) for how in COUNTS), ("t_block_loop", "session"), ("t_block_loop", "all")]
)
async def test_the_host_leaves_and_takes_everything_along(tmp_path: Path, runaways: Runaways, how: str, name: str):
    """At the end of input, with 0, although a worker has left its group and blocks."""
    async with hosted(make(tmp_path), forked="host") as host:
        answer = host.start_call(name, how=how, folder=str(runaways.folder))
        await runaways.started(COUNTS[how])
        host.close_input()
        assert 0 == await ended(host)
        await runaways.gone()
        assert (await answer)["result"]["isError"]


@pytest.mark.parametrize("how", [how for how in COUNTS if how != "bare daemon"])  # then nothing is left to tell it by
async def test_a_host_that_is_killed_takes_everything_along(tmp_path: Path, runaways: Runaways, how: str):
    async with hosted(make(tmp_path), forked="host") as host:
        host.start_call("t_block", how=how, folder=str(runaways.folder))
        await runaways.started(COUNTS[how])
        host.process.kill()
        assert -signal.SIGKILL == await ended(host)
        await runaways.gone()


@pytest.mark.parametrize("how", COUNTS)
async def test_a_cancelled_call_ends_with_all_it_started(tmp_path: Path, runaways: Runaways, how: str):
    """And the session goes on in another worker."""
    async with hosted(make(tmp_path), forked="host") as host:
        answer = host.start_call("t_block", how=how, folder=str(runaways.folder))
        await runaways.started(COUNTS[how])
        host.cancel(answer)
        await runaways.gone()
        assert int(await host.text("t_say")) not in runaways.pids()


async def test_an_orphan_does_not_come_from_a_worker_that_is_younger(tmp_path: Path, runaways: Runaways):
    """It has no mark, and lost its parent only when the other worker was there."""
    project = make(tmp_path)
    async with hosted(project, forked="host") as host:
        answer = host.start_call("t_block", how="bare daemon in steps", folder=str(runaways.folder))
        await runaways.started(2)
        skill = project / "skills/t.py"
        skill.write_text(skill.read_text() + "# changed\n")
        with fail_after(PATIENCE):
            while int(other := await host.text("t_say")) in runaways.pids():
                pass
        (tmp_path / "go").touch()
        await until(lambda: all(parent(pid) == host.pid for pid in runaways.pids()), PATIENCE)
        host.cancel(answer)
        await runaways.gone()
        assert other == await host.text("t_say")


@pytest.mark.parametrize("how", COUNTS)
async def test_a_worker_that_ends_by_itself_leaves_nothing_behind(tmp_path: Path, runaways: Runaways, how: str):
    """Its orphans are looked for, and are not left in the table of processes."""
    async with hosted(make(tmp_path), forked="host") as host:
        answer = host.start_call("t_crash", how=how, folder=str(runaways.folder))
        await runaways.started(1)
        assert (await answer)["result"]["isError"]
        await runaways.gone()
        await until(lambda: not [pid for pid in runaways.pids() if Path(f"/proc/{pid}").exists()], PATIENCE)
        assert int(await host.text("t_say")) not in runaways.pids()


@pytest.mark.parametrize("how", ["child session, daemon", "bare daemon"])
async def test_what_a_call_left_behind_lives_as_long_as_its_worker(tmp_path: Path, runaways: Runaways, how: str):
    async with hosted(make(tmp_path), forked="host") as host:
        arguments = {"how": how, "folder": str(runaways.folder)}
        assert "done" == await host.text("t_leave_behind", **arguments)
        await runaways.started(COUNTS[how])
        worker = int(await host.text("t_say"))
        left = [pid for pid in runaways.pids() if pid != worker]
        assert all(map(is_alive, left))
        assert 0 == await host.leave()
        await runaways.gone()


async def test_orphans_that_end_are_taken_note_of(tmp_path: Path, runaways: Runaways):
    """The host adopts them, so that the table of processes does not fill up."""
    async with hosted(make(tmp_path), forked="host") as host:
        await host.text("t_leave_behind", how="daemon", folder=str(runaways.folder))
        await runaways.started(2)
        worker = int(await host.text("t_say"))
        [orphan] = [pid for pid in runaways.pids() if pid != worker]
        os.kill(orphan, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{orphan}").exists(), PATIENCE)


async def test_a_second_signal_takes_everything_along(tmp_path: Path, runaways: Runaways):
    async with hosted(make(tmp_path, "[host]\ndrain = 600\n"), forked="host") as host:
        host.start_call("t_block_loop", how="all", folder=str(runaways.folder))
        await runaways.started(COUNTS["all"])
        for _ in range(1000):
            if host.process.returncode is not None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(host.pid, signal.SIGTERM)  # asyncio's own way may take the exit code
            await asyncio.sleep(0.05)
        assert 143 == await ended(host)
        await runaways.gone()


async def changed(project: Path, changes: str) -> Client:
    """A host in which something was changed by a line of Python."""
    script = f"import sys; {changes}; from prowess_host.cli.main import main; main(['host', '--project', sys.argv[1]])"
    mark = uuid.uuid4().hex
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, str(project)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, MARK: mark},
    )
    host = Client(process, "2025-11-25")
    host.mark = mark
    await host.open()
    return host


async def test_without_a_shell_nothing_is_different(tmp_path: Path, runaways: Runaways):
    """A container may have none."""
    shell = "from prowess_host.workers import process_tree; process_tree._SHELL = '/no/such/shell'"
    host = await changed(make(tmp_path), shell)
    host.start_call("t_block_loop", how="all", folder=str(runaways.folder))
    await runaways.started(COUNTS["all"])
    host.process.kill()
    await ended(host)
    await runaways.gone()
    await host.alone()


@pytest.mark.parametrize("how", ["bare child session", "bare daemon", "all"])
async def test_host_that_has_too_little_time_takes_everything_along(tmp_path: Path, runaways: Runaways, how: str):
    """As on a busy machine: its workers have not ended when it leaves."""
    host = await changed(make(tmp_path), "from prowess_host import project; project._CLOSING = 0.0")
    await host.call("t_leave_behind", how=how, folder=str(runaways.folder))
    await runaways.started(COUNTS[how])
    host.close_input()
    assert 0 == await ended(host)
    await runaways.gone()
    await host.alone()


# The parts


def sleeper(**options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], **options)  # type: ignore[call-overload]


def test_a_process_is_spared_if_its_id_is_somebody_elses_by_now():
    child = sleeper()
    try:
        process_tree.end(child.pid, lambda _: False)
        assert child.poll() is None
    finally:
        process_tree.end(child.pid)
    assert -signal.SIGKILL == child.wait(PATIENCE)
    process_tree.end(child.pid)  # of no effect


def test_where_processes_have_no_descriptors_ids_have_to_do(monkeypatch: pytest.MonkeyPatch):
    child = sleeper()
    with monkeypatch.context() as without:  # since Python 3.15, `wait` uses it as well
        without.delattr(os, "pidfd_open", raising=False)
        process_tree.end(child.pid)
    assert -signal.SIGKILL == child.wait(PATIENCE)


@pytest.mark.parametrize("lists", [True, False], ids=["by the kernel's lists", "by ps"])
def test_descendants_are_found(lists: bool, monkeypatch: pytest.MonkeyPatch):
    if not lists:
        monkeypatch.setattr(process_tree, "_has_lists", lambda: False)
    script = "sleep 600 & sh -c 'sleep 600 & echo $!; wait' & wait"
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        found = process_tree.descendants(parent.pid)
        assert (3, True) == (len(found), grandchild in found)
        process_tree.end_tree(parent.pid)
        parent.wait(PATIENCE)
    wait_for_end(found)


def test_children_are_listed_by_the_folder_of_each_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What was read below that of the process makes its end expensive. A thread that has ended may have left its number to another."""
    for thread, children in (("20", "1 2 "), ("21", "3"), ("22", "4")):
        (tmp_path / thread / "task" / thread).mkdir(parents=True)
        (tmp_path / thread / "task" / thread / "children").write_text(children)
    (tmp_path / "20/task/21").mkdir()
    monkeypatch.setattr(process_tree, "_PROC", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda _folder: ["20", "21", "22"])
        assert [1, 2, 3] == process_tree._children(20)


def test_where_nothing_tells_of_processes_nothing_is_found(monkeypatch: pytest.MonkeyPatch):
    """Neither /proc nor ps: what is known by its id or its group is ended all the same."""
    monkeypatch.setattr(process_tree, "_has_lists", lambda: False)
    monkeypatch.setattr(process_tree, "_PROC", "/no/such/proc")
    monkeypatch.setenv("PATH", "/no/such/folder")
    assert [] == process_tree.descendants(os.getpid())
    process_tree.end_everything_of("no such mark")


def test_marks_add_up(monkeypatch: pytest.MonkeyPatch):
    """A skill may start a host: its workers come from both."""
    monkeypatch.setenv(process_tree.MARK, "outer")
    assert "outer inner" == process_tree.marked_environment("inner")[process_tree.MARK]


def test_what_cannot_be_ended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    mark = uuid.uuid4().hex
    child = sleeper(env={**os.environ, process_tree.MARK: mark})
    monkeypatch.setattr(process_tree, "end", lambda *_: None)
    try:
        process_tree.end_everything_of(mark, 0.0)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def ignores(pid: int, number: signal.Signals) -> bool:
    """Whether a process has come so far as to ignore a signal."""
    rows = dict(row.split(":\t") for row in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(rows["SigIgn"], 16) >> (number - 1) & 1)


def start_guard(mark: str, tools: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", process_tree._GUARD, "guard", mark],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={"PATH": tools},
    )


@pytest.mark.parametrize("tools", ["/usr/bin:/bin", "/no/such/folder"], ids=["with grep", "without"])
async def test_the_guard_ends_what_bears_the_mark(tools: str):
    """Also where the shell has nothing but itself, and the worker's id never came."""
    mark = uuid.uuid4().hex
    child = sleeper(env={"LINES": "a\nb", process_tree.MARK: f"outer {mark}", "Z": "z"}, start_new_session=True)
    other = sleeper()
    guard = start_guard(mark, tools)
    try:
        assert guard.stdin is not None
        await until(lambda: ignores(guard.pid, signal.SIGTERM))
        guard.send_signal(signal.SIGTERM)
        assert child.poll() is None
        guard.stdin.close()
        assert -signal.SIGKILL == guard.wait(PATIENCE)
        assert -signal.SIGKILL == child.wait(PATIENCE)
        assert other.poll() is None
    finally:
        for process in (child, other, guard):
            process.kill()
            process.wait()


def test_a_command_from_the_shell_ends_what_it_started(tmp_path: Path, runaways: Runaways):
    """`prowess call` is a host as well."""
    command = [sys.executable, "-m", "prowess_host.cli", "call", "t.leave_behind", "--project", str(make(tmp_path))]
    told = json.dumps({"how": "all", "folder": str(runaways.folder)})
    script = "import sys; from prowess_host.cli.main import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", script, *command[3:], "--json", told], capture_output=True, timeout=PATIENCE, check=False
    )
    assert 0 == done.returncode, done.stderr
    wait_for_end(runaways.pids())
