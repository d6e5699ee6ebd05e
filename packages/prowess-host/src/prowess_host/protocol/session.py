"""The state of one connection: the client, the calls in flight, the open questions, the subscriptions.

Plain data and its rules, without I/O: the methods return the lines to write. The session guarantees one answer per
request: `answer` and `refuse` return an empty line for a call that was answered or cancelled before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from prowess_host.protocol.codec import (
    ABSENT,
    encode_error,
    encode_notification,
    encode_request,
    encode_result_raw,
)
from prowess_host.protocol.eras import LOG_LEVELS, ClientInfo
from prowess_host.protocol.kinds import capabilities
from prowess_host.protocol.methods import CACHEABLE
from prowess_host.protocol.rpc import RpcError
from prowess_host.protocol.subscriptions import MAX_RESOURCES, UPDATED, Subscriptions, check_length

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from prowess.jsontypes import JsonObject
    from prowess_host.protocol.codec import Absent, RequestId
    from prowess_host.protocol.eras import Revision
    from prowess_host.protocol.identity import Server
    from prowess_host.protocol.kinds import KindRow

__all__ = ["Allowance", "RequestInFlight", "Session", "Together"]

_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,40}")

_NOTHING: Final = b""
"""No line to write."""


@dataclass(slots=True, eq=False)
class RequestInFlight:
    """A request in flight, with everything that its answer depends on, so that a later handshake cannot change it."""

    id: RequestId
    method: str
    params: JsonObject
    text: bytes | None
    """The arguments of a `tools/call` as JSON text, if they can be passed on unchanged."""
    revision: Revision
    client: ClientInfo
    log_level: str | None = None
    """The log level in the envelope. In the handshake era, the session's level counts."""
    progress_token: RequestId | None = None
    batch: Together | None = None
    progress: float | None = None
    """The last progress that was reported."""
    questions: frozenset[int] = frozenset()
    """Ids of our own requests that the client has not answered yet."""
    back: Any = None
    """The transport for messages of this call. Only the connection uses it."""

    @property
    def arguments(self) -> JsonObject | str:
        """The arguments of a `tools/call`, perhaps as JSON text; empty for missing and null."""
        return self.params.get("arguments") or {}


class Together:
    """The answers to one batch, held back until the last one."""

    __slots__ = ("_answers", "waiting")

    def __init__(self, waiting: int = 0) -> None:
        self.waiting = waiting
        """The number of missing answers."""
        self._answers: list[bytes] = []

    def add(self, line: bytes) -> None:
        """Keep one answer."""
        self._answers.append(line[:-1])

    def flush(self) -> bytes:
        """The array once all answers are there; empty if no message needed an answer."""
        if self.waiting or not self._answers:
            return _NOTHING
        line = b"[%b]\n" % b",".join(self._answers)
        self._answers.clear()
        return line


class Allowance:
    """A token bucket that limits error messages, so that a flood of invalid messages does not cause a flood of errors."""

    __slots__ = ("_burst", "_per_second", "_seen", "_tokens")

    def __init__(self, burst: float = 100.0, per_second: float = 10.0) -> None:
        self._burst = burst
        self._per_second = per_second
        self._tokens = burst
        self._seen: float | None = None

    def take(self, now: float) -> bool:
        """Whether another one is allowed now."""
        passed = 0.0 if self._seen is None else now - self._seen
        self._tokens = min(self._burst, self._tokens + passed * self._per_second)
        self._seen = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Session:
    """The state of one connection. `server` is our identity, `kinds` returns the served kinds, and `transport` is the
    kind of transport.
    """

    def __init__(
        self,
        server: Server,
        kinds: Callable[[], Collection[str]] = tuple,
        *,
        transport: str = "pipe",
        offers_tasks: bool = True,
    ) -> None:
        self._offers_tasks = offers_tasks
        self.server = server
        self._kinds = kinds
        self.transport = transport
        self.revision: Revision | None = None
        """The result of the handshake; `None` before it."""
        self.client = ClientInfo({}, {})
        self.ready = False
        """Whether the client has finished the handshake, so that it may get notifications."""
        self.log_level = "info"
        self.in_flight: dict[RequestId, RequestInFlight] = {}
        """Calls by id. 1 and "1" are different keys, and true and 1.0 are rejected before."""
        self.subscriptions = Subscriptions()
        self.resources: dict[str, None] = {}
        """URIs that a handshake client has subscribed to."""
        self.declared: JsonObject = {}
        """The capabilities sent to a handshake client."""
        self.heads: dict[tuple[object, ...], bytes] = {}
        """Encoded heads of calls for workers, by command, profile, limits of results and so on."""
        self.complaints = Allowance()
        """The limit for errors without an id."""
        self._questions: dict[int, RequestInFlight] = {}
        self._last_question = 0

    # The handshake

    def capabilities(self, revision: Revision) -> JsonObject:
        """The current capabilities."""
        return capabilities(self._kinds(), revision, tasks=self._offers_tasks)

    def handshake(self, revision: Revision, client: ClientInfo) -> None:
        """Set the revision. A second handshake resets the session, but not the calls in flight."""
        self.revision = revision
        self.client = client
        self.ready = False
        self.log_level = "info"
        self.heads = {}
        self.resources = {}
        self.declared = self.capabilities(revision)

    # Calls

    def begin(self, call: RequestInFlight) -> None:
        """Add a call in flight."""
        self.in_flight[call.id] = call
        if call.batch is not None:
            call.batch.waiting += 1

    def is_open(self, call: RequestInFlight) -> bool:
        """Whether the client still waits for this call."""
        return self.in_flight.get(call.id) is call

    def answer(
        self, call: RequestInFlight, body: bytes, *, meta: bytes = b"{}", result_type: str = "complete"
    ) -> bytes:
        """The line that answers a call with an encoded result: compact JSON objects, `meta` separate from the body."""
        if not (_is_one_object(body) and (meta == b"{}" or _is_one_object(meta))):
            return self.refuse(call, RpcError.internal("the result is not a JSON object on one line"))
        if meta != b"{}" or call.revision.stateless:
            cacheable = call.method in CACHEABLE
            body = self.server.dress(body, call.revision, meta=meta, result_type=result_type, cacheable=cacheable)
        return self._finish(call, encode_result_raw(call.id, body))

    def refuse(self, call: RequestInFlight, error: RpcError) -> bytes:
        """The line that answers a call with an error."""
        return self._finish(call, encode_error(call.id, error))

    def cancel(self, requested: Any) -> tuple[RequestInFlight | None, bytes]:
        """Cancel a call. Returns the call, which gets no answer, and the lines that withdraw its questions.

        Ids are compared leniently, because some clients cancel `"1"` after calling `1`. An unknown id is not an error,
        because the answer may be on its way. A subscription ends silently.
        """
        request_id = _like(requested, self.is_waiting)
        call = None if request_id is ABSENT else self.in_flight.get(request_id)
        if call is not None:
            return call, self._finish(call, _NOTHING)
        self.subscriptions.drop(request_id)
        return None, _NOTHING

    def is_waiting(self, request_id: RequestId) -> bool:
        """Whether a request with this id has no answer yet."""
        return request_id in self.in_flight or request_id in self.subscriptions

    def _finish(self, call: RequestInFlight, line: bytes) -> bytes:
        if self.in_flight.get(call.id) is not call:
            return _NOTHING
        del self.in_flight[call.id]
        withdrawn = (
            b"".join([self.withdraw_question(each) for each in sorted(call.questions)]) if call.questions else _NOTHING
        )
        batch = call.batch
        if batch is None:
            return withdrawn + line if withdrawn else line
        batch.waiting -= 1
        if line:
            batch.add(line)
        return withdrawn + batch.flush()

    # During a call

    def report_progress(
        self, call: RequestInFlight, progress: float, total: float | None = None, message: str = ""
    ) -> bytes:
        """A progress notification, if the client wants one for this call and the progress is a step forward."""
        token = call.progress_token
        if token is None or not _is_number(progress) or not self.is_open(call):
            return _NOTHING
        if call.progress is not None and progress <= call.progress:
            return _NOTHING
        call.progress = progress
        params: JsonObject = {"progressToken": token, "progress": progress}
        if total is not None and _is_number(total):
            params["total"] = total
        if message and call.revision.progress_message:
            params["message"] = message
        return encode_notification("notifications/progress", params)

    def report_log(self, call: RequestInFlight, level: str, data: Any, logger: str | None = None) -> bytes:
        """A log notification, if the client wants this level for this call. An unknown level counts as info."""
        level = level if level in LOG_LEVELS else "info"
        minimum = call.log_level if call.revision.stateless else self.log_level
        if minimum is None or LOG_LEVELS[level] < LOG_LEVELS[minimum] or not self.is_open(call):
            return _NOTHING
        named = {"level": level} if logger is None else {"level": level, "logger": logger}
        return encode_notification("notifications/message", {**named, "data": data})

    def ask_client(self, call: RequestInFlight, method: str, params: JsonObject) -> tuple[int, bytes]:
        """A request to a handshake client on behalf of a call, with its id."""
        if call.revision.stateless or not self.is_open(call):
            raise ValueError(f"{method} cannot be sent for {call.method} {call.id!r}: stateless or already answered")
        question = self._last_question + 1
        line = encode_request(question, method, params)
        self._last_question = question
        self._questions[question] = call
        call.questions |= {question}
        return question, line

    def take_question(self, response_id: RequestId | Absent) -> tuple[int, RequestInFlight] | None:
        """The question and the call of a response. Each question is answered once."""
        question = _like(response_id, self._questions.__contains__)
        if not isinstance(question, int):
            return None
        call = self._questions.pop(question)
        call.questions -= {question}
        return question, call

    def withdraw_question(self, question: int) -> bytes:
        """Withdraw a question, with a notification for the client."""
        call = self._questions.pop(question, None)
        if call is None:
            return _NOTHING
        call.questions -= {question}
        return encode_notification("notifications/cancelled", {"requestId": question})

    # Notifications, and the end

    def list_changed(self, rows: Collection[KindRow]) -> list[bytes]:
        """The notifications, in both eras, that the lists of these kinds have changed."""
        lines = self.subscriptions.list_changed(rows)
        if self.ready:
            lines += [encode_notification(row.notification) for row in rows if row.capability in self.declared]
        return lines

    def subscribe(self, uri: str) -> None:
        """Subscribe a handshake client to a resource."""
        if len(self.resources) >= MAX_RESOURCES and uri not in self.resources:
            raise RpcError.invalid_request(f"{MAX_RESOURCES} resources are already subscribed; unsubscribe from one")
        check_length(sum(map(len, self.resources)) + len(uri))
        self.resources[uri] = None

    @property
    def subscribed(self) -> set[str]:
        """The URIs of the subscribed resources, in both eras."""
        return self.subscriptions.resources | self.resources.keys()

    def resource_updated(self, uri: str) -> list[bytes]:
        """The notifications, in both eras, that a resource has changed."""
        lines = self.subscriptions.resource_updated(uri)
        if uri in self.resources:
            lines.append(encode_notification(UPDATED, {"uri": uri}))
        return lines

    def end_subscriptions(self) -> list[bytes]:
        """End all subscriptions from our side, with the result and the notification that the specification requires."""
        lines: list[bytes] = []
        for subscription in self.subscriptions.drain():
            result = self.server.dress(b"{}", subscription.revision, meta=subscription.tag)
            lines.append(encode_result_raw(subscription.id, result))
            lines.append(encode_notification("notifications/cancelled", {"requestId": subscription.id}))
        return lines


def _is_number(value: float) -> bool:
    """Whether JSON and clients can represent a number: finite, and within the range of a float."""
    try:
        return isfinite(value)
    except OverflowError:
        return False


def _is_one_object(text: bytes) -> bool:
    return text[:1] == b"{" and text[-1:] == b"}" and text.find(b"\n") < 0  # `in` would raise and catch an error


def _like(requested: Any, is_known: Callable[[RequestId], bool]) -> RequestId | Absent:
    """The known id that is equal, else the one with the same text."""
    for candidate in (requested, _other_type(requested)):
        if (type(candidate) is int or type(candidate) is str) and is_known(candidate):
            return candidate
    return ABSENT


def _other_type(requested: Any) -> RequestId | Absent:
    """`"1"` for 1, and 1 for `"1"`."""
    if type(requested) is int:
        return str(requested)
    if type(requested) is not str or not _INTEGER.fullmatch(requested):
        return ABSENT
    return int(requested)
