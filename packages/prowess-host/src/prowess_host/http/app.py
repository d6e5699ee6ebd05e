"""The application: a table of paths for one project. Handles requests from connections, independent of sockets and server.

MCP of both eras is at `/mcp`. A stateless request has its own `Connection`, a session has one for all of its requests.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prowess.settings.credentials import Caller
from prowess_host.connection import Connection
from prowess_host.http.access import InFlight, NotAllowed, busy, client_of, names_in
from prowess_host.http.api import Api
from prowess_host.http.binding import Handshake, RefusedRequest, Stateless, read_post, read_stream
from prowess_host.http.headers import Mirrored, mirrored_parameters
from prowess_host.http.messages import Exchange, Field
from prowess_host.http.metrics import METRICS_TYPE, Metrics
from prowess_host.http.replies import PendingResponse, PostReply
from prowess_host.http.sessions import HttpSession, Sessions, TooManySessions
from prowess_host.protocol.codec import ABSENT, Batch, Notification, RpcRequest, RpcResponse, read_item
from prowess_host.protocol.eras import HANDSHAKE
from prowess_host.protocol.rpc import RpcError

if TYPE_CHECKING:
    from prowess.jsontypes import JsonObject
    from prowess.settings.keys import ServeSettings
    from prowess_host.http.access import Access
    from prowess_host.http.binding import Decision
    from prowess_host.http.guard import Guard
    from prowess_host.http.headers import Headers
    from prowess_host.http.siblings import Siblings
    from prowess_host.project import Project
    from prowess_host.protocol.codec import Message
    from prowess_host.protocol.identity import Server

__all__ = ["MCP_PATH", "App"]

_log = logging.getLogger("prowess.host")
MCP_PATH: Final = "/mcp"
_RETRY_AFTER: Final = (b"retry-after", b"1")
_ANSWER: Final = 64 * 1024
"""Bytes of a client's answer that is read although the limit of requests is reached."""
_MAKES_ROOM: Final = frozenset({"tasks/update", "tasks/cancel"})
"""Requests that end other ones."""
_OLDEST: Final = HANDSHAKE["2025-03-26"]
"""The revision of a client without a session that sends no version, since the header came with a later one."""
_PARTING: Final = 1.0
"""Seconds for the last answers. Only a request that still arrives takes longer."""
_METHODS: Final = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS"})
"""Labels of metrics; their number is bounded."""
_ANYBODY: Final = Caller()
_CORS: Final = (
    (b"access-control-allow-methods", b"GET, POST, DELETE"),
    (b"access-control-max-age", b"600"),
)
_ALLOWED_HEADERS: Final = (
    "authorization, content-type, accept, last-event-id, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name"
)
_PARAMETERS: Final = re.compile(r"mcp-param-[a-z0-9!#$%&'*+.^_`|~-]+")
_EXPOSED: Final = (b"access-control-expose-headers", b"mcp-session-id, www-authenticate, retry-after")


class _Route(NamedTuple):
    """The handlers of a path by method. An open route needs no credentials."""

    name: str
    handlers: dict[str, Callable[[Exchange], Awaitable[None]]]


class App:
    """Serves one project. `documents` are served unchanged, without credentials."""

    def __init__(
        self,
        project: Project,
        server: Server,
        own: ServeSettings,
        *,
        access: Access,
        guard: Guard,
        documents: dict[str, JsonObject] | None = None,
        siblings: Siblings | None = None,
    ) -> None:
        self._project = project
        self._server = server
        self._own = own
        self._access = access
        self._guard = guard
        self._now = asyncio.get_running_loop().time
        self.sessions = Sessions(
            project,
            server,
            self._now,
            most=own.max_sessions,
            most_of_one=own.max_client_sessions,
            idle=own.session_idle,
            kept=own.kept_events,
        )
        self.metrics = Metrics()
        self._siblings = siblings
        """The other processes that serve on the same socket."""
        self.leaving = False
        self._calls = InFlight(own.max_calls, own.max_client_calls)
        self._streams = InFlight(own.max_sessions, own.max_client_sessions, "streams are open")
        """Streams that end with their clients, counted apart from calls."""
        self._listening: set[Connection] = set()
        self._mirrors: dict[str, Mirrored] = {}
        self._mirrors_of = project.listing
        api = Api(project, access, own.max_body, self._calls)
        self._routes: dict[str, _Route] = {
            MCP_PATH: _Route("mcp", {"POST": self._mcp_post, "GET": self._mcp_get, "DELETE": self._mcp_delete}),
            "/healthz": _Route("healthz", {"GET": self._health}),
            "/readyz": _Route("readyz", {"GET": self._ready}),
            "/metrics": _Route("metrics", {"GET": self._metrics}),
            **{path: _Route(name, dict(handlers)) for path, name, handlers in api.routes()},
        }
        for path, document in (documents or {}).items():
            self._routes[path] = _Route("document", {"GET": partial(_send_document, document)})
        self._prefixes = tuple((path, _Route(name, dict(handlers))) for path, name, handlers in api.prefixes())
        self._sweeping: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """Requests whose handlers run as tasks, because they wait for something."""

    # The life of the application

    def start(self) -> None:
        """Start to end idle sessions, and to share with other processes."""
        if self._siblings is not None:
            self.metrics.add(self._siblings.before())
            self._siblings.start(self._project.receive_news, self._counted)
            if self._project.sharing is None:
                self._project.broadcast = self._siblings.broadcast
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.sessions.often)
            self.sessions.sweep()

    def leave(self) -> None:
        """End streams that never end by themselves. Calls continue."""
        self.leaving = True
        self.sessions.end_streams()
        for connection in list(self._listening):
            connection.close()

    async def close(self) -> None:
        """End all sessions, and send the last answers: those of a closed project."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        self.sessions.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_PARTING)
        for task in self._tasks:
            task.cancel()

    # The entrance

    def serve(self, exchange: Exchange) -> None:
        """Serve one request once its head has arrived. If the body has arrived too, as usual, an MCP call needs no task."""
        route = self._routes.get(exchange.path) or self._by_prefix(exchange.path)
        exchange.when_over(partial(self._note, exchange, route, self._now()))
        try:
            handler = self._handler(exchange, route)
            if handler is None:
                return
            if handler == self._mcp_post and exchange.is_whole and self._access.is_open:
                client = client_of(None, exchange.address)
                if not self._calls.is_full(client):
                    self._post_at_once(exchange, client)
                    return
        except Exception as error:  # noqa: BLE001 - see `_fail`
            self._fail(exchange, error)
            return
        task = asyncio.get_running_loop().create_task(self._run(handler, exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, handler: Callable[[Exchange], Awaitable[None]], exchange: Exchange) -> None:
        try:
            await handler(exchange)
        except Exception as error:  # noqa: BLE001 - see `_fail`
            self._fail(exchange, error)
        finally:  # also when the server stops
            if not exchange.is_answered:
                exchange.abandon()

    def _fail(self, exchange: Exchange, error: Exception) -> None:
        """Answer a request that failed by a fault of ours."""
        if isinstance(error, NotAllowed):
            exchange.refuse(error.refusal)
        elif not isinstance(error, ConnectionError):
            route = self._routes.get(exchange.path) or self._by_prefix(exchange.path)
            name = route.name if route else "an unknown path"
            _log.error("%s %s could not be served", exchange.method, name, exc_info=error)
            exchange.abandon()

    def _note(self, exchange: Exchange, route: _Route | None, began: float) -> None:
        name, method = route.name if route else "unknown", exchange.method
        self.metrics.note(name, method if method in _METHODS else "other", exchange.status, self._now() - began)

    def _by_prefix(self, path: str) -> _Route | None:
        return next((route for prefix, route in self._prefixes if path.startswith(prefix)), None)

    def _handler(self, exchange: Exchange, route: _Route | None) -> Callable[[Exchange], Awaitable[None]] | None:
        """The handler for a request; `None` if it is answered already."""
        headers, method = exchange.headers, exchange.method
        refused = self._guard.refusal(headers)
        if refused is not None:
            exchange.refuse(refused)
            return None
        origin = headers.get("origin")
        if origin is not None:
            exchange.fields += [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"vary", b"origin"),
                _EXPOSED,
            ]
        if route is None:
            exchange.json(404, {"error": f"there is nothing at this path; MCP is at {MCP_PATH}"})
            return None
        if method == "OPTIONS" and origin is not None and "access-control-request-method" in headers:
            exchange.answer(204, b"", *_CORS, _allowed_headers(headers))
            return None
        handler = route.handlers.get("GET" if method == "HEAD" else method)
        if handler is None or (method == "HEAD" and route.name == "mcp"):
            exchange.answer(405, b"", (b"allow", ", ".join(route.handlers).encode()))
            return None
        return handler

    # MCP

    async def _mcp_post(self, exchange: Exchange) -> None:
        caller = await self._access.admit(exchange.headers)
        client = client_of(caller, exchange.address)
        if self._calls.is_full(client):
            await self._take_answer(exchange, caller, client)
            return
        with self._calls.one(client):
            body = await exchange.body(self._own.max_body)
            decision = body if isinstance(body, RefusedRequest) else read_post(exchange.headers, body, self._mirrored)
            if not isinstance(decision, RefusedRequest):
                await self._require_scopes(caller, decision.message)
        self._act(exchange, decision, caller, client)

    def _post_at_once(self, exchange: Exchange, client: Hashable) -> None:
        """Serve a POST whose body has arrived, on a server without credentials."""
        body = exchange.taken(self._own.max_body)
        if body is not None:
            decision = body if isinstance(body, RefusedRequest) else read_post(exchange.headers, body, self._mirrored)
            self._act(exchange, decision, _ANYBODY, client)

    def _act(self, exchange: Exchange, decision: Decision, caller: Caller, client: Hashable) -> None:
        if isinstance(decision, RefusedRequest):
            exchange.refuse(decision)
        elif isinstance(decision, Stateless):
            self._serve_stateless(exchange, decision, caller, client)
        else:
            self._serve_handshake(exchange, decision, caller, client)

    async def _take_answer(self, exchange: Exchange, caller: Caller, client: Hashable) -> None:
        """Handle an answer or a cancellation at the limit of requests, since it ends other requests."""
        body = await exchange.body(min(self._own.max_body, _ANSWER))
        decision = body if isinstance(body, RefusedRequest) else read_post(exchange.headers, body, self._mirrored)
        if isinstance(decision, Handshake) and isinstance(decision.message, (Notification, RpcResponse)):
            self._serve_handshake(exchange, decision, caller, client)
        elif isinstance(decision, Stateless) and decision.message.method in _MAKES_ROOM:
            self._serve_stateless(exchange, decision, caller, client)
        else:
            self._calls.refuse(client)

    async def _require_scopes(self, caller: Caller, message: Message) -> None:
        """Refuse a request without the needed scopes. Waits until the names in the request are known."""
        if caller.scopes is None:
            return
        if not self._project.listing.complete:
            await self._project.contract_of("")
        messages = map(read_item, message.items) if isinstance(message, Batch) else (message,)
        requests = [each for each in messages if isinstance(each, RpcRequest)]
        named = (name for each in requests for name in names_in(each, self._project.listing))
        self._access.require(caller, named)

    def _serve_stateless(self, exchange: Exchange, decision: Stateless, caller: Caller, client: Hashable) -> None:
        message = decision.message
        if isinstance(message, Notification):
            exchange.answer(202)
            return
        if exchange.gone:  # while its token was checked, or the commands were loaded
            return
        outlet = PendingResponse()
        reply = PostReply(outlet, decision.accepted, stateless=True, owner=caller)
        pages = self._project.pages.of(caller) if self._project.own.max_result else None
        listens = message.method == "subscriptions/listen"
        self._count(exchange, client, self._streams if listens else self._calls)  # a stream ends with its client
        connection = self._connection(reply, pages=pages, peer=client)
        if listens:
            self._listening.add(connection)
            exchange.when_over(partial(self._listening.discard, connection))
        exchange.when_over(connection.close)
        connection.take(message)
        exchange.stream(outlet, silent=reply.stream)

    def _connection(self, reply: PostReply, **how: Any) -> Connection:
        """A connection for one request."""
        allows = self._access.allows
        connection = Connection(self._project, self._server, reply, self._now, transport="tcp", allows=allows, **how)
        reply.owes = connection.owes
        return connection

    def _count(self, exchange: Exchange, client: Hashable, among: InFlight) -> None:
        """Count a request while it is served. Raises `NotAllowed` at the limit."""
        if among is self._streams:
            among.enter(client)
        else:
            among.stay(client)
        exchange.when_over(partial(among.leave, client))

    def _serve_handshake(self, exchange: Exchange, decision: Handshake, caller: Caller, client: Hashable) -> None:
        if not self._own.sessions:
            self._serve_without_session(exchange, decision, caller, client)
        elif decision.opens:
            self._open_session(exchange, decision, caller, client)
        elif decision.session is None:
            exchange.refuse(RefusedRequest(400, _no_session(), _id_of(decision.message)))
        else:
            session = self.sessions.find(decision.session, caller)
            if session is None:
                exchange.refuse(RefusedRequest(404, _unknown_session(), _id_of(decision.message)))
            else:
                self._serve_in_session(exchange, decision, session, caller)

    def _serve_without_session(self, exchange: Exchange, decision: Handshake, caller: Caller, client: Hashable) -> None:
        """Serve a client with a handshake without state between requests, so that any replica may get them."""
        if exchange.gone:  # as above
            return
        outlet = PendingResponse()
        reply = PostReply(outlet, decision.accepted, stateless=False, owner=caller)
        revision = None if decision.opens else decision.revision or _OLDEST
        connection = self._connection(reply, revision=revision, pages=self._project.pages.of(caller), peer=client)
        self._count(exchange, client, self._calls)
        exchange.when_over(connection.close)
        connection.take(decision.message)
        if reply.started or connection.owes(reply):
            exchange.stream(outlet, silent=reply.stream)
        else:
            exchange.answer(202)

    def _open_session(self, exchange: Exchange, decision: Handshake, caller: Caller, client: Hashable) -> None:
        try:
            session = self.sessions.open(caller, client, self._access.allows)
        except TooManySessions as error:
            exchange.refuse(busy(str(error), 429 if error.own else 503))
            return
        outlet = PendingResponse()
        session.connection.take(decision.message, session.reply(outlet, decision.accepted, caller))
        if session.revision is None:
            self.sessions.end(session)
        else:
            exchange.fields.append((b"mcp-session-id", session.id.encode()))
        exchange.stream(outlet)

    def _serve_in_session(self, exchange: Exchange, decision: Handshake, session: HttpSession, caller: Caller) -> None:
        outlet = PendingResponse()
        reply = session.reply(outlet, decision.accepted, caller)
        session.connection.take(decision.message, reply)
        if not reply.started and not session.connection.owes(reply):
            exchange.answer(202)
            return
        calls = max(session.connection.count_owed(reply), 1) if isinstance(decision.message, Batch) else 1
        self._calls.stay(session.client, calls)
        exchange.when_over(partial(self._leave_session, session, outlet, reply, calls))
        most = self._own.poll if reply.is_primed else 0.0
        exchange.stream(outlet, silent=reply.stream, began=partial(session.keep, reply), most=most)

    def _leave_session(self, session: HttpSession, outlet: PendingResponse, reply: PostReply, calls: int) -> None:
        """Handle the end of a response in a session. Its call is not cancelled if the client left, and counts until its end."""
        leave = partial(self._calls.leave, session.client, calls)
        if session.connection.owes(reply):
            reply.when_over = leave
        else:
            leave()
        reply.detach(outlet)
        self._leave_stream(session, outlet)

    def _leave_stream(self, session: HttpSession, outlet: PendingResponse) -> None:
        session.disconnected(outlet)
        session.seen = self._now()

    async def _mcp_get(self, exchange: Exchange) -> None:
        session = await self._session_of(exchange)
        if session is None:
            return
        outlet = PendingResponse()
        last = exchange.headers.get("last-event-id")
        self._count(exchange, session.client, self._streams)
        if last is None:
            if not session.standing.attach(outlet):
                session.connection.changes_missed()
        elif not session.resume(last, outlet):
            reason = "Last-Event-ID: no event with this id is kept; send the request again"
            exchange.refuse(RefusedRequest(400, RpcError.invalid_request(reason)))
            return
        exchange.when_over(partial(self._leave_stream, session, outlet))
        exchange.stream(outlet, most=self._own.poll)

    async def _mcp_delete(self, exchange: Exchange) -> None:
        session = await self._session_of(exchange)
        if session is not None:
            self.sessions.end(session)
            exchange.answer(204)

    async def _session_of(self, exchange: Exchange) -> HttpSession | None:
        """The session of a GET or a DELETE; `None` if the request was refused."""
        caller = await self._access.admit(exchange.headers)
        refused = read_stream(exchange.method, exchange.headers)
        if refused is None and not self._own.sessions:
            refused = RefusedRequest(405, headers=((b"allow", b"POST"),))
        if refused is None:
            session = self.sessions.find(exchange.headers.get("mcp-session-id") or "", caller)
            if session is not None:
                return session
            refused = RefusedRequest(404, _unknown_session())
        exchange.refuse(refused)
        return None

    def _mirrored(self, name: str) -> Mirrored:
        """The parameters of a tool that headers repeat, read once for each listing."""
        listing = self._project.listing
        if listing is not self._mirrors_of:
            self._mirrors_of, self._mirrors = listing, {}
        found = self._mirrors.get(name)
        if found is None:
            contract = listing[name]
            view = listing.views.get(contract.id) if contract is not None and contract.is_tool else None
            if view is None:
                return {}
            found = self._mirrors[name] = mirrored_parameters(view.input_schema)
        return found

    # The state of the server

    async def _health(self, exchange: Exchange) -> None:
        exchange.json(200, {"status": "ok"})

    async def _ready(self, exchange: Exchange) -> None:
        if self.leaving or not self._project.listing.complete:
            self._project.warm_up()
            status = "leaving" if self.leaving else "starting"
            exchange.json(503, {"status": status}, _RETRY_AFTER)
            return
        sharing = self._project.sharing
        exchange.json(200, {"status": "ok", **(sharing.state() if sharing is not None else {})})

    def _now_served(self) -> dict[str, float]:
        served = {"sessions": len(self.sessions), "requests": self._calls.number, "subscriptions": len(self._listening)}
        return {name: float(number) for name, number in served.items()}

    def _counted(self) -> JsonObject:
        """What this process has counted, for the others."""
        return {**self.metrics.counted(), "now": self._now_served()}

    async def _metrics(self, exchange: Exchange) -> None:
        await self._access.admit(exchange.headers)
        catalog = self._project.listing.catalog
        metrics, now = self.metrics, self._now_served()
        if self._siblings is not None:
            metrics, now = Metrics(), dict.fromkeys(now, 0.0)
            for counted in self._siblings.counts():
                metrics.add(counted)
                now = {name: number + counted.get("now", {}).get(name, 0.0) for name, number in now.items()}
        gauges = {
            "prowess_sessions": ("Sessions of clients with a handshake.", now["sessions"]),
            "prowess_requests_in_flight": ("Requests that are served now.", now["requests"]),
            "prowess_subscriptions": ("Streams of subscriptions/listen.", now["subscriptions"]),
            "prowess_commands": ("Commands that can be called.", float(len(catalog.contracts))),
            "prowess_failures": ("Skills and commands that could not be loaded.", float(len(catalog.failures))),
        }
        if (sharing := self._project.sharing) is not None:
            up, found, missed = sharing.engine.up, sharing.results.hits, sharing.results.misses
            gauges["prowess_engine_up"] = ("Whether the engine of the cluster can be reached.", float(up))
            waits = float(sharing.results.waiting)
            gauges["prowess_shared_results_waiting"] = ("Results that another host works on.", waits)
            gauges["prowess_shared_results_found"] = ("Results that came from other hosts.", float(found))
            gauges["prowess_shared_results_missed"] = ("Results that no other host had.", float(missed))
        exchange.answer(200, metrics.text(gauges), (b"content-type", METRICS_TYPE))


async def _send_document(document: JsonObject, exchange: Exchange) -> None:
    exchange.json(200, document)


def _allowed_headers(headers: Headers) -> Field:
    """The headers that a page may send, including those that repeat arguments."""
    requested = (headers.get("access-control-request-headers") or "").lower()
    parameters = [name for each in requested.split(",") if _PARAMETERS.fullmatch(name := each.strip())]
    return b"access-control-allow-headers", ", ".join([_ALLOWED_HEADERS, *parameters]).encode()


def _no_session() -> RpcError:
    return RpcError.invalid_request("Mcp-Session-Id is required; send initialize to get one")


def _unknown_session() -> RpcError:
    return RpcError.invalid_request("the session is unknown or has ended; send initialize to begin a new one")


def _id_of(message: Message) -> Any:
    return message.id if isinstance(message, RpcRequest) else ABSENT
