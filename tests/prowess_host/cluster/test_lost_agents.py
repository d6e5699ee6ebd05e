"""Agents that die, and networks that are cut: each call is answered once, and nothing runs twice that must not."""

from __future__ import annotations

import asyncio
import collections
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from inside import Inside, inside
from patience import PATIENCE
from piped import result, until
from proxy import Proxy
from tests.prowess_host.cluster.failing import FailingEngine
from written import is_there, seen, touch, written

from prowess.settings.keys import HostSettings
from prowess.worker.messages import Kind
from prowess_host.cluster import agent as agents
from prowess_host.cluster import remote as remotes
from prowess_host.cluster.agent import Agent
from prowess_host.cluster.deadlines import RemoteDeadlines
from prowess_host.cluster.remote import RemoteWorker

Start = Callable[..., Awaitable[Agent]]
SKILL = """
    import asyncio, os, time
    from pathlib import Path
    from prowess import skill_command

    def note(mark, number):
        with open(mark, "a") as file:
            file.write(f"{number} {__file__}\\n")

    @skill_command
    def effect(mark: str, number: int = 0) -> int:
        note(mark, number)
        time.sleep(0.05)
        return number

    @skill_command(read_only=True)
    def look(mark: str, number: int = 0) -> int:
        note(mark, number)
        time.sleep(0.05)
        return number

    @skill_command
    def flood(mark: str) -> str:
        hold.raw(mark)
        for _ in range(300):
            print("x" * 100_000)
        return "done"

    @skill_command(timeout=3)
    def hold_briefly(mark: str) -> str:
        return hold.raw(mark)

    @skill_command
    def hold(mark: str) -> str:
        Path(mark + ".begun").touch()
        while not Path(mark + ".go").exists():
            time.sleep(0.01)
        note(mark, 0)
        return "held"
"""


@pytest.fixture
async def proxy(engine: Any) -> AsyncIterator[Proxy]:
    proxy = Proxy(engine.url)
    yield proxy
    await proxy.close()


@pytest.fixture
def own_engine(tmp_path: Path) -> Iterator[FailingEngine]:
    """A server that the test may kill."""
    with FailingEngine(tmp_path / "engine") as running:
        yield running


@pytest.fixture
def node(cluster_settings: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An agent in a process of its own."""
    command = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", "agent", "--slots", "2"]
    command += [word for key, value in cluster_settings.items() for word in ("--set", f"{key}={value}")]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "node")}
    (tmp_path / "nowhere").mkdir()
    process = subprocess.Popen([*command, "--project", str(tmp_path / "nowhere")], env=env, stdout=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait()


def lines(mark: Path) -> list[str]:
    return mark.read_text().splitlines() if mark.exists() else []


async def test_node_killed_in_the_middle_of_200_calls(
    start: Start, node: subprocess.Popen[bytes], env: dict[str, str], tmp_path: Path
) -> None:
    """Each is answered once. What may have taken effect is lost, and all else runs on the other agent."""
    root, mark = written(tmp_path / "p", jobs=SKILL), tmp_path / "mark"
    env = {**env, "PROWESS_CLUSTER__SILENCE": "3", "PROWESS_CLUSTER__WORKERS": "4", "PROWESS_THREADS": "8"}
    async with inside(root, env=env) as host:
        await host.call("jobs_look", mark=str(tmp_path / "first"))  # nobody else is there
        await start("other")
        calls = [
            host.start_call("jobs_look" if number % 2 else "jobs_effect", mark=str(mark), number=number)
            for number in range(200)
        ]
        await until(lambda: len(lines(mark)) > 30)
        node.send_signal(signal.SIGKILL)
        with anyio.fail_after(PATIENCE):
            answers = [await result(call) for call in calls]

    effects = collections.Counter(int(line.split()[0]) for line in lines(mark))
    lost = {number for number, answer in enumerate(answers) if answer["isError"]}
    for number, answer in enumerate(answers):
        text = answer["content"][0]["text"]
        if number not in lost:
            assert (str(number), True) == (text, effects[number] >= 1)
        else:
            assert "fell silent" in text
            assert ("Trying again is safe" in text) is bool(number % 2)
        if number % 2 == 0:
            assert effects[number] <= 1, "an effect was repeated"
    assert 0 < len(lost) < 150


async def test_network_that_is_cut_for_a_while_costs_no_call(
    start: Start, proxy: Proxy, env: dict[str, str], tmp_path: Path
) -> None:
    """What was said meanwhile on both sides arrives when it is mended."""
    agent = await start(url=await proxy.start())
    root, mark = written(tmp_path / "p", jobs=SKILL), tmp_path / "mark"
    async with inside(root, env={**env, "PROWESS_CLUSTER__SILENCE": "300"}) as host:
        held = host.start_call("jobs_hold", mark=str(mark))
        await until(lambda: is_there(mark, ".begun"))
        proxy.cut()
        await until(lambda: not agent.engine.up)
        others = [host.start_call("jobs_effect", mark=str(mark), number=number) for number in range(1, 20)]
        touch(mark, ".go")
        await until(lambda: lines(mark))
        proxy.mend()
        await until(lambda: agent.engine.up)

        assert "held" == (await result(held))["content"][0]["text"]
        assert [str(number) for number in range(1, 20)] == [
            (await result(other))["content"][0]["text"] for other in others
        ]
    assert list(range(20)) == sorted(int(line.split()[0]) for line in lines(mark))


async def test_network_that_stays_cut_ends_the_worker_on_both_sides(
    start: Start, proxy: Proxy, env: dict[str, str], tmp_path: Path
) -> None:
    """The call is answered, and its worker does nothing more."""
    agent = await start(url=await proxy.start())
    root, mark = written(tmp_path / "p", jobs=SKILL), tmp_path / "mark"
    async with inside(root, env={**env, "PROWESS_CLUSTER__SILENCE": "1"}) as host:
        held = host.start_call("jobs_hold", mark=str(mark))
        await until(lambda: is_there(mark, ".begun"))
        proxy.cut()
        text = (await result(held))["content"][0]["text"]
        assert "the agent one fell silent" in text
        assert "It may have taken effect" in text
        await until(lambda: not agent.tenants)
        touch(mark, ".go")
        proxy.mend()
        touch(mark)
        assert "3" == await host.text("jobs_effect", mark=str(tmp_path / "new"), number=3)
    assert [] == lines(mark)


async def test_agent_enforces_time_limits_while_its_network_is_cut(
    start: Start, proxy: Proxy, env: dict[str, str], tmp_path: Path
) -> None:
    """The host cannot say that a call has timed out, and would be given up only after five minutes."""
    agent = await start(url=await proxy.start())
    root, mark = written(tmp_path / "p", jobs=SKILL), tmp_path / "mark"
    async with inside(root, env={**env, "PROWESS_CLUSTER__SILENCE": "300"}) as host:
        await host.call("jobs_look", mark=str(tmp_path / "warm"))
        held = host.start_call("jobs_hold_briefly", mark=str(mark))
        await until(lambda: is_there(mark, ".begun"))
        proxy.cut()
        await until(lambda: not agent.tenants)
        assert "timed out after 3 s" in (await result(held))["content"][0]["text"]
        touch(mark, ".go")
        proxy.mend()
        assert "3" == await host.text("jobs_effect", mark=str(tmp_path / "new"), number=3)
    assert [] == lines(mark)


async def test_deadlines_of_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker ends if a call overran its time or goes on after it was cancelled, and other calls in it get the grace."""
    monkeypatch.setattr("prowess_host.cluster.deadlines._LATER", 0.0)
    host = HostSettings(cancel_grace=0.0, grace=0.0)
    killed, pinged = asyncio.Event(), asyncio.Event()

    def made() -> RemoteDeadlines:
        killed.clear()
        pinged.clear()
        return RemoteDeadlines(host, pinged.set, lambda _: killed.set(), asyncio.get_running_loop().time)

    with anyio.fail_after(PATIENCE):
        late = made()
        late.limit(1, 0.0)
        late.limit(2, 600.0)  # gets the grace
        await killed.wait()

        asking = made()
        asking.limit(1, 0.05)
        assert asking.from_worker(Kind.QUESTIONS, 1)
        asking.from_host(Kind.CANCEL, 2)
        await pinged.wait()  # the time of the call that waits for a person stands still
        assert not asking.from_worker(Kind.PONG, 0)
        assert not killed.is_set()
        asking.from_host(Kind.ANSWERS, 1)
        await killed.wait()

        lingering = made()
        lingering.from_host(Kind.PING, 0)
        assert lingering.from_worker(Kind.LINGERING, 1)
        await pinged.wait()
        assert lingering.from_worker(Kind.PONG, 1)  # for the host
        assert not lingering.from_worker(Kind.PONG, 1)
        await killed.wait()

        blocked = made()
        blocked.from_host(Kind.CANCEL, 1)
        await killed.wait()  # it does not answer

        ended = made()
        ended.limit(1, 600.0)
        ended.limit(2, 600.0)
        assert ended.from_worker(Kind.RESULT, 1)
        ended.close()
    assert not killed.is_set()


async def test_deadlines_of_an_agent_stand_still_while_its_worker_is_starved() -> None:
    """Neither is it asked, nor does the grace of its other calls pass."""
    killed, pinged, usable, reads = asyncio.Event(), asyncio.Event(), 0.0, 0

    def clock() -> float:
        nonlocal reads
        reads += 1
        return usable

    async def looked_again() -> None:
        before = reads
        await until(lambda: reads > before + 2)

    host = HostSettings(cancel_grace=0.0, grace=0.0)
    deadlines = RemoteDeadlines(host, pinged.set, lambda _: killed.set(), clock)
    deadlines.limit(1, 600.0)
    deadlines.from_host(Kind.CANCEL, 2)
    await looked_again()
    assert not pinged.is_set()
    usable += 10.0
    with anyio.fail_after(PATIENCE):
        await pinged.wait()
    await looked_again()
    assert not killed.is_set()
    usable += 10.0
    with anyio.fail_after(PATIENCE):
        await killed.wait()


async def test_agent_that_is_stopped_lets_calls_end_and_takes_no_more(
    start: Start, env: dict[str, str], tmp_path: Path
) -> None:
    """What has begun ends there; what has not goes to another agent; a second signal ends everything at once."""
    first = await start("first", **{"agent.drain": 600})
    root, mark, other = written(tmp_path / "p", jobs=SKILL), tmp_path / "mark", tmp_path / "other"
    env = {**env, "PROWESS_CLUSTER__WORKERS": "1", "PROWESS_THREADS": "1"}
    async with inside(root, env=env) as host:
        held = host.start_call("jobs_hold", mark=str(mark))
        await until(lambda: is_there(mark, ".begun"))
        waiting = [host.start_call("jobs_effect", mark=str(other), number=number) for number in range(3)]
        second = await start("second", **{"agent.drain": 600})
        first.stop()
        assert [0, 1, 2] == [int((await result(call))["content"][0]["text"]) for call in waiting]
        assert not is_there(mark)
        touch(mark, ".go")
        assert "held" == (await result(held))["content"][0]["text"]
        await until(lambda: not first.folder.exists())  # it has left

        again = host.start_call("jobs_hold", mark=str(tmp_path / "again"))
        await until(lambda: is_there(tmp_path / "again", ".begun"))
        second.stop()
        second.stop()
        assert "its agent ended" in (await result(again))["content"][0]["text"]
    assert all(str(second.cache) in line for line in lines(other))
    assert str(first.cache) in lines(mark)[0]


def give_up(host: Inside, agent: Agent) -> None:
    """Let a host believe that an agent has been silent for too long."""
    assert host.project.agents is not None
    host.project.agents._forget_agent(agent.id)
    for pool in host.project.workers.pools:
        for worker in pool.workers:
            if isinstance(worker.process, RemoteWorker) and worker.process._agent_id == agent.id:
                worker.process._lose()


async def test_two_agents_that_both_believe_they_have_a_call(
    start: Start, proxy: Proxy, env: dict[str, str], tmp_path: Path
) -> None:
    """The first one got it, and is not heard. The call runs elsewhere if it may, and the first answer counts for nothing."""
    first = await start("first", url=await proxy.start())
    root = written(tmp_path / "p", jobs=SKILL)
    env = {**env, "PROWESS_CLUSTER__SILENCE": str(PATIENCE), "PROWESS_CLUSTER__WORKERS": "1"}
    looked, done = tmp_path / "looked", tmp_path / "done"
    async with inside(root, env=env) as host:
        await host.call("jobs_look", mark=str(tmp_path / "warm"))
        second = await start("second")
        proxy.hush()
        look = host.start_call("jobs_look", mark=str(looked), number=1)
        effect = host.start_call("jobs_effect", mark=str(done), number=2)
        await until(lambda: lines(looked) and lines(done))
        give_up(host, first)
        assert "1" == (await result(look))["content"][0]["text"]
        answer = (await result(effect))["content"][0]["text"]
        assert "It may have taken effect" in answer
        await until(lambda: not first.tenants)  # it was told to end, or hears nothing of its host
        proxy.mend()
        await host.barrier()

    assert [True, True] == [any(str(agent.cache) in line for line in lines(looked)) for agent in (first, second)]
    assert 1 == len(lines(done))
    assert str(first.cache) in lines(done)[0]


async def test_agent_that_hears_nothing_ends_its_workers_and_nothing_runs_twice(
    start: Start, proxy: Proxy, env: dict[str, str], tmp_path: Path
) -> None:
    """Only one direction is cut. It has said last what it ended, so what it never got is certain, and moves."""
    first = await start("first", url=await proxy.start())
    root, mark, held = written(tmp_path / "p", jobs=SKILL), tmp_path / "mark", tmp_path / "held"
    env = {**env, "PROWESS_CLUSTER__SILENCE": "2", "PROWESS_CLUSTER__WORKERS": "1"}
    async with inside(root, env=env) as host:
        hold = host.start_call("jobs_hold", mark=str(held))
        await until(lambda: is_there(held, ".begun"))
        await start("second")
        proxy.deafen()
        effect = host.start_call("jobs_effect", mark=str(mark), number=2)
        assert "It may have taken effect" in (await result(hold))["content"][0]["text"]
        text = (await result(effect))["content"][0]["text"]
        await until(lambda: not first.tenants)
        proxy.mend()
        touch(held, ".go")
        await host.barrier()
    assert [] == lines(held)
    assert len(lines(mark)) == (text == "2")
    assert text == "2" or "It may have taken effect" in text


async def test_agent_that_was_stopped_for_a_while_runs_nothing_twice(
    start: Start, node: subprocess.Popen[bytes], env: dict[str, str], tmp_path: Path
) -> None:
    """It believes that it still has its workers, and goes on where it was stopped. Its host has given them up."""
    root, mark = written(tmp_path / "p", jobs=SKILL), tmp_path / "mark"
    env = {**env, "PROWESS_CLUSTER__SILENCE": "2", "PROWESS_CLUSTER__WORKERS": "1", "PROWESS_THREADS": "4"}
    async with inside(root, env=env) as host:
        await host.call("jobs_look", mark=str(tmp_path / "first"))
        (stopped,) = host.project.agents.seen
        await start("other")
        calls = [host.start_call("jobs_effect", mark=str(mark), number=number) for number in range(40)]
        await until(lambda: len(lines(mark)) > 5)
        node.send_signal(signal.SIGSTOP)
        answers = [await result(call) for call in calls]
        node.send_signal(signal.SIGCONT)
        await until(lambda: stopped in host.project.agents.seen and not host.project.agents.seen[stopped].busy)
    effects = collections.Counter(int(line.split()[0]) for line in lines(mark))
    for number, answer in enumerate(answers):
        text = answer["content"][0]["text"]
        assert (text, effects[number]) == (str(number), 1) or ("taken effect" in text and effects[number] <= 1)


def abroad(host: Inside) -> list[RemoteWorker]:
    """The workers of a host on agents."""
    workers = [worker.process for pool in host.project.workers.pools for worker in pool.workers]
    return [worker for worker in workers if isinstance(worker, RemoteWorker)]


@pytest.mark.parametrize("starts", [True, False])
async def test_agent_whose_answer_is_lost_runs_the_worker_or_leaves_it_to_another_one(
    start: Start, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, starts: bool
) -> None:
    """What its worker says arrives all the same. A call that has begun there stays there."""
    first = await start("first")
    publish = first.engine.publish

    def lose_answer(subject: str, data: bytes) -> None:
        if b"accepted" not in data:
            publish(subject, data)

    monkeypatch.setattr(first.engine, "publish", lose_answer)
    go, write = threading.Event(), agents.lay_out

    def fail(index: bytes, folder: Path, blob: Any) -> None:
        if folder.is_relative_to(first.cache):
            go.wait(PATIENCE)
            raise OSError("the disk is full")
        write(index, folder, blob)

    if not starts:
        monkeypatch.setattr(agents, "lay_out", fail)
    root, mark = written(tmp_path / "p", jobs=SKILL), tmp_path / "mark"
    async with inside(root, env={**env, "PROWESS_CLUSTER__WORKERS": "1"}) as host:
        monkeypatch.setattr(remotes, "_ANSWER", 1.0 if starts else PATIENCE)
        held = host.start_call("jobs_hold", mark=str(mark))
        (worker,) = await until(lambda: abroad(host))
        asking = worker._coming
        if not starts:
            await seen(host, await start("second"))
            go.set()
        await until(lambda: is_there(mark, ".begun"))
        await until(asking.done)  # it would end the worker
        touch(mark, ".go")
        assert "held" == (await result(held))["content"][0]["text"]
    assert 1 == len(lines(mark))


async def test_engine_that_is_killed_and_comes_back_costs_no_call_on_an_agent(
    start: Start, own_engine: FailingEngine, env: dict[str, str], tmp_path: Path
) -> None:
    """Calls that wait for it are told why, or arrive when it is back."""
    await start(url=own_engine.url)
    root, mark = written(tmp_path / "p", jobs=SKILL), tmp_path / "mark"
    env = {**env, "PROWESS_CLUSTER__URL": own_engine.url, "PROWESS_CLUSTER__SILENCE": "300"}
    async with inside(root, env=env) as host:
        engine = host.project.agents.engine
        held = host.start_call("jobs_hold", mark=str(mark))
        await until(lambda: is_there(mark, ".begun"))
        own_engine.kill()
        await until(lambda: not engine.up)
        late = host.start_call("jobs_effect", mark=str(mark), number=7)
        touch(mark, ".go")
        await until(lambda: lines(mark))
        own_engine.start()
        assert "held" == (await result(held))["content"][0]["text"]
        assert "7" == (await result(late))["content"][0]["text"]
    assert [0, 7] == [int(line.split()[0]) for line in lines(mark)]


async def test_call_that_never_left_the_host_may_be_tried_again(
    start: Start, own_engine: FailingEngine, env: dict[str, str], tmp_path: Path
) -> None:
    """The engine was gone already, so no agent can have begun it, whatever its hints are."""
    agent = await start(url=own_engine.url)
    root, mark = written(tmp_path / "p", jobs=SKILL), tmp_path / "mark"
    env = {**env, "PROWESS_CLUSTER__URL": own_engine.url, "PROWESS_CLUSTER__SILENCE": "2"}
    env["PROWESS_CLUSTER__PATIENCE"] = "0.2"
    async with inside(root, env=env) as host:
        await seen(host, agent)
        assert "1" == await host.text("jobs_effect", mark=str(mark), number=1)
        own_engine.kill()
        await until(lambda: not host.project.agents.engine.up)
        text = await host.text("jobs_effect", mark=str(mark), number=2)
        assert "It never began, so trying again is safe" in text
        assert "gone for" in text
    assert 1 == len(lines(mark))


async def test_agent_ends_the_workers_of_a_host_that_is_gone(start: Start, env: dict[str, str], tmp_path: Path) -> None:
    agent = await start()
    root, mark = written(tmp_path / "p", jobs=SKILL), tmp_path / "mark"
    async with inside(root, env={**env, "PROWESS_CLUSTER__SILENCE": "1"}) as host:
        held = host.start_call("jobs_hold", mark=str(mark))
        await until(lambda: is_there(mark, ".begun"))
        await host.project.agents.engine.close()  # as if the host were killed: nobody says goodbye
        await until(lambda: not agent.tenants)
        assert "fell silent" in (await result(held))["content"][0]["text"]
    touch(mark, ".go")
    await until(lambda: not list(agent.folder.iterdir()))
    assert [] == lines(mark)


async def test_slot_that_becomes_free_is_used(start: Start, env: dict[str, str], tmp_path: Path) -> None:
    """A host that finds all slots in use waits for one, within bounds."""
    agent = await start(**{"agent.slots": 1})
    first, second = written(tmp_path / "a", jobs=SKILL), written(tmp_path / "b", jobs=SKILL)
    mark = tmp_path / "mark"
    env = {**env, "PROWESS_CLUSTER__WORKERS": "1"}
    async with inside(second, env={**env, "PROWESS_CLUSTER__PATIENCE": str(PATIENCE)}) as waiting:
        async with inside(first, env=env) as host:
            held = host.start_call("jobs_hold", mark=str(mark))
            await until(lambda: is_there(mark, ".begun"))
            call = waiting.start_call("jobs_look", mark=str(mark), number=5)
            async with inside(first, env={**env, "PROWESS_CLUSTER__PATIENCE": "3"}) as hasty:
                await seen(hasty, agent)
                assert "slots" in await hasty.text("jobs_look", mark=str(mark), number=6)
            touch(mark, ".go")
            await result(held)
        assert "5" == (await result(call))["content"][0]["text"]


async def test_agent_keeps_little_while_its_network_is_cut(
    start: Start, proxy: Proxy, env: dict[str, str], tmp_path: Path
) -> None:
    """A worker that prints 30 MB waits for the network."""
    agent = await start(url=await proxy.start())
    root, mark = written(tmp_path / "p", jobs=SKILL), tmp_path / "mark"
    async with inside(root, env={**env, "PROWESS_CLUSTER__SILENCE": "300"}) as host:
        call = host.start_call("jobs_flood", mark=str(mark))
        await until(lambda: is_there(mark, ".begun"))
        (tenant,) = agent.tenants.values()
        proxy.cut()
        await until(lambda: not agent.engine.up)
        touch(mark, ".go")
        await until(lambda: tenant.stream.full)
        assert tenant.stream.size < 9_000_000
        proxy.mend()
        assert "done" == (await result(call))["content"][0]["text"]


async def test_slow_agent_gets_less(start: Start, env: dict[str, str], tmp_path: Path) -> None:
    """Run times of the same command are compared, and decide which worker gets a call."""
    first = await start("first", **{"agent.slots": 1})
    root, warm, mark = written(tmp_path / "p", jobs=SKILL), tmp_path / "warm", tmp_path / "mark"
    async with inside(root, env={**env, "PROWESS_CLUSTER__WORKERS": "2"}) as host:
        agents = host.project.agents
        await host.call("jobs_look", mark=str(warm))
        second = await start("second")
        await until(lambda: second.id in agents.seen)
        with anyio.fail_after(PATIENCE):
            while not any(str(second.cache) in line for line in lines(warm)):
                both = [host.start_call("jobs_look", mark=str(warm)) for _ in range(2)]
                for call in both:
                    await result(call)
        for _ in range(60):
            agents.slowness.note(second.id, "jobs.look", 0.05)
            agents.slowness.note(first.id, "jobs.look", 0.5)
        calls = [host.start_call("jobs_look", mark=str(mark), number=number) for number in range(30)]
        for call in calls:
            await result(call)
    assert sum(str(second.cache) in line for line in lines(mark)) > 20


NOTED = """
    from prowess import skill_command

    @skill_command(timeout=0.2)
    async def note(mark: str) -> None:
        open(mark, "a").close()

    @skill_command
    def say(text: str) -> str:
        return text
"""


async def test_call_that_times_out_while_its_agent_is_stopped_never_begins(
    node: subprocess.Popen[bytes], env: dict[str, str], tmp_path: Path
) -> None:
    """It arrives there long before its cancellation, since a large call was sent between them. What is not over runs."""
    root, mark = written(tmp_path / "p", jobs=NOTED), tmp_path / "mark"
    env = {**env, "PROWESS_CLUSTER__SILENCE": "5", "PROWESS_CLUSTER__WORKERS": "1", "PROWESS_THREADS": "4"}
    async with inside(root, env=env) as host:
        assert "x" == await host.text("jobs_say", text="x")
        (agent,) = host.project.agents.seen
        node.send_signal(signal.SIGSTOP)
        noted, large = host.start_call("jobs_note", mark=str(mark)), host.start_call("jobs_say", text="x" * 5_000_000)
        assert "timeout" == (await result(noted))["_meta"]["prowess/kind"]
        await until(lambda: host.project.agents.seen[agent].missed > 4)
        node.send_signal(signal.SIGCONT)
        assert not (await result(large))["isError"]
        assert "x" == await host.text("jobs_say", text="x")
    assert not mark.exists()
