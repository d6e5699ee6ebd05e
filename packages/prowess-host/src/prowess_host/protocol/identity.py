"""The server's name and version, and the fields that each revision adds to a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prowess_host.protocol.codec import dumps
from prowess_host.protocol.eras import SERVER_KEY, SUPPORTED_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from prowess.jsontypes import JsonObject
    from prowess_host.protocol.eras import Revision

__all__ = ["Server", "join_objects"]

_EMPTY_LENGTH: Final = len("{}")

_NO_CACHE: Final = b'{"ttlMs":0,"cacheScope":"private"}'
"""Lists must not be cached: any save may change the catalog, and a call by a stale list fails."""


def join_objects(*objects: bytes) -> bytes:
    """Join JSON objects as bytes, without parsing them. Their names must be distinct."""
    parts: list[bytes | memoryview] = [b"{"]
    for each in objects:
        if len(each) > _EMPTY_LENGTH:
            parts += (memoryview(each)[1:-1], b",")  # a view, so that a large result is copied only once
    parts[-1] = b"}" if len(parts) > 1 else b"{}"
    return b"".join(parts)


class Server:
    """The identity of the server for clients. `details` may have title, description, websiteUrl and icons.

    Raises `EncodeError` at the start for an identity that JSON cannot express.
    """

    def __init__(
        self,
        name: str,
        version: str,
        *,
        instructions: str | Callable[[], str | None] | None = None,
        details: JsonObject | None = None,
    ) -> None:
        """`instructions` may be a function, because generated ones change with the catalog."""
        self._instructions = instructions
        self._implementation: JsonObject = {"name": name, "version": version, **(details or {})}
        self._stamps: dict[str, bytes] = {}
        dumps([self.instructions, self._implementation], "the identity of the server")

    @property
    def instructions(self) -> str | None:
        """The instructions for models, if known."""
        return self._instructions() if callable(self._instructions) else self._instructions

    def info(self, revision: Revision) -> JsonObject:
        """`Implementation` with the fields of this revision."""
        return {name: value for name, value in self._implementation.items() if name in revision.server_fields}

    def initialize_result(self, revision: Revision, capabilities: JsonObject) -> JsonObject:
        """The answer to a handshake."""
        result = {"protocolVersion": revision.version, "capabilities": capabilities, "serverInfo": self.info(revision)}
        instructions = self.instructions
        return {**result, "instructions": instructions} if instructions else result

    def discover_result(self, capabilities: JsonObject) -> JsonObject:
        """The answer to `server/discover`, before `dress` adds the common fields."""
        result: JsonObject = {"supportedVersions": list(SUPPORTED_VERSIONS), "capabilities": capabilities}
        instructions = self.instructions
        return {**result, "instructions": instructions} if instructions else result

    def dress(
        self,
        body: bytes,
        revision: Revision,
        *,
        meta: bytes = b"{}",
        result_type: str = "complete",
        cacheable: bool = False,
    ) -> bytes:
        """Add the fields of the revision to an encoded result.

        `body` is a JSON object without `_meta`, and `meta` is the value for that. Neither is parsed.
        """
        if not revision.stateless:
            return body if meta == b"{}" else join_objects(body, b'{"_meta":%b}' % meta)
        head = b'{"resultType":"%b"}' % result_type.encode()
        stamp = self._stamp(revision)
        whole_meta = b'{"_meta":%b}' % (stamp if meta == b"{}" else join_objects(stamp, meta))
        caching = _NO_CACHE if cacheable and result_type == "complete" else b"{}"
        return join_objects(head, body, caching, whole_meta)

    def _stamp(self, revision: Revision) -> bytes:
        stamp = self._stamps.get(revision.version)
        if stamp is None:
            stamp = self._stamps[revision.version] = dumps({SERVER_KEY: self.info(revision)})
        return stamp
