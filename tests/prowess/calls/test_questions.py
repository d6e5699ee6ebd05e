"""What a command can ask its client for, beside plain forms: pages, texts of a model, folders; and calls that let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from patience import PATIENCE

from prowess import Context, Outcome, Page, Roots, Runtime, Sample, skill_command
from prowess.calls.channel import Channel, Questions
from prowess.command import Command
from prowess.contracts.declaration import declaration_of

EVERY_KIND = frozenset({"form", "url", "sample", "roots"})
MODES = pytest.mark.parametrize("mode", ["push", "replay"])
WHERE = pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
PARIS = {"action": "accept", "content": {"role": "assistant", "content": {"type": "text", "text": "Paris"}}}
FOLDERS = {"action": "accept", "content": {"roots": [{"uri": "file:///a"}, {"uri": "file:///b", "name": "B"}, 5, {}]}}


async def call(tmp_path: Path, command: Command, channel: Channel) -> Outcome:
    declared = declaration_of(command)
    assert declared is not None
    async with Runtime.open(tmp_path) as runtime:
        with anyio.fail_after(PATIENCE):
            return await runtime.entry_of(declared).call({}, channel)


def channel_of(mode: str, answers: Mapping[str, Any], asks: frozenset[str] = EVERY_KIND) -> Channel:
    """A client with these answers: at once, or from earlier runs."""

    async def ask(questions: Questions) -> Mapping[str, Any]:
        await asyncio.sleep(0)
        return {key: answers[key] for key in questions}

    return Channel(ask=ask, asks=asks) if mode == "push" else Channel(answers=answers, asks=asks)


def asking(ask: Callable[[Context], Any], *, is_async: bool, got: list[Any]) -> Command:
    """A command that asks this way, and notes what it got."""

    @skill_command
    async def on_loop(ctx: Context) -> None:
        got.append(await ask(ctx))

    @skill_command
    def in_thread(ctx: Context) -> None:
        got.append(ask(ctx))

    return on_loop if is_async else in_thread


KINDS: list[Any] = [
    pytest.param(lambda ctx: ctx.ask_url("q", "Log in", "https://example.org/x"), {"action": "accept"}, None, id="url"),
    pytest.param(lambda ctx: ctx.sample("q", "Capital of France?"), PARIS, "Paris", id="sample"),
    pytest.param(lambda ctx: ctx.roots("q"), FOLDERS, ["file:///a", "file:///b"], id="roots"),
]


@MODES
@WHERE
@pytest.mark.parametrize("ask, answer, value", KINDS)
async def test_every_kind_of_question_has_its_value(
    tmp_path: Path, *, ask: Any, answer: Any, value: Any, mode: str, is_async: bool
):
    """In both eras, from async code and from a thread."""
    got: list[Any] = []
    outcome = await call(tmp_path, asking(ask, is_async=is_async, got=got), channel_of(mode, {"q": answer}))
    assert outcome.ok, outcome.text
    assert (True, value) == (got[0].accepted, got[0].value)


@MODES
@pytest.mark.parametrize("ask, answer, value", KINDS)
async def test_whatever_is_asked_may_be_declined(tmp_path: Path, *, ask: Any, answer: Any, value: Any, mode: str):
    """Then there is no value."""
    del answer, value
    got: list[Any] = []
    declined = {"q": {"action": "decline"}}
    await call(tmp_path, asking(ask, is_async=True, got=got), channel_of(mode, declined))
    assert ("decline", None) == (got[0].action, got[0].value)


@pytest.mark.parametrize(
    "ask, shown",
    [
        (
            lambda ctx: ctx.ask_url("q", "Log in", "https://example.org/x"),
            {"ask": "url", "message": "Log in", "url": "https://example.org/x"},
        ),
        (
            lambda ctx: ctx.sample("q", "Capital of France?", max_tokens=100, systemPrompt="Be brief"),
            {
                "ask": "sample",
                "params": {
                    "messages": [{"role": "user", "content": {"type": "text", "text": "Capital of France?"}}],
                    "maxTokens": 100,
                    "systemPrompt": "Be brief",
                },
            },
        ),
        (
            lambda ctx: ctx.sample("q", [{"role": "user", "content": []}]),
            {"ask": "sample", "params": {"messages": [{"role": "user", "content": []}], "maxTokens": 1000}},
        ),
        (lambda ctx: ctx.roots("q"), {"ask": "roots"}),
    ],
)
async def test_a_question_says_what_it_asks(tmp_path: Path, ask: Any, shown: Any):
    """As the link has it."""
    outcome = await call(tmp_path, asking(ask, is_async=True, got=[]), Channel(answers={}, asks=EVERY_KIND))
    assert ("input_required", {"q": shown}) == (outcome.kind, outcome.questions)


@MODES
@pytest.mark.parametrize(
    "ask, needed",
    [
        (lambda ctx: ctx.ask("q", "Sure?", bool), "elicitation"),
        (lambda ctx: ctx.ask_url("q", "Log in", "https://example.org/x"), "elicitation.url"),
        (lambda ctx: ctx.sample("q", "Hello"), "sampling"),
        (lambda ctx: ctx.roots(), "roots"),
    ],
)
async def test_what_a_client_did_not_declare_is_not_asked(tmp_path: Path, ask: Any, needed: str, mode: str):
    """The call fails with the name of the capability."""
    outcome = await call(tmp_path, asking(ask, is_async=True, got=[]), channel_of(mode, {}, frozenset()))
    assert ("failed", needed) == (outcome.kind, outcome.missing_capability)


@MODES
async def test_questions_of_several_kinds_are_asked_together(tmp_path: Path, mode: str):
    """A missing answer ends the run with that question alone."""
    got: list[Any] = []

    @skill_command
    async def several(ctx: Context) -> None:
        got.append(
            await ctx.ask_all(
                {
                    "name": ("Who?", str),
                    "city": Sample("City?"),
                    "folders": Roots(),
                    "in": Page("In", "http://localhost:5/x"),
                }
            )
        )

    answers = {
        "name": {"action": "accept", "content": {"value": "Ada"}},
        "city": PARIS,
        "folders": FOLDERS,
        "in": {"action": "accept"},
    }
    outcome = await call(tmp_path, several, channel_of(mode, answers))
    assert outcome.ok, outcome.text
    assert ["Ada", "Paris", ["file:///a", "file:///b"], None] == [each.value for each in got[0].values()]
    outcome = await call(
        tmp_path, several, Channel(answers={key: answers[key] for key in ("name", "city", "in")}, asks=EVERY_KIND)
    )
    assert {"folders": {"ask": "roots"}} == outcome.questions


@pytest.mark.parametrize(
    "ask, content, why",
    [
        (lambda ctx: ctx.sample("q", "Hello"), {}, "the response has no text"),
        (lambda ctx: ctx.sample("q", "Hello"), {"content": [{"type": "image"}, 5]}, "the response has no text"),
        (lambda ctx: ctx.roots("q"), {"roots": 5}, "the response has no list of roots"),
    ],
)
async def test_an_answer_of_the_wrong_shape_fails_the_call(tmp_path: Path, ask: Any, content: Any, why: str):
    """Naming the question."""
    answers = {"q": {"action": "accept", "content": content}}
    outcome = await call(tmp_path, asking(ask, is_async=True, got=[]), channel_of("replay", answers))
    assert ("failed", f"the answer to 'q' does not match the schema of the question: {why}") == (
        outcome.kind,
        outcome.text,
    )


async def test_all_texts_of_a_model_count(tmp_path: Path):
    """Newer clients answer with several blocks."""
    got: list[Any] = []
    content = {"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]}
    command = asking(lambda ctx: ctx.sample("q", "Hello"), is_async=True, got=got)
    await call(tmp_path, command, channel_of("replay", {"q": {"action": "accept", "content": content}}))
    assert "a\nb" == got[0].value


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "example.org", "https://", ""])
async def test_a_page_has_an_address_of_the_web(tmp_path: Path, url: str):
    """Nothing else is shown to a person to click on."""
    command = asking(lambda ctx: ctx.ask_url("q", "Look", url), is_async=True, got=[])
    outcome = await call(tmp_path, command, channel_of("push", {}))
    assert "failed" == outcome.kind
    assert outcome.text.startswith(f"the question 'q' has the invalid URL {url!r}")


@pytest.mark.parametrize(
    "field",
    [
        {"type": "object", "properties": {}},
        {"type": "array", "items": {"type": "string"}},
        {"type": "array"},
        {"type": "array", "items": {"type": "object"}},
    ],
)
async def test_a_field_that_no_form_has_is_refused(tmp_path: Path, field: Any):
    """Before a client is, which would show nothing or half of it."""
    schema = {"type": "object", "properties": {"ok": True, "odd": field}}
    outcome = await call(
        tmp_path, asking(lambda ctx: ctx.ask("q", "What?", schema), is_async=True, got=[]), channel_of("push", {})
    )
    assert "failed" == outcome.kind
    assert "has the field 'odd', which forms do not support" in outcome.text


async def test_a_field_that_was_left_out_has_its_default(tmp_path: Path):
    """The schema said so to the client."""
    got: list[Any] = []
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer", "default": 30}, "tags": {"type": "array", "items": {"enum": ["a"]}}},
    }
    command = asking(lambda ctx: ctx.ask("q", "What?", schema), is_async=True, got=got)
    await call(tmp_path, command, channel_of("push", {"q": {"action": "accept", "content": {"tags": ["a"]}}}))
    assert ({"age": 30, "tags": ["a"]}, {"tags": ["a"]}) == (got[0].value, got[0].content)


@WHERE
async def test_the_end_of_a_visit_is_told(tmp_path: Path, is_async: bool):
    """By the key of the question."""
    told: list[str] = []

    @skill_command
    async def on_loop(ctx: Context) -> None:
        await ctx.url_done("login")

    @skill_command
    def in_thread(ctx: Context) -> None:
        ctx.url_done("login")

    await call(tmp_path, on_loop if is_async else in_thread, Channel(url_done=told.append))
    assert ["login"] == told


# Letting the caller go


@WHERE
async def test_a_call_goes_into_the_background_once(tmp_path: Path, is_async: bool):
    """And waits from then on for the answers to its questions."""
    left: list[str] = []
    channel = channel_of("replay", {})

    def leave() -> None:
        left.append("left")
        channel.ask = channel_of("push", {"q": {"action": "accept", "content": {"value": "Ada"}}}).ask

    @skill_command
    async def on_loop(ctx: Context) -> list[Any]:
        return [ctx.background(), ctx.background(required=True), (await ctx.ask("q", "Who?", str)).value]

    @skill_command
    def in_thread(ctx: Context) -> list[Any]:
        return [ctx.background(), ctx.background(required=True), ctx.ask("q", "Who?", str).value]

    outcome = await call(tmp_path, on_loop if is_async else in_thread, replace(channel, background=leave))
    assert outcome.kind == "input_required"  # that channel is a copy
    channel.background = leave
    left.clear()
    outcome = await call(tmp_path, on_loop if is_async else in_thread, channel)
    assert ([True, True, "Ada"], ["left"]) == (outcome.value, left)


@pytest.mark.parametrize("required", [False, True])
async def test_a_caller_that_has_to_wait_is_not_let_go(tmp_path: Path, *, required: bool):
    """Where the background is required the call fails."""

    @skill_command
    async def leaving(ctx: Context) -> bool:
        return ctx.background(required=required)

    outcome = await call(tmp_path, leaving, Channel())
    if required:
        assert "extensions.io.modelcontextprotocol/tasks" == outcome.missing_capability
    else:
        assert outcome.value is False


async def test_an_extension_is_a_capability_with_dots_in_its_name(tmp_path: Path):
    """It is looked up as it is declared."""

    @skill_command
    async def needing(ctx: Context) -> str:
        ctx.require_capability("extensions.io.modelcontextprotocol/tasks")
        return "there"

    declared = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    assert "there" == (await call(tmp_path, needing, Channel(capabilities=declared))).value
    assert "failed" == (await call(tmp_path, needing, Channel())).kind


async def test_a_shared_call_stays_in_the_foreground(tmp_path: Path):
    """Several callers may wait for a cached command."""

    @skill_command(cache_ttl=60)
    async def cached(ctx: Context) -> bool:
        return ctx.background()

    assert (await call(tmp_path, cached, Channel(background=lambda: None))).value is False


def test_nobody_is_told_when_the_loop_is_closed(tmp_path: Path):
    """A thread that outlives its call goes on in silence."""
    kept: list[Context] = []

    @skill_command
    async def keeping(ctx: Context) -> None:
        kept.append(ctx)

    asyncio.run(call(tmp_path, keeping, Channel(background=lambda: None)))
    results: list[Any] = []

    def speak() -> None:
        results.extend([kept[0].background(), kept[0].url_done("x")])

    import threading

    thread = threading.Thread(target=speak)
    thread.start()
    thread.join(PATIENCE)
    assert [False] == results[:-1]
