"""Questions of a command to its client: a form, a page to visit, a text of the client's model, the client's folders.

Each question says how it is shown on the link, and reads the raw answer: an `action`, and a `content` if it was accepted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from pydantic import ValidationError

from prowess.errors import AskError
from prowess.frozen import frozen
from prowess.jsontypes import JsonObject, Schema, new_object
from prowess.profiles.profile import decode_arguments
from prowess.schemas.adapters import Adapter, Unusable
from prowess.schemas.explicit import validate
from prowess.schemas.steps import const_as_enum, inline_refs, strip_null

__all__ = ["Answer", "AnswerType", "Form", "Page", "Question", "Roots", "Sample", "question_of"]

AnswerType: TypeAlias = "Schema | type[Any] | None"
_VALUE: Final = "value"
_WEB: Final = ("http", "https")


@frozen
class Answer:
    """The answer to a question."""

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject
    """The content as the client sent it."""
    value: Any = None
    """The answer as the Python type that was asked for; `None` unless accepted."""

    @property
    def accepted(self) -> bool:
        """Whether the user accepted the question."""
        return self.action == "accept"


class Question(ABC):
    """A request that only the client or its user can answer."""

    ask: ClassVar[str]
    """The kind of the question on the link."""
    needs: ClassVar[str]
    """The capability that the client must have declared; dots separate nested names."""

    @abstractmethod
    def shown(self) -> JsonObject:
        """The question on the link."""

    @abstractmethod
    def value(self, content: JsonObject) -> Any:
        """The value of an accepted answer. Raises `ValueError` if it is invalid."""

    def answer(self, key: str, raw: Mapping[str, Any]) -> Answer:
        """Validate a raw answer against the question."""
        action, sent = raw.get("action"), raw.get("content")
        content = cast("JsonObject", sent) if isinstance(sent, dict) else {}
        if action != "accept":
            return Answer("decline" if action == "decline" else "cancel", {})
        try:
            return Answer(action, content, self.value(content))
        except ValueError as error:
            raise AskError(f"the answer to {key!r} does not match the schema of the question: {error}") from error


class Form(Question):
    """A message, and a form with flat fields."""

    ask = "form"
    needs = "elicitation"

    def __init__(self, key: str, message: str, answer: AnswerType) -> None:
        self._message = message
        self._adapter: Adapter | None = None
        self._full: Schema = cast("Schema", answer) if answer else {"type": "object", "properties": {}}
        self._boxed = False
        if answer is not None and not isinstance(answer, dict):
            self._type(key, answer)
        self._schema = self._full if self._adapter is None else strip_null(const_as_enum(inline_refs(self._full)))
        for name, member in cast("Mapping[str, Any]", self._schema.get("properties", {})).items():
            if not _is_flat(member):
                raise AskError(
                    f"the question {key!r} has the field {name!r}, which forms do not support: a field is a string, a number, "
                    "a boolean, a choice, or a list of choices"
                )

    def _type(self, key: str, annotation: type[Any]) -> None:
        """Make an object schema from a type. A single value becomes a field, because a form has fields."""
        try:
            self._adapter = Adapter(annotation)
            self._full = self._adapter.schema("validation")
        except Unusable as error:
            raise AskError(
                f"the question {key!r} asks for {annotation!r}, which has no JSON Schema: {error}"
            ) from error
        if inline_refs(self._full).get("type") != "object":
            defs = self._full.pop("$defs", {})
            self._full = {"type": "object", "properties": {_VALUE: self._full}, "required": [_VALUE], "$defs": defs}
            self._boxed = True

    def shown(self) -> JsonObject:
        """The message and the schema of the form."""
        return {"message": self._message, "schema": self._schema}

    def value(self, content: JsonObject) -> Any:
        """A value of the requested type; for a schema, the fields with the defaults of omitted ones."""
        if self._adapter is None:
            fields = cast("Mapping[str, Any]", self._full.get("properties", {}))
            defaults = {name: each["default"] for name, each in fields.items() if "default" in each}
            filled = {**defaults, **content}
            _refuse_problems(validate(self._full, filled))
            return filled
        value = decode_arguments(self._full, content)
        try:
            return self._adapter.read(value.get(_VALUE) if self._boxed else value)
        except ValidationError as error:
            _refuse_problems(item["msg"] for item in error.errors(include_url=False))


@frozen
class Page(Question):
    """A page for the user to visit, for data that must not pass through the client, such as a password."""

    ask = "url"
    needs = "elicitation.url"

    message: str
    url: str

    def shown(self) -> JsonObject:
        """The message and the URL."""
        return {"ask": self.ask, "message": self.message, "url": self.url}

    def value(self, content: JsonObject) -> None:
        """Whether the user agreed to visit the page. Only the page knows the result of the visit."""


@frozen
class Sample(Question):
    """A request to the client's model for text. The protocol has deprecated this, and few clients support it.

    `messages` is a prompt, or a list of messages of MCP. `more` are further parameters of
    `sampling/createMessage`.
    """

    ask = "sample"
    needs = "sampling"

    messages: str | Sequence[JsonObject]
    max_tokens: int = 1000
    more: JsonObject = field(default_factory=new_object)

    def shown(self) -> JsonObject:
        """The parameters of the request."""
        messages = self.messages
        if isinstance(messages, str):
            messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
        params = {"messages": list(messages), "maxTokens": self.max_tokens, **self.more}
        return {"ask": self.ask, "params": params}

    def value(self, content: JsonObject) -> str:
        """The text of the model's response."""
        blocks = content.get("content")
        parts = cast("list[Any]", blocks) if isinstance(blocks, list) else [blocks]
        texts = [each["text"] for each in parts if isinstance(each, dict) and isinstance(each.get("text"), str)]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if not texts:
            raise ValueError("the response has no text")
        return "\n".join(cast("list[str]", texts))


@frozen
class Roots(Question):
    """The folders that the client has open. The protocol has deprecated this."""

    ask = "roots"
    needs = "roots"

    def shown(self) -> JsonObject:
        """A request for roots has no parameters."""
        return {"ask": self.ask}

    def value(self, content: JsonObject) -> list[str]:
        """The URIs of the folders."""
        roots = content.get("roots")
        if not isinstance(roots, list):
            raise ValueError("the response has no list of roots")  # noqa: TRY004 - it becomes an AskError, as every misfit
        found = cast("list[Any]", roots)
        return [each["uri"] for each in found if isinstance(each, dict) and isinstance(each.get("uri"), str)]  # pyright: ignore[reportUnknownMemberType]


def question_of(key: str, question: Question | tuple[str, AnswerType]) -> Question:
    """Make a question object: a message with a schema or type becomes a form."""
    if not isinstance(question, Question):
        if not (isinstance(question, tuple) and len(question) == 2 and isinstance(question[0], str)):  # pyright: ignore[reportUnnecessaryIsInstance,reportUnnecessaryComparison] - an author may write anything
            raise AskError(
                f"the question {key!r} has no message; write a key, a message and a type, as in "
                "ctx.ask('name', 'Your name?', str)"
            )
        return Form(key, *question)
    if isinstance(question, Page):
        parts = urlsplit(question.url)
        if parts.scheme not in _WEB or not parts.hostname:
            raise AskError(
                f"the question {key!r} has the invalid URL {question.url!r}; give a URL like https://example.org/form"
            )
    return question


def _is_flat(schema: Any) -> bool:
    """Whether forms support a field."""
    if not isinstance(schema, dict):
        return True
    known = cast("Mapping[str, Any]", schema)
    if known.get("type") != "array":
        return known.get("type") != "object"
    items = known.get("items")
    return isinstance(items, dict) and any(word in items for word in ("enum", "anyOf", "oneOf"))


def _refuse_problems(problems: Iterable[str]) -> None:
    text = "; ".join(problems)
    if text:
        raise ValueError(text)
