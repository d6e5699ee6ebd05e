"""What one call came to, and how it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prowess import Outcome, Runtime, skill_command
from prowess.contract import Contract, OutputShape
from prowess.declaration import declaration_of
from prowess.normalize import Result, text_result
from prowess.outcome import render
from prowess.profiles import BUILT_IN


def contract(**facts: Any) -> Contract:
    return Contract("s.c", "s_c", "s", "c", "", {"type": "object"}, OutputShape({"type": "integer"}), **facts)


def test_a_success_has_a_value():
    """And no meta data, unless there is something to say."""
    outcome = Outcome("s.c", "ok", Result(7, "7", structured=True), contract())
    assert (True, 7, "7", 1, False) == (outcome.ok, outcome.value, outcome.text, outcome.attempts, outcome.cached)
    content = [{"type": "text", "text": "7"}]
    assert {"content": content, "isError": False, "structuredContent": {"result": 7}} == outcome.payload()


def test_structured_content_may_stay_unboxed():
    """For wires that take any JSON value."""
    outcome = Outcome("s.c", "ok", Result(7, "7", structured=True), contract())
    assert 7 == outcome.payload(boxed=False)["structuredContent"]


def test_a_failure_has_none():
    """Its kind is in the meta data."""
    outcome = Outcome("s.c", "timeout", text_result("too late", is_error=True))
    assert (False, None) == (outcome.ok, outcome.value)
    content = [{"type": "text", "text": "too late"}]
    assert {"content": content, "isError": True, "_meta": {"prowess/kind": "timeout"}} == outcome.payload()


def test_meta_data_say_what_is_out_of_the_ordinary():
    """Beside whatever the command itself returned as `_meta`."""
    result = Result(text="x", meta={"mine": 1})
    outcome = Outcome("s.c", "retryable", result, attempts=3, cached=True, retry_after=0.0, data=[1])
    assert {
        "mine": 1,
        "prowess/cached": True,
        "prowess/attempts": 3,
        "prowess/kind": "retryable",
        "prowess/retry_after": 0.0,
        "prowess/data": [1],
    } == outcome.payload()["_meta"]


def test_a_pinned_profile_wins():
    """Over the one that was asked for, and over the default."""
    outcome = Outcome("s.c", "ok", Result(7, "7", structured=True), contract(profile="turul"))
    assert {"output": 7} == outcome.payload("openmcp")["structuredContent"]
    with pytest.raises(KeyError):
        Outcome("s.c", "ok", Result(7, "7", structured=True), contract()).payload("nobody's")


def test_each_profile_shows_what_it_can():
    """Blocks as they are; data boxed or in the text; nothing but text where that is all there is."""
    blocks = ({"type": "text", "text": "a"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"})
    assert list(blocks) == render(Result(blocks=blocks))["content"]
    data = Result(7, "7", structured=True)
    assert '{"output": 7}' == render(data, BUILT_IN["turul"], contract())["content"][0]["text"]
    assert {"content": [{"type": "text", "text": "7"}], "isError": False} == render(data, BUILT_IN["omni"], contract())


async def test_an_outcome_tells_how_long_it_took(tmp_path: Path):
    """Seconds, and the id that the log knows it by."""

    @skill_command
    async def quick() -> int:
        return 1

    async with Runtime.open(tmp_path) as runtime:
        outcome = await runtime.entry_of(declaration_of(quick)).call({})
    assert outcome.duration > 0
    assert ("test_outcome.quick", True) == (outcome.command, bool(outcome.call_id))
