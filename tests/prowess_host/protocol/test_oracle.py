"""Everything the protocol core writes is valid in the eyes of the official types, and of the official schemas.

The schemas come with the sources of the official SDK; `scripts/prepare.py` puts them into the environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema.validators import validator_for
from mcp_types import jsonrpc, methods

from prowess.contracts.contract import Contract, Hints
from prowess_host.protocol import questions
from prowess_host.protocol.codec import decode
from prowess_host.protocol.eras import CAPABILITIES_KEY, HANDSHAKE, LOG_LEVEL_KEY, REVISIONS, STATELESS, VERSION_KEY
from prowess_host.protocol.identity import Server
from prowess_host.protocol.kinds import ROWS
from prowess_host.protocol.questions import Answers, Occasion
from prowess_host.protocol.routing import Reply, route
from prowess_host.protocol.rpc import RpcError
from prowess_host.protocol.session import RequestInFlight, Session
from prowess_host.protocol.tool_list import ToolList, define_tool

SCHEMAS = Path(sys.prefix) / "share" / "mcp-schemas"
DETAILS = {"title": "T", "description": "d", "websiteUrl": "https://example.com", "icons": [{"src": "data:,"}]}
SERVER = Server("s", "1", instructions="Use it.", details=DETAILS)
OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}}
CONTRACT = Contract(
    id="a.b",
    wire_name="a_b",
    skill="a",
    name="b",
    description="d",
    input_schema=OBJECT,
    title="T",
    hints=Hints(read_only=True, destructive=False, idempotent=True, open_world=False),
    tags=("t",),
    icons=({"src": "data:,", "sizes": ["any"]},),
)
TOOLS = ToolList(
    [define_tool(CONTRACT, OBJECT, OBJECT)] * 3, [define_tool(CONTRACT, OBJECT, {"type": "array"})] * 3, page_size=2
)
FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
BODY = json.dumps({"content": [{"type": "text", "text": "é\u2028"}], "structuredContent": {"a": 1}, "isError": False})


def opened(version: str) -> Session:
    """A connection of this revision, ready to go."""
    session = Session(SERVER)
    if version in HANDSHAKE:
        exchange(session, version, 0, "initialize", protocolVersion=version)
        session.ready = True
    return session


def exchange(session: Session, version: str, request_id: Any, method: str, **params: Any) -> RequestInFlight | bytes:
    """Send one request in the manner of the revision."""
    if version in STATELESS:
        meta = {
            VERSION_KEY: version,
            CAPABILITIES_KEY: {"elicitation": {}},
            LOG_LEVEL_KEY: "debug",
            "progressToken": "t",
        }
    else:
        meta = {"progressToken": "t"}
    request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": meta}}
    action = route(decode(json.dumps(request).encode()), session, 0.0)
    assert isinstance(action, (RequestInFlight, Reply))
    return action if isinstance(action, RequestInFlight) else action.line


def begun(session: Session, version: str, method: str = "tools/call") -> RequestInFlight:
    """A call in flight."""
    call = exchange(session, version, "call", method, name="a_b")
    assert isinstance(call, RequestInFlight)
    return call


def line_of(answer: RequestInFlight | bytes) -> bytes:
    """A request that is answered at once."""
    assert isinstance(answer, bytes)
    return answer


def results(version: str) -> list[tuple[str, bytes]]:
    """Every kind of result, with the method it answers."""
    session, revision = opened(version), REVISIONS[version]
    page = json.loads(TOOLS.page(None, revision))["nextCursor"]
    made = [
        ("tools/list", session.answer(begun(session, version, "tools/list"), TOOLS.page(cursor, revision)))
        for cursor in (None, page)
    ]
    made += [
        ("tools/call", session.answer(begun(session, version), BODY.encode())),
        ("tools/call", session.answer(begun(session, version), BODY.encode(), meta=b'{"prowess/attempts":2}')),
    ]
    if version in HANDSHAKE:
        told = [("initialize", {"protocolVersion": version}), ("ping", {}), ("logging/setLevel", {"level": "info"})]
        return made + [(method, line_of(exchange(session, version, 1, method, **params))) for method, params in told]
    state = questions.seal(Answers({}, ("ok",)), Occasion("a.b", "c", "d"), key=b"k", now=0.0)
    asking = questions.input_required({"ok": {"message": "?", "schema": FORM}}, revision, state)
    exchange(session, version, "L", "subscriptions/listen", notifications={"toolsListChanged": True})
    return [
        *made,
        ("server/discover", line_of(exchange(session, version, 1, "server/discover"))),
        ("tools/call", session.answer(begun(session, version), asking, result_type="input_required")),
        ("subscriptions/listen", session.end_subscriptions()[0]),
    ]


def notifications(version: str) -> list[bytes]:
    """Every kind of notification."""
    session = opened(version)
    call = begun(session, version)
    made = [
        session.report_progress(call, 1),
        session.report_progress(call, 2.5, 10, "m"),
        session.report_log(call, "info", {"a": None}, "me"),
    ]
    if version in HANDSHAKE:
        question, _ = session.ask_client(call, "elicitation/create", {})
        return [*made, *session.list_changed(ROWS[:1]), session.withdraw_question(question)]
    ack = line_of(exchange(session, version, "L", "subscriptions/listen", notifications={"toolsListChanged": True}))
    return [*made, ack, *session.list_changed(ROWS[:1]), session.end_subscriptions()[1]]


ERRORS = [
    RpcError.parse_error("x"),
    RpcError.method_not_found("a/b", "2025-11-25"),
    RpcError.wrong_param("params.name", "a string", 5),
    RpcError.missing_capability({"elicitation": {}}),
    RpcError.unsupported_version("x", tuple(REVISIONS)),
    RpcError.bad_request_state("has expired"),
]


@pytest.mark.parametrize("version", REVISIONS)
def test_every_result_is_valid_for_the_official_types(version: str) -> None:
    """As a JSON-RPC message, and as the result of its method in its revision."""
    for method, line in results(version):
        message = jsonrpc.jsonrpc_message_adapter.validate_json(line)
        assert isinstance(message, jsonrpc.JSONRPCResponse)
        methods.validate_server_result(method, version, message.result)


@pytest.mark.parametrize("version", REVISIONS)
def test_every_notification_is_valid_for_the_official_types(version: str) -> None:
    """And one the revision has."""
    for line in notifications(version):
        message = jsonrpc.jsonrpc_message_adapter.validate_json(line)
        assert isinstance(message, jsonrpc.JSONRPCNotification)
        methods.parse_server_notification(message.method, version, message.params)


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_a_question_is_valid_for_the_official_types(version: str) -> None:
    """In the revisions that ask by a request."""
    message = jsonrpc.jsonrpc_message_adapter.validate_json(question(version))
    assert isinstance(message, jsonrpc.JSONRPCRequest)
    methods.parse_server_request(message.method, version, message.params)


def question(version: str) -> bytes:
    """A form for the person behind a handshake client."""
    session = opened(version)
    params = questions.request_of({"message": "Sure?", "schema": FORM}, REVISIONS[version])["params"]
    return session.ask_client(begun(session, version), "elicitation/create", params)[1]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: str(error.code))
def test_every_error_is_valid_for_the_official_types(error: RpcError) -> None:
    """With its id."""
    session = opened("2025-11-25")
    line = session.refuse(begun(session, "2025-11-25"), error)
    assert isinstance(jsonrpc.jsonrpc_message_adapter.validate_json(line), jsonrpc.JSONRPCError)


# The official schemas

RESULTS = {
    "initialize": "InitializeResult",
    "ping": "EmptyResult",
    "logging/setLevel": "EmptyResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "server/discover": "DiscoverResult",
    "subscriptions/listen": "SubscriptionsListenResult",
}


def schema_for(version: str) -> Path:
    """The official schema of a revision, or of the next one there is: what an older revision has, the newer one kept."""
    return min(path for path in SCHEMAS.glob("*.json") if path.stem >= version)


def complaints(version: str, name: str, value: Any) -> list[str]:
    """What the schema of the revision finds wrong with a value of this type."""
    schema = json.loads(schema_for(version).read_text(encoding="utf-8"))
    definitions = "$defs" if "$defs" in schema else "definitions"
    whole = {"$schema": schema["$schema"], "$ref": f"#/{definitions}/{name}", definitions: schema[definitions]}
    validator = validator_for(whole)
    return [f"{name} {error.json_path}: {error.message}" for error in validator(whole).iter_errors(value)]


@pytest.mark.parametrize("version", REVISIONS)
def test_every_message_is_valid_for_the_official_schemas(version: str) -> None:
    """Each by the definition of its own type."""
    pytest.importorskip("mcp", reason="the schemas come with the official SDK")
    found: list[str] = []
    for method, line in results(version):
        message = json.loads(line)
        asking = message["result"].get("resultType") == "input_required"
        found += complaints(version, "InputRequiredResult" if asking else RESULTS[method], message["result"])
        found += complaints(version, "JSONRPCMessage", message)
    for line in notifications(version):
        found += complaints(version, "ServerNotification", json.loads(line))
    if REVISIONS[version].elicitation and version in HANDSHAKE:
        found += complaints(version, "ServerRequest", json.loads(question(version)))
    for error in ERRORS:
        session = opened(version)
        found += complaints(version, "JSONRPCMessage", json.loads(session.refuse(begun(session, version), error)))
    assert [] == found
