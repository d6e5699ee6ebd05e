"""Calls that go on in the background, and everything else that a command asks of a client, over real hosts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest
from patience import PATIENCE

from prowess_host.protocol.eras import REVISIONS, ClientInfo
from prowess_host.protocol.rpc import INVALID_PARAMS, MISSING_CLIENT_CAPABILITY, RpcError
from prowess_host.protocol.session import RequestInFlight
from prowess_host.tasks import Task, Tasks
from prowess_testkit import DECLINE, HANDSHAKE, STATELESS, WIRES, Person, ProtocolError, serve
from prowess_testkit.process import ProcessClient

pytestmark = pytest.mark.usefixtures("forked_hosts")

EXTENSION = "io.modelcontextprotocol/tasks"
TAKES_TASKS = {"extensions": {EXTENSION: {}}, "elicitation": {}}
MODERN = REVISIONS["2026-07-28"]
SKILL = '''
import asyncio
from pathlib import Path

import anyio
from prowess import Context, Roots, Sample, SkillError, skill_command

here = Path(__file__).parent


@skill_command
async def long(ctx: Context, required: bool = False) -> str:
    """Go on until the gate opens."""
    ctx.background(required=required)
    (here / "began").touch()
    ctx.progress(1, 2, "half way")
    while not (here / "gate").exists():
        await asyncio.sleep(0.01)
    return "done"


@skill_command
def in_thread(ctx: Context) -> str:
    """Go on in a thread, and ask."""
    name = ctx.ask("name", "Who?", str)
    ctx.background()
    sure = ctx.ask("sure", f"Sure, {name.value}?", bool)
    return f"{name.value} {sure.action}"


@skill_command
async def failing(ctx: Context) -> str:
    """Fail in the background."""
    ctx.background()
    raise SkillError("no luck")


@skill_command
async def lacking(ctx: Context) -> str:
    """Need in the background what nobody has."""
    ctx.background()
    ctx.require_capability("telepathy")
    return "unreachable"


@skill_command
async def together(ctx: Context) -> str:
    """Ask in two tasks of its own, in the background."""
    ctx.background()
    one, two = await asyncio.gather(ctx.ask("one", "One?", int), ctx.ask("two", "Two?", int))
    return f"{one.value} {two.value}"


@skill_command
async def impatient(ctx: Context) -> str:
    """Give up questions in the background."""
    ctx.background()
    kept = asyncio.ensure_future(ctx.ask("kept", "Kept?", int))
    with anyio.move_on_after(0.01):
        await ctx.ask("first", "First?", int)
    first = await kept
    with anyio.move_on_after(0.01):
        await ctx.ask("second", "Second?", int)
    last = await ctx.ask("last", "Last?", int)
    return f"{first.value} {last.value}"


@skill_command
async def visit(ctx: Context) -> str:
    """Send the person to a page."""
    answer = await ctx.ask_url("login", "Please log in", "https://example.org/login")
    ctx.url_done("login")
    ctx.url_done("login")
    return answer.action


@skill_command
async def everything(ctx: Context) -> str:
    """Ask the person, the model and the client."""
    answers = await ctx.ask_all({"name": ("Who?", str), "city": Sample("City?"), "folders": Roots()})
    return " ".join(str(answer.value) for answer in answers.values())
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/jobs.py").write_text(SKILL)
    return tmp_path


async def raw(client: ProcessClient, name: str, **arguments: Any) -> dict[str, Any]:
    """The result of a call as it comes first."""
    return await client.request("tools/call", name=name, arguments=arguments)


async def until(client: ProcessClient, task_id: str, **wanted: Any) -> dict[str, Any]:
    """The task, once it has these members."""
    with anyio.fail_after(PATIENCE):
        while True:
            task = await client.request("tasks/get", taskId=task_id)
            if wanted.items() <= task.items():
                return task
            await anyio.sleep(0.02)


async def test_a_call_goes_on_and_its_result_is_asked_for_later(project: Path):
    """Its progress is the message of its status; when it has ended it says how long the result is kept."""
    async with serve(project, version=STATELESS, capabilities=TAKES_TASKS) as client:
        created = await raw(client, "jobs_long")
        assert ("task", "working", None) == (created["resultType"], created["status"], created["ttlMs"])
        working = await until(client, created["taskId"], statusMessage="half way")
        assert ("complete", "working") == (working["resultType"], working["status"])
        assert "result" not in working
        (project / "skills/gate").touch()
        done = await until(client, created["taskId"], status="completed")
        assert "done" == done["result"]["content"][0]["text"]
        assert done["ttlMs"] > 3_600_000 - 1
        assert done == await client.request("tasks/get", taskId=created["taskId"])


async def test_a_cancelled_task_stops_its_call(project: Path):
    """At once, and a second time changes nothing."""
    async with serve(project, version=STATELESS, capabilities=TAKES_TASKS) as client:
        created = await raw(client, "jobs_long")
        for _ in range(2):
            acknowledged = await client.request("tasks/cancel", taskId=created["taskId"])
            assert {"resultType", "_meta"} == acknowledged.keys()
        task = await client.request("tasks/get", taskId=created["taskId"])
        assert "cancelled" == task["status"]
        assert not {"result", "error", "inputRequests"} & task.keys()


async def test_a_client_without_tasks_waits(project: Path):
    """In both eras; where the background is required it is told what it lacks."""
    (project / "skills/gate").touch()
    async with serve(project, version=STATELESS) as client:
        assert "done" == (await client.call("jobs_long")).text
        with pytest.raises(ProtocolError) as caught:
            await client.call("jobs_long", required=True)
        assert MISSING_CLIENT_CAPABILITY == caught.value.code
        assert {"requiredCapabilities": {"extensions": {EXTENSION: {}}}} == caught.value.data
        for method, params in (("get", {}), ("update", {"inputResponses": {}}), ("cancel", {})):
            with pytest.raises(ProtocolError) as caught:
                await client.request(f"tasks/{method}", taskId="x", **params)
            assert MISSING_CLIENT_CAPABILITY == caught.value.code
    async with serve(project, version=HANDSHAKE, capabilities=TAKES_TASKS) as client:
        assert "done" == (await client.call("jobs_long")).text
        assert "extensions.io.modelcontextprotocol/tasks" in (await client.call("jobs_long", required=True)).text


async def test_news_of_tasks_need_a_client_that_takes_them(project: Path):
    """Others are told what they lack. We send no such news: the acknowledgment leaves them out, and the client polls."""
    for capabilities, able in ((TAKES_TASKS, True), ({}, False)):
        async with serve(project, version=STATELESS, capabilities=capabilities) as client:
            wanted = {"toolsListChanged": True, "taskIds": ["x"]}
            listening = client.host.request("subscriptions/listen", notifications=wanted)
            if able:
                acknowledged = await client.notified("notifications/subscriptions/acknowledged")
                assert {"toolsListChanged": True} == acknowledged["notifications"]
                listening.cancel()
            else:
                with anyio.fail_after(PATIENCE):
                    assert MISSING_CLIENT_CAPABILITY == (await listening)["error"]["code"]


async def test_questions_before_and_after_the_background(project: Path):
    """The first ends a run, the second waits in the task."""
    person = Person("Ada", DECLINE)
    async with serve(project, version=STATELESS, person=person, capabilities=TAKES_TASKS) as client:
        assert "Ada decline" == (await client.call("jobs_in_thread")).text
        assert (2, 1) == (client.runs, len(client.tasks))
    assert ["Who?", "Sure, Ada?"] == [question.message for question in person.asked]


async def test_a_task_waits_until_everything_is_answered(project: Path):
    """Answers may come one by one; what was answered is not asked again, and what nobody asked is ignored."""
    async with serve(project, version=STATELESS, capabilities=TAKES_TASKS) as client:
        task_id = (await raw(client, "jobs_together"))["taskId"]
        with anyio.fail_after(PATIENCE):
            while len((await until(client, task_id, status="input_required"))["inputRequests"]) < 2:  # noqa: ASYNC110 - another process asks
                await anyio.sleep(0.02)
        answer = {"action": "accept", "content": {"value": 1}}
        with pytest.raises(ProtocolError, match=r"inputResponses\.one must be an object"):
            await client.request("tasks/update", taskId=task_id, inputResponses={"one": 5})
        await client.request("tasks/update", taskId=task_id, inputResponses={"one": answer, "three": 5})
        waiting = await client.request("tasks/get", taskId=task_id)
        assert ("input_required", {"two"}) == (waiting["status"], waiting["inputRequests"].keys())
        await client.request("tasks/update", taskId=task_id, inputResponses={"two": answer})
        done = await until(client, task_id, status="completed")
        assert "1 1" == done["result"]["content"][0]["text"]


async def test_a_task_does_not_wait_for_answers_that_its_command_has_given_up(project: Path):
    """Nobody is asked any more, and the other questions are open as before."""
    async with serve(project, version=STATELESS, capabilities=TAKES_TASKS) as client:
        task_id = (await raw(client, "jobs_impatient"))["taskId"]
        answer = {"action": "accept", "content": {"value": 1}}
        for key in ("kept", "last"):
            with anyio.fail_after(PATIENCE):
                while [key] != [*(await until(client, task_id, status="input_required"))["inputRequests"]]:  # noqa: ASYNC110 - another process asks
                    await anyio.sleep(0.02)
            await client.request("tasks/update", taskId=task_id, inputResponses={key: answer})
        done = await until(client, task_id, status="completed")
        assert "1 1" == done["result"]["content"][0]["text"]


async def test_a_failure_is_a_result_and_an_error_of_the_protocol_is_not(project: Path):
    """As the specification wants it."""
    async with serve(project, version=STATELESS, capabilities=TAKES_TASKS) as client:
        failed = await until(client, (await raw(client, "jobs_failing"))["taskId"], status="completed")
        assert (True, "no luck") == (failed["result"]["isError"], failed["result"]["content"][0]["text"])
        assert "failed" == failed["result"]["_meta"]["prowess/kind"]
        lacking = await until(client, (await raw(client, "jobs_lacking"))["taskId"], status="failed")
        assert MISSING_CLIENT_CAPABILITY == lacking["error"]["code"]
        with pytest.raises(ProtocolError) as caught:
            await client.request("tasks/get", taskId="unknown")
        assert INVALID_PARAMS == caught.value.code


# Pages, models and folders


@pytest.mark.parametrize("wire", WIRES)
async def test_a_person_is_sent_to_a_page(project: Path, wire: str):
    """The client is told, once, when the page has done its job, where its revision wants to know."""
    person = Person(True, DECLINE)
    async with serve(project, version=wire, person=person) as client:
        assert "accept" == (await client.call("jobs_visit")).text
        assert "decline" == (await client.call("jobs_visit")).text
        told = [note for note in client.notifications if note["method"] == "notifications/elicitation/complete"]
    assert ["https://example.org/login"] * 2 == [question.url for question in person.asked]
    ids = [question.params.get("elicitationId") for question in person.asked]
    if wire == HANDSHAKE:
        assert ids == [note["params"]["elicitationId"] for note in told]
        assert 2 == len({*ids})
    else:
        assert ([None, None], []) == (ids, told)


@pytest.mark.parametrize("wire", WIRES)
async def test_person_model_and_client_are_asked_together(project: Path, wire: str):
    """By the same call in both eras."""
    able = {"elicitation": {}, "sampling": {}, "roots": {}}
    async with serve(project, version=wire, person=Person("Ada", "Paris", ["file:///x"]), capabilities=able) as client:
        assert "Ada Paris ['file:///x']" == (await client.call("jobs_everything")).text


async def test_what_a_client_lacks_is_told_in_the_way_of_its_era(project: Path):
    """An error of the protocol, or a result that is one."""
    async with serve(project, version=STATELESS) as client:
        with pytest.raises(ProtocolError) as caught:
            await client.call("jobs_everything")
        assert {"requiredCapabilities": {"sampling": {}}} == caught.value.data
    async with serve(project, version=HANDSHAKE, capabilities={"sampling": {}}) as client:
        assert "the capability 'elicitation'" in (await client.call("jobs_everything")).text
        assert "the capability 'elicitation.url'" in (await client.call("jobs_visit")).text


# The state of a task, without processes


def call(method: str, task_id: str, **params: Any) -> RequestInFlight:
    return RequestInFlight(1, method, {"taskId": task_id, **params}, None, MODERN, ClientInfo({}, TAKES_TASKS))


def opened(tasks: Tasks, told: list[Any], owner: str = "") -> Task:
    task = tasks.open(MODERN, told.append, lambda: told.append("cancelled"), owner)
    assert task is not None
    return task


async def test_a_task_belongs_to_its_owner_and_outlives_a_connection() -> None:
    """Whoever else knows its id is told that there is none."""
    tasks = Tasks()
    task = opened(tasks, [], "ada")
    assert b'"status":"working"' in tasks.serve(call("tasks/get", task.id), "ada")
    for method in ("tasks/get", "tasks/cancel"):
        with pytest.raises(RpcError, match="taskId"):
            tasks.serve(call(method, task.id), "bob")
    assert b'"status":"working"' in tasks.serve(call("tasks/get", task.id), "ada")


async def test_a_result_that_cannot_be_kept_is_an_error() -> None:
    """The store is bounded."""
    tasks = Tasks()
    task = opened(tasks, [])
    task.complete(b"{}", b'{"content":"%b"}' % (b"x" * (tasks.largest + 1)))
    assert b'"status":"failed"' in task.detailed()
    assert len(task.detailed()) < 1000


async def test_a_question_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a client that left would hold its place."""
    monkeypatch.setattr("prowess_host.tasks.STATE_LIFETIME", 0.0)
    told: list[Any] = []
    task = opened(Tasks(), told)
    task.questions({"q": {"message": "Sure?", "schema": {}}})
    with anyio.fail_after(PATIENCE):
        while not told:  # noqa: ASYNC110 - a timer of the loop
            await asyncio.sleep(0)
    assert "no answer to 'q'" in told[0]["error"]
    assert b'"status":"working"' in task.detailed()


async def test_what_has_ended_does_not_change() -> None:
    """A cancelled call may still come to a result."""
    told: list[Any] = []
    task = opened(Tasks(), told)
    task.cancel()
    task.complete(b"{}", b"{}")
    task.cancel()
    assert ["cancelled"] == told
    assert b'"status":"cancelled"' in task.detailed()
