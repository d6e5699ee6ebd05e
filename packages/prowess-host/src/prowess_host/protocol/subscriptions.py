"""Open `subscriptions/listen` requests of the stateless era, and the notifications for each. Lists and resources can be subscribed to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from prowess_host.protocol.codec import ABSENT, dumps, encode_notification
from prowess_host.protocol.eras import SUBSCRIPTION_KEY
from prowess_host.protocol.kinds import ROWS
from prowess_host.protocol.rpc import RpcError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prowess.jsontypes import JsonObject
    from prowess_host.protocol.codec import Absent, RequestId
    from prowess_host.protocol.eras import Revision
    from prowess_host.protocol.kinds import KindRow

__all__ = [
    "MAX_CHARACTERS",
    "MAX_RESOURCES",
    "MAX_SUBSCRIPTIONS",
    "RESOURCES",
    "UPDATED",
    "Subscription",
    "Subscriptions",
    "check_length",
    "read_uris",
]

UPDATED: Final = "notifications/resources/updated"

MAX_SUBSCRIPTIONS: Final = 100
"""Open subscriptions of one connection. A client needs one, or one for each window."""

MAX_RESOURCES: Final = 1000
"""Subscribed resources of one client: more than it shows, and few enough to cost little memory."""
MAX_CHARACTERS: Final = 256 * 1024
"""Characters of all these URIs."""
RESOURCES: Final = "resourceSubscriptions"


class Subscription(NamedTuple):
    """One open request. Its id, with its type, tags its notifications."""

    id: RequestId
    revision: Revision
    lists: frozenset[str]
    """The subscribed changes of lists, by their names in the filter."""
    resources: frozenset[str]
    """The URIs of the subscribed resources."""

    @property
    def meta(self) -> JsonObject:
        """The tag, as `_meta` of a notification."""
        return {SUBSCRIPTION_KEY: self.id}

    @property
    def tag(self) -> bytes:
        """The tag as JSON bytes, for the `_meta` of a result."""
        return dumps(self.meta)


class Subscriptions(dict["RequestId", Subscription]):
    """The subscriptions of one connection by the ids of their requests, oldest first."""

    def listen(self, request_id: RequestId, revision: Revision, notifications: JsonObject) -> bytes:
        """Open a subscription. Returns the acknowledgement of the accepted part of the filter, which must be sent first."""
        lists = [row.changed for row in ROWS if _flag(notifications, row.changed)]
        resources = read_uris(notifications.get(RESOURCES), f"params.notifications.{RESOURCES}")
        if len(self) >= MAX_SUBSCRIPTIONS:
            raise RpcError.invalid_request(f"{MAX_SUBSCRIPTIONS} subscriptions are open already; cancel one first")
        opened = Subscription(request_id, revision, frozenset(lists), frozenset(resources))
        self[request_id] = opened
        honoured: JsonObject = dict.fromkeys(lists, True)
        if resources:
            honoured[RESOURCES] = resources
        params = {"_meta": opened.meta, "notifications": honoured}
        return encode_notification("notifications/subscriptions/acknowledged", params)

    def drop(self, request_id: RequestId | Absent) -> None:
        """Remove a subscription that the client has ended. It gets no response."""
        if request_id is not ABSENT:
            self.pop(request_id, None)

    def drain(self) -> list[Subscription]:
        """Remove and return all subscriptions."""
        ended = list(self.values())
        self.clear()
        return ended

    def list_changed(self, rows: Iterable[KindRow]) -> list[bytes]:
        """One tagged notification for each subscription to these lists."""
        return [
            encode_notification(row.notification, {"_meta": each.meta})
            for row in rows
            for each in self.values()
            if row.changed in each.lists
        ]

    @property
    def resources(self) -> set[str]:
        """The URIs of all subscribed resources."""
        return {uri for each in self.values() for uri in each.resources}

    def resource_updated(self, uri: str) -> list[bytes]:
        """The same for a resource."""
        return [
            encode_notification(UPDATED, {"_meta": each.meta, "uri": uri})
            for each in self.values()
            if uri in each.resources
        ]


def read_uris(given: Any, path: str) -> list[str]:
    """The requested URIs, without duplicates."""
    uris = cast("list[Any]", given) if isinstance(given, list) else []
    if given is not None and (not isinstance(given, list) or any(type(uri) is not str for uri in uris)):
        raise RpcError.wrong_param(path, "a list of strings", given)
    if len(uris) > MAX_RESOURCES:
        raise RpcError.invalid_request(f"{path} has {len(uris)} URIs, more than {MAX_RESOURCES}")
    check_length(sum(map(len, uris)))
    return list(dict.fromkeys(uris))


def check_length(characters: int) -> None:
    """Refuse URIs that are too long in total, since they are kept while the client listens."""
    if characters > MAX_CHARACTERS:
        raise RpcError.invalid_request(f"the URIs have {characters} characters, more than {MAX_CHARACTERS}")


def _flag(notifications: JsonObject, name: str) -> bool:
    value = notifications.get(name)
    if value is not None and type(value) is not bool:
        raise RpcError.wrong_param(f"params.notifications.{name}", "a boolean", value)
    return value is True
