"""What a client may cost, and that a broken, slow or hostile one hurts nobody else."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import random
import re
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from piped import CAPABILITIES_KEY, make_project
from web import JSON, Answer, Events, Web, initialize, served_over_http, stateless, until

from prowess.settings.credentials import Caller
from prowess_host.http.access import client_of
from prowess_host.protocol.eras import TASKS

SMALL = {
    "max_body": 4096,
    "max_header": 2048,
    "max_connections": 8,
    "max_calls": 2,
}


def set_to(**values: int) -> list[str]:
    return [word for name, value in values.items() for word in ("--set", f"serve.{name}={value}")]


@pytest.fixture(scope="module")
def narrow(root: Path) -> Generator[Web]:
    """A server with small limits."""
    with served_over_http(root, *set_to(**SMALL)) as web:
        web.call("t_echo", text="ready")
        yield web


@pytest.fixture(scope="module")
def hasty(root: Path) -> Generator[Web]:
    """A server that waits for a client for a second."""
    with served_over_http(root, *set_to(patience=1)) as web:
        until(lambda: web.call("t_echo", text="ready").status == 200)
        yield web


def head(web: Web, *fields: str, line: str = "POST /mcp HTTP/1.1") -> bytes:
    return "\r\n".join([line, f"Host: 127.0.0.1:{web.port}", *fields, "", ""]).encode()


def statuses(answered: bytes) -> list[int]:
    """The statuses of all responses in some bytes."""
    return [int(part[:3]) for part in answered.split(b"HTTP/1.1 ")[1:]]


def call(web: Web, text: str, *fields: str) -> bytes:
    body, headers = stateless("tools/call", name="t_echo", arguments={"text": text})
    data = json.dumps(body).encode()
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return head(web, *lines, f"Content-Length: {len(data)}", *fields) + data


def test_a_large_body_is_refused(narrow: Web) -> None:
    """By its length before it is read, and without one when it has become too large."""
    assert 413 == narrow.call("t_echo", text="x" * 5000).status
    assert [413] == statuses(narrow.raw(head(narrow, "Content-Type: application/json", "Content-Length: 999999999999")))
    chunked = head(narrow, "Content-Type: application/json", "Transfer-Encoding: chunked")
    assert [413] == statuses(narrow.raw(chunked, b"1000\r\n" + b"x" * 4096 + b"\r\n", b"10\r\n" + b"x" * 16 + b"\r\n"))
    assert 413 == narrow.ask("POST", "/v1/invoke", b"x" * 5000, JSON).status


@pytest.mark.parametrize(
    "field", ["X: " + "x" * 3000, "\r\n".join(f"X-{n}: 1" for n in range(101)), "X" * 3000 + ": 1"]
)
def test_a_large_head_is_refused(narrow: Web, field: str) -> None:
    """In bytes and in fields, also where it never ends, and where it comes with a body."""
    assert [431] == statuses(narrow.raw(head(narrow, field)))
    assert [431] == statuses(narrow.raw(head(narrow, field).removesuffix(b"\r\n\r\n") + b"\r\nY: " + b"y" * 3000))


@pytest.mark.parametrize("framing", ["1;", "1;a=", "0\r\nX: ", "0\r\n"])
def test_a_large_trailer_is_refused(narrow: Web, framing: str) -> None:
    """What frames a body is bounded like a head, because the parser keeps a trailer, and copies it with each of its parts."""
    fields = "Content-Type: application/json", "Transfer-Encoding: chunked", "Expect: 100-continue"
    with socket.create_connection(("127.0.0.1", narrow.port), PATIENCE) as connection:
        connection.sendall(head(narrow, *fields))
        assert [100] == statuses(connection.recv(1000))
        connection.sendall(framing.encode() + b"x" * 3000)
        assert [431] == statuses(connection.recv(1000))


def test_a_long_target_is_refused(narrow: Web) -> None:
    assert [431] == statuses(narrow.raw(head(narrow, line=f"GET /{'x' * 3000} HTTP/1.1")))


def test_a_body_beside_a_small_head_counts_for_itself(narrow: Web) -> None:
    """A head of a few bytes and a body above the limit of heads may come together."""
    data = call(narrow, "x" * 3000, "Connection: close")
    assert [200] == statuses(narrow.raw(data))


@pytest.mark.parametrize("sent", ["GET / HT", "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
def test_a_slow_head_is_given_up(hasty: Web, sent: str) -> None:
    assert [408] == statuses(hasty.raw(sent.encode()))


def test_a_head_that_has_come_before_means_the_same(narrow: Web) -> None:
    """Whole, in pieces, beside others, and with whatever comes before and after it."""
    usual, other = call(narrow, "one"), call(narrow, "another")
    body = usual.index(b"\r\n\r\n") + 4
    size = len(usual) - body
    spaced = usual.replace(b"{", b"{\r\n\r\n", 1).replace(b"Length: %d" % size, b"Length: %d" % (size + 4))
    last = call(narrow, "last", "Connection: close")
    streams = (
        [usual + last],
        [usual + other + usual + last],
        [usual, other, last],
        [usual[:body], usual[body:] + last],
        [usual[: body - 2], usual[body - 2 : body + 5], usual[body + 5 :] + last],
        [usual + usual[: body + 3], usual[body + 3 :] + last],
        [b"\r\n" + usual + b"\r\n\r\n" + last],
        [spaced + spaced + last],
    )
    for sent in streams * 2:
        answered = narrow.raw(*sent)
        wanted = re.findall(rb'"text": "([^"]*)"', b"".join(sent))
        assert wanted == re.findall(rb'"text":"([^"]*)"', answered)
        assert [200] * len(wanted) == statuses(answered)


@pytest.mark.parametrize(
    ("status", "usual", "odd"),
    [
        (400, "\r\n\r\n", "\r\n folded: x\r\n\r\n"),
        (400, "Content-Length:", "Content-Length: 1\r\nContent-Length:"),
        (400, "Content-Length:", "Transfer-Encoding: chunked\r\nContent-Length:"),
        (400, "Content-Length: ", "Content-Length: +"),
        (400, "Accept:", "Accept :"),
        (403, "Host: 127.0.0.1", "Host: evil.example"),
        (403, "Accept:", "Origin: http://evil.example\r\nAccept:"),
        (404, "/mcp", "/nothing"),
        (405, "POST", "PUT"),
        (413, "Content-Length: ", "Content-Length: 9999"),
        (415, "application/json\r\n", "text/plain\r\n"),
        (431, "Accept:", f"X: {'x' * 3000}\r\nAccept:"),
    ],
)
def test_what_is_refused_once_is_refused_again(narrow: Web, status: int, usual: str, odd: str) -> None:
    """Alone and after an ordinary request, on the same connection and on others."""
    good = call(narrow, "good")
    bad = good.replace(usual.encode(), odd.encode(), 1)
    assert bad != good
    last = call(narrow, "last", "Connection: close")
    for _ in range(2):
        if status in {400, 413, 431}:  # these close the connection
            assert [status] == statuses(narrow.raw(bad + bad + last))
            assert status == statuses(narrow.raw(good + bad + bad + last))[-1]
        else:
            assert [status, status, 200] == statuses(narrow.raw(bad + bad + last))
            assert [200, status, status, 200] == statuses(narrow.raw(good + bad + bad + last))


def test_a_slow_body_is_given_up(hasty: Web) -> None:
    """With a length, in chunks, and after a request that came in time."""
    sized = head(hasty, "Content-Type: application/json", "Content-Length: 10") + b"{"
    assert [408] == statuses(hasty.raw(sized))
    chunked = head(hasty, "Content-Type: application/json", "Transfer-Encoding: chunked") + b"1\r\n{\r\n"
    assert [408] == statuses(hasty.raw(chunked))
    assert [200, 408] == statuses(hasty.raw(call(hasty, "x") + sized))


def test_who_only_connects_is_hung_up_on(hasty: Web) -> None:
    assert b"" == hasty.raw()


def test_who_does_not_read_is_hung_up_on(hasty: Web) -> None:
    """The answer is larger than what the system keeps for him."""
    body, headers = stateless("tools/call", name="t_big", arguments={"size": 20_000_000})
    data = json.dumps(body).encode()
    lines = [f"{name}: {value}" for name, value in headers.items()]
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect(("127.0.0.1", hasty.port))
        silent.sendall(head(hasty, *lines, f"Content-Length: {len(data)}") + data)
        silent.settimeout(PATIENCE)
        reset = select.poll()
        reset.register(silent, 0)
        assert reset.poll(PATIENCE * 1000)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while part := silent.recv(1 << 20):
                received += len(part)
        assert received < 20_000_000


def test_time_in_which_the_server_stood_still_does_not_count(hasty: Web) -> None:
    """What has arrived meanwhile is read before the client is judged."""
    with socket.create_connection(("127.0.0.1", hasty.port), PATIENCE) as connection:
        request = call(hasty, "x" * 500_000)
        connection.sendall(request[:50_000])
        os.kill(hasty.process.pid, signal.SIGSTOP)
        try:
            connection.sendall(request[50_000:])
            time.sleep(3)  # longer than the server waits for a client
        finally:
            os.kill(hasty.process.pid, signal.SIGCONT)
        assert [200] == statuses(connection.recv(15))


def test_client_that_reads_on_is_not_judged_by_the_time_in_which_the_server_stood_still(hasty: Web) -> None:
    """It has read all that the system had, and gets its time again to read the rest."""
    size = 30_000_000
    body, headers = stateless("tools/call", name="t_big", arguments={"size": size})
    data = json.dumps(body).encode()
    lines = [*(f"{name}: {value}" for name, value in headers.items()), f"Content-Length: {len(data)}"]
    with socket.create_connection(("127.0.0.1", hasty.port), PATIENCE) as connection:
        connection.sendall(head(hasty, *lines) + data)
        received = len(connection.recv(1))
        until(lambda: ") S " in Path(f"/proc/{hasty.process.pid}/stat").read_text())  # it waits for the client
        os.kill(hasty.process.pid, signal.SIGSTOP)
        try:
            connection.settimeout(3)  # longer than the server waits for a client
            with contextlib.suppress(TimeoutError):
                while True:
                    received += len(connection.recv(1 << 20))
        finally:
            os.kill(hasty.process.pid, signal.SIGCONT)
        connection.settimeout(PATIENCE)
        while received < size:
            received += len(connection.recv(1 << 20)) or size * 2
        assert received < size * 2, "the server has hung up"


def test_calls_are_bounded(narrow: Web, root: Path) -> None:
    """Who comes too late is told when to try again; those who listen do not count."""
    body, fields = stateless("subscriptions/listen", notifications={})
    listening = [narrow.stream("POST", "/mcp", body, fields) for _ in range(2)]
    held = [
        stateless("tools/call", name="t_hold", arguments={"mark": f"full{number}", "loud": True}) for number in (1, 2)
    ]
    for body, _ in held:
        body["params"]["_meta"]["progressToken"] = 1
    streams = [narrow.stream("POST", "/mcp", *each) for each in held]
    for stream in streams:
        assert stream.message()
    full = narrow.call("t_echo", text="x")
    assert (503, True) == (full.status, int(full.headers["retry-after"]) >= 1)
    asked = {
        "id": "1",
        "version": "1.0.0",
        "timestamp": "2026-01-31T12:00:00Z",
        "tool": "t.echo",
        "payload": {"text": ""},
    }
    assert 503 == narrow.ask("POST", "/v1/invoke", asked, JSON).status
    assert 503 == narrow.ask("POST", "/v1/commands/t.echo", {"text": ""}, JSON).status
    for number in (1, 2):
        (root / f"full{number}").touch()
    assert ["held", "held"] == [each.message()["result"]["content"][0]["text"] for each in streams]
    for stream in listening:
        stream.close()


def test_calls_whose_client_has_left_are_bounded_too(narrow: Web, root: Path) -> None:
    """A session goes on with them: they count until they are over, or their session is."""
    ends = {"left1": True, "left2": False}
    sessions = {mark: initialize(narrow) for mark in ends}
    for mark, fields in sessions.items():
        params = {"name": "t_hold", "arguments": {"mark": mark, "loud": True}, "_meta": {"progressToken": 1}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        stream = narrow.stream("POST", "/mcp", call, fields)
        assert stream.message()
        stream.close()
    until(lambda: b"prowess_requests_in_flight 2\n" in narrow.ask("GET", "/metrics").body)
    assert 503 == narrow.call("t_echo", text="x").status
    for mark, by_itself in ends.items():
        if by_itself:
            (root / mark).touch()
        else:
            assert 204 == narrow.ask("DELETE", headers=sessions[mark]).status
    until(lambda: b"prowess_requests_in_flight 0\n" in narrow.ask("GET", "/metrics").body)
    assert 200 == narrow.call("t_echo", text="x").status


def test_answers_and_cancellations_come_through_where_calls_do_not(narrow: Web) -> None:
    """Otherwise calls that wait for their clients would wait until their time is over."""
    asking = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "w", "version": "1"},
    }
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t_sure", "arguments": {}}}
    sessions: list[dict[str, str]] = []
    for _ in range(2):
        opened = narrow.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": asking}, JSON)
        sessions.append({**JSON, "Mcp-Session-Id": opened.headers["mcp-session-id"]})
    streams = [narrow.stream("POST", "/mcp", call, fields) for fields in sessions]
    asked = [stream.message()["id"] for stream in streams]
    assert 503 == narrow.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 2, "method": "ping"}, sessions[0]).status
    late = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}
    assert 202 == narrow.ask("POST", "/mcp", late, sessions[0]).status
    answer = {"jsonrpc": "2.0", "id": asked[0], "result": {"action": "decline"}}
    assert 202 == narrow.ask("POST", "/mcp", answer, sessions[0]).status
    assert "decline None" == streams[0].message()["result"]["content"][0]["text"]
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert 202 == narrow.ask("POST", "/mcp", cancelled, sessions[1]).status
    until(lambda: b"prowess_requests_in_flight 0\n" in narrow.ask("GET", "/metrics").body)


ADA, BOB = ({"Authorization": f"Bearer {who}"} for who in ("ada", "bob"))


@contextlib.contextmanager
def holding(web: Web, *marks: str, of: dict[str, str]) -> Generator[None]:
    """Calls of a client that run meanwhile."""
    streams: list[Events] = []
    for mark in marks:
        arguments = {"mark": mark, "loud": True}
        body, fields = stateless("tools/call", name="t_hold", arguments=arguments, _meta={"progressToken": 1})
        streams.append(web.stream("POST", "/mcp", body, {**fields, **of}))
        assert streams[-1].message()
    yield
    for mark in marks:
        (web.root / mark).touch()
    assert ["held"] * len(marks) == [each.message()["result"]["content"][0]["text"] for each in streams]


def none_in_flight(web: Web) -> None:
    until(lambda: b"prowess_requests_in_flight 0\n" in web.ask("GET", "/metrics", headers=ADA).body)


def test_one_client_cannot_take_all_the_room(shared: Web) -> None:
    """Beyond its share it is told that it is itself who takes it, at every door, and others are served."""
    none_in_flight(shared)
    with holding(shared, "a1", "a2", of=ADA):
        refused = shared.call("t_echo", ADA, text="x")
        assert 429 == refused.status
        assert refused.headers["retry-after"] == str(refused.json["error"]["data"]["prowess/retry_after"])
        assert 429 == shared.ask("POST", "/v1/commands/t.echo", {"text": "x"}, {**JSON, **ADA}).status
        envelope = {"id": "1", "version": "1.0.0", "timestamp": "2026-01-01T00:00:00Z", "tool": "t.echo"}
        sent = {**envelope, "payload": {"text": "x"}}
        assert 429 == shared.ask("POST", "/v1/invoke", sent, {**JSON, **ADA}).status
        assert "x" == shared.call("t_echo", BOB, text="x").text
        with holding(shared, "b1", of=BOB):
            full = shared.call("t_echo", BOB, text="x")
            assert (503, True) == (full.status, int(full.headers["retry-after"]) >= 1)
    none_in_flight(shared)


def test_calls_of_sessions_count_for_their_client(shared: Web) -> None:
    """Also those whose client has left."""
    none_in_flight(shared)
    fields = initialize(shared, headers=ADA)
    for mark in ("s1", "s2"):
        params = {"name": "t_hold", "arguments": {"mark": mark, "loud": True}, "_meta": {"progressToken": mark}}
        stream = shared.stream(
            "POST", "/mcp", {"jsonrpc": "2.0", "id": mark, "method": "tools/call", "params": params}, fields
        )
        assert stream.message()
        stream.close()
    until(lambda: 429 == shared.call("t_echo", ADA, text="x").status)
    assert "x" == shared.call("t_echo", BOB, text="x").text
    for mark in ("s1", "s2"):
        (shared.root / mark).touch()
    none_in_flight(shared)
    assert "x" == shared.call("t_echo", ADA, text="x").text


def test_each_call_of_a_batch_counts(shared: Web) -> None:
    """Otherwise one request could start a thousand."""
    none_in_flight(shared)
    fields = initialize(shared, "2025-03-26", headers=ADA)
    marks = ["k1", "k2", "k3"]
    batch = [
        {
            "jsonrpc": "2.0",
            "id": mark,
            "method": "tools/call",
            "params": {"name": "t_hold", "arguments": {"mark": mark}},
        }
        for mark in marks
    ]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answered = pool.submit(shared.ask, "POST", "/mcp", batch, fields)
        until(lambda: all((shared.root / f"{mark}.begun").exists() for mark in marks))
        assert 429 == shared.call("t_echo", ADA, text="x").status
        for mark in marks:
            (shared.root / mark).touch()
        assert 3 == len(answered.result().json)
    none_in_flight(shared)


def test_tasks_can_be_ended_where_there_is_no_room(shared: Web) -> None:
    """A task that waits for an answer keeps what it holds until it gets one, or is cancelled."""
    none_in_flight(shared)
    takes = {CAPABILITIES_KEY: {"extensions": {TASKS: {}}, "elicitation": {}}}
    tasks = [
        shared.stateless("tools/call", ADA, name="t_later", arguments={}, _meta=takes).json["result"]["taskId"]
        for _ in range(2)
    ]

    def about(method: str, task: str, **params: Any) -> Answer:
        return shared.stateless(method, {**ADA, "Mcp-Name": task}, taskId=task, _meta=takes, **params)

    until(lambda: all(about("tasks/get", task).json["result"]["status"] == "input_required" for task in tasks))
    with holding(shared, "t1", "t2", of=ADA):
        assert 429 == about("tasks/get", tasks[0]).status
        answers = {"sure": {"action": "decline"}}
        assert 200 == about("tasks/update", tasks[0], inputResponses=answers).status
        assert 200 == about("tasks/cancel", tasks[1]).status
    until(lambda: about("tasks/get", tasks[0]).json["result"]["status"] == "completed")
    assert "cancelled" == about("tasks/get", tasks[1]).json["result"]["status"]


def test_one_client_pushes_out_its_own_sessions_alone(shared: Web) -> None:
    """However many it opens, those of others stay."""
    bobs = initialize(shared, headers=BOB)
    adas = [initialize(shared, headers=ADA) for _ in range(5)]
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert 200 == shared.ask("POST", "/mcp", ping, bobs).status
    assert [404, 404, 404, 200, 200] == [shared.ask("POST", "/mcp", ping, each).status for each in adas]
    more = initialize(shared, headers=BOB)  # now it is full, and the one with the most makes room
    assert [200, 200] == [shared.ask("POST", "/mcp", ping, each).status for each in (bobs, more)]
    assert [404, 200] == [shared.ask("POST", "/mcp", ping, each).status for each in adas[3:]]
    standing = [shared.stream("GET", headers=each) for each in (bobs, more)]
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "w", "version": "1"}}
    own = shared.ask("POST", "/mcp", {**ping, "method": "initialize", "params": opening}, {**JSON, **BOB})
    assert (429, "1") == (own.status, own.headers["retry-after"])
    body, fields = stateless("subscriptions/listen", notifications={"toolsListChanged": True})
    assert 429 == shared.ask("POST", "/mcp", body, {**fields, **BOB}).status
    listening = shared.stream("POST", "/mcp", body, {**fields, **ADA})
    assert listening.message()
    assert 503 == shared.ask("POST", "/mcp", body, {**fields, **ADA}).status
    for each in (*standing, listening):
        each.close()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1%eth0", "2001:db8:0:1::1", False),
        ("testclient", "", False),
    ],
)
def test_who_has_no_credentials_is_known_by_its_address(one: str, other: str, same: bool) -> None:
    """Whoever has one address of IPv6 has a whole network of them."""
    assert same == (client_of(Caller(), one) == client_of(None, other))
    assert client_of(Caller(1), one) == client_of(Caller(1, frozenset("a")), other)
    assert client_of(Caller(1), one) != client_of(Caller(2), one)


def test_large_bodies_are_bounded_all_together(root: Path) -> None:
    """However many clients send one at the same time, and in however small parts.

    Small requests are served meanwhile, and slow uploads keep out neither quicker ones nor other clients.
    """
    size = 128 * 1024
    settings = "--set", f"serve.max_body={size}", "--set", "serve.patience=1000"
    with served_over_http(root, *settings) as web, contextlib.ExitStack() as stack:
        web.call("t_echo", text="ready")
        fields = head(web, "Content-Type: application/json", f"Content-Length: {size}")
        waiting: list[socket.socket] = []
        refused: list[socket.socket] = []
        for _ in range(20):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", web.port), PATIENCE))
            connection.sendall(fields + b" " * (size - 1))
            waiting.append(connection)
        while not refused:
            refused, _, _ = select.select(waiting, [], [], PATIENCE)
        assert [503] == statuses(refused[0].recv(65536))
        assert "x" == web.call("t_echo", text="x").text
        until(lambda: web.call("t_echo", text="x" * 100_000).status == 200)  # and a slow upload is refused instead
        if sys.platform == "linux":  # elsewhere a machine has one address of loopback
            web.address = "127.0.0.2"
            assert [200] * 5 == [web.call("t_echo", text="x" * 100_000).status for _ in range(5)]
        for connection in waiting:
            connection.close()
        chunked = head(web, "Content-Type: application/json", "Transfer-Encoding: chunked", "Connection: close")
        assert [400] == statuses(web.raw(chunked + b"1\r\n \r\n" * 100_000 + b"0\r\n\r\n"))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a machine has one address of loopback")
def test_unread_responses_are_bounded_all_together(tmp_path: Path) -> None:
    """The client that leaves most unread loses the response that waits longest, and the others are left alone."""
    size = 12_000_000  # much more than the system keeps on the way
    root = make_project(tmp_path, t=f"    @skill_command\n    def large() -> str:\n        return 'x' * {size}\n")
    small = f"import prowess_host.http.http1 as http1; http1._MOST_UNREAD = {2 * size}; "
    with (
        served_over_http(root, "--set", "serve.patience=1000", before=small) as web,
        contextlib.ExitStack() as stack,
    ):
        body, headers = stateless("tools/call", name="t_large", arguments={})
        data = json.dumps(body).encode()
        fields = [f"{name}: {value}" for name, value in {**headers, "Connection": "close"}.items()]
        asking: list[socket.socket] = []
        for address in ("127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.2"):
            connection = stack.enter_context(socket.socket())
            if asking:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.bind((address, 0))
            connection.settimeout(PATIENCE)
            connection.connect(("127.0.0.1", web.port))
            connection.sendall(head(web, *fields, f"Content-Length: {len(data)}") + data)
            assert connection.recv(1, socket.MSG_PEEK)
            asking.append(connection)
        with pytest.raises(ConnectionResetError):
            _whole(asking[1])
        answered = _whole(asking[0])
        assert [200] == statuses(answered[:100])
        assert len(answered) > size


def _whole(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_connections_are_bounded(narrow: Web) -> None:
    """The next one is told when to try again."""
    with contextlib.ExitStack() as stack:
        address = "127.0.0.1", narrow.port
        every = [stack.enter_context(socket.create_connection(address)) for _ in range(SMALL["max_connections"] + 1)]
        refused, _, _ = select.select(every, [], [], PATIENCE)
        answered = refused[0].recv(65536)
        assert [503] == statuses(answered)
        assert b"retry-after: 1" in answered


def files(soft: int, hard: int) -> str:
    """The beginning of a server that may have so many open files."""
    return f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); "


def test_as_many_files_may_be_open_as_connections(root: Path) -> None:
    """Many systems allow 1024 until a program asks for more."""
    with served_over_http(root, *set_to(max_connections=1000), before=files(300, 2000)) as web:
        assert 200 == web.ask("GET", "/healthz").status
        assert (1500, 2000) == resource.prlimit(web.process.pid, resource.RLIMIT_NOFILE)
        assert "open files" not in web.errors.read_text()


def test_connections_are_bounded_by_the_files_that_may_be_open(root: Path) -> None:
    """Half of a small number is left for workers. Without it, the server would stand still instead of refusing clients."""
    with served_over_http(root, before=files(300, 300)) as web, contextlib.ExitStack() as stack:
        assert "at most 150 connections are served" in web.errors.read_text()
        address = "127.0.0.1", web.port
        every = [stack.enter_context(socket.create_connection(address)) for _ in range(151)]
        refused, _, _ = select.select(every, [], [], PATIENCE)
        assert [503] == statuses(refused[0].recv(65536))
        for each in every[:10]:
            each.close()
        until(lambda: web.call("t_echo", text="x").status == 200)


def test_leaving_is_noticed_where_further_requests_wait(web: Web) -> None:
    """Nothing is read then, also not that the client has left. Its call is cancelled, and the next one never begins."""
    calls = b""
    for mark in ("first", "next"):
        body, headers = stateless("tools/call", name="t_hold", arguments={"mark": mark})
        data = json.dumps(body).encode()
        lines = [f"{name}: {value}" for name, value in {**headers, "Accept": "application/json"}.items()]
        calls += head(web, *lines, f"Content-Length: {len(data)}") + data
    with socket.create_connection(("127.0.0.1", web.port), PATIENCE) as connection:
        connection.sendall(calls)
        until((web.root / "first.begun").exists)
    until((web.root / "first.cancelled").exists)
    assert "x" == web.call("t_echo", text="x").text
    assert not (web.root / "next.begun").exists()


LATE = """
    while not (Path(__file__).parent / "gate").exists():
        time.sleep(0.01)

    @skill_command
    def run(mark: str) -> str:
        Path(mark).touch()
        return "ran"
"""
SCOPED = """
[[auth.credentials]]
type = "bearer"
token = "ada"
scopes = ["all"]

[auth.scopes]
"other" = ["more"]
"""


@pytest.mark.parametrize("sessions", [True, False])
def test_leaving_before_the_commands_are_loaded_ends_a_request(tmp_path: Path, *, sessions: bool) -> None:
    """Its scopes are checked when the commands are known. It must not take a place for ever, and its call never begins."""
    root = make_project(tmp_path / "p", SCOPED, t=f"    from pathlib import Path\n{LATE}")
    ran, left = tmp_path / "ran", b'prowess_http_requests_total{route="mcp",method="POST",status="0"} 1\n'
    body, fields = stateless("tools/call", name="t_run", arguments={"mark": str(ran)})
    if not sessions:  # then this is how clients of older revisions call
        fields["MCP-Protocol-Version"] = "2025-03-26"
        del body["params"]["_meta"]
    data = json.dumps(body).encode()
    lines = [f"{name}: {value}" for name, value in {**fields, **ADA}.items()]
    with served_over_http(root, "--set", f"serve.sessions={str(sessions).lower()}") as web:

        def metrics() -> bytes:
            return web.ask("GET", "/metrics", headers=ADA).body

        with socket.create_connection(("127.0.0.1", web.port), PATIENCE) as connection:
            connection.sendall(head(web, *lines, f"Content-Length: {len(data)}") + data)
        until(lambda: left in metrics())
        (root / "skills" / "gate").touch()
        assert "ran" == web.call("t_run", ADA, mark=str(tmp_path / "last")).text
        assert b"prowess_requests_in_flight 0\n" in metrics()
        assert not ran.exists()


# Framing


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET http://127.0.0.1:{}/healthz HTTP/1.1", 200),
        ("GET HTTP://127.0.0.1:{}/healthz HTTP/1.1", 200),
        ("GET http://evil.example/healthz HTTP/1.1", 400),
        ("GET http://evil.example:{}/healthz HTTP/1.1", 400),
        ("GET http://evil@127.0.0.1:{}/healthz HTTP/1.1", 400),
        ("GET http://127.0.0.1/healthz HTTP/1.1", 400),
        ("GET /healthz HTTP/2.0", 400),
        ("GET /healthz HTTP/0.9", 400),
        ("GET /healthz HTTP/1.2", 400),
        ("GET /healthz HTTP/1.0", 200),
        ("OPTIONS * HTTP/1.1", 404),
    ],
)
def test_a_whole_url_must_name_the_host_and_the_version_is_one_of_two(web: Web, line: str, status: int) -> None:
    """A whole URL in the request line counts more than the header `Host`, which is checked."""
    sent = head(web, "Connection: close", line=line.format(web.port))
    for _ in range(2):
        assert [status] == statuses(web.raw(sent))


def test_requests_may_be_pipelined(web: Web) -> None:
    """They are answered in their order."""
    last = call(web, "c", "Connection: close")
    answered = web.raw(call(web, "a") + call(web, "b") + last)
    assert [200, 200, 200] == statuses(answered)
    order = [answered.index(f'"text":"{text}"'.encode()) for text in "abc"]
    assert sorted(order) == order


def test_a_body_may_come_in_chunks_and_in_single_bytes(web: Web) -> None:
    body, headers = stateless("tools/call", name="t_echo", arguments={"text": "chunks"})
    data = json.dumps(body).encode()
    lines = [f"{name}: {value}" for name, value in headers.items()]
    start = head(web, *lines, "Transfer-Encoding: chunked", "Connection: close")
    chunks = b"".join(b"%x;a=b\r\n%b\r\n" % (1, bytes([byte])) for byte in data) + b"0\r\nX-Trailer: 1\r\n\r\n"
    whole = start + chunks
    answered = web.raw(*(whole[at : at + 7] for at in range(0, len(whole), 7)))
    assert [200] == statuses(answered)
    assert b"chunks" in answered


@pytest.mark.parametrize(
    "fields",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: -5"],
        ["Content-Length: 5x"],
        ["Content-Length: 0x5"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: identity, chunked"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding : chunked"],
        ["Transfer-Encoding: \x0bchunked"],
        ["Transfer-Encoding:"],
        ["Content-Length: 5", "Content-Length: 5"],
        ["Content-Length: 5, 5"],
        ["Content-Length: +5"],
        ["Content-Length:"],
        ["Content-Length: 18446744073709551616"],
        ["X: a\r\n folded"],
        ["X: a\nContent-Length: 5"],
        ["Transfer-Encoding: xchunked"],
        ["Bad Name: 5"],
        [" Folded: 5"],
        ["X: a\x00b"],
    ],
)
def test_doubtful_framing_is_refused(web: Web, fields: list[str]) -> None:
    """Two servers might read different requests out of it: one answer, and the connection ends."""
    smuggled = head(web, line="GET /healthz HTTP/1.1")
    answered = statuses(web.raw(head(web, "Content-Type: application/json", *fields) + b"0\r\n\r\n" + smuggled))
    assert [400] == answered


@pytest.mark.parametrize(
    "body",
    [
        b"0;a\n\r\n",
        b"0x0\r\n\r\n",
        b"-1\r\n\r\n",
        b"0 \r\n\r\n",
        b"FFFFFFFFFFFFFFFFF\r\n\r\n",
        b"3\r\nabcX\r\n0\r\n\r\n",
        b"3\nabc\n0\n\n",
        b"0\r\nContent-Length: 50\r\n\r\n",
    ],
)
def test_doubtful_chunks_are_refused(web: Web, body: bytes) -> None:
    """Nothing that follows is taken for a request."""
    smuggled = head(web, "Connection: close", line="GET /healthz HTTP/1.1")
    sent = head(web, "Content-Type: application/json", "Transfer-Encoding: chunked") + body + smuggled
    assert [400] == statuses(web.raw(sent))


@pytest.mark.parametrize("cut", [0, 1, 5, 60])
def test_an_offer_of_another_protocol_is_ignored(web: Web, cut: int) -> None:
    """Clients in Java offer HTTP/2 with their first request. Its body belongs to it, and more requests follow."""
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    first, last = call(web, "first", *offer), call(web, "last", "Connection: close")
    middle = head(web, "Connection: keep-alive, Upgrade", "Upgrade: websocket", line="GET /healthz HTTP/1.1")
    whole = first + middle + last
    at = first.index(b"\r\n\r\n") + 4 - cut
    answered = web.raw(whole[:at], whole[at : at + 20], whole[at + 20 :])
    assert [200, 200, 200] == statuses(answered)
    assert b'"text":"first"' in answered
    assert b'"text":"last"' in answered


def test_many_offers_at_once_are_ignored_too(web: Web) -> None:
    """More than a stack of calls is deep."""
    offers = head(web, "Connection: Upgrade", "Upgrade: x", line="GET / HTTP/1.1") * 1100
    last = head(web, "Connection: close", line="GET /healthz HTTP/1.1")
    assert [404] * 1100 + [200] == statuses(web.raw(offers + last))


@pytest.mark.parametrize("broken", ["garbage", "head", "chunk"])
def test_broken_request_leaves_earlier_ones_alone(web: Web, broken: str) -> None:
    """They may have had effects, so their answers are not replaced by the refusal of what follows."""
    follows = {
        "garbage": b"\x00\r\n\r\n",
        "head": head(web, "Content-Length: 5", "Content-Length: 6"),
        "chunk": head(web, "Content-Type: application/json", "Transfer-Encoding: chunked") + b"zz\r\n",
    }
    for earlier in (1, 2):
        answered = web.raw(call(web, "earlier") * earlier + follows[broken])
        assert [*[200] * earlier, 400] == statuses(answered)
        assert earlier == answered.count(b'"text":"earlier"')


def test_body_that_was_not_asked_for_is_not_waited_for(web: Web) -> None:
    """A client that expects `100 Continue` and gets another answer may send the body or not: nothing after that is a request."""
    expecting = head(web, "Expect: 100-continue", "Content-Length: 5", line="POST /nothing HTTP/1.1")
    last = head(web, "Connection: close", line="GET /healthz HTTP/1.1")
    assert [404] == statuses(web.raw(expecting))
    assert [404, 200] == statuses(web.raw(expecting + b"abcde" + last)), "the body was there"


def test_strange_requests_are_answered(web: Web) -> None:
    """Methods, versions and targets that nobody uses; websockets; a body where none belongs."""
    cases = [
        (head(web, "Connection: close", line="BREW /mcp HTTP/1.1"), [400]),
        (head(web, line="GET /mcp HTTP/9.9"), [400]),
        (head(web, "Connection: close", line="OPTIONS * HTTP/1.1"), [404, 400]),
        (head(web, line="CONNECT example.com:443 HTTP/1.1"), [400]),
        (head(web, "Connection: close", line="GET /%ff%00/../mcp HTTP/1.1"), [404]),
        (head(web, "Connection: Upgrade, close", "Upgrade: websocket", line="GET /healthz HTTP/1.1"), [200]),
        (head(web, "Connection: close", "Content-Length: 3", line="GET /healthz HTTP/1.1") + b"abc", [200]),
        (b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n", [200]),
        (b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", [400]),
        (b"\x16\x03\x01\x02\x00\x01\x00", [400]),
        (b"\r\n\r\n\r\n\x00", [400]),
    ]
    for sent, wanted in cases:
        answered = statuses(web.raw(sent))
        assert answered, sent
        assert answered[0] in wanted, sent


def test_garbage_hurts_nobody_else(web: Web) -> None:
    """A session and a stateless client are served while bytes are torn, repeated, dropped and made up."""
    dice = random.Random(20)
    fields = initialize(web)
    good = [call(web, "x" * dice.randrange(300)), head(web, line="GET /healthz HTTP/1.1")]
    for number in range(60):
        data = bytearray(b"".join(dice.choices(good, k=dice.randrange(1, 4))))
        for _ in range(dice.randrange(1, 12)):
            at = dice.randrange(len(data))
            data[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(4))
        with socket.create_connection(("127.0.0.1", web.port)) as connection, contextlib.suppress(OSError):
            cut = dice.randrange(len(data))
            connection.sendall(data[:cut])
            connection.sendall(data[cut:])
            if number % 3:
                connection.shutdown(socket.SHUT_WR)
        if number % 10 == 0:
            request = {"jsonrpc": "2.0", "id": number, "method": "ping"}
            assert {"jsonrpc": "2.0", "id": number, "result": {}} == web.ask("POST", "/mcp", request, fields).json
            assert str(number) == web.call("t_echo", text=str(number)).text
    assert "" == web.errors.read_text()
