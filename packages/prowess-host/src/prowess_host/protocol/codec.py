"""Decodes one line of bytes into one JSON-RPC message, and encodes messages. Independent of methods and revisions.

The parser is the one of the standard library: importing pydantic-core would cost every start of a host about 10 ms and
save about a microsecond per message. Only large arguments are worth it (`prowess_host.protocol.large`). Results of
commands are copied as bytes, so they are never parsed or encoded here. If an object repeats a key, the last value counts.
"""

from __future__ import annotations

import gc
import json
import os
import re
from contextlib import suppress
from enum import Enum
from math import isinf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeAlias, cast

from prowess.jsontypes import uncollected
from prowess_host.protocol.large import LARGE, read_large
from prowess_host.protocol.lines import Oversized
from prowess_host.protocol.numbers import OddNumber, number_problems, read_integer
from prowess_host.protocol.rpc import EncodeError, RpcError, shown
from prowess_host.protocol.salvage import find_id, find_id_of_oversized

if TYPE_CHECKING:
    from prowess.jsontypes import JsonObject

__all__ = [
    "ABSENT",
    "Absent",
    "Batch",
    "Malformed",
    "Message",
    "Notification",
    "RequestId",
    "RpcRequest",
    "RpcResponse",
    "Single",
    "decode",
    "dumps",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_result",
    "encode_result_raw",
    "error_body",
    "read_item",
    "read_message",
]

RequestId: TypeAlias = "int | str"


class Absent(Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""There is no id, or no readable and valid one."""


class RpcRequest(NamedTuple):
    """A request, which gets exactly one answer."""

    id: RequestId
    method: str
    params: JsonObject
    arguments: bytes | None = None
    """The JSON text of the object `params.arguments` as it arrived, to be handed on without encoding it again.

    `None` if it has to be encoded: in batches, and if it contains numbers that JSON cannot express.
    """


class Notification(NamedTuple):
    """A notification, which gets no answer."""

    method: str
    params: JsonObject


class RpcResponse(NamedTuple):
    """The client's answer to a request of ours, or its error about a message (then perhaps without an id).

    A failure has an `error`; a success has none.
    """

    id: RequestId | Absent
    result: JsonObject
    error: JsonObject | None = None


class Batch(NamedTuple):
    """An array. `read_item` reads its items, if arrays are allowed."""

    items: list[Any]


class Malformed(NamedTuple):
    """An invalid message. It is answered by `error`, with the id if that was readable."""

    id: RequestId | Absent
    error: RpcError


Single: TypeAlias = "RpcRequest | Notification | RpcResponse | Malformed"
Message: TypeAlias = "Single | Batch"


# Reading


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_lenient_decoder = json.JSONDecoder(parse_constant=OddNumber, parse_int=read_integer)


def decode(line: bytes | Oversized) -> Message:
    """Read one line. Never raises: an invalid line becomes `Malformed`, with the id if that is certain."""
    if isinstance(line, Oversized):
        return Malformed(_or_absent(find_id_of_oversized(line)), RpcError.oversized(line.limit))
    if len(line) >= LARGE and gc.isenabled():
        with uncollected():
            return decode(line)
    large = read_large(line, _parse) if len(line) >= LARGE else None
    if large is not None:
        return read_message(large.value, large.rest, large.arguments)
    try:
        text = line.decode()
        found = _find_arguments(text, line)
        value = _parse(text) if found is None else found[0]
    except RecursionError:
        return _undecodable(line, RpcError.invalid_request("it is nested too deeply to be read"))
    except UnicodeDecodeError as error:
        return _undecodable(line, RpcError.parse_error(f"byte {error.start} of the line is not UTF-8"))
    except ValueError as error:
        return _decode_leniently(line, error)
    if isinstance(value, list):
        return Batch(cast("list[Any]", value))
    return read_message(value, line, None if found is None else found[1])


def _undecodable(line: bytes, error: RpcError) -> Malformed:
    return Malformed(_or_absent(find_id(line)), error)


def _or_absent(found: RequestId | None) -> RequestId | Absent:
    return ABSENT if found is None else found


def _decode_leniently(line: bytes, reason: ValueError) -> Message:
    """Read a line that is not JSON. If only numbers are invalid, the error names them."""
    unread = RpcError.parse_error(f"the line is not JSON ({reason})")
    try:
        value = _lenient_decoder.decode(line.decode())
    except (ValueError, RecursionError):
        return _undecodable(line, unread)
    if isinstance(value, list):
        return Batch(cast("list[Any]", value))
    message = read_message(value, line)
    return _undecodable(line, unread) if isinstance(message, Malformed) else _with_odd_numbers(message)


def _with_odd_numbers(message: Single) -> Single:
    """A message with numbers that JSON cannot express, or Python cannot read.

    In the arguments of a tool, the check of arguments reports them, as a result for the model instead of a protocol error.
    """
    if isinstance(message, RpcResponse):
        return RpcResponse(message.id, {}, {"message": "; ".join(number_problems(message.result))})
    if not isinstance(message, RpcRequest):
        return message
    elsewhere = {**message.params}
    if message.method == "tools/call":
        elsewhere.pop("arguments", None)
    problems = number_problems(elsewhere, "params")
    return Malformed(message.id, RpcError.bad_numbers(problems)) if problems else message


def _parse(text: str) -> Any:
    """The value of a text without surrounding spaces. The slower way reports text after the value."""
    value, end = _decoder.raw_decode(text)
    return value if end == len(text) else _decoder.decode(text)


_ARGUMENTS: Final = re.compile(r'"arguments"[ \t\r\n]*:[ \t\r\n]*(?=\{)')
_HOLE: Final = os.urandom(16).hex()


def _finite(text: str) -> float:
    """Parse a number. The slower way reports one that is too large."""
    number = float(text)
    if isinf(number):
        raise OverflowError
    return number


# `scan_once` is `raw_decode` without a function around it; it raises `StopIteration` where no value begins.
_scan: Final[Any] = cast("Any", _decoder).scan_once
_scan_arguments: Final[Any] = cast(
    "Any", json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
).scan_once


_SURROGATE: Final = re.compile(rb"\\u[dD]")
"""A possible lone surrogate. The pattern takes a quarter of the time of `in`."""


def _find_arguments(text: str, line: bytes) -> tuple[Any, bytes] | None:
    """The value of a text with an object `params.arguments`, and the bytes of that object.

    The value after the first name `arguments` is parsed separately, then the rest with a placeholder in its place. If
    `params.arguments` is the placeholder, the place was right. It cannot be inside a string, because the quotation mark
    before the colon has ended one. `None` in every other case, including errors: parsing the whole text then decides and
    reports.
    """
    place = _ARGUMENTS.search(text)
    if place is None:
        return None
    start = place.end()
    try:
        arguments, end = _scan_arguments(text, start)
        rest = f'{text[:start]}"{_HOLE}"{text[end:]}'
        value, read = _scan(rest, 0)
        params = value["params"]
        if params["arguments"] != _HOLE or (read != len(rest) and rest[read:].strip(" \t\r\n")):
            return None
    except (ValueError, OverflowError, RecursionError, TypeError, KeyError, IndexError, StopIteration):
        return None
    params["arguments"] = arguments
    return value, line[start:end] if line.isascii() else text[start:end].encode()


def read_item(item: Any) -> Single:
    """Read one item of a batch like a line."""
    try:
        return read_message(item, json.dumps(item, separators=(",", ":"), allow_nan=False).encode())
    except RecursionError:
        return Malformed(ABSENT, RpcError.invalid_request("an item is nested too deeply"))
    except ValueError:
        return _with_odd_numbers(read_message(item, json.dumps(item, separators=(",", ":")).encode()))


def read_message(value: Any, raw: bytes, arguments: bytes | None = None) -> Single:
    """Convert a parsed value to a message. `raw` is its JSON text, which is searched for escapes."""
    if type(value) is not dict:
        return Malformed(ABSENT, RpcError.invalid_request(f"a message must be an object, not {shown(value)}"))
    message: JsonObject = value  # pyright: ignore[reportUnknownVariableType] - a cast costs a call
    message_id = message.get("id", ABSENT)
    if (
        raw.find(b"\\") >= 0 and _SURROGATE.search(raw) and not _is_unicode(message)
    ):  # `in` would raise and catch an error
        return _unreadable(message, message_id)
    if "method" in message:
        return _read_request(message, message_id, arguments)
    if "result" in message or "error" in message:
        return _read_response(message, message_id)
    return Malformed(_readable(message_id), RpcError.invalid_request("it has no method"))


def _read_request(message: JsonObject, message_id: Any, arguments: bytes | None) -> Single:
    method = message["method"]
    params: Any = message.get("params")
    if message.get("jsonrpc") != "2.0":
        fault = RpcError.invalid_request(f'jsonrpc must be "2.0", not {shown(message.get("jsonrpc"))}')
    elif type(method) is not str:
        fault = RpcError.invalid_request(f"method must be a string, not {shown(method)}")
    elif message_id is ABSENT:
        return Notification(method, params if type(params) is dict else {})
    elif type(message_id) is not int and type(message_id) is not str:
        fault = RpcError.invalid_request(f"id must be a string or an integer, not {shown(message_id)}")
    elif params is None:
        return RpcRequest(message_id, method, {})
    elif type(params) is not dict:
        fault = RpcError.wrong_param("params", "an object", params)
    else:
        return RpcRequest(message_id, method, params, arguments)
    return Malformed(_readable(message_id), fault)


def _read_response(message: JsonObject, message_id: Any) -> Single:
    """Read a response. An invalid one counts as a failure, so that the caller does not wait for ever."""
    result, error = message.get("result"), message.get("error")
    if type(result) is dict and "error" not in message:
        return RpcResponse(_readable(message_id), cast("JsonObject", result))
    reason = cast("JsonObject", error) if type(error) is dict else {"message": "malformed response"}
    return RpcResponse(_readable(message_id), {}, reason)


def _unreadable(message: JsonObject, message_id: Any) -> Single:
    readable = _readable(message_id)
    if isinstance(readable, str) and not _is_unicode(readable):
        readable = ABSENT
    if "method" not in message and ("result" in message or "error" in message):
        return RpcResponse(readable, {}, {"message": "a string holds a lone surrogate escape"})
    return Malformed(readable, RpcError.unreadable_text())


def _readable(message_id: Any) -> RequestId | Absent:
    """The id if it is valid: `true` and `1.0` are not, although Python compares them with integers."""
    return message_id if type(message_id) is int or type(message_id) is str else ABSENT


def _is_unicode(value: Any) -> bool:
    """Whether all strings can be encoded as UTF-8. The parser accepts lone surrogates."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


# Writing. Every function returns one line, with its newline.

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def dumps(value: Any, what: str = "the value") -> bytes:
    """Compact UTF-8 JSON without newlines. Raises `EncodeError`, which names `what`."""
    try:
        return _encoder.encode(value).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise EncodeError(what, error) from None


def encode_result(request_id: RequestId, result: JsonObject) -> bytes:
    """A success. A result that is not JSON becomes an error with the same id, so that the request is answered."""
    try:
        return encode_result_raw(request_id, dumps(result, "the result"))
    except EncodeError as error:
        return encode_error(request_id, RpcError.internal(str(error)))


def encode_result_raw(request_id: RequestId, result: bytes) -> bytes:
    """A success with an encoded result, which is copied unread."""
    written = b"%d" % request_id if type(request_id) is int else _encoder.encode(request_id).encode()
    return b"".join((b'{"jsonrpc":"2.0","id":', written, b',"result":', result, b"}\n"))


def encode_error(request_id: RequestId | Absent, error: RpcError) -> bytes:
    """A failure. Without an id, the member is omitted, because `null` is not allowed."""
    member = b"" if request_id is ABSENT else b'"id":%b,' % _id(request_id)
    return b'{"jsonrpc":"2.0",%b"error":%b}\n' % (member, error_body(error))


def encode_notification(method: str, params: JsonObject | None = None) -> bytes:
    """A notification of ours. Raises `EncodeError`."""
    return b'{"jsonrpc":"2.0",%b}\n' % _members(method, params)


def encode_request(request_id: RequestId, method: str, params: JsonObject | None = None) -> bytes:
    """A request of ours. Raises `EncodeError`."""
    return b'{"jsonrpc":"2.0","id":%b,%b}\n' % (_id(request_id), _members(method, params))


def _id(request_id: RequestId) -> bytes:
    return b"%d" % request_id if type(request_id) is int else _encoder.encode(request_id).encode()


def _members(method: str, params: JsonObject | None) -> bytes:
    name = _encoder.encode(method).encode()
    return b'"method":%b' % name if params is None else b'"method":%b,"params":%b' % (name, dumps(params, "params"))


def error_body(error: RpcError) -> bytes:
    """The `error` member of a failure."""
    body: JsonObject = {"code": error.code, "message": error.message}
    if error.data is not None:
        with suppress(EncodeError):
            return dumps({**body, "data": error.data})
    return _encoder.encode(body).encode("utf-8", "replace")
