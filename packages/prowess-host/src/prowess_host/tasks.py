"""One `tools/call`: from the client's request to a job for the workers, and from what they say to the client's answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from prowess_host.codec import dumps
from prowess_host.questions import (
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
from prowess_host.rpc import RpcError
from prowess_host.supervisor import Job, Supervisor

if TYPE_CHECKING:
    from prowess.contract import Contract
    from prowess.jsontypes import JsonObject
    from prowess_host.session import Call, Session

__all__ = ["Sealing", "ToolCall"]


class Sealing:
    """What sealed states are made with. The key is read when the first question is asked."""

    def __init__(self, key: Callable[[], bytes], now: Callable[[], float]) -> None:
        self.key = key
        self.now = now


class ToolCall:
    """Listens to one job and answers one call."""

    def __init__(
        self,
        call: Call,
        contract: Contract,
        session: Session,
        supervisor: Supervisor,
        write: Callable[[bytes], None],
        sealing: Sealing,
    ) -> None:
        self._call = call
        self._contract = contract
        self._session = session
        self._supervisor = supervisor
        self._write = write
        self._sealing = sealing
        self._answers: Answers | None = None
        self._asked: dict[int, str] = {}
        self._told: dict[str, JsonObject] = {}

    def job(self, profile: str, seconds: float) -> Job:
        """The job for the workers; raises `RpcError` for a forged or foreign request state."""
        head = dumps(self._how(profile))
        return Job(self._contract, head, dumps(self._call.arguments, "params.arguments"), self, seconds)

    def _how(self, profile: str) -> JsonObject:
        call = self._call
        how: JsonObject = {
            "command": self._contract.id,
            "profile": profile,
            "boxed": not call.revision.any_output,
            "client": call.client.info.get("name", ""),
            "capabilities": call.client.capabilities,
            "progress": call.progress_token is not None,
            "log": call.log_level is not None or not call.revision.stateless,
        }
        if call.revision.stateless:
            how["answers"] = self._recorded()
        else:
            how["asks"] = can_ask(call.client, call.revision)
        trace = call.params.get("_meta", {}).get("traceparent") if isinstance(call.params.get("_meta"), dict) else None
        if isinstance(trace, str):
            how["trace"] = trace
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
            given = self._answers.given if self._answers is not None else {}
            key, now = self._sealing.key(), self._sealing.now()
            state = seal(Answers(given, tuple(questions)), self._occasion(), key=key, now=now)
            body = input_required(questions, call.revision, state)
        except RpcError as error:
            self._write(self._session.refuse(call, error))
        else:
            self._write(self._session.answer(call, body, result_type="input_required"))

    def questions(self, questions: JsonObject) -> None:
        """A run of the handshake era waits: each question is a request of ours."""
        for key, question in questions.items():
            params = elicitation_params(question["message"], question["schema"], self._call.revision)
            number, line = self._session.ask_client(self._call, "elicitation/create", params)
            self._asked[number] = key
            self._write(line)

    def answered(self, job: Job, question: int, result: JsonObject, error: JsonObject | None) -> None:
        """The client answered one of the questions. When all are answered the run goes on."""
        key = self._asked.pop(question)
        if error is not None:
            self._supervisor.answer(job, {"error": f"the client could not ask {key!r}: {error.get('message')}"})
            return
        try:
            self._told[key] = read_answer(result, "result")
        except RpcError as wrong:
            self._supervisor.answer(job, {"error": f"the client answered {key!r} wrongly: {wrong.message}"})
            return
        if not self._asked:
            told, self._told = self._told, {}
            self._supervisor.answer(job, {"answers": told})

    # What workers say

    def result(self, meta: bytes, body: bytes) -> None:
        self._write(self._session.answer(self._call, body, meta=meta))

    def refused(self, facts: JsonObject) -> None:
        if facts["kind"] == "missing_capability" and self._call.revision.stateless:
            error = RpcError.missing_capability({facts["name"]: {}})
        elif facts["kind"] == "unknown":
            error = RpcError.unknown_tool(self._contract.wire_name)
        else:
            body = {"content": [{"type": "text", "text": facts["message"]}], "isError": True}
            self._write(self._session.answer(self._call, dumps(body)))
            return
        self._write(self._session.refuse(self._call, error))

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        self._write(self._session.report_progress(self._call, done, total, message or ""))

    def log(self, level: str, data: Any) -> None:
        self._write(self._session.report_log(self._call, level, data, logger=self._contract.id))


def load_key(folder: Callable[[], Any]) -> bytes:
    """The key of this user's sealed states: made once, readable by nobody else. Without a place for it, one for now."""
    import os  # noqa: PLC0415 - only where somebody is asked something
    import secrets  # noqa: PLC0415

    try:
        path = folder() / "request-state.key"
        if not path.exists():
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(secrets.token_bytes(32))
        key = path.read_bytes()
    except OSError:
        key = b""
    return key if len(key) == 32 else secrets.token_bytes(32)  # noqa: PLR2004 - bytes of a key


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
