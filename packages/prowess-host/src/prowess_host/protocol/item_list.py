"""The results of list methods: definitions, reduced to the fields of each revision, and cut into pages."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Final

from prowess_host.protocol.codec import dumps
from prowess_host.protocol.cursors import read_cursor, write_cursor
from prowess_host.protocol.identity import join_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prowess.jsontypes import JsonObject
    from prowess_host.protocol.eras import Revision

__all__ = ["PAGE_SIZE", "ItemList", "render_plain"]

PAGE_SIZE: Final = 1000
"""Items of a page by default: many, because some clients never ask for a second page."""
_OF_LATER_REVISIONS: Final = frozenset({"title", "_meta", "icons"})
"""Fields that all definitions got at the same time as those of tools."""


def render_plain(definition: JsonObject, revision: Revision) -> JsonObject:
    """A definition with the fields of this revision."""
    unknown = _OF_LATER_REVISIONS - revision.tool_fields
    return {name: value for name, value in definition.items() if name not in unknown}


class ItemList:
    """The definitions of all items for each era, ordered by name, the same for every client.

    Pages are encoded once for each revision, because a list is read far more often than it changes.
    """

    def __init__(
        self,
        member: str,
        handshake: Iterable[JsonObject],
        stateless: Iterable[JsonObject],
        *,
        render: Callable[[JsonObject, Revision], JsonObject] = render_plain,
        optional: Iterable[JsonObject] = (),
        page_size: int = PAGE_SIZE,
    ) -> None:
        """`member` is the member of the result with the items. `optional` items are listed only if `page` asks for them."""
        self._member = member.encode()
        self._handshake = sorted(handshake, key=_name)
        self._stateless = sorted(stateless, key=_name)
        self._optional = list(optional)
        self._render = render
        self._page_size = page_size
        self._rendered: dict[tuple[str, bool], list[bytes]] = {}

    def __len__(self) -> int:
        return len(self._stateless)

    @cached_property
    def digest(self) -> str:
        """A digest of everything that clients can see. The first answer does not need it."""
        whole = dumps([self._handshake, self._stateless], "a definition")
        return hashlib.sha256(whole).hexdigest()[:16]

    def page(self, cursor: str | None, revision: Revision, *, optional: bool = False) -> bytes:
        """The encoded result of the list method, before `dress`. Raises `RpcError` for an invalid cursor."""
        items = self._items(revision, optional=optional)
        start = read_cursor(cursor, self.digest, len(items)) if cursor else 0
        end = start + self._page_size
        body = b'{"%b":[%b]}' % (self._member, b",".join(items[start:end]))
        if end >= len(items):
            return body
        return join_objects(body, dumps({"nextCursor": write_cursor(end, self.digest)}))

    def _items(self, revision: Revision, *, optional: bool) -> list[bytes]:
        key = revision.version, optional
        items = self._rendered.get(key)
        if items is None:
            definitions = self._stateless if revision.stateless else self._handshake
            if optional:
                definitions = sorted([*definitions, *self._optional], key=_name)
            items = [dumps(self._render(each, revision), "a definition") for each in definitions]
            self._rendered[key] = items
        return items


def _name(definition: JsonObject) -> str:
    return definition["name"]
