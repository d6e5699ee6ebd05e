"""What the answer to a call should be, and what an answer says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from clients import Message

__all__ = ["KIND", "Expect", "failed", "finished_or", "kind_of", "listed", "not_of", "structured", "text_of", "value"]

KIND = "prowess/kind"
Expect = Callable[[Message], str]
"""What is wrong with a result; nothing if it is right."""


def text_of(result: Message) -> str:
    """The first text of a result."""
    return next((block["text"] for block in result["content"] if block["type"] == "text"), "")


def kind_of(result: Message) -> str | None:
    """How a call failed."""
    return result.get("_meta", {}).get(KIND)


def structured(result: Message) -> Message:
    """The value of a result, as every revision can show it."""
    return json.loads(text_of(result))


def not_of(token: str, result: Message) -> str:
    """Whether a success is that of another call."""
    if token and not result.get("isError") and text_of(result) != token:
        found = structured(result)
        if token not in (found if isinstance(found, list) else [found.get("token")]):
            return "the answer to another call"
    return ""


def value(**expected: Any) -> Expect:
    """A success that holds these values, and no other."""

    def check(result: Message) -> str:
        if result.get("isError"):
            return "a success"
        found = structured(result)
        wrong = [name for name, wanted in expected.items() if found.get(name) != wanted]
        return f"these values are expected: {', '.join(wrong)}" if wrong else ""

    return check


def listed(token: str, n: int) -> Expect:
    """A list of tokens."""

    def check(result: Message) -> str:
        if result.get("isError") or json.loads(text_of(result)) != [token] * n:
            return f"{n} times {token}"
        return ""

    return check


def failed(text: str, *kinds: str) -> Expect:
    """A failure that says this, of one of these kinds."""

    def check(result: Message) -> str:
        if not result.get("isError") or text not in text_of(result):
            return f"a failure that says {text!r}"
        if kinds and kind_of(result) not in kinds:
            return f"a failure of the kind {' or '.join(kinds)}"
        return ""

    return check


def finished_or(expect: Expect) -> Expect:
    """As expected, or a success: a host that stood still past the timeout passes on the answer that has come meanwhile."""

    def check(result: Message) -> str:
        return expect(result) if result.get("isError") else ""

    return check
