"""Calls from envelopes and from the command line: from arguments to a payload or an outcome.

Imports pydantic, so the start of a host must not import this module.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Collection, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from prowess.calls.outcome import META_KIND, Outcome, read_outcome
from prowess.errors import UnknownCommand, message_of
from prowess.frozen import frozen
from prowess.results.normalize import text_result
from prowess.worker.messages import CallHead
from prowess_host.protocol.codec import dumps
from prowess_host.protocol.rpc import EncodeError
from prowess_host.workers.jobs import Job

if TYPE_CHECKING:
    from prowess.calls.channel import Channel
    from prowess.contracts.catalog import Catalog
    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject
    from prowess_host.workers.supervisor import Supervisor

__all__ = ["SILENT", "Audience", "Way", "call_outcome", "call_payload", "unknown_outcome"]


class Way(NamedTuple):
    """The way from a call to the workers of a project."""

    workers: Supervisor
    profile: str
    seconds: float
    hears_all: bool = False
    """Whether the record keeps progress and logs."""
    caller: Hashable = None

    def how(self, contract: Contract) -> CallHead:
        """The head of the frame that calls a command."""
        how: CallHead = {"command": contract.id, "profile": self.profile}
        if self.hears_all:
            how["progress"] = how["log"] = True
        return how


@frozen
class Audience:
    """The callbacks of a caller while the command runs. By default there are none, and no person to ask."""

    progress: Callable[[float, float | None, str | None], None] | None = None
    log: Callable[[str, Any], None] | None = None
    ask: Callable[[JsonObject], Awaitable[JsonObject]] | None = None
    """Puts questions to a person. Each key has a `message` and a `schema`; the answer has an `action` and a `content`."""

    def wants(self) -> CallHead:
        """The fields of the head that ask the worker for progress, logs or questions."""
        wants: Any = {}
        if self.progress is not None:
            wants["progress"] = True
        if self.log is not None:
            wants["log"] = True
        if self.ask is not None:
            wants["asks"], wants["asks_for"] = True, ["form", "url"]
            wants["capabilities"] = {"elicitation": {"form": {}, "url": {}}}
        return wants


SILENT: Final = Audience()


async def call_payload(way: Way, contract: Contract, arguments: Any, audience: Audience = SILENT) -> JsonObject:
    """Call a command and return the payload in the profile."""
    how: CallHead = {**way.how(contract), **audience.wants()}
    meta, payload = await _run(way, contract, dumps(how), dumps(arguments), audience)
    return {**payload, "_meta": meta} if meta else payload


async def call_outcome(
    way: Way, contract: Contract, arguments: Any, channel: Channel | None, audience: Audience = SILENT
) -> Outcome:
    """Call a command and return the outcome, whose facts come beside the result."""
    call_id = (channel and channel.call_id) or uuid.uuid4().hex
    how: CallHead = {**way.how(contract), **audience.wants(), "outcome": True, "call_id": call_id}
    if channel is not None:
        how["client"], how["capabilities"] = channel.client_name, channel.capabilities
        if channel.scopes:
            how["scopes"] = channel.scopes
        how["trace"], how["metadata"], how["context"] = channel.trace_id, channel.metadata, channel.context
    try:
        head, text = dumps(how), dumps({} if arguments is None else arguments)
    except EncodeError as error:  # the caller gave values that JSON cannot express
        result = text_result(f"{contract.id}: arguments: {message_of(error)}", is_error=True)
        return Outcome(contract.id, "input", result, contract, call_id=call_id)
    facts, body = await _run(way, contract, head, text, audience)
    return read_outcome(contract.id, {"prowess/call_id": call_id, **facts}, body, contract)


def unknown_outcome(command: str, catalog: Catalog) -> Outcome:
    """The outcome for an unknown command."""
    unknown = UnknownCommand(command, [contract.id for contract in catalog], catalog.reasons(command))
    return Outcome(command, "unknown", text_result(str(unknown), is_error=True))


async def _run(
    way: Way, contract: Contract, head: bytes, text: bytes, audience: Audience = SILENT
) -> tuple[JsonObject, JsonObject]:
    """Run a job and return the facts and the body of its answer. If the caller is cancelled, so is the call."""
    listener = _Listener(audience)
    job = Job(contract, head, text, listener, way.seconds, client=(way.caller, "envelopes"))
    listener.reply = partial(way.workers.answer, job)
    way.workers.submit(job)
    try:
        return await listener.answer
    finally:
        listener.close()
        if not job.over:
            way.workers.cancel(job)


class _Listener:
    """Receives the answer to a job, and passes earlier events to the audience."""

    reply: Callable[..., None]
    """Sends the answers to questions: `Supervisor.answer`."""

    def __init__(self, audience: Audience) -> None:
        self._audience = audience
        self._asking: dict[asyncio.Task[None], set[str]] = {}
        """The open questions by their tasks."""
        self.answer: asyncio.Future[tuple[JsonObject, JsonObject]] = asyncio.get_running_loop().create_future()

    def result(self, meta: bytes, body: bytes) -> None:
        self._finish(json.loads(meta), json.loads(body))

    def refused(self, facts: JsonObject) -> None:
        content = [{"type": "text", "text": facts["message"]}]
        self._finish({META_KIND: facts["kind"]}, {"content": content, "isError": True})

    def rest(self, token: str, text: bytes) -> None:  # pragma: no cover - there is no limit on this result
        """Does nothing: direct calls have no limit on results."""

    def input_required(self, questions: JsonObject) -> None:  # pragma: no cover - only where answers were recorded
        raise NotImplementedError

    def questions(self, questions: JsonObject) -> None:
        """Put the questions to the audience; the call waits for the answers."""
        task = asyncio.get_running_loop().create_task(self._ask(questions))
        self._asking[task] = {*questions}
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._asking.pop(task, None)

    def unasked(self, keys: Collection[str]) -> None:
        """Withdraw questions that the call no longer waits for."""
        gone = [task for task, asked in self._asking.items() if asked <= {*keys}]
        for task in gone:
            task.cancel()
        if gone and len(gone) == len(self._asking):
            self.reply({"answers": {}})

    async def _ask(self, questions: JsonObject) -> None:
        assert self._audience.ask is not None  # noqa: S101 - else nothing would be asked
        try:
            answer: JsonObject = {"answers": await self._audience.ask(questions)}
        except Exception as error:  # noqa: BLE001 - reported to the command
            answer = {"error": f"the question could not be asked: {message_of(error)}"}
        self._forget(cast("asyncio.Task[None]", asyncio.current_task()))
        self.reply(answer, more=bool(self._asking) and "answers" in answer)  # an error ends all questions

    def url_done(self, key: str) -> None:
        """Does nothing: the person has opened the page and knows."""

    def background(self) -> None:  # pragma: no cover - direct calls are waited for
        """Does nothing: direct calls have no tasks."""

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Pass progress to the audience."""
        if self._audience.progress is not None:
            self._audience.progress(done, total, message)

    def log(self, level: str, data: Any) -> None:
        """Pass a log message to the audience."""
        if self._audience.log is not None:
            self._audience.log(level, data)

    def close(self) -> None:
        """Withdraw the open questions of an ended call."""
        for task in self._asking:
            task.cancel()

    def _finish(self, facts: JsonObject, body: JsonObject) -> None:
        if not self.answer.done():  # the caller was not cancelled
            self.answer.set_result((facts, body))
