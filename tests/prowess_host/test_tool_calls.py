"""Asking a person, in both eras and over real pipes; and what else flows back during a call."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from inside import inside
from piped import STATELESS, Client, Hosts, error, make_project, result, shared_hosts, until

from prowess_host.protocol.codec import RpcResponse
from prowess_host.tool_calls import Sealing, load_key

SKILL = """
    from pathlib import Path

    @skill_command
    async def sure(ctx: Context, log: str = "") -> str:
        if log:
            with open(log, "a") as file:
                file.write("run ")
        answer = await ctx.ask("sure", "Sure?", bool)
        return f"{answer.action} {answer.value}"

    @skill_command(timeout=2)
    async def hurried_2(ctx: Context) -> str:
        answer = await ctx.ask("sure", "Sure?", bool)
        return f"{answer.action} {answer.value}"

    hurried_20 = skill_command(name="hurried_20", timeout=20)(hurried_2.raw)
    hurried_200 = skill_command(name="hurried_200", timeout=200)(hurried_2.raw)

    @skill_command
    def sync(ctx: Context) -> str:
        return str(ctx.ask("name", "Who?", str).value) + str(ctx.ask("age", "How old?", int).value)

    @skill_command
    async def both(ctx: Context) -> str:
        answers = await ctx.ask_all({"a": ("A?", int), "b": ("B?", int)})
        return str(answers["a"].value + answers["b"].value)

    @skill_command
    async def tell(ctx: Context) -> str:
        ctx.progress(1, 3, "one")
        ctx.progress(2, 3)
        ctx.progress(2, 3, "no step")
        ctx.progress(float("nan"))
        ctx.progress(3, 3, "\\ud800")
        ctx.log("info", {"a": [1]})
        ctx.log("debug", "unheard")
        ctx.log("error", "\\ud800")
        ctx.log("error", object)
        ctx.log("error", float("nan"))
        return "told"

    @skill_command
    async def question_of_no_text(ctx: Context) -> str:
        await ctx.ask("q", "\\ud800", bool)
        return "asked"

    @skill_command
    def who(ctx: Context) -> str:
        return f"{ctx.client_name} {sorted(ctx.capabilities)} {ctx.trace_id}"
"""
FORMS = {"elicitation": {}}


@pytest.fixture(scope="module")
async def hosts(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Hosts]:
    project = make_project(tmp_path_factory.mktemp("project"), "[host]\nstall_limit = 0.4\n", t=SKILL)
    async with shared_hosts(project, forked=True) as hosts:
        yield hosts


def accept(host: Client, question: dict, **content: Any) -> None:
    """Answer a question of the host."""
    host.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": content}})


async def text(answer: Any) -> str:
    return (await result(answer))["content"][0]["text"]


# By requests


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_handshake_client_is_asked_by_a_request(hosts: Hosts, version: str):
    async with hosts(version=version, capabilities=FORMS) as host:
        answer = host.start_call("t_sure")
        question = await host.question()
        assert ("elicitation/create", "Sure?") == (question["method"], question["params"]["message"])
        accept(host, question, value=True)
        assert "accept True" == await text(answer)


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_may_refuse(hosts: Hosts, action: str):
    """The command hears of it."""
    async with hosts(capabilities=FORMS) as host:
        answer = host.start_call("t_sure")
        question = await host.question()
        host.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": action}})
        assert f"{action} None" == await text(answer)


async def test_sync_commands_ask_one_question_after_another(hosts: Hosts):
    async with hosts(capabilities=FORMS) as host:
        answer = host.start_call("t_sync")
        accept(host, await host.question(1), value="Ada")
        accept(host, await host.question(2), value=36)
        assert "Ada36" == await text(answer)


async def test_several_questions_at_once_may_be_answered_in_any_order(hosts: Hosts):
    async with hosts(capabilities=FORMS) as host:
        answer = host.start_call("t_both")
        await host.question(2)
        for question in reversed(host.asked):
            accept(host, question, value=21)
        assert "42" == await text(answer)


async def test_time_spent_asking_does_not_count(hosts: Hosts):
    """Neither in the worker nor in the host, which would answer 0.1 s after the worker."""
    async with hosts(capabilities=FORMS) as host:
        for seconds in (2, 20, 200):  # on a busy machine, a little time is up before or after
            asked = len(host.asked)
            answer = host.start_call(f"t_hurried_{seconds}")
            await until(lambda answer=answer, asked=asked: answer.done() or host.asked[asked:])
            if not answer.done():
                await asyncio.wait([answer], timeout=seconds + 0.5)
                assert not answer.done()
                accept(host, host.asked[asked], value=True)
            if "timed out" not in (said := await text(answer)):
                break
        assert "accept True" == said


@pytest.mark.parametrize("version", ["2025-11-25", "2025-03-26"])
async def test_a_client_that_cannot_ask_makes_it_a_clear_failure(hosts: Hosts, version: str):
    async with hosts(version=version, capabilities=FORMS if version == "2025-03-26" else {}) as host:
        refused = await host.call("t_sure")
        assert refused["isError"]
        assert "elicitation" in refused["content"][0]["text"]


BAD_ANSWERS = [
    {"error": {"code": -32603, "message": "no window"}},
    {"result": {"action": "perhaps"}},
    {"result": {"action": "accept", "content": 5}},
    {"result": {"action": "accept", "content": {"value": "text"}}},
    {"result": {}},
]


@pytest.mark.parametrize("bad", BAD_ANSWERS, ids=str)
async def test_a_bad_answer_is_a_failure_of_the_call(hosts: Hosts, bad: dict):
    """Nobody waits for a better one."""
    async with hosts(capabilities=FORMS) as host:
        answer = host.start_call("t_sure")
        host.send({"jsonrpc": "2.0", "id": (await host.question())["id"], **bad})
        assert (await result(answer))["isError"]


async def test_an_answer_too_deep_to_be_passed_on_is_a_failure_of_the_call(tmp_path: Path):
    """It could be parsed: since Python 3.12, the parser goes deeper than the writer."""
    async with inside(make_project(tmp_path, t=SKILL), capabilities=FORMS) as host:
        answer = host.start_call("t_sure")
        deep: list[Any] = []
        for _ in range(200_000):
            deep = [deep]
        accepted = {"action": "accept", "content": {"value": deep}}
        host.connection.take(RpcResponse((await host.question())["id"], accepted))
        refused = await result(answer)
    assert (True, True) == (refused["isError"], "nested too deeply" in refused["content"][0]["text"])


async def test_the_questions_beside_a_failed_one_are_withdrawn(hosts: Hosts):
    async with hosts(capabilities=FORMS) as host:
        answer = host.start_call("t_both")
        other = await host.question(2)
        host.send({"jsonrpc": "2.0", "id": host.asked[0]["id"], "error": {"code": 1, "message": "no"}})
        assert (await result(answer))["isError"]
        assert other["id"] == (await host.noted("notifications/cancelled"))["params"]["requestId"]
        accept(host, other, value=1)  # too late, and no harm
        await host.barrier()


IMPATIENT = """
    @skill_command(timeout=1)
    async def ask(ctx: Context, then: str) -> str:
        try:
            await asyncio.wait_for(ctx.ask("one", "One?"), 0.01)
        except TimeoutError:
            if then == "block":
                time.sleep(60)
        return (await ctx.ask("two", "Two?")).action
"""


async def test_a_question_that_a_command_gives_up_is_withdrawn(tmp_path: Path):
    """The next answer arrives without it, and the time of the call runs again, even if the command blocks its worker."""
    capabilities = {"elicitation": {"form": {}}}
    async with inside(make_project(tmp_path, t=IMPATIENT), capabilities=capabilities) as host:
        answer = host.start_call("t_ask", then="ask")
        first, second = await host.question(1), await host.question(2)
        assert {"requestId": first["id"]} == (await host.noted("notifications/cancelled"))["params"]
        accept(host, second)
        assert "accept" == await text(answer)
        late = await host.call("t_ask", then="block")
        assert "timeout" == late["_meta"]["prowess/kind"]


async def test_cancelling_a_call_withdraws_its_question(hosts: Hosts):
    async with hosts(capabilities=FORMS) as host:
        answer = host.start_call("t_sure")
        question = await host.question()
        host.cancel(answer)
        assert question["id"] == (await host.noted("notifications/cancelled"))["params"]["requestId"]
        accept(host, question, value=True)
        assert "piped" in await host.text("t_who")


async def test_a_worker_that_dies_while_it_asks(hosts: Hosts):
    """The call is answered, the question withdrawn."""
    async with hosts(capabilities=FORMS) as host:
        answer = host.start_call("t_sure")
        await host.question()
        os.kill(await host.worker(), 9)
        assert "worker_lost" == (await result(answer))["_meta"]["prowess/kind"]
        await host.noted("notifications/cancelled")


async def test_a_question_is_made_into_text_that_can_be_sent(hosts: Hosts):
    async with hosts(capabilities=FORMS) as host:
        answer = host.start_call("t_question_of_no_text")
        question = await host.question()
        assert "\\ud800" == question["params"]["message"]
        accept(host, question, value=True)
        assert "asked" == await text(answer)


# By a result, and calling again


async def test_a_stateless_client_is_asked_by_a_result(hosts: Hosts, tmp_path: Path):
    """The command runs again from the top, with the recorded answer."""
    log = tmp_path / "log"
    async with hosts(version=STATELESS, capabilities=FORMS) as host:
        asked = await host.call("t_sure", log=str(log))
        assert "input_required" == asked["resultType"]
        assert "Sure?" == asked["inputRequests"]["sure"]["params"]["message"]
        given = {"sure": {"action": "accept", "content": {"value": True}}}
        extra = {"inputResponses": given, "requestState": asked["requestState"]}
        assert "accept True" == await text(host.start_call("t_sure", extra=extra, log=str(log)))
        assert "run run " == log.read_text()


async def test_a_state_gathers_answers_over_several_rounds(hosts: Hosts):
    async with hosts(version=STATELESS, capabilities=FORMS) as host:
        first = await host.call("t_sync")
        given = {"name": {"action": "accept", "content": {"value": "Ada"}}}
        extra = {"inputResponses": given, "requestState": first["requestState"]}
        second = await result(host.start_call("t_sync", extra=extra))
        assert ["age"] == list(second["inputRequests"])
        given = {"age": {"action": "accept", "content": {"value": 36}}}
        extra = {"inputResponses": given, "requestState": second["requestState"]}
        assert "Ada36" == await text(host.start_call("t_sync", extra=extra))


async def test_a_state_outlives_its_host_and_is_bound_to_the_call(hosts: Hosts):
    """The key is the user's. Other arguments, or a changed state, are refused."""
    async with inside(hosts.project, version=STATELESS, capabilities=FORMS) as host:
        asked = await host.call("t_sure")
    given = {"sure": {"action": "decline"}}
    extra = {"inputResponses": given, "requestState": asked["requestState"]}
    forged = {**extra, "requestState": f"x{asked['requestState']}"}
    async with inside(hosts.project, version=STATELESS, capabilities=FORMS) as host:
        assert "decline None" == await text(host.start_call("t_sure", extra=extra))
        assert -32602 == (await error(host.start_call("t_sure", extra=extra, log="x")))["code"]
        assert -32602 == (await error(host.start_call("t_sure", extra=forged)))["code"]


async def test_a_stateless_client_that_cannot_ask_is_told_what_it_lacks(hosts: Hosts):
    async with hosts(version=STATELESS) as host:
        refused = await error(host.start_call("t_sure"))
        assert (-32021, {"elicitation": {}}) == (refused["code"], refused["data"]["requiredCapabilities"])


# Progress, logs, and who calls


async def test_progress_and_logs_reach_a_handshake_client(hosts: Hosts):
    """In order, growing, before the answer; what is no JSON is made into it."""
    async with hosts() as host:
        assert "told" == await text(host.start_call("t_tell", progress="p"))
        told = [note["params"] for note in host.notes if note["method"] == "notifications/progress"]
        assert [("p", 1), ("p", 2), ("p", 3)] == [(each["progressToken"], each["progress"]) for each in told]
        assert "one" == told[0]["message"]
        logs = [note["params"] for note in host.notes if note["method"] == "notifications/message"]
        assert ["info", "error", "error", "error"] == [each["level"] for each in logs]
        assert ({"a": [1]}, "t.tell") == (logs[0]["data"], logs[0]["logger"])


async def test_progress_and_logs_are_for_those_who_want_them(hosts: Hosts):
    async with hosts() as host:
        await host.ask("logging/setLevel", level="emergency")
        assert "told" == await host.text("t_tell")
        assert [] == host.notes


async def test_a_stateless_client_wants_logs_by_the_request(hosts: Hosts):
    async with hosts(version=STATELESS) as host:
        await host.call("t_tell")
        assert [] == host.notes
        extra = {"_meta": {"io.modelcontextprotocol/logLevel": "error", "progressToken": 7}}
        await result(host.start_call("t_tell", extra=extra))
        assert {"notifications/message", "notifications/progress"} == {note["method"] for note in host.notes}


async def test_a_command_knows_who_calls(hosts: Hosts):
    async with hosts(capabilities={"roots": {}}) as host:
        extra = {"_meta": {"traceparent": "00-1-2-01"}}
        assert "piped ['roots'] 00-1-2-01" == await text(host.start_call("t_who", extra=extra))


async def test_a_command_knows_who_calls_also_after_another_handshake(hosts: Hosts):
    """What is said with every call is kept, but no longer than the client it is about; and not what one call adds."""
    async with hosts() as host:
        extra = {"_meta": {"traceparent": "00-1-2-01"}}
        assert "piped [] " == await host.text("t_who")
        assert "piped [] 00-1-2-01" == await text(host.start_call("t_who", extra=extra))
        assert "piped [] " == await host.text("t_who")
        other = {"name": "other", "version": "1"}
        await host.ask("initialize", protocolVersion="2025-11-25", capabilities={"roots": {}}, clientInfo=other)
        assert "other ['roots'] " == await host.text("t_who")


# The key


def test_the_key_is_made_once_and_read_by_nobody_else(tmp_path: Path):
    key = load_key(lambda: tmp_path)
    assert (32, key) == (len(key), load_key(lambda: tmp_path))
    assert [0o600] == [file.stat().st_mode & 0o777 for file in tmp_path.iterdir()]


def test_without_a_place_the_key_lives_as_long_as_the_process():
    def nowhere() -> Path:
        raise PermissionError

    sealing = Sealing(lambda: load_key(nowhere), lambda: 0.0)
    assert sealing.key() == sealing.key()


def test_a_key_of_the_wrong_length_is_not_used(tmp_path: Path):
    (tmp_path / "request-state.key").write_bytes(b"short")
    assert 32 == len(load_key(lambda: tmp_path))


def test_hosts_that_start_together_agree_on_a_key(tmp_path: Path):
    """Whoever is first decides."""
    code = "import sys, pathlib; from prowess_host.tool_calls import load_key as k; print(k(lambda: pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(tmp_path)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    assert 1 == len({process.communicate()[0] for process in started})


async def test_a_worker_retries_what_a_task_group_raises(tmp_path: Path):
    """Before Python 3.13, a group that fails while its task waits for it leaves the task cancelled, and the call without retry."""
    root = make_project(
        tmp_path,
        t="""
            import asyncio
            from prowess import Context

            runs = []

            async def fail():
                raise ValueError

            @skill_command(retry_on=ValueError, max_attempts=2)
            async def grouped(ctx: Context) -> list[bool]:
                runs.append(ctx.cancelled)
                if len(runs) == 2:
                    return runs
                async with asyncio.TaskGroup() as group:
                    group.create_task(fail())
        """,
    )
    async with inside(root) as host:
        assert [False, False] == (await host.call("t_grouped"))["structuredContent"]["result"]
