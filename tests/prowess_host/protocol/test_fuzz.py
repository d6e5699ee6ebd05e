"""Whatever arrives, nothing breaks, and each readable id gets one answer or one call."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess_host.protocol.codec import Malformed, decode
from prowess_host.protocol.eras import CAPABILITIES_KEY, CLIENT_KEY, LOG_LEVEL_KEY, REVISIONS, VERSION_KEY
from prowess_host.protocol.identity import Server
from prowess_host.protocol.lines import LineSplitter
from prowess_host.protocol.methods import HANDSHAKE_METHODS, STATELESS_METHODS
from prowess_host.protocol.routing import Action, Cancelled, Group, Reply, route
from prowess_host.protocol.session import RequestInFlight, Session

NAMES = [
    "name",
    "arguments",
    "cursor",
    "level",
    "protocolVersion",
    "requestId",
    "notifications",
    "toolsListChanged",
    "_meta",
    "inputResponses",
    "requestState",
    "capabilities",
    "clientInfo",
    "progressToken",
    "reason",
    VERSION_KEY,
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LOG_LEVEL_KEY,
]  # fmt: skip - a list of words
METHODS = sorted({*HANDSHAKE_METHODS, *STATELESS_METHODS, "notifications/cancelled", "notifications/initialized"})
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["\ud800", "1", "info", *REVISIONS])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner),
    max_leaves=12,
)
ENVELOPED = st.fixed_dictionaries(
    {"_meta": st.just({VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}) | VALUES, "name": st.just("x") | VALUES},
    optional={name: VALUES for name in NAMES if name not in ("_meta", "name")},
)
REQUEST = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": st.integers(0, 3) | SCALARS, "method": st.sampled_from(METHODS) | VALUES},
    optional={"params": ENVELOPED | VALUES},
)
MESSAGE = REQUEST | st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]), VALUES)
OPENINGS = st.sampled_from([None, *REVISIONS])


def opened(version: str | None) -> Session:
    """A session after a handshake for this version, or before one."""
    session = Session(Server("s", "1"))
    if version is not None:
        params = {"protocolVersion": version}
        line = json.dumps({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params})
        route(decode(line.encode()), session, 0.0)
    return session


def flat(action: Action) -> list[Action]:
    """A group as its parts."""
    return [part for each in action.actions for part in flat(each)] if isinstance(action, Group) else [action]


def written(action: Action) -> list[Any]:
    """Messages that go out at once. Each line must be whole JSON."""
    line = action.line if isinstance(action, (Reply, Cancelled)) else b""
    messages = [json.loads(each) for each in line.splitlines()]
    return [part for each in messages for part in (each if isinstance(each, list) else [each])]


def is_request(message: Any) -> bool:
    """Somebody waits for an answer to this id."""
    readable = type(message.get("id")) in (int, str) and "\ud800" != message["id"]
    return readable and ("method" in message or not ("result" in message or "error" in message))


def key(request_id: Any) -> tuple[type, Any]:
    """1 and "1" are two ids."""
    return type(request_id), request_id


@given(st.lists(st.binary(max_size=60) | MESSAGE.map(lambda each: json.dumps(each).encode()), max_size=6), OPENINGS)
def test_no_bytes_break_codec_or_routing(lines: list[bytes], version: str | None) -> None:
    """They become actions, whatever they are."""
    session = opened(version)
    splitter = LineSplitter(limit=200)
    for line in [*splitter.feed(b"\n".join(lines)), *splitter.close()]:
        for action in flat(route(decode(line), session, 0.0)):
            written(action)


@given(st.lists(MESSAGE, max_size=6), OPENINGS)
def test_each_readable_id_gets_one_answer_or_one_call(messages: list[Any], version: str | None) -> None:
    """A cancelled call gets none, an accepted subscription its acknowledgment; NaN is no JSON and has no id.

    What is invalid and has the id of a request in flight gets an error without it, which would count as the other's answer.
    """
    session = opened(version)
    for message in messages:
        line = json.dumps(message).encode()
        if is_request(message) and b"NaN" not in line and b"Infinity" not in line:
            decoded = decode(line)
            hidden = isinstance(decoded, Malformed) and session.is_waiting(message["id"])
            actions = flat(route(decoded, session, 0.0))
            told = [key(each) for action in actions for each in answered(action)]
            assert told == [key(None if hidden else message["id"])]


def answered(action: Action) -> list[Any]:
    """Ids that this action takes care of; `None` for an error without one."""
    if isinstance(action, RequestInFlight):
        return [action.id]
    acknowledged = "io.modelcontextprotocol/subscriptionId"
    return [
        each.get("id") if "id" in each or "error" in each else each["params"]["_meta"][acknowledged]
        for each in written(action)
    ]


def test_an_invalid_message_with_the_id_of_a_request_in_flight_gets_an_error_without_it() -> None:
    """Else the client would take it for the answer to that request."""
    session = opened("2025-06-18")
    lines = [
        b'{"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": {"name": "x"}}',
        b'{"jsonrpc": "2.0", "id": 0, "method": null}',
    ]
    first, second = (answered(route(decode(line), session, 0.0)) for line in lines)
    assert ([0], [None]) == (first, second)


@given(st.lists(MESSAGE, min_size=1, max_size=5))
def test_a_batch_answers_each_readable_id_once(messages: list[Any]) -> None:
    """In one array, after the last call is done. What is invalid and has the id of a request in flight is answered without it."""
    session = opened("2025-03-26")
    line = json.dumps(messages).encode()
    if b"NaN" in line or b"Infinity" in line:
        return
    actions = flat(route(decode(line), session, 0.0))
    calls = [action for action in actions if isinstance(action, RequestInFlight)]
    cancelled = [action.call for action in actions if isinstance(action, Cancelled)]
    lines = [session.answer(call, b'{"content":[]}') for call in calls]
    lines += [action.line for action in actions if isinstance(action, Reply)]
    arrays = [json.loads(each) for each in lines if each]
    assert len(arrays) <= 1
    got = Counter(key(answer.get("id")) for array in arrays for answer in array)
    got.update(key(call.id) for call in cancelled)
    requests = [
        (key(message["id"]), decode(json.dumps(message).encode())) for message in messages if is_request(message)
    ]
    hidden = Counter(name for name, _ in requests) - got
    assert hidden <= Counter(name for name, read in requests if isinstance(read, Malformed))
    assert hidden.keys() <= {key(call.id) for call in calls}
    assert hidden.total() <= got[key(None)]
    assert (got - Counter(name for name, _ in requests)).keys() <= {key(None)}


def test_an_invalid_message_of_a_batch_with_the_id_of_another_is_answered_without_it() -> None:
    """As outside a batch."""
    session = opened("2025-03-26")
    line = b'[{"jsonrpc": "2.0", "id": 1, "method": "prompts/list"}, {"jsonrpc": "2.0", "id": 1, "method": null}]'
    [call] = flat(route(decode(line), session, 0.0))
    answers = json.loads(session.answer(call, b'{"prompts":[]}'))
    assert [None, 1] == sorted((answer.get("id") for answer in answers), key=str, reverse=True)


@pytest.mark.parametrize("opening", [b'{"a":', b"[", b'{"id":1,"method":"m","params":['])
def test_row_13_no_nesting_hangs_the_reader(opening: bytes) -> None:
    """However deep it goes."""
    assert decode(opening * 200_000) is not None
