"""The revisions of the protocol as data, their two eras, and how a client states its revision.

In the handshake era, a client negotiates a revision for the whole connection with `initialize`. In the stateless era,
every request carries an envelope in `params._meta`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from prowess_host.protocol.rpc import RpcError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prowess.jsontypes import JsonObject

__all__ = [
    "CAPABILITIES_KEY",
    "CLIENT_KEY",
    "HANDSHAKE",
    "LATEST_HANDSHAKE",
    "LOG_LEVELS",
    "LOG_LEVEL_KEY",
    "REVISIONS",
    "SERVER_KEY",
    "STATELESS",
    "SUBSCRIPTION_KEY",
    "SUPPORTED_VERSIONS",
    "TASKS",
    "VERSION_KEY",
    "ClientInfo",
    "Revision",
    "envelope_client",
    "handshake_client",
    "negotiate",
    "open_envelope",
    "read_log_level",
    "read_progress_token",
    "takes_tasks",
]

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension for calls in the background."""
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"

LOG_LEVELS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "debug": 0,
        "info": 1,
        "notice": 2,
        "warning": 3,
        "error": 4,
        "critical": 5,
        "alert": 6,
        "emergency": 7,
    }
)
"""The log levels with their ranks."""

_TOOL_2024: Final = frozenset({"name", "description", "inputSchema"})
_TOOL_2025_03: Final = _TOOL_2024 | {"annotations"}
_TOOL_2025_06: Final = _TOOL_2025_03 | {"title", "outputSchema", "_meta"}
_TOOL_2025_11: Final = _TOOL_2025_06 | {"icons", "execution"}
_TOOL_2026: Final = _TOOL_2025_11 - {"execution"}

_SERVER_2024: Final = frozenset({"name", "version"})
_SERVER_2025_06: Final = _SERVER_2024 | {"title"}
_SERVER_2025_11: Final = _SERVER_2025_06 | {"description", "websiteUrl", "icons"}


class Revision(NamedTuple):
    """The properties of a revision."""

    version: str
    tool_fields: frozenset[str]
    server_fields: frozenset[str]
    stateless: bool = False
    batches: bool = False
    progress_message: bool = True
    elicitation: bool = True
    elicitation_mode: bool = True
    any_output: bool = False
    """Whether output schemas and structured content may have any type instead of only objects."""


STATELESS: Final[Mapping[str, Revision]] = MappingProxyType(
    {"2026-07-28": Revision("2026-07-28", _TOOL_2026, _SERVER_2025_11, stateless=True, any_output=True)}
)

HANDSHAKE: Final[Mapping[str, Revision]] = MappingProxyType(
    {
        "2025-11-25": Revision("2025-11-25", _TOOL_2025_11, _SERVER_2025_11),
        "2025-06-18": Revision("2025-06-18", _TOOL_2025_06, _SERVER_2025_06, elicitation_mode=False),
        "2025-03-26": Revision(
            "2025-03-26", _TOOL_2025_03, _SERVER_2024, batches=True, elicitation=False, elicitation_mode=False
        ),
        "2024-11-05": Revision(
            "2024-11-05",
            _TOOL_2024,
            _SERVER_2024,
            progress_message=False,
            elicitation=False,
            elicitation_mode=False,
        ),
    }
)

REVISIONS: Final[Mapping[str, Revision]] = MappingProxyType({**STATELESS, **HANDSHAKE})
"""Every supported revision, newest first."""

SUPPORTED_VERSIONS: Final = tuple(REVISIONS)
"""The list for `server/discover` and for an unsupported version. It has both eras, so that a client without a common stateless
revision can fall back to the handshake."""

LATEST_HANDSHAKE: Final = next(iter(HANDSHAKE.values()))


class ClientInfo(NamedTuple):
    """The description that a client sends in `initialize`, or in the envelope of a request."""

    info: JsonObject
    capabilities: JsonObject


def takes_tasks(client: ClientInfo, revision: Revision) -> bool:
    """Whether the client accepts a task instead of a result, which it declares in each request."""
    extensions = client.capabilities.get("extensions")
    return revision.stateless and type(extensions) is dict and type(cast("JsonObject", extensions).get(TASKS)) is dict


def negotiate(requested: str) -> Revision:
    """The revision for a handshake: the requested one, else the newest one with a handshake."""
    return HANDSHAKE.get(requested, LATEST_HANDSHAKE)


def open_envelope(meta: JsonObject) -> Revision:
    """The revision in an envelope. The rest is read once the method is known."""
    version = meta[VERSION_KEY]
    if CAPABILITIES_KEY not in meta:
        raise RpcError.missing_param(f"_meta key {CAPABILITIES_KEY}", "an object")
    if type(version) is not str:
        raise RpcError.wrong_param(f"_meta key {VERSION_KEY}", "a string", version)
    revision = STATELESS.get(version)
    if revision is None:
        raise RpcError.unsupported_version(version, SUPPORTED_VERSIONS)
    if type(meta[CAPABILITIES_KEY]) is not dict:
        raise RpcError.wrong_param(f"_meta key {CAPABILITIES_KEY}", "an object", meta[CAPABILITIES_KEY])
    return revision


def envelope_client(meta: JsonObject) -> ClientInfo:
    """The client in the envelope of a request."""
    return _read_client(
        meta.get(CLIENT_KEY), meta[CAPABILITIES_KEY], f"_meta key {CLIENT_KEY}", f"_meta key {CAPABILITIES_KEY}"
    )


def handshake_client(params: JsonObject) -> ClientInfo:
    """The client in the parameters of `initialize`."""
    return _read_client(
        params.get("clientInfo"), params.get("capabilities"), "params.clientInfo", "params.capabilities"
    )


def _read_client(info: Any, capabilities: Any, info_path: str, capabilities_path: str) -> ClientInfo:
    """Read the description of a client. Both parts may be missing, but not of a wrong type."""
    client = ClientInfo(_object(info, info_path), _object(capabilities, capabilities_path))
    for name in ("name", "version"):
        value = client.info.get(name, "")
        if type(value) is not str:
            raise RpcError.wrong_param(f"{info_path}.{name}", "a string", value)
    return client


def _object(value: Any, path: str) -> JsonObject:
    if value is None:
        return {}
    if type(value) is not dict:
        raise RpcError.wrong_param(path, "an object", value)
    return cast("JsonObject", value)


def read_log_level(value: Any, path: str) -> str:
    """One of the eight levels."""
    if type(value) is not str or value not in LOG_LEVELS:
        raise RpcError.wrong_param(path, f"one of {', '.join(LOG_LEVELS)}", value)
    return value


def read_progress_token(meta: JsonObject) -> int | str | None:
    """The progress token of a request, if it has one."""
    token = meta.get("progressToken")
    if token is None or type(token) is int or type(token) is str:
        return token
    raise RpcError.wrong_param("params._meta.progressToken", "a string or an integer", token)
