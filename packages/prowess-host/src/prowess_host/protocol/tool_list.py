"""Tool definitions: made from contracts, reduced to the fields of each revision, and cut into pages.

The caller brings the schemas, already in the profile of the client.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from prowess_host.protocol.codec import dumps
from prowess_host.protocol.cursors import read_cursor, write_cursor
from prowess_host.protocol.identity import join_objects

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject, Schema
    from prowess_host.protocol.eras import Revision

__all__ = ["PAGE_SIZE", "ToolList", "define_tool", "render_tool"]

PAGE_SIZE: Final = 1000
"""Tools on one page by default: large, because some clients never ask for a second one."""

_CATEGORY_KEY: Final = "prowess/category"
_TAGS_KEY: Final = "prowess/tags"


def define_tool(contract: Contract, input_schema: Schema, output_schema: Schema | None) -> JsonObject:
    """The fullest definition of a command, with every field that some revision has and the author gave."""
    meta: JsonObject = {_CATEGORY_KEY: contract.category}
    if contract.tags:
        meta[_TAGS_KEY] = list(contract.tags)
    given = {
        "name": contract.wire_name,
        "title": contract.title,
        "description": contract.shown_description,
        "icons": list(contract.icons) or None,
        "inputSchema": input_schema,
        "outputSchema": output_schema,
        "annotations": contract.hints.to_mcp() or None,
        "_meta": {**meta, **contract.meta},
    }
    return {name: value for name, value in given.items() if value is not None}


def render_tool(definition: JsonObject, revision: Revision) -> JsonObject:
    """The definition as this revision can say it: fields it has not are left out, and so is an output schema it
    forbids, since one such schema makes clients refuse the whole list.
    """
    fields = revision.tool_fields
    shown = {name: value for name, value in definition.items() if name in fields}
    if "title" not in fields and "annotations" in fields and "title" in definition:
        hints = cast("JsonObject", definition.get("annotations", {}))
        shown["annotations"] = {"title": definition["title"], **hints}
    if not revision.any_output and not _is_object(shown.get("outputSchema")):
        shown.pop("outputSchema", None)
    return shown


def _is_object(schema: Any) -> bool:
    return isinstance(schema, dict) and cast("JsonObject", schema).get("type") == "object"


class ToolList:
    """What `tools/list` shows: one definition of each tool for each era, in order of name, whoever asks.

    Pages are made once for each revision and kept as bytes, since a list is read far more often than it changes.
    """

    def __init__(
        self,
        handshake: Iterable[JsonObject],
        stateless: Iterable[JsonObject],
        *,
        optional: Iterable[JsonObject] = (),
        page_size: int = PAGE_SIZE,
    ) -> None:
        """`optional` tools are listed where whoever asks for a page wants them."""
        self._handshake = sorted(handshake, key=_name)
        self._stateless = sorted(stateless, key=_name)
        self._optional = list(optional)
        self._page_size = page_size
        self._rendered: dict[tuple[str, bool], list[bytes]] = {}

    @cached_property
    def digest(self) -> str:
        """Differs when anything a client can see differs. The first answer does without it."""
        whole = dumps([self._handshake, self._stateless], "a tool definition")
        return hashlib.sha256(whole).hexdigest()[:16]

    def page(self, cursor: str | None, revision: Revision, *, optional: bool = False) -> bytes:
        """The result of `tools/list` as JSON bytes, not yet dressed for the revision. A bad cursor is an `RpcError`."""
        tools = self._tools(revision, optional=optional)
        start = read_cursor(cursor, self.digest, len(tools)) if cursor else 0
        end = start + self._page_size
        body = b'{"tools":[%b]}' % b",".join(tools[start:end])
        if end >= len(tools):
            return body
        return join_objects(body, dumps({"nextCursor": write_cursor(end, self.digest)}))

    def _tools(self, revision: Revision, *, optional: bool) -> list[bytes]:
        key = revision.version, optional
        tools = self._rendered.get(key)
        if tools is None:
            definitions = self._stateless if revision.stateless else self._handshake
            if optional:
                definitions = sorted([*definitions, *self._optional], key=_name)
            tools = [dumps(render_tool(each, revision), "a tool definition") for each in definitions]
            self._rendered[key] = tools
        return tools


def _name(definition: JsonObject) -> str:
    return definition["name"]
