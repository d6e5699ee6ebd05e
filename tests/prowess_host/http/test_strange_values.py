"""Every member of every request, replaced by values of other types: the client is told, and nothing fails inside. Takes about five seconds."""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from piped import CAPABILITIES_KEY, make_project
from web import JSON, Web, initialize, served_over_http, stateless

from prowess_host.protocol.rpc import INTERNAL_ERROR

INFO = "io.modelcontextprotocol/clientInfo"
META = {
    CAPABILITIES_KEY: {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {},
        "roots": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
    INFO: {"name": "c", "version": "1"},
    "io.modelcontextprotocol/logLevel": "info",
    "progressToken": 1,
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}
ANSWERS = {"sure": {"action": "accept", "content": {"value": True}}}
BOTH: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {"cursor": ""}),
    ("tools/call", {"name": "t_echo", "arguments": {"text": "x"}}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "a://x"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "t_hello", "arguments": {"name": "x"}}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "t_hello"},
            "argument": {"name": "name", "value": ""},
            "context": {"arguments": {"name": "x"}},
        },
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "a://{x}"}, "argument": {"name": "x", "value": ""}},
    ),
]
STATELESS = [
    *BOTH,
    ("server/discover", {}),
    ("tools/call", {"name": "t_sure", "arguments": {}, "inputResponses": ANSWERS, "requestState": "x.y"}),
    ("tools/call", {"name": "t_sure", "arguments": {}, "inputResponses": ANSWERS}),
    ("tasks/get", {"taskId": "x"}),
    ("tasks/update", {"taskId": "x", "inputResponses": ANSWERS}),
    ("tasks/cancel", {"taskId": "x"}),
    ("skills/list", {}),
    ("skills/get", {"uri": "skill://x/SKILL.md"}),
    ("resources/directory/read", {"uri": "skill://x"}),
]
HANDSHAKE = [
    *BOTH,
    ("ping", {}),
    ("logging/setLevel", {"level": "info"}),
    ("resources/subscribe", {"uri": "a://x"}),
    ("resources/unsubscribe", {"uri": "a://x"}),
]
ODD = (None, True, 0, -1.5, "", "\x00\u2028", [], ["x"], [[]], {}, {"a": []}, {"name": {}}, 10**30)
SKILL = '''
    from prowess import prompt, resource

    @skill_command
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    @skill_command
    async def sure(ctx: Context) -> str:
        """Ask."""
        return (await ctx.ask("sure", "Sure?", bool)).action

    @resource("a://{x}")
    def one(x: str) -> str:
        """A resource."""
        return x

    @prompt
    def hello(name: str) -> str:
        """A prompt."""
        return name
'''


def changed(value: Any) -> Iterator[Any]:
    """The value with one of its parts replaced or left out, in every way."""
    yield from ODD
    if isinstance(value, dict):
        for name in value:
            yield {other: each for other, each in value.items() if other != name}
            for each in changed(value[name]):
                yield {**value, name: each}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Generator[Web]:
    with served_over_http(make_project(tmp_path_factory.mktemp("odd"), t=SKILL)) as web:
        yield web
        assert "Traceback" not in web.errors.read_text()


def check(web: Web, body: Any, headers: dict[str, str]) -> None:
    answer = web.ask("POST", "/mcp", body, headers)
    assert answer.status < 500, (body, answer)
    assert f'"code":{INTERNAL_ERROR}'.encode() not in answer.body, (body, answer)


@pytest.mark.parametrize(("method", "params"), STATELESS)
def test_stateless_requests_with_odd_members(odd: Web, method: str, params: dict[str, Any]) -> None:
    """Also in `_meta`."""
    for each in changed(params):
        body, headers = stateless(method, **copy.deepcopy(params))
        named = each.get("name") or each.get("uri") or each.get("taskId") if isinstance(each, dict) else None
        if isinstance(named, str) and named.isprintable():
            headers["Mcp-Name"] = named
        body["params"] = {**each, "_meta": {**body["params"]["_meta"], **META}} if isinstance(each, dict) else each
        check(odd, body, headers)


@pytest.mark.parametrize(("method", "params"), STATELESS[:3])
def test_stateless_requests_with_odd_envelopes(odd: Web, method: str, params: dict[str, Any]) -> None:
    """Each key of `_meta`, and the members of the message."""
    body, headers = stateless(method, **params)
    for meta in changed({**body["params"]["_meta"], **META}):
        check(odd, {**body, "params": {**params, "_meta": meta}}, headers)
    for name in ("jsonrpc", "id", "method", "params"):
        for each in ODD:
            check(odd, {**body, name: each}, headers)


def test_requests_in_sessions_with_odd_members(odd: Web) -> None:
    """Of both kinds, and notifications."""
    headers = initialize(odd)
    for method, params in HANDSHAKE:
        for each in changed(params):
            check(odd, {"jsonrpc": "2.0", "id": 1, "method": method, "params": each}, headers)
    for method in ("cancelled", "progress", "roots/list_changed", "initialized"):
        for each in changed({"requestId": 1, "progressToken": 1, "reason": "x"}):
            check(odd, {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": each}, headers)
    for each in changed({"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}, "error": {"code": 1}}):
        check(odd, each, headers)


def test_sessions_of_odd_clients(odd: Web) -> None:
    """Whatever they say of themselves, their requests are served or refused."""
    told = {"protocolVersion": "2025-11-25", "capabilities": META[CAPABILITIES_KEY], "clientInfo": META[INFO]}
    for each in changed(told):
        request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": each}
        opened = odd.ask("POST", "/mcp", request, JSON)
        assert opened.status < 500
        if "mcp-session-id" in opened.headers:
            headers = {**JSON, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
            for method, params in (BOTH[0], BOTH[1]):
                check(odd, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, headers)
            odd.ask("DELETE", "/mcp", None, headers)


def test_odd_envelopes(odd: Web) -> None:
    """Without MCP."""
    sent = {
        "id": "1",
        "version": "1.0.0",
        "timestamp": "2026-01-01T00:00:00Z",
        "tool": "t.echo",
        "payload": {"text": "x"},
        "trace_id": "t",
        "context": {"a": 1},
        "metadata": {"wait": True},
        "auth": {"type": "bearer", "token": "x", "scopes": ["x"]},
    }
    asked = {**sent, "metadata": {"handle": "x"}}
    for each in (*changed(sent), *changed(asked)):
        answer = odd.ask("POST", "/v1/invoke", each, JSON)
        assert answer.status < 500, (each, answer)
