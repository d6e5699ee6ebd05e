"""Tasks: calls that run in the background, by the tasks extension of MCP (`io.modelcontextprotocol/tasks`).

A `Task` receives the events of one call from its worker. `Tasks` holds the tasks of a project: any connection of the same
owner may ask for them, so a task survives a reconnect. A task ends with its call, or with the host. Other hosts of a cluster
answer for the tasks of one that is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from prowess.calls.handles import Handles
from prowess.errors import TooMuchWork
from prowess_host.protocol.codec import dumps, error_body
from prowess_host.protocol.eras import TASKS, takes_tasks
from prowess_host.protocol.identity import join_objects
from prowess_host.protocol.questions import STATE_LIFETIME, kind_of, read_answer, request_of
from prowess_host.protocol.rpc import RpcError
from prowess_host.workers.jobs import failed_body, lost_meta, lost_text

if TYPE_CHECKING:
    import asyncio

    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject
    from prowess_host.cluster.handles import SharedHandles
    from prowess_host.protocol.eras import Revision
    from prowess_host.protocol.session import RequestInFlight

__all__ = ["Task", "Tasks"]

_POLL: Final = 1000
"""The polling interval for clients in milliseconds."""
_EMPTY: Final = b"{}"


class Task:
    """One call in the background. `answer` passes answers to its questions to the worker, `cancel` stops the call."""

    def __init__(
        self,
        tasks: Tasks,
        revision: Revision,
        answer: Callable[[JsonObject], None],
        cancel: Callable[[], None],
    ) -> None:
        self.id = ""
        self.owner: Hashable = None
        self._tasks = tasks
        self._revision = revision
        self._answer = answer
        self._cancel = cancel
        self._status = "working"
        self._message = ""
        self._created = self._updated = time.time()
        self._ended: float | None = None
        self._kinds: dict[str, str] = {}
        """The kinds of the open questions, by key."""
        self._requests: JsonObject = {}
        self._answers: JsonObject = {}
        """The answers so far."""
        self._more = b"{}"
        """The result or the error, once the task has ended."""
        self._patience: asyncio.TimerHandle | None = None

    @property
    def is_over(self) -> bool:
        """Whether the task has ended."""
        return self._ended is not None

    def created(self) -> bytes:
        """The handle for the client, in place of a result."""
        return dumps(self._facts())

    def detailed(self) -> bytes:
        """The state, with the open questions, the result or the error."""
        facts = self._facts()
        if self._status == "input_required":
            facts["inputRequests"] = {key: self._requests[key] for key in self._kinds if key not in self._answers}
        return join_objects(dumps(facts, "the state of a task"), self._more)

    def _facts(self) -> JsonObject:
        kept = None if self._ended is None else round((self._ended - self._created + self._tasks.kept) * 1000)
        facts: JsonObject = {
            "taskId": self.id,
            "status": self._status,
            "createdAt": _iso(self._created),
            "lastUpdatedAt": _iso(self._updated),
            "ttlMs": kept,
            "pollIntervalMs": _POLL,
        }
        return {**facts, "statusMessage": self._message} if self._message else facts

    # From the worker

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Set the progress message."""
        whole = "" if total is None else f" of {total:g}"
        self._message = message or f"{done:g}{whole}"
        self._change()

    def questions(self, questions: JsonObject) -> None:
        """Wait for answers, up to a limit."""
        import asyncio

        self._requests |= {key: request_of(question, self._revision) for key, question in questions.items()}
        self._kinds |= {key: kind_of(question) for key, question in questions.items()}
        self._status = "input_required"
        if self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(STATE_LIFETIME, self._unanswered)
        self._change()

    def unasked(self, keys: Collection[str]) -> None:
        """Drop questions whose answers the command no longer waits for."""
        gone = self._kinds.keys() & keys
        for key in gone:
            del self._kinds[key], self._requests[key]
            self._answers.pop(key, None)
        if gone and self._answers.keys() >= self._kinds.keys():
            self._resume({"answers": self._answers})
        elif gone:
            self._change()

    def _unanswered(self) -> None:
        keys = ", ".join(map(repr, self._kinds))
        self._resume({"error": f"no answer to {keys} within {STATE_LIFETIME / 60:g} minutes"})

    def complete(self, meta: bytes, body: bytes) -> None:
        """Store the result, which may be a failure."""
        if len(body) + len(meta) > self._tasks.largest:
            self.fail(RpcError.internal(f"the result has {len(body)} bytes, more than are kept"))
            return
        result = body if meta == _EMPTY else join_objects(body, b'{"_meta":%b}' % meta)
        self._end("completed", b'{"result":%b}' % result)

    def fail(self, error: RpcError) -> None:
        """Store a protocol error."""
        self._message = error.message
        self._end("failed", b'{"error":%b}' % error_body(error))

    def announce(self, contract: Contract, then: Callable[[], None]) -> None:
        """Called when the client may get the handle."""
        command, may_repeat = contract.id, contract.hints.may_repeat
        facts: JsonObject = {"kind": "task", "command": command, "may_repeat": may_repeat, "created": self._facts()}
        self._tasks.announce(self, facts, partial(self.lose, command, may_repeat=may_repeat), then)

    def lose(self, command: str, *, may_repeat: bool) -> None:
        """Give up the call, because other hosts have reported it as lost while this one was cut off."""
        if not self.is_over:
            self._cancel()
            self._end("completed", _lost_result(command, may_repeat=may_repeat))

    def withdraw(self) -> None:
        """Forget the task of a client that left before it got the handle. Its call is cancelled."""
        self._end("cancelled", _EMPTY)

    # From the client

    def update(self, responses: JsonObject) -> None:
        """Take answers. Answers to questions that are not open are ignored."""
        answers = {
            key: read_answer(responses[key], f"params.inputResponses.{key}", kind)
            for key, kind in self._kinds.items()
            if key in responses and key not in self._answers
        }
        self._answers |= answers
        if self._kinds and self._answers.keys() >= self._kinds.keys():
            self._resume({"answers": self._answers})
        elif answers:
            self._change()

    def _resume(self, reply: JsonObject) -> None:
        self._forget_questions()
        self._status = "working"
        self._change()
        self._answer(reply)

    def cancel(self) -> None:
        """Cancel the task unless it has ended."""
        if not self.is_over:
            self._cancel()
            self._end("cancelled", _EMPTY)

    def _forget_questions(self) -> None:
        self._kinds, self._requests, self._answers = {}, {}, {}
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _end(self, status: str, more: bytes) -> None:
        if self.is_over:
            return
        self._forget_questions()
        self._status, self._more = status, more
        self._ended = self._updated = time.time()
        self._tasks.over(self, len(more))
        self._change()

    def _change(self) -> None:
        self._updated = time.time()
        self._tasks.changed(self)


class Tasks:
    """The tasks of a project, by id."""

    def __init__(self, mark: str = "", shared: SharedHandles | None = None) -> None:
        """`mark` begins the ids if several hosts have tasks, and `shared` lets other hosts answer for them."""
        self._handles: Handles[Task] = Handles(mark=mark)
        self._shared = shared
        self.on_change: Callable[[Task], None] = lambda _: None

    @property
    def kept(self) -> float:
        """Seconds that a result is kept."""
        return self._handles.kept

    @property
    def largest(self) -> int:
        """Bytes of the largest result that is kept."""
        return self._handles.largest

    def open(
        self,
        revision: Revision,
        answer: Callable[[JsonObject], None],
        cancel: Callable[[], None],
        owner: Hashable = None,
        client: Hashable = None,
    ) -> Task | None:
        """A new task, or `None` if the limit of open tasks is reached. It counts for the client, by default the owner."""
        task = Task(self, revision, answer, cancel)
        try:
            task.id = self._handles.add(task, owner, client)
        except TooMuchWork:
            return None
        task.owner = owner
        return task

    def announce(self, task: Task, facts: JsonObject, on_lost: Callable[[], None], then: Callable[[], None]) -> None:
        """Call `tell` when every host can answer for a new task: at once, if this is the only one."""
        if self._shared is None:
            then()
        else:
            self._shared.begin_soon(task.id, task.owner, facts, on_lost, then)

    def over(self, task: Task, size: int) -> None:
        """Called when a task has ended."""
        self._handles.over(task.id, size)
        if self._shared is not None:
            self._shared.end(task.id, task.detailed())

    async def answer_for_gone(self, method: str, task_id: str, owner: Hashable) -> bytes | None:
        """Like `answer` for a task whose host is gone; `None` if it is unknown."""
        found = self._shared and await self._shared.find(task_id, owner, "task", self._lost)
        if not found:
            return None
        return found.answer if method == "tasks/get" else _EMPTY

    def _lost(self, facts: JsonObject) -> bytes:
        """The state of a task that ended with its host."""
        created: JsonObject = {**facts["created"], "status": "completed", "lastUpdatedAt": _iso(time.time())}
        created["ttlMs"] = round(self.kept * 1000)
        return join_objects(dumps(created), _lost_result(facts["command"], may_repeat=facts["may_repeat"]))

    def changed(self, task: Task) -> None:
        """Called when the state of a task has changed."""
        self.on_change(task)

    def serve(self, call: RequestInFlight, owner: Hashable = None) -> bytes:
        """The body of the answer to `tasks/get`, `tasks/update` or `tasks/cancel`."""
        self.require(call)
        return self.answer(call.method, call.params, owner)

    @staticmethod
    def require(call: RequestInFlight) -> None:
        """Raise an `RpcError` for a client that does not have the extension."""
        if not takes_tasks(call.client, call.revision):
            raise RpcError.missing_capability({"extensions": {TASKS: {}}})

    def answer(self, method: str, params: JsonObject, owner: Hashable = None) -> bytes:
        """The same for a parsed request, perhaps of another host."""
        task = self._handles.get(params["taskId"], owner)
        if task is None:
            raise RpcError.wrong_param("params.taskId", "the id of a task that is kept", params["taskId"])
        if method == "tasks/get":
            return task.detailed()
        if method == "tasks/update":
            task.update(cast("JsonObject", params["inputResponses"]))
        else:
            task.cancel()
        return _EMPTY


def _lost_result(command: str, *, may_repeat: bool) -> bytes:
    body = failed_body(lost_text(command, "the host that ran it is gone", may_repeat=may_repeat))
    return b'{"result":%b}' % join_objects(body, b'{"_meta":%b}' % lost_meta(may_repeat=may_repeat))


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
