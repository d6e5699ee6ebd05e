"""One `tools/call`: turns the client's request into a job for the workers, and their messages into the client's answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prowess.worker.messages import CallHead
from prowess_host.protocol.codec import dumps
from prowess_host.protocol.questions import (
    Answers,
    Occasion,
    can_ask,
    digest_arguments,
    elicitation_params,
    input_required,
    read_answer,
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
    from prowess_host.protocol.session import Call, Session

__all__ = ["UNLIMITED", "Limit", "Sealing", "ToolCall", "load_key"]

_KEY_BYTES: Final = 32
_TRACING: Final = ("traceparent", "tracestate", "baggage")
"""Keys in `_meta` that are passed on for tracing (SEP-414)."""


class Limit(NamedTuple):
    """How many characters of a result the client takes at once, and what becomes of the rest."""

    most: int
    """0 for no limit."""
    kept: int
    """Bytes that may be kept."""
    keep: Callable[[str, bytes], None]


def _keep_nothing(_token: str, _text: bytes) -> None:
    """There is no rest where there is no limit."""


UNLIMITED: Final = Limit(0, 0, _keep_nothing)


class Sealing:
    """What sealed states are made with. The key is read when the first question is asked, and kept."""

    def __init__(self, load: Callable[[], bytes], now: Callable[[], float]) -> None:
        self._load = load
        self._key: bytes | None = None
        self.now = now

    def key(self) -> bytes:
        """The secret that states are signed with."""
        if self._key is None:
            self._key = self._load()
        return self._key


class ToolCall:
    """Listens to one job and answers one call."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        call: Call,
        contract: Contract,
        session: Session,
        supervisor: Supervisor,
        write: Callable[[Call, bytes], None],
        notify: Callable[[Call, bytes], bool],
        sealing: Sealing,
        limit: Limit = UNLIMITED,
        *,
        hears_all: bool = False,
        names_request: bool = False,
    ) -> None:
        """`hears_all`: the record wants to hear of progress and logs also where the client does not.

        `names_request`: the worker gets the id of the request, for traces. Then every call has a head of its own.
        """
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
        self._asked: dict[int, str] = {}
        self._told: dict[str, JsonObject] = {}
        self._newest = b""
        """The newest progress, if the client does not read as fast as it comes."""
        self._lost_logs = 0

    def job(self, profile: str, seconds: float) -> Job:
        """The job for the workers; raises `RpcError` for a forged or foreign request state.

        Arguments that JSON cannot say (numbers beyond any float) are an `EncodeError`.
        """
        text = self._call.text
        if text is None:
            arguments = self._call.arguments
            text = dumps(arguments, "params.arguments") if arguments else b"{}"
        return Job(self._contract, self._head(profile), text, self, seconds)

    def _head(self, profile: str) -> bytes:
        """How to call, as bytes: in one session the same from call to call, but for what is said of a single one."""
        call, heads = self._call, self._session.heads
        own = self._names_request or call.revision.stateless or "_meta" in call.params
        if own or call.client is not self._session.client:
            return dumps(self._how(profile))
        key = (self._contract.id, profile, self._limit.most, self._limit.kept)
        head = heads.get(key)
        if head is None:
            head = heads[key] = dumps(self._how(profile))
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
        if stateless:
            how["answers"] = self._recorded()
        elif can_ask(client, call.revision):
            how["asks"] = True
        how["wire"] = {"protocol": call.revision.version, "transport": self._session.transport}
        if self._names_request:
            how["request"] = str(call.id).encode("utf-8", "backslashreplace").decode()
        meta: JsonObject = call.params.get("_meta") or {}  # a request has an object, or none
        traces = {name: meta[name] for name in _TRACING if isinstance(meta.get(name), str)}
        if traces:
            how["trace_context"] = traces
        if "traceparent" in traces:
            how["trace"] = traces["traceparent"]
        return how

    # Asking, in both eras

    def _recorded(self) -> Mapping[str, JsonObject]:
        """The answers that a stateless request brings along."""
        params = self._call.params
        if params.get("requestState") is None and not params.get("inputResponses"):
            return {}
        self._answers = resume(params, self._occasion(), key=self._sealing.key(), now=self._sealing.now())
        return self._answers.given

    def _occasion(self) -> Occasion:
        return Occasion(self._contract.id, self._contract.digest, digest_arguments(self._call.arguments))

    def input_required(self, questions: JsonObject) -> None:
        """A run of the stateless era ended with questions: the client shall ask them and call again."""
        call = self._call
        try:
            require_asking(call.client, call.revision)
            given: Mapping[str, JsonObject] = self._answers.given if self._answers is not None else {}
            key, now = self._sealing.key(), self._sealing.now()
            state = seal(Answers(given, tuple(questions)), self._occasion(), key=key, now=now)
            body = input_required(questions, call.revision, state)
        except RpcError as error:
            self._write(call, self._session.refuse(call, error))
        else:
            self._write(call, self._session.answer(call, body, result_type="input_required"))

    def questions(self, questions: JsonObject) -> None:
        """A run of the handshake era waits: each question is a request of ours."""
        for key, question in questions.items():
            params = elicitation_params(question["message"], question["schema"], self._call.revision)
            number, line = self._session.ask_client(self._call, "elicitation/create", params)
            self._asked[number] = key
            self._write(self._call, line)

    def answered(self, job: Job, question: int, result: JsonObject, error: JsonObject | None) -> None:
        """The client answered one of the questions. When all are answered the run goes on."""
        key = self._asked.pop(question)
        if error is not None:
            self._unasked(job, f"the client could not ask {key!r}: {error.get('message')}")
            return
        try:
            self._told[key] = read_answer(result, "result")
        except RpcError as wrong:
            self._unasked(job, f"the client answered {key!r} wrongly: {wrong.message}")
            return
        if not self._asked:
            told, self._told = self._told, {}
            self._supervisor.answer(job, {"answers": told})

    def _unasked(self, job: Job, why: str) -> None:
        """One question has failed, and with it those that were asked together with it."""
        for question in self._asked:
            self._write(self._call, self._session.withdraw_question(question))
        self._asked, self._told = {}, {}
        self._supervisor.answer(job, {"error": why})

    # What workers say

    def result(self, meta: bytes, body: bytes) -> None:
        """The one answer."""
        if self._newest or self._lost_logs:
            self._catch_up()
        self._write(self._call, self._session.answer(self._call, body, meta=meta))

    def rest(self, token: str, text: bytes) -> None:
        """What is too large for the client is kept for it."""
        if self._session.is_open(self._call):
            self._limit.keep(token, text)

    def refused(self, facts: JsonObject) -> None:
        """There is no result: the client lacks something, or the worker does not know the command any more."""
        if facts["kind"] == "missing_capability":
            lacking: JsonObject = {}
            for name in reversed(facts["name"].split(".")):
                lacking = {name: lacking}
            self._write(self._call, self._session.refuse(self._call, RpcError.missing_capability(lacking)))
            return
        text = facts["message"]
        if facts["kind"] == "unknown":
            text = f"{text}. It existed when the host last checked: list the tools again."
        self._write(
            self._call,
            self._session.answer(self._call, dumps({"content": [{"type": "text", "text": text}], "isError": True})),
        )

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Passed on, if the client wants it. What it does not read in time is replaced by what comes later."""
        line = self._session.report_progress(self._call, done, total, message or "")
        if line:
            self._newest = b"" if self._notify(self._call, line) else line

    def log(self, level: str, data: Any) -> None:
        """Passed on, if the client wants it. How much of it the client did not read in time, it is told."""
        line = self._session.report_log(self._call, level, data, logger=self._contract.id)
        if line:
            if self._lost_logs and self._notify(self._call, self._lost()):
                self._lost_logs = 0
            self._lost_logs += not self._notify(self._call, line)

    def _catch_up(self) -> None:
        """Say before the answer what was held back."""
        if self._newest:
            self._write(self._call, self._newest)
        if self._lost_logs:
            self._write(self._call, self._lost())

    def _lost(self) -> bytes:
        told = f"{self._lost_logs} log messages were dropped: they came faster than the client read"
        return self._session.report_log(self._call, "warning", told, logger=self._contract.id)


def load_key(folder: Callable[[], Path]) -> bytes:
    """The key of this user's sealed states: made once, readable by nobody else. Without a place for it, one for now."""
    import os  # only where somebody is asked something
    import secrets

    from prowess_host.catalog.cache import read_own

    fresh = secrets.token_bytes(_KEY_BYTES)
    try:
        path = folder() / "request-state.key"
        if not path.exists():
            draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(fresh)
            try:
                with suppress(FileExistsError):  # another host was first: its key counts
                    os.link(draft, path)
            finally:
                draft.unlink()
        key = read_own(path)  # a key that another user has made would let that user forge states
    except OSError:
        return fresh
    return key if len(key) == _KEY_BYTES else fresh
