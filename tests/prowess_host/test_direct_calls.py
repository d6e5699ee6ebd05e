"""Calls without a client: a project answers as a `Runtime` does, although a worker runs them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import fail_after
from memory import served
from patience import PATIENCE
from piped import make_project, until

from prowess import Runtime
from prowess.calls.channel import Channel
from prowess.envelopes.envelope import finish, invoke
from prowess.errors import UnknownCommand
from prowess_host.direct_calls import Audience, Way, call_payload
from prowess_host.workers.jobs import NEVER

SKILL = """
    from typing import Any
    from pydantic import BaseModel
    from prowess import Image

    class Point(BaseModel):
        x: int
        y: int | None = None

    tries: list[int] = []

    @skill_command(aliases=["other/name"])
    def text(text: str = "") -> str:
        return text

    @skill_command
    def point(x: int) -> Point:
        return Point(x=x)

    @skill_command
    def picture() -> Image:
        return Image(b"\\x89PNG\\r\\n\\x1a\\n")

    @skill_command
    def both() -> tuple[Image, dict[str, int]]:
        return Image(b"\\x89PNG\\r\\n\\x1a\\n"), {"a": 1}

    @skill_command
    def nothing() -> None: ...

    @skill_command(cache_ttl=60)
    def cached() -> list[int]:
        return [1, 2]

    @skill_command(retry_on=OSError, max_attempts=2)
    def second() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("once")
        return len(tries)

    @skill_command
    def fail() -> None:
        raise SkillError("Not today.", data={"a": [1]})

    @skill_command
    def later() -> None:
        raise SkillError("Later.", retryable=True, retry_after=1.5)

    @skill_command
    def crash() -> None:
        1 / 0

    @skill_command
    def wrong() -> int:
        return "no number"

    @skill_command(timeout=0.2)
    async def slow() -> None:
        await asyncio.sleep(600)

    @skill_command
    async def told(ctx: Context) -> list[Any]:
        return [ctx.client_name, ctx.trace_id, ctx.metadata, ctx.context]

    @skill_command
    async def asks(ctx: Context) -> str:
        return str(await ctx.ask("a", "A?", bool))

    @skill_command
    async def hold(file: str) -> None:
        open(file + ".begun", "x").close()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            open(file + ".cancelled", "x").close()
            raise
"""
CALLS: tuple[tuple[str, Any], ...] = (
    ("t.text", {"text": "x"}),
    ("other/name", {"text": "\N{SNOWMAN}"}),
    ("T.TEXT", {}),
    ("t.point", {"x": 1}),
    ("t.point", {"x": "one", "z": 1}),
    ("t.picture", {}),
    ("t.both", {}),
    ("t.nothing", {}),
    ("t.cached", {}),
    ("t.cached", {}),
    ("t.second", {}),
    ("t.fail", {}),
    ("t.later", {}),
    ("t.crash", {}),
    ("t.wrong", {}),
    ("t.slow", {}),
    ("t.asks", {}),
    ("t.told", {}),
    ("t.nope", {}),
    ("broken.go", {}),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_project(tmp_path, t=SKILL, broken="1 / 0\n")


def request(number: int, tool: str, payload: Any) -> dict[str, Any]:
    head = {"id": str(number), "version": "1.0.0", "timestamp": "2026-01-31T12:00:00Z", "trace_id": "t-1"}
    return {**head, "tool": tool, "payload": payload, "metadata": {"mine": 7}, "context": {"task": "a"}}


async def responses(engine: Any) -> list[dict[str, Any]]:
    """What an engine makes of all calls, without what is another thing each time."""
    given = [await invoke(engine, request(number, *call)) for number, call in enumerate(CALLS)]
    await finish(engine)
    for response in given:
        del response["timestamp"], response["duration_ms"]
        response.get("metadata", {}).pop("call_id", None)
    return json.loads(re.sub(r"\(call [0-9a-f]+\)", "(call)", json.dumps(given)))


async def test_a_project_answers_envelopes_as_a_runtime_does(root: Path) -> None:
    """Word for word: values, blocks, kinds, attempts, caches, problems and advice."""
    async with Runtime.open(root) as runtime:
        expected = await responses(runtime)
    async with served(root) as project:
        assert expected == await responses(project)


async def test_a_call_gives_an_outcome(root: Path) -> None:
    """With its facts, under the id that the caller gave, and with its contract."""
    async with served(root) as project:
        outcome = await project.call("other/name", {"text": "x"}, channel=Channel(call_id="mine", client_name="me"))
        assert ("t.text", True, "x", "mine") == (outcome.command, outcome.ok, outcome.value, outcome.call_id)
        assert outcome.duration > 0
        assert outcome.contract is project.catalog()["t.text"]
        assert "input" == (await project.call("t.text", {"text": object()})).kind
        assert "unknown" == (await project.call("t.texd")).kind
        told = (await project.call("t.told", channel=Channel(client_name="me", trace_id="t"))).value
        assert ["me", "t", {}, {}] == told


async def test_a_call_that_nobody_waits_for_any_more_is_cancelled(root: Path) -> None:
    """In the worker, and the project goes on."""
    async with served(root) as project:
        file = root / "held"
        call = asyncio.ensure_future(project.call("t.hold", {"file": str(file)}))
        await until(Path(f"{file}.begun").exists)
        call.cancel()
        await until(Path(f"{file}.cancelled").exists)
        with fail_after(PATIENCE):
            assert "x" == (await project.call("t.text", {"text": "x"})).value


async def test_a_payload_is_what_clients_are_shown(root: Path) -> None:
    """In the profile of the project."""
    async with served(root) as project:
        payload = await project.payload("t.point", {"x": 1})
        assert {"x": 1, "y": None} == payload["structuredContent"]
        failed = await project.payload("t.fail", {})
        assert ("failed", {"a": [1]}) == (failed["_meta"]["prowess/kind"], failed["_meta"]["prowess/data"])
        with pytest.raises(UnknownCommand, match=r"t\.text"):
            await project.payload("t.texd", {})


async def test_questions_that_the_command_gives_up_are_withdrawn() -> None:
    """After the last one, the time of the call runs again."""
    asked, withdrawn, replies, jobs = list[str](), list[str](), list[Any](), list[Any]()

    async def ask(questions: Any) -> Any:
        asked.extend(questions)
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.extend(questions)

    workers: Any = SimpleNamespace(
        submit=jobs.append, answer=lambda _, reply, **_more: replies.append(reply), cancel=jobs.remove
    )
    contract: Any = SimpleNamespace(id="t.asks")
    calling = asyncio.ensure_future(call_payload(Way(workers, "", 30), contract, {}, Audience(ask=ask)))
    await until(lambda: jobs)
    listener = jobs[0].listener
    listener.questions({"a": {}})
    listener.questions({"b": {}, "c": {}})
    await until(lambda: ["a", "b", "c"] == asked)
    listener.unasked(["a"])
    await until(lambda: ["a"] == withdrawn)
    assert not replies
    listener.unasked(["a", "b", "c"])
    await until(lambda: ["a", "b", "c"] == withdrawn)
    assert [{"answers": {}}] == replies
    listener.result(b"{}", b'{"content":[]}')
    assert {"content": []} == await calling


async def test_the_time_of_a_call_stands_still_until_all_its_questions_are_answered(tmp_path: Path) -> None:
    """The first answer does not start the clock of the host while the person reads the second question."""
    asks = """
        @skill_command
        async def twice(file: str, ctx: Context) -> list[bool]:
            async def first() -> bool:
                answer = await ctx.ask("one", "One?", bool)
                open(file, "w").close()
                return answer.value

            async def second() -> bool:
                return (await ctx.ask("two", "Two?", bool)).value

            return await asyncio.gather(first(), second())
    """
    file, due = tmp_path / "answered", list[float]()
    async with served(make_project(tmp_path, t=asks)) as project:

        async def ask(questions: Any) -> Any:
            if "two" in questions:
                await until(file.exists)
                due.extend(job.due for job in project.workers._jobs())
            return {key: {"action": "accept", "content": {"value": True}} for key in questions}

        with fail_after(PATIENCE):
            outcome = await project.call("t.twice", {"file": str(file)}, audience=Audience(ask=ask))
    assert ([True, True], [NEVER]) == (outcome.value, due)
