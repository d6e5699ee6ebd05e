"""A scripted person who answers the questions that a command asks with `ctx.ask`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    """What a person is asked."""

    message: str
    schema: Mapping[str, Any]
    """The form: a flat object schema."""


Reply: TypeAlias = "Refusal | Mapping[str, Any] | bool | float | str | list[str] | Callable[[Question], Any]"
"""A mapping fills the form. Any other value fills its only field. A function is given the question and returns one of these."""


class Person:
    """Gives replies in the order of the script, and remembers what was asked."""

    def __init__(self, *replies: Reply) -> None:
        self.asked: list[Question] = []
        """Every question so far."""
        self._script: list[Reply] = list(replies)
        self._given = 0

    def replies(self, *replies: Reply) -> None:
        """Add replies to the script."""
        self._script += replies

    def answer(self, message: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one question, as MCP puts it: an `action` and, if it is `accept`, a `content`."""
        question = Question(message, schema)
        self.asked.append(question)
        if self._given == len(self._script):
            raise Unanswered(message, self._given)
        reply = self._script[self._given]
        self._given += 1
        return _answer(question, reply(question) if callable(reply) else reply)


def _answer(question: Question, reply: Any) -> dict[str, Any]:
    if isinstance(reply, Refusal):
        return {"action": reply.action}
    if isinstance(reply, Mapping):
        return {"action": "accept", "content": dict(cast("Mapping[str, Any]", reply))}
    fields = list(question.schema.get("properties", {}))
    if len(fields) != 1:
        raise TypeError(
            f"{reply!r} cannot fill the form of {question.message!r}, which has the fields {fields}; reply with a dict"
        )
    return {"action": "accept", "content": {fields[0]: reply}}
