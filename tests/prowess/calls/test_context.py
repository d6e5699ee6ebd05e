"""What a command can say, ask and know about its call."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from patience import PATIENCE, time_is_up
from pydantic import BaseModel, Field
from tests.prowess.embedded import call, injectables, until
from typing_extensions import TypedDict

from prowess import Context, Runtime, skill_command
from prowess.calls.channel import Channel, Questions
from prowess.calls.questions import question_of
from prowess.errors import AskError
from prowess.injection import scopes

AT_ONCE = {"retry": {"initial": 0.0}}


class Person:
    """Somebody at a client who can be asked at once: answers by key, and a note of what was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[Questions] = []

    async def ask(self, questions: Questions) -> Mapping[str, Any]:
        await asyncio.sleep(0)
        self.asked.append(questions)
        return {key: self.answers[key] for key in questions if key in self.answers}

    def channel(self, mode: str) -> Channel:
        return Channel(ask=self.ask) if mode == "push" else Channel(answers=self.answers)


def accepted(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


MODES = pytest.mark.parametrize("mode", ["push", "replay"])
WHERE = pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])

# Knowing


@WHERE
async def test_a_command_knows_who_calls(tmp_path: Path, is_async: bool):
    """The client, what it can do, and what it sent along."""
    channel = Channel(
        client_name="ide", capabilities={"roots": {}}, trace_id="t1", metadata={"m": 1}, call_id="c1", context={"t": 1}
    )

    def facts(ctx: Context) -> list[Any]:
        return [ctx.client_name, ctx.capabilities, ctx.trace_id, ctx.metadata, ctx.call_id, ctx.context, ctx.cancelled]

    @skill_command
    async def on_loop(ctx: Context) -> list[Any]:
        return facts(ctx)

    @skill_command
    def in_thread(ctx: Context) -> list[Any]:
        return facts(ctx)

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, on_loop if is_async else in_thread, channel=channel)
    assert ["ide", {"roots": {}}, "t1", {"m": 1}, "c1", {"t": 1}, False] == outcome.value


async def test_a_deadline_is_known_where_there_is_one(tmp_path: Path):
    """On the clock of `time.monotonic`; `None` where time does not run out."""

    @skill_command
    def remaining(ctx: Context) -> bool:
        return ctx.deadline is not None

    async with Runtime.open(tmp_path) as runtime:
        assert (await call(runtime, remaining)).value is True
    async with Runtime.open(tmp_path, flags={"timeout": float("inf")}) as runtime:
        assert (await call(runtime, remaining)).value is False


@pytest.mark.parametrize(
    "name, declared",
    [
        ("sampling", True),
        ("elicitation.url", True),
        ("roots", False),
        ("elicitation.form", False),
        ("sampling.tools.more", False),
        ("off", False),
    ],
)
async def test_a_command_may_require_a_capability(tmp_path: Path, name: str, declared: bool):
    """What is missing is said in words, and for machines in `missing_capability`."""

    @skill_command
    async def requiring(ctx: Context):
        ctx.require_capability(name)

    capabilities = {"sampling": {"tools": 1}, "elicitation": {"url": {}}, "off": False}
    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, requiring, channel=Channel(capabilities=capabilities))
    assert ("ok" if declared else "failed", None if declared else name) == (outcome.kind, outcome.missing_capability)
    if not declared:
        assert f"test_context.requiring needs a client with the capability '{name}'" in outcome.text


async def test_cancelled_is_seen_while_the_cancellation_is_on_its_way(tmp_path: Path):
    """A thread that an async body waits for can stop by itself, so that the body can end."""
    begun = threading.Event()

    @skill_command(timeout=PATIENCE)
    async def waiting(ctx: Context):
        def work() -> None:
            begun.set()
            while not ctx.cancelled:
                pass

        await anyio.to_thread.run_sync(work)

    async with Runtime.open(tmp_path) as runtime:
        task = asyncio.ensure_future(call(runtime, waiting))
        await until(begun.is_set)
        time_is_up()
        assert "ok" == (await task).kind  # it came to its end, which beats the deadline
        begun.clear()
        task = asyncio.ensure_future(call(runtime, waiting))
        await until(begun.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# Saying


@WHERE
async def test_progress_only_grows(tmp_path: Path, is_async: bool):
    """What does not grow, or is no number that JSON has, is not sent. The first may be zero."""
    heard = []

    def body(ctx: Context) -> None:
        for done in (0, 1, 1, 0.5, float("nan"), float("inf"), 10**400, 2):
            ctx.progress(done, 4, f"at {done}")
        ctx.progress(3)
        ctx.progress(4, float("inf"))
        ctx.progress(4, 10**400)

    @skill_command
    async def on_loop(ctx: Context):
        body(ctx)

    @skill_command
    def in_thread(ctx: Context):
        body(ctx)

    channel = Channel(progress=lambda *told: heard.append(told))
    async with Runtime.open(tmp_path) as runtime:
        assert (await call(runtime, on_loop if is_async else in_thread, channel=channel)).ok
    assert [(0, 4, "at 0"), (1, 4, "at 1"), (2, 4, "at 2"), (3, None, None)] == heard


async def test_progress_of_the_wrong_type_fails_where_it_was_said(tmp_path: Path):
    """And not somewhere in the event loop."""

    @skill_command
    def careless(ctx: Context):
        ctx.progress("half")  # type: ignore[arg-type]

    async with Runtime.open(tmp_path) as runtime:
        assert (await call(runtime, careless)).text.startswith("TypeError")


@WHERE
async def test_log_messages_are_text_or_data(tmp_path: Path, is_async: bool):
    """What is no JSON is shown as `repr` has it."""
    heard = []

    def body(ctx: Context) -> None:
        ctx.log("info", "hello")
        ctx.log("warning", {"path": Path("a"), "odd": object})
        ctx.log("error", b"\xff")

    @skill_command
    async def on_loop(ctx: Context):
        body(ctx)

    @skill_command
    def in_thread(ctx: Context):
        body(ctx)

    channel = Channel(log=lambda *told: heard.append(told))
    async with Runtime.open(tmp_path) as runtime:
        assert (await call(runtime, on_loop if is_async else in_thread, channel=channel)).ok
    odd = {"path": "a", "odd": "<class 'object'>"}
    assert [("info", "hello"), ("warning", odd), ("error", r"b'\xff'")] == heard


async def test_messages_may_be_awaited_and_need_not_be(tmp_path: Path):
    """Code that comes from another framework awaits them; whoever does not is not warned (warnings are errors here)."""
    heard: list[Any] = []
    channel = Channel(
        progress=lambda done, total, message: heard.append((done, total, message)),
        log=lambda level, message: heard.append((level, message)),
    )

    @skill_command
    async def awaiting(ctx: Context):
        await ctx.progress(1, 4, "one")
        await ctx.report_progress(2, 4)
        await ctx.log("notice", "a")
        await ctx.debug("b")
        await ctx.info({"c": 2})
        await ctx.warning("d")
        await ctx.error("e")
        await asyncio.create_task(ctx.info("f"))
        await asyncio.gather(ctx.info("g"))

    @skill_command
    async def plain(ctx: Context):
        ctx.progress(1, 4, "one")
        ctx.report_progress(2, 4)
        ctx.log("notice", "a")
        ctx.debug("b")
        ctx.info({"c": 2})
        ctx.warning("d")
        ctx.error("e")
        ctx.info("f")
        ctx.info("g")

    @skill_command
    def blocking(ctx: Context) -> None:
        ctx.progress(1, 4, "one")
        ctx.report_progress(2, 4)
        ctx.log("notice", "a")
        ctx.debug("b")
        ctx.info({"c": 2})
        ctx.warning("d")
        ctx.error("e")
        asyncio.run(ctx.info("f"))
        return ctx.info("g")

    said: list[Any] = [(1, 4, "one"), (2, 4, None), ("notice", "a"), ("debug", "b"), ("info", {"c": 2})]
    said += [("warning", "d"), ("error", "e"), ("info", "f"), ("info", "g")]
    async with Runtime.open(tmp_path) as runtime:
        for command in (awaiting, plain, blocking):
            heard.clear()
            outcome = await call(runtime, command, channel=channel)
            assert outcome.ok, outcome.text
            assert outcome.value is None
            assert said == heard


async def test_a_message_in_a_task_can_be_cancelled(tmp_path: Path):
    """It was sent when it was written; only the task that waits for it ends."""
    heard: list[Any] = []

    @skill_command
    async def cancelling(ctx: Context) -> list[bool]:
        tasks = [asyncio.create_task(ctx.info("a")), asyncio.create_task(ctx.info("b"))]
        tasks[0].cancel()
        await asyncio.wait(tasks)
        ctx.info("c").close()
        return [task.cancelled() for task in tasks]

    channel = Channel(log=lambda level, message: heard.append(message))
    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, cancelling, channel=channel)
    assert ([True, False], ["a", "b", "c"]) == (outcome.value, heard), outcome.text


async def test_an_unknown_level_is_refused(tmp_path: Path):
    """The levels are those of MCP."""

    @skill_command
    async def shouting(ctx: Context):
        ctx.log("fatal", "no")

    async with Runtime.open(tmp_path) as runtime:
        text = (await call(runtime, shouting)).text
    assert "unknown log level 'fatal'; use one of debug, info, notice" in text


async def test_secrets_are_masked_in_progress_log_and_questions(tmp_path: Path):
    """Whatever goes to the client beside the result."""
    heard: list[Any] = []
    person = Person(q={"action": "decline"})

    @skill_command(inject_settings=["api.key"])
    async def leaking(ctx: Context, api_key: str):
        ctx.progress(1, None, api_key)
        ctx.log("info", [api_key])
        await ctx.ask("q", f"use {api_key}?")

    channel = person.channel("push")
    channel.progress = channel.log = lambda *told: heard.append(told)
    async with Runtime.open(tmp_path, flags={"api.key": "s3cr3t"}) as runtime:
        assert (await call(runtime, leaking, channel=channel)).ok
    assert [(1, None, "***"), ("info", ["***"])] == heard
    assert "use ***?" == person.asked[0]["q"]["message"]


async def test_nothing_is_said_after_the_end(tmp_path: Path):
    """A thread that runs on, or a task that was left over, is not heard any more."""
    heard, go_on, left = [], threading.Event(), []

    @skill_command(timeout=0.5)
    def late(ctx: Context):
        go_on.wait(PATIENCE)
        ctx.progress(1)
        ctx.log("info", "late")

    @skill_command
    async def leaving(ctx: Context):
        left.append(ctx)

    channel = Channel(progress=lambda *told: heard.append(told), log=lambda *told: heard.append(told))
    async with Runtime.open(tmp_path) as runtime:
        assert "timeout" == (await call(runtime, late, channel=channel)).kind
        go_on.set()
        await until(lambda: not runtime.abandoned)
        assert (await call(runtime, leaving, channel=channel)).ok
        left[0].progress(1)
        assert left[0].cancelled
        await asyncio.sleep(0)
    assert [] == heard


def test_whoever_outlives_the_loop_speaks_to_nobody(tmp_path: Path):
    """Without an error for progress and log; a question has one."""
    left: list[Any] = []

    @skill_command
    async def leaving(ctx: Context):
        left.append(ctx)

    async def main() -> None:
        async with Runtime.open(tmp_path) as runtime:
            await call(runtime, leaving, channel=Person().channel("push"))

    asyncio.run(main())

    def outlive() -> None:
        left[0].progress(1)
        left[0].log("info", "x")
        with pytest.raises(RuntimeError):
            left[0].ask("q", "?")
        left.append("done")

    thread = threading.Thread(target=outlive)
    thread.start()
    thread.join(PATIENCE)
    assert "done" == left[-1]


# Asking


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Address:
    street: str
    number: int | None
    flat: bool = False


class Size(TypedDict):
    width: int


class Model(BaseModel):
    name: str = Field(min_length=2)


TYPES: list[Any] = [
    (bool, accepted(value=True), True),
    (int, accepted(value=3), 3),
    (int | None, accepted(), None),
    (str, accepted(value="x"), "x"),
    (Colour, accepted(value="blue"), Colour.BLUE),
    (Literal["a", "b"], accepted(value="b"), "b"),
    (list[Colour], accepted(value=["red"]), [Colour.RED]),
    (Address, accepted(street="s", number=1), Address("s", 1)),
    (Address, accepted(street="s"), Address("s", None)),
    (Size, accepted(width=2), {"width": 2}),
    (Model, accepted(name="ab"), Model(name="ab")),
    ({"type": "object", "properties": {"a": {"type": "integer"}}}, accepted(a=1), {"a": 1}),
    (None, accepted(), {}),
]


@MODES
@WHERE
@pytest.mark.parametrize("wanted, answer, value", TYPES)
async def test_an_answer_has_the_type_that_was_asked_for(
    tmp_path: Path, *, wanted: Any, answer: Any, value: Any, mode: str, is_async: bool
):
    """In both eras, from async code and from a thread."""
    got = []

    @skill_command
    async def on_loop(ctx: Context):
        got.append(await ctx.ask("q", "What?", wanted))

    @skill_command
    def in_thread(ctx: Context):
        got.append(ctx.ask("q", "What?", wanted))

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, on_loop if is_async else in_thread, channel=Person(q=answer).channel(mode))
    assert outcome.ok, outcome.text
    assert (True, "accept", answer["content"], value) == (
        got[0].accepted,
        got[0].action,
        got[0].content,
        got[0].value,
    )


@pytest.mark.parametrize("wanted", [wanted for wanted, *_ in TYPES])
async def test_a_form_is_a_flat_object_schema(tmp_path: Path, wanted: Any):
    """A single value is put in a field; references and nulls, which forms do not know, are gone."""

    @skill_command
    async def asking(ctx: Context):
        await ctx.ask("q", "What?", wanted)

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, asking, channel=Channel(answers={}))
    assert "input_required" == outcome.kind
    assert "What?" == outcome.questions["q"]["message"]
    schema = outcome.questions["q"]["schema"]
    assert "object" == schema["type"]
    text = str(schema)
    assert not any(word in text for word in ("$ref", "$defs", "const", "null"))


@MODES
@pytest.mark.parametrize(
    "answer, action",
    [
        ({"action": "decline"}, "decline"),
        ({"action": "cancel", "content": None}, "cancel"),
        ({"action": "shrug", "content": {"value": True}}, "cancel"),
        ({}, "cancel"),
    ],
)
async def test_a_person_may_decline(tmp_path: Path, answer: Any, action: str, mode: str):
    """Then there is no value. What is no known action counts as cancelled."""
    got = []

    @skill_command
    async def asking(ctx: Context):
        got.append(await ctx.ask("q", "Sure?", bool))

    async with Runtime.open(tmp_path) as runtime:
        await call(runtime, asking, channel=Person(q=answer).channel(mode))
    assert (action, False, None, {}) == (got[0].action, got[0].accepted, got[0].value, got[0].content)


@MODES
@pytest.mark.parametrize(
    "wanted, answer",
    [
        (int, accepted(value="many")),
        (bool, accepted()),
        (Colour, accepted(value="green")),
        (Model, {"action": "accept", "content": ["no object"]}),
        ({"type": "object", "properties": {}, "required": ["a"]}, accepted()),
    ],
)
async def test_a_wrong_answer_fails_the_call(tmp_path: Path, wanted: Any, answer: Any, mode: str):
    """Naming the question and what is wrong."""

    @skill_command
    async def asking(ctx: Context):
        await ctx.ask("q", "What?", wanted)

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, asking, channel=Person(q=answer).channel(mode))
    assert "failed" == outcome.kind
    assert outcome.text.startswith("the answer to 'q' does not match the schema of the question: ")


@WHERE
async def test_a_question_without_an_answer_ends_the_run(tmp_path: Path, is_async: bool):
    """And the next run, from the top, has the answers so far. No `except Exception` is in the way."""
    runs = []

    def noted(ctx: Context) -> Context:
        runs.append(ctx)
        return ctx

    @skill_command
    async def on_loop(ctx: Context) -> str:
        try:
            name = await noted(ctx).ask("name", "Who?", str)
            sure = await ctx.ask("sure", "Sure?", bool)
        except Exception as error:  # noqa: BLE001 - what must not swallow it
            return f"swallowed {error!r}"
        return f"{name.value} {sure.value}"

    @skill_command
    def in_thread(ctx: Context) -> str:
        try:
            name = noted(ctx).ask("name", "Who?", str)
            sure = ctx.ask("sure", "Sure?", bool)
        except Exception as error:  # noqa: BLE001 - what must not swallow it
            return f"swallowed {error!r}"
        return f"{name.value} {sure.value}"

    command = on_loop if is_async else in_thread
    async with Runtime.open(tmp_path) as runtime:
        answers: dict[str, Any] = {}
        for key, answer in (("name", accepted(value="Ada")), ("sure", accepted(value=True))):
            outcome = await call(runtime, command, channel=Channel(answers=answers))
            assert ("input_required", {key}) == (outcome.kind, set(outcome.questions))
            answers[key] = answer
        assert "Ada True" == (await call(runtime, command, channel=Channel(answers=answers))).value
    assert 3 == len(runs)


@MODES
@WHERE
async def test_several_things_are_asked_at_once(tmp_path: Path, mode: str, is_async: bool):
    """One form after the other at the client, one wait for the command."""
    person = Person(a=accepted(value=1), b={"action": "decline"})

    @skill_command
    async def on_loop(ctx: Context) -> list[Any]:
        answers = await ctx.ask_all({"a": ("A?", int), "b": ("B?", None)})
        return [answers["a"].value, answers["b"].action]

    @skill_command
    def in_thread(ctx: Context) -> list[Any]:
        answers = ctx.ask_all({"a": ("A?", int), "b": ("B?", None)})
        return [answers["a"].value, answers["b"].action]

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, on_loop if is_async else in_thread, channel=person.channel(mode))
    assert [1, "decline"] == outcome.value
    assert mode == "replay" or [{"a", "b"}] == [set(questions) for questions in person.asked]


async def test_questions_of_several_tasks_are_asked_together(tmp_path: Path):
    """What a task group gathers on its way out is one outcome."""

    @skill_command
    async def asking(ctx: Context):
        async with anyio.create_task_group() as group:
            group.start_soon(ctx.ask, "a", "A?")
            group.start_soon(ctx.ask, "b", "B?")

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, asking, channel=Channel(answers={}))
    assert ("input_required", {"a", "b"}) == (outcome.kind, set(outcome.questions))


@MODES
async def test_every_question_needs_its_own_key(tmp_path: Path, mode: str):
    """The key is how an answer finds its question."""

    @skill_command
    async def asking(ctx: Context):
        await ctx.ask("q", "Once?", bool)
        await ctx.ask("q", "Twice?", bool)

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, asking, channel=Person(q=accepted(value=True)).channel(mode))
    assert "failed" == outcome.kind
    assert "asked 'q' twice in one call; give every question its own key" in outcome.text


@pytest.mark.parametrize("question", ["Sure?", ("Sure?",), (bool, None)])
def test_question_without_a_message_says_how_to_ask(question: Any):
    """The key is easily forgotten: `ctx.ask("Sure?", bool)`."""
    with pytest.raises(AskError, match=r"'q' has no message; write .* ctx\.ask\('name', 'Your name\?', str\)"):
        question_of("q", question)


@MODES
@pytest.mark.parametrize(
    ("key", "schema", "reason"),
    [
        (5, bool, "asked with the key 5; a key must be a string"),
        (
            "q",
            {"type": "object", "properties": {"n": {"type": "number", "maximum": math.inf}}},
            "cannot be sent as JSON",
        ),
        ("q", {"type": "object", "properties": {"\ud800": {"type": "number"}}}, "cannot be sent as JSON"),
        (
            "q",
            {"type": "object", "properties": {"n": {"type": "number", "default": object()}}},
            "cannot be sent as JSON",
        ),
    ],
)
async def test_a_question_that_no_client_could_read_is_a_failure(
    tmp_path: Path, key: Any, schema: Any, reason: str, mode: str
):
    """An answer could not find its question by a key that is no string."""

    @skill_command
    async def asking(ctx: Context):
        await ctx.ask(key, "How many?", schema)

    person = Person()
    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, asking, channel=person.channel(mode))
    assert ("failed", []) == (outcome.kind, person.asked)
    assert reason in outcome.text


@MODES
@pytest.mark.parametrize("options", [{"cache_ttl": 1}, {"retry_on": ValueError}])
async def test_a_cached_or_retried_command_may_not_ask(tmp_path: Path, options: Any, mode: str):
    """One person's answer is nobody else's, and nobody wants to be asked three times."""

    @skill_command(**options)
    async def asking(ctx: Context):
        await ctx.ask("q", "Sure?", bool)

    person = Person(q=accepted(value=True))
    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime:
        outcome = await call(runtime, asking, channel=person.channel(mode))
    assert ("failed", []) == (outcome.kind, person.asked)
    assert "is cached or retried, so it may not ask; drop cache_ttl and retry_on" in outcome.text


async def test_a_client_that_cannot_ask_is_told_what_it_lacks(tmp_path: Path):
    """In words, and as a capability."""

    @skill_command
    def asking(ctx: Context):
        ctx.ask("q", "Sure?", bool)

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, asking)
    assert ("failed", "elicitation") == (outcome.kind, outcome.missing_capability)


async def test_sync_code_on_the_loop_cannot_wait(tmp_path: Path):
    """It is told so, instead of being given a coroutine."""

    @skill_command(thread=False)
    def asking(ctx: Context):
        ctx.ask("q", "Sure?", bool)

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, asking, channel=Person().channel("push"))
    assert "failed" == outcome.kind
    assert "where sync code cannot wait; drop thread=False" in outcome.text


async def test_a_type_that_has_no_schema_cannot_be_asked_for(tmp_path: Path):
    """The question is named."""

    @skill_command
    async def asking(ctx: Context):
        await ctx.ask("q", "What?", Context)

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, asking, channel=Person().channel("push"))
    assert "failed" == outcome.kind
    assert "the question 'q' asks for <class 'prowess.calls.context.Context'>, which has no JSON Schema" in outcome.text


@WHERE
async def test_time_stands_still_while_a_person_thinks(tmp_path: Path, is_async: bool):
    """However many questions are open; then it goes on with what was left."""
    deadlines: list[Any] = []
    seen: list[Context] = []
    answer, slow = anyio.Event(), anyio.Event()

    async def ask(questions: Questions) -> Mapping[str, Any]:
        await (slow if "b" in questions else answer).wait()
        deadlines.append(seen[0].deadline)
        return {key: {"action": "decline"} for key in questions}

    @skill_command
    async def on_loop(ctx: Context):
        seen.append(ctx)
        async with anyio.create_task_group() as group:
            group.start_soon(ctx.ask, "a", "A?")
            group.start_soon(ctx.ask, "b", "B?")
            answer.set()
            await until(lambda: deadlines)
            slow.set()
        deadlines.append(ctx.deadline)

    @skill_command
    def in_thread(ctx: Context):
        seen.append(ctx)
        ctx.ask("a", "A?")
        ctx.ask("b", "B?")
        deadlines.append(ctx.deadline)

    if not is_async:
        answer.set()
        slow.set()
    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, on_loop if is_async else in_thread, channel=Channel(ask=ask))
    assert "ok" == outcome.kind
    assert [True, True, False] == [deadline is None for deadline in deadlines]


async def test_a_cancelled_call_takes_its_question_back(tmp_path: Path):
    """The thread that waited for the answer is not left waiting, and one that asks afterwards does not begin to."""
    asked, taken_back, ended, go_on = anyio.Event(), [], threading.Event(), threading.Event()
    seen: list[Context] = []

    async def ask(questions: Questions) -> Mapping[str, Any]:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            taken_back.append(1)

    @skill_command
    def asking(ctx: Context):
        seen.append(ctx)
        try:
            ctx.ask("q", "Sure?")
        finally:
            go_on.wait(PATIENCE)
            try:
                ctx.ask("again", "Sure?")
            finally:
                ended.set()

    async with Runtime.open(tmp_path) as runtime:
        task = asyncio.ensure_future(call(runtime, asking, channel=Channel(ask=ask)))
        with anyio.fail_after(PATIENCE):
            await asked.wait()
            await until(lambda: seen[0]._call._waits)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()
            assert await asyncio.to_thread(ended.wait, PATIENCE)
            await until(lambda: not runtime.abandoned)
    assert [1] == taken_back


@pytest.mark.parametrize("where", ["factory", "clean-up", "generator"])
async def test_a_thread_of_a_cancelled_call_waits_for_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
):
    """Neither one that makes or closes an injected object, nor one that collects the items of a generator."""
    asked, taken_back, ended = anyio.Event(), [], list[str]()

    class Thing:
        pass

    async def ask(_questions: Questions) -> Mapping[str, Any]:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            taken_back.append(1)

    def opened(ctx: Context) -> Generator[Thing, None, None]:
        if where == "factory":
            ctx.ask("q", "Sure?")
        yield Thing()
        ended.append("closing")
        if where == "clean-up":
            ctx.ask("q", "Sure?")

    def items(ctx: Context) -> Generator[int, None, None]:
        try:
            yield 1
            ctx.ask("q", "Sure?")
        finally:
            ended.append("collected")

    @skill_command
    async def collecting(ctx: Context) -> list[int]:
        return items(ctx)  # type: ignore[return-value]

    @skill_command
    def using(thing: Thing) -> int:
        return 7

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Thing, opened, lifetime="call")
        if where == "clean-up":  # which has no time for an answer: the call ends without it
            monkeypatch.setattr(scopes, "_CLOSING", 0.05)
            assert 7 == (await call(runtime, using, channel=Channel(ask=ask))).value
        else:
            command = using if where == "factory" else collecting
            task = asyncio.ensure_future(call(runtime, command, channel=Channel(ask=ask)))
            with anyio.fail_after(PATIENCE):
                await asked.wait()
            task.cancel()
            await asyncio.wait([task])
        await until(lambda: not runtime.abandoned)
    assert [1] == taken_back
    assert {"factory": [], "clean-up": ["closing"], "generator": ["collected"]}[where] == ended


async def test_nobody_is_asked_after_the_end(tmp_path: Path):
    """Neither by a task that was left over."""
    person, left = Person(q=accepted()), list[asyncio.Task[Any]]()
    go_on = anyio.Event()

    @skill_command
    async def leaving(ctx: Context) -> None:
        async def late() -> None:
            await go_on.wait()
            await ctx.ask("q", "Sure?")

        left.append(asyncio.ensure_future(late()))

    async with Runtime.open(tmp_path) as runtime:
        assert (await call(runtime, leaving, channel=person.channel("push"))).ok
        go_on.set()
        with pytest.raises(AskError, match="asked after its call had ended"):
            await left[0]
    assert [] == person.asked


async def test_a_question_may_be_asked_without_a_deadline(tmp_path: Path):
    """There is nothing to stop then."""

    @skill_command
    async def asking(ctx: Context) -> str:
        return (await ctx.ask("q", "Sure?")).action

    async with Runtime.open(tmp_path, flags={"timeout": float("inf")}) as runtime:
        assert "cancel" == (await call(runtime, asking, channel=Person().channel("push"))).value


async def test_a_thread_that_reports_faster_than_the_loop_can_pass_on_is_bounded(tmp_path: Path):
    """The newest counts; every step counts; what was lost of the log is told."""
    heard: list[float] = []
    logged: list[Any] = []
    started, blocking, flooded = threading.Event(), threading.Event(), threading.Event()
    channel = Channel(
        progress=lambda done, _total, _message: heard.append(done),
        log=lambda level, message: logged.append((level, message)),
    )

    @skill_command
    def step() -> Generator[None, None, str]:
        started.set()
        blocking.wait()
        for _ in range(10_000):
            yield
        flooded.set()
        return "done"

    @skill_command
    def number(ctx: Context) -> None:
        started.set()
        blocking.wait()
        for number in range(10_000):
            ctx.progress(number)
        flooded.set()

    @skill_command
    def log(ctx: Context) -> None:
        started.set()
        blocking.wait()
        for number in range(10_000):
            ctx.info(number)
        flooded.set()

    async def run(command: Any) -> None:
        """Hold the loop while the thread reports."""
        for event in (started, blocking, flooded):
            event.clear()
        calling = asyncio.ensure_future(call(runtime, command, channel=channel))
        with anyio.fail_after(PATIENCE):
            while not started.is_set():  # noqa: ASYNC110 - a thread sends no event
                await asyncio.sleep(0.001)
        blocking.set()
        flooded.wait(PATIENCE)
        assert (await calling).ok

    async with Runtime.open(tmp_path) as runtime:
        for command, last in ((step, 10_000), (number, 9_999)):
            heard.clear()
            await run(command)
            assert (last, True, True) == (heard[-1], sorted(heard) == heard, len(heard) <= 1001)
        await run(log)
    assert [("info", 9_999), 1001] == [logged[-2], len(logged)]
    note = "9000 log messages were dropped: they came faster than the event loop could pass them on"
    assert ("warning", note) == logged[-1]
