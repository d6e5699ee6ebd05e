"""Turns pydantic's errors about arguments into short lines that a model can act on.

Each line has the path, the expected type and the given value. Reads pydantic's errors as plain dicts and never imports
pydantic.
"""

from __future__ import annotations

import ast
import contextlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from prowess.errors import did_you_mean, shortened
from prowess.jsontypes import encodable
from prowess.patterns import lazy_pattern

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = ["MAX_LINES", "problem_lines", "shown"]

MAX_LINES = 20
"""More than a model corrects at once."""
_MAX_READ = 1000
_MAX_ITEMS = 2 * MAX_LINES
"""Bounds the errors to read: an array of a million wrong items gives a million, for each branch of a union."""
_MAX_VALUE = 60
_MAX_PATH = 120
_MAX_LINE = 600
_MAX_NAMES = 15
_MAX_IN_BRANCH = 4


def problem_lines(
    errors: Sequence[ErrorDetails],
    arguments: Mapping[str, Any],
    *,
    allowed: Sequence[str],
    injected: Sequence[str],
    unread: int = 0,
) -> list[str]:
    """One line for each problem, those of whole arguments first. Never raises, whatever the errors hold.

    `allowed` are the names a caller may send, `injected` those that Prowess fills; `unread` is the number of further errors.
    """
    # A default that is made of other fields fails because one of them is wrong.
    errors = [error for error in errors if error["type"] != "default_factory_not_called"] or errors
    # Whole arguments first, so that a long array cannot push a missing argument off the list.
    read = _some_of_each(sorted(errors, key=lambda error: len(error["loc"]) > 1))
    try:
        report = _Report([_problem(error, arguments) for error in read], allowed, injected)
        lines = list(dict.fromkeys(report.lines()))
    except Exception:  # noqa: BLE001 - a value with a broken `__eq__` must not hide the problems
        lines = [f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in read]
    return [_sendable(line) for line in _capped(lines, unread=unread + len(errors) - len(read))]


def _some_of_each(errors: Iterable[ErrorDetails]) -> list[ErrorDetails]:
    """A bounded selection of the errors, in which the items of one array do not crowd out the rest."""
    counts: Counter[tuple[str | int, ...]] = Counter()
    read: list[ErrorDetails] = []
    for error in errors:
        place = tuple(part for part in error["loc"] if not isinstance(part, int))
        counts[place] += 1
        if counts[place] <= _MAX_ITEMS:
            read.append(error)
        if len(read) == _MAX_READ:
            break
    return read


def _capped(lines: list[str], unread: int) -> list[str]:
    if len(lines) <= MAX_LINES and not unread:
        return lines
    shown = lines[: MAX_LINES - 1]
    return [*shown, f"... and {len(lines) - len(shown) + unread} more"]


# --- where: from pydantic's location to a path in the real input ----------------------------------


class _Step(NamedTuple):
    """One part of a location: a key of the input, the tag of a union's branch, or the mark of a mapping's key."""

    part: str | int
    kind: Literal["key", "tag", "mark"] = "key"


_Path = tuple[_Step, ...]


class _Problem(NamedTuple):
    path: _Path
    error: ErrorDetails

    def first_tag(self, start: int) -> int | None:
        """The index of the first branch tag at or after `start`."""
        return next((index for index in range(start, len(self.path)) if self.path[index].kind == "tag"), None)


_MISSING = frozenset("missing missing_argument missing_keyword_only_argument missing_positional_only_argument".split())
_UNKNOWN = frozenset("extra_forbidden unexpected_keyword_argument".split())
_MARK = "[key]"
"""Marks the location of a wrong key of a mapping."""
_ABSENT = object()


def _problem(error: ErrorDetails, arguments: Mapping[str, Any]) -> _Problem:
    loc = error["loc"]
    if error["type"] in _MISSING and loc:
        return _Problem((*_walk(loc[:-1], arguments, error["input"]), _Step(loc[-1])), error)
    return _Problem(_walk(loc, arguments, error["input"]), error)


def _walk(loc: tuple[str | int, ...], arguments: Mapping[str, Any], target: object) -> _Path:
    """Tell keys from branch tags. A part found in the input is a key, unless only reading it as a tag leads to `wanted`."""
    if not loc:
        return ()
    best: _Path | None = None
    seen: set[tuple[int, int]] = set()
    todo: list[tuple[int, Any, _Path]] = [(1, _below(arguments, loc[0]), (_Step(loc[0]),))]
    while todo:
        index, value, path = todo.pop()
        if index == len(loc):
            best = best or path
            if _same(value, target):
                return path
        elif (index, id(value)) not in seen:
            seen.add((index, id(value)))
            part, below = loc[index], _below(value, loc[index])
            if part == _MARK and index == len(loc) - 1:
                todo.append((index + 1, path[-1].part, (*path, _Step(part, "mark"))))
            else:
                todo.append((index + 1, value, (*path, _Step(part, "tag"))))
            if below is not _ABSENT:
                todo.append((index + 1, below, (*path, _Step(part))))
    return best or ()


def _below(value: object, part: str | int) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[Any, Any]", value).get(part, _ABSENT)
    if isinstance(value, (list, tuple)) and isinstance(part, int):
        items = cast("Sequence[Any]", value)
        return items[part] if 0 <= part < len(items) else _ABSENT
    fields: dict[Any, Any] = getattr(cast("object", value), "__dict__", {})
    return fields.get(part, _ABSENT)


def _same(value: object, other: object) -> bool:
    return value is other or (type(value) is type(other) and value == other)


def _path_text(path: Iterable[_Step]) -> str:
    """`filters[2].name`, with tags left out."""
    text = ""
    for part, kind in path:
        if kind == "mark":
            text += " (the key)"
        elif kind == "key" and isinstance(part, str) and part.isidentifier():
            text += f".{part}" if text else part
        elif kind == "key":
            text += f"[{json.dumps(part, ensure_ascii=False)}]" if text else json.dumps(part, ensure_ascii=False)
    if len(text) > _MAX_PATH:
        text = f"{text[: _MAX_PATH // 2]}…{text[-_MAX_PATH // 2 :]}"
    return text or "arguments"


# --- what: lines ----------------------------------------------------------------------------------


class _Report:
    """Turns located problems into lines, one for each place; the branches of a union share one."""

    def __init__(self, problems: Sequence[_Problem], allowed: Sequence[str], injected: Collection[str]) -> None:
        self._problems = problems
        self._allowed = allowed
        self._injected = injected
        self._missing: dict[_Path, list[str]] = {}
        for path, error in problems:
            if error["type"] in _MISSING and path:
                self._missing.setdefault(path[:-1], []).append(str(path[-1].part))

    def lines(self) -> list[str]:
        return self._lines(self._problems, 0)

    def _lines(self, problems: Iterable[_Problem], start: int) -> list[str]:
        """Lines for problems whose paths are settled up to `start`."""
        places: dict[_Path, list[_Problem]] = {}
        for problem in problems:
            tag = problem.first_tag(start)
            places.setdefault(problem.path if tag is None else problem.path[:tag], []).append(problem)
        lines: list[str] = []
        for path, group in places.items():
            tagged = [problem for problem in group if problem.first_tag(start) is not None]
            lines += [self._line(problem) for problem in group if problem.first_tag(start) is None]
            lines += self._union(path, tagged)
        return lines

    def _union(self, path: _Path, problems: list[_Problem]) -> list[str]:
        """The problems of all branches of the union at `path` in one line, or those of a single branch in several."""
        at = len(path)
        branches: dict[_Step, list[_Problem]] = {}
        for problem in problems:
            branches.setdefault(problem.path[at], []).append(problem)
        if len(branches) < 2:
            return self._lines(problems, at + 1)
        here: list[_Problem] = []
        deeper: list[str] = []
        for branch in branches.values():
            if all(step.kind == "tag" for problem in branch for step in problem.path[at:]):
                here += branch
            else:
                deeper.append(_joined(self._lines(branch, at + 1)))
        if not deeper:
            return [f"{_path_text(path)}: {_alternatives(here)}, got {shown(here[0].error['input'])}"]
        parts = [_alternatives(here), *deeper] if here else deeper
        return [f"{_path_text(path)}: fits none of these: {'; or '.join(parts)}"]

    def _line(self, problem: _Problem) -> str:
        path, error = problem
        if error["type"] in _MISSING:
            return f"{_path_text(path)}: required"
        if error["type"] in _UNKNOWN:
            return f"{_path_text(path)}: {self._unknown(path)}"
        return f"{_path_text(path)}: {_alternatives([problem])}, got {shown(error['input'])}"

    def _unknown(self, path: _Path) -> str:
        name = str(path[-1].part) if path else ""
        if len(path) > 1:
            return f"unknown key{did_you_mean(name, self._missing.get(path[:-1], []))}"
        if name in self._injected:
            return "is provided by Prowess and cannot be sent"
        if not self._allowed:
            return "unknown argument; there are none to send"
        near = did_you_mean(name, self._allowed)
        return f"unknown argument{near or '.'} Allowed: {_listed(self._allowed)}"


def _joined(lines: Sequence[str]) -> str:
    """The problems of one branch of a union."""
    more = len(lines) - _MAX_IN_BRANCH
    return " and ".join([*lines[:_MAX_IN_BRANCH], *([f"{more} more"] if more > 0 else [])])


# --- what was expected ----------------------------------------------------------------------------

_PHRASES = {
    kind: phrase
    for phrase, kinds in {
        "an integer": "int_type int_parsing int_from_float",
        "an integer of fewer digits": "int_parsing_size",
        "a number": "float_type float_parsing",
        "a finite number": "finite_number",
        "a decimal number": "decimal_type decimal_parsing",
        "a fraction": "fraction_type fraction_parsing",
        "a complex number": "complex_type complex_str_parsing",
        "true or false": "bool_type bool_parsing",
        "null": "none_required",
        "a string": "string_type string_unicode string_sub_type invalid_key",
        "a string of ASCII characters": "string_not_ascii",
        "a string of bytes": "bytes_type",
        "a string of JSON": "json_type json_invalid",
        "an array": "list_type tuple_type set_type frozen_set_type deque_type iterable_type",
        "an item that a set can hold": "set_item_not_hashable",
        "an object": "dict_type frozen_dict_type ordered_dict_type counter_type mapping_type model_type "
        "model_attributes_type dataclass_type dataclass_exact_type named_tuple_type arguments_type",
        "data that does not contain itself": "recursion_loop recursion_depth_exceeded",
        "a date (YYYY-MM-DD)": "date_type date_parsing date_from_datetime_parsing",
        "a date without a time": "date_from_datetime_inexact",
        "a date in the past": "date_past",
        "a date in the future": "date_future",
        "a time (HH:MM:SS)": "time_type time_parsing",
        "a date and time (ISO 8601)": "datetime_type datetime_parsing datetime_object_invalid "
        "datetime_from_date_parsing",
        "a date and time in the past": "datetime_past",
        "a date and time in the future": "datetime_future",
        "a time without a timezone": "timezone_naive",
        "a time with a timezone": "timezone_aware",
        "a duration (ISO 8601, or a number of seconds)": "time_delta_type time_delta_parsing",
        "a path": "path_type",
        "a URL": "url_type url_parsing url_syntax_violation",
        "a UUID": "uuid_type uuid_parsing",
        "a function": "callable_type",
    }.items()
    for kind in kinds.split()
}
_TEMPLATES = {
    "multiple_of": "a multiple of {multiple_of}",
    "string_pattern_mismatch": "a string matching {pattern}",
    "bytes_invalid_encoding": "a string in {encoding}",
    "timezone_offset": "a timezone offset of {tz_expected} seconds",
    "url_scheme": "a URL with the scheme {expected_schemes}",
    "uuid_version": "a UUID of version {expected_version}",
    "is_instance_of": "an instance of {class}",
    "is_subclass_of": "a subclass of {class}",
}
_COUNTED = {
    "too_short": ("at least", "min_length", "item"),
    "too_long": ("at most", "max_length", "item"),
    "string_too_short": ("a string of at least", "min_length", "character"),
    "string_too_long": ("a string of at most", "max_length", "character"),
    "bytes_too_short": ("at least", "min_length", "byte"),
    "bytes_too_long": ("at most", "max_length", "byte"),
    "url_too_long": ("a URL of at most", "max_length", "character"),
    "decimal_max_digits": ("a decimal number of at most", "max_digits", "digit"),
    "decimal_max_places": ("a decimal number of at most", "decimal_places", "decimal place"),
    "decimal_whole_digits": ("a decimal number of at most", "whole_digits", "digit before the point"),
}
_BOUNDS = {
    "greater_than": (">", "gt"),
    "greater_than_equal": (">=", "ge"),
    "less_than": ("<", "lt"),
    "less_than_equal": ("<=", "le"),
}


def _alternatives(problems: Iterable[_Problem]) -> str:
    """The expectations for the value at one place; a union has several."""
    expected: dict[str, None] = {}
    verdicts: dict[str, None] = {}
    for _, error in problems:
        phrase = _expectation(error)
        if phrase:
            expected[phrase] = None
        else:
            verdicts[_verdict(error)] = None
    words = [f"expected {' or '.join(expected)}"] if expected else []
    return " or ".join([*words, *verdicts])


def _expectation(error: ErrorDetails) -> str:
    """The expected kind of value as a noun; empty if the message of pydantic or a validator is to be shown instead."""
    kind, context = error["type"], error.get("ctx", {})
    try:
        if kind in _TEMPLATES:
            return _TEMPLATES[kind].format_map(context)
        if kind in ("too_long", "too_short") and isinstance(error["input"], str):  # a limit beside a validator
            kind = f"string_{kind}"
        if kind in _COUNTED:
            words, key, noun = _COUNTED[kind]
            return f"{words} {context[key]} {_plural(noun, context[key])}"
        if kind in _BOUNDS:
            sign, key = _BOUNDS[kind]
            return f"{_kind_of(context[key])} {sign} {_number(context[key])}"
        if kind in ("literal_error", "enum"):
            return _one_of(context["expected"])
        if kind in ("union_tag_invalid", "union_tag_not_found"):
            return _tagged(context["discriminator"], context.get("expected_tags", ""))
    except KeyError:
        pass  # an error raised by hand without the usual context: its message is shown
    message = error["msg"]
    return _PHRASES.get(kind) or (message.removeprefix(_INPUT) if message.startswith(_INPUT) else "")


_INPUT = "Input should be "


def _verdict(error: ErrorDetails) -> str:
    """The message of a validator, without pydantic's prefix."""
    prefix = {"value_error": "Value error, ", "assertion_error": "Assertion failed, "}.get(error["type"], "")
    return error["msg"].removeprefix(prefix).strip() or "not valid"


def _plural(noun: str, count: object) -> str:
    first, *rest = noun.split(" ", 1)
    if first == "decimal":
        first, rest = noun, []
    return noun if count == 1 else " ".join([f"{first}s", *rest])


def _kind_of(bound: object) -> str:
    """The kind of the bounded value, which is the type of the bound."""
    return "an integer" if isinstance(bound, int) else "a number" if isinstance(bound, float) else "a value"


def _number(bound: object) -> str:
    return str(bound).removesuffix(".0")


def _tagged(discriminator: str, tags: str) -> str:
    """The expectation of a discriminated union, which a key (named in quotes) or a function of the author decides."""
    tags = _MEMBER.sub("", tags)  # a member of an enum is listed beside the value that a client sends
    if not discriminator.startswith("'"):
        return f"a value of the kind {_one_of(tags)}" if tags else "a value of a known kind"
    key = f"an object with the key {discriminator.replace(chr(39), chr(34))}"
    return f"{key} being {_one_of(tags)}" if tags else key


_LITERAL = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?\d+|True|False|None)"""
_MEMBER = lazy_pattern(rf", <[\w.]+: {_LITERAL}>")
_OR = " or "


def _one_of(choices: str) -> str:
    """Pydantic's `'a', 'b' or 'c'` as JSON; other text stays as it is."""
    try:
        shown = [json.dumps(value, ensure_ascii=False) for value in _values(choices)]
    except TypeError:  # bytes
        shown = []
    if not shown:
        return choices
    return f"one of {_listed(shown)}" if len(shown) > 1 else shown[0]


def _values(choices: str) -> Sequence[object]:
    """The values that pydantic lists; none if the text is not such a list."""
    end = len(choices)
    while end >= 0:  # the last `or` may be part of a string
        text = choices if end == len(choices) else f"{choices[:end]}, {choices[end + len(_OR) :]}"
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return ast.literal_eval(f"[{text}]")
        end = choices.rfind(_OR, 0, end)
    return ()


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


# --- the given value ------------------------------------------------------------------------------


def _type_name(value: object) -> str:
    return f"<{type(value).__name__}>"


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_type_name)


def shown(value: object) -> str:
    """A value as short JSON. Only the shown part is encoded."""
    if isinstance(value, str):
        return json.dumps(value if len(value) < _MAX_VALUE else f"{value[: _MAX_VALUE - 3]}…", ensure_ascii=False)
    text = ""
    try:
        for chunk in _ENCODER.iterencode(value):
            text += chunk
            if len(text) > _MAX_VALUE:
                return f"{text[: _MAX_VALUE - 1]}…"
    except (TypeError, ValueError):  # keys that JSON does not allow, or a value that holds itself
        return f'"{_type_name(value)}"'
    return text


def _sendable(line: str) -> str:
    """One line without lone surrogates, which cannot be sent."""
    line = encodable(" ".join(line.splitlines()))
    return shortened(line, _MAX_LINE)
