"""No regular expression that sees texts of clients takes long: a short message could hold a host with it.

Every pattern is found in the code, and tried with texts made from its own parts. What is not linear takes hundreds of times
as long on such texts. Takes about ten seconds of processor time.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _constants as of  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pytest

from prowess.contracts.uris import parse_template

ROOT = Path(__file__).parents[2] / "packages"
METHODS = {"search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
LENGTHS = (24, 1_000, 20_000)
"""What is exponential or cubic shows in the shorter texts already, and would never end in the long ones."""
MOST = 0.2
"""Seconds of processor time for one text. Linear patterns take up to 0.03 s for the long ones."""
ATTEMPTS = 5
"""What is not linear takes long each time; a cold cache on a busy processor does not."""
FILES_OF_THEIR_OWN = (
    "prowess.contracts.docstrings",
    "prowess.settings",
    "prowess_host.clients",
    "prowess_host.environments",
    "prowess_host.files.folders",
)
"""What these modules read is written by the author of the project."""
OF_PYDANTIC = "prowess.schemas.adapters"
"""The texts are written by pydantic, which cuts values."""


class Use(NamedTuple):
    """A pattern, and how it is used."""

    place: str
    pattern: re.Pattern[Any]
    method: str


def uses() -> Iterator[Use]:
    """The patterns of all other modules."""
    for room in (ROOT / "prowess-core/src", ROOT / "prowess-host/src"):
        for path in sorted(room.rglob("*.py")):
            name = ".".join(path.relative_to(room).with_suffix("").parts).removesuffix(".__init__")
            source = path.read_text("utf-8")
            if re.search(r"\bre\.", source) and not name.startswith((*FILES_OF_THEIR_OWN, OF_PYDANTIC)):
                yield from _uses_in(name, ast.parse(source))


def _uses_in(name: str, tree: ast.Module) -> Iterator[Use]:
    module = importlib.import_module(name)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, method = node.func.value, node.func.attr
        if method not in METHODS or not isinstance(owner, ast.Name):
            continue
        place = f"{name}:{node.lineno}"
        if owner.id == "re" and isinstance(node.args[0], ast.Constant):
            named = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
            flags = sum(getattr(re, flag) for flag in named & {"MULTILINE", "IGNORECASE", "DOTALL"})
            yield Use(place, re.compile(node.args[0].value, flags), method)
        elif isinstance(found := getattr(module, owner.id, None), re.Pattern):
            yield Use(place, found, method)


def texts(pattern: re.Pattern[Any], length: int) -> Iterator[str]:
    """Parts and pairs of short parts of a pattern, repeated, after a beginning that fits and before an end that does not."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    found: dict[str, None] = {}
    _example(parser.parse(text, pattern.flags if isinstance(pattern.pattern, str) else 0), found)
    longest = sorted(filter(None, found), key=len, reverse=True)
    pairs = ("".join(pair) for pair in itertools.permutations(longest[:-7:-1], 2))
    for pump in dict.fromkeys([*longest[:12], *longest[:-9:-1], *pairs]):
        for start in ("", *longest[:1]):
            yield start + pump * (length // len(pump)) + "\0!"


def _example(parsed: Any, found: dict[str, None]) -> str:
    """A text that fits the parsed pattern. Keeps it, and those of all parts."""
    whole = ""
    for operator, value in parsed:
        part = _example_of(operator, value, found)
        whole += part
        found.update(dict.fromkeys((part, whole)))
    return whole


def _example_of(operator: Any, value: Any, found: dict[str, None]) -> str:
    if operator is of.LITERAL:
        return chr(value)
    if operator is of.BRANCH:
        first, *_ = (_example(branch, found) for branch in value[1])
        return first
    if operator is of.SUBPATTERN:
        return _example(value[3], found)
    if operator in (of.MAX_REPEAT, of.MIN_REPEAT, of.POSSESSIVE_REPEAT):
        return _example(value[2], found) * max(value[0], 1)
    if operator is of.ATOMIC_GROUP:
        return _example(value, found)
    if operator in (of.ASSERT, of.ASSERT_NOT):
        _example(value[1], found)
    if operator is of.IN:
        return _member(value, found)
    return "a" if operator in (of.ANY, of.NOT_LITERAL) else ""


def _member(items: Any, found: dict[str, None]) -> str:
    """A character of a set; all of them are kept."""
    firsts = {of.CATEGORY_DIGIT: "0", of.CATEGORY_SPACE: " "}
    kinds = {
        of.LITERAL: chr,
        of.RANGE: lambda value: chr(value[0]),
        of.CATEGORY: lambda value: firsts.get(value, "a"),
    }
    listed = [kinds[kind](value) for kind, value in items if kind in kinds]
    others = [each for each in "a -0.\n" if each not in listed]
    found.update(dict.fromkeys([*listed, *others]))
    return others[0] if items[0][0] is of.NEGATE else listed[0]


def check(pattern: re.Pattern[Any], method: str, attempts: int = ATTEMPTS) -> None:
    """Fail if one of the texts takes too long."""
    for text in itertools.chain.from_iterable(texts(pattern, length) for length in LENGTHS):
        subject: Any = text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")
        arguments = ("", subject) if method.startswith("sub") and isinstance(subject, str) else (subject,)
        for _ in range(attempts):
            took = seconds_of(getattr(pattern, method), *arguments)
            if took < MOST:
                break
        assert took < MOST, f"{pattern.pattern!r} took {took:.1f} s for {text[:80]!r}…"


def seconds_of(method: Callable[..., Any], *arguments: Any) -> float:
    """The processor time of a search for everything."""
    before = time.thread_time()
    found = method(*arguments)
    if isinstance(found, Iterator):
        deque(found, maxlen=0)
    return time.thread_time() - before


@pytest.mark.parametrize("use", [pytest.param(each, id=f"{each.place}-{each.method}") for each in uses()])
def test_patterns_take_linear_time(use: Use) -> None:
    """Whatever the text is."""
    check(use.pattern, use.method)


@pytest.mark.parametrize("pattern", ["(a+)+!", r"\s+="])
def test_patterns_that_take_longer_are_found(pattern: str) -> None:
    """So the texts are bad enough."""
    with pytest.raises(AssertionError, match="took"):
        check(re.compile(pattern), "search", attempts=1)


@pytest.mark.parametrize(
    "template",
    [
        "x://{a}",
        "x://{a}-{b}/{c}.json",
        "x://{+a}.json",
        "x://{+a}-{b}.json",
        "x://{+a}-{b}.{c}",
        "x://{+a}ab{b}ab{c}/{d}",
        "x://{+a}/{b}-{c}.json",
        "x://{b}-{c}/{+a}",
        "x://{b}.{+a}.{c}.{d}{?e,f}",
    ],
)
def test_templates_of_uris_take_linear_time(template: str) -> None:
    """Their patterns are made from them."""
    check(parse_template(template).pattern, "fullmatch")
