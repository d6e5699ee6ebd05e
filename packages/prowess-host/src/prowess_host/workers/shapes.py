"""Validates the messages of workers: contracts, views, results and questions, as `docs/link.md` describes them.

Pure functions over JSON data, which raise `ValueError` for data of another shape. The host uses them for limited workers,
so that clients get nothing that they would reject or misread.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from prowess.contracts.kinds import COMPLETION, KINDS, PROMPT, RESOURCE
from prowess.contracts.visible import visible
from prowess.jsontypes import JsonObject

__all__ = [
    "KINDS_OF_OUTCOMES",
    "OUTCOME",
    "check_contract",
    "check_meta",
    "check_payload",
    "check_view",
    "questions",
]

OUTCOME: Final = "outcome"
"""The kind of answer to a call without a client: an outcome instead of a payload."""
_Check: TypeAlias = "Callable[[Any], bool]"
_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_PLACE: Final = re.compile(r"(?s).*:\d{1,9}|")
_PAGE: Final = re.compile(r"https?://[!-~]+")
_OK: Final = "ok"
_KIND: Final = "prowess/kind"
KINDS_OF_OUTCOMES: Final = frozenset(
    (
        _OK,
        "input",
        "failed",
        "crashed",
        "retryable",
        "timeout",
        "worker_lost",
        "busy",
        "output",
        "unknown",
        "input_required",
    )
)
"""As in `prowess.calls.outcome`, which is too heavy to import for a host."""


def _text(value: Any) -> bool:
    return type(value) is str


def _flag(value: Any) -> bool:
    return type(value) is bool


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _amount(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value < 2**31


def _mapping(value: Any) -> bool:
    return type(value) is dict


def _name(value: Any) -> bool:
    return type(value) is str and _NAME.fullmatch(value) is not None


def _maybe(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


def _each(check: _Check) -> _Check:
    return lambda value: type(value) is list and all(map(check, cast("list[Any]", value)))


def _one_of(values: object) -> _Check:
    return lambda value: type(value) is str and value in cast("frozenset[str]", values)


def _like(pattern: re.Pattern[str]) -> _Check:
    return lambda value: type(value) is str and pattern.fullmatch(value) is not None


def _object(checks: Mapping[str, _Check], *needed: str, more: bool = False) -> _Check:
    """A check for an object: known members pass their checks, needed ones exist, and others only if `more`."""

    def check(value: Any) -> bool:
        if type(value) is not dict or any(name not in value for name in needed):
            return False
        items = cast("JsonObject", value).items()
        return all(checks[name](item) if name in checks else more for name, item in items)

    return check


def _demand(check: _Check, value: Any, what: str) -> None:
    if not check(value):
        raise ValueError(what)


# Contracts


_PROPERTIES: Final = _object(
    {"properties": lambda value: _mapping(value) and all(map(_mapping, value.values()))}, more=True
)
_ICON: Final = _object({"src": _text, "mimeType": _text, "sizes": _each(_text)}, "src", more=True)
_CONTRACT: Final = _object(
    {
        **dict.fromkeys(("id", "skill", "name", "description", "summary", "returns", "category", "uri"), _text),
        "wire_name": _name,
        "input_schema": _PROPERTIES,
        "output": _object(
            {
                "schema": _maybe(_mapping),
                "explicit": _flag,
                "field": _maybe(_text),
                "type_name": _maybe(_text),
                "text": _flag,
                "content": _flag,
            }
        ),
        "title": _maybe(_text),
        "hints": _object(dict.fromkeys(("read_only", "destructive", "idempotent", "open_world"), _maybe(_flag))),
        "policies": _object(
            {
                "retry_on": _each(_text),
                "max_attempts": _count,
                "cache_ttl": _amount,
                "timeout": _maybe(lambda value: _amount(value) and value > 0),
                "concurrency": _maybe(lambda value: _count(value) and value > 0),
                "thread": _maybe(_flag),
                "run_on": _text,
            },
            "retry_on",
        ),
        "aliases": _each(_name),
        "icons": _each(_ICON),
        "meta": _mapping,
        "profile": _maybe(_text),
        **dict.fromkeys(("input_explicit", "in_thread"), _flag),
        **dict.fromkeys(("tags", "injected", "inject_settings", "warnings"), _each(_text)),
        "source": _like(_PLACE),
        "kind": _one_of(KINDS),
        "mime_type": _maybe(_text),
        "completions": lambda value: _mapping(value) and all(map(_maybe(_each(_text)), value.values())),
    }
)


def _root(value: Any) -> bool:
    """Whether a schema is of type object, as clients require at the root."""
    return _PROPERTIES(value) and cast("JsonObject", value).get("type") == "object"


def check_contract(contract: Any) -> None:
    """Check a contract."""
    _demand(_CONTRACT, contract, "a contract of another shape")


def check_view(view: Any) -> None:
    """Check the schemas for clients: a client may reject the whole list for one malformed definition."""
    _demand(_each(_maybe(_mapping)), view, "a view of another shape")
    inputs, boxed, *_ = view
    _demand(_root, inputs, 'an input schema whose type is not "object"')
    _demand(_maybe(_root), boxed, 'an output schema whose type is not "object"')


# Results


_MORE: Final[Mapping[str, _Check]] = {"_meta": _mapping, "annotations": _mapping}
_HELD: Final = {"uri": _text, "mimeType": _text, "_meta": _mapping}
_WITH_TEXT: Final = _object({**_HELD, "text": _text}, "uri", "text")
_WITH_BYTES: Final = _object({**_HELD, "blob": _text}, "uri", "blob")
_LINK: Final = {"name": _text, "title": _text, "description": _text, "size": _count, "icons": _each(_ICON)}
_BYTES: Final = _object({"type": _text, "data": _text, "mimeType": _text, **_MORE}, "data", "mimeType")


def _contents(value: Any) -> bool:
    return _WITH_TEXT(value) or _WITH_BYTES(value)


_BLOCKS: Final[Mapping[str, _Check]] = {
    "text": _object({"type": _text, "text": _text, **_MORE}, "text"),
    "image": _BYTES,
    "audio": _BYTES,
    "resource": _object({"type": _text, "resource": _contents, **_MORE}, "resource"),
    "resource_link": _object({**_HELD, "type": _text, **_LINK, **_MORE}, "uri", "name"),
}


def _block(value: Any) -> bool:
    kind: object = cast("JsonObject", value).get("type") if type(value) is dict else None
    return isinstance(kind, str) and kind in _BLOCKS and _BLOCKS[kind](value)


_CONTENT: Final = {"content": _each(_block), "isError": _flag}
_TOOL: Final = _object({**_CONTENT, "structuredContent": lambda _: True}, "content")
_BOXED: Final = _object({**_CONTENT, "structuredContent": _mapping}, "content")
_FAILURE: Final = _object({**_CONTENT, "isError": lambda value: value is True}, "content", "isError")
_MESSAGE: Final = _object({"role": _one_of(("user", "assistant")), "content": _block}, "role", "content")
_MESSAGES: Final = _object({"description": _text, "messages": _each(_MESSAGE)}, "messages")
_VALUES: Final = _object({"values": _each(_text), "total": _count, "hasMore": _flag}, "values")
_PAYLOADS: Final[Mapping[str, _Check]] = {
    RESOURCE: _object({"contents": _each(_contents)}, "contents"),
    PROMPT: _MESSAGES,
    COMPLETION: _object({"completion": _VALUES}, "completion"),
}
_RESULT: Final = _object(
    {
        "value": lambda _: True,
        "text": _text,
        "blocks": _maybe(_each(_block)),
        **dict.fromkeys(("structured", "is_error", "whole", "pair"), _flag),
        "meta": _mapping,
    },
    "text",
)
_ANSWER: Final = _object({**_CONTENT, "result": _RESULT}, "content", "result")
_OF_VALUES: Final[Mapping[str, _Check]] = {PROMPT: _MESSAGES, COMPLETION: _each(_text)}
"""The check for the value of an outcome, by kind."""
_META: Final = _object(
    {
        _KIND: _one_of(KINDS_OF_OUTCOMES),
        "prowess/attempts": _count,
        "prowess/cached": _flag,
        "prowess/decoded": _each(_text),
        "prowess/retry_after": _maybe(_amount),
        "prowess/duration": _amount,
        "prowess/call_id": _text,
        "prowess/problems": _each(_text),
        "prowess/uri": _text,
    },
    more=True,
)


def check_payload(payload: JsonObject, meta: JsonObject, expected: str, kind: str, *, boxed: bool) -> None:
    """Check the result of a call of this kind. `expected` is `OUTCOME` or the kind."""
    if expected == OUTCOME:
        _demand(_ANSWER, payload, "an outcome of another shape")
        if meta[_KIND] == _OK and kind in _OF_VALUES:
            _demand(_OF_VALUES[kind], payload["result"].get("value"), "a value of another shape")
    elif expected not in _PAYLOADS:
        _demand(_BOXED if boxed else _TOOL, payload, "a result of another shape")
    elif not _FAILURE(payload):
        _demand(_PAYLOADS[expected], payload, f"a {expected} of another shape")


def check_meta(meta: JsonObject) -> None:
    """Check the facts of a call that the host reads."""
    _demand(_META, meta, "facts of another shape")


# Questions and other texts for people


_QUESTIONS: Final[Mapping[str, Mapping[str, _Check]]] = {
    "form": {"message": _text, "schema": _PROPERTIES},
    "url": {"message": _text, "url": _like(_PAGE)},
    "sample": {"params": _object({"messages": _each(_mapping)}, "messages", more=True)},
    "roots": {},
}


def questions(sent: JsonObject) -> JsonObject:
    """The questions by key, reduced to the members of their kinds, with hidden characters made visible."""
    found: JsonObject = {}
    for key, question in sent.items():
        ask = question.get("ask", "form")
        checks = _QUESTIONS[ask]
        kept = {name: question[name] for name in checks}
        _demand(_object(checks), kept, "a question of another shape")
        found[key] = {"ask": ask, **visible(kept)}
    return found
