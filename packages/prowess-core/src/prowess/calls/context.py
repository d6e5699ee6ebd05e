"""`Context`: how a command reports, asks, and learns about its own call."""

from __future__ import annotations

import copy
import math
from collections.abc import Coroutine, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn, cast

from pydantic_core import from_json, to_json, to_jsonable_python

from prowess.calls.channel import Call
from prowess.calls.questions import Answer, AnswerType, Page, Question, Roots, Sample, question_of
from prowess.calls.threads import is_stuck
from prowess.errors import AskError, InputRequired, MissingCapability, parts_of_capability
from prowess.jsontypes import JsonObject

__all__ = ["SENT", "Context", "Sent"]

_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_TASKS: Final = "extensions.io.modelcontextprotocol/tasks"


class Sent(Coroutine[None, None, None]):
    """The result of `progress` and `log`, which may be awaited and is done at once.

    It is not a native coroutine, because Python warns if one is not awaited.
    """

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        """Done at once."""
        yield from ()

    def send(self, value: None, /) -> NoReturn:
        """Done at once."""
        raise StopIteration(value)

    def throw(self, error: Any, *_: Any) -> NoReturn:
        """Raise the error, for example a cancellation."""
        raise error

    def close(self) -> None:
        """Does nothing."""


SENT: Final = Sent()


class Context:
    """The call of a running command. Works the same in async code and in the thread of sync code."""

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def call_id(self) -> str:
        """The id of the call. The log shows it with a traceback."""
        return self._call.id

    @property
    def trace_id(self) -> str:
        """The caller's trace id, or an empty string."""
        return self._call.channel.trace_id

    @property
    def metadata(self) -> JsonObject:
        """The metadata that the caller sent with the call."""
        return self._call.channel.metadata

    @property
    def context(self) -> JsonObject:
        """The caller's description of the task that the call belongs to."""
        return self._call.channel.context

    @property
    def uri(self) -> str:
        """The requested URI in a resource; elsewhere an empty string."""
        return self._call.uri

    @property
    def client_name(self) -> str:
        """The name the client gave itself, or an empty string."""
        return self._call.channel.client_name

    @property
    def capabilities(self) -> JsonObject:
        """The capabilities that the client declared."""
        return copy.deepcopy(self._call.channel.capabilities)  # calls of one client share them

    @property
    def cancelled(self) -> bool:
        """Whether the caller gave up. Sync code that runs long should check it regularly."""
        return self._call.cancelled

    @property
    def deadline(self) -> float | None:
        """The time at which the call times out, on the clock of `time.monotonic`, or `None`."""
        return self._call.deadline

    def require_capability(self, name: str) -> None:
        """Fail the call unless the client declared a capability, like `"sampling"`.

        Dots separate nested names: `"elicitation.url"`.
        """
        found: Any = self._call.channel.capabilities
        for part in parts_of_capability(name):
            found = cast("Mapping[str, Any]", found).get(part) if isinstance(found, Mapping) else None
        if found is None or found is False:
            raise MissingCapability(self._call.command, name)

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> Sent:
        """Report progress; awaiting it is optional. Only growing values of `done` are sent."""
        if _is_finite(done) and (total is None or _is_finite(total)):
            self._call.report(done, total, None if message is None else self._call.shown(str(message)))
        return SENT

    report_progress = progress

    def log(self, level: str, message: Any) -> Sent:
        """Send a log message (a string or JSON data) to the client, if it has asked for that level.

        Awaiting it is optional.
        """
        if level not in _LEVELS:
            raise ValueError(f"unknown log level {level!r}; use one of {', '.join(_LEVELS)}")
        self._call.log(level, self._call.shown_data(message if isinstance(message, str) else _as_data(message)))
        return SENT

    def debug(self, message: Any) -> Sent:
        """`log` at the level `debug`."""
        return self.log("debug", message)

    def info(self, message: Any) -> Sent:
        """`log` at the level `info`."""
        return self.log("info", message)

    def warning(self, message: Any) -> Sent:
        """`log` at the level `warning`."""
        return self.log("warning", message)

    def error(self, message: Any) -> Sent:
        """`log` at the level `error`."""
        return self.log("error", message)

    def updated(self, uri: str) -> Sent:
        """Notify the clients that have subscribed to a resource. Awaiting it is optional."""
        self._call.updated(str(uri))
        return SENT

    def ask(self, key: str, message: str, schema: AnswerType = None) -> Any:
        """Ask the person at the client: `answer = await ctx.ask(...)`, without `await` in sync code.

        `schema` is a flat object schema, or a type: bool, str, int, an Enum, a Literal, a dataclass of such. The `key`
        identifies the question within the call. With some clients, a question ends the run, and the command starts again
        from the top with the answer. So the code before a question must be safe to run twice.
        """
        return self._wait_for(self._ask_one(key, (message, schema)))

    def ask_url(self, key: str, message: str, url: str) -> Any:
        """Ask the user to visit a page, for data that the client must not see: a password, a payment, a permission.

        The answer says whether the person agreed, but not the result of the visit. Call `url_done(key)` when the page is
        finished.
        """
        return self._wait_for(self._ask_one(key, Page(message, url)))

    def url_done(self, key: str) -> Sent:
        """Report that the page of `ask_url` is finished, so that the client stops waiting for it."""
        self._call.url_done(str(key))
        return SENT

    def sample(self, key: str, messages: str | Sequence[JsonObject], *, max_tokens: int = 1000, **more: Any) -> Any:
        """Ask the model of the client for text, which is the `value` of the answer. Used like `ask`.

        MCP has deprecated sampling, and few clients support it: prefer your own model. `more` are further parameters of
        `sampling/createMessage`, such as `systemPrompt`.
        """
        return self._wait_for(self._ask_one(key, Sample(messages, max_tokens, more)))

    def roots(self, key: str = "roots") -> Any:
        """Ask for the open folders of the client: URIs like `file:///home/ada/work`, as the `value`.

        MCP has deprecated roots: prefer `ConfigPaths`, or a parameter.
        """
        return self._wait_for(self._ask_one(key, Roots()))

    def ask_all(self, questions: Mapping[str, Question | tuple[str, AnswerType]]) -> Any:
        """Ask several questions at once: each key has a message and a schema. Returns a dict of answers.

        A `Page`, a `Sample` or a `Roots` may replace the message and the schema.
        """
        return self._wait_for(self._ask(dict(questions)))

    def background(self, *, required: bool = False) -> bool:
        """Continue the call as a task: the client gets a handle, and asks for the result later.

        Returns whether it became a task. If the client does not support tasks, the call continues as before, or fails with
        `required`. Progress becomes the message of the task's status, and a question waits until the client asks for the
        status.
        """
        if not self._call.go_into_background():
            if required:
                raise MissingCapability(self._call.command, _TASKS)
            return False
        return True

    def _wait_for(self, asking: Coroutine[Any, Any, Any]) -> Any:
        call = self._call
        if not call.on_its_loop:
            return call.wait_for(asking)
        if is_stuck(call.thread):
            asking.close()
            raise AskError(f"{call.command} runs on the event loop, where sync code cannot wait; drop thread=False")
        return asking

    async def _ask_one(self, key: str, question: Question | tuple[str, AnswerType]) -> Answer:
        return (await self._ask({key: question}))[key]

    async def _ask(self, questions: Mapping[str, Question | tuple[str, AnswerType]]) -> dict[str, Answer]:
        call, channel = self._call, self._call.channel
        self._check(questions)
        call.asked.update(questions)
        typed = {key: question_of(key, each) for key, each in questions.items()}
        recorded = channel.answers or {}
        missing = {key: question for key, question in typed.items() if key not in recorded}
        if missing:
            shown = {key: self._shown(key, question) for key, question in missing.items()}
            for question in missing.values():
                if question.ask not in channel.asks or (channel.ask is None and channel.answers is None):
                    raise MissingCapability(call.command, question.needs)
            if channel.ask is None:
                raise InputRequired(shown)
            recorded = {**recorded, **await call.off_the_clock(partial(channel.ask, shown))}
        return {key: question.answer(key, recorded.get(key) or {}) for key, question in typed.items()}

    def _shown(self, key: str, question: Question) -> JsonObject:
        """The question with masked secrets. The choices stay unmasked, because the answer must match them."""
        shown = {
            name: each if name == "schema" else self._call.shown_data(each) for name, each in question.shown().items()
        }
        try:
            from_json(to_json({key: shown}), allow_inf_nan=False)
        except ValueError as error:  # also of pydantic, for what JSON has no form for
            raise AskError(f"the question {key!r} cannot be sent as JSON: {error}") from error
        return shown

    def _check(self, keys: Iterable[str]) -> None:
        call = self._call
        if call.over:
            raise AskError(f"{call.command} asked after its call had ended; await the tasks that ask")
        if not call.may_ask:
            raise AskError(
                f"{call.command} is cached or retried, so it may not ask; drop cache_ttl and retry_on, or the question"
            )
        for key in keys:
            if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - an author may write anything
                raise AskError(f"{call.command} asked with the key {key!r}; a key must be a string")
            if key in call.asked:
                raise AskError(f"{call.command} asked {key!r} twice in one call; give every question its own key")


def _as_data(message: Any) -> Any:
    """The message of a log as JSON data; its `repr` if that is impossible, because a log must not end a call."""
    try:
        return to_jsonable_python(message, fallback=repr)
    except ValueError:  # also of pydantic, for other bytes than text, and for data that contains itself
        return repr(message)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond any float
        return False
