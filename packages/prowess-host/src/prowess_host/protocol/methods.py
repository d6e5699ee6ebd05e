"""Tables of the methods of each era and the shape of their parameters. A method outside the tables is rejected.

Most of them come from the rows in `kinds`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from prowess.contracts.contract import TOOL
from prowess_host.protocol.kinds import LISTS, ROWS, SKILLS_METHODS, KindRow
from prowess_host.protocol.rpc import RpcError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prowess.jsontypes import JsonObject
    from prowess_host.protocol.eras import Revision

__all__ = ["CACHEABLE", "HANDSHAKE_METHODS", "STATELESS_METHODS", "TASK_METHODS", "Param", "check_params", "is_known"]


class Param(NamedTuple):
    """A member of `params`. An optional one may also be null."""

    name: str
    kind: type
    expected: str
    required: bool = False
    as_text: bool = False
    """Whether it may also arrive as JSON text, as some clients send it. The reader of the arguments decodes it."""


_PROTOCOL_VERSION = Param("protocolVersion", str, "a string", required=True)
_CURSOR = Param("cursor", str, "a string")
_URI = Param("uri", str, "a string", required=True)
_INPUT_RESPONSES = Param("inputResponses", dict, "an object")
_REQUEST_STATE = Param("requestState", str, "a string")
_LEVEL = Param("level", str, "a log level", required=True)
_TASK_ID = Param("taskId", str, "a string", required=True)
_TASK_RESPONSES = Param("inputResponses", dict, "an object", required=True)
_NOTIFICATIONS = Param("notifications", dict, "an object", required=True)
_REF = Param("ref", dict, "an object", required=True)
_ARGUMENT = Param("argument", dict, "an object", required=True)
_CONTEXT = Param("context", dict, "an object")


def _call_params(row: KindRow) -> tuple[Param, ...]:
    name = Param(row.named_by, str, "a string", required=True)
    return (name,) if row.named_by == "uri" else (name, Param("arguments", dict, "an object", as_text=row.kind == TOOL))


_OF_LISTS: Final = dict.fromkeys(LISTS, (_CURSOR,))
_COMPLETE: Final = {"completion/complete": (_REF, _ARGUMENT, _CONTEXT)}

HANDSHAKE_METHODS: Final[Mapping[str, tuple[Param, ...]]] = MappingProxyType(
    {
        "initialize": (_PROTOCOL_VERSION,),
        "ping": (),
        **_OF_LISTS,
        **{row.method: _call_params(row) for row in ROWS},
        "resources/subscribe": (_URI,),
        "resources/unsubscribe": (_URI,),
        **_COMPLETE,
        "logging/setLevel": (_LEVEL,),
    }
)

STATELESS_METHODS: Final[Mapping[str, tuple[Param, ...]]] = MappingProxyType(
    {
        "server/discover": (),
        **_OF_LISTS,
        **{row.method: (*_call_params(row), _INPUT_RESPONSES, _REQUEST_STATE) for row in ROWS},
        **_COMPLETE,
        "skills/list": (_CURSOR,),
        "skills/get": (_URI,),
        "resources/directory/read": (_URI, _CURSOR),
        "subscriptions/listen": (_NOTIFICATIONS,),
        "tasks/get": (_TASK_ID,),
        "tasks/update": (_TASK_ID, _TASK_RESPONSES),
        "tasks/cancel": (_TASK_ID,),
    }
)

TASK_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
CACHEABLE: Final = frozenset({"server/discover", "resources/read", *LISTS, *SKILLS_METHODS})
"""Methods whose results have a lifetime for caches in the stateless era."""


def is_known(method: str) -> bool:
    """Whether any era has the method."""
    return method in HANDSHAKE_METHODS or method in STATELESS_METHODS


def check_params(method: str, params: JsonObject, revision: Revision) -> None:
    """Refuse a method that the revision lacks, or parameters of the wrong shape."""
    table = STATELESS_METHODS if revision.stateless else HANDSHAKE_METHODS
    declared = table.get(method)
    if declared is None:
        raise RpcError.method_not_found(method, revision.version)
    for param in declared:
        value = params.get(param.name)
        if type(value) is not param.kind and (value is not None or param.required):
            if param.as_text and type(value) is str and value.lstrip().startswith("{"):
                continue
            _refuse(param, params)


def _refuse(param: Param, params: JsonObject) -> None:
    path = f"params.{param.name}"
    if param.name not in params:
        raise RpcError.missing_param(path, param.expected)
    raise RpcError.wrong_param(path, param.expected, params[param.name])
