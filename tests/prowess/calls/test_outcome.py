"""What one call came to, and how it is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prowess import Outcome, Runtime, skill_command
from prowess.calls.outcome import read_outcome, render, write_outcome
from prowess.contracts.contract import Contract, OutputShape
from prowess.contracts.declaration import declaration_of
from prowess.profiles.profile import BUILT_IN
from prowess.results.normalize import Result, text_result


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


@pytest.mark.parametrize(
    "boxed, profile, shows", [(True, None, True), (False, "portable", True), (True, "omni", False)]
)
async def test_an_outcome_knows_whether_data_was_promised(
    tmp_path: Path, boxed: bool, profile: str | None, shows: bool
):
    """By the output schema that clients of the profile see. Nothing is promised of a command that nobody knows."""

    @skill_command
    def listed() -> list[int]:
        return [1]

    async with Runtime.open(tmp_path) as runtime:
        declared = declaration_of(listed)
        assert declared is not None
        outcome = await runtime.entry_of(declared).call({})
        assert shows == outcome.shows_schema(profile, boxed=boxed)
        assert not (await runtime.call("nobody.knows")).shows_schema(profile, boxed=boxed)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("s.c", "ok", Result(7, "7", structured=True), contract(), cached=True, duration=0.5, call_id="1"),
        Outcome("s.c", "ok", Result(text="x", blocks=({"type": "text", "text": "x"},), meta={"mine": 1})),
        Outcome("s.c", "ok", Result(blocks=())),
        Outcome("s.c", "retryable", text_result("later", is_error=True), attempts=3, retry_after=0.5, data={"a": [1]}),
        Outcome("s.c", "input", text_result("bad", is_error=True), problems=("a: bad", "b: bad"), decoded=("c",)),
    ],
)
def test_an_outcome_goes_from_one_process_to_another(outcome: Outcome):
    """As JSON, and comes out the same, with the same payload in every profile."""
    facts, body = json.loads(json.dumps(write_outcome(outcome)))
    read = read_outcome(outcome.command, facts, body, outcome.contract)
    assert outcome == read
    for profile in BUILT_IN:
        assert outcome.payload(profile) == read.payload(profile)


def test_a_failure_without_an_outcome_is_read_as_one():
    """Hosts answer in the place of a worker with a payload and a kind."""
    body = {"content": [{"type": "text", "text": "too late"}], "isError": True}
    read = read_outcome("s.c", {"prowess/kind": "timeout"}, body)
    assert Outcome("s.c", "timeout", text_result("too late", is_error=True)) == read
