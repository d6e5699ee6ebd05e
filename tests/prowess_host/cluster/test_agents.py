"""Commands that run on agents: whatever is promised of a call holds there as well."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from inside import inside
from patience import PATIENCE
from piped import result, until
from written import is_there, touch, written

from prowess_host.cluster import remote
from prowess_host.cluster.agent import Agent
from prowess_host.cluster.code import APPROVED, new_key, sign

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
        pids = [worker.process.pid for pool in host.project.workers._pools.values() for worker in pool.workers]
        assert "first" == (await host.call("places_where"))["structuredContent"]["word"]
    touch(other, ".go")
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids if pid))
    assert not mark.exists()
    assert not other.exists()
    printed = capfd.readouterr().err
    assert "[places.where] looking around" in printed


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
        assert str(agent.cache) in await host.text("labels_on_gpu")
        assert str(tmp_path / "p" / "skills") in await host.text("labels_on_")
        refused = await host.text("labels_on_tpu")
        assert "no agent has the labels tpu" in refused
        assert "It never began" in refused
        assert other.name in refused


async def test_agents_of_another_link_version_and_locked_agents_refuse_with_a_reason(
    start: Start, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Approved code runs on a locked agent, and any change of it does not."""
    private, public = new_key()
    await start(locked=[public])
    root = project(tmp_path)
    env = {**env, "PROWESS_CLUSTER__PATIENCE": "0.5"}
    async with inside(root, env=env) as host:
        assert "nobody whom this agent trusts has approved" in await host.text("places_where")
        digest = (await host.project.agents.snapshot()).digest
        (root / APPROVED).write_text(f"{digest} {sign(digest, private)}\n")
        assert "first" == (await host.call("places_where"))["structuredContent"]["word"]
        (root / "skills/words.py").write_text("WORD = 'evil'\n")
        await until_said(host, "places_where", "nobody whom")
        monkeypatch.setattr(remote, "hello", lambda: {"link": [99, 0], "release": "9.9"})
        await until_said(host, "places_where", "host and agent have different versions")
