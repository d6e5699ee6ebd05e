"""The kinds of things that are served, one row each: methods, lists, definitions and capabilities.

`prowess.contracts.kinds` has the part of each row that authors and workers need.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prowess.contracts.contract import TOOL
from prowess.contracts.kinds import PROMPT, RESOURCE
from prowess_host.protocol.eras import TASKS
from prowess_host.protocol.tool_list import CATEGORY_KEY, TAGS_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject
    from prowess_host.protocol.eras import Revision

__all__ = [
    "BY_METHOD",
    "LISTS",
    "ROWS",
    "SKILLS",
    "SKILLS_METHODS",
    "KindList",
    "KindRow",
    "as_content",
    "capabilities",
    "define_prompt",
    "define_resource",
]

SKILLS: Final = "skills"
"""Agent Skills, in the stateless era: not a kind, but lists of files among the resources."""
SKILLS_METHODS: Final = frozenset({"skills/list", "skills/get", "resources/directory/read"})
_SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
_COMPLETIONS_SINCE: Final = "2025-03-26"


class KindList(NamedTuple):
    """One list of a kind."""

    method: str
    member: str
    """The member of the result that contains the items."""
    holds: Callable[[Contract], bool]
    """The filter for the items of this list."""


class KindRow(NamedTuple):
    """The properties of a kind that the host needs."""

    kind: str
    capability: str
    method: str
    """The method that calls one."""
    named_by: str
    """The parameter of that method with the name."""
    shelves: tuple[KindList, ...]
    changed: str
    """The name of changes of the lists in subscriptions of the stateless era."""
    abilities: Mapping[str, bool]
    """The fields of the capability."""
    define: Callable[[Contract], JsonObject] | None = None
    """Makes the complete definition of one. Those of tools depend on a profile, and are made elsewhere."""

    @property
    def notification(self) -> str:
        """The method that tells clients that the lists have changed."""
        return f"notifications/{self.capability}/list_changed"


def _any(_contract: Contract) -> bool:
    return True


def _fixed(contract: Contract) -> bool:
    return not contract.is_template


def _template(contract: Contract) -> bool:
    return contract.is_template


def define_resource(contract: Contract) -> JsonObject:
    """The complete definition of a resource or a resource template."""
    place = "uriTemplate" if contract.is_template else "uri"
    return _given({place: contract.uri, **_described(contract), "mimeType": contract.mime_type})


def define_prompt(contract: Contract) -> JsonObject:
    """The complete definition of a prompt."""
    required = contract.input_schema.get("required", ())
    arguments = [
        _given({"name": name, "description": schema.get("description"), "required": name in required})
        for name, schema in contract.input_schema.get("properties", {}).items()
    ]
    return _given({**_described(contract), "arguments": arguments or None})


def _described(contract: Contract) -> JsonObject:
    """The common fields of all definitions. `name` and `title` come first, because people read them."""
    meta: JsonObject = {CATEGORY_KEY: contract.category}
    if contract.tags:
        meta[TAGS_KEY] = list(contract.tags)
    return {
        "name": contract.wire_name,
        "title": contract.title,
        "description": contract.shown_description,
        "icons": list(contract.icons) or None,
        "_meta": {**meta, **contract.meta},
    }


def _given(definition: JsonObject) -> JsonObject:
    return {name: value for name, value in definition.items() if value is not None}


_CHANGES: Final = MappingProxyType({"listChanged": True})

ROWS: Final = (
    KindRow(
        TOOL,
        "tools",
        "tools/call",
        "name",
        (KindList("tools/list", "tools", _any),),
        "toolsListChanged",
        _CHANGES,
    ),
    KindRow(
        RESOURCE,
        "resources",
        "resources/read",
        "uri",
        (
            KindList("resources/list", "resources", _fixed),
            KindList("resources/templates/list", "resourceTemplates", _template),
        ),
        "resourcesListChanged",
        MappingProxyType({"subscribe": True, "listChanged": True}),
        define_resource,
    ),
    KindRow(
        PROMPT,
        "prompts",
        "prompts/get",
        "name",
        (KindList("prompts/list", "prompts", _any),),
        "promptsListChanged",
        _CHANGES,
        define_prompt,
    ),
)
LISTS: Final[Mapping[str, KindList]] = MappingProxyType({shelf.method: shelf for row in ROWS for shelf in row.shelves})
"""The lists by their methods."""
BY_METHOD: Final[Mapping[str, KindRow]] = MappingProxyType(
    {
        **{method: row for row in ROWS for method in (row.method, *(shelf.method for shelf in row.shelves))},
        "resources/subscribe": ROWS[1],
        "resources/unsubscribe": ROWS[1],
        **dict.fromkeys(SKILLS_METHODS, ROWS[1]),
    }
)
"""The kind of a method."""


def as_content(payload: JsonObject) -> JsonObject:
    """The contents of a resource or the messages of a prompt, in the form of a tool result."""
    if "contents" in payload:
        return {
            "content": [
                {"type": "text", "text": each["text"]} if "text" in each else {"type": "resource", "resource": each}
                for each in payload["contents"]
            ]
        }
    if "messages" not in payload:
        return payload
    content: list[JsonObject] = []
    for message in payload["messages"]:
        block: JsonObject = message["content"]
        said = {**block, "text": f"{message['role']}: {block['text']}"} if block["type"] == "text" else block
        content.append(said)
    return {"content": content}


def capabilities(kinds: Collection[str], revision: Revision, *, tasks: bool = True) -> JsonObject:
    """The capabilities of a server with these kinds. Tools are always declared."""
    found: JsonObject = {row.capability: dict(row.abilities) for row in ROWS if row.kind in kinds or row.kind == TOOL}
    if len(found) > 1 and revision.version >= _COMPLETIONS_SINCE:
        found["completions"] = {}
    extensions: dict[str, Any] = {TASKS: {}} if tasks else {}
    if SKILLS in kinds:
        extensions[_SKILLS_EXTENSION] = {"directoryRead": True}
    if revision.stateless and extensions:
        found["extensions"] = extensions
    logging: dict[str, Any] = {}
    return {**found, "logging": logging}
