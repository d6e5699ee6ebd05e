"""The error codes of the protocol, and the exceptions.

    Exception
    ├── RpcError                 a request is answered with an error        (the client's mistake, except -32603)
    └── ValueError
        └── EncodeError          a value of ours cannot be written as JSON  (our mistake)

The constructors write the messages, with the value, the place and the fix; call sites pass facts.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from prowess.jsontypes import JsonObject

__all__ = [
    "CODES",
    "HEADER_MISMATCH",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "MISSING_CLIENT_CAPABILITY",
    "PARSE_ERROR",
    "RESOURCE_NOT_FOUND",
    "UNSUPPORTED_VERSION",
    "URL_ELICITATION_REQUIRED",
    "EncodeError",
    "ErrorCode",
    "RpcError",
    "shown",
]

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
MISSING_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
RESOURCE_NOT_FOUND: Final = -32002
URL_ELICITATION_REQUIRED: Final = -32042


class ErrorCode(NamedTuple):
    """One row of the table of codes. `handshake` and `stateless` say in which era a server may send it."""

    name: str
    http_status: int
    """Status of the stateless HTTP response that carries the error."""
    handshake: bool = True
    stateless: bool = True


CODES: Final[Mapping[int, ErrorCode]] = MappingProxyType(
    {
        PARSE_ERROR: ErrorCode("Parse error", 400),
        INVALID_REQUEST: ErrorCode("Invalid Request", 400),
        METHOD_NOT_FOUND: ErrorCode("Method not found", 404),
        INVALID_PARAMS: ErrorCode("Invalid params", 400),
        INTERNAL_ERROR: ErrorCode("Internal error", 200),
        HEADER_MISMATCH: ErrorCode("Header mismatch", 400, handshake=False),
        MISSING_CLIENT_CAPABILITY: ErrorCode("Missing required client capability", 400, handshake=False),
        UNSUPPORTED_VERSION: ErrorCode("Unsupported protocol version", 400, handshake=False),
        RESOURCE_NOT_FOUND: ErrorCode("Resource not found", 200, stateless=False),
        URL_ELICITATION_REQUIRED: ErrorCode("URL elicitation required", 200, stateless=False),
    }
)
"""Every code that the host sends, with its name."""

_SHOWN_LENGTH: Final = 60


def shown(value: Any) -> str:
    """A value for an error message: scalars shortened, containers only by kind."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return f'"{_shorten(value)}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return _shorten(str(value))
    return "an object" if isinstance(value, dict) else "an array"


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"


class EncodeError(ValueError):
    """A value is not JSON (NaN, an infinity, a lone surrogate, a cycle, a foreign type), so no message was made."""

    def __init__(self, what: str, reason: Exception) -> None:
        detail = "it is nested too deeply" if isinstance(reason, RecursionError) else str(reason)
        super().__init__(f"{what} cannot be encoded as JSON: {detail}")


class RpcError(Exception):
    """A request is answered by a JSON-RPC error instead of a result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    # The message could not be read.

    @classmethod
    def parse_error(cls, reason: str) -> RpcError:
        """The line is not UTF-8 JSON."""
        return cls(PARSE_ERROR, f"Parse error: {reason}")

    @classmethod
    def invalid_request(cls, reason: str) -> RpcError:
        """JSON, but not a JSON-RPC message."""
        return cls(INVALID_REQUEST, f"Invalid request: {reason}")

    @classmethod
    def oversized(cls, limit: int) -> RpcError:
        """The line is longer than the host reads."""
        return cls.invalid_request(f"the line is longer than {limit} bytes; it was skipped, send less in one message")

    @classmethod
    def duplicate_id(cls, request_id: int | str) -> RpcError:
        """A request with this id has no answer yet."""
        return cls.invalid_request(f"id {shown(request_id)} belongs to a request still in flight; use a fresh id")

    @classmethod
    def batch_refused(cls, reason: str) -> RpcError:
        """An array where none is allowed."""
        return cls.invalid_request(f"{reason}; send one message on each line")

    # The request was read, but it is not served.

    @classmethod
    def method_not_found(cls, method: str, version: str | None = None) -> RpcError:
        """No method of that name for this revision."""
        where = f" in {version}" if version else ""
        return cls(METHOD_NOT_FOUND, f"Method not found{where}: {_shorten(method)}", method)

    @classmethod
    def not_initialized(cls, method: str, key: str) -> RpcError:
        """Neither an envelope nor a session says which revision the client speaks."""
        way_out = f"missing required _meta key {key}; or send initialize first"
        return cls(INVALID_PARAMS, f"Invalid params of {method}: {way_out}")

    @classmethod
    def unsupported_version(cls, requested: str, supported: Sequence[str]) -> RpcError:
        """The envelope asks for a revision that is not spoken that way."""
        message = f"Unsupported protocol version {shown(requested)}; supported: {', '.join(supported)}"
        return cls(UNSUPPORTED_VERSION, message, {"supported": list(supported), "requested": requested})

    @classmethod
    def missing_capability(cls, capabilities: JsonObject) -> RpcError:
        """The command needs something the client did not declare in this request."""
        names = ", ".join(capabilities)
        message = f"This needs a client that declares {names} in the clientCapabilities of the request"
        return cls(MISSING_CLIENT_CAPABILITY, message, {"requiredCapabilities": capabilities})

    # The parameters do not fit.

    @classmethod
    def missing_param(cls, path: str, expected: str) -> RpcError:
        """A required member of `params` is missing."""
        return cls(INVALID_PARAMS, f"Invalid params: {path} is required and must be {expected}")

    @classmethod
    def wrong_param(cls, path: str, expected: str, value: Any) -> RpcError:
        """A member of `params` has another type or value than it must have."""
        return cls(INVALID_PARAMS, f"Invalid params: {path} must be {expected}, not {shown(value)}")

    @classmethod
    def unreadable_text(cls) -> RpcError:
        """A string holds half of a surrogate pair, so it is not Unicode text and cannot be handed on."""
        reason = "a string holds a lone surrogate escape; send the whole pair, or the character itself"
        return cls(INVALID_PARAMS, f"Invalid params: {reason}")

    @classmethod
    def bad_numbers(cls, problems: Sequence[str]) -> RpcError:
        """Numbers that JSON cannot express, or that are too long to parse."""
        return cls(INVALID_PARAMS, f"Invalid params: {'; '.join(problems)}")

    @classmethod
    def unknown_tool(cls, name: str, hint: str = "") -> RpcError:
        """No command has the name. `hint` may have the probable one."""
        return cls(INVALID_PARAMS, f"Unknown tool: {_shorten(name)}{hint}")

    @classmethod
    def unknown_prompt(cls, name: str, hint: str = "") -> RpcError:
        """No prompt has the name."""
        return cls(INVALID_PARAMS, f"Unknown prompt: {_shorten(name)}{hint}")

    @classmethod
    def unknown_resource(cls, uri: str, hint: str = "", *, stateless: bool) -> RpcError:
        """Nothing can be read at this URI. The handshake era has a code of its own for that."""
        code = INVALID_PARAMS if stateless else RESOURCE_NOT_FOUND
        return cls(code, f"Resource not found: {_shorten(uri)}{hint}", {"uri": uri})

    @classmethod
    def bad_cursor(cls, cursor: str) -> RpcError:
        """The cursor was not made for this list, or the list has changed since."""
        way_out = "it is not from this list, or the list has changed; list again without a cursor"
        return cls(INVALID_PARAMS, f"Invalid params: unknown cursor {shown(cursor)}: {way_out}")

    @classmethod
    def bad_request_state(cls, reason: str) -> RpcError:
        """The state handed back is forged, expired, or belongs to another call."""
        message = f"Invalid params: requestState {reason}; call again without it"
        return cls(INVALID_PARAMS, message, {"reason": "invalid_request_state"})

    # Ours.

    @classmethod
    def internal(cls, reason: str) -> RpcError:
        """The host failed. `reason` must not contain secrets."""
        return cls(INTERNAL_ERROR, f"Internal error: {reason}")
