"""What agents, hosts and an engine can do to each other if one of them is hostile, damaged or of another opinion. Costs 15 s."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from inside import inside
from patience import PATIENCE
from piped import result, until
from proxy import Proxy
from written import is_there, touch, written

from prowess.errors import SettingsError
from prowess.settings.settings import Settings
from prowess.skills.stamps import digest_of
from prowess.worker.messages import hello
from prowess_host.catalog.sources import Parts
from prowess_host.cluster import agent as agents_module
from prowess_host.cluster import code as codes
from prowess_host.cluster.agent import Agent, Blobs
from prowess_host.cluster.code import Damaged, Snapshots, digests_in, lay_out, within
from prowess_host.cluster.engine import EngineConnection, Message
from prowess_host.cluster.protocol import (
    WorkerMessage,
    agent_subject,
    beats_subject,
    blob_name,
    stream_subjects,
    who_subject,
)
from prowess_host.cluster.remote import Agents
from prowess_host.cluster.status import cluster_status
from prowess_host.cluster.streams import EngineStream
from prowess_host.workers.jobs import NEVER

Start = Callable[..., Awaitable[Agent]]
Connect = Callable[..., Awaitable[EngineConnection]]
SKILL = """
    import os, subprocess, time
    from pathlib import Path
    from prowess import Settings, skill_command

    @skill_command
    def at() -> str:
        return __file__

    @skill_command
    def run() -> str:
        return subprocess.run([Path(__file__).parent / "tool.sh"], capture_output=True, text=True).stdout

    @skill_command
    def secrets(settings: Settings) -> list:
        return [settings.get(key, None) for key in ("auth.token", "auth.state_key", "cluster.url", "api.key")]

    @skill_command(read_only=True)
    def hold(mark: str) -> str:
        Path(mark + ".begun").touch()
        while not Path(mark + ".go").exists():
            time.sleep(0.01)
        return "held"
"""


# --- code -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "0/../../x", "x/y", "0/a/../../../b", "."])
def test_path_that_leads_out_of_a_project_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a path within a project"):
        within(tmp_path, path)
    with pytest.raises(ValueError, match="is not a path within a project"):
        lay_out(json.dumps({path: digest_of(b"x")}).encode(), tmp_path, lambda _: b"x")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("index", [b"", b"[]", b'{"0/a": 1}', b'{"0/a": ["x"]}', b"\xff", b"3"])
def test_nonsense_is_no_index(index: bytes) -> None:
    with pytest.raises(ValueError):
        digests_in(index)


def test_executable_files_stay_executable_and_are_other_code(tmp_path: Path) -> None:
    """A skill may run a script of its folder."""
    root = written(tmp_path / "p", one=SKILL)
    script = root / "skills/tool.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    parts = Parts(root, (root / "skills",), (), (), ())
    before = Snapshots().take(parts)
    script.chmod(0o755)
    code = Snapshots().take(parts)
    assert before.digest != code.digest
    texts = {digest_of(path.read_bytes()): path.read_bytes() for path in (root / "skills").iterdir()}
    assert set(texts) == digests_in(code.index)
    lay_out(code.index, tmp_path / "there", texts.__getitem__)
    assert [False, True] == [os.access(tmp_path / "there/0/skills" / name, os.X_OK) for name in ("one.py", "tool.sh")]


def test_file_that_vanishes_while_code_is_read_is_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Editors write temporary files beside the real ones."""
    root = written(tmp_path / "p", one=SKILL)
    temporary = root / "skills/.one.py.swp"
    temporary.write_text("x")
    read = codes.read

    def meanwhile(path: str) -> bytes:
        temporary.unlink(missing_ok=True)
        return read(path)

    monkeypatch.setattr(codes, "read", meanwhile)
    assert ["0/skills/one.py"] == list(Snapshots().take(Parts(root, (root / "skills",), (), (), ())).files)


def test_damaged_files_of_the_cache_are_missing(tmp_path: Path) -> None:
    """A machine that loses power leaves empty files, and they must not stay for ever."""
    blobs = Blobs(tmp_path / "blobs")
    index = json.dumps({"0/a": digest_of(b"a")}).encode()
    blobs.keep(digest_of(index), index)
    blobs.keep(digest_of(b"a"), b"a")
    assert [] == blobs.missing(digest_of(index))
    (tmp_path / "blobs" / digest_of(b"a")).write_bytes(b"")
    with pytest.raises(Damaged) as damaged:
        lay_out(index, tmp_path / "there", blobs.read)
    blobs.drop(damaged.value.digest)
    assert [digest_of(b"a")] == blobs.missing(digest_of(index))
    (tmp_path / "blobs" / digest_of(index)).write_bytes(b"{}")
    assert [digest_of(index)] == blobs.missing(digest_of(index))


async def test_code_that_was_lost_or_damaged_on_the_way_is_brought_again(
    start: Start, connect: Connect, env: dict[str, str], tmp_path: Path
) -> None:
    """In the engine, where the host believes it to be, and in the cache of the agent. No call notices it."""
    first = await start("first")
    root = written(tmp_path / "p", jobs=SKILL)
    (root / "skills/tool.sh").write_text("#!/bin/sh\necho ran\n")
    (root / "skills/tool.sh").chmod(0o755)
    engine = await connect()
    async with inside(root, env=env) as host:
        assert "ran" in await host.text("jobs_run")
        code = await host.project.agents.snapshot()
        for digest in (code.digest, *digests_in(code.index)):
            await engine.store(blob_name(digest), b"something else", again=True)
        await first_leaves(first, host)
        second = await start("second")
        assert str(second.cache) in await host.text("jobs_at")
        for blob in (second.cache / "agent/blobs").iterdir():
            blob.write_bytes(b"")
        host.project.workers.pools.of(next(iter(places(host)))).renew()
        assert "ran" in await host.text("jobs_run")


async def first_leaves(agent: Agent, host: Any) -> None:
    agent.stop()
    await until(lambda: agent.id not in host.project.agents.seen)


def places(host: Any) -> list[Any]:
    return [pool.placement for pool in host.project.workers.pools if pool.placement.labels]


async def test_more_files_than_fit_into_an_answer_are_brought(
    start: Start, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents_module, "_MOST_NAMED", 0)
    agent = await start()
    async with inside(written(tmp_path / "p", jobs=SKILL), env=env) as host:
        assert str(agent.cache) in await host.text("jobs_at")


# --- orders ---------------------------------------------------------------------------------------


def order(code: str) -> dict[str, Any]:
    told = {"incarnation": os.urandom(8).hex(), "silence": 300.0, "code": code, "folders": ["0/skills"]}
    return {**hello(), **told, "approved": [], "environment": ""}


@pytest.mark.parametrize(
    "more",
    [
        {"folders": ["/tmp/evil"]},
        {"folders": ["0/../../evil"]},
        {"folders": 5},
        {"incarnation": "../../evil"},
        {"code": "../../evil"},
        {"silence": 0},
        {"silence": float("inf")},
        {"silence": "long"},
        {"silence": None},
    ],
)
async def test_order_that_no_host_makes_is_refused(start: Start, connect: Connect, more: dict[str, Any]) -> None:
    agent, engine = await start(), await connect()
    index = json.dumps({}).encode()
    agent.blobs.keep(digest_of(index), index)
    asked = json.dumps({**order(digest_of(index)), **more}).encode()
    answer = json.loads(await engine.request(agent_subject(engine, agent.id), asked, seconds=PATIENCE))
    assert "refused" in answer
    assert {} == agent.tenants


async def test_worker_that_cannot_be_started_frees_its_slot_and_an_order_counts_once(
    start: Start, connect: Connect
) -> None:
    agent, engine = await start(), await connect()
    index = json.dumps({"0/a": digest_of(b"a"), "0/a/b": digest_of(b"a")}).encode()  # a file is no folder
    for data in (index, b"a"):
        agent.blobs.keep(digest_of(data), data)
    asked = order(digest_of(index))
    own, other = stream_subjects(engine, asked["incarnation"])
    heard: list[tuple[int, bytes]] = []
    stream = EngineStream(
        engine, own=own, other=other, silence=300.0, on_message=lambda *it: heard.append(it), on_silence=lambda: None
    )
    stream.start()
    await engine.flush()
    subject = agent_subject(engine, agent.id)
    both = [json.loads(await engine.request(subject, json.dumps(asked).encode(), seconds=PATIENCE)) for _ in range(2)]
    assert {"accepted": True} == both[0]
    assert "ordered before" in both[1]["refused"]
    await until(lambda: heard)
    assert json.loads(heard[0][1])["refusal"]
    await until(lambda: not agent.tenants)
    await until(lambda: not list(agent.folder.iterdir()))
    stream.close()


def test_locked_agent_imports_from_approved_folders_alone(tmp_path: Path) -> None:
    """However a host writes the name of the setting."""
    tenant = agents_module._Tenant.__new__(agents_module._Tenant)
    tenant._order, tenant._folder = {"folders": ["0/skills"]}, tmp_path
    told = {"flags": {"skills": ["/evil"], "Skills": ["/evil"], "SKILLS": ["/evil"]}, "written": ["/evil", ""]}
    head = json.loads(tenant._approved(json.dumps({**told, "environ": {"PYTHONPATH": "/evil", "A": "b"}}).encode()))
    settings = Settings.load(tmp_path, environ={}, flags=head["flags"])
    assert (str(tmp_path / "0/skills"),) == settings.own.skills
    assert (None, {"A": "b"}) == (head["written"], head["environ"])


async def test_settings_about_serving_stay_on_the_host(start: Start, env: dict[str, str], tmp_path: Path) -> None:
    await start()
    root = written(tmp_path / "p", jobs=SKILL)
    (root / "prowess.toml").write_text(
        f'[auth]\ntoken = "{"s" * 32}"\nstate_key = "{"k" * 32}"\n[api]\nkey = "for skills"\n'
    )
    async with inside(root, env=env) as host:
        answer = await host.call("jobs_secrets")
    assert [None, None, None, "for skills"] == answer["structuredContent"]["result"]


# --- agents ---------------------------------------------------------------------------------------


def beat(**more: Any) -> bytes:
    told = {"id": os.urandom(8).hex(), "name": "x", "labels": ["any"], "slots": 1, "busy": 0, "processors": 2}
    return json.dumps({**told, **more}).encode()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"",
        b"[]",
        beat(id="x\r\nPUB a 0\r\n"),
        beat(id="*"),
        beat(name="\x1b[2J"),
        beat(labels=["a\nb"]),
        beat(processors="\x1b[2J"),
        beat(slots=-1, busy=-2),
        beat(slots=10**400),
        beat(slots=1e999),
        beat(labels=5),
    ],
)
async def test_heartbeat_that_no_agent_sends_is_no_agent(connect: Connect, nonsense: bytes) -> None:
    """Its id becomes part of a subject, its slots are numbers to calculate with, and people see the rest."""
    engine = await connect()
    agents = Agents(engine, lambda: Settings.of({}), lambda: Parts(Path(), (), (), (), ()))
    agents._on_heartbeat(Message(nonsense, ""))
    assert {} == agents.seen
    agents._on_heartbeat(Message(beat(), ""))
    assert 1 == len(agents.seen)
    agents.close()


async def test_looking_at_a_large_cluster_ends(connect: Connect, cluster_settings: dict[str, str]) -> None:
    """Its agents beat all the time."""
    engine = await connect()
    told = [beat() for _ in range(5)]
    over = False

    async def live() -> None:
        while not over:
            for each in told:
                engine.publish(beats_subject(engine), each)
                await anyio.sleep(0.05)

    async with anyio.create_task_group() as group:
        group.start_soon(live)
        with anyio.fail_after(PATIENCE):
            _, lines = await cluster_status(Settings.of(cluster_settings))
        over = True
    assert 6 == len(lines)


async def test_agents_whose_answers_a_slow_engine_passes_on_late_are_seen(
    connect: Connect, cluster_settings: dict[str, str]
) -> None:
    engine, proxy = await connect(), Proxy(cluster_settings["cluster.url"])

    def answer(_: Message) -> None:
        proxy.deafen()
        for each in [beat() for _ in range(5)]:
            engine.publish(beats_subject(engine), each)
        asyncio.get_running_loop().call_later(1.0, proxy.mend)

    engine.subscribe(who_subject(engine), answer)
    await engine.flush()
    with anyio.fail_after(PATIENCE):
        _, lines = await cluster_status(Settings.of({**cluster_settings, "cluster.url": await proxy.start()}))
    assert 6 == len(lines)
    await proxy.close()


@pytest.mark.parametrize("settings", [{"agent.labels": ["a b"]}, {"agent.labels": ["a,b"]}, {"agent.name": "a\tb"}])
async def test_label_that_nobody_can_ask_for_is_refused(
    connect: Connect, tmp_path: Path, settings: dict[str, Any]
) -> None:
    engine = await connect()
    with pytest.raises(SettingsError, match="must have no comma"):
        Agent(engine, Settings.of(settings), tmp_path)


def test_agent_says_that_it_cannot_reach_its_engine(tmp_path: Path) -> None:
    """A typing mistake in the address shows. Costs 3 s."""
    command = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", "agent", "--project"]
    words = [str(tmp_path), "--join", "nats://127.0.0.1:1"]
    with subprocess.Popen([*command, *words], env={**os.environ}, stdout=subprocess.PIPE, text=True) as running:
        said = [running.stdout.readline(), running.stdout.readline()]
        running.terminate()
    assert "Ctrl-C ends it" in said[0]
    assert "the engine at nats://127.0.0.1:1 is gone" in said[1]


@pytest.fixture
def other_agent(cluster_settings: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An agent in a process of its own, with settings in its environment."""
    told = {f"PROWESS_{name.replace('.', '__').upper()}": text for name, text in cluster_settings.items()}
    told |= {"PROWESS_API__KEY": "of the agent", "PROWESS_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", "agent", "--project"]
    agent = subprocess.Popen([*command, str(tmp_path)], env={**os.environ, **told}, stdout=subprocess.DEVNULL)
    yield agent
    agent.terminate()
    agent.wait()


@pytest.mark.usefixtures("other_agent")
async def test_settings_of_an_agent_are_none_of_its_workers(env: dict[str, str], tmp_path: Path) -> None:
    """A skill gets the same settings on every agent, and cannot read the credentials for the engine. Costs 3 s."""
    skill = """
        import os
        from prowess import Settings, skill_command

        @skill_command
        def told(settings: Settings) -> list:
            return [settings.get("api.key", None), sorted(name for name in os.environ if name.startswith("PROWESS_"))]
    """
    env = {**env, "PROWESS_CLUSTER__PATIENCE": str(PATIENCE)}
    async with inside(written(tmp_path / "p", jobs=skill), env=env) as host:
        answer = await host.call("jobs_told")
    assert [None, ["PROWESS_CACHE_DIR"]] == answer["structuredContent"]["result"]


class Impostor:
    """Says that it is an agent, accepts each worker, and tells its host something."""

    def __init__(self, engine: EngineConnection, *told: tuple[WorkerMessage, bytes]) -> None:
        self._engine, self._told = engine, told
        self.streams: list[EngineStream] = []
        self.id = os.urandom(8).hex()
        engine.subscribe(agent_subject(engine, self.id), self._ordered)
        engine.subscribe(who_subject(engine), lambda _: self._beat())
        self._beat()

    def leave(self) -> None:
        self._engine.publish(beats_subject(self._engine), beat(id=self.id, left=True))

    def _beat(self) -> None:
        self._engine.publish(beats_subject(self._engine), beat(id=self.id, slots=4, name="impostor"))

    def _ordered(self, message: Message) -> None:
        self._engine.publish(message.reply, b'{"accepted": true}')
        other, own = stream_subjects(self._engine, json.loads(message.data)["incarnation"])
        stream = EngineStream(
            self._engine, own=own, other=other, silence=300.0, on_message=lambda *_: None, on_silence=lambda: None
        )
        stream.start()
        for kind, data in self._told:
            stream.send(kind, data)
        self.streams.append(stream)


@pytest.mark.parametrize(
    "told",
    [
        (WorkerMessage.EXITED, b"nonsense"),
        (WorkerMessage.EXITED, b'{"code": "x", "reason": 5}'),
        (WorkerMessage.EXITED, b"[]"),
        (WorkerMessage.STARTED, b"{}"),
        (WorkerMessage.STARTED, b'{"pid": 1}'),
    ],
)
async def test_call_is_answered_whatever_an_agent_says(
    connect: Connect, env: dict[str, str], tmp_path: Path, told: tuple[WorkerMessage, bytes]
) -> None:
    engine = await connect()
    async with inside(written(tmp_path / "p", jobs=SKILL), env={**env, "PROWESS_CLUSTER__PATIENCE": "0.2"}) as host:
        impostor = Impostor(engine, told)
        await until(lambda: impostor.id in host.project.agents.seen)
        with anyio.fail_after(PATIENCE):
            assert "It never began" in await host.text("jobs_at")
        for stream in impostor.streams:
            stream.close()


async def test_timeout_counts_again_after_a_preparation_that_came_to_nothing(
    start: Start, connect: Connect, env: dict[str, str], tmp_path: Path
) -> None:
    """The clock of a call stands still while its worker is prepared, and must go on with the next worker."""
    engine = await connect()
    good = await start("good", **{"agent.slots": 1})
    env = {**env, "PROWESS_CLUSTER__WORKERS": "2", "PROWESS_CLUSTER__SILENCE": "300", "PROWESS_CLUSTER__PATIENCE": "0"}
    held, mark = tmp_path / "held", tmp_path / "mark"
    async with inside(written(tmp_path / "p", jobs=SKILL), env=env) as host:
        await until(lambda: good.id in host.project.agents.seen)
        first = host.start_call("jobs_hold", mark=str(held))
        await until(lambda: is_there(held, ".begun"))
        impostor = Impostor(engine, (WorkerMessage.PREPARING, b"for ever"))
        await until(lambda: impostor.id in host.project.agents.seen)
        call = host.start_call("jobs_hold", mark=str(mark))
        jobs = host.project.workers._jobs
        await until(lambda: any(job.due == NEVER for job in jobs()))
        impostor.leave()
        await until(lambda: impostor.id not in host.project.agents.seen)
        for stream in impostor.streams:
            stream.abandon()
        await until(lambda: is_there(mark, ".begun"))
        assert [True, True] == [job.due < NEVER for job in jobs()]
        for each in (held, mark):
            touch(each, ".go")
        for each in (first, call):
            assert "held" == (await result(each))["content"][0]["text"]
        for stream in impostor.streams:
            stream.close()
