"""What becomes of each message, from bytes to answer, in both eras."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prowess_host.protocol.codec import decode
from prowess_host.protocol.eras import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    HANDSHAKE,
    LOG_LEVEL_KEY,
    SUBSCRIPTION_KEY,
    VERSION_KEY,
)
from prowess_host.protocol.identity import Server
from prowess_host.protocol.kinds import ROWS as KINDS
from prowess_host.protocol.lines import LineSplitter
from prowess_host.protocol.routing import MAX_BATCH, Action, Answered, Cancelled, Group, Ignored, Reply, route
from prowess_host.protocol.session import RequestInFlight, Session

ENVELOPE: dict[str, Any] = {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}
ABSENT = "no id"
BODY = b'{"content":[]}'


def request(request_id: Any, method: str, **params: Any) -> dict[str, Any]:
    """A request of a handshake client."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def enveloped(request_id: Any, method: str, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """A request of a stateless client. `...` as a value takes a key out of the envelope."""
    whole = {name: value for name, value in {**ENVELOPE, **(meta or {})}.items() if value is not ...}
    return request(request_id, method, _meta=whole, **params)


def notification(method: str, **params: Any) -> dict[str, Any]:
    """A notification of a client."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


INITIALIZE = request(
    0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "c", "version": "1"}
)
CANCEL = "notifications/cancelled"


class Peer:
    """A client on one connection, and the host's side of it. Calls stay in flight until `finish`."""

    def __init__(self, era: str = "none") -> None:
        self.session = Session(Server("s", "1"))
        self.splitter = LineSplitter(limit=100_000)
        self.calls: list[RequestInFlight] = []
        self.other: list[Action] = []
        self.now = 0.0
        if era == "stateless":
            self.send(enveloped("first", "server/discover"))
        elif era != "none":
            self.send({**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": era}})

    def send(self, *messages: Any) -> list[Any]:
        """What is written at once in answer to these messages (values, or bytes as they are)."""
        lines = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
        read = self.splitter.feed(b"".join(line + b"\n" for line in lines))
        written = [self.act(route(decode(line), self.session, self.now)) for line in read]
        return [json.loads(line) for line in b"".join(written).splitlines()]

    def act(self, action: Action) -> bytes:
        """Do what the host does."""
        if isinstance(action, Group):
            return b"".join([self.act(each) for each in action.actions])
        if isinstance(action, (Reply, Cancelled)):
            self.other.extend([action] if isinstance(action, Cancelled) else [])
            return action.line
        (self.calls if isinstance(action, RequestInFlight) else self.other).append(action)  # pyright: ignore[reportArgumentType] - sorted by kind
        return b""

    def finish(self, call: RequestInFlight) -> list[Any]:
        """What is written when the call has its result."""
        return [json.loads(line) for line in self.session.answer(call, BODY).splitlines()]

    def outcomes(self, *messages: Any) -> list[tuple[Any, Any]]:
        """Each message with an id, and what became of it: an error code, "result" or "call"."""
        replies = [
            (reply.get("id", ABSENT), reply["error"]["code"] if "error" in reply else "result")
            for reply in self.send(*messages)
        ]
        return replies + [(call.id, "call") for call in self.calls]


H, S, N = "2025-11-25", "stateless", "none"
CALL = request(1, "tools/call", name="x")
BOTH = [(H, CALL), (S, enveloped(1, "tools/call", name="x"))]


def variants(row: str, outcome: list[tuple[Any, Any]], *lines: Any) -> list[Any]:
    """The same line after each kind of opening, with the same outcome."""
    return [pytest.param(era, lines, outcome, id=f"{row} [{era}]") for era in (N, H, S)]


def changed(message: dict[str, Any], **members: Any) -> dict[str, Any]:
    """A message with other members at its root. `...` takes one out."""
    return {name: value for name, value in {**message, **members}.items() if value is not ...}


ROWS = [
    *variants("row-1 malformed JSON", [(ABSENT, -32700)], b"{"),
    *variants("row-1 plain text", [(ABSENT, -32700)], b"hello"),
    *variants("row-1 scalar", [(ABSENT, -32600)], b"42"),
    *variants("row-2 no jsonrpc", [(1, -32600)], changed(CALL, jsonrpc=...)),
    *variants("row-2 jsonrpc 1.0", [(1, -32600)], changed(CALL, jsonrpc="1.0")),
    *variants("row-2 method a number", [(1, -32600)], changed(CALL, method=5)),
    *variants("row-2 no method", [(1, -32600)], changed(CALL, method=...)),
    *variants("row-2 params a list", [(1, -32602)], changed(CALL, params=[1])),
    *[
        each
        for bad in (None, 1.5, 2.0, True, {})
        for each in variants(f"row-3 id {bad}", [(ABSENT, -32600)], changed(CALL, id=bad))
    ],
    *[
        pytest.param(era, [changed(call, id=odd)], [(odd, "call")], id=f"row-4 id {odd!r} [{era}]")
        for era, call in BOTH
        for odd in ("", -1, 10**30, "1", "é")
    ],
    *variants("row-5 invalid UTF-8 in a string", [(1, -32700)], json.dumps(CALL).encode().replace(b'"x"', b'"\xff"')),
    *variants("row-6 bare invalid bytes", [(ABSENT, -32700)], b"\xff\xfe\x80"),
    *variants("row-7 blank lines", [], b"", b"  ", b"\t\r"),
    *variants(
        "row-10 lone surrogate", [(1, -32602)], changed(CALL, params={"name": "x", "arguments": {"a": "\ud800"}})
    ),
    *variants("row-11 NaN", [(1, -32602)], changed(CALL, params={"name": float("nan")})),
    *[
        pytest.param(
            era,
            [changed(call, params={**call["params"], "arguments": {"a": float("nan")}})],
            [(1, "call")],
            id=f"row-11 NaN in arguments [{era}]",
        )
        for era, call in BOTH
    ],
    pytest.param(
        H,
        [CALL, changed(CALL, jsonrpc="1.0")],
        [(ABSENT, -32600), (1, "call")],
        id="a broken message with the id of a request in flight",
    ),
    *variants("row-13 deep nesting", [(ABSENT, -32600)], b"[" * 100_000),
    pytest.param(
        H, [b'{"jsonrpc":"2.0","id":10,"id":11,"method":"ping"}'], [(11, "result")], id="row-12 duplicate keys"
    ),
    *variants("row-14 a line over the limit", [(ABSENT, -32600)], b"x" * 100_001),
    pytest.param(N, [request(1, "no/such")], [(1, -32601)], id="row-16 unknown method, before initialize"),
    pytest.param(H, [request(1, "no/such")], [(1, -32601)], id="row-16 unknown method, handshake"),
    pytest.param(S, [enveloped(1, "no/such")], [(1, -32601)], id="row-16 unknown method, stateless"),
    *variants("row-17 unknown notification", [], notification("notifications/none")),
    *variants("row-17 cancellation of nothing", [], notification(CANCEL, requestId=99)),
    *variants("row-17 malformed cancellation", [], notification(CANCEL), notification(CANCEL, requestId={})),
    *variants("row-17 unsolicited result", [], {"jsonrpc": "2.0", "id": 5, "result": {}}),
    *variants("row-17 unsolicited error", [], {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "m"}}),
    *[
        pytest.param(era, [changed(call, params={**call["params"], **bad})], [(1, -32602)], id=f"row-18 {bad} [{era}]")
        for era, call in BOTH
        for bad in ({"name": None}, {"name": 5}, {"arguments": [1]}, {"arguments": "a"})
    ],
    pytest.param(H, [changed(CALL, params=...)], [(1, -32602)], id="row-18 no params [2025-11-25]"),
    pytest.param(S, [enveloped(1, "tools/call")], [(1, -32602)], id="row-18 no name [stateless]"),
    *[
        pytest.param(
            era, [changed(call, params={**call["params"], "arguments": None})], [(1, "call")], id=f"row-19 [{era}]"
        )
        for era, call in BOTH
    ],
    pytest.param(H, [b"[]"], [(ABSENT, -32600)], id="row-23 empty batch where there are none"),
    pytest.param(H, [[CALL]], [(ABSENT, -32600)], id="row-23 batch where there are none"),
    pytest.param(N, [[CALL]], [(ABSENT, -32600)], id="row-23 batch before initialize"),
    pytest.param("2025-06-18", [[CALL]], [(ABSENT, -32600)], id="row-23 batch in 2025-06-18"),
    pytest.param("2024-11-05", [[CALL]], [(ABSENT, -32600)], id="row-23 batch in 2024-11-05"),
    pytest.param("2025-03-26", [b"[]"], [(ABSENT, -32600)], id="row-23 empty batch in 2025-03-26"),
    *[
        pytest.param(era, [call, call], [(1, -32600), (1, "call")], id=f"row-24 duplicate id in flight [{era}]")
        for era, call in BOTH
    ],
    pytest.param(H, [CALL, changed(CALL, id="1")], [(1, "call"), ("1", "call")], id="row-24 1 and '1' are two ids"),
    pytest.param(N, [CALL], [(1, -32602)], id="row-25 call before initialize"),
    pytest.param(N, [request(1, "tools/list")], [(1, -32602)], id="row-25 list before initialize"),
    pytest.param(N, [request(1, "server/discover")], [(1, -32602)], id="row-25 discover without envelope"),
    pytest.param(N, [changed(request(1, "ping"), params=...)], [(1, "result")], id="row-25 ping before initialize"),
    pytest.param(
        N,
        [b"junk", *[notification("notifications/x")] * 20, INITIALIZE],
        [(ABSENT, -32700), (0, "result")],
        id="row-26 garbage and notifications before the first request",
    ),
    pytest.param(H, [enveloped(1, "tools/call", name="x")], [(1, "call")], id="row-49 handshake, then an envelope"),
    pytest.param(S, [INITIALIZE, CALL], [(0, "result"), (1, "call")], id="row-50 stateless, then initialize"),
    pytest.param(
        N,
        [enveloped(1, "server/discover", {VERSION_KEY: "2099-01-01"}), INITIALIZE],
        [(1, -32022), (0, "result")],
        id="row-51 a probe of an unknown version, then initialize",
    ),
    *[
        pytest.param(N, [enveloped(1, "tools/call", bad, name="x")], [(1, -32602)], id=f"row-53 {bad}")
        for bad in (
            {CAPABILITIES_KEY: 5},
            {CLIENT_KEY: "x"},
            {CAPABILITIES_KEY: ...},
            {VERSION_KEY: 5},
            {LOG_LEVEL_KEY: "loud"},
            {"progressToken": True},
        )
    ],
    pytest.param(N, [enveloped(1, "ping")], [(1, -32601)], id="ping has gone from the stateless era"),
    pytest.param(N, [enveloped(1, "logging/setLevel", level="info")], [(1, -32601)], id="so has logging/setLevel"),
    pytest.param(N, [enveloped(1, "initialize")], [(1, -32601)], id="initialize in an envelope and without a version"),
    pytest.param(H, [request(1, "server/discover")], [(1, -32601)], id="discover is not of the handshake era"),
    pytest.param(H, [request(1, "tasks/list")], [(1, -32601)], id="what is not declared is not there"),
    pytest.param(H, [request(1, "ping"), request(2, "ping")], [(1, "result"), (2, "result")], id="ping"),
    pytest.param(H, [request(1, "logging/setLevel", level="loud")], [(1, -32602)], id="a log level that is none"),
    pytest.param(H, [request(1, "tools/list", _meta={"progressToken": 1.5})], [(1, -32602)], id="a bad progress token"),
    pytest.param(H, [request(1, "tools/list", _meta=5)], [(1, "call")], id="a _meta that is none is none"),
    pytest.param(N, [request(1, "initialize")], [(1, -32602)], id="initialize without a version"),
    pytest.param(N, [request(1, "initialize", protocolVersion=[])], [(1, -32602)], id="initialize with a list"),
    pytest.param(H, [notification("tools/call", name="x")], [], id="a request without an id is a notification"),
]


@pytest.mark.parametrize(("opening", "messages", "outcome"), ROWS)
def test_what_becomes_of_a_message(opening: str, messages: list[Any], outcome: list[tuple[Any, Any]]) -> None:
    """One answer or one call for each readable id, and the connection goes on."""
    peer = Peer(opening)
    assert outcome == peer.outcomes(*messages)
    assert [("p", "result")] == Peer.outcomes(Peer("2025-11-25"), request("p", "ping"))
    peer.calls.clear()
    assert [("p", "call")] == peer.outcomes(enveloped("p", "tools/call", name="x"))


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"\xef\xbb\xbf" + json.dumps(INITIALIZE).encode() + b"\n", id="row-9 byte order mark first"),
        pytest.param(json.dumps(INITIALIZE).encode() + b"\r\n", id="row-8 CRLF"),
    ],
)
def test_a_first_line_is_served_however_it_is_framed(stream: bytes) -> None:
    """The handshake is not lost."""
    peer = Peer()
    (line,) = peer.splitter.feed(stream)
    assert isinstance(route(decode(line), peer.session, 0.0), Reply)
    assert peer.session.revision is not None


def test_row_8_a_last_line_without_newline_is_served() -> None:
    """The end of the stream ends it."""
    peer = Peer("2025-11-25")
    assert [] == peer.splitter.feed(json.dumps(CALL).encode())
    (line,) = peer.splitter.close()
    assert isinstance(route(decode(line), peer.session, 0.0), RequestInFlight)


# Openings


@pytest.mark.parametrize("version", HANDSHAKE)
def test_a_handshake_settles_on_the_version_asked_for(version: str) -> None:
    """And the session sees it on the very next line."""
    peer = Peer()
    initialize = changed(INITIALIZE, params={**INITIALIZE["params"], "protocolVersion": version})
    (answer,) = peer.send(initialize, notification("notifications/initialized"), CALL)
    assert version == answer["result"]["protocolVersion"]
    assert version == peer.calls[0].revision.version


@pytest.mark.parametrize("version", ["2026-07-28", "1900-01-01", ""])
def test_a_handshake_for_another_version_settles_on_the_latest_that_has_one(version: str) -> None:
    """Whatever was asked for."""
    (answer,) = Peer().send(request(0, "initialize", protocolVersion=version))
    assert "2025-11-25" == answer["result"]["protocolVersion"]


def test_initialize_with_a_version_is_a_handshake_even_in_an_envelope() -> None:
    """Some clients stamp every request."""
    (answer,) = Peer().send(enveloped(0, "initialize", protocolVersion="2025-06-18"))
    assert "2025-06-18" == answer["result"]["protocolVersion"]


def test_a_second_handshake_negotiates_again() -> None:
    """The specification does not forbid it."""
    peer = Peer("2025-11-25")
    (answer,) = peer.send(request(9, "initialize", protocolVersion="2024-11-05"))
    assert "2024-11-05" == answer["result"]["protocolVersion"]


def test_row_25_what_to_do_before_initialize_is_said() -> None:
    """For a client of either era."""
    (answer,) = Peer().send(CALL)
    assert VERSION_KEY in answer["error"]["message"]
    assert "send initialize first" in answer["error"]["message"]


def test_row_51_an_unsupported_version_is_told_both_eras() -> None:
    """A subset of what discover says."""
    peer = Peer()
    refused, told = peer.send(enveloped(1, "tools/list", {VERSION_KEY: "2099-01-01"}), enveloped(2, "server/discover"))
    assert {"supported": told["result"]["supportedVersions"], "requested": "2099-01-01"} == refused["error"]["data"]
    assert ["2026-07-28", "2025-11-25"] == told["result"]["supportedVersions"][:2]


def test_discover_is_a_complete_and_cacheable_result() -> None:
    """With the identity in its `_meta`."""
    (told,) = Peer().send(enveloped("d", "server/discover"))
    assert ("complete", 0, "private") == tuple(told["result"][name] for name in ("resultType", "ttlMs", "cacheScope"))
    extensions = {"io.modelcontextprotocol/tasks": {}}
    assert {"tools": {"listChanged": True}, "logging": {}, "extensions": extensions} == told["result"]["capabilities"]


# Calls


def test_a_handshake_call_has_what_the_session_knows() -> None:
    """The client of the handshake, and the token of the request."""
    peer = Peer()
    peer.send(changed(INITIALIZE, params={**INITIALIZE["params"], "capabilities": {"elicitation": {}}}))
    line = json.dumps(request(1, "tools/call", name="x", arguments={"a": 1}, _meta={"progressToken": "t"})).encode()
    peer.send(line)
    (call,) = peer.calls
    assert ({"elicitation": {}}, "c", "t", None) == (
        call.client.capabilities,
        call.client.info["name"],
        call.progress_token,
        call.log_level,
    )
    assert ({"a": 1}, b'{"a": 1}') == (call.arguments, call.text)


def test_a_stateless_call_has_what_its_envelope_says_and_nothing_else() -> None:
    """Whatever the session knows."""
    peer = Peer("2025-11-25")
    meta = {CLIENT_KEY: {"name": "m", "version": "1"}, LOG_LEVEL_KEY: "debug", "progressToken": 7}
    peer.send(enveloped(1, "tools/call", meta, name="x"), enveloped(2, "tools/call", name="x"))
    one, other = peer.calls
    assert ("m", "debug", 7) == (one.client.info["name"], one.log_level, one.progress_token)
    assert ({}, {}, None, None) == (*other.client, other.log_level, other.progress_token)


@pytest.mark.parametrize("meta", [5, "x", [], True, None])
def test_a_meta_that_is_no_object_is_none(meta: Any) -> None:
    peer = Peer("2025-11-25")
    peer.send(request(1, "tools/call", name="x", arguments={}, _meta=meta))
    (call,) = peer.calls
    assert not call.params.get("_meta")
    assert call.progress_token is None


def test_a_cancelled_call_gets_no_answer() -> None:
    """The host is told which, and why."""
    peer = Peer("2025-11-25")
    assert [] == peer.send(CALL, notification(CANCEL, requestId="1", reason="bored"), notification(CANCEL, requestId=1))
    assert [Cancelled(peer.calls[0], "bored"), Ignored("cancellation of a call that is not in flight")] == peer.other
    assert [] == peer.finish(peer.calls[0])


def test_a_reason_that_is_no_text_is_no_reason() -> None:
    """It is only for a log."""
    peer = Peer("2025-11-25")
    peer.send(CALL, notification(CANCEL, requestId=1, reason=5))
    assert [Cancelled(peer.calls[0], "")] == peer.other


def test_the_log_level_of_a_session_can_be_set() -> None:
    """From then on."""
    peer = Peer("2025-11-25")
    assert {} == peer.send(request(1, "logging/setLevel", level="error"))[0]["result"]
    assert "error" == peer.session.log_level


def test_a_response_finds_the_question_it_answers() -> None:
    """With its result or its error, and only once."""
    peer = Peer("2025-11-25")
    peer.send(CALL)
    (call,) = peer.calls
    for _ in range(2):
        peer.session.ask_client(call, "elicitation/create", {})
    error = {"code": -1, "message": "no"}
    peer.send(
        {"jsonrpc": "2.0", "id": 1, "result": {"action": "cancel"}}, {"jsonrpc": "2.0", "id": "2", "error": error}
    )
    assert [Answered(1, call, {"action": "cancel"}, None), Answered(2, call, {}, error)] == peer.other


# Changes


@pytest.mark.parametrize("sign", [notification("notifications/initialized"), request(5, "tools/list")])
def test_a_session_hears_of_changes_once_it_has_shown_to_be_ready(sign: Any) -> None:
    """By the notification, or by going on without it."""
    peer = Peer("2025-11-25")
    peer.send(request(4, "ping"))
    assert [] == peer.session.list_changed(KINDS[:1])
    peer.send(sign)
    assert 1 == len(peer.session.list_changed(KINDS[:1]))


def test_initialized_without_a_handshake_means_nothing() -> None:
    """A stateless client has no session to hear of changes."""
    peer = Peer()
    peer.send(notification("notifications/initialized"))
    assert [] == peer.session.list_changed(KINDS[:1])


def test_a_subscription_is_acknowledged_heard_and_ended_by_its_client() -> None:
    """Without a response, and its id is free again."""
    peer = Peer()
    listen = enveloped("L", "subscriptions/listen", notifications={"toolsListChanged": True})
    (ack,) = peer.send(listen)
    assert ("notifications/subscriptions/acknowledged", "L") == (
        ack["method"],
        ack["params"]["_meta"][SUBSCRIPTION_KEY],
    )
    assert [("L", -32600)] == peer.outcomes(listen)
    assert 1 == len(peer.session.list_changed(KINDS[:1]))
    assert [] == peer.send(notification(CANCEL, requestId="L"))
    assert [] == peer.session.list_changed(KINDS[:1])
    assert 1 == len(peer.send(listen))


# Batches


def batch_peer() -> Peer:
    """A client of the one revision that has them."""
    return Peer("2025-03-26")


def test_row_23_a_batch_is_answered_by_one_array_when_all_is_done() -> None:
    """Quick answers wait for slow ones; notifications have none."""
    peer = batch_peer()
    batch = [request(1, "ping"), request(2, "tools/call", name="x"), notification("notifications/x"), CALL | {"id": 3}]
    assert [] == peer.send(batch)
    assert [] == peer.finish(peer.calls[1])
    ((first, second, third),) = peer.finish(peer.calls[0])
    assert [1, 3, 2] == [first["id"], second["id"], third["id"]]


def test_row_23_a_batch_of_quick_requests_is_answered_at_once() -> None:
    """Each fault has its own place in the array."""
    batch = [request(1, "ping"), 5, {"id": 2}, [], request(3, "initialize", protocolVersion="2025-03-26")]
    (answers,) = batch_peer().send(batch)
    assert [(1, None), (None, -32600), (2, -32600), (None, -32600), (3, -32600)] == [
        (answer.get("id"), answer.get("error", {}).get("code")) for answer in answers
    ]


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param([notification("notifications/x")], id="notifications"),
        pytest.param([{"jsonrpc": "2.0", "id": 1, "result": {}}], id="responses"),
        pytest.param([CALL, notification(CANCEL, requestId=1)], id="a call that is cancelled in the same batch"),
    ],
)
def test_row_23_a_batch_that_asks_for_nothing_is_not_answered(batch: list[Any]) -> None:
    """Not even by an empty array."""
    assert [] == batch_peer().send(batch)


def test_a_cancellation_may_complete_a_batch() -> None:
    """The others must not wait for what never comes."""
    peer = batch_peer()
    assert [] == peer.send([request(1, "ping"), request(2, "tools/call", name="x")])
    ((answer,),) = peer.send(notification(CANCEL, requestId=2))
    assert 1 == answer["id"]


def test_a_stateless_request_cannot_be_part_of_a_batch() -> None:
    """Its revision has none."""
    ((answer,),) = batch_peer().send([enveloped(1, "tools/call", name="x")])
    assert (1, -32600) == (answer["id"], answer["error"]["code"])
    assert "2026-07-28 has no batches" in answer["error"]["message"]


def test_a_batch_is_bounded() -> None:
    """Each of its messages costs an answer."""
    (answer,) = batch_peer().send(b"[" + b",".join([b"1"] * (MAX_BATCH + 1)) + b"]")
    assert "more than 1000" in answer["error"]["message"]


# Floods


def test_row_1_a_flood_of_garbage_is_answered_only_so_often() -> None:
    """What has an id is always answered; with time, so is garbage again."""
    peer = Peer("2025-11-25")
    answers = peer.send(*[b"junk"] * 500)
    assert 100 == len(answers)
    assert [(1, "result")] == peer.outcomes(request(1, "ping"))
    assert [(1, -32600)] == peer.outcomes(changed(request(1, "ping"), jsonrpc=...))
    peer.now = 1.0
    assert 10 == len(peer.send(*[b"junk"] * 500))
