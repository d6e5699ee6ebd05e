"""Commands that run on agents: whatever is promised of a call holds there as well."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from inside import inside
from locked import is_waited_for
from parallel import folder_of_all
from patience import PATIENCE
from piped import result, until
from wheelhouse import cache_in, shared
from written import is_there, seen, touch, written

from prowess.settings.limits import Limits
from prowess.settings.settings import Settings
from prowess.skills.discovery import Source
from prowess_host.catalog.labels import labels_of_skill
from prowess_host.cli.commands import run
from prowess_host.cluster import agent as agents
from prowess_host.cluster import remote
from prowess_host.cluster.agent import Agent, claim
from prowess_host.cluster.code import APPROVED, Unapproved, check_approved, new_key, sign
from prowess_host.cluster.engine import EngineConnection
from prowess_host.cluster.status import cluster_status
from prowess_host.confinement.confine import system
from prowess_host.doctor.checks import examine_cluster
from prowess_host.workers.placement import Placement


def free_port() -> int:
    """A port that stays free until it is used: the system gives those from 32768 on to whoever connects somewhere."""
    while True:
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
            return free.getsockname()[1]


Start = Callable[..., Awaitable[Agent]]
PLACES = """
    import asyncio, os, time
    from pathlib import Path
    from prowess import Context, Settings, skill_command
    from .words import WORD

    @skill_command
    def where() -> dict:
        print("looking around")
        return {"pid": os.getpid(), "at": __file__, "word": WORD}

    @skill_command(timeout=1)
    def oversleep(mark: str) -> str:
        Path(mark + ".begun").touch()
        time.sleep(6)
        touch(mark)
        return "awake"

    @skill_command
    def hold(mark: str) -> str:
        Path(mark + ".begun").touch()
        while not Path(mark + ".go").exists():
            time.sleep(0.01)
        with open(mark, "a") as file:
            file.write("once\\n")
        return "held"

    @skill_command
    async def ask(ctx: Context) -> str:
        ctx.progress(1, 2, "half way")
        answer = await ctx.ask("name", "Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return answer.content["name"]

    @skill_command(inject_settings=["api.key", "env:FROM_DOTENV"], inject_root=True)
    def told(api_key: str, from_dotenv: str, project_root: Path, settings: Settings) -> list:
        data = (project_root / "data.txt").read_text()
        return [api_key, from_dotenv, data, os.environ["FROM_DOTENV"], settings.get("python", None)]

    @skill_command
    def crash() -> str:
        os._exit(3)

    @skill_command
    def large(size: int) -> str:
        return "x" * size
"""
WORDS = "WORD = 'first'\n"


def project(folder: Path) -> Path:
    root = written(folder / "project", places=PLACES, words=WORDS)
    (root / "prowess.toml").write_text(
        'python = "%s"\ncluster.files = ["data.txt"]\n[api]\nkey = "secret"\n' % sys.executable
    )
    (root / ".env").write_text("FROM_DOTENV=dotenv\n")
    (root / "data.txt").write_text("data")
    return root


async def until_said(host: Any, command: str, words: str) -> None:
    """Call a command until it says this: a save counts as soon as it is noticed."""
    with anyio.fail_after(PATIENCE):
        while words not in await host.text(command):  # noqa: ASYNC110 - there is no event on this side
            await anyio.sleep(0.05)


async def test_agents_that_start_together_keep_their_folders(tmp_path: Path) -> None:
    """A folder without a lock is that of a killed agent, unless it is only about to be locked."""
    running = tmp_path / "running"
    (running / "killed").mkdir(parents=True)
    starting = os.open(running, os.O_RDONLY)  # another one, which sweeps now
    try:
        fcntl.flock(starting, fcntl.LOCK_EX)
        claiming = asyncio.create_task(asyncio.to_thread(claim, running / "a"))
        await until(lambda: is_waited_for(running) or claiming.done())
        assert ["killed"] == [each.name for each in running.iterdir()]
    finally:
        os.close(starting)
    first = await claiming
    second = claim(running / "b")
    assert {"a", "b"} == {each.name for each in running.iterdir()}
    os.close(first)
    os.close(second)


async def test_agent_removes_old_files_from_its_cache_for_as_long_as_it_runs(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may run for years, and a host that needs such a file sends it again."""
    monkeypatch.setattr(agents, "_CLEANED", 0.0)
    agent = await start()
    new, old = (agent.cache / "agent" / "blobs" / name for name in ("new", "old"))
    new.parent.mkdir(parents=True)
    for file in (new, old):
        file.touch()
    os.utime(old, (0, 0))
    await until(lambda: not old.exists())
    assert new.exists()


async def test_call_is_answered_by_a_worker_on_an_agent(start: Start, env: dict[str, str], tmp_path: Path) -> None:
    agent = await start()
    async with inside(project(tmp_path), env=env) as host:
        answer = await host.call("places_where")

    assert str(agent.cache) in answer["structuredContent"]["at"]


async def test_everything_promised_of_a_call_holds_on_an_agent(
    start: Start, env: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Timeouts and cancellations kill, and progress, questions, prints, settings, files and crashes arrive."""
    await start()
    mark = tmp_path / "mark"
    printed = ""
    async with inside(project(tmp_path), env=env, capabilities={"elicitation": {}}) as host:
        assert "first" == (await host.call("places_where"))["structuredContent"]["word"]
        assert ["secret", "dotenv", "data", "dotenv", None] == (await host.call("places_told"))["structuredContent"][
            "result"
        ]

        asking = host.start_call("places_ask", progress="p")
        question = await host.question()
        host.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}})
        assert "Ada" == (await result(asking))["content"][0]["text"]
        assert "half way" == (await host.noted("notifications/progress"))["params"]["message"]

        assert 3_000_000 == len((await host.call("places_large", size=3_000_000))["content"][0]["text"])

        assert "timed out after 1 s" in await host.text("places_oversleep", mark=str(mark))
        other = tmp_path / "other"
        given_up = host.start_call("places_hold", mark=str(other))
        await until(lambda: is_there(other, ".begun"))
        host.cancel(given_up)
        assert "exit code 3" in await host.text("places_crash")
        pids = [worker.process.pid for pool in host.project.workers.pools for worker in pool.workers]
        assert "first" == (await host.call("places_where"))["structuredContent"]["word"]
    touch(other, ".go")
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids if pid))
    assert not mark.exists()
    assert not other.exists()
    printed = capfd.readouterr().err
    assert "[places.where] looking around" in printed


async def test_no_path_of_the_host_reaches_an_agent(
    start: Start, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with the code, nor with the order, nor with what the worker is told."""
    await start()
    root = project(tmp_path)
    (root / "skills/places.py").write_text((root / "skills/places.py").read_text() + "\n# saved\n")
    said: list[bytes] = []
    publish, store = EngineConnection.publish, EngineConnection.store

    def publishing(self: EngineConnection, subject: str, data: bytes, **more: Any) -> None:
        if self is host.project.agents.engine:
            said.append(data)
        publish(self, subject, data, **more)

    async def storing(self: EngineConnection, name: str, data: bytes, **more: Any) -> None:
        said.append(name.encode() + data)
        await store(self, name, data, **more)

    async with inside(root, env=env) as host:
        monkeypatch.setattr(EngineConnection, "publish", publishing)
        monkeypatch.setattr(EngineConnection, "store", storing)
        assert "first" == (await host.call("places_where"))["structuredContent"]["word"]
        (root / "skills/words.py").write_text("WORD = \n")
        await host.heard("SyntaxError")
        assert "first" == (await host.call("places_where"))["structuredContent"]["word"]
    assert len(said) > 10
    assert [] == [data for data in said if str(root).encode() in data]


async def test_saved_file_is_there_at_the_next_call_and_a_broken_one_keeps_its_last_good_version(
    start: Start, env: dict[str, str], tmp_path: Path
) -> None:
    await start()
    root = project(tmp_path)

    async def word() -> str:
        return (await host.call("places_where"))["structuredContent"]["word"]

    async with inside(root, env=env) as host:
        assert "first" == await word()
        (root / "skills/words.py").write_text("WORD = 'second'\n")
        await until_said(host, "places_where", "second")
        (root / "skills/words.py").write_text("WORD = \n")
        await host.heard("SyntaxError")
        for _ in range(3):
            assert "second" == await word()


async def test_labels_choose_the_agent_and_a_missing_one_is_told_in_time(
    start: Start, env: dict[str, str], tmp_path: Path
) -> None:
    agent, other = await start("big", **{"agent.labels": ["gpu"]}), await start("small")
    skill = "from prowess import skill_command\n"
    for label in ("gpu", "tpu", ""):
        skill += f"@skill_command(run_on={label!r})\ndef on_{label}() -> str:\n    return __file__\n"
    env = {**env, "PROWESS_RUN_ON": "{}", "PROWESS_CLUSTER__PATIENCE": "0.2"}
    async with inside(written(tmp_path / "p", labels=skill), env=env) as host:
        await seen(host, agent, other)
        assert str(agent.cache) in await host.text("labels_on_gpu")
        assert str(tmp_path / "p" / "skills") in await host.text("labels_on_")
        refused = await host.text("labels_on_tpu")
        assert "no agent has the labels tpu" in refused
        assert "It never began" in refused
        assert other.name in refused


async def test_agent_that_cannot_start_a_worker_leaves_it_to_another_one(
    start: Start, env: dict[str, str], tmp_path: Path
) -> None:
    """Its disk is full, or it cannot make the environment. The last word is the reason of all."""
    broken = await start("broken")
    (broken.cache / "agent/blobs").write_text("no folder")
    async with inside(project(tmp_path), env={**env, "PROWESS_CLUSTER__PATIENCE": "1"}) as host:
        await seen(host, broken)
        refused = await host.text("places_where")
        assert "broken: " in refused
        assert "It never began" in refused
        good = await start("good")
        await until_said(host, "places_where", str(good.cache))


async def test_agents_of_another_link_version_and_locked_agents_refuse_with_a_reason(
    start: Start, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Approved code runs on a locked agent, and any change of it does not."""
    private, public = new_key()
    locked = await start(locked=[public])
    root = project(tmp_path)
    env = {**env, "PROWESS_CLUSTER__PATIENCE": "0.5"}
    written(
        tmp_path / "elsewhere",
        smuggled="from prowess import skill_command\n@skill_command\ndef run() -> str:\n    return 'ran'\n",
    )
    async with inside(root, env=env) as host:
        await seen(host, locked)
        assert "has no approval from a key that this agent trusts" in await host.text("places_where")
        digest = (await host.project.agents.snapshot()).digest
        (root / APPROVED).write_text(f"{digest} {sign(digest, private)}\n")
        assert "first" == (await host.call("places_where"))["structuredContent"]["word"]
        begin = remote.RemoteWorker._begin_there

        def smuggle(self: remote.RemoteWorker, told: Any) -> bytes:
            head = json.loads(begin(self, told))
            head["flags"]["skills"] = [str(tmp_path / "elsewhere/skills")]
            return json.dumps(head).encode()

        monkeypatch.setattr(remote.RemoteWorker, "_begin_there", smuggle)
        smuggling = host.project.workers.pools.of(Placement(labels="any"))
        smuggling.renew()
        assert "first" == (await host.call("places_where"))["structuredContent"]["word"]
        (root / "skills/words.py").write_text("WORD = 'evil'\n")
        await until_said(host, "places_where", "has no approval")
        monkeypatch.setattr(remote, "hello", lambda: {"link": [99, 0], "release": "9.9"})
        await until_said(host, "places_where", "host and agent have different versions")


TINY = """
    # /// script
    # dependencies = ["tinypackage==2.0"]
    # ///
    from prowess import skill_command
    import tinypackage

    @skill_command
    def version() -> str:
        return tinypackage.version
"""
LIMITED = """
    # /// script
    # [tool.prowess.sandbox]
    # network = false
    # ///
    import os, socket
    from pathlib import Path
    from prowess import skill_command

    @skill_command
    def read(path: str) -> str:
        return Path(path).read_text()

    @skill_command
    def connect() -> str:
        socket.socket()
        return "connected"

    @skill_command
    def at() -> str:
        return __file__
"""


async def test_agent_makes_the_environment_of_a_skill_and_enforces_its_limits(
    start: Start,
    env: dict[str, str],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It also describes the skill, from what the code declares and by its own settings: the host has no uv."""
    folder = folder_of_all(tmp_path_factory)
    wheels = shared(folder)
    for name in [name for name in os.environ if name.startswith("UV_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", str(cache_in(folder)))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_LINK_MODE", "hardlink")
    root = written(tmp_path / "p", tiny=TINY, small=LIMITED)
    settings = {"environments.index": "", "environments.offline": True, "environments.find_links": [str(wheels)]}
    env = {**env, "PROWESS_ENVIRONMENTS__UV": "/none/uv", "PROWESS_CACHE_DIR": str(tmp_path / "host")}
    tools = {"tiny_version", "small_read", "small_connect", "small_at"}
    async with inside(root, env={**env, "PROWESS_CLUSTER__PATIENCE": "0.2"}) as host:
        await until_listed(host, {*tools, "prowess_diagnostics"} - {"tiny_version"})
        assert "no agent runs it" in await host.text("prowess_diagnostics")
        agent = await start(**settings)  # whose arrival is noticed
        await until_listed(host, tools)
        assert "2.0" == await host.text("tiny_version")
        if not system().lacking(Limits()):
            assert "Permission denied" in await host.text("small_read", path=str(root / "skills/tiny.py"))
            assert "PermissionError" in await host.text("small_connect")
            at = await host.text("small_at")
            assert str(agent.cache) in at
            assert "def at()" in await host.text("small_read", path=at)
        (root / "skills/tiny.py").write_text(
            (root / "skills/tiny.py").read_text() + "\n\n@skill_command\ndef more() -> int:\n    return 5\n"
        )
        await until_listed(host, {*tools, "tiny_more"})
        assert "5" == await host.text("tiny_more")
    agent.stop()
    async with inside(root, env=env) as host:  # what was described there is in the manifest
        assert {*tools, "tiny_more"} == set(await host.tools())
    assert [] == list((tmp_path / "host").glob("environments/*/bin"))


@pytest.mark.parametrize(
    ("run_on", "decorators", "labels"),
    [
        ({}, ['@skill_command(run_on="gpu")', '@prowess.skill_command(run_on="gpu", name="x")'], "gpu"),
        ({}, ['@skill_command(run_on="gpu")', "@skill_command"], ""),
        ({}, ['@skill_command(run_on="gpu")', '@resource("x://y")'], ""),
        ({}, ['@skill_command(run_on="gpu")', '@skill_command(run_on="cpu")'], ""),
        ({}, ["@skill_command(run_on=LABELS)"], ""),
        ({}, ["@functools.cache"], ""),
        ({"*": "any"}, ["@skill_command"], "any"),
        ({"*": "any", "model.*": "gpu"}, ["@skill_command"], "gpu"),
        ({"*": "any", "model.small": ""}, ["@skill_command"], ""),
    ],
)
def test_skill_that_runs_on_agents_alone_is_known_by_its_text(
    run_on: dict[str, str], decorators: list[str], labels: str, tmp_path: Path
) -> None:
    """So its environment is made there alone. In doubt it is also made here."""
    file = tmp_path / "model.py"
    file.write_text("".join(f"{each}\ndef f{number}(): ...\n" for number, each in enumerate(decorators)))

    assert labels == labels_of_skill(Source("model", file, (file,)), Settings.of({"run_on": run_on}).own)


async def until_listed(host: Any, names: set[str]) -> None:
    with anyio.fail_after(PATIENCE):
        while set(await host.tools()) != names:  # noqa: ASYNC110 - environments fail in the background
            await anyio.sleep(0.05)


async def test_people_see_the_agents_of_a_cluster(start: Start, env: dict[str, str], tmp_path: Path) -> None:
    """In a list, in the status, and among the findings of the doctor."""
    await start("seen", **{"agent.labels": ["gpu"]})
    settings = Settings.load(tmp_path, environ=env, flags={})
    is_up, lines = await cluster_status(settings)

    assert is_up
    assert "agent seen: 0 of 4 slots in use, labels gpu" in lines[1]
    found = [finding async for finding in examine_cluster(settings)]
    assert ["ok", "ok", "note"] == [finding.level for finding in found]


def test_cluster_on_this_machine_in_one_command(tmp_path: Path) -> None:
    """An engine, agents and servers start together, and end together. Costs 4 s."""
    root = project(tmp_path)
    port = free_port()
    command = [sys.executable, "-c", "from prowess_host.cli.main import main; main()"]
    words = ["cluster", "--project", str(root), "--local", "2", "--hosts", "1", "--port", str(port)]
    with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True) as running:
        told: list[str] = []
        for line in running.stdout:
            told.append(line)
            if "serving MCP" in line:
                break
        exported = next(line for line in told if "export " in line).partition("export ")[2]
        more = dict(word.split("=", 1) for word in shlex.split(exported))
        calling = [*command, "call", "--project", str(root), "places.where"]
        called = subprocess.run(calling, env={**os.environ, **more}, capture_output=True, text=True, check=True)
        listed = subprocess.run(
            [*command, "list", "--project", str(root)],
            env={**os.environ, **more},
            capture_output=True,
            text=True,
            check=True,
        )
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
    assert "/agent/running/" in called.stdout
    assert "agent agent-2: " in listed.stdout
    assert 0 == running.returncode, rest
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port)).close()


def test_cluster_ends_whichever_of_its_threads_gets_the_signal() -> None:
    """The system chooses one, for example after a Ctrl-Z."""
    code = """if True:
        import signal, threading
        from prowess_host.cli import cluster
        over = cluster._over_at_signals()
        threading.Timer(0.5, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)).start()
        cluster._wait_for(over)
    """
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE).returncode


def test_cluster_on_this_machine_leaves_nothing_and_ends_with_each_of_its_servers(tmp_path: Path) -> None:
    """Neither processes nor files stay if its starter is killed. A second one cannot have the same port. Costs 4 s."""
    root, scratch = project(tmp_path), tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", "cluster"]
    words = ["--project", str(root), "--local", "1", "--hosts", "1", "--port"]
    env = {**os.environ, "TMPDIR": str(scratch)}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        failed = subprocess.run([*command, *words, port], env=env, capture_output=True, text=True, check=False)
    assert 1 == failed.returncode
    assert "`prowess serve` has ended" in failed.stderr
    assert [] == list(scratch.glob("prowess-cluster-*"))
    with subprocess.Popen([*command, *words, str(free_port())], env=env, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout:
            if "serving MCP" in line:
                break
        assert 1 == len(list(scratch.glob("prowess-cluster-*")))
        running.kill()
        running.stdout.read()  # until the last process has closed it
    while list(scratch.glob("prowess-cluster-*")):  # its last process removes it
        time.sleep(0.05)


def test_approved_code_is_signed_by_a_command(tmp_path: Path) -> None:
    root, key = project(tmp_path), tmp_path / "key"
    assert 0 == run(["approve", "--project", str(root), "--new-key", str(key)])
    assert 0o600 == key.stat().st_mode & 0o777
    assert 0 == run(["approve", "--project", str(root), "--key", str(key)])
    digest, _, signature = (root / APPROVED).read_text().strip().partition(" ")
    public = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(key.read_text())).public_key().public_bytes_raw().hex()
    check_approved(digest, [signature], [public])
    with pytest.raises(Unapproved):
        check_approved(digest[::-1], [signature], [public])


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("prowess approve needs --key FILE", ["approve"]),
        ("no-key has no private key", ["approve", "--key", "no-key"]),
        ("short-key has no private key (a key is 64 hexadecimal digits)", ["approve", "--key", "short-key"]),
        ("--locked needs the public keys", ["agent", "--locked"]),
        ("agent.keys: 'abcd' is not a public key", ["agent", "--locked", "--set", 'agent.keys=["abcd"]']),
    ],
)
def test_keys_are_asked_for(message: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "short-key").write_text("abcd\n")
    words = [str(tmp_path / word) if word == "short-key" else word for word in words]
    assert 2 == run([*words, "--project", str(project(tmp_path))])
    assert message in capsys.readouterr().err
