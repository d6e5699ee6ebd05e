"""Turns returned values into payloads of resources, prompts and completions. `normalize` does it for tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from prowess.contracts.contract import Contract
from prowess.contracts.kinds import COMPLETION, MOST_VALUES, PROMPT, RESOURCE
from prowess.errors import NothingThere, OutputError
from prowess.jsontypes import Json, JsonObject
from prowess.results.content import text_block
from prowess.results.normalize import Output, Render, Result, normalize

__all__ = ["NORMALIZERS", "SHOWN", "Normalizer"]

Normalizer: TypeAlias = Callable[[Any, Output, "Render | None"], Result]

_ROLES: Final = ("user", "assistant")
_GENERIC: Final = ("application/octet-stream", "text/plain")
"""Generic MIME types, which the author's own type replaces."""
_MADE_UP: Final = "prowess://file/"


# Resources


def _resource(value: Any, output: Output, render: Render | None) -> Result:
    """The contents of a resource. `None` means that no resource exists. Links are rejected: the client would have to read again."""
    if value is None:
        raise NothingThere
    result = normalize(value, output, render)
    for block in result.blocks or ():
        if block["type"] == "resource_link":
            raise OutputError(f"a resource cannot return a link ({block['uri']}); return the content itself")
    return result


def _contents(result: Result, contract: Contract, uri: str) -> JsonObject:
    if result.blocks is None:
        return {"contents": [_content({"uri": uri, "text": result.text}, contract.mime_type)]}
    alone = len(result.blocks) == 1
    return {"contents": [_of_block(block, contract.mime_type, uri, alone=alone) for block in result.blocks]}


def _of_block(block: JsonObject, mime_type: str | None, uri: str, *, alone: bool) -> JsonObject:
    if block["type"] == "text":
        return _content({"uri": uri, "text": block["text"]}, mime_type)
    if block["type"] != "resource":
        return _content({"uri": uri, "blob": block["data"]}, mime_type or block["mimeType"])
    held: JsonObject = block["resource"]
    own: str | None = held.get("mimeType")
    if own is None or (mime_type is not None and own in _GENERIC):
        own = mime_type
    if alone or held["uri"].startswith(_MADE_UP):
        held = {**held, "uri": uri}
    return _content({name: each for name, each in held.items() if name != "mimeType"}, own)


def _content(held: JsonObject, mime_type: str | None) -> JsonObject:
    return held if mime_type is None else {"uri": held["uri"], "mimeType": mime_type, **held}


# Prompts


def _prompt(value: Any, _output: Output, render: Render | None) -> Result:
    """The messages of a prompt as JSON, and their text for terminals and logs."""
    value = _plain(value)
    description: Json = None
    if isinstance(value, dict) and "messages" in value:
        whole = cast("JsonObject", value)
        value, description = whole["messages"], whole.get("description")
    items = cast("list[Any]", value if isinstance(value, list) else [value])
    messages = [message for item in items for message in _messages(item, render)]
    if not messages or value is None:
        raise OutputError(
            "a prompt must return at least one message: a string, or a list of strings and (role, content)"
        )
    data: JsonObject = {"messages": messages}
    if isinstance(description, str):
        data["description"] = description
    texts = [message["content"]["text"] for message in messages if message["content"]["type"] == "text"]
    return Result(data, "\n\n".join(texts))


def _messages(item: Any, render: Render | None) -> list[JsonObject]:
    """The messages of one item. Several content blocks become several messages, because a message holds one block."""
    item = _plain(item)
    role: Any = "user"
    if isinstance(item, tuple) and len(cast("tuple[Any, ...]", item)) == 2 and isinstance(item[0], str):
        role, item = cast("tuple[Any, Any]", item)
    elif isinstance(item, dict) and cast("JsonObject", item).keys() == {"role", "content"}:
        role, item = cast("JsonObject", item)["role"], cast("JsonObject", item)["content"]
    if role not in _ROLES:
        raise OutputError(f"the role of a message is {role!r}; use {' or '.join(map(repr, _ROLES))}")
    result = normalize(_plain(item), render=render)
    blocks = [text_block(result.text)] if result.blocks is None else result.blocks
    return [{"role": role, "content": block} for block in blocks]


def _plain(value: Any) -> Any:
    """Convert a message or a result of an MCP library to a mapping."""
    fields: Any = getattr(cast("Any", type(value)), "model_fields", None)
    if isinstance(fields, dict) and ({"role", "content"} == {*fields} or "messages" in fields):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return value


def _shown_messages(result: Result, contract: Contract, _uri: str) -> JsonObject:
    data = cast("JsonObject", result.value)
    return {"description": contract.shown_description, **data}


# Completions


def _completion(value: Any, _output: Output, render: Render | None) -> Result:
    data = normalize(value, render=render).value
    if not isinstance(data, list) or not all(isinstance(each, (str, int, float)) for each in data):
        raise OutputError("a completion must return a list of strings")
    return Result([str(each) for each in data])


def _shown_values(result: Result, _contract: Contract, _uri: str) -> JsonObject:
    values = cast("list[str]", result.value)
    return {"completion": {"values": values[:MOST_VALUES], "total": len(values), "hasMore": len(values) > MOST_VALUES}}


NORMALIZERS: Final[Mapping[str, Normalizer]] = MappingProxyType(
    {RESOURCE: _resource, PROMPT: _prompt, COMPLETION: _completion}
)
"""The function that replaces `normalize` for a kind."""
SHOWN: Final[Mapping[str, Callable[[Result, Contract, str], JsonObject]]] = MappingProxyType(
    {RESOURCE: _contents, PROMPT: _shown_messages, COMPLETION: _shown_values}
)
"""By kind: the function that makes the payload of a result, given the URI. Profiles apply only to tools."""
