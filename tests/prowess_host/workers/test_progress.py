"""A worker is judged by its own progress: a slow import is no stall, being starved is no stall, a blocked loop is one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from textwrap import indent

import pytest
from inside import inside
from piped import Client, Message, hosted, make_project, result, until, write_skill

from prowess.worker.progress import threads_of

HOLD = "import ctypes\nctypes.PyDLL(None).usleep({})\n"
"""An import that holds the interpreter, as loading a large native library does."""
HOLD_UNTIL = "import ctypes, os\nctypes.PyDLL(None).read(os.open({!r}, os.O_RDWR), ctypes.create_string_buffer(1), 1)\n"
"""The same until somebody writes to this pipe."""
SAY = "@skill_command\ndef say() -> str:\n    return {!r}\n"
NOTE = "with open({!r}, 'a') as file:\n    file.write('x')\n"


def body(word: str, notes: Path, head: str = "") -> str:
    """A skill that notes each import of it."""
    return NOTE.format(str(notes / word)) + head + SAY.format(word)


async def text(answer: asyncio.Future) -> str:
    return (await result(answer))["content"][0]["text"]


async def learned(project: Path, **env: str) -> None:
    """Leave a manifest, and no notes."""
    async with inside(project, env=env) as host:
        await host.tools()
        await until(lambda: list((project / "cache").glob("manifests/*.json")))
    for word in ("slow", "quick", "bad"):
        (project / "imported" / word).unlink(missing_ok=True)


def imports(project: Path, word: str) -> int:
    note = project / "imported" / word
    return len(note.read_text()) if note.exists() else 0


# Imports that hold the interpreter


def slow_project(tmp_path: Path, seconds: float, settings: str = "") -> Path:
    notes = tmp_path / "imported"
    notes.mkdir()
    skills = {"slow": body("slow", notes, HOLD.format(int(seconds * 1e6))), "quick": body("quick", notes)}
    return make_project(tmp_path, settings or "[host]\nstall_limit = 0.4\n", **skills)


async def test_a_slow_native_import_is_served_after_a_warm_start(tmp_path: Path, board: str):
    """By the worker that began it: it is imported once. Calls of other skills are answered meanwhile, elsewhere.

    Without shared memory, those that the worker already has can be taken back only after the import.
    """
    notes, gate = tmp_path / "imported", tmp_path / "gate"
    notes.mkdir()
    os.mkfifo(gate)
    hold = "if os.environ.get('WAIT'):\n" + indent(HOLD_UNTIL.format(str(gate)), "    ")
    skills = {"slow": body("slow", notes, hold), "quick": body("quick", notes)}
    project = make_project(tmp_path, "[host]\nstall_limit = 0.4\n", **skills)
    await learned(project)
    async with inside(project, env={"WAIT": "1"}) as host:
        assert "quick" == await host.text("quick_say")
        slow = host.start_call("slow_say")
        await until(lambda: imports(project, "slow"))
        others = [host.start_call("quick_say") for _ in range(5)]
        if board == "shared":
            assert ["quick"] * 5 == [await text(other) for other in others]
        await until(lambda: "the import of slow (" in host.stderr)
        gate.write_text("x")
        assert "slow" == await text(slow)
        assert ["quick"] * 5 == [await text(other) for other in others]
        assert "slow" == await host.text("slow_say")
        assert 1 == imports(project, "slow")
        assert "blocks the event loop" not in host.stderr
        await host.worker()  # the one that stood in has gone


async def test_a_slow_native_import_is_served_after_a_cold_start(tmp_path: Path):
    project = slow_project(tmp_path, 1)
    async with inside(project) as host:
        answers = [host.start_call(name) for name in ("slow_say", "quick_say", "slow_say")]
        assert ["slow", "quick", "slow"] == [await text(answer) for answer in answers]


async def test_an_import_that_outlasts_a_call_is_not_begun_again(tmp_path: Path):
    """Whoever calls next finds it done, or going on."""
    gate, notes = tmp_path / "gate", tmp_path / "imported"
    notes.mkdir()
    wait = f"if os.environ.get('WAIT'):\n    while not os.path.exists({str(gate)!r}):\n        time.sleep(0.01)\n"
    late = body("slow", notes, wait).replace("@skill_command\n", "@skill_command(timeout=0.3)\n")
    project = make_project(tmp_path, "[host]\ncancel_grace = 0.1\n", slow=late)
    await learned(project)
    async with inside(project, env={"WAIT": "1"}) as host:
        while not imports(project, "slow"):  # the first calls may be over before there is a worker
            assert "timed out" in await host.text("slow_say")
        for _ in range(2):
            assert "timed out" in await host.text("slow_say")
        gate.touch()
        while "slow" != (told := await host.text("slow_say")):
            assert "timed out" in told
        assert 1 == imports(project, "slow")


@pytest.mark.usefixtures("board")
@pytest.mark.parametrize("hang", [HOLD.format(600_000_000), "time.sleep(600)\n"], ids=["held", "asleep"])
async def test_an_import_over_its_limit_is_answered_by_name(tmp_path: Path, hang: str):
    """With the skill, the file and the setting; the calls of other skills do not notice."""
    notes = tmp_path / "imported"
    notes.mkdir()
    hanging = "if os.environ.get('HANG'):\n" + "".join(f"    {line}\n" for line in hang.splitlines())
    skills = {"slow": body("slow", notes, hanging), "quick": body("quick", notes)}
    project = make_project(tmp_path, "[host]\nstall_limit = 0.4\nimport_limit = 2\ngrace = 0.5\n", **skills)
    await learned(project)
    async with inside(project, env={"HANG": "1"}) as host:
        slow = host.start_call("slow_say")
        await until(lambda: imports(project, "slow"))
        assert "quick" == await host.text("quick_say")
        told = await text(slow)
        assert f"the import of slow ({project / 'skills/slow.py'}) takes more than 2 s" in told
        assert "host.import_limit" in told
        assert f"still importing slow ({project / 'skills/slow.py'}) after 0 s" in host.stderr
        assert "quick" == await host.text("quick_say")
        assert 1 == imports(project, "slow")


async def test_an_import_is_not_blamed_for_a_worker_that_somebody_killed(tmp_path: Path):
    """The call that waits for it moves, and the skill gets no pause."""
    notes, gate = tmp_path / "imported", tmp_path / "gate"
    notes.mkdir()
    wait = f"if os.environ.get('WAIT'):\n    while not os.path.exists({str(gate)!r}):\n        time.sleep(0.01)\n"
    project = make_project(tmp_path, slow=body("slow", notes, wait))
    await learned(project)
    async with inside(project, env={"WAIT": "1"}) as host:
        slow = host.start_call("slow_say")
        for times in (1, 2):
            await until(lambda times=times: imports(project, "slow") == times)
            for worker in host.workers():
                os.kill(worker, signal.SIGKILL)
        await until(lambda: imports(project, "slow") == 3)
        gate.touch()
        assert "slow" == await text(slow)


def held_up(folder: Path) -> dict[str, str]:
    """Skills of which one holds the interpreter while the first import of the other, which never ends, is under way."""
    wait = "if os.environ.get('WAIT'):\n    try:\n        os.mkdir({!r})\n    except FileExistsError:\n        pass\n"
    wait += "    else:\n        while True:\n            time.sleep(0.01)\n"
    hold = "import ctypes\nfrom pathlib import Path\n@skill_command\ndef hold() -> str:\n    Path({!r}).touch()\n"
    hold += "    while not Path({!r}).exists():\n        time.sleep(0.01)\n    Path({!r}).touch()\n"
    hold += "    ctypes.PyDLL(None).usleep(600_000_000)\n"
    names = [str(folder / name) for name in ("began", "go", "holds")]
    return {
        "slow": body("slow", folder / "imported", wait.format(str(folder / "first"))),
        "quick": body("quick", folder / "imported", hold.format(*names))
        + "@skill_command\nasync def wait() -> str:\n    await asyncio.sleep(3600)\n",
    }


async def hold_up(folder: Path, host: Client) -> asyncio.Future[Message]:
    """Let a call hold the interpreter of the worker that imports `slow`, and cancel it. Gives the call of `slow`."""
    held = host.start_call("quick_hold")  # before the import, since another worker would take it during that
    await until((folder / "began").exists)
    slow = host.start_call("slow_say")
    await until((folder / "first").exists)
    (folder / "go").touch()
    await until((folder / "holds").exists)
    host.cancel(held)
    return slow


async def test_a_call_that_holds_the_interpreter_does_not_pass_for_an_import(tmp_path: Path):
    """The import that it holds up is begun again in another worker, long before the import limit."""
    notes = tmp_path / "imported"
    notes.mkdir()
    project = make_project(
        tmp_path, "[host]\nstall_limit = 0.2\ncancel_grace = 0.1\ngrace = 0.1\n", **held_up(tmp_path)
    )
    await learned(project)
    async with inside(project, env={"WAIT": "1"}) as host:
        slow = await hold_up(tmp_path, host)
        assert "slow" == await text(slow)
        assert 2 == imports(project, "slow")


async def test_a_call_that_holds_the_interpreter_does_not_hide_behind_an_import_once_its_worker_is_replaced(
    tmp_path: Path,
):
    """The worker was asked before a save whether the call has ended, and still does not answer: its other calls are over."""
    (tmp_path / "imported").mkdir()
    settings = "[host]\nstall_limit = 0.4\ncancel_grace = 0.1\ngrace = 0.1\n"
    project = make_project(tmp_path, settings, **held_up(tmp_path))
    await learned(project)
    async with inside(project, env={"WAIT": "1"}) as host:
        waits = host.start_call("quick_wait")
        slow = await hold_up(tmp_path, host)
        await until(lambda: "the import of slow (" in host.stderr)
        write_skill(project, "quick.py", "@skill_command\ndef new() -> None: ...\n")
        assert "was lost" in await text(waits)
        assert "slow" == await text(slow)


async def test_an_import_over_its_limit_is_a_failure_of_the_catalog(tmp_path: Path):
    notes = tmp_path / "imported"
    notes.mkdir()
    skills = {"slow": body("slow", notes, HOLD.format(600_000_000)), "quick": body("quick", notes)}
    project = make_project(tmp_path, "[host]\nimport_limit = 2\ngrace = 0.5\n", **skills)
    async with inside(project) as host:
        assert {"quick_say", "prowess_diagnostics"} == set(await host.tools())
        assert "takes more than 2 s" in await host.text("prowess_diagnostics")
        assert "quick" == await host.text("quick_say")


async def test_an_import_that_every_worker_needs_is_waited_for(tmp_path: Path):
    """That of a skill with hooks: to move calls away from it would lead nowhere, and they do not move for ever."""
    notes = tmp_path / "imported"
    notes.mkdir()
    hook = "from prowess import hookimpl\n@hookimpl\ndef prowess_call_started(call): ...\n"
    skills = {"slow": body("slow", notes, hook + HOLD.format(1_500_000)), "quick": body("quick", notes)}
    project = make_project(tmp_path, "[host]\nstall_limit = 0.2\n", **skills)
    await learned(project)
    async with hosted(project) as host:
        answers = [host.start_call("quick_say") for _ in range(3)]
        assert ["quick"] * 3 == [await text(answer) for answer in answers]
        assert 2 >= imports(project, "slow")


async def test_a_worker_gets_time_to_answer_after_an_import(tmp_path: Path):
    """How long the import held the interpreter does not count for what follows."""
    notes = tmp_path / "imported"
    notes.mkdir()
    hook = "from prowess import hookimpl\n@hookimpl\ndef prowess_call_started(call): ...\n"
    wait = "\n@skill_command\nasync def wait() -> str:\n    time.sleep(0.4)\n    return 'waited'\n"
    skills = {"slow": body("slow", notes, hook + HOLD.format(2_000_000)), "quick": body("quick", notes) + wait}
    project = make_project(tmp_path, "[host]\nstall_limit = 1\n", **skills)
    await learned(project)
    async with inside(project) as host:
        assert "waited" == await host.text("quick_wait")
        assert "blocks the event loop" not in host.stderr


async def test_a_first_call_does_not_wait_for_the_import_of_another_skill(tmp_path: Path):
    """They are imported side by side, in one worker."""
    gate, notes = tmp_path / "gate", tmp_path / "imported"
    notes.mkdir()
    wait = f"if os.environ.get('WAIT'):\n    while not os.path.exists({str(gate)!r}):\n        time.sleep(0.01)\n"
    pid = "@skill_command\ndef pid() -> int:\n    return os.getpid()\n"
    project = make_project(tmp_path, "", slow=body("slow", notes, wait) + pid, quick=body("quick", notes) + pid)
    await learned(project)
    async with inside(project, env={"WAIT": "1"}) as host:
        slow = host.start_call("slow_pid")
        await until(lambda: imports(project, "slow"))
        quick = await host.text("quick_pid")
        assert not slow.done()
        gate.touch()
        assert quick == await text(slow)


async def test_a_skill_that_ends_its_worker_at_import_is_tried_again_with_pauses(tmp_path: Path):
    """Not with every call; and when it can be imported it is served."""
    notes, fatal = tmp_path / "imported", tmp_path / "fatal"
    notes.mkdir()
    die = f"if os.path.exists({str(fatal)!r}):\n    os._exit(5)\n"
    project = make_project(tmp_path, "", bad=body("bad", notes, die))
    await learned(project)
    fatal.touch()
    async with inside(project) as host:
        while "it is tried again in" not in (told := await host.text("bad_say")):
            assert "ended" in told
        assert "the import of bad" in told
        fatal.unlink()
        while "bad" != (told := await host.text("bad_say")):
            assert "it is tried again in" in told
            await asyncio.sleep(0.01)  # it is a matter of seconds, which nothing announces
        assert 3 >= imports(project, "bad")


# Starving


@contextlib.contextmanager
def every_core_busy(nice: int) -> Generator[None]:
    """Two processes on each core that want all of it."""
    code = f"import os\nos.nice({nice})\nprint('', flush=True)\nwhile True: pass\n"
    spinning = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        for _ in range(2 * len(os.sched_getaffinity(0)))
    ]
    try:
        for process in spinning:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in spinning:
            process.kill()
            process.communicate()


def tasks(pid: int) -> list[int]:
    """The threads of a process."""
    return [int(folder.name) for folder in Path(f"/proc/{pid}/task").iterdir()]


@contextlib.contextmanager
def starved(pid: int) -> Generator[None]:
    """A process gets what is left of one core, where another process wants all of it: next to nothing."""
    cores = os.sched_getaffinity(0)
    core = {min(cores)}
    schedule(pid, core, os.SCHED_IDLE)
    code = f"import os\nos.sched_setaffinity(0, {core})\nprint('', flush=True)\nwhile True: pass\n"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as spinning:
        try:
            assert spinning.stdout is not None
            spinning.stdout.readline()
            yield
        finally:
            spinning.kill()
            with contextlib.suppress(PermissionError):  # of users who may not take back what they gave away
                schedule(pid, cores, os.SCHED_OTHER)  # else it might never get to its end on a busy machine


def schedule(pid: int, cores: set[int], policy: int) -> None:
    """Where, and how urgently, the threads of a process run."""
    for task in tasks(pid):
        os.sched_setaffinity(task, cores)
        os.sched_setscheduler(task, policy, os.sched_param(0))


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this system does not tell who was starved")
async def test_a_worker_that_is_starved_is_not_stalled(tmp_path: Path):
    """Whatever it waits for a processor: many times as long as the stall limit here. The same worker answers in the end."""
    pid = "@skill_command\nasync def pid() -> int:\n    return os.getpid()\n"
    async with inside(make_project(tmp_path, "[host]\nstall_limit = 0.2\n", t=pid)) as host:
        first = await host.text("t_pid")

        def waited() -> float:
            """Seconds in the queue for a processor."""
            return max(thread.waited for thread in (threads_of(int(first)) or {}).values())

        before = waited()
        with starved(int(first)):
            while waited() - before < 10 * 0.2:
                assert first == await host.text("t_pid")
        assert "blocks the event loop" not in host.stderr
        assert "the event loop is blocked" not in host.stderr


BLOCKS = """
    @skill_command
    async def spin(gate: str) -> None:
        while not os.path.exists(gate):
            pass

    @skill_command
    async def sleep(gate: str) -> None:
        while not os.path.exists(gate):
            time.sleep(0.05)

    @skill_command
    def native(gate: str) -> None:
        import ctypes
        usleep = ctypes.PyDLL(None).usleep
        usleep(600_000_000)

    @skill_command
    def say() -> str:
        return "x"
"""


@pytest.mark.parametrize(("how", "busy"), [("spin", False), ("sleep", False), ("native", False), ("spin", True)])
async def test_a_blocked_worker_is_found(tmp_path: Path, how: str, busy: bool):
    """Python code, a wait in the system, or native code that holds the interpreter; on a busy machine as well."""
    gate = tmp_path / "gate"
    async with inside(make_project(tmp_path, "[host]\nstall_limit = 0.4\n", t=BLOCKS)) as host:
        await host.text("t_say")
        with every_core_busy(0) if busy else contextlib.nullcontext():
            blocking = host.start_call(f"t_{how}", gate=str(gate))
            await host.heard(f"t.{how} blocks the event loop of worker")
            assert "x" == await host.text("t_say")
        gate.touch()
        if how != "native":  # which ends with its worker
            await result(blocking)
