"""MCP of both eras over a real server: one endpoint, routed by each message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from piped import write_skill
from web import JSON, Web, initialize, served_over_http, stateless, until

CALL = "tools/call"
TOKEN = {"_meta": {"progressToken": "p"}}


def request(name: str, number: int = 1, meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, **({"_meta": meta} if meta else {})}
    return {"jsonrpc": "2.0", "id": number, "method": CALL, "params": params}


# The stateless era


def test_a_stateless_call_is_one_exchange(web: Web) -> None:
    """JSON where the answer is all, and no session."""
    done = web.call("t_echo", text="hi")
    assert (200, "application/json") == (done.status, done.headers["content-type"])
    assert "mcp-session-id" not in done.headers
    assert "hi" == done.text
    assert "complete" == done.json["result"]["resultType"]


def test_progress_makes_it_a_stream(web: Web) -> None:
    """Events without ids, since nobody can come back to them."""
    done = web.stateless(CALL, name="t_steps", arguments={}, **TOKEN)
    assert ("text/event-stream", "no") == (done.headers["content-type"], done.headers["x-accel-buffering"])
    assert [1, 2, 3] == [each["params"]["progress"] for each in done.messages[:-1]]
    assert 1 == done.messages[-1]["id"]
    assert b"\nid:" not in done.body


def test_a_client_that_reads_json_alone_gets_json(web: Web) -> None:
    done = web.stateless(CALL, {"Accept": "application/json"}, name="t_steps", arguments={}, **TOKEN)
    assert "step" == done.text


@pytest.mark.parametrize(
    ("method", "params", "status", "code"),
    [
        ("tools/call", {"name": "t_nothing"}, 400, -32602),
        ("tools/call", {"name": 5}, 400, -32602),
        ("ping", {}, 404, -32601),
        ("initialize", {"protocolVersion": "2026-07-28"}, 404, -32601),
        ("resources/subscribe", {"uri": "a:b"}, 404, -32601),
        ("subscriptions/listen", {}, 400, -32602),
    ],
)
def test_errors_have_their_status(web: Web, method: str, params: dict[str, Any], status: int, code: int) -> None:
    body, fields = stateless(method, **params)
    fields = {name: value for name, value in fields.items() if isinstance(value, str)}
    done = web.ask("POST", "/mcp", body, fields)
    assert (status, code, 1) == (done.status, done.json["error"]["code"], done.json["id"])


def test_the_endpoint_has_no_streams_in_the_stateless_era(web: Web) -> None:
    for method in ("GET", "DELETE"):
        done = web.ask(method, headers={"MCP-Protocol-Version": "2026-07-28", "Accept": "text/event-stream"})
        assert (405, "POST") == (done.status, done.headers["allow"])
    assert 405 == web.ask("PUT", headers=JSON).status


def test_a_stateless_notification_is_accepted(web: Web) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    done = web.ask("POST", "/mcp", note, {**JSON, "MCP-Protocol-Version": "2026-07-28"})
    assert (202, b"") == (done.status, done.body)


def test_headers_say_what_the_arguments_say(web: Web) -> None:
    """A tool may want some of them there."""
    assert "eu" == web.call("t_where", {"Mcp-Param-Region": "eu"}, region="eu").text
    for sent in ({"Mcp-Param-Region": "us"}, {}):
        done = web.call("t_where", sent, region="eu")
        assert (400, -32020) == (done.status, done.json["error"]["code"])


def test_an_answered_question_needs_no_session(web: Web) -> None:
    """The state that comes back is all that the server knows."""
    able = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    asked = web.stateless(CALL, name="t_sure", arguments={}, _meta=able).json["result"]
    given = {"sure": {"action": "accept", "content": {"value": True}}}
    again = {"inputResponses": given, "requestState": asked["requestState"]}
    assert "accept True" == web.stateless(CALL, name="t_sure", arguments={}, _meta=able, **again).text


@pytest.mark.parametrize("loud", [False, True])
def test_leaving_cancels_a_stateless_call(web: Web, root: Path, loud: bool) -> None:
    """Before and after its stream has begun."""
    body, fields = stateless(CALL, name="t_hold", arguments={"mark": f"left{loud}", "loud": loud}, **TOKEN)
    if loud:
        stream = web.stream("POST", "/mcp", body, fields)
        assert 1 == stream.message()["params"]["progress"]
        stream.close()
    else:
        import http.client
        import json

        connection = http.client.HTTPConnection("127.0.0.1", web.port)
        connection.request("POST", "/mcp", json.dumps(body), fields)
        until((root / "leftFalse.begun").exists)
        connection.close()
    until((root / f"left{loud}.cancelled").exists)


def test_who_listens_hears_of_changes(web: Web, root: Path) -> None:
    """Acknowledged first, tagged with the id of the request."""
    body, fields = stateless("subscriptions/listen", notifications={"toolsListChanged": True})
    stream = web.stream("POST", "/mcp", body, fields)
    assert "notifications/subscriptions/acknowledged" == stream.message()["method"]
    write_skill(root, "more.py", "@skill_command\ndef new() -> str:\n    return 'new'\n")
    changed = stream.message()
    assert "notifications/tools/list_changed" == changed["method"]
    assert {"io.modelcontextprotocol/subscriptionId": 1} == changed["params"]["_meta"]
    stream.close()
    (root / "skills" / "more.py").unlink()
    until(lambda: "more_new" not in str(web.stateless("tools/list").json))  # no other test hears of it


# Sessions


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_a_session_begins_with_a_handshake_and_ends_with_a_delete(web: Web, version: str) -> None:
    """Its id cannot be guessed, and is unknown afterwards."""
    fields = initialize(web, version)
    assert len(fields["Mcp-Session-Id"]) >= 32
    assert "hi" == web.ask("POST", "/mcp", request("t_echo", text="hi"), fields).text
    assert 204 == web.ask("DELETE", headers=fields).status
    for method in ("POST", "GET", "DELETE"):
        assert 404 == web.ask(method, "/mcp", request("t_echo", text="hi"), fields).status


def test_a_session_needs_its_header(web: Web) -> None:
    fields = {**JSON, "MCP-Protocol-Version": "2025-11-25"}
    missing = web.ask("POST", "/mcp", request("t_echo", text="hi"), fields)
    assert (400, 1) == (missing.status, missing.json["id"])
    assert 404 == web.ask("POST", "/mcp", request("t_echo"), {**fields, "Mcp-Session-Id": "x"}).status
    assert 400 == web.ask("GET", headers={"Accept": "text/event-stream"}).status


def test_a_handshake_that_fails_opens_no_session(web: Web) -> None:
    done = web.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}, JSON)
    assert (200, -32602) == (done.status, done.json["error"]["code"])
    assert "mcp-session-id" not in done.headers


def test_an_unknown_revision_is_refused_in_a_session(web: Web) -> None:
    fields = {**initialize(web), "MCP-Protocol-Version": "1900-01-01"}
    assert 400 == web.ask("POST", "/mcp", request("t_echo", text="x"), fields).status


def test_batches_belong_to_one_revision(web: Web) -> None:
    """One array answers one array."""
    batch = [request("t_echo", 1, text="a"), request("t_echo", 2, text="b"), {"jsonrpc": "2.0", "method": "x"}]
    done = web.ask("POST", "/mcp", batch, initialize(web, "2025-03-26"))
    assert {1, 2} == {each["id"] for each in done.json}
    notes = web.ask("POST", "/mcp", batch[2:], initialize(web, "2025-03-26"))
    assert 202 == notes.status
    refused = web.ask("POST", "/mcp", batch, initialize(web, "2025-06-18"))
    assert (400, -32600) == (refused.status, refused.json["error"]["code"])


def test_progress_and_questions_go_the_way_of_their_call(web: Web) -> None:
    """The answer to a question comes in a request of its own."""
    fields = initialize(web)
    stepped = web.ask("POST", "/mcp", request("t_steps", meta={"progressToken": 5}), fields)
    assert [1, 2, 3] == [each["params"]["progress"] for each in stepped.messages[:-1]]
    asking = web.stream("POST", "/mcp", request("t_sure"), fields)
    question = asking.message()
    assert "elicitation/create" == question["method"]
    given = {"action": "accept", "content": {"value": True}}
    answered = web.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": question["id"], "result": given}, fields)
    assert (202, b"") == (answered.status, answered.body)
    assert "accept True" == asking.message()["result"]["content"][0]["text"]


def test_a_session_hears_of_changes_on_its_own_stream(web: Web, root: Path) -> None:
    """The newest one, if there are several; what came between two is not lost."""
    fields, ended = initialize(web), ended_streams(web)
    first, second = web.stream("GET", headers=fields), web.stream("GET", headers=fields)
    assert "text/event-stream" == second.headers["content-type"]
    assert [] == [each for each in first if each.get("data")], "the older one has ended"
    write_skill(root, "later.py", "@skill_command\ndef new() -> str:\n    return 'new'\n")
    assert "notifications/tools/list_changed" == second.message()["method"]
    second.close()
    until(lambda: ended_streams(web) >= ended + 2)  # before that, the server writes to the second one
    (root / "skills" / "later.py").unlink()
    until(lambda: "later_new" not in str(web.stateless("tools/list").json))
    third = web.stream("GET", headers=fields)
    assert "notifications/tools/list_changed" == third.message()["method"]
    third.close()


def ended_streams(web: Web) -> int:
    """How many streams of sessions have ended."""
    label = 'prowess_http_requests_total{route="mcp",method="GET",status="200"} '
    lines = web.ask("GET", "/metrics").body.decode().splitlines()
    return sum(int(line.removeprefix(label)) for line in lines if line.startswith(label))


def test_leaving_cancels_nothing_in_a_session(web: Web, root: Path) -> None:
    """The client comes back and gets the answer; once it was sent, only what follows the last event it names."""
    fields = initialize(web)
    held = request("t_hold", meta={"progressToken": 1}, mark="resumed", loud=True)
    stream = web.stream("POST", "/mcp", held, fields)
    primed, progress = stream.next(), stream.next()
    assert ("", "1000") == (primed.get("data", ""), primed["retry"])
    assert "notifications/progress" in progress["data"]
    stream.close()
    (root / "resumed").touch()
    again = web.ask("GET", headers={**fields, "Last-Event-ID": progress["id"]})
    assert ["held"] == [each["result"]["content"][0]["text"] for each in again.messages]
    assert not (root / "resumed.cancelled").exists()
    whole = web.ask("GET", headers={**fields, "Last-Event-ID": primed["id"]})
    assert ["notifications/progress", None] == [each.get("method") for each in whole.messages]
    assert 400 == web.ask("GET", headers={**fields, "Last-Event-ID": "77-1"}).status
    for odd in ("nonsense", f"{'9' * 5000}-1", f"1-{'9' * 5000}", "1-²", "1-1-1", "-", "1--1"):
        assert 400 == web.ask("GET", headers={**fields, "Last-Event-ID": odd}).status


def test_older_revisions_get_no_event_without_data(web: Web, root: Path) -> None:
    """Their clients would take it for a broken message."""
    fields = initialize(web, "2025-06-18")
    done = web.ask("POST", "/mcp", request("t_steps", meta={"progressToken": 1}), fields)
    assert b"data: \n" not in done.body
    assert b"id: " in done.body


def test_a_call_of_a_session_is_cancelled_by_a_message(web: Web, root: Path) -> None:
    """Its response ends without an answer."""
    fields = initialize(web)
    held = request("t_hold", 9, meta={"progressToken": 1}, mark="cancelled", loud=True)
    stream = web.stream("POST", "/mcp", held, fields)
    assert stream.message()
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
    assert 202 == web.ask("POST", "/mcp", note, fields).status
    until((root / "cancelled.cancelled").exists)
    assert [] == [each for each in stream if each.get("data")]


def test_ending_a_session_ends_what_runs_in_it(web: Web, root: Path) -> None:
    fields = initialize(web)
    held = request("t_hold", meta={"progressToken": 1}, mark="ended", loud=True)
    stream, standing = web.stream("POST", "/mcp", held, fields), web.stream("GET", headers=fields)
    assert stream.message()
    assert 204 == web.ask("DELETE", headers=fields).status
    error = stream.message()["error"]
    assert (-32603, "Internal error: the session has ended") == (error["code"], error["message"])
    assert [] == [each for each in standing if each.get("data")]
    until((root / "ended.cancelled").exists)


def test_sessions_are_bounded_in_number_and_idle_time(root: Path) -> None:
    """The one that was idle longest makes room; one in use does not."""
    options = ("--set", "serve.max_sessions=2", "--set", "serve.session_idle=100000")
    with served_over_http(root, *options) as web:
        first, second, third = (initialize(web) for _ in range(3))
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert [404, 200, 200] == [web.ask("POST", "/mcp", ping, each).status for each in (first, second, third)]
        streams = [web.stream("GET", headers=each) for each in (second, third)]
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "w", "version": "1"}}
        full = web.ask("POST", "/mcp", {**ping, "method": "initialize", "params": opening}, JSON)
        assert (503, "1") == (full.status, full.headers["retry-after"])
        for stream in streams:
            stream.close()
    with served_over_http(root, "--set", "serve.session_idle=0.2") as web:
        opened = web.ask("POST", "/mcp", {**ping, "method": "initialize", "params": opening}, JSON)
        until(lambda: b"prowess_sessions 0\n" in web.ask("GET", "/metrics").body)
        fields = {**JSON, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
        assert 404 == web.ask("POST", "/mcp", ping, fields).status


def test_streams_may_be_polled(root: Path) -> None:
    """The server hangs up after a while, and the client comes back for the rest."""
    with served_over_http(root, "--set", "serve.poll=0.1") as web:
        fields = initialize(web)
        held = request("t_hold", meta={"progressToken": 1}, mark="polled", loud=True)
        first = list(web.stream("POST", "/mcp", held, fields))
        assert [None, "notifications/progress"] == [_method(each) for each in first]
        assert [] == list(web.stream("GET", headers={**fields, "Last-Event-ID": first[-1]["id"]}))
        (root / "polled").touch()
        answer = until(lambda: web.ask("GET", headers={**fields, "Last-Event-ID": first[-1]["id"]}).messages)
        assert "held" == answer[0]["result"]["content"][0]["text"]


def test_stream_of_a_client_that_cannot_resume_it_from_its_beginning_is_not_polled(root: Path) -> None:
    """It would end without the answer, and without an event to go on after."""
    with served_over_http(root, "--set", "serve.poll=0.1") as web:
        held = request("t_hold", meta={"progressToken": 1}, mark="unpolled", loud=True)
        stream = web.stream("POST", "/mcp", held, initialize(web, "2025-06-18"))
        assert "notifications/progress" == stream.message()["method"]
        polled = web.stream("GET", headers=initialize(web))
        assert [None] == [_method(each) for each in polled]  # it began later, and its time is up
        (root / "unpolled").touch()
        assert "held" == stream.message()["result"]["content"][0]["text"]


def _method(event: dict[str, str]) -> str | None:
    import json

    return json.loads(event["data"])["method"] if event.get("data") else None


def test_without_sessions_any_replica_serves_a_handshake(root: Path) -> None:
    """A client of that era is served as far as one request goes."""
    with served_over_http(root, "--set", "serve.sessions=false") as web:
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "w", "version": "1"}}
        opened = web.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}, JSON)
        assert ("2025-11-25", None) == (opened.json["result"]["protocolVersion"], opened.headers.get("mcp-session-id"))
        fields = {**JSON, "MCP-Protocol-Version": "2025-11-25"}
        assert 202 == web.ask("POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, fields).status
        assert "hi" == web.ask("POST", "/mcp", request("t_echo", text="hi"), fields).text
        assert {"result": 3} == web.ask("POST", "/mcp", request("t_add", a=1), fields).json["result"][
            "structuredContent"
        ]
        assert 405 == web.ask("GET", headers={**fields, "Mcp-Session-Id": "x"}).status
        batch = web.ask("POST", "/mcp", [request("t_echo", 1, text="a"), request("t_echo", 2, text="b")], JSON)
        assert 2 == len(batch.json)
