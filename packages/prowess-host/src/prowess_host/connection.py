"""One client of a project: its session, its calls in flight, and the notifications it gets.

The transport only has to write lines. Over HTTP, each request brings its own transport for the response: the messages that
belong to the request go there, and everything else to the client's transport.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from prowess.contracts.contract import TOOL
from prowess.contracts.kinds import RESOURCE
from prowess.errors import InputError, did_you_mean
from prowess.jsontypes import encodable
from prowess.results.paging import META_CUT, READ_MORE, notice
from prowess_host.catalog.listing import DIAGNOSTICS
from prowess_host.long_results import CLIENT_LIMITS, Pages, ResultPage, UnknownCursor
from prowess_host.protocol.codec import decode, dumps
from prowess_host.protocol.eras import ClientInfo
from prowess_host.protocol.kinds import BY_METHOD, LISTS, ROWS, SKILLS, SKILLS_METHODS
from prowess_host.protocol.methods import TASK_METHODS
from prowess_host.protocol.numbers import number_problems
from prowess_host.protocol.routing import Action, Answered, Cancelled, Group, Reply, route
from prowess_host.protocol.rpc import EncodeError, RpcError
from prowess_host.protocol.session import RequestInFlight, Session
from prowess_host.served_calls import (
    ServedCall,
    ServedTarget,
    answer_about_skills,
    complete,
    find,
    find_file,
    read_served_file,
    unknown,
)
from prowess_host.tool_calls import UNLIMITED, Limit, ToolCall

if TYPE_CHECKING:
    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject
    from prowess_host.catalog.listing import Listing
    from prowess_host.cluster.sharing import ClusterSharing
    from prowess_host.files.served_files import ServedFile
    from prowess_host.project import Project
    from prowess_host.protocol.codec import Message
    from prowess_host.protocol.eras import Revision
    from prowess_host.protocol.identity import Server
    from prowess_host.protocol.kinds import KindRow
    from prowess_host.protocol.lines import Oversized
    from prowess_host.tasks import Task
    from prowess_host.transports.transport import Transport
    from prowess_host.workers.jobs import Job

__all__ = ["Connection"]

T = TypeVar("T", bound=ToolCall)

_log = logging.getLogger("prowess.host")
_LIMIT_KEY: Final = "anthropic/maxResultSizeChars"
"""The key in a command's `meta` with which its author asks clients to accept larger results."""
_WRONG: Final = b'{"prowess/kind":"input"}'
_LATER: Final = 0.5
"""Seconds between two attempts to tell a client that does not read of changes."""
_MOST_NOTICES: Final = 1024 * 1024
"""Bytes that may wait for a client before progress and logs are dropped. Answers are never dropped."""


class Connection:
    """Serves one client. Pass each line to `receive`, and call `close` when the client has left."""

    def __init__(
        self,
        project: Project,
        server: Server,
        out: Transport,
        now: Callable[[], float],
        *,
        transport: str = "pipe",
        revision: Revision | None = None,
        pages: Pages | None = None,
        allows: Callable[..., bool] | None = None,
        peer: Hashable = None,
    ) -> None:
        """`transport` is the kind of transport for traces, as OpenTelemetry names it: `pipe` or `tcp`.

        `revision` is the one that a client without a session has negotiated with another process. `pages` has its long
        results, if they outlive the connection. `allows` says whether the owner of a transport may use a contract. It is
        asked when the name is looked up, because the catalog can change while a request waits. `peer` is the client, if
        it may have several connections.
        """
        self._peer = peer
        self._is_session = revision is None
        """Whether a handshake opens a session here: several clients of one address or caller then count apart."""
        self._allows = allows
        self._project = project
        self._session = Session(server, lambda: project.kinds, transport=transport, offers_tasks=project.offers_tasks)
        if revision is not None:
            self._session.handshake(revision, ClientInfo({}, {}))
        self._out = out
        self._now = now
        self._waiting: list[RequestInFlight] = []
        """Calls that wait for the listing or for their command."""
        self._jobs: dict[RequestInFlight, tuple[ToolCall, Job]] = {}
        self._closed = False
        self._late: dict[str, Callable[[], list[bytes]]] = {}
        """Changes whose notifications were not sent yet: kinds of lists, and URIs."""
        self._reading: set[asyncio.Task[None]] = set()
        """Responses that threads are preparing."""
        project.connect(self)
        self._own_pages: Pages | None = None
        """Its long results, dropped when it is closed; `None` before the first one, and if `pages` was given."""
        self._kept_elsewhere = pages

    @property
    def revision(self) -> Revision | None:
        """The result of the handshake; `None` before it."""
        return self._session.revision

    @property
    def in_flight(self) -> int:
        """The number of requests without an answer."""
        return len(self._session.in_flight)

    @property
    def running(self) -> int:
        """The number of calls in workers."""
        return len(self._jobs)

    @property
    def unbegun(self) -> int:
        """The number of requests that wait for a description, for a worker or for an import."""
        workers = self._project.workers
        return len(self._waiting) + sum(workers.is_unbegun(job) for _, job in self._jobs.values())

    # Input

    def receive(self, line: bytes | Oversized) -> None:
        """Serve one line, or the marker for a line that was too long."""
        if not self._closed:
            self._take(decode(line), self._out)

    def take(self, message: Message, back: Transport | None = None) -> None:
        """Serve a parsed message. Its answer goes to `back`, by default to the client's transport."""
        if not self._closed:
            self._take(message, back or self._out)

    def _take(self, message: Message, back: Transport) -> None:
        try:
            self._act(route(message, self._session, self._now()), back)
        except Exception:  # noqa: BLE001 - a fault of ours costs one message, never the ones after it
            _log.exception("a message could not be served")

    def owes(self, back: Transport) -> bool:
        """Whether a request with this transport is still open."""
        if back is self._out and self._session.subscriptions:
            return True
        return any(call.back is back for call in self._session.in_flight.values())

    def count_owed(self, back: Transport) -> int:
        """The number of open requests with this transport."""
        return sum(call.back is back for call in self._session.in_flight.values())

    def _act(self, action: Action, back: Transport) -> None:
        if isinstance(action, RequestInFlight):
            action.back = back
            self._serve(action)
        elif isinstance(action, Reply):
            back.write(action.line)
        elif isinstance(action, Cancelled):
            self._cancel(action)
        elif isinstance(action, Answered):
            self._answered(action)
        elif isinstance(action, Group):
            for each in action.actions:  # set for all of them before the first is served
                if isinstance(each, RequestInFlight):
                    each.back = back
            for each in action.actions:
                self._act(each, back)

    def _serve(self, call: RequestInFlight) -> None:
        try:
            if call.method == "tools/call":
                self._call_tool(call, self._project.listing)
            else:
                self._answer(call)
        except RpcError as error:
            call.back.write(self._session.refuse(call, error))
        except EncodeError as error:
            if call.method == "tools/call":
                self._report_text(call, _invalid(call, error), is_error=True, meta=_WRONG)
            else:
                fault = RpcError.internal if call.method in LISTS else RpcError.invalid_request
                call.back.write(self._session.refuse(call, fault(str(error))))
        except Exception:  # noqa: BLE001 - as above, and the client gets an error
            _log.exception("%s could not be served", call.method)
            call.back.write(self._session.refuse(call, RpcError.internal("see the log of the host")))

    def _answer(self, call: RequestInFlight) -> None:
        """Answer a request, submit it to the workers, or keep it until its command is known."""
        listing, shelf, method = self._project.listing, self._project.shelf, call.method
        if method in TASK_METHODS:
            self._serve_task(call)
            return
        row = BY_METHOD.get(method)
        if (
            row is not None
            and row.kind != TOOL
            and (SKILLS if method in SKILLS_METHODS else row.kind) not in self._project.kinds
        ):
            raise RpcError.method_not_found(method, call.revision.version)
        if method == "resources/unsubscribe" and call.params["uri"] in self._session.resources:
            self._subscribe(call, call.params["uri"])  # even if the resource is gone
        elif row is not None and row.kind == RESOURCE and shelf.is_pending:
            self._waiting.append(call)
        elif method in SKILLS_METHODS:
            self._start(call, partial(answer_about_skills, call, shelf, partial(self._may_have, call)))
        elif method in LISTS:
            self._list(call, listing)
        elif row is not None and (file := find_file(call, listing, shelf)) is not None:
            self._serve_file(call, file)
        else:
            target = find(call, listing)
            if target is None and not listing.complete:
                self._waiting.append(call)
                return
            if target is None:
                raise unknown(call, listing)
            self._call_served(call, target)
        self._project.warm_up()

    def _serve_task(self, call: RequestInFlight) -> None:
        if not self._project.offers_tasks:
            raise RpcError.method_not_found(call.method, call.revision.version)
        host = self._project.elsewhere(call.params["taskId"])
        if host:
            self._project.tasks.require(call)
            self._finish_soon(call, self._ask_other(call, host))
        elif self._project.sharing is not None:
            self._finish_soon(call, self._settled(call, self._project.sharing))
        else:
            call.back.write(self._session.answer(call, self._project.tasks.serve(call, _owner(call))))

    async def _settled(self, call: RequestInFlight, sharing: ClusterSharing) -> bytes:
        """The state of a task, once other hosts would say the same of its end."""
        await sharing.handles.settle(call.params["taskId"])
        return self._project.tasks.serve(call, _owner(call))

    async def _ask_other(self, call: RequestInFlight, host: str) -> bytes:
        """The answer of the host that has a task."""
        task = call.params["taskId"]
        answer = await self._project.ask_other(host, {"method": call.method, "params": call.params}, _owner(call), task)
        if "error" in answer:
            raise RpcError(*answer["error"])
        if "body" in answer:
            return answer["body"].encode()
        body = await self._project.tasks.answer_for_gone(call.method, task, _owner(call))
        if body is None:
            raise RpcError.wrong_param("params.taskId", "the id of a task that is kept", task)
        return body

    def _list(self, call: RequestInFlight, listing: Listing) -> None:
        if not listing.complete:
            self._waiting.append(call)
            return
        optional = call.method == "tools/list" and bool(self._most(call))
        body = listing.lists[call.method].page(call.params.get("cursor"), call.revision, optional=optional)
        late = self._late.pop(BY_METHOD[call.method].kind, None)
        for line in late() if late is not None else ():  # a client hears of a change before it can see it
            self._out.write(line)
        call.back.write(self._session.answer(call, body))

    def _serve_file(self, call: RequestInFlight, file: ServedFile) -> None:
        """Read a file in the host, without a worker."""
        self._require(call, file.uri)
        if call.method == "resources/read":
            self._start(call, partial(read_served_file, call, self._project.shelf, file))
            return
        self._subscribe(call, file.uri)

    def _subscribe(self, call: RequestInFlight, uri: str) -> None:
        if call.method == "resources/subscribe":
            self._session.subscribe(uri)
        else:
            self._session.resources.pop(uri, None)
        call.back.write(self._session.answer(call, b"{}"))

    def _start(self, call: RequestInFlight, answer: Callable[[], bytes]) -> None:
        """Prepare a response in a thread, because disks can be slow."""
        self._finish_soon(call, asyncio.to_thread(answer))

    def _finish_soon(self, call: RequestInFlight, answer: Coroutine[Any, Any, bytes | tuple[bytes, bytes]]) -> None:
        task = asyncio.get_running_loop().create_task(self._finish(call, answer))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _finish(self, call: RequestInFlight, answer: Coroutine[Any, Any, bytes | tuple[bytes, bytes]]) -> None:
        try:
            result = await answer
            body, meta = result if isinstance(result, tuple) else (result, b"{}")
            line = self._session.answer(call, body, meta=meta)
        except RpcError as error:
            line = self._session.refuse(call, error)
        except Exception:  # noqa: BLE001 - the client gets an error
            _log.exception("%s could not be served", call.method)
            line = self._session.refuse(call, RpcError.internal("see the log of the host"))
        call.back.write(line)

    def _may_have(self, call: RequestInFlight, *named: str) -> bool:
        return self._allows is None or self._allows(_owner(call), *named)

    def _require(self, call: RequestInFlight, *named: str) -> None:
        if not self._may_have(call, *named):
            raise RpcError.invalid_request(f"{named[-1]} needs scopes that the caller does not have")

    def _call_served(self, call: RequestInFlight, target: ServedTarget) -> None:
        self._require(call, target.contract.id, *filter(None, (target.uri,)))
        if call.method in ("resources/subscribe", "resources/unsubscribe"):
            self._subscribe(call, target.uri)
        else:
            known = complete(target) if target.completes is not None else None
            if known is not None:
                call.back.write(self._session.answer(call, known))
                return
            call.params = {**call.params, "arguments": target.arguments}  # a sealed state is bound to these
            task = self._task(ServedCall, call, target.contract, UNLIMITED)
            task.target = target
            self._submit(call, task, target.contract)

    def _task(self, kind: type[T], call: RequestInFlight, contract: Contract, limit: Limit) -> T:
        project, owner = self._project, _owner(call)
        return kind(
            call,
            contract,
            self._session,
            project.workers,
            self._write,
            self._notify,
            project.sealing,
            limit,
            hears_all=project.hears_all,
            names_request=project.saved.own.otel.on,
            open_task=partial(self._open_task, call) if contract.kind == TOOL and project.offers_tasks else None,
            caller=str(owner or ""),
            scopes=getattr(owner, "partition", "") if contract.policies.cache_ttl else "",
            heads=project.heads,
        )

    def _open_task(
        self,
        call: RequestInFlight,
        revision: Revision,
        answer: Callable[[JsonObject], None],
        cancel: Callable[[], None],
    ) -> Task | None:
        """A task for a call. The first one imports the module of tasks."""
        return self._project.tasks.open(revision, answer, cancel, _owner(call), self._peer)

    def _submit(self, call: RequestInFlight, task: ToolCall, contract: Contract) -> None:
        project = self._project
        own, seconds = project.saved.own, contract.policies.timeout
        job = task.job(own.profile, seconds if seconds is not None else own.timeout)
        job.client = (_owner(call), id(self)) if self._peer is None else self._who(call)
        self._jobs[call] = (task, job)
        project.workers.submit(job)

    def _who(self, call: RequestInFlight) -> tuple[Hashable, ...]:
        """The caller and the client, if it may have several connections. Places are divided between them."""
        if self._is_session and call.client is self._session.client:
            return self._peer, id(self)
        return self._peer, str(call.client.info.get("name"))

    def _call_tool(self, call: RequestInFlight, listing: Listing) -> None:
        project, name = self._project, call.params["name"]
        contract = listing[name]
        if contract is None and (not listing.complete or project.prepares(name)):
            self._waiting.append(call)
            return
        if not project.is_warm:
            project.warm_up()
        if contract is not None and contract.kind == TOOL:
            if self._allows is not None:
                self._require(call, contract.id)
            self._submit(call, self._task(ToolCall, call, contract, self._limit(call, contract)), contract)
        elif name == READ_MORE and self._most(call):
            self._read_more(call)
        else:
            self._call_unknown(call, name)

    def _call_unknown(self, call: RequestInFlight, name: str) -> None:
        """Answer a call of the diagnostics tool, or of an unknown name, with the failures of the project."""
        listing = self._project.listing
        failures = listing.catalog.failures
        text = "\n".join(map(str, failures))
        if name == DIAGNOSTICS and (failures or not listing.catalog.contracts):
            self._report_text(call, text or self._project.where_it_looked())
        elif failures and not listing.catalog.contracts:
            why = f"{name} cannot be called, because no skill could be loaded:\n{text}"
            self._note_unknown(call, name, why)
            self._report_text(call, why, is_error=True)
        else:
            reasons = listing.catalog.reasons(name)
            why = (
                f". This could not be loaded: {'; '.join(reasons)}"
                if reasons
                else did_you_mean(name, (each for each, item in listing.names.items() if item.is_tool))
            )
            error = RpcError.unknown_tool(name, why)
            self._note_unknown(call, name, error.message)
            raise error

    def _note_unknown(self, call: RequestInFlight, name: str, why: str) -> None:
        self._project.note_unknown(name, why, str(call.client.info.get("name", "")))

    def _cancel(self, cancelled: Cancelled) -> None:
        cancelled.call.back.write(cancelled.line)
        held = self._jobs.pop(cancelled.call, None)
        if held is not None:
            self._project.workers.cancel(held[1])

    def _answered(self, answered: Answered) -> None:
        held = self._jobs.get(answered.call)
        if held is not None:
            task, job = held
            task.answered(job, answered.question, answered.result, answered.error)

    # Output

    def _write(self, call: RequestInFlight, line: bytes) -> None:
        """Write a message that belongs to a call."""
        more = len(self._jobs) > 1
        # Before it is written, since the transport may close this connection then.
        if self._session.in_flight.get(call.id) is not call:
            self._jobs.pop(call, None)
        call.back.write(line, more=more)

    def _notify(self, call: RequestInFlight, line: bytes) -> bool:
        """Write progress or a log, unless too many bytes wait. Returns whether it was written."""
        back: Transport = call.back
        has_room = back.backlog < _MOST_NOTICES
        if has_room:
            back.write(line)
        return has_room

    def _report_text(self, call: RequestInFlight, text: str, *, is_error: bool = False, meta: bytes = b"{}") -> None:
        body = dumps({"content": [{"type": "text", "text": encodable(text)}], "isError": is_error})
        call.back.write(self._session.answer(call, body, meta=meta))

    def show(self, before: Listing, after: Listing) -> None:
        """Serve the requests that waited for this listing. Notify the client if one of its lists has changed."""
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            if self._session.is_open(call):
                self._serve(call)
        self.lists_changed(after.changed(before))

    def lists_changed(self, rows: Iterable[KindRow]) -> None:
        """Notify the client of changed lists."""
        for row in rows:
            self._announce(row.kind, partial(self._session.list_changed, [row]))

    def resource_updated(self, uri: str) -> None:
        """Notify the client of a changed resource if it has subscribed."""
        self._announce(uri, partial(self._session.resource_updated, uri))

    def updates_missed(self) -> None:
        """Notify the client of all resources to which it has subscribed: any of them may have changed."""
        for uri in self._session.subscribed:
            self.resource_updated(uri)

    def changes_missed(self) -> None:
        """The same, and of all lists: notifications for this client were lost."""
        self.lists_changed(ROWS)
        self.updates_missed()

    def _announce(self, what: str, lines: Callable[[], list[bytes]]) -> None:
        """Tell the client that something has changed. A client that does not read gets one notification of each kind, later."""
        written = lines()
        if written and self._out.backlog >= _MOST_NOTICES:
            if not self._late:
                asyncio.get_running_loop().call_later(_LATER, self._announce_late)
            self._late[what] = lines
            return
        for line in written:
            self._out.write(line)

    def _announce_late(self) -> None:
        late, self._late = self._late, {}
        for what, lines in late.items() if not self._closed else ():
            self._announce(what, lines)

    # Large results

    @property
    def _pages(self) -> Pages:
        if self._kept_elsewhere is not None:
            return self._kept_elsewhere
        if self._own_pages is None:
            self._own_pages = Pages(time.monotonic)
        return self._own_pages

    def _most(self, call: RequestInFlight) -> int:
        """The limit for a result in characters; 0 for none. Without a store for the rest there is no limit.

        Stateless requests are answered the same for every client, so only the setting counts there. With several processes
        there is no limit, because a request for the rest may reach another one.
        """
        own, revision = self._project.saved.own, call.revision
        if READ_MORE in self._project.listing.names or not self._project.offers_tasks:
            return 0
        if own.max_result is not None or revision.stateless:
            return own.max_result or 0
        return CLIENT_LIMITS.get(call.client.info.get("name", ""), 0)

    def _limit(self, call: RequestInFlight, contract: Contract) -> Limit:
        most = self._most(call)
        if not most:
            return UNLIMITED
        allowed = contract.meta.get(_LIMIT_KEY)
        kept = self._project.own.kept_results
        larger = max(most, allowed) if type(allowed) is int else most
        return Limit(larger, kept, functools.partial(self._pages.keep, most=kept))

    def _read_more(self, call: RequestInFlight) -> None:
        sent = call.arguments
        arguments = sent if isinstance(sent, dict) else _from_text(sent)
        cursor, most = arguments.get("cursor"), self._most(call)
        try:
            page = self._pages.page(cursor, most, self._project.own.kept_results)
        except UnknownCursor as error:
            if self._project.sharing is not None and isinstance(cursor, str):
                self._finish_soon(call, self._read_more_elsewhere(call, cursor, most, str(error)))
            else:
                self._report_text(call, str(error), is_error=True, meta=_WRONG)
            return
        body, meta = _page(page)
        call.back.write(self._session.answer(call, body, meta=meta))

    async def _read_more_elsewhere(
        self, call: RequestInFlight, cursor: str, most: int, unknown: str
    ) -> tuple[bytes, bytes]:
        """The rest of a result that another host keeps."""
        page = await self._project.page_elsewhere(cursor, most, _owner(call))
        if page is not None:
            return _page(page)
        return dumps({"content": [{"type": "text", "text": unknown}], "isError": True}), _WRONG

    # The end

    def close(self, why: str = "the host is shutting down") -> None:
        """End the connection and cancel its calls. Calls of other clients continue."""
        if self._closed:
            return
        self._closed = True
        self._project.disconnect(self)
        if self._own_pages is not None:
            self._own_pages.close()
        jobs, self._jobs = self._jobs, {}
        for _, job in jobs.values():
            if not job.over:
                self._project.workers.cancel(job)
        for line in self._session.end_subscriptions():
            self._out.write(line)
        for call in list(self._session.in_flight.values()):
            call.back.write(self._session.refuse(call, RpcError.internal(why)))


def _owner(call: RequestInFlight) -> Hashable:
    return getattr(call.back, "owner", None)


def _page(page: ResultPage) -> tuple[bytes, bytes]:
    """A part of a long result, and its `_meta`."""
    follows = notice(page.cursor) if page.cursor else "This is the end."
    note = f"Above are bytes {page.start} to {page.end} of {page.size}. {follows}"
    content = [{"type": "text", "text": page.text}, {"type": "text", "text": note}]
    meta = {META_CUT: {"bytes": page.size, "start": page.start, "end": page.end, "cursor": page.cursor}}
    return dumps({"content": content, "isError": False}), dumps(meta)


def _from_text(arguments: str) -> JsonObject:
    """Decode the arguments of one of the host's own tools."""
    from prowess.calls.jsontext import decode_object  # imports pydantic-core

    return decode_object(arguments) or {}


def _invalid(call: RequestInFlight, error: EncodeError) -> str:
    """The reason why arguments cannot be encoded: a number, or the message of the encoder."""
    problems = number_problems(call.arguments)
    return str(InputError(call.params["name"], problems)) if problems else f"Invalid arguments: {error}"
