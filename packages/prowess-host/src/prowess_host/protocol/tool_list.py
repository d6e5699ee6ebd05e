"""Tool definitions: made from contracts, and reduced to the fields of each revision.

The caller provides the schemas in the profile of the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from prowess_host.protocol.item_list import PAGE_SIZE, ItemList

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject, Schema
    from prowess_host.protocol.eras import Revision

__all__ = ["CATEGORY_KEY", "TAGS_KEY", "ToolList", "define_tool", "render_tool"]

CATEGORY_KEY: Final = "prowess/category"
TAGS_KEY: Final = "prowess/tags"


def define_tool(contract: Contract, input_schema: Schema, output_schema: Schema | None) -> JsonObject:
    """The complete definition of a command, with the fields of all revisions."""
    meta: JsonObject = {CATEGORY_KEY: contract.category}
    if contract.tags:
        meta[TAGS_KEY] = list(contract.tags)
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
    """The definition with the fields of this revision. An output schema that it forbids is omitted, because it makes
    clients reject the whole list.
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


class ToolList(ItemList):
    """The list of `tools/list`."""

    def __init__(
        self,
        handshake: Iterable[JsonObject],
        stateless: Iterable[JsonObject],
        *,
        optional: Iterable[JsonObject] = (),
        page_size: int = PAGE_SIZE,
    ) -> None:
        """`optional` tools are listed only if `page` asks for them."""
        super().__init__("tools", handshake, stateless, render=render_tool, optional=optional, page_size=page_size)
