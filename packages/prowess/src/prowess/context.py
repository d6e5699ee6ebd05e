"""`Context`: what a command can say, ask and know about the call it runs in."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import anyio
from pydantic import ValidationError

from prowess.adapters import Adapter
from prowess.call import Call
from prowess.errors import AskError, InputRequired
from prowess.jsontypes import Json, JsonObject, Schema
from prowess.schemas.explicit import validate
from prowess.schemas.steps import const_as_enum, inline_refs, strip_null

__all__ = ["Answer", "Context"]

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_VALUE: Final = "value"
Wanted: TypeAlias = "Schema | type[Any] | None"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person answered: `action` is `accept`, `decline` or `cancel`."""

    action: str
    content: JsonObject
    value: Any = None
    """The answer as the Python type that was asked for; `None` unless accepted."""

    @property
    def accepted(self) -> bool:
        return self.action == "accept"


class Context:
    """The call a command runs in. Works the same in async code and in the thread of sync code."""

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def call_id(self) -> str:
        """The id that also stands in the log beside a traceback."""
        return self._call.id

    @property
    def trace_id(self) -> str:
        """The caller's trace id, or an empty string."""
        return self._call.channel.trace_id

    @property
    def metadata(self) -> JsonObject:
        """What the caller sent along with the call."""
        return self._call.channel.metadata

    @property
    def client_name(self) -> str:
        """The name the client gave itself, or an empty string."""
        return self._call.channel.client_name

    @property
    def capabilities(self) -> JsonObject:
        """What the client declared it can do."""
        return self._call.channel.capabilities

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this call any more. Sync code that runs long should look now and then."""
        return self._call.cancelled.is_set()

    @property
    def deadline(self) -> float | None:
        """When the call times out, on the clock of `time.monotonic`."""
        return self._call.deadline

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress. A `done` that does not grow is not sent."""
        self._call.report(done, total, message)

    def log(self, level: str, message: Any) -> None:
        """Send a log message to the client, if it wants that level."""
        if level not in LEVELS:
            msg = f"unknown log level {level!r}; use one of {', '.join(LEVELS)}"
            raise ValueError(msg)
        self._call.on_loop(self._call.channel.log, level, message)

    def ask(self, key: str, message: str, schema: Wanted = None) -> Any:
        """Ask the person at the client: `answer = await ctx.ask(...)`, without `await` in sync code.

        `schema` is a flat object schema, or a type: bool, str, int, an Enum, a Literal, a dataclass of such. The `key`
        names the question within the call. On some wires a question ends the run and the command starts again from
        the top with the answer at hand, so whatever comes before a question must bear being done twice.
        """
        asked = {key: _Question(message, schema)}
        if threading.get_ident() == self._call.loop_thread:
            return self._ask_one(key, asked)
        return anyio.from_thread.run(self._ask_one, key, asked)

    def ask_all(self, questions: Mapping[str, tuple[str, Wanted]]) -> Any:
        """Ask several things at once: each key with its message and schema, giving a dict of answers."""
        asked = {key: _Question(message, schema) for key, (message, schema) in questions.items()}
        if threading.get_ident() == self._call.loop_thread:
            return self._ask(asked)
        return anyio.from_thread.run(self._ask, asked)

    async def _ask_one(self, key: str, asked: dict[str, _Question]) -> Answer:
        return (await self._ask(asked))[key]

    async def _ask(self, asked: dict[str, _Question]) -> dict[str, Answer]:
        call = self._call
        self._check(asked)
        call.asked.update(asked)
        questions = {key: question.shown() for key, question in asked.items()}
        recorded = call.channel.answers
        if recorded is not None:
            missing = {key: shown for key, shown in questions.items() if key not in recorded}
            if missing:
                raise InputRequired(missing)
            raw: Mapping[str, JsonObject] = recorded
        else:
            ask = call.channel.ask
            assert ask is not None  # noqa: S101 - _check refused otherwise
            raw = await call.off_the_clock(lambda: ask(questions))
        return {key: question.answer(key, raw[key]) for key, question in asked.items()}

    def _check(self, asked: Mapping[str, object]) -> None:
        call = self._call
        if not call.may_ask:
            msg = f"{call.command} is cached or retried, so it may not ask; drop cache_ttl and retry_on, or the question"
            raise AskError(msg)
        if call.channel.ask is None and call.channel.answers is None:
            msg = f"{call.command} has to ask the user ({', '.join(asked)}), but this client cannot show questions"
            raise AskError(msg)
        for key in asked:
            if key in call.asked:
                msg = f"{call.command} asked {key!r} twice in one call; give every question its own key"
                raise AskError(msg)


class _Question:
    """A message and what kind of answer is wanted."""

    def __init__(self, message: str, wanted: Wanted) -> None:
        self.message = message
        self.adapter = None if wanted is None or isinstance(wanted, dict) else Adapter(wanted)
        self.schema, self.boxed = self._form(wanted)

    def _form(self, wanted: Wanted) -> tuple[Schema, bool]:
        if self.adapter is None:
            return cast("Schema", wanted) if wanted else {"type": "object", "properties": {}}, False
        schema = strip_null(const_as_enum(inline_refs(self.adapter.schema("validation"))))
        if schema.get("type") == "object":
            return schema, False
        return {"type": "object", "properties": {_VALUE: schema}, "required": [_VALUE]}, True

    def shown(self) -> JsonObject:
        return {"message": self.message, "schema": self.schema}

    def answer(self, key: str, raw: JsonObject) -> Answer:
        """A raw answer, checked against what was asked."""
        action = str(raw.get("action", "cancel"))
        content: JsonObject = raw.get("content") or {}
        if action != "accept":
            return Answer(action, {})
        problems = validate(self.schema, content)
        value: Json = content.get(_VALUE) if self.boxed else content
        if not problems and self.adapter is not None:
            try:
                return Answer(action, content, self.adapter.read(value))
            except ValidationError as error:
                problems = [str(item["msg"]) for item in error.errors(include_url=False)]
        if problems:
            msg = f"the answer to {key!r} does not fit what was asked: {'; '.join(problems)}"
            raise AskError(msg)
        return Answer(action, content, value)
