"""Routes each message: finds its era and its method, checks its parameters, and returns what the host has to do.

The message itself decides the era, so one connection can serve both eras at any time. Requests that need no command are
answered here. This is the only module that turns protocol errors into lines.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from prowess_host.protocol.codec import (
    ABSENT,
    Batch,
    Malformed,
    Notification,
    RpcRequest,
    RpcResponse,
    dumps,
    encode_error,
    encode_result,
    encode_result_raw,
    read_item,
)
from prowess_host.protocol.eras import (
    LATEST_HANDSHAKE,
    LOG_LEVEL_KEY,
    TASKS,
    VERSION_KEY,
    envelope_client,
    handshake_client,
    negotiate,
    open_envelope,
    read_log_level,
    read_progress_token,
    takes_tasks,
)
from prowess_host.protocol.methods import CACHEABLE, check_params, is_known
from prowess_host.protocol.rpc import RpcError
from prowess_host.protocol.session import RequestInFlight, Together

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prowess.jsontypes import JsonObject
    from prowess_host.protocol.codec import Message
    from prowess_host.protocol.eras import Revision
    from prowess_host.protocol.session import Session

__all__ = ["MAX_BATCH", "Action", "Answered", "Cancelled", "Group", "Ignored", "Reply", "route"]

MAX_BATCH: Final = 1000
"""Messages in one array. Known clients send only a few; each costs an answer."""


class Reply(NamedTuple):
    """Write these bytes: one line."""

    line: bytes


class Cancelled(NamedTuple):
    """Stop this call; it gets no answer. Write the line unless it is empty: it withdraws the questions of the call."""

    call: RequestInFlight
    reason: str
    line: bytes = b""


class Answered(NamedTuple):
    """The client answered a question of ours. A failure has an `error`; a success has none."""

    question: int
    call: RequestInFlight
    result: JsonObject
    error: JsonObject | None


class Ignored(NamedTuple):
    """Nothing to do. The reason is for the log."""

    reason: str


class Group(NamedTuple):
    """The actions for the messages of one batch, in order."""

    actions: tuple[Action, ...]


Action: TypeAlias = "RequestInFlight | Reply | Cancelled | Answered | Ignored | Group"


def route(message: Message, session: Session, now: float) -> Action:
    """The action for one message. `now` is a monotonic time in seconds. Never raises.

    A returned `RequestInFlight` is in flight, and gets its answer from `session.answer` or `session.refuse`.
    """
    if isinstance(message, RpcRequest):
        return _route_request(message, session, None)
    if isinstance(message, Notification):
        return _route_notification(message, session)
    if isinstance(message, RpcResponse):
        return _route_response(message, session)
    if isinstance(message, Batch):
        return _route_batch(message, session, now)
    return _complain(message, session, now)


def _complain(message: Malformed, session: Session, now: float) -> Action:
    """Answer an invalid message. The id of a request in flight is omitted, because the error would count as its answer."""
    known = message.id is ABSENT or session.is_waiting(message.id)
    if known and not session.complaints.take(now):
        return Ignored(f"too many broken messages to answer: {message.error.message}")
    return Reply(encode_error(ABSENT if known else message.id, message.error))


# Requests


def _route_request(request: RpcRequest, session: Session, batch: Together | None) -> Action:
    try:
        if session.is_waiting(request.id):
            raise RpcError.duplicate_id(request.id)
        return _dispatch(request, session, batch)
    except RpcError as error:
        return Reply(encode_error(request.id, error))


def _dispatch(request: RpcRequest, session: Session, batch: Together | None) -> Action:
    params = request.params
    meta = params.get("_meta")
    if meta is not None and type(meta) is not dict:
        del params["_meta"]  # a client that fills it carelessly means nothing by it
    envelope: JsonObject = params.get("_meta") or {}
    if request.method == "initialize" and (VERSION_KEY not in envelope or "protocolVersion" in params):
        return _initialize(request, session, batch)
    if VERSION_KEY in envelope:
        return _serve_stateless(request, envelope, session, batch)
    if session.revision is not None:
        return _serve_handshake(request, envelope, session.revision, session, batch)
    if request.method == "ping":
        return Reply(encode_result(request.id, {}))
    if not is_known(request.method):
        raise RpcError.method_not_found(request.method)
    raise RpcError.not_initialized(request.method, VERSION_KEY)


def _initialize(request: RpcRequest, session: Session, batch: Together | None) -> Action:
    """Handle `initialize` at once, so that the next line already has the session."""
    if batch is not None:
        raise RpcError.batch_refused("initialize cannot be part of a batch")
    params = request.params
    check_params("initialize", params, LATEST_HANDSHAKE)
    revision = negotiate(params["protocolVersion"])
    session.handshake(revision, handshake_client(params))
    return Reply(encode_result(request.id, session.server.initialize_result(revision, session.declared)))


def _serve_handshake(
    request: RpcRequest, meta: JsonObject, revision: Revision, session: Session, batch: Together | None
) -> Action:
    check_params(request.method, request.params, revision)
    if request.method == "ping":
        return Reply(encode_result(request.id, {}))
    session.ready = True
    if request.method == "logging/setLevel":
        session.log_level = read_log_level(request.params["level"], "params.level")
        return Reply(encode_result(request.id, {}))
    token = read_progress_token(meta) if meta else None
    call = RequestInFlight(
        request.id, request.method, request.params, request.arguments, revision, session.client, None, token, batch
    )
    session.begin(call)
    return call


def _serve_stateless(request: RpcRequest, envelope: JsonObject, session: Session, batch: Together | None) -> Action:
    revision = open_envelope(envelope)
    if batch is not None:
        raise RpcError.batch_refused(f"{revision.version} has no batches")
    check_params(request.method, request.params, revision)
    client = envelope_client(envelope)
    token = read_progress_token(envelope)
    level = envelope.get(LOG_LEVEL_KEY)
    if level is not None:
        level = read_log_level(level, f"_meta key {LOG_LEVEL_KEY}")
    answer = _STATELESS_ANSWERS.get(request.method)
    if answer is not None:
        return Reply(answer(request, revision, session))
    call = RequestInFlight(
        request.id, request.method, request.params, request.arguments, revision, client, level, token
    )
    session.begin(call)
    return call


def _discover(request: RpcRequest, revision: Revision, session: Session) -> bytes:
    body = dumps(session.server.discover_result(session.capabilities(revision)))
    cacheable = request.method in CACHEABLE
    return encode_result_raw(request.id, session.server.dress(body, revision, cacheable=cacheable))


def _listen(request: RpcRequest, revision: Revision, session: Session) -> bytes:
    notifications: JsonObject = request.params["notifications"]
    client = envelope_client(cast("JsonObject", request.params["_meta"]))
    if "taskIds" in notifications and not takes_tasks(client, revision):
        raise RpcError.missing_capability({"extensions": {TASKS: {}}})
    return session.subscriptions.listen(request.id, revision, notifications)


_STATELESS_ANSWERS: Final[Mapping[str, Callable[[RpcRequest, Revision, Session], bytes]]] = MappingProxyType(
    {"server/discover": _discover, "subscriptions/listen": _listen}
)

# Notifications and responses: never answered


def _route_notification(notification: Notification, session: Session) -> Action:
    method = notification.method
    if method == "notifications/cancelled":
        return _cancel(notification.params, session)
    if method == "notifications/initialized":
        session.ready = session.revision is not None
    return Ignored(f"notification {method}")


def _cancel(params: JsonObject, session: Session) -> Action:
    call, line = session.cancel(params.get("requestId"))
    if call is None:
        return Ignored("cancellation of a call that is not in flight")
    reason = params.get("reason")
    return Cancelled(call, reason if isinstance(reason, str) else "", line)


def _route_response(response: RpcResponse, session: Session) -> Action:
    pending = session.take_question(response.id)
    if pending is None:
        return Ignored("a response without a request")
    question, call = pending
    return Answered(question, call, response.result, response.error)


# Batches


def _route_batch(batch: Batch, session: Session, now: float) -> Action:
    fault = _batch_fault(batch, session)
    if fault is not None:
        return _complain(Malformed(ABSENT, fault), session, now)
    together = Together(waiting=1)
    actions = [_route_item(item, session, together) for item in batch.items]
    together.waiting -= 1
    line = together.flush()
    done = [Reply(line)] if line else []
    return Group((*(action for action in actions if not isinstance(action, (Reply, Ignored))), *done))


def _batch_fault(batch: Batch, session: Session) -> RpcError | None:
    revision = session.revision
    if revision is None or not revision.batches:
        spoken = "before initialize" if revision is None else f"in {revision.version}"
        return RpcError.batch_refused(f"batches are not allowed {spoken}")
    if not batch.items:
        return RpcError.invalid_request("the batch is empty; leave it out")
    if len(batch.items) > MAX_BATCH:
        return RpcError.batch_refused(f"the batch has {len(batch.items)} messages, more than {MAX_BATCH}")
    return None


def _route_item(item: Any, session: Session, together: Together) -> Action:
    message = read_item(item)
    if isinstance(message, RpcRequest):
        action = _route_request(message, session, together)
    elif isinstance(message, Notification):
        action = _route_notification(message, session)
    elif isinstance(message, RpcResponse):
        action = _route_response(message, session)
    else:
        known = message.id is not ABSENT and session.is_waiting(message.id)
        action = Reply(encode_error(ABSENT if known else message.id, message.error))
    if isinstance(action, Reply):
        together.add(action.line)
    return action
