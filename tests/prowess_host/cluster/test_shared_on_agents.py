"""What hosts share, with calls that run on agents: results, runs in flight, and the limit on calls at once. About 5 s."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from inside import inside
from piped import result, until
from written import is_there, touch, written

from prowess_host.cluster.agent import Agent

SKILL = """
    import os, time
    from pathlib import Path
    from prowess import skill_command

    @skill_command(cache_ttl=600)
    def counted(place: str, wait: bool = False) -> str:
        with open(place, "a") as file:
            file.write("x")
        while wait and not Path(place + ".go").exists():
            time.sleep(0.01)
        return __file__

    @skill_command(concurrency=1)
    def alone(place: str) -> str:
        os.mkdir(place)  # fails if another run goes on
        time.sleep(0.02)
        os.rmdir(place)
        return __file__
"""


async def test_hosts_share_what_runs_on_agents(
    start: Callable[..., Awaitable[Agent]], env: dict[str, str], tmp_path: Path
) -> None:
    agents = [await start("one"), await start("two")]
    root = written(tmp_path / "p", shared=SKILL)
    async with AsyncExitStack() as stack:
        hosts: list[Any] = [await stack.enter_async_context(inside(root, env=env)) for _ in range(2)]
        sharing = [host.project.sharing for host in hosts]
        await until(lambda: all(each.engine.up for each in sharing))

        place = tmp_path / "flight"
        first = hosts[0].start_call("shared_counted", place=str(place), wait=True)
        await until(lambda: is_there(place))
        second = hosts[1].start_call("shared_counted", place=str(place), wait=True)
        await until(lambda: sharing[1].results.waiting == 1)
        touch(place, ".go")
        ran, shared = await asyncio.gather(result(first), result(second))
        assert ran["content"] == shared["content"]
        assert any(str(agent.cache) in ran["content"][0]["text"] for agent in agents)
        assert "x" == place.read_text()
        kept = await hosts[1].call("shared_counted", place=str(place), wait=True)
        assert kept["_meta"]["prowess/cached"]

        busy = str(tmp_path / "busy")
        calls = [hosts[number % 2].start_call("shared_alone", place=busy) for number in range(12)]
        answers = [await result(call) for call in calls]
        assert [False] * 12 == [answer["isError"] for answer in answers]
