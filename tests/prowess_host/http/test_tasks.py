"""Tasks over HTTP: each request has a connection of its own, so a task survives them all, but belongs to its caller."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from piped import CAPABILITIES_KEY, make_project, write_skill
from web import JSON, Answer, Web, served_over_http

TAKES_TASKS = {CAPABILITIES_KEY: {"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}}}
SKILL = '''
    @skill_command
    async def waits() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()

    @skill_command
    async def slow(ctx: Context) -> str:
        """Ask from the background."""
        ctx.background()
        return (await ctx.ask("name", "Who?", str)).value
'''
CREDENTIALS = """
[[auth.credentials]]
type = "bearer"
token = "of-ada"

[[auth.credentials]]
type = "bearer"
token = "of-bob"
"""


def of(who: str) -> dict[str, str]:
    return {"Authorization": f"Bearer of-{who}"}


def about(web: Web, method: str, task_id: str, who: str, **params: Any) -> Answer:
    headers = {**of(who), "Mcp-Name": task_id}
    return web.stateless(method, headers, taskId=task_id, _meta=TAKES_TASKS, **params)


def states(web: Web, task_id: str, who: str) -> Iterator[dict[str, Any]]:
    """The states of a task, as a client sees them that polls."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        yield about(web, "tasks/get", task_id, who).json["result"]
        time.sleep(0.02)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    root = make_project(tmp_path_factory.mktemp("tasks"))
    (root / "prowess.toml").write_text((root / "prowess.toml").read_text() + CREDENTIALS)
    write_skill(root, "jobs.py", SKILL)
    with served_over_http(root) as served:
        yield served


def test_a_task_survives_its_connection_and_belongs_to_its_caller(web: Web) -> None:
    """To everybody else it does not exist."""
    params = {"name": "jobs_slow", "arguments": {}, "_meta": TAKES_TASKS}
    created = web.stateless("tools/call", of("ada"), **params).json["result"]
    assert "task" == created["resultType"]
    task_id = created["taskId"]
    answers = {"name": {"action": "accept", "content": {"value": "Ada"}}}
    next(state for state in states(web, task_id, "ada") if state["status"] == "input_required")
    for method, more in (("get", {}), ("update", {"inputResponses": answers}), ("cancel", {})):
        refused = about(web, f"tasks/{method}", task_id, "bob", **more)
        assert (400, -32602) == (refused.status, refused.json["error"]["code"])
    assert "complete" == about(web, "tasks/update", task_id, "ada", inputResponses=answers).json["result"]["resultType"]
    done = next(state for state in states(web, task_id, "ada") if state["status"] == "completed")
    assert "Ada" == done["result"]["content"][0]["text"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a machine has one address of loopback")
def test_one_client_cannot_use_up_the_work_in_the_background(tmp_path: Path) -> None:
    """Its next task waits instead, and its next detached envelope is refused; another address finds room."""
    root = make_project(tmp_path)
    write_skill(root, "jobs.py", SKILL)
    few = "from prowess.calls.handles import Handles; Handles.__init__.__kwdefaults__['most'] = 4; "
    with served_over_http(root, before=few) as web:
        task = partial(web.stateless, "tools/call", name="jobs_slow", arguments={}, _meta=TAKES_TASKS)
        assert ["task", "task"] == [task().json["result"]["resultType"] for _ in range(2)]
        asked = task().json["result"]
        assert "input_required" == asked["resultType"]
        answers = {"name": {"action": "accept", "content": {"value": "Ada"}}}
        assert "Ada" == task(inputResponses=answers, requestState=asked["requestState"]).text
        envelope = {"id": "1", "version": "1.0.0", "timestamp": "2026-01-01T00:00:00Z", "tool": "jobs.waits"}
        detached = {**envelope, "payload": {}, "metadata": {"wait": False}}
        send = partial(web.ask, "POST", "/v1/invoke", detached, JSON)
        assert [202, 202] == [send().status for _ in range(2)]
        refused = send()
        assert (429, "1", "busy") == (refused.status, refused.headers["retry-after"], refused.json["errors"][0]["code"])
        web.address = "127.0.0.2"
        assert "task" == task().json["result"]["resultType"]
        assert 202 == send().status


def test_replicas_keep_nothing_for_later(tmp_path: Path) -> None:
    """Another process would be asked for it, and know nothing: tasks, detached envelopes, the rest of a long result."""
    root = make_project(tmp_path)
    skill = """
    @skill_command
    def long() -> str:
        return "x" * 5000
    """
    write_skill(root, "jobs.py", SKILL.replace("ctx.background()", "return str(ctx.background())") + skill)
    with served_over_http(root, "--set", "serve.sessions=false", "--set", "max_result=1000") as web:
        assert "max_result does not apply here" in web.errors.read_text()
        assert "x" * 5000 == web.call("jobs_long").text
        opened = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "jobs_long", "arguments": {}}}
        assert "x" * 5000 == web.ask("POST", "/mcp", opened, JSON).text
        envelope = {"id": "1", "version": "1.0.0", "timestamp": "2026-01-01T00:00:00Z", "tool": "jobs.long"}
        detached = {**envelope, "payload": {}, "metadata": {"wait": False}}
        refused = web.ask("POST", "/v1/invoke", detached, JSON)
        assert (422, "cannot_detach") == (refused.status, refused.json["errors"][0]["code"])
        told = web.stateless("server/discover").json["result"]["capabilities"]
        assert "io.modelcontextprotocol/tasks" not in told.get("extensions", {})
        params = {"name": "jobs_slow", "arguments": {}, "_meta": TAKES_TASKS}
        assert "False" == web.stateless("tools/call", **params).text
        missing = web.stateless("tasks/get", {"Mcp-Name": "x"}, taskId="x", _meta=TAKES_TASKS)
        assert (404, -32601) == (missing.status, missing.json["error"]["code"])
