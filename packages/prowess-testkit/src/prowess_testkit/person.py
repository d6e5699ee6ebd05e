"""A scripted person who answers the questions of commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast

from prowess_testkit.errors import Unanswered

__all__ = ["CANCEL", "DECLINE", "Person", "Question", "Refusal", "Reply"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reply without an answer."""

    action: Literal["decline", "cancel"]


DECLINE: Final = Refusal("decline")
"""The person says no."""
CANCEL: Final = Refusal("cancel")
"""The person closes the form."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the person or the client."""

    message: str
    schema: Mapping[str, Any]
    """The form: a flat object schema."""
    url: str = ""
    """The URL of the page to visit."""
    method: str = "elicitation/create"
    """The method: `elicitation/create` for a form or a page, `sampling/createMessage`, or `roots/list`."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The parameters of that request."""


Reply: TypeAlias = "Refusal | Mapping[str, Any] | bool | float | str | list[str] | Callable[[Question], Any]"
"""A mapping fills the form. Any other value fills its only field. A function gets the question and returns one of these.

For a page, `True` agrees to visit it. For sampling, a string is the text of the model. For roots, a list has their URIs.
"""


class Person:
    """Gives replies in the order of the script, and keeps the questions."""

    def __init__(self, *replies: Reply) -> None:
        self.asked: list[Question] = []
        """Every question so far."""
        self._script: list[Reply] = list(replies)
        self._given = 0

    def replies(self, *replies: Reply) -> None:
        """Add replies to the script."""
        self._script += replies

    def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one request of a server: for a form an `action` and perhaps a `content`."""
        question = Question(
            str(params.get("message", "")),
            params.get("requestedSchema", {}),
            str(params.get("url", "")),
            method,
            params,
        )
        self.asked.append(question)
        if self._given == len(self._script):
            raise Unanswered(question.message or method, self._given)
        reply = self._script[self._given]
        self._given += 1
        return _answer(question, reply(question) if callable(reply) else reply)


def _answer(question: Question, reply: Any) -> dict[str, Any]:
    if question.method == "sampling/createMessage" and isinstance(reply, str):
        return {"role": "assistant", "content": {"type": "text", "text": reply}, "model": "scripted"}
    if question.method == "roots/list" and isinstance(reply, list):
        return {"roots": [{"uri": uri} for uri in cast("list[str]", reply)]}
    if question.method != "elicitation/create" and isinstance(reply, Mapping):
        return dict(cast("Mapping[str, Any]", reply))
    if isinstance(reply, Refusal):
        return {"action": reply.action}
    if question.url and reply is True:
        return {"action": "accept"}
    if isinstance(reply, Mapping):
        return {"action": "accept", "content": dict(cast("Mapping[str, Any]", reply))}
    fields = list(question.schema.get("properties", {}))
    if len(fields) != 1:
        raise TypeError(
            f"{reply!r} cannot fill the form of {question.message!r}, which has the fields {fields}; reply with a dict"
        )
    return {"action": "accept", "content": {fields[0]: reply}}
