"""From a call to its outcome: every kind of failure, what is said of it, and the plugins that watch."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from patience import PATIENCE

from prowess import Context, Outcome, Runtime, Settings, SkillError, hookimpl, mcp_schema, skill_command
from prowess.calls.channel import Channel
from prowess.command import Command
from prowess.contracts.declaration import declaration_of
from prowess.errors import InputRequired
from prowess.hookspecs import CallInfo


async def call(runtime: Runtime, command: Command, arguments: Any = None, channel: Channel | None = None) -> Outcome:
    """A command defined here, called like a client calls it."""
    declared = declaration_of(command)
    assert declared is not None
    with anyio.fail_after(PATIENCE):
        outcome = await runtime.entry_of(declared).call({} if arguments is None else arguments, channel)
    if outcome.kind != "input_required":
        mcp_schema.validate(outcome.payload())
    return outcome


def add(runtime: Runtime, plugin: object, name: str = "watcher") -> None:
    runtime._services.plugins.register(plugin, name)


# Kinds of failure


@skill_command
async def failing(error: str):
    """Raise what was asked for."""
    raise {
        "skill": SkillError("for the model"),
        "retryable": SkillError("busy", retryable=True, retry_after=2.5, data={"queue": 3}),
        "crash": ZeroDivisionError("by zero"),
        "silent": ValueError(),
    }[error]


@pytest.mark.parametrize(
    "error, kind, text",
    [
        ("skill", "failed", "for the model"),
        ("retryable", "retryable", "busy"),
        ("crash", "crashed", "ZeroDivisionError: by zero (call {id})"),
        ("silent", "crashed", "ValueError (call {id})"),
    ],
)
async def test_what_a_body_raises(tmp_path: Path, error: str, kind: str, text: str):
    """A `SkillError` is for the model; everything else says its class, its message and the id of the call."""
    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, failing, {"error": error})
    assert (kind, text.format(id=outcome.call_id)) == (outcome.kind, outcome.text)
    assert (False, None) == (outcome.ok, outcome.value)
    payload = outcome.payload()
    assert payload["isError"] is True
    assert kind == payload["_meta"]["prowess/kind"]


async def test_facts_of_a_skill_error_are_in_the_meta(tmp_path: Path):
    """`retry_after` and `data` travel beside the text."""
    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, failing, {"error": "retryable"})
    meta = {
        "prowess/kind": "retryable",
        "prowess/attempts": 1,
        "prowess/retry_after": 2.5,
        "prowess/data": {"queue": 3},
    }
    assert meta == outcome.payload()["_meta"]


async def test_wrong_arguments(tmp_path: Path):
    """All problems at once, and the command does not run."""
    async with Runtime.open(tmp_path) as runtime:
        for arguments in ({"error": 1, "eror": "x"}, ["no object"], {"error": {"\ud800"}}):
            outcome = await call(runtime, failing, arguments)
            assert "input" == outcome.kind
            assert outcome.problems
        assert 2 == len((await call(runtime, failing, {"error": 1, "eror": "x"})).problems)


@pytest.mark.parametrize("value", [float("nan"), "\ud800", object(), {1: {2: object()}}])
async def test_a_result_that_cannot_be_sent(tmp_path: Path, caplog: pytest.LogCaptureFixture, value: Any):
    """It is a failure of this call, told to the author as well."""

    @skill_command
    async def odd():
        return value

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, odd)
    assert "output" == outcome.kind
    assert outcome.text.startswith("test_entry.odd: ")
    assert outcome.call_id in caplog.text


async def test_an_error_that_was_returned(tmp_path: Path):
    """A payload with `isError` counts as failed, and is shown as it is."""

    @skill_command
    async def returning() -> Any:
        return {"content": [{"type": "text", "text": "no"}], "isError": True, "_meta": {"mine": 1}}

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, returning)
    assert ("failed", "no") == (outcome.kind, outcome.text)
    assert {"mine": 1, "prowess/kind": "failed"} == outcome.payload()["_meta"]


async def test_a_missing_setting_fails_in_words_for_people(tmp_path: Path):
    """Whether it was injected or asked for."""

    @skill_command(inject_settings=["api.key"])
    async def injected(api_key: str):
        """Never runs."""

    @skill_command
    async def asking(settings: Settings):
        settings.get("api.key")

    async with Runtime.open(tmp_path) as runtime:
        for command in (injected, asking):
            outcome = await call(runtime, command)
            assert "failed" == outcome.kind
            assert "'api.key' is not set" in outcome.text
            assert "PROWESS_API__KEY" in outcome.text


async def test_strange_errors_are_no_trouble(tmp_path: Path):
    """Whatever an exception is made of, the call has an outcome that can be sent."""

    class Speechless(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    class Careless(SkillError):
        def __init__(self) -> None:
            Exception.__init__(self, "said carelessly")
            self.retryable, self.retry_after, self.data = True, "soon", {"x": {object}}

    class Unreadable:
        def __repr__(self) -> str:
            return "unreadable"

        def __getattribute__(self, name: str) -> Any:
            raise ValueError(name)

    class Bare(SkillError):
        def __init__(self) -> None:
            pass

    class Touchy(SkillError):
        def __getattribute__(self, name: str) -> Any:
            if name == "retryable":
                raise ValueError("do not look")
            return super().__getattribute__(name)

    noted = ValueError("noted")
    noted.__notes__ = 5  # type: ignore[assignment]
    errors = [
        Speechless(),
        Careless(),
        ValueError("lone \ud800 surrogate"),
        SkillError("data", data=float("nan"), retry_after=float("inf")),
        SkillError("data", data=Unreadable()),
        SkillError("data", data={"\ud800": ["\udfff", 1]}),
        Bare(),
        Touchy("x"),
        noted,
        *(SkillError("later", retryable=True, retry_after=seconds) for seconds in (-1, True, 10**400, 1e300)),
    ]

    @skill_command
    async def strange(n: int):
        raise errors[n]

    async with Runtime.open(tmp_path) as runtime:
        outcomes = [await call(runtime, strange, {"n": n}) for n in range(len(errors))]
    for outcome in outcomes:
        json.dumps(outcome.payload(), allow_nan=False).encode()
        outcome.text.encode()
    assert outcomes[0].text.startswith("Speechless: its message cannot be shown: RuntimeError")
    assert ("retryable", "said carelessly", None) == (outcomes[1].kind, outcomes[1].text, outcomes[1].retry_after)
    assert "lone \\ud800 surrogate" in outcomes[2].text
    assert ("NaN", None) == (outcomes[3].data, outcomes[3].retry_after)
    assert "unreadable" == outcomes[4].data
    assert "{'\\ud800': ['\\udfff', 1]}" == outcomes[5].data
    assert [("retryable", "later", None)] * 4 == [(it.kind, it.text, it.retry_after) for it in outcomes[9:]]
    assert ("failed", "Bare") == (outcomes[6].kind, outcomes[6].text)
    assert ("crashed", "ValueError: do not look") == (outcomes[7].kind, outcomes[7].text.partition(" (")[0])
    assert ("crashed", "ValueError: noted") == (outcomes[8].kind, outcomes[8].text.partition(" (")[0])


# Tracebacks and secrets


async def test_the_traceback_is_in_the_log_and_nowhere_else(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """It carries the call id, and begins with the author's own code."""
    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, failing, {"error": "crash"})
    (record,) = caplog.records
    first, head, frame, *_, last = record.getMessage().split("\n")
    assert f"test_entry.failing crashed (call {outcome.call_id})" == first
    assert "Traceback (most recent call last):" == head
    assert f'File "{__file__}"' in frame
    assert "ZeroDivisionError: by zero" == last
    assert "Traceback" not in json.dumps(outcome.payload())


async def test_the_caller_may_name_the_call(tmp_path: Path):
    """So that its log and ours can be read side by side."""

    @skill_command
    async def who(ctx: Context) -> str:
        return ctx.call_id

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, who, channel=Channel(call_id="c-7"))
        others = {(await call(runtime, who)).value for _ in range(3)}
    assert ("c-7", "c-7") == (outcome.value, outcome.call_id)
    assert 3 == len(others)


async def test_injected_secrets_are_masked(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """In texts, in data, in payloads that report an error, and in the log."""
    secrets = {"api.key": "s3cr3t", "api.more": {"inner": ["s3cr3t-longer", 12, "a\nb\nc"]}}

    @skill_command(inject_settings=["api.key", "api.more"])
    async def leaking(how: str, api_key: str, api_more: dict[str, Any]):
        key, longer, odd = api_key, *api_more["inner"][::2]
        if how == "crash":
            raise KeyError(f"{key} {longer} {odd}")
        if how == "skill":
            raise SkillError(longer, data={key: [longer]})
        block = {"type": "text", "text": key}
        return {"content": [block], "isError": True, "structuredContent": {"k": key}, "_meta": {"m": [longer, None]}}

    async with Runtime.open(tmp_path, flags=secrets) as runtime:
        crash, skill, payload = [await call(runtime, leaking, {"how": how}) for how in ("crash", "skill", "payload")]
    assert f"KeyError: '*** *** ***' (call {crash.call_id})" == crash.text
    assert ("***", {"***": ["***"]}) == (skill.text, skill.data)
    assert "s3cr3t" not in json.dumps(payload.payload())
    assert ["***", None] == payload.payload()["_meta"]["m"]
    assert "s3cr3t" not in caplog.text


async def test_results_and_short_values_are_not_masked(tmp_path: Path):
    """A result is what the command wants to say; and masking `no` would say nothing."""

    @skill_command(inject_settings=["api.key", "api.on"])
    async def showing(fail: bool, api_key: str, api_on: str) -> str:
        if fail:
            raise ValueError(f"not {api_on}")
        return api_key

    async with Runtime.open(tmp_path, flags={"api.key": "s3cr3t", "api.on": "on"}) as runtime:
        assert "s3cr3t" == (await call(runtime, showing, {"fail": False})).value
        assert "ValueError: not on" in (await call(runtime, showing, {"fail": True})).text


# Arguments


async def test_positional_only_parameters_keep_their_places(tmp_path: Path):
    """One that was left out has its default, and the next one stays the next."""

    @skill_command
    async def placed(a: int = 1, b: int = 2, /, c: int = 3) -> list[int]:
        return [a, b, c]

    async with Runtime.open(tmp_path) as runtime:
        assert [1, 9, 3] == (await call(runtime, placed, {"b": 9})).value


# Plugins


class Watcher:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @hookimpl
    def prowess_call_started(self, call: CallInfo) -> None:
        self.seen.append(("started", call.command, dict(call.arguments), call.client_name, call.trace_id))

    @hookimpl
    def prowess_call_finished(self, call: CallInfo, outcome: Outcome) -> None:
        self.seen.append(("finished", outcome.kind, outcome.call_id == call.call_id))


class Wrapper:
    """Notes when it is passed, and in which order."""

    def __init__(self, name: str, seen: list[Any]) -> None:
        self.name = name
        self.seen = seen

    @hookimpl
    async def prowess_wrap_call(self, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome:
        self.seen.append(f"{self.name} in")
        outcome = await proceed()
        self.seen.append(f"{self.name} out")
        return outcome


@skill_command(inject_settings=["api.key"])
async def echo(text: str, api_key: str = "x") -> str:
    """Say it again."""
    if text == "boom":
        raise ValueError(text)
    return text


async def test_a_watcher_hears_of_each_valid_call_and_its_outcome(tmp_path: Path):
    """Injected values are not shown to it; wrong arguments make no call."""
    watcher = Watcher()
    async with Runtime.open(tmp_path) as runtime:
        add(runtime, watcher)
        await call(runtime, echo, {"text": "hi"}, Channel(client_name="ide", trace_id="t1"))
        await call(runtime, echo, {"text": "boom"})
        await call(runtime, echo, {"wrong": 1})
    assert [
        ("started", "test_entry.echo", {"text": "hi"}, "ide", "t1"),
        ("finished", "ok", True),
        ("started", "test_entry.echo", {"text": "boom"}, "", ""),
        ("finished", "crashed", True),
    ] == watcher.seen


async def test_wrappers_are_nested_between_started_and_finished(tmp_path: Path):
    """The first is the outermost."""
    watcher = Watcher()
    async with Runtime.open(tmp_path) as runtime:
        add(runtime, watcher, "a")
        add(runtime, Wrapper("b", watcher.seen), "b")
        add(runtime, Wrapper("c", watcher.seen), "c")
        assert (await call(runtime, echo, {"text": "hi"})).ok
    names = [item if isinstance(item, str) else item[0] for item in watcher.seen]
    assert ["started", "b in", "c in", "c out", "b out", "finished"] == names


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(1)])
async def test_a_watcher_that_raises_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: BaseException
):
    """It is logged, and the next watcher is told."""

    class Broken:
        @hookimpl
        def prowess_call_started(self):
            raise error

        @hookimpl
        def prowess_call_finished(self):
            raise error

    watcher = Watcher()
    async with Runtime.open(tmp_path) as runtime:
        add(runtime, Broken(), "a")
        add(runtime, watcher, "b")
        assert "hi" == (await call(runtime, echo, {"text": "hi"})).value
    assert 2 == len(watcher.seen)
    assert ["plugin a failed in prowess_call_started", "plugin a failed in prowess_call_finished"] == caplog.messages


@pytest.mark.parametrize(
    "error, kind",
    [(ValueError("mine"), "crashed"), (SkillError("not now"), "failed"), (SystemExit(1), "crashed")],
)
async def test_a_wrapper_that_raises_fails_the_call(tmp_path: Path, error: BaseException, kind: str):
    """And the watchers hear of it."""

    class Broken:
        @hookimpl
        async def prowess_wrap_call(self):
            raise error

    watcher = Watcher()
    async with Runtime.open(tmp_path) as runtime:
        add(runtime, Broken(), "a")
        add(runtime, watcher, "b")
        outcome = await call(runtime, echo, {"text": "hi"})
    assert kind == outcome.kind
    assert ("finished", kind, True) == watcher.seen[-1]


async def test_a_wrapper_that_gives_no_outcome_is_told_what_to_return(tmp_path: Path):
    """Forgetting to return is the commonest mistake."""

    class Forgetful:
        @hookimpl
        async def prowess_wrap_call(self, proceed: Callable[[], Awaitable[Outcome]]):
            await proceed()

    async with Runtime.open(tmp_path) as runtime:
        add(runtime, Forgetful(), "forgetful")
        outcome = await call(runtime, echo, {"text": "hi"})
    assert "crashed" == outcome.kind
    assert (
        "prowess_wrap_call of plugin forgetful returned None instead of an Outcome; return `await proceed()`"
        in outcome.text
    )


async def test_a_wrapper_may_proceed_again(tmp_path: Path):
    """Each time everything is provided anew; what was closed is not handed out again."""

    class Again:
        @hookimpl
        async def prowess_wrap_call(self, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome:
            outcome = await proceed()
            return outcome if outcome.ok else await proceed()

    class Db:
        closed = False

    dbs: list[Db] = []

    def open_db():
        dbs.append(Db())
        yield dbs[-1]
        dbs[-1].closed = True

    @skill_command
    async def using(db: Db) -> bool:
        if len(dbs) == 1:
            raise ValueError
        return db.closed

    async with Runtime.open(tmp_path) as runtime:
        runtime._services.injectables.provide(Db, open_db, lifetime="call")
        add(runtime, Again())
        outcome = await call(runtime, using)
    assert (False, 2) == (outcome.value, len(dbs))


async def test_a_cancelled_call_passes_through_its_wrappers(tmp_path: Path):
    """It has no outcome, so nobody is told of one."""
    watcher, begun = Watcher(), anyio.Event()

    @skill_command
    async def endless():
        begun.set()
        await anyio.sleep_forever()

    async with Runtime.open(tmp_path) as runtime:
        add(runtime, watcher, "a")
        add(runtime, Wrapper("b", watcher.seen), "b")
        task = asyncio.ensure_future(call(runtime, endless))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [("started", "test_entry.endless", {}, "", ""), "b in"] == watcher.seen


async def test_watchers_hear_of_questions_too(tmp_path: Path):
    """A run that ends with a question has come to an outcome."""
    watcher = Watcher()

    @skill_command
    async def asking(ctx: Context):
        await ctx.ask("name", "Who?")

    async with Runtime.open(tmp_path) as runtime:
        add(runtime, watcher)
        outcome = await call(runtime, asking, channel=Channel(answers={}))
    assert ("finished", "input_required", True) == watcher.seen[-1]
    assert {"name"} == set(outcome.questions)


async def test_a_wrapper_may_ask_in_its_own_way(tmp_path: Path):
    """`InputRequired` is control flow wherever it comes from."""

    class Asking:
        @hookimpl
        async def prowess_wrap_call(self):
            raise InputRequired({"ok": {"message": "Sure?", "schema": {"type": "object"}}})

    async with Runtime.open(tmp_path) as runtime:
        add(runtime, Asking())
        assert "input_required" == (await call(runtime, echo, {"text": "hi"})).kind


# Renderers


async def test_plugins_render_foreign_values_in_turn(tmp_path: Path):
    """The first that gives something wins; values of declared types are not asked about."""

    class Matrix:
        pass

    class Shy:
        @hookimpl
        def prowess_render(self, value: Any) -> Any:
            return None

    class Renderer:
        @hookimpl
        def prowess_render(self, value: Any) -> Any:
            return {"rows": 2} if isinstance(value, Matrix) else None

    @skill_command
    async def matrix():
        return Matrix()

    async with Runtime.open(tmp_path) as runtime:
        add(runtime, Shy(), "a")
        add(runtime, Renderer(), "b")
        assert {"rows": 2} == (await call(runtime, matrix)).value


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(1)])
async def test_a_renderer_that_raises_fails_the_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: BaseException
):
    """The outcome names the plugin and the type; the log has the traceback."""

    class Broken:
        @hookimpl
        def prowess_render(self, value: Any) -> Any:
            raise error

    @skill_command
    async def odd():
        return object()

    async with Runtime.open(tmp_path) as runtime:
        add(runtime, Broken(), "broken")
        outcome = await call(runtime, odd)
    assert "output" == outcome.kind
    assert f"plugin broken could not render a object: {type(error).__name__}: {error}" in outcome.text
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.ERROR)
