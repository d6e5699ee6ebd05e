"""`Context`: how a command reports, asks, and learns about its own call."""

from __future__ import annotations

import copy
import math
from collections.abc import Coroutine, Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NoReturn, TypeAlias, cast

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from prowess.calls.channel import Call
from prowess.calls.threads import is_stuck
from prowess.errors import AskError, InputRequired, MissingCapability
from prowess.jsontypes import JsonObject, Schema
from prowess.profiles.profile import decode_arguments
from prowess.schemas.adapters import Adapter, Unusable
from prowess.schemas.explicit import validate
from prowess.schemas.steps import const_as_enum, inline_refs, strip_null

__all__ = ["SENT", "Answer", "Context", "Sent"]

_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_VALUE: Final = "value"
_Wanted: TypeAlias = "Schema | type[Any] | None"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person answered."""

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject
    value: Any = None
    """The answer as the Python type that was asked for; `None` unless accepted."""

    @property
    def accepted(self) -> bool:
        """Whether the person gave what was asked for."""
        return self.action == "accept"


class Sent(Coroutine[None, None, None]):
    """What is left of a message that was sent: nothing to wait for, though one may, also in a task.

    Not a coroutine of Python's own, which warns whoever does not await it.
    """

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        """Done at once."""
        yield from ()

    def send(self, value: None, /) -> NoReturn:
        """Done at once."""
        raise StopIteration(value)

    def throw(self, error: Any, *_: Any) -> NoReturn:
        """A task that is cancelled before it began is cancelled."""
        raise error

    def close(self) -> None:
        """Nothing is open."""


SENT: Final = Sent()


class Context:
    """The call a command runs in. Works the same in async code and in the thread of sync code."""

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def call_id(self) -> str:
        """The id of the call. The log shows it beside a traceback."""
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
        """What the caller says about the task that the call belongs to."""
        return self._call.channel.context

    @property
    def uri(self) -> str:
        """The URI that is read, in a resource; elsewhere an empty string."""
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
        """When the call times out, on the clock of `time.monotonic`; `None` while it does not."""
        return self._call.deadline

    def require_capability(self, name: str) -> None:
        """Fail the call unless the client declared a capability, like `"sampling"`.

        Dots reach into what is nested: `"elicitation.url"`.
        """
        found: Any = self._call.channel.capabilities
        for part in name.split("."):
            found = cast("Mapping[str, Any]", found).get(part) if isinstance(found, Mapping) else None
        if found is None or found is False:
            raise MissingCapability(self._call.command, name)

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> Sent:
        """Report progress; awaiting it is optional. Only growing values of `done` are sent."""
        if math.isfinite(done) and (total is None or math.isfinite(total)):
            self._call.report(done, total, None if message is None else self._call.shown(str(message)))
        return SENT

    report_progress = progress

    def log(self, level: str, message: Any) -> Sent:
        """Send a log message, a text or JSON data, to the client, if it wants that level.

        Awaiting it is optional.
        """
        if level not in _LEVELS:
            raise ValueError(f"unknown log level {level!r}; use one of {', '.join(_LEVELS)}")
        data = message if isinstance(message, str) else to_jsonable_python(message, fallback=repr)
        self._call.log(level, self._call.shown_data(data))
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
        """Tell the clients that have subscribed to a resource that it has changed. Awaiting it is optional."""
        self._call.updated(str(uri))
        return SENT

    def ask(self, key: str, message: str, schema: _Wanted = None) -> Any:
        """Ask the person at the client: `answer = await ctx.ask(...)`, without `await` in sync code.

        `schema` is a flat object schema, or a type: bool, str, int, an Enum, a Literal, a dataclass of such. The `key`
        names the question within the call. On some wires a question ends the run and the command starts again from
        the top with the answer at hand, so whatever comes before a question must bear being done twice.
        """
        return self._wait_for(self._ask_one(key, message, schema))

    def ask_all(self, questions: Mapping[str, tuple[str, _Wanted]]) -> Any:
        """Ask several questions at once: each key with its message and schema. Returns a dict of answers."""
        return self._wait_for(self._ask(dict(questions)))

    def _wait_for(self, asking: Coroutine[Any, Any, Any]) -> Any:
        call = self._call
        if not call.on_its_loop:
            return call.wait_for(asking)
        if is_stuck(call.thread):
            asking.close()
            raise AskError(f"{call.command} runs on the event loop, where sync code cannot wait; drop thread=False")
        return asking

    async def _ask_one(self, key: str, message: str, wanted: _Wanted) -> Answer:
        return (await self._ask({key: (message, wanted)}))[key]

    async def _ask(self, wanted: Mapping[str, tuple[str, _Wanted]]) -> dict[str, Answer]:
        call = self._call
        self._check(wanted)
        call.asked.update(wanted)
        asked = {key: _Question(key, call.shown(message), schema) for key, (message, schema) in wanted.items()}
        questions = {key: question.shown for key, question in asked.items()}
        recorded = call.channel.answers
        if recorded is not None:
            missing = {key: shown for key, shown in questions.items() if key not in recorded}
            if missing:
                raise InputRequired(missing)
        elif call.channel.ask is None:
            raise MissingCapability(call.command, "elicitation")
        else:
            recorded = await call.off_the_clock(partial(call.channel.ask, questions))
        return {key: question.answer(recorded.get(key) or {}) for key, question in asked.items()}

    def _check(self, wanted: Iterable[str]) -> None:
        call = self._call
        if not call.may_ask:
            raise AskError(
                f"{call.command} is cached or retried, so it may not ask; drop cache_ttl and retry_on, or the question"
            )
        for key in wanted:
            if key in call.asked:
                raise AskError(f"{call.command} asked {key!r} twice in one call; give every question its own key")


class _Question:
    """A message and what kind of answer is wanted."""

    def __init__(self, key: str, message: str, wanted: _Wanted) -> None:
        self._key = key
        self._adapter: Adapter | None = None
        self._full: Schema = cast("Schema", wanted) if wanted else {"type": "object", "properties": {}}
        self._boxed = False
        if wanted is not None and not isinstance(wanted, dict):
            self._type(wanted)
        shown = self._full if self._adapter is None else strip_null(const_as_enum(inline_refs(self._full)))
        self.shown: JsonObject = {"message": message, "schema": shown}

    def _type(self, wanted: type[Any]) -> None:
        """A type becomes an object schema: a form has fields, so a single value is put in one."""
        try:
            self._adapter = Adapter(wanted)
            self._full = self._adapter.schema("validation")
        except Unusable as error:
            raise AskError(
                f"the question {self._key!r} asks for {wanted!r}, which has no JSON Schema: {error}"
            ) from error
        if inline_refs(self._full).get("type") != "object":
            defs = self._full.pop("$defs", {})
            self._full = {"type": "object", "properties": {_VALUE: self._full}, "required": [_VALUE], "$defs": defs}
            self._boxed = True

    def answer(self, raw: Mapping[str, Any]) -> Answer:
        """A raw answer, checked against what was asked."""
        action, sent = raw.get("action"), raw.get("content")
        content = cast("JsonObject", sent) if isinstance(sent, dict) else {}
        if action != "accept":
            return Answer("decline" if action == "decline" else "cancel", {})
        if self._adapter is None:
            problems = validate(self._full, content)
            if problems:
                raise self._misfit(problems)
            return Answer(action, content, content)
        value = decode_arguments(self._full, content)
        try:
            return Answer(action, content, self._adapter.read(value.get(_VALUE) if self._boxed else value))
        except ValidationError as error:
            raise self._misfit(item["msg"] for item in error.errors(include_url=False)) from error

    def _misfit(self, problems: Iterable[str]) -> AskError:
        return AskError(f"the answer to {self._key!r} does not fit what was asked: {'; '.join(problems)}")
