"""The bridge before a scripted server: real processes, real sockets, no suite."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from patience import PATIENCE

HERE = Path(__file__).parent
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ALONE = {"MCP-Protocol-Version": "2026-07-28"}


class Bridge:
    """A running bridge, its clients, and what it said when it ended."""

    def __init__(self) -> None:
        command = [sys.executable, "bridge.py", "--", sys.executable, "scripted_server.py"]
        self.process = subprocess.Popen(
            command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.address = urlsplit(self.process.stdout.readline().strip())
        self.connections: list[HTTPConnection] = []

    def send(self, message: Any, headers: dict[str, str], method: str = "POST") -> HTTPResponse:
        connection = HTTPConnection(self.address.hostname, self.address.port, timeout=PATIENCE)
        self.connections.append(connection)
        connection.request(method, "/mcp", json.dumps(message), headers)
        return connection.getresponse()

    def call(self, method: str, headers: dict[str, str], request_id: Any = 1, **params: Any) -> HTTPResponse:
        return self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}, headers)

    def result(self, method: str, headers: dict[str, str], **params: Any) -> Any:
        return json.load(self.call(method, headers, **params))["result"]

    def session(self) -> dict[str, str]:
        response = self.call("initialize", {}, protocolVersion="2025-11-25")
        return {"Mcp-Session-Id": response.headers["Mcp-Session-Id"]}

    def stop(self) -> tuple[int, str]:
        """End it: its exit code, and what it says of the servers."""
        for connection in self.connections:
            connection.close()
        self.process.terminate()
        _, said = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, said


@contextmanager
def running() -> Iterator[Bridge]:
    bridge = Bridge()
    try:
        yield bridge
    finally:
        bridge.stop()


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    with running() as it:
        yield it


def event(response: HTTPResponse) -> Any:
    """The next event of a stream."""
    line = response.readline()
    assert response.readline() == b"\n"
    return json.loads(line.removeprefix(b"data: "))


@pytest.mark.parametrize("request_id", [7, "7"])
def test_an_answer_carries_the_id_of_its_client(bridge: Bridge, request_id: Any):
    """The same value and the same JSON type."""
    response = bridge.call("pid", ALONE, request_id)
    assert response.status == 200
    assert json.load(response)["id"] == request_id


def test_stateless_requests_share_a_process_and_sessions_do_not(bridge: Bridge):
    """The shared process is what proves that no state leaks; a session is scoped to its process."""
    first, second = bridge.session(), bridge.session()
    alone = {bridge.result("pid", ALONE) for _ in range(2)}
    assert len(alone) == 1
    assert len({*alone, bridge.result("pid", first), bridge.result("pid", second)}) == 3


def test_a_deleted_session_is_gone(bridge: Bridge):
    """404 afterwards, for calls and for a second DELETE."""
    session = bridge.session()
    assert bridge.send(None, session, "DELETE").status == 204
    assert bridge.call("pid", session).status == 404
    assert bridge.send(None, session, "DELETE").status == 404


def test_news_of_a_call_come_as_a_stream_in_the_clients_terms(bridge: Bridge):
    """Progress has the client's token again; the server saw another, or two clients could clash."""
    response = bridge.call("work", ALONE, _meta={"progressToken": "mine"})
    assert response.headers["Content-Type"] == "text/event-stream"
    assert event(response)["params"] == {"progressToken": "mine", "progress": 1}
    assert event(response)["params"] == {"level": "info", "data": "working"}
    answer = event(response)
    assert answer["id"] == 1
    assert answer["result"]["seen"] != "mine"


def test_two_clients_may_use_one_id_at_the_same_time(bridge: Bridge):
    """Each stream is tagged with the id that its own client chose."""
    streams = [bridge.call("subscriptions/listen", ALONE, request_id) for request_id in ("L", "L", 5)]
    tags = [event(stream)["params"]["_meta"][SUBSCRIPTION] for stream in streams]
    assert tags == ["L", "L", 5]


def test_closing_a_stateless_stream_cancels(bridge: Bridge):
    """The server is told by the id it knows."""
    stream = bridge.call("subscriptions/listen", ALONE)
    event(stream)
    stream.close()
    bridge.connections.pop().close()
    while not (cancelled := bridge.result("cancelled", ALONE)):
        pass
    assert cancelled == [1]


@pytest.mark.parametrize(("code", "status"), [(-32601, 404), (-32602, 400), (-32021, 400), (-32603, 200)])
def test_a_stateless_error_has_the_status_of_its_code(bridge: Bridge, code: int, status: int):
    """On a handshake wire the same error is an ordinary answer."""
    assert bridge.call("fail", ALONE, code=code).status == status
    assert bridge.call("fail", bridge.session(), code=code).status == 200


def test_a_question_reaches_the_client_and_its_answer_the_server(bridge: Bridge):
    """The question comes on the stream of the call; the answer is a request of its own."""
    session = bridge.session()
    stream = bridge.call("ask", session)
    assert event(stream)["method"] == "elicitation/create"
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}}
    assert bridge.send(answer, session).status == 202
    assert event(stream)["result"] == {"action": "accept"}


@pytest.mark.parametrize("name", ["Host", "Origin"])
def test_only_local_pages_may_call(bridge: Bridge, name: str):
    """A name that was made to point at this machine is still another's."""
    evil = "evil.example.com" if name == "Host" else "http://evil.example.com"
    assert bridge.call("pid", {**ALONE, name: evil}).status == 403
    assert bridge.call("pid", {**ALONE, "Origin": "http://localhost:3000"}).status == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [([], 400), ({"jsonrpc": "2.0", "id": 1, "method": "pid"}, 400), ({"jsonrpc": "2.0", "id": 1, "result": {}}, 400)],
)
def test_what_belongs_to_no_process_is_refused(bridge: Bridge, body: Any, status: int):
    """Batches, and requests of no session that do not stand alone either."""
    assert bridge.send(body, {}).status == status


def test_a_server_that_dies_has_its_calls_answered_and_a_successor():
    """Its death is a fault all the same."""
    with running() as bridge:
        assert json.load(bridge.call("die", ALONE))["error"]["message"] == "the server process ended"
        assert isinstance(bridge.result("pid", ALONE), int)
        assert bridge.stop() == (1, "bridge: ended before its input did\n")


def test_servers_that_behave_leave_nothing_to_say():
    """Streams that are open at the end are closed, sessions ended, and the exit code is 0."""
    with running() as bridge:
        session = bridge.session()
        bridge.result("pid", session)
        event(bridge.call("subscriptions/listen", ALONE))
        assert bridge.stop() == (0, "")


@pytest.mark.parametrize(
    ("method", "fault"), [("babble", "not a protocol message on stdout"), ("twice", "an answer nobody waits for")]
)
def test_what_no_server_may_do_on_stdio_is_a_fault(method: str, fault: str):
    """The suite cannot see it, so the bridge's own exit code says it."""
    with running() as bridge:
        bridge.call(method, ALONE)
        code, said = bridge.stop()
        assert code == 1
        assert fault in said
