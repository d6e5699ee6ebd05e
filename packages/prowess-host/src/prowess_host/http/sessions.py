"""The sessions of clients with a handshake: bounded in number and in idle time, each with the streams it can resume."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from prowess_host.connection import Connection
from prowess_host.http.replies import History, Outlet, Reply, Standing

if TYPE_CHECKING:
    from prowess.contracts.contract import Contract
    from prowess.settings.credentials import Caller
    from prowess_host.http.headers import Accepted
    from prowess_host.project import Project
    from prowess_host.protocol.eras import Revision
    from prowess_host.protocol.identity import Server

__all__ = ["HttpSession", "Sessions", "TooManySessions"]

_MOST_STREAMS: Final = 100
"""Streams of a session that can be resumed; the oldest that is over goes first."""
_RETRY: Final = 1000
"""Milliseconds after which a client that lost a stream shall ask for the rest."""
_EVENT: Final = re.compile(r"([0-9]{1,15})-([0-9]{1,15})")
"""The id of an event: a stream, and a number in it."""
_PRIMED: Final = frozenset({"2025-11-25"})
"""Revisions whose clients understand an event without data. Those of others take it for a broken message."""


class TooManySessions(Exception):
    """The limit of open sessions is reached."""


class HttpSession:
    """One session: its connection, its streams, and who may use it."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        project: Project,
        server: Server,
        caller: Caller,
        allows: Callable[[Contract], bool],
        now: Callable[[], float],
        kept: int,
    ) -> None:
        self.id = secrets.token_urlsafe(24)
        self.caller = caller
        self.history = History(kept)
        self.standing = Standing(self.history, _RETRY)
        self.connection = Connection(project, server, self.standing, now, transport="tcp", allows=allows)
        self.seen = now()
        self._replies: dict[int, Reply] = {}

    @property
    def revision(self) -> Revision | None:
        """What its handshake settled on."""
        return self.connection.revision

    @property
    def in_use(self) -> bool:
        """Whether a call runs or a stream is open."""
        return self.connection.in_flight > 0 or self.standing.attached

    def reply(self, outlet: Outlet, accepted: Accepted) -> Reply:
        """The way back of a POST of this session."""
        primed = self.revision is None or self.revision.version in _PRIMED
        retry = _RETRY if primed else None
        reply = Reply(outlet, accepted, stateless=False, owner=self.caller, history=self.history, retry=retry)
        reply.owes = self.connection.owes
        return reply

    def keep(self, reply: Reply) -> None:
        """Keep the stream of a POST, so that its client can come back to it."""
        self._replies[reply.number] = reply
        if len(self._replies) > _MOST_STREAMS:
            oldest = next((number for number, each in self._replies.items() if each.over), None)
            if oldest is not None:
                del self._replies[oldest]
                self.history.forget(oldest)

    def resume(self, last_event: str, outlet: Outlet) -> bool:
        """Go on with the stream of an event, after it; `False` where nobody knows that event any more."""
        named = _EVENT.fullmatch(last_event)
        if named is None:
            return False
        stream, number = map(int, named.groups())
        if stream == self.standing.number:
            return self.standing.resume(outlet, number)
        reply = self._replies.get(stream)
        return reply is not None and reply.resume(outlet, number)

    def left(self, outlet: Outlet) -> None:
        """Nobody reads a response any more: what its stream still has to say is kept."""
        self.standing.detach(outlet)
        for reply in self._replies.values():
            reply.detach(outlet)

    def close(self) -> None:
        """End the session and its calls."""
        self.connection.close()
        self.standing.end()


class Sessions:
    """All sessions of a server."""

    def __init__(
        self, project: Project, server: Server, now: Callable[[], float], *, most: int, idle: float, kept: int
    ) -> None:
        self._project = project
        self._server = server
        self._now = now
        self._most = most
        self._idle = idle
        self._kept = kept
        self._open: dict[str, HttpSession] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, caller: Caller, allows: Callable[[Contract], bool]) -> HttpSession:
        """A new session; the one that was idle longest makes room for it. Raises `TooManySessions`."""
        self.sweep()
        if len(self._open) >= self._most:
            oldest = min((each for each in self._open.values() if not each.in_use), key=_seen, default=None)
            if oldest is None:
                raise TooManySessions
            self.end(oldest)
        session = HttpSession(self._project, self._server, caller, allows, self._now, self._kept)
        self._open[session.id] = session
        return session

    def find(self, session_id: str, caller: Caller) -> HttpSession | None:
        """The session with an id. To everybody but its own client it does not exist."""
        session = self._open.get(session_id)
        if session is None or session.caller != caller:
            return None
        session.seen = self._now()
        return session

    def end(self, session: HttpSession) -> None:
        """End a session."""
        self._open.pop(session.id, None)
        session.close()

    def sweep(self) -> None:
        """End the sessions that were idle for too long."""
        oldest = self._now() - self._idle
        for session in [each for each in self._open.values() if each.seen < oldest and not each.in_use]:
            self.end(session)

    def end_streams(self) -> None:
        """Let go of all who only listen: they would keep the server from leaving."""
        for session in self._open.values():
            session.standing.end()

    def close(self) -> None:
        """End all."""
        for session in list(self._open.values()):
            self.end(session)


def _seen(session: HttpSession) -> float:
    return session.seen
