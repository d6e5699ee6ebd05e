"""The headers of an HTTP request that MCP defines: repeated ones, what a client accepts, mirrored values of the body."""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from prowess_host.protocol.rpc import HEADER_MISMATCH, RpcError, shown

if TYPE_CHECKING:
    from prowess.jsontypes import JsonObject
    from prowess_host.protocol.codec import RpcRequest

__all__ = ["AcceptedTypes", "Headers", "Mirrored", "check_mirrors", "mirrored_parameters"]

Mirrored: TypeAlias = "Mapping[str, tuple[str, ...]]"
"""The headers `Mcp-Param-…` in lower case, each with the path of the argument that it repeats."""

_NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Methods whose target is repeated in `Mcp-Name`, and the member of `params` that holds it."""
_USUAL: Final = 200
"""Characters of the longest header `Accept` whose meaning is remembered, as clients repeat a few values."""
_LISTS: Final = frozenset({"accept", "x-forwarded-for"})
"""Headers that mean the same in one line and in several."""
_START, _END = "=?base64?", "?="
_ANNOTATION: Final = "x-mcp-header"
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class Headers:
    """The fields of a request by their lower-case names. Requests with the same head share them."""

    __slots__ = ("_fields", "repeated")

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._fields: dict[str, str] = {}
        self.repeated: set[str] = set()
        for raw_name, raw in pairs:
            name, value = raw_name.decode("latin-1").lower(), raw.decode("latin-1").strip(" \t")
            if name in self._fields:
                self.repeated.add(name)
                if name not in _LISTS:  # the first one counts; `repeated` notes the others
                    continue
                value = f"{self._fields[name]},{value}"
            self._fields[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def get(self, name: str) -> str | None:
        """The value of a field, without the spaces around it."""
        return self._fields.get(name)

    def once(self, name: str) -> str | None:
        """The value of a field. Raises `RpcError` if it is repeated."""
        if name in self.repeated:
            raise _mismatch(f"the header {name} is repeated; send it once")
        return self._fields.get(name)


class AcceptedTypes(NamedTuple):
    """The media types that a client accepts."""

    json: bool
    sse: bool

    @classmethod
    def of(cls, accept: str | None) -> AcceptedTypes:
        """Parse the field `Accept`. A client without it accepts everything."""
        if not accept:
            return cls(json=True, sse=True)
        return _accepted(accept) if len(accept) <= _USUAL else _accepted.__wrapped__(accept)


@functools.lru_cache(maxsize=100)
def _accepted(accept: str) -> AcceptedTypes:
    types: dict[str, bool] = {}
    for part in accept.lower().split(","):
        kind, *parameters = part.split(";")
        types[kind.strip()] = not any(_ZERO.fullmatch(each) for each in parameters)
    return AcceptedTypes(json=_takes(types, "application/json"), sse=_takes(types, "text/event-stream"))


_ZERO: Final = re.compile(r"\s*q=0(\.0*)?\s*")


def _takes(types: Mapping[str, bool], kind: str) -> bool:
    """Whether a type is accepted. An exact entry comes before a wildcard."""
    ranges = (kind, f"{kind.partition('/')[0]}/*", "*/*")
    return next((types[each] for each in ranges if each in types), False)


# Fields that repeat parts of the body


def check_mirrors(headers: Headers, request: RpcRequest, mirrored: Mirrored) -> None:
    """Compare the fields of a stateless request with its body, because proxies may route by them. Raises `RpcError`."""
    _same("Mcp-Method", headers.once("mcp-method"), request.method)
    member = _NAMED.get(request.method)
    target = request.params.get(member) if member else None
    if type(target) is str:
        _same("Mcp-Name", _decoded("Mcp-Name", headers.once("mcp-name")), target)
    if request.method == "tools/call" and mirrored:
        arguments = _arguments(request.params.get("arguments"))
        for name, path in mirrored.items():
            _check_parameter(name, headers.once(name), _at(arguments, path))


def _same(name: str, sent: str | None, expected: str) -> None:
    if sent is None:
        raise _mismatch(f"the header {name} is required, and must be {shown(expected)}")
    if sent != expected:
        raise _mismatch(f"{name} is {shown(sent)}, and the body says {shown(expected)}")


def _check_parameter(name: str, sent: str | None, value: Any) -> None:
    sent = _decoded(name, sent)
    if value is None:
        if sent is not None:
            raise _mismatch(f"{name} is {shown(sent)}, and the body has no such argument")
    elif sent is None:
        raise _mismatch(f"the header {name} is required, since the body has the argument")
    elif not _equal(sent, value):
        raise _mismatch(f"{name} is {shown(sent)}, and the body says {shown(value)}")


def _equal(sent: str, value: Any) -> bool:
    if isinstance(value, bool):
        return sent == ("true" if value else "false")
    if isinstance(value, (int, float)):
        if _NUMBER.fullmatch(sent) is None:  # Python reads more, which a proxy reads otherwise: "1_000"
            return False
        try:
            return (int if sent.lstrip("-").isdigit() else float)(sent) == value
        except ValueError:  # an integer of more than 4300 digits
            return False
    return isinstance(value, str) and sent == value


def _decoded(name: str, value: str | None) -> str | None:
    """Decode a value: text beyond ASCII arrives as base64."""
    if value is None:
        return None
    if not (value.isascii() and value.replace("\t", " ").isprintable()):
        raise _mismatch(f"{name} has characters that a header may not have; send it as {_START}…{_END}")
    if not (value.startswith(_START) and value.endswith(_END)):
        return value
    try:
        return base64.b64decode(value[len(_START) : -len(_END)], validate=True).decode()
    except (binascii.Error, ValueError):
        raise _mismatch(f"{name} is not base64 of UTF-8") from None


def _mismatch(reason: str) -> RpcError:
    return RpcError(HEADER_MISMATCH, f"Header mismatch: {reason}")


def _arguments(value: Any) -> JsonObject:
    """Decode arguments that arrive as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = cast("JsonObject", value).get(name)
    return value


def mirrored_parameters(schema: Any, path: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """The parameters that a schema repeats in headers. Only those below `properties` count."""
    found: dict[str, tuple[str, ...]] = {}
    properties = cast("JsonObject", schema).get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return found
    for name, each in cast("JsonObject", properties).items():
        if isinstance(each, dict):
            header = cast("JsonObject", each).get(_ANNOTATION)
            if isinstance(header, str) and header:
                found[f"mcp-param-{header.lower()}"] = (*path, name)
            found.update(mirrored_parameters(each, (*path, name)))
    return found
