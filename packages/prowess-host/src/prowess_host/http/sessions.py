"""The sessions of clients with a handshake, limited in number and idle time, each with its resumable streams."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Hashable
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from prowess_host.connection import Connection
from prowess_host.http.replies import History, PendingResponse, PostReply, SessionStream

if TYPE_CHECKING:
    from prowess.settings.credentials import Caller
    from prowess_host.http.headers import AcceptedTypes
    from prowess_host.project import Project
    from prowess_host.protocol.eras import Revision
    from prowess_host.protocol.identity import Server

__all__ = ["HttpSession", "Sessions", "TooManySessions"]

_MOST_STREAMS: Final = 100
"""Resumable streams of a session. The oldest finished one is dropped first."""
_FULL_HISTORIES: Final = 32
"""Sessions with the full limit for events. If there are more, they share the limit of this many."""
_LEAST_KEPT: Final = 16 * 1024
_SWEEP: Final = 30.0
_RETRY: Final = 1000
"""Milliseconds after which a client that lost a stream should reconnect."""
_EVENT: Final = re.compile(r"([0-9]{1,15})-([0-9]{1,15})")
"""The id of an event: a stream, and a number in it."""
_PRIMED: Final = frozenset({"2025-11-25"})
"""Revisions whose clients accept an event without data. Other clients treat it as a broken message."""


class TooManySessions(Exception):
    """The limit of open sessions is reached: the common one, or the client's `own`."""

    def __init__(self, number: int, *, own: bool) -> None:
        super().__init__(f"{number} sessions are open{' for you' if own else ''}")
        self.own = own


class HttpSession:
    """One session: its connection, its streams and its caller."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        project: Project,
        server: Server,
        caller: Caller,
        client: Hashable,
        allows: Callable[..., bool],
        now: Callable[[], float],
        kept: int,
    ) -> None:
        self.id = secrets.token_urlsafe(24)
        self.caller = caller
        self.client = client
        """The client that it counts for."""
        self.history = History(kept)
        self.standing = SessionStream(self.history, _RETRY)
        self.connection = Connection(project, server, self.standing, now, transport="tcp", allows=allows, peer=client)
        self.seen = now()
        self._replies: dict[int, PostReply] = {}

    @property
    def revision(self) -> Revision | None:
        """The result of its handshake."""
        return self.connection.revision

    @property
    def in_use(self) -> bool:
        """Whether a call runs or a stream is open."""
        return self.connection.in_flight > 0 or self.standing.attached

    def reply(self, outlet: PendingResponse, accepted: AcceptedTypes, caller: Caller) -> PostReply:
        """The reply for a POST of this session. The scopes of its token may differ from those of earlier ones."""
        primed = self.revision is None or self.revision.version in _PRIMED
        retry = _RETRY if primed else None
        reply = PostReply(outlet, accepted, stateless=False, owner=caller, history=self.history, retry=retry)
        reply.owes = self.connection.owes
        return reply

    def keep(self, reply: PostReply) -> None:
        """Keep the stream of a POST, so that its client can resume it."""
        self._replies[reply.number] = reply
        if len(self._replies) > _MOST_STREAMS:
            oldest = next((number for number, each in self._replies.items() if each.over), None)
            if oldest is not None:
                del self._replies[oldest]
                self.history.forget(oldest)

    def resume(self, last_event: str, outlet: PendingResponse) -> bool:
        """Resume the stream of an event after it. Returns `False` if the event is no longer known."""
        named = _EVENT.fullmatch(last_event)
        if named is None:
            return False
        stream, number = map(int, named.groups())
        if stream == self.standing.number:
            return self.standing.resume(outlet, number)
        reply = self._replies.get(stream)
        return reply is not None and reply.resume(outlet, number)

    def disconnected(self, outlet: PendingResponse) -> None:
        """Called when the client of a response has disconnected: keep further events of its stream."""
        self.standing.detach(outlet)
        for reply in self._replies.values():
            reply.detach(outlet)

    def close(self, why: str) -> None:
        """End the session and its calls."""
        self.connection.close(why)
        self.standing.end()


class Sessions:
    """All sessions of a server."""

    def __init__(
        self,
        project: Project,
        server: Server,
        now: Callable[[], float],
        *,
        most: int,
        most_of_one: int,
        idle: float,
        kept: int,
    ) -> None:
        self._project = project
        self._server = server
        self._now = now
        self._most = most
        self._most_of_one = most_of_one
        self._idle = idle
        self._kept = kept
        self.often = min(_SWEEP, idle)
        """Seconds between two sweeps at most."""
        self._swept = now()
        self._open: dict[str, HttpSession] = {}
        self._of: dict[Hashable, dict[str, HttpSession]] = {}
        """The sessions of each client."""

    def __len__(self) -> int:
        return len(self._open)

    def open(self, caller: Caller, client: Hashable, allows: Callable[..., bool]) -> HttpSession:
        """Open a session. At the limit, the client with the most sessions loses the one that was idle longest.

        Raises `TooManySessions`.
        """
        self.sweep()
        own = self._of.get(client, {})
        if len(own) >= self._most_of_one:
            self._make_room([own], TooManySessions(len(own), own=True))
        elif len(self._open) >= self._most:
            others = [each for each in self._of.values() if len(each) > len(own)]
            self._make_room([own, *others], TooManySessions(len(self._open), own=False))
        session = HttpSession(self._project, self._server, caller, client, allows, self._now, self._kept)
        self._open[session.id] = self._of.setdefault(client, {})[session.id] = session
        self._share_room()
        return session

    def _make_room(self, groups: list[dict[str, HttpSession]], otherwise: TooManySessions) -> None:
        idle = [(-len(group), each.seen, each) for group in groups for each in group.values() if not each.in_use]
        if not idle:
            raise otherwise
        self.end(min(idle, key=itemgetter(0, 1))[2])

    def _share_room(self) -> None:
        """Divide the common limit for events among the sessions."""
        if len(self._open) > _FULL_HISTORIES:
            share = max(self._kept * _FULL_HISTORIES // len(self._open), min(self._kept, _LEAST_KEPT))
            for session in self._open.values():
                session.history.limit(share)

    def find(self, session_id: str, caller: Caller) -> HttpSession | None:
        """The session with an id. Only its own client can find it."""
        session = self._open.get(session_id)
        if session is None or session.caller != caller:
            return None
        session.seen = self._now()
        return session

    def end(self, session: HttpSession, why: str = "the session has ended") -> None:
        """End a session. Its open requests are answered with the reason."""
        if self._open.pop(session.id, None) is not None:
            own = self._of[session.client]
            del own[session.id]
            if not own:
                del self._of[session.client]
        session.close(why)

    def sweep(self) -> None:
        """End the sessions that have been idle for too long. The time in which this process stood still does not count."""
        now = self._now()
        stood, self._swept = now - self._swept - self.often, now
        if stood > 0:
            for session in self._open.values():
                session.seen = min(session.seen + stood, now)
        oldest = now - self._idle
        for session in [each for each in self._open.values() if each.seen < oldest and not each.in_use]:
            self.end(session)

    def end_streams(self) -> None:
        """End the streams without a request, which would keep the server from stopping."""
        for session in self._open.values():
            session.standing.end()

    def close(self) -> None:
        """End all sessions."""
        for session in list(self._open.values()):
            self.end(session, "the host is shutting down")
