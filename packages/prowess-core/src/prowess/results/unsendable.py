"""Messages about returned values that cannot be sent: the place of the fault, the reason, and the way out."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any, Final, TypeAlias, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from prowess.errors import message_of
from prowess.jsontypes import encodable
from prowess.patterns import lazy_pattern
from prowess.schemas.problems import problem_lines

__all__ = [
    "LONE_SURROGATE",
    "SCALARS",
    "broken",
    "first_inside",
    "kind_name",
    "path_text",
    "problems_of",
    "serializer_message",
    "unsendable",
    "unwritable",
    "unwritten",
]

SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_MOST_PROBLEMS: Final = 5
_ABSENT: Final[Any] = object()
_Path: TypeAlias = "tuple[str | int, ...]"
_Answer = TypeVar("_Answer")
_DEPTH: Final = lazy_pattern(
    r"ValueError: (Maximum serialization depth exceeded|Circular reference detected \(depth exceeded\))"
)
"""The errors of pydantic for too deep nesting; the second one until pydantic-core 2.50."""
_TOO_DEEP: Final = lazy_pattern("Circular reference detected|Maximum serialization depth exceeded")
LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def kind_name(value: object) -> str:
    """The name of a type for messages."""
    return type(value).__qualname__


def unwritten(value: Any, error: BaseException) -> str:
    """The message for an exception during the writing of a result."""
    said = f"the result cannot be written as JSON: {type(error).__name__}: {message_of(error)}"
    try:
        if isinstance(error, (UnicodeEncodeError, TypeError)):
            return unsendable(value) or said
        if isinstance(error, RecursionError) or _TOO_DEEP.search(said):
            circle = _circle(value)
            return _circular(*circle) if circle else _DEPTH.sub("it is nested too deeply", said)
    except Exception:  # noqa: BLE001 - an author's mapping may raise anything when it is looked through
        return said
    return said


def _circular(path: _Path, around: _Path) -> str:
    return (
        f"{path_text(path)}: refers to {path_text(around)}, which contains it, and JSON has no circular data. "
        "Return data without that reference"
    )


def unsendable(value: Any) -> str | None:
    """The place and the reason of a value that JSON or UTF-8 cannot encode, or `None`."""
    found = first_inside(value, _obstacle)
    return f"{path_text(found[0])}: {found[1]}" if found else None


def _obstacle(value: Any) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return f"JSON has no {json.dumps(value)}. Return a finite number, None or a string"
    if isinstance(value, date) and type(value).__name__ == "NaTType":
        return "JSON has no NaT. Return a time, None or a string"  # the missing date of pandas
    if isinstance(value, int):
        try:
            int.__repr__(value)
        except ValueError as error:
            return f"the integer is too long to be sent ({str(error).partition(';')[0]}). Return it as a string"
    for text in cast("Iterable[Any]", value) if isinstance(value, dict) else (value,):
        if isinstance(text, str) and (lone := LONE_SURROGATE.search(text)):
            what = "a key" if isinstance(value, dict) else "the text"
            return f"{what} has the lone surrogate {lone[0]!a}, which UTF-8 cannot hold. Replace it"
    return None


def unwritable(value: Any, culprit: Any) -> str:
    """The message for an object that JSON has no form for, with its place in the value."""
    found = first_inside(value, lambda held: held is culprit or None)
    where = f"{path_text(found[0])}: " if found and found[0] else ""
    remedy = (
        "Return plain data (`str` gives its text), a dataclass or a model, or convert the type in a plugin with the hook "
        "`prowess_render`"
    )
    return f"{where}an object of the type {kind_name(culprit)} cannot be written as JSON. {remedy}"


def first_inside(value: Any, answer_for: Callable[[Any], _Answer | None]) -> tuple[_Path, _Answer] | None:
    """The first inner value for which `asked` returns an answer, searched in containers and fields of objects."""
    seen: set[int] = set()
    waiting: list[tuple[_Path, Any]] = [((), value)]
    while waiting:
        path, held = waiting.pop()
        answer = answer_for(held)
        if answer is not None:
            return path, answer
        if type(held) not in SCALARS and id(held) not in seen:
            seen.add(id(held))
            waiting.extend((((*path, step), inner) for step, inner in reversed(_inside(held))))
    return None


def _circle(value: Any) -> tuple[_Path, _Path] | None:
    """The paths of the first value that contains itself: the inner and the outer one."""
    path: list[str | int] = []
    around = {id(value): 0}
    done: set[int] = set()
    waiting = [iter(_inside(value))]
    while waiting:
        step, held = next(waiting[-1], (0, _ABSENT))
        if held is _ABSENT:
            waiting.pop()
            done.add(around.popitem()[0])
            del path[-1:]
        elif id(held) in around:
            return (*path, step), tuple(path[: around[id(held)]])
        elif type(held) not in SCALARS and id(held) not in done:
            path.append(step)
            around[id(held)] = len(path)
            waiting.append(iter(_inside(held)))
    return None


def _inside(value: Any) -> list[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        return [(str(key), item) for key, item in cast("Mapping[Any, Any]", value).items()]
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return list(enumerate(cast("Iterable[Any]", value)))
    return list(getattr(value, "__dict__", {}).items())


def path_text(path: _Path) -> str:
    """The path of a value inside a result, for messages."""
    steps = (f"[{step}]" if isinstance(step, int) else _key(step) for step in path)
    return encodable("result" + "".join(steps))


def _key(name: str) -> str:
    return f".{name}" if name.isidentifier() else f"[{json.dumps(name, ensure_ascii=False)}]"


def problems_of(error: ValidationError, value: Any) -> list[str]:
    """The problems of a result, in the words that are used for arguments."""
    errors = error.errors(include_url=False)
    for item in errors:
        item["loc"] = ("result", *item["loc"])
    return problem_lines(errors, {"result": value}, allowed=("result",), injected=())


_CALLED: Final = lazy_pattern(r"Error calling function `(?P<name>[^`]+)`: (?P<said>.*)", re.DOTALL)


def serializer_message(error: PydanticSerializationError) -> str:
    """The message of a serializer, without class names and hints of pydantic."""
    text = message_of(error)
    if found := _CALLED.search(text):
        return f"the serializer {found['name']} raised {found['said']}"
    return text


def broken(problems: list[str]) -> str:
    """The message for a value that breaks its declared schema."""
    shown = problems[:_MOST_PROBLEMS]
    more = len(problems) - len(shown)
    lines = "\n".join(f"- {problem}" for problem in [*shown, *([f"... and {more} more"] if more else [])])
    return f"the result breaks the declared output schema:\n{lines}\nReturn what the command declares, or declare what it returns."
