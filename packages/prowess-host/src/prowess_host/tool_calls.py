"""One `tools/call`: turns the client's request into a job for the workers, and their messages into the client's answer."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from prowess.errors import SettingsError, parts_of_capability
from prowess.jsontypes import encodable
from prowess.worker.messages import CallHead
from prowess_host.protocol.codec import dumps, encode_notification
from prowess_host.protocol.eras import CAPABILITIES_KEY, CLIENT_KEY, LOG_LEVEL_KEY, VERSION_KEY, takes_tasks
from prowess_host.protocol.questions import (
    Answers,
    Occasion,
    askable,
    digest_arguments,
    input_required,
    kind_of,
    read_answer,
    request_of,
    require_asking,
    resume,
    seal,
)
from prowess_host.protocol.rpc import RpcError
from prowess_host.workers.jobs import Job
from prowess_host.workers.supervisor import Supervisor

if TYPE_CHECKING:
    from pathlib import Path

    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject
    from prowess.settings.settings import Settings
    from prowess_host.protocol.eras import Revision
    from prowess_host.protocol.session import RequestInFlight, Session
    from prowess_host.tasks import Task

    _OpenTask = Callable[[Revision, Callable[[JsonObject], None], Callable[[], None]], Task | None]

__all__ = ["UNLIMITED", "Limit", "Sealing", "ToolCall", "load_key", "shared_key"]

_KEY_BYTES: Final = 32
_TRACING: Final = ("traceparent", "tracestate", "baggage")
"""Keys in `_meta` that are passed on for tracing (SEP-414)."""

_ORDINARY: Final = frozenset({"name", "arguments", "_meta"})
"""Parameters of a call that does not answer questions."""
_ENVELOPE: Final = frozenset({VERSION_KEY, CAPABILITIES_KEY, CLIENT_KEY, LOG_LEVEL_KEY, "progressToken"})
"""Keys of `_meta` with common values, or whose presence alone matters to a worker."""
_MOST_HEADS: Final = 1000
_LONGEST_HEAD: Final = 2000
"""Bytes of a head that is kept for further calls."""


class Limit(NamedTuple):
    """The characters of a result that the client accepts at once, and the store for the rest."""

    most: int
    """0 for no limit."""
    kept: int
    """Bytes that the store may keep."""
    keep: Callable[[str, bytes], None]


def _keep_nothing(_token: str, _text: bytes) -> None:
    """Does nothing: without a limit there is no rest."""


UNLIMITED: Final = Limit(0, 0, _keep_nothing)


class Sealing:
    """The key for sealed states. It is read at the first question."""

    def __init__(self, load: Callable[[], bytes], now: Callable[[], float]) -> None:
        self._load = load
        self._key: bytes | None = None
        self.now = now

    def key(self) -> bytes:
        """The secret key of the signatures."""
        if self._key is None:
            self._key = self._load()
        return self._key


class ToolCall:
    """Listens to one job and answers one call."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        call: RequestInFlight,
        contract: Contract,
        session: Session,
        supervisor: Supervisor,
        write: Callable[[RequestInFlight, bytes], None],
        notify: Callable[[RequestInFlight, bytes], bool],
        sealing: Sealing,
        limit: Limit = UNLIMITED,
        *,
        hears_all: bool = False,
        names_request: bool = False,
        open_task: _OpenTask | None = None,
        caller: str = "",
        scopes: str = "",
        heads: dict[tuple[object, ...], bytes] | None = None,
    ) -> None:
        """`hears_all`: the record keeps progress and logs even if the client asks for none.

        `names_request`: the worker gets the id of the request for traces, so each call has its own head.
        `open_task` makes the task for a call that continues in the background.
        `caller` identifies the only caller who may repeat the call with answers, if several share a server.
        `heads` keeps the encoded heads of calls by clients without a session.
        """
        self._heads = {} if heads is None else heads
        self._caller = caller
        self._scopes = scopes
        self._open_task = open_task
        self._hears_all = hears_all
        self._names_request = names_request
        self._call = call
        self._contract = contract
        self._session = session
        self._supervisor = supervisor
        self._write = write
        self._notify = notify
        self._sealing = sealing
        self._limit = limit
        self._answers: Answers | None = None
        self._asked: dict[int, tuple[str, str]] = {}
        """The key and the kind of each open question, by the id of our request."""
        self._pages: dict[str, str] = {}
        """The names of pages that the person was asked to visit, by key."""
        self._job: Job | None = None
        self._task: Task | None = None
        """The task of a call in the background."""
        self._given: dict[str, JsonObject] = {}
        self._newest = b""
        """The newest progress that is held back from a slow client."""
        self._lost_logs = 0

    def job(self, profile: str, seconds: float) -> Job:
        """The job for the workers; raises `RpcError` for a forged or foreign request state.

        Raises `EncodeError` for arguments that JSON cannot express (numbers beyond any float).
        """
        text = self._call.text
        if text is None:
            arguments = self._call.arguments
            text = dumps(arguments, "params.arguments") if arguments else b"{}"
        self._job = Job(self._contract, self._head(profile), text, self, seconds)
        return self._job

    def _head(self, profile: str) -> bytes:
        """The head of the frame for the worker. Most calls of a client share one."""
        call, session = self._call, self._session
        params, client = call.params, call.client
        envelope: JsonObject = params.get("_meta") or {}
        if self._names_request or not params.keys() <= _ORDINARY or not envelope.keys() <= _ENVELOPE:
            return dumps(self._how(profile))
        reports = call.progress_token is not None, call.log_level is not None
        key: tuple[object, ...] = (
            self._contract.id,
            profile,
            self._limit.most,
            self._limit.kept,
            self._scopes,
            *reports,
        )
        heads = session.heads
        if client is not session.client:
            heads, name = self._heads, client.info.get("name", "" if client.info else None)
            able = dumps(client.capabilities) if client.capabilities else b""
            key = (*key, name, able, call.revision.version, session.transport)
        head = heads.get(key)
        if head is None:
            head = dumps(self._how(profile))
            if len(heads) >= _MOST_HEADS:
                heads.clear()
            if len(head) < _LONGEST_HEAD:
                heads[key] = head
        return head

    def _how(self, profile: str) -> CallHead:
        call, client = self._call, self._call.client
        stateless = call.revision.stateless
        how: CallHead = {"command": self._contract.id, "profile": profile}
        if call.revision.any_output:
            how["boxed"] = False
        if self._limit.most:
            how["most"], how["kept"] = self._limit.most, self._limit.kept
        if client.info:
            how["client"] = client.info.get("name", "")
        if client.capabilities:
            how["capabilities"] = client.capabilities
        if call.progress_token is not None or self._hears_all:
            how["progress"] = True
        if call.log_level is not None or not stateless or self._hears_all:
            how["log"] = True
        if self._scopes:
            how["scopes"] = self._scopes
        self._may_ask(how)
        how["wire"] = {"protocol": call.revision.version, "transport": self._session.transport}
        if self._names_request:
            how["request"] = encodable(str(call.id))
        meta: JsonObject = call.params.get("_meta") or {}  # a request has an object, or none
        traces = {name: meta[name] for name in _TRACING if isinstance(meta.get(name), str)}
        if traces:
            how["trace_context"] = traces
        if "traceparent" in traces:
            how["trace"] = traces["traceparent"]
        return how

    # Asking, in both eras

    def _may_ask(self, how: CallHead) -> None:
        """Add to the head which questions the client can be asked, and its answers."""
        client, revision = self._call.client, self._call.revision
        kinds = askable(client, revision)
        if revision.stateless:
            how["asks_for"], how["answers"] = kinds, self._recorded()
        elif kinds:
            how["asks_for"], how["asks"] = kinds, True
        if self._open_task is not None and takes_tasks(client, revision):
            how["background"] = True

    def _recorded(self) -> Mapping[str, JsonObject]:
        """The answers in a stateless request."""
        params = self._call.params
        if params.get("requestState") is None and not params.get("inputResponses"):
            return {}
        self._answers = resume(params, self._occasion(), key=self._sealing.key(), now=self._sealing.now())
        return self._answers.given

    def _occasion(self) -> Occasion:
        arguments = digest_arguments(self._call.arguments)
        caller = digest_arguments(self._caller) if self._caller else ""
        return Occasion(self._contract.id, self._contract.digest, arguments, caller)

    def input_required(self, questions: JsonObject) -> None:
        """Answer a stateless request with questions; the client repeats the call with the answers."""
        self._job = None  # as in `result`
        call = self._call
        try:
            kinds = {key: kind_of(question) for key, question in questions.items()}
            require_asking(call.client, call.revision, kinds.values())
            given: Mapping[str, JsonObject] = self._answers.given if self._answers is not None else {}
            key, now = self._sealing.key(), self._sealing.now()
            state = seal(Answers(given, kinds), self._occasion(), key=key, now=now)
            body = input_required(questions, call.revision, state)
        except RpcError as error:
            self._write(call, self._session.refuse(call, error))
        else:
            self._write(call, self._session.answer(call, body, result_type="input_required"))

    def questions(self, questions: JsonObject) -> None:
        """Send each question as a request to a client of the handshake era, while the call waits.

        A stateless call comes here only if it expects to run in the background. If there is no room for a task, its
        client repeats it with the answers.
        """
        kinds = [kind_of(question) for question in questions.values()]
        try:
            require_asking(self._call.client, self._call.revision, kinds)
        except RpcError as error:  # the worker may assume a capability that the client lacks
            self._unasked(cast("Job", self._job), error.message)
            return
        if self._task is not None:
            self._task.questions(questions)
            return
        if self._call.revision.stateless:
            job = cast("Job", self._job)
            self.input_required(questions)
            self._supervisor.cancel(job)
            return
        for key, question in questions.items():
            kind = kind_of(question)
            page = self._pages[key] = os.urandom(16).hex() if kind == "url" else ""
            request = request_of(question, self._call.revision, page)
            number, line = self._session.ask_client(self._call, request["method"], request["params"])
            self._asked[number] = key, kind
            self._write(self._call, line)

    def unasked(self, keys: Collection[str]) -> None:
        """Withdraw questions whose answers the command no longer waits for. Without them, the others may be answered."""
        if self._task is not None:
            self._task.unasked(keys)
            return
        gone = [question for question, (key, _) in self._asked.items() if key in keys]
        for question in gone:
            del self._asked[question]
            self._write(self._call, self._session.withdraw_question(question))
        if gone and not self._asked:
            answers, self._given = self._given, {}
            self._supervisor.answer(cast("Job", self._job), {"answers": answers})

    def url_done(self, key: str) -> None:
        """Notify the client, if its revision has that notification."""
        page = self._pages.pop(key, "")
        if page and self._session.is_open(self._call):
            self._write(self._call, encode_notification("notifications/elicitation/complete", {"elicitationId": page}))

    def answered(self, job: Job, question: int, result: JsonObject, error: JsonObject | None) -> None:
        """Handle the answer to a question. After the last one, the call continues."""
        key, kind = self._asked.pop(question)
        if error is not None:
            self._unasked(job, f"the client could not ask {key!r}: {error.get('message')}")
            return
        try:
            self._given[key] = read_answer(result, "result", kind)
        except RpcError as wrong:
            self._unasked(job, f"the client answered {key!r} wrongly: {wrong.message}")
            return
        if not self._asked:
            answers, self._given = self._given, {}
            self._supervisor.answer(job, {"answers": answers})

    def _unasked(self, job: Job, why: str) -> None:
        """Fail a question, and with it those that were asked together with it."""
        for question in self._asked:
            self._write(self._call, self._session.withdraw_question(question))
        self._asked, self._given = {}, {}
        self._supervisor.answer(job, {"error": why})

    # In the background

    def background(self) -> None:
        """Give the client a handle. If the limit of tasks is reached, it waits for the result instead."""
        job = self._job
        if job is None or self._open_task is None or self._task is not None or not self._session.is_open(self._call):
            return
        task = self._open_task(
            self._call.revision,
            functools.partial(self._supervisor.answer, job),
            functools.partial(self._supervisor.cancel, job),
        )
        if task is not None:
            self._task = task
            task.announce(self._contract, functools.partial(self._hand_out, task))

    def _hand_out(self, task: Task) -> None:
        """Answer with the handle."""
        if self._session.is_open(self._call):
            self._write(self._call, self._session.answer(self._call, task.created(), result_type="task"))
        else:
            task.withdraw()

    # Frames of workers

    def result(self, meta: bytes, body: bytes) -> None:
        """Answer the call."""
        self._job = None  # breaks a reference cycle, which would keep the arguments until a garbage collection
        if self._task is not None:
            self._task.complete(meta, body)
            return
        if self._newest or self._lost_logs:
            self._catch_up()
        self._write(self._call, self._session.answer(self._call, body, meta=meta))

    def rest(self, token: str, text: bytes) -> None:
        """Keep a result that is too large for the client."""
        if self._task is not None or self._session.is_open(self._call):
            self._limit.keep(token, text)

    def refused(self, facts: JsonObject) -> None:
        """Answer without a result: the client lacks a capability, or the worker no longer has the command."""
        self._job = None  # as in `result`
        if facts["kind"] == "missing_capability":
            lacking: JsonObject = {}
            for name in reversed(parts_of_capability(facts["name"])):
                lacking = {name: lacking}
            error = RpcError.missing_capability(lacking)
            if self._task is not None:
                self._task.fail(error)
            else:
                self._write(self._call, self._session.refuse(self._call, error))
            return
        text = facts["message"]
        if facts["kind"] == "unknown":
            text = f"{text}. It existed when the host last checked: list the tools again."
        self.result(b"{}", dumps({"content": [{"type": "text", "text": text}], "isError": True}))

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Send progress, if the client asked for it. For a slow client, only the newest is kept."""
        if self._task is not None:
            self._task.progress(done, total, message)
            return
        line = self._session.report_progress(self._call, done, total, message or "")
        if line:
            self._newest = b"" if self._notify(self._call, line) else line

    def log(self, level: str, data: Any) -> None:
        """Send a log message, if the client asked for it. A slow client gets the number of dropped messages later."""
        line = self._session.report_log(self._call, level, data, logger=self._contract.id)
        if line:
            if self._lost_logs and self._notify(self._call, self._lost()):
                self._lost_logs = 0
            self._lost_logs += not self._notify(self._call, line)

    def _catch_up(self) -> None:
        """Send the held back progress and the number of dropped logs before the answer."""
        if self._newest:
            self._write(self._call, self._newest)
        if self._lost_logs:
            self._write(self._call, self._lost())

    def _lost(self) -> bytes:
        text = f"{self._lost_logs} log messages were dropped: they came faster than the client read"
        return self._session.report_log(self._call, "warning", text, logger=self._contract.id)


def shared_key(settings: Settings) -> bytes | None:
    """The key that several hosts share, from the setting `auth.state_key`. Raises `SettingsError` if it is weak."""
    secret = settings.get("auth.state_key", None)
    if secret is None:
        return None
    if not isinstance(secret, str) or len(secret) < _KEY_BYTES:
        raise SettingsError(f"auth.state_key must be a secret text of at least {_KEY_BYTES} characters")
    import hashlib  # only for questions

    return hashlib.sha256(secret.encode()).digest()


def load_key(folder: Callable[[], Path]) -> bytes:
    """The key for sealed states of this user, made once and readable only by this user. If it cannot be saved, a key for this process."""
    import secrets  # only for questions

    from prowess_host.catalog.cache import read_own

    fresh = secrets.token_bytes(_KEY_BYTES)
    try:
        path = folder() / "request-state.key"
        if not path.exists():
            draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(fresh)
            try:
                with suppress(FileExistsError):  # another host was first: use its key
                    os.link(draft, path)
            finally:
                draft.unlink()
        key = read_own(path)  # with a key made by another user, that user could forge states
    except OSError:
        return fresh
    return key if len(key) == _KEY_BYTES else fresh
