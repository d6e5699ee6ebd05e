"""Interprets an HTTP request as MCP: its era and message, or the status and the error of its rejection.

Pure functions without server, project or session. Each message decides its era, by its envelope or by the header
`MCP-Protocol-Version`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from prowess_host.http.headers import AcceptedTypes, Headers, Mirrored, check_mirrors
from prowess_host.protocol.codec import (
    ABSENT,
    Batch,
    Malformed,
    Notification,
    RpcRequest,
    RpcResponse,
    decode,
    encode_error,
)
from prowess_host.protocol.eras import (
    HANDSHAKE,
    STATELESS,
    SUPPORTED_VERSIONS,
    VERSION_KEY,
    Revision,
)
from prowess_host.protocol.rpc import CODES, HEADER_MISMATCH, RpcError, shown

if TYPE_CHECKING:
    from prowess.jsontypes import JsonObject
    from prowess_host.protocol.codec import Absent, Message, RequestId

__all__ = [
    "SESSION",
    "Decision",
    "Handshake",
    "RefusedRequest",
    "Stateless",
    "read_post",
    "read_stream",
    "refused_form",
    "status_of",
]

SESSION: Final = "mcp-session-id"
_VERSION: Final = "mcp-protocol-version"


class RefusedRequest(NamedTuple):
    """Answer with this status, and with the JSON-RPC error if there is one."""

    status: int
    error: RpcError | None = None
    id: RequestId | Absent = ABSENT
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def body(self) -> bytes:
        """The body of the error as JSON."""
        return b"" if self.error is None else encode_error(self.id, self.error)[:-1]


class Stateless(NamedTuple):
    """A message of the stateless era. A notification needs no action."""

    message: RpcRequest | Notification
    accepted: AcceptedTypes


class Handshake(NamedTuple):
    """A message of a session, or the one that opens a session."""

    message: Message
    accepted: AcceptedTypes
    session: str | None
    revision: Revision | None
    """The revision in the header; the session has the decisive one."""
    opens: bool


Decision: TypeAlias = "RefusedRequest | Stateless | Handshake"


def read_post(headers: Headers, body: bytes, mirrored: Callable[[str], Mirrored]) -> Decision:
    """Interpret a POST. `mirrored` returns the parameters of a tool that headers repeat."""
    refused = refused_form(headers)
    if refused is not None:
        return refused
    accepted = AcceptedTypes.of(headers.get("accept"))
    if not (accepted.json or accepted.sse):
        return _unacceptable("application/json, text/event-stream")
    message = decode(body)
    try:
        version = headers.once(_VERSION)
    except RpcError as error:
        return RefusedRequest(400, error)
    if _is_stateless(message, version):
        return _read_stateless(headers, version, message, accepted, mirrored)
    return _read_handshake(headers, version, message, accepted)


def refused_form(headers: Headers) -> RefusedRequest | None:
    """The reason why a body cannot be read as JSON, or `None`. Compressed bodies could grow without bounds."""
    kind = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        reason = f"Content-Type must be application/json, not {shown(kind)}"
        return RefusedRequest(415, RpcError.invalid_request(reason))
    coding = (headers.get("content-encoding") or "").strip().lower()
    if coding not in ("", "identity"):
        reason = f"Content-Encoding {shown(coding)} is not supported; send the body as it is"
        return RefusedRequest(415, RpcError.invalid_request(reason), headers=((b"accept-encoding", b"identity"),))
    return None


def _unacceptable(required: str) -> RefusedRequest:
    return RefusedRequest(406, RpcError.invalid_request(f"Accept must list {required}"))


def _is_stateless(message: Message, version: str | None) -> bool:
    if version is not None and version not in HANDSHAKE:
        return True
    return isinstance(message, RpcRequest) and VERSION_KEY in _envelope(message)


def _envelope(request: RpcRequest) -> JsonObject:
    meta = request.params.get("_meta")
    return cast("JsonObject", meta) if isinstance(meta, dict) else {}


def _read_stateless(
    headers: Headers,
    version: str | None,
    message: Message,
    accepted: AcceptedTypes,
    mirrored: Callable[[str], Mirrored],
) -> Decision:
    if isinstance(message, Malformed):
        return RefusedRequest(CODES[message.error.code].http_status, message.error, message.id)
    if isinstance(message, (Batch, RpcResponse)):
        return RefusedRequest(400, RpcError.invalid_request("the body must be one request or one notification"))
    if isinstance(message, Notification):
        if version not in STATELESS:
            return RefusedRequest(400, RpcError.unsupported_version(version or "", SUPPORTED_VERSIONS))
        return Stateless(message, accepted)
    try:
        _check_version(version, _envelope(message).get(VERSION_KEY))
        name = message.params.get("name")
        check_mirrors(headers, message, mirrored(name) if isinstance(name, str) else {})
        if message.method == "initialize":
            raise RpcError.method_not_found("initialize", version)
    except RpcError as error:
        return RefusedRequest(CODES[error.code].http_status, error, message.id)
    return Stateless(message, accepted)


def _check_version(sent: str | None, version: Any) -> None:
    if sent is None:
        raise RpcError(
            HEADER_MISMATCH, f"Header mismatch: MCP-Protocol-Version is required, and must be {shown(version)}"
        )
    if version is None:
        if sent not in STATELESS:
            raise RpcError.unsupported_version(sent, SUPPORTED_VERSIONS)
        raise RpcError.missing_param(f"_meta key {VERSION_KEY}", "a string")
    if type(version) is not str:
        raise RpcError.wrong_param(f"_meta key {VERSION_KEY}", "a string", version)
    if sent != version:
        problem = f"MCP-Protocol-Version is {shown(sent)}, and the body says {shown(version)}"
        raise RpcError(HEADER_MISMATCH, f"Header mismatch: {problem}")
    if sent not in STATELESS:
        raise RpcError.unsupported_version(sent, SUPPORTED_VERSIONS)


def _read_handshake(headers: Headers, version: str | None, message: Message, accepted: AcceptedTypes) -> Decision:
    if isinstance(message, Malformed):
        return RefusedRequest(400, message.error, message.id)
    opens = isinstance(message, RpcRequest) and message.method == "initialize"
    revision = HANDSHAKE[version] if version is not None else None
    return Handshake(message, accepted, headers.get(SESSION), revision, opens)


def read_stream(method: str, headers: Headers) -> RefusedRequest | None:
    """Why a GET or a DELETE is refused, whatever its session: the stateless era has neither."""
    version = headers.get(_VERSION)
    if version in STATELESS:
        return RefusedRequest(405, headers=((b"allow", b"POST"),))
    if version is not None and version not in HANDSHAKE:
        return RefusedRequest(400, RpcError.unsupported_version(version, SUPPORTED_VERSIONS))
    if method == "GET" and not AcceptedTypes.of(headers.get("accept")).sse:
        return _unacceptable("text/event-stream")
    if headers.get(SESSION) is None:
        return RefusedRequest(400, RpcError.invalid_request("Mcp-Session-Id is required; send initialize to get one"))
    return None


_ERROR: Final = re.compile(
    rb'\{"jsonrpc":"2\.0",(?:"id":(?P<id>-?[0-9]+|"(?:[^"\\]|\\.)*"),)?"error":\{"code":(?P<code>-[0-9]+)'
)


def status_of(line: bytes, *, stateless: bool) -> int:
    """The status of a response with this line as its body. With a handshake, errors with an id are answers."""
    found = _ERROR.match(line)
    if found is None:
        return 200
    if not stateless:
        return 200 if found["id"] is not None else 400
    return CODES[int(found["code"])].http_status
