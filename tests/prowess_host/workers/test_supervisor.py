"""Work is really stopped, a crash costs the calls it takes down and nothing else, and nobody starves."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from anyio import move_on_after
from inside import inside
from patience import PATIENCE
from piped import Hosts, hosted, make_project, processes, result, shared_hosts, until, write_skill
from tests.prowess_host.workers.supervised import SKILL, make, text

both = pytest.mark.usefixtures("board")


@pytest.fixture(scope="module")
async def hosts(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Hosts]:
    """For deaths: how processes end is seen with started ones."""
    async with shared_hosts(make(tmp_path_factory.mktemp("project")), warm="t_say") as hosts:
        yield hosts


@pytest.fixture(scope="module")
async def forked(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Hosts]:
    """For all else."""
    async with shared_hosts(make(tmp_path_factory.mktemp("project")), warm="t_say", forked=True) as hosts:
        yield hosts


async def kind(answer: asyncio.Future) -> str:
    failed = await result(answer)
    assert failed["isError"]
    return failed["_meta"]["prowess/kind"]


async def gone(pid: int) -> None:
    """Until no process of this id lives."""

    def ended() -> bool:
        try:
            return not Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):  # the latter if it ends while it is read
            return True

    await until(ended)


# Time


async def test_a_sync_command_out_of_time_never_does_what_it_was_about_to(tmp_path: Path):
    """It is answered at its time, and its worker is ended: a thread cannot be stopped otherwise."""
    async with inside(make(tmp_path)) as host:
        await host.text("t_say")  # the skill is imported before the time of the call runs
        await host.out_of_time("t_late", done=str(tmp_path / "done"))
        assert not (tmp_path / "done").exists()
        assert "x" == await host.text("t_say", text="x")


async def test_the_children_of_a_command_out_of_time_end_with_it(tmp_path: Path):
    async with inside(make(tmp_path)) as host:
        child = int(await host.text("t_have_child"))
        await host.out_of_time("t_wait_for_child")
        await gone(child)


async def test_an_async_command_out_of_time_is_cancelled_and_its_worker_stays(forked: Hosts, tmp_path: Path):
    async with forked() as host:
        old = await host.worker()
        assert "timeout" == await kind(host.start_call("t_late_async", done=str(tmp_path / "done")))
        assert str(old) == await host.text("t_worker")


@both
async def test_a_command_that_swallows_its_cancellation_is_ended_all_the_same(tmp_path: Path):
    """The host answers in its place, and ends its worker."""
    async with inside(make(tmp_path)) as host:
        await host.text("t_say")
        await host.out_of_time("t_stubborn", done=str(tmp_path / "done"))
        assert not (tmp_path / "done").exists()


@both
@pytest.mark.parametrize("name", ["t_block_late", "t_ponder"])
async def test_a_worker_that_is_stuck_is_answered_for_and_ended(tmp_path: Path, name: str):
    """Python code on the loop, or native code that holds the interpreter."""
    arguments = {"done": str(tmp_path / "done")} if name == "t_block_late" else {}
    async with inside(make(tmp_path)) as host:
        await host.text("t_say")
        await host.out_of_time(name, **arguments)
        assert not (tmp_path / "done").exists()


# Cancellation


async def test_a_cancelled_sync_command_has_a_moment_to_see_it(tmp_path: Path):
    """One that looks keeps its worker alive."""
    started = tmp_path / "started"
    async with hosted(make(tmp_path, f"[host]\ncancel_grace = {PATIENCE}\n"), forked=True) as host:
        await host.text("t_say")
        old = await host.worker()
        answer = host.start_call("t_obedient", started=str(started))
        await until(started.exists)
        host.cancel(answer)
        await until(lambda: not started.exists())
        assert str(old) == await host.text("t_worker")


async def test_a_cancelled_sync_command_that_does_not_look_is_ended(forked: Hosts, tmp_path: Path):
    started = tmp_path / "started"
    async with forked() as host:
        old = await host.worker()
        answer = host.start_call("t_sleep", seconds=600, started=str(started))
        await until(started.exists)
        host.cancel(answer)
        await gone(old)
        assert str(old) != await host.text("t_worker")


async def test_a_cancelled_async_command_that_blocks_is_ended(forked: Hosts, tmp_path: Path):
    """Although it was the only call, so that nothing else waits for the worker."""
    started = tmp_path / "started"
    async with forked() as host:
        old = await host.worker()
        answer = host.start_call("t_block", seconds=600, started=str(started))
        await until(started.exists)
        host.cancel(answer)
        await gone(old)
        assert "x" == await host.text("t_say", text="x")


@both
async def test_a_call_cancelled_while_its_worker_is_blocked_has_its_moment_too(tmp_path: Path):
    """What the worker says of cancelled calls counts once it has read of the last cancellation."""
    started, gate = [tmp_path / "1", tmp_path / "2", tmp_path / "blocked"], tmp_path / "gate"
    project = make(tmp_path, f"[host]\ncancel_grace = 0.1\nstall_limit = {PATIENCE}\n")
    async with inside(project) as host:
        waiting = [host.start_call("t_wait", started=str(file)) for file in started[:2]]
        await until(lambda: all(file.exists() for file in started[:2]))
        blocked = host.start_call("t_block_until", gate=str(gate), started=str(started[2]))
        await until(started[2].exists)
        [worker] = host.project.workers.pools.own.workers
        for call in waiting:
            host.cancel(call)
            await until(lambda: worker.questioned and not worker.questions)
        gate.touch()
        assert str(worker.process.pid) == await text(blocked)
        await until(lambda: not worker.may_linger)
        assert str(worker.process.pid) == await host.text("t_worker")


@both
async def test_other_calls_of_a_draining_worker_get_their_grace(tmp_path: Path):
    """A call that ends in time is answered."""
    started = [tmp_path / "1", tmp_path / "2"]
    async with hosted(make(tmp_path, f"[host]\ncancel_grace = 0.1\ngrace = {PATIENCE}\n"), forked=True) as host:
        await host.text("t_say")
        old = await host.worker()
        doomed = host.start_call("t_sleep", seconds=600, started=str(started[0]))
        short = host.start_call("t_hold", gate=str(tmp_path / "gate"), started=str(started[1]))
        await until(lambda: all(file.exists() for file in started))
        host.cancel(doomed)
        await until(lambda: len(host.workers()) == 2)
        (tmp_path / "gate").touch()
        assert str(old) == await text(short)
        assert str(old) != await host.text("t_worker")


@both
async def test_calls_of_a_draining_worker_that_outlast_their_grace_are_lost(forked: Hosts, tmp_path: Path):
    """With advice."""
    started = [tmp_path / "1", tmp_path / "2"]
    async with forked() as host:
        doomed, long = [host.start_call("t_sleep", seconds=600, started=str(file)) for file in started]
        await until(lambda: all(file.exists() for file in started))
        host.cancel(doomed)
        assert "check before trying again" in await text(long)


# Deaths


@both
@pytest.mark.parametrize("how", ["exit", "segfault", "kill"])
async def test_a_death_costs_the_calls_it_takes_down(hosts: Hosts, tmp_path: Path, how: str):
    """Each is answered, and the next call just works."""
    async with hosts() as host:
        beside = host.start_call("t_wait", started=str(tmp_path / "started"))
        await until((tmp_path / "started").exists)
        fatal = host.start_call("t_die", how=how)
        assert "worker_lost" == await kind(fatal)
        assert "worker_lost" == await kind(beside)
        assert "x" == await host.text("t_say", text="x")


async def test_a_call_that_waits_beside_deadly_ones_is_not_blamed(tmp_path: Path):
    """It is not given up because the calls beside it end one worker after another. It may begin beside the last one."""
    deadly = "@skill_command\nasync def die(gate: str) -> None:\n"
    deadly += "    while not os.path.exists(gate):\n        time.sleep(0.01)\n    os._exit(9)\n"
    say = "@skill_command\nasync def say(text: str) -> str:\n    return text\n"
    project = make_project(tmp_path, "[host]\nstall_limit = 1000\n", t=f"{deadly}{say}")
    async with inside(project) as host:
        assert "x" == await host.text("t_say", text="x")
        dying = [host.start_call("t_die", gate=str(tmp_path / "gate")) for _ in range(5)]
        waits = host.start_call("t_say", text="still there")
        (tmp_path / "gate").touch()
        assert ["worker_lost"] * 5 == [await kind(each) for each in dying]
        assert "never began" not in (await result(waits))["content"][0]["text"]


@both
async def test_the_advice_after_a_death_comes_from_the_hints(hosts: Hosts):
    async with hosts() as host:
        assert "Trying again is safe" in await host.text("t_die_reading")
        assert "check before trying again" in await host.text("t_die", how="exit")


async def test_a_worker_that_is_killed_while_idle_is_replaced(hosts: Hosts):
    async with hosts() as host:
        await host.tools()
        old = await host.worker()
        os.kill(old, signal.SIGKILL)
        await gone(old)
        assert "x" == await host.text("t_say", text="x")


@both
async def test_a_forked_child_does_not_hide_a_death(hosts: Hosts):
    """It holds the link open; the death watch goes by the process. The child goes as well."""
    async with hosts() as host:
        await host.tools()
        old = await host.worker()
        assert "worker_lost" == await kind(host.start_call("t_fork_and_die"))
        await until(lambda: old not in processes(host.mark))
        assert "x" == await host.text("t_say", text="x")
        await host.worker()


@both
async def test_calls_that_were_never_begun_move_when_a_worker_dies(tmp_path: Path):
    """A stopped worker begins nothing: its calls are run by the next one, without a word to the client."""
    async with hosted(make(tmp_path, "[host]\nstall_limit = 60\n"), forked=True) as host:
        await host.text("t_say")
        old = await host.worker()
        os.kill(old, signal.SIGSTOP)
        answers = [host.start_call("t_say", text=str(number)) for number in range(20)]
        await host.barrier()
        os.kill(old, signal.SIGKILL)
        assert [str(number) for number in range(20)] == [await text(answer) for answer in answers]


IMPORTED = """
    import os, time
    with open({notes!r}, "a") as file:
        file.write("{name} ")
    while os.environ.get("WAIT") and not os.path.exists({gate!r}):
        time.sleep(0.01)

    @skill_command
    def say() -> str:
        with open({runs!r}, "a") as file:
            file.write("{name} ")
        return {name!r}
"""


@both
async def test_calls_that_wait_for_imports_move_when_a_worker_is_killed(tmp_path: Path):
    """It has received them and not begun them: the next worker runs each, once."""
    notes, runs, gate = tmp_path / "notes", tmp_path / "runs", tmp_path / "gate"
    places = {"notes": str(notes), "runs": str(runs), "gate": str(gate)}
    project = make_project(tmp_path, "", **{name: IMPORTED.format(name=name, **places) for name in ("a", "b")})
    async with hosted(project, forked=True) as host:  # this one leaves a manifest
        await host.tools()
        await until(lambda: list((project / "cache").glob("manifests/*.json")))
    notes.unlink()
    async with hosted(project, env={"WAIT": "1"}, forked=True) as host:
        answers = [host.start_call("a_say"), host.start_call("b_say")]
        await until(lambda: notes.exists() and len(notes.read_text().split()) == 2)
        await host.barrier()
        (old,) = host.workers()
        os.kill(old, signal.SIGKILL)
        gate.touch()
        assert ["a", "b"] == [await text(answer) for answer in answers]
        assert ["a", "b"] == sorted(runs.read_text().split())


SLOW = """
    if os.environ.get("WAIT"):
        open({began!r}, "a").close()
    while os.environ.get("WAIT") and not os.path.exists({gate!r}):
        time.sleep(0.01)
    if os.environ.get("WAIT") and {deadly}:
        os.unlink({gate!r})
        os._exit(7)

    @skill_command
    def say() -> str:
        return "said"
"""


async def prepared(project: Path) -> None:
    """Leave a manifest, so that the next host imports nothing before the first call."""
    async with hosted(project, forked=True) as host:
        await host.tools()
        await until(lambda: list((project / "cache").glob("manifests/*.json")))


async def test_a_call_that_waits_for_an_import_survives_neighbours_that_end_their_workers(tmp_path: Path):
    """Nobody knows what ended the first one, so the next worker imports this skill alone."""
    began, gate = tmp_path / "began", tmp_path / "gate"
    project = make(tmp_path)
    write_skill(project, "u.py", SLOW.format(began=str(began), gate=str(gate), deadly=False))
    await prepared(project)
    async with hosted(project, env={"WAIT": "1"}, forked=True) as host:
        answer = host.start_call("u_say")
        await until(began.exists)
        for _ in range(5):
            assert "worker_lost" == await kind(host.start_call("t_die", how="exit"))
        gate.touch()
        assert "said" == await text(answer)
        assert "x" == await host.text("t_say", text="x")
        await until(lambda: len(host.workers()) == 1)


async def test_an_import_that_ends_workers_costs_its_neighbours_one(tmp_path: Path):
    began, gate, opened, first, second = (tmp_path / name for name in ("began", "gate", "opened", "first", "second"))
    project = make(tmp_path)
    write_skill(project, "u.py", SLOW.format(began=str(began), gate=str(gate), deadly=True))
    await prepared(project)
    async with hosted(project, env={"WAIT": "1"}, forked=True) as host:
        lost = host.start_call("t_hold", gate=str(opened), started=str(first))
        await until(first.exists)
        deadly = host.start_call("u_say")
        await until(began.exists)
        gate.touch()
        assert "worker_lost" == await kind(lost)
        held = host.start_call("t_hold", gate=str(opened), started=str(second))
        await until(second.exists)
        gate.touch()
        await asyncio.wait([held, deadly], return_when=asyncio.FIRST_COMPLETED)
        assert not held.done()
        assert "its worker ended (exit code 7) while it was loaded" in await text(deadly)
        opened.touch()
        assert not (await result(held))["isError"]


async def test_nothing_leaks_over_many_deaths(tmp_path: Path):
    """Descriptors, threads, processes."""
    rounds = 0
    async with hosted(make(tmp_path), forked=True) as host:
        await host.text("t_die", how="exit")
        await host.text("t_say")
        await host.worker()

        def held() -> tuple[int, int, int]:
            threads = int(Path(f"/proc/{host.pid}/status").read_text().split("Threads:")[1].split()[0])
            return len(list(Path(f"/proc/{host.pid}/fd").iterdir())), threads, len(processes(host.mark))

        async def leaked() -> bool:
            """Whether a few more deaths leave more behind."""
            before = held()
            deaths = 100 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 4
            for _ in range(deaths):
                assert "worker_lost" == await kind(host.start_call("t_die", how="exit"))
            await host.text("t_say")
            with move_on_after(PATIENCE / 20):
                await until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))
                return False
            return True

        # A busy machine makes the host's pool of threads grow up to its bound; what leaks grows every time.
        while await leaked():
            rounds += 1
            assert rounds < 5, held()


# Starving


@both
async def test_a_blocking_async_command_holds_up_nobody_else(forked: Hosts, tmp_path: Path):
    """Calls go to another worker, the list is answered at once, and the log names the command."""
    async with forked() as host:
        gate, started = tmp_path / "gate", tmp_path / "started"
        blocking = host.start_call("t_hold_loop", gate=str(gate), started=str(started))
        await until(started.exists)
        others = [host.start_call("t_say", text=str(number)) for number in range(5)]
        assert {} == await host.ask("ping")
        assert "t_say" in await host.tools()
        assert list("01234") == [await text(answer) for answer in others]
        assert not blocking.done()
        await host.heard("t.hold_loop blocks the event loop")
        await host.heard("the event loop is blocked at")
        gate.touch()
        old = int(await text(blocking))
        await gone(old)
        await host.worker()


@both
async def test_a_fresh_worker_that_blocks_holds_up_nobody_either(tmp_path: Path):
    """What waits for its skill to be loaded has not begun, so it can move."""
    armed, started, gate = (tmp_path / name for name in ("armed", "started", "gate"))
    wait = f"while os.path.exists({str(armed)!r}) and not os.path.exists({str(started)!r}):\n    time.sleep(0.01)\n"
    project = make(tmp_path)
    write_skill(project, "u.py", f"{wait}@skill_command\ndef say(text: str) -> str:\n    return text\n")
    async with hosted(project, forked=True) as host:
        await host.text("t_die", how="exit")
        armed.touch()
        blocking = host.start_call("t_hold_loop", gate=str(gate), started=str(started))
        assert "x" == await host.text("u_say", text="x")
        assert not blocking.done()
        gate.touch()
        await result(blocking)


@both
async def test_calls_that_waited_for_one_import_do_not_wait_for_each_other(tmp_path: Path):
    """Then one of them blocks the loop. What was finished before is answered, and what had not begun moves.

    Only a call that has begun may wait: its body cannot go on without the loop.
    """
    start, gate = tmp_path / "start", tmp_path / "gate"
    project = make(tmp_path)
    skill = project / "skills" / "t.py"
    skill.write_text(
        skill.read_text() + f"\nwhile os.environ.get('WAIT') and not os.path.exists({str(start)!r}):\n"
        "    time.sleep(0.01)\n"
    )
    async with inside(project) as host:  # this one leaves a manifest
        await host.text("t_say")
    async with inside(project, env={"WAIT": "1"}) as host:
        others = [host.start_call(name) for name in ("t_kept", "t_quick", "t_quick", "t_kept")]
        blocked = host.start_call("t_hold_loop", gate=str(gate))
        await host.barrier()
        start.touch()
        running = host.project.workers._running
        await until(lambda: all(worker.process.has_begun(job.number) for job, worker in running.items()))
        assert not blocked.done()
        gate.touch()
        answers = [await result(other) for other in (*others, blocked)]
        assert [False] * 5 == [answer["isError"] for answer in answers]


async def test_two_hundred_sleepers_starve_nobody(forked: Hosts, tmp_path: Path):
    """Each has a thread of its own."""
    async with forked() as host:
        sleepers = [host.start_call("t_hold", gate=str(tmp_path / "gate")) for _ in range(200)]
        assert "x" == await host.text("t_say", text="x")
        assert not any(sleeper.done() for sleeper in sleepers)
        (tmp_path / "gate").touch()
        assert 200 == len([await text(sleeper) for sleeper in sleepers])


async def test_no_spare_is_left_behind(tmp_path: Path):
    """A worker that was started ahead in vain goes again."""
    project = make_project(tmp_path, f"timeout = {PATIENCE}\n[host]\nstall_limit = 0.4\n", t=SKILL)
    async with inside(project) as host:
        answer = host.start_call("t_hold", gate=str(tmp_path / "gate"), started=str(tmp_path / "started"))
        await until((tmp_path / "started").exists)
        (worker,) = host.project.workers.pools.own.active
        for job in worker.jobs.values():
            job.due -= PATIENCE / 2 + 1  # more than half of its time has passed
        await until(lambda: len(host.workers()) == 2)
        (tmp_path / "gate").touch()
        await text(answer)
        await host.worker()


@both
async def test_concurrency_is_kept_across_generations(tmp_path: Path):
    """While the old worker runs two, the new one begins none."""
    log = tmp_path / "log"
    project = make(tmp_path)
    async with hosted(project, forked=True) as host:
        gate = tmp_path / "gate"
        first = [host.start_call("t_two", gate=str(gate), log=str(log)) for _ in range(2)]
        await until(lambda: log.exists() and log.read_text() == "++")
        write_skill(project, "u.py", "@skill_command\ndef new() -> None: ...\n")
        await host.noted("notifications/tools/list_changed")
        second = [host.start_call("t_two", gate=str(gate), log=str(log)) for _ in range(3)]
        await host.text("t_say")
        assert "++" == log.read_text()
        gate.touch()
        for answer in (*first, *second):
            await result(answer)
        depth = deepest = 0
        for sign in log.read_text():
            depth += 1 if sign == "+" else -1
            deepest = max(deepest, depth)
        assert (0, 2) == (depth, deepest)


async def test_concurrency_is_kept_beside_a_call_that_was_given_up_and_runs_on(tmp_path: Path):
    """Nobody waits for it, but until its worker is gone it still counts."""
    body = """
    @skill_command(concurrency=1)
    async def hog(log: str, seconds: float) -> str:
        first = os.path.exists(log)
        alive = first and os.path.exists(f"/proc/{open(log).read()}")
        if not first:
            open(log, "w").write(str(os.getpid()))
        time.sleep(seconds)
        return f"beside another one: {alive}"

    @skill_command
    def stay(log: str) -> None:
        open(log, "w").close()
        time.sleep(60)
    """
    log = tmp_path / "log"
    async with hosted(make_project(tmp_path, "[host]\nstall_limit = 0.3\ngrace = 1.0\n", t=body), forked=True) as host:
        host.start_call("t_stay", log=str(tmp_path / "other"))  # for its sake the worker gets its grace
        await until((tmp_path / "other").exists)
        stuck = host.start_call("t_hog", log=str(log), seconds=60)
        await until(lambda: log.exists() and log.read_text())
        host.cancel(stuck)
        assert "beside another one: False" == await host.text("t_hog", log=str(log), seconds=0)


LIMITED = """
    @skill_command(concurrency=1, timeout=0.5)
    def hog(log: str, gate: str) -> str:
        first = os.path.exists(log)
        beside = first and not os.path.exists(gate) and os.path.exists(f"/proc/{open(log).read()}")
        if not first:
            open(log, "w").write(str(os.getpid()))
            while not os.path.exists(gate):
                time.sleep(0.01)
        return f"beside another one: {beside}"

    @skill_command
    async def stay(log: str) -> None:
        open(log, "w").close()
        await asyncio.sleep(60)
"""


@pytest.mark.parametrize("ends", ["soon", "never"])
@pytest.mark.parametrize("ending", ["cancel", "timeout"])
async def test_concurrency_counts_a_thread_that_is_left_behind(tmp_path: Path, ending: str, ends: str):
    """Until it ends, or its worker. That the call was answered changes nothing."""
    log, gate = tmp_path / "log", tmp_path / "gate"
    settings = f"[host]\ncancel_grace = {60 if ends == 'soon' else 0.1}\ngrace = 1.0\n"
    body = LIMITED.replace("timeout=0.5", "timeout=60" if ending == "cancel" else "timeout=0.5")
    async with hosted(make_project(tmp_path, settings, t=body), forked=True) as host:
        host.start_call("t_stay", log=str(tmp_path / "other"))  # for its sake the worker gets its grace
        await until((tmp_path / "other").exists)
        first = host.start_call("t_hog", log=str(log), gate=str(gate))
        await until(lambda: log.exists() and log.read_text())
        if ending == "cancel":
            host.cancel(first)
        else:
            assert "timeout" == (await result(first))["_meta"]["prowess/kind"]
        while True:  # while it waits, its time may be up as well
            second = host.start_call("t_hog", log=str(log), gate=str(gate))
            if ends == "soon":
                await host.barrier()
                gate.touch()
            said = await text(second)
            if "timed out" not in said:
                break
        assert "beside another one: False" == said


async def test_the_word_timeout_in_metadata_of_an_author_is_no_timeout(tmp_path: Path):
    """Only after a call whose time was up may its thread run on."""
    body = """
    @skill_command(concurrency=1)
    def told(kind: str) -> dict:
        return {"content": [{"type": "text", "text": ""}], "isError": False, "_meta": {kind: "timeout"}}
    """
    async with inside(make_project(tmp_path, "[host]\ncancel_grace = 600\n", t=body)) as host:
        for kind, count in (("mine", 0), ("prowess/kind", 1)):
            assert {kind: "timeout"} == (await host.call("t_told", kind=kind))["_meta"]
            [worker] = host.project.workers.pools.own.workers
            assert count == len(worker.given_up)


class Slots:
    """The limits over all hosts: the calls that have a slot."""

    def __init__(self) -> None:
        self.taken: list[object] = []

    def admits(self, _contract: object, job: object) -> bool:
        self.taken.append(job)
        return True

    def over(self, _contract: object, job: object) -> None:
        self.taken.remove(job)


@pytest.mark.parametrize("ends", ["soon", "never"])
@pytest.mark.parametrize("ending", ["cancel", "timeout"])
async def test_call_that_is_over_for_its_caller_has_its_slot_until_its_thread_ends(
    tmp_path: Path, ending: str, ends: str
):
    """Or its worker: so long no other host may begin one. A call that ends as usual frees its slot at once."""
    log, gate = tmp_path / "log", tmp_path / "gate"
    settings = f"[host]\ncancel_grace = {60 if ends == 'soon' else 0.1}\n"
    body = LIMITED if ending == "timeout" else LIMITED.replace("0.5", "60")
    async with inside(make_project(tmp_path, settings, t=body)) as host:
        host.project.workers.admission.slots = slots = Slots()
        first = host.start_call("t_hog", log=str(log), gate=str(gate))
        if ending == "cancel":
            await until(lambda: log.exists() and log.read_text())
            host.cancel(first)
        else:
            assert "timeout" == (await result(first))["_meta"]["prowess/kind"]
        await host.barrier()
        if ends == "soon":
            assert 1 == len(slots.taken)
            gate.touch()
            [worker] = host.project.workers.pools.own.active
            while slots.taken:  # the host would ask after a minute
                worker.questions.insert(0, 0.0)
                await until(lambda: worker.questions[:1] != [0.0] and not worker.questioned)
        await until(lambda: not slots.taken)
        gate.touch()
        log.touch()
        assert "beside another one: False" == await host.text("t_hog", log=str(log), gate=str(gate))
        assert not slots.taken


async def test_a_pool_shares_calls_out(tmp_path: Path):
    """Several workers, and what is cached or limited sticks to one of them."""
    async with hosted(make(tmp_path, "[host]\nworkers = 2\n"), forked=True) as host:
        started = [tmp_path / str(number) for number in range(4)]
        answers = [host.start_call("t_hold", gate=str(tmp_path / "gate"), started=str(file)) for file in started]
        await until(lambda: all(file.exists() for file in started))
        (tmp_path / "gate").touch()
        assert [2, 2] == sorted(Counter([await text(answer) for answer in answers]).values())
