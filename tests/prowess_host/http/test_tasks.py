"""Tasks over HTTP: each request has a connection of its own, so a task survives them all, but belongs to its caller."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from piped import CAPABILITIES_KEY, make_project, write_skill
from web import Answer, Web, served_over_http

TAKES_TASKS = {CAPABILITIES_KEY: {"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}}}
SKILL = '''
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


def test_replicas_offer_no_tasks(tmp_path: Path) -> None:
    """Another process would be asked for them, and know nothing."""
    root = make_project(tmp_path)
    write_skill(root, "jobs.py", SKILL.replace("ctx.background()", "return str(ctx.background())"))
    with served_over_http(root, "--set", "serve.sessions=false") as web:
        told = web.stateless("server/discover").json["result"]["capabilities"]
        assert "io.modelcontextprotocol/tasks" not in told.get("extensions", {})
        params = {"name": "jobs_slow", "arguments": {}, "_meta": TAKES_TASKS}
        assert "False" == web.stateless("tools/call", **params).text
        missing = web.stateless("tasks/get", {"Mcp-Name": "x"}, taskId="x", _meta=TAKES_TASKS)
        assert (404, -32601) == (missing.status, missing.json["error"]["code"])
