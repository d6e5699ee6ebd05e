"""Open `subscriptions/listen` requests of the stateless era, and the notifications for each. Only the tool list can be subscribed to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from prowess_host.protocol.codec import ABSENT, dumps, encode_notification
from prowess_host.protocol.eras import SUBSCRIPTION_KEY
from prowess_host.protocol.rpc import RpcError

if TYPE_CHECKING:
    from prowess.jsontypes import JsonObject
    from prowess_host.protocol.codec import Absent, RequestId
    from prowess_host.protocol.eras import Revision

__all__ = ["MAX_SUBSCRIPTIONS", "Subscription", "Subscriptions"]

MAX_SUBSCRIPTIONS: Final = 100
"""Open at once on one connection. A client needs one, or one for each window it shows."""

_TOOLS: Final = "toolsListChanged"


class Subscription(NamedTuple):
    """One open request. Its id, type kept, tags all that is sent because of it."""

    id: RequestId
    revision: Revision
    tools: bool
    """Wants to hear of changed tools."""

    @property
    def meta(self) -> JsonObject:
        """The tag, as `_meta` of a notification."""
        return {SUBSCRIPTION_KEY: self.id}

    @property
    def tag(self) -> bytes:
        """The tag, as JSON bytes to be spliced into a result's `_meta`."""
        return dumps(self.meta)


class Subscriptions:
    """Those of one connection, in the order they were opened."""

    def __init__(self) -> None:
        self._open: dict[RequestId, Subscription] = {}

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._open

    def __len__(self) -> int:
        return len(self._open)

    def listen(self, request_id: RequestId, revision: Revision, wanted: JsonObject) -> bytes:
        """Open one and acknowledge the part of the filter that is honoured; the acknowledgment must go out first."""
        tools = wanted.get(_TOOLS)
        if tools is not None and type(tools) is not bool:
            raise RpcError.wrong_param(f"params.notifications.{_TOOLS}", "a boolean", tools)
        if len(self._open) >= MAX_SUBSCRIPTIONS:
            raise RpcError.invalid_request(f"{MAX_SUBSCRIPTIONS} subscriptions are open already; cancel one first")
        opened = self._open[request_id] = Subscription(request_id, revision, tools is True)
        honoured: JsonObject = {_TOOLS: True} if opened.tools else {}
        params = {"_meta": opened.meta, "notifications": honoured}
        return encode_notification("notifications/subscriptions/acknowledged", params)

    def drop(self, request_id: RequestId | Absent) -> None:
        """Forget one that the client has ended. It gets no response."""
        if request_id is not ABSENT:
            self._open.pop(request_id, None)

    def drain(self) -> list[Subscription]:
        """Forget all, and say which they were."""
        ended = list(self._open.values())
        self._open.clear()
        return ended

    def list_changed(self) -> list[bytes]:
        """One tagged notification for each that asked for it."""
        method = "notifications/tools/list_changed"
        return [encode_notification(method, {"_meta": each.meta}) for each in self._open.values() if each.tools]
