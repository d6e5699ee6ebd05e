"""What a request means, without a server: its era, its message, or the status that refuses it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from prowess_host.http.binding import Handshake, RefusedRequest, Stateless, read_post, read_stream, status_of
from prowess_host.http.headers import AcceptedTypes, Headers, mirrored_parameters
from prowess_host.protocol.codec import encode_error, encode_result
from prowess_host.protocol.rpc import RpcError

META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"


def request(method: str = "tools/call", version: Any = MODERN, **params: Any) -> dict[str, Any]:
    meta = {f"{META}protocolVersion": version, f"{META}clientCapabilities": {}} if version else {}
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": meta}}


def fields(**given: str | None) -> dict[str, str]:
    usual = {
        "content_type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp_protocol_version": MODERN,
        "mcp_method": "tools/call",
        "mcp_name": "t",
    }
    return {name.replace("_", "-"): value for name, value in {**usual, **given}.items() if value is not None}


def read(body: Any, headers: dict[str, str], mirrored: dict[str, tuple[str, ...]] | None = None) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return read_post(Headers(pairs), raw, lambda _: mirrored or {})


def refused(decision: Any) -> tuple[int, int]:
    assert isinstance(decision, RefusedRequest), decision
    assert decision.error is not None
    return decision.status, decision.error.code


CALL = request(name="t", arguments={})
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
NOTE = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}


def test_a_message_with_an_envelope_is_stateless() -> None:
    decision = read(CALL, fields())
    assert isinstance(decision, Stateless)
    assert "tools/call" == decision.message.method
    assert isinstance(read(NOTE, fields()), Stateless)


@pytest.mark.parametrize("version", [None, "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_message_without_one_belongs_to_a_session(version: str | None) -> None:
    """Which one the header says, and which revision, where it says so."""
    headers = fields(mcp_protocol_version=version, mcp_session_id="abc")
    decision = read(PING, headers)
    assert isinstance(decision, Handshake)
    assert ("abc", version, False) == (
        decision.session,
        decision.revision and decision.revision.version,
        decision.opens,
    )
    assert isinstance(read([PING, NOTE], headers), Handshake)


@pytest.mark.parametrize(
    ("body", "headers", "wanted"),
    [
        (CALL, fields(mcp_protocol_version=None), (400, -32020)),
        (CALL, fields(mcp_protocol_version="2025-11-25"), (400, -32020)),
        (request(version="1900-01-01", name="t"), fields(mcp_protocol_version="1900-01-01"), (400, -32022)),
        (request(version="2025-11-25", name="t"), fields(mcp_protocol_version="2025-11-25"), (400, -32022)),
        (request(version=None, name="t"), fields(), (400, -32602)),
        (request(version=5, name="t"), fields(), (400, -32602)),
        (PING, fields(mcp_protocol_version="1900-01-01"), (400, -32022)),
        (CALL, fields(mcp_method=None), (400, -32020)),
        (CALL, fields(mcp_method="tools/list"), (400, -32020)),
        (CALL, fields(mcp_method="Tools/Call"), (400, -32020)),
        (CALL, fields(mcp_name=None), (400, -32020)),
        (CALL, fields(mcp_name="T"), (400, -32020)),
        (CALL, fields(mcp_name="=?base64?%%%?="), (400, -32020)),
        (CALL, fields(mcp_name="=?base64?/w==?="), (400, -32020)),
        (CALL, fields(mcp_name="t\x01"), (400, -32020)),
        (request("initialize"), fields(mcp_method="initialize"), (404, -32601)),
        ([CALL], fields(), (400, -32600)),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, fields(), (400, -32600)),
        (NOTE, fields(mcp_protocol_version="1900-01-01"), (400, -32022)),
        (b"{", fields(), (400, -32700)),
        (b"\xff", fields(mcp_protocol_version=None), (400, -32700)),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "x"}, fields(), (400, -32600)),
        (CALL, fields(content_type="text/plain"), (415, -32600)),
        (CALL, fields(content_type=None), (415, -32600)),
        (CALL, fields(content_encoding="gzip"), (415, -32600)),
        (CALL, fields(accept="text/html"), (406, -32600)),
    ],
)
def test_what_cannot_be_served_has_a_status_and_a_code(
    body: Any, headers: dict[str, str], wanted: tuple[int, int]
) -> None:
    assert wanted == refused(read(body, headers))


def test_an_error_has_the_id_of_its_request() -> None:
    """Where there is one."""
    assert 7 == json.loads(read(CALL, fields(mcp_name=None)).body)["id"]
    assert "id" not in json.loads(read(b"{", fields()).body)


def test_a_header_that_comes_twice_is_refused() -> None:
    """Whoever routes by the first one, and whoever by the second, see different requests."""
    pairs = [(name.encode(), value.encode()) for name, value in fields().items()]
    for name in ("mcp-method", "mcp-name", "mcp-protocol-version"):
        decision = read_post(Headers([*pairs, (name.encode(), b"x")]), json.dumps(CALL).encode(), lambda _: {})
        assert (400, -32020) == refused(decision)


def test_names_beyond_ascii_come_as_base64() -> None:
    encoded = f"=?base64?{base64.b64encode('grüße'.encode()).decode()}?="
    assert isinstance(read(request(name="grüße"), fields(mcp_name=encoded)), Stateless)
    assert isinstance(read(request(name="t"), fields(mcp_name="=?base64?dA==?=")), Stateless)


SCHEMA = {
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "deep": {"type": "object", "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}},
        "many": {"type": "array", "items": {"type": "string", "x-mcp-header": "Never"}},
        "properties": {"type": "boolean", "x-mcp-header": "Flag"},
    }
}
MIRRORED = {
    "mcp-param-region": ("region",),
    "mcp-param-count": ("deep", "count"),
    "mcp-param-flag": ("properties",),
}


def test_parameters_in_headers_are_found_by_properties_alone() -> None:
    assert MIRRORED == mirrored_parameters(SCHEMA)
    assert {} == mirrored_parameters({"properties": []}) == mirrored_parameters(True)


@pytest.mark.parametrize(
    ("arguments", "sent", "fits"),
    [
        ({"region": "eu"}, {"region": "eu"}, True),
        ({"region": "eu"}, {"region": "EU"}, False),
        ({"region": "eu"}, {}, False),
        ({}, {"region": "eu"}, False),
        ({"region": None}, {}, True),
        ({"region": "ü"}, {"region": "=?base64?w7w=?="}, True),
        ({"region": "ü"}, {"region": "ü"}, False),
        ({"deep": {"count": 42}}, {"count": "42"}, True),
        ({"deep": {"count": 42}}, {"count": "42.0"}, True),
        ({"deep": {"count": 42}}, {"count": "43"}, False),
        ({"deep": {"count": 42}}, {"count": "many"}, False),
        ({"deep": {"count": 42}}, {"count": "4_2"}, False),
        ({"deep": {"count": 42}}, {"count": "=?base64?IDQy?="}, False),
        ({"deep": {"count": 42}}, {"count": "=?base64?2aTZog==?="}, False),
        ({"deep": {"count": 42}}, {"count": "--42"}, False),
        ({"deep": {"count": 42}}, {"count": "9" * 5000}, False),
        ({"deep": {"count": -4200}}, {"count": "-4.2e+3"}, True),
        ({"deep": {"count": 9007199254740993}}, {"count": "9007199254740992"}, False),
        ({"deep": 5}, {}, True),
        ({"properties": True}, {"flag": "true"}, True),
        ({"properties": True}, {"flag": "True"}, False),
        ({"properties": False}, {"flag": "false"}, True),
        ('{"region": "eu"}', {"region": "eu"}, True),
        ('{"region": "eu"}', {"region": "us"}, False),
        ("{", {}, True),
    ],
)
def test_parameters_in_headers_are_those_of_the_body(arguments: Any, sent: dict[str, str], fits: bool) -> None:
    headers = {**fields(), **{f"mcp-param-{name}": value for name, value in sent.items()}}
    decision = read(request(name="t", arguments=arguments), headers, MIRRORED)
    assert isinstance(decision, Stateless) if fits else (400, -32020) == refused(decision)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, (True, True)),
        ("*/*", (True, True)),
        ("application/json", (True, False)),
        ("text/event-stream;q=0.5", (False, True)),
        ("text/*, application/*", (True, True)),
        ("text/html", (False, False)),
        ("application/json, text/event-stream; q=0", (True, False)),
        ("*/*, text/event-stream;q=0.000", (True, False)),
        ("text/event-stream, */*; Q=0", (False, True)),
        ("application/*;q=0, application/json", (True, False)),
        ("*/*;q=0.001", (True, True)),
    ],
)
def test_what_a_client_reads(accept: str | None, wanted: tuple[bool, bool]) -> None:
    assert wanted == AcceptedTypes.of(accept)


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", fields(), 405),
        ("DELETE", fields(), 405),
        ("GET", fields(mcp_protocol_version="1900-01-01"), 400),
        ("GET", fields(mcp_protocol_version=None), 400),
        ("GET", fields(mcp_protocol_version=None, mcp_session_id="x", accept="application/json"), 406),
        ("GET", fields(mcp_protocol_version=None, mcp_session_id="x"), None),
        ("DELETE", fields(mcp_protocol_version="2025-11-25", mcp_session_id="x"), None),
    ],
)
def test_only_sessions_have_streams_and_an_end(method: str, headers: dict[str, str], status: int | None) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    decision = read_stream(method, Headers(pairs))
    assert status == (None if decision is None else decision.status)


@pytest.mark.parametrize(
    ("line", "stateless", "handshake"),
    [
        (encode_result(1, {}), 200, 200),
        (encode_result("error", {"error": {"code": -32601}}), 200, 200),
        (encode_error(1, RpcError.method_not_found("x")), 404, 200),
        (encode_error('a"b\\', RpcError.method_not_found("x")), 404, 200),
        (encode_error(-1, RpcError.unknown_tool("x")), 400, 200),
        (encode_error(1, RpcError.internal("x")), 200, 200),
        (b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"x"}}', 400, 400),
    ],
)
def test_a_status_follows_the_line(line: bytes, stateless: int, handshake: int) -> None:
    """With a handshake, errors of requests are answers like others."""
    assert stateless == status_of(line, stateless=True)
    assert handshake == status_of(line, stateless=False)
