"""The end of input right after the calls: each has its time from when it begins, so that none is lost with a cold worker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after
from patience import PATIENCE
from piped import CAPABILITIES_KEY, HANDSHAKE, STATELESS, VERSION_KEY, hosted, make_project, result, write_skill
from shell import prowess

SLOW = """
    time.sleep(3)

    @skill_command
    def say(text: str) -> str:
        return text
"""
"""Its import takes longer than a call gets at the end of input."""
SERIAL = """
    @skill_command(concurrency=1)
    def one_by_one(text: str) -> str:
        time.sleep(0.5)
        return text

    @skill_command(concurrency=1)
    async def one_by_one_async(text: str) -> str:
        await asyncio.sleep(0.5)
        return text
"""
LONG = """
    @skill_command
    def long(started: str) -> str:
        from pathlib import Path
        Path(started).touch()
        time.sleep(600)
"""
META = {VERSION_KEY: STATELESS, CAPABILITIES_KEY: {}}


def handshake(version: str = HANDSHAKE) -> list[Any]:
    told = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    return [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": told},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]


def call(number: int, name: str, meta: dict[str, Any] | None = None) -> dict[str, Any]:
    params = {"name": name, "arguments": {"text": str(number)}} | ({"_meta": meta} if meta else {})
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def piped(project: Path, messages: list[Any], *, forked: bool = True) -> dict[int, str]:
    """The text of the answer to each call: all is said at once, and then the input ends."""
    told = "".join(json.dumps(message) + "\n" for message in messages)
    if forked:
        done = prowess("host", "--project", str(project), given=told)
    else:
        command = [sys.executable, "-m", "prowess_host", "--project", str(project)]
        done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert 0 == done.returncode, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    flat = [each for answer in answers for each in (answer if isinstance(answer, list) else [answer])]
    return {each["id"]: each["result"]["content"][0]["text"] for each in flat if each["id"]}


def expected(count: int) -> dict[int, str]:
    return {number: str(number) for number in range(1, count + 1)}


@pytest.mark.parametrize("count", [1, 20])
def test_calls_are_answered_by_a_cold_start_and_by_a_warm_one(tmp_path: Path, count: int):
    """Although it takes the worker longer to come up than a call gets: the manifest answers before it is there.

    So the processes are really started here.
    """
    project = make_project(tmp_path, "[host]\ndrain = 2\n", t=SLOW)
    messages = [*handshake(), *(call(number, "t_say") for number in range(1, count + 1))]
    for _ in ("cold", "warm"):
        assert expected(count) == piped(project, messages, forked=False)


def test_calls_of_several_slow_skills_are_answered(tmp_path: Path):
    """They are imported one after the other, or side by side."""
    project = make_project(tmp_path, "[host]\ndrain = 2\n", a=SLOW, b=SLOW, c=SLOW)
    messages = [*handshake(), *(call(number, f"{skill}_say") for number, skill in enumerate("abc", 1))]
    for _ in ("cold", "warm"):
        assert expected(3) == piped(project, messages)


@pytest.mark.parametrize("name", ["t_one_by_one", "t_one_by_one_async"])
def test_calls_that_wait_for_one_another_have_their_time_each(tmp_path: Path, name: str):
    """Twelve of them take longer than one call gets, and one far less."""
    project = make_project(tmp_path, "[host]\ndrain = 5\n", t=SERIAL)
    assert expected(12) == piped(project, [*handshake(), *(call(number, name) for number in range(1, 13))])


def test_the_calls_of_a_batch_are_answered(tmp_path: Path):
    project = make_project(tmp_path, "[host]\ndrain = 2\n", t=SLOW)
    messages = [*handshake("2025-03-26"), [call(number, "t_say") for number in range(1, 4)]]
    for _ in ("cold", "warm"):
        assert expected(3) == piped(project, messages)


def test_the_calls_of_a_session_without_a_handshake_are_answered(tmp_path: Path):
    project = make_project(tmp_path, "[host]\ndrain = 2\n", t=SLOW)
    messages = [call(number, "t_say", META) for number in range(1, 4)]
    for _ in ("cold", "warm"):
        assert expected(3) == piped(project, messages)


@pytest.mark.parametrize("era", [HANDSHAKE, STATELESS])
async def test_calls_are_answered_while_skills_are_loaded_anew(tmp_path: Path, era: str):
    """By the version of before or by the new one."""
    project = make_project(tmp_path, "[host]\ndrain = 2\n", t=SLOW)
    async with hosted(project, version=era, forked=True) as host:
        assert "first" == await host.text("t_say", text="first")
        write_skill(project, "t.py", SLOW.replace("return text", "return text.upper()"))
        write_skill(project, "u.py", SLOW)
        answers = [host.start_call("t_say", text=f"x{number}") for number in range(3)]
        assert 0 == await host.leave()
        for number, answer in enumerate(answers):
            assert (await result(answer))["content"][0]["text"] in {f"x{number}", f"X{number}"}


async def test_a_call_that_began_long_ago_does_not_wait_for_others(tmp_path: Path):
    """It has no more than its own time, also beside a call that has not begun."""
    started = tmp_path / "started"
    project = make_project(tmp_path, "[host]\ndrain = 1\n", t=LONG, u=SLOW)
    async with hosted(project, forked=True) as host:
        long = host.start_call("t_long", started=str(started))
        other = host.start_call("u_say", text="1")
        with fail_after(PATIENCE):
            assert 0 == await host.leave()
        assert "1" == (await result(other))["content"][0]["text"]
        assert (await result(long))["isError"]


async def test_at_a_signal_what_has_not_begun_is_not_waited_for(tmp_path: Path):
    """Whoever sends one wants the end. The call is answered all the same."""
    project = make_project(tmp_path, "[host]\ndrain = 0.1\n", t=SLOW.replace("sleep(3)", "sleep(600)"))
    async with hosted(project, forked=True) as host:
        answer = host.start_call("nobody_knows_it")
        host.process.terminate()
        assert 143 == await host.ended()
        assert "error" in await answer
