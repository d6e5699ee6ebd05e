"""A worker: frames in, calls run, frames out; driven over a real socket in the loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import json
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after
from patience import PATIENCE
from tests.prowess.embedded import write

from prowess.injection import scopes
from prowess.runtime import Runtime
from prowess.skills.description import Description, digest_of
from prowess.skills.loading import project_files
from prowess.skills.texts import pack
from prowess.worker import serving
from prowess.worker.board import Board
from prowess.worker.link import Frame, Link
from prowess.worker.messages import Kind
from prowess.worker.serving import Imports, LinkServer, _Head, main

SKILL = """
    from __future__ import annotations
    import asyncio, os, sys, threading, time
    from typing import Annotated, Any
    from pydantic import BeforeValidator
    from prowess import Context, prompt, resource, skill_command

    def lambda_of(value: str) -> list[str]:
        return [value + "aris"]

    gate, held = threading.Event(), threading.Event()

    def leave(value):
        sys.exit(3)

    @skill_command
    async def say(text: str = "") -> str:
        return text

    @skill_command
    async def wait() -> None:
        await asyncio.sleep(600)

    @skill_command
    async def stubborn(times: int) -> None:
        for _ in range(times):
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass

    reasons = []

    @skill_command
    async def reason() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError as error:
            reasons.append(list(error.args))
            raise

    @skill_command
    async def reasons_so_far() -> list[list[str]]:
        return reasons

    @skill_command
    def hold() -> None:
        held.set()
        gate.wait()

    @skill_command
    def until_held() -> None:
        held.wait()

    @skill_command
    def release() -> None:
        gate.set()

    @skill_command
    def seven() -> int:
        return 7

    @skill_command
    async def sure(ctx: Context) -> str:
        return str((await ctx.ask("sure", "Sure?", bool)).value)

    @skill_command
    async def leaving(ctx: Context) -> str:
        gone = ctx.background()
        one, two = await asyncio.gather(ctx.ask("one", "One?", int), ctx.ask("two", "Two?", int))
        ctx.url_done("page")
        return f"{gone} {one.value} {two.value}"

    left = []

    async def ask_late(ctx):
        try:
            await ctx.ask("late", "Late?")
        except Exception as error:
            left.append(str(error))

    @skill_command
    async def leaving_behind(ctx: Context) -> None:
        left.append(asyncio.create_task(ask_late(ctx)))
        await asyncio.sleep(0)

    @skill_command
    async def left_behind() -> str:
        await left[0]
        return left[1]

    @skill_command
    async def tell(ctx: Context) -> None:
        ctx.progress(1, 2.5, "m")
        ctx.progress(2)
        ctx.log("info", {"a": 1})

    @skill_command
    async def flood(ctx: Context, count: int) -> None:
        for number in range(count):
            ctx.progress(number, count, "m" * 100)
            ctx.log("info", number)
        await ctx.log("info", "x" * 100)

    @skill_command
    async def needs(ctx: Context) -> None:
        ctx.require_capability("sampling.tools")

    @skill_command
    async def block(seconds: float) -> None:
        time.sleep(seconds)

    @skill_command
    async def hold_loop() -> None:
        held.set()
        gate.wait()

    @skill_command(cache_ttl=600, idempotent=True)
    async def kept() -> str:
        return "kept"

    @skill_command(concurrency=1)
    async def alone() -> str:
        while not gate.is_set():
            await asyncio.sleep(0.001)
        return "alone"

    @skill_command
    async def who(ctx: Context) -> str:
        return f"{ctx.client_name} {ctx.capabilities} {ctx.trace_id}"

    @skill_command
    async def named(ctx: Context) -> str:
        return ctx.call_id

    @resource("notes://{id}")
    async def note(id: int, ctx: Context) -> str:
        ctx.updated("notes://other")
        return f"{id} at {ctx.uri}"

    @prompt(complete={"city": lambda_of})
    async def trip(city: str) -> str:
        return city

    @skill_command(inject_settings=["api.key:hidden"])
    async def keyed(hidden: str) -> None:
        pass
"""


def test_the_entry_point_starts_nothing_when_it_is_imported() -> None:
    """Only `python -m prowess.worker` does."""
    assert main is importlib.import_module("prowess.worker.__main__").main


def told(frame: Frame) -> tuple:
    """The fields of a head, in their order."""
    return tuple(json.loads(frame.head).values())


class Host:
    """The other end of the link."""

    def __init__(self, worker: LinkServer, board: Board, runtime: Runtime) -> None:
        self.worker = worker
        self.runtime = runtime
        self.board = board
        self.frames: list[Frame] = []
        self.live: list[dict[str, str]] = []
        self.link = Link(self.hear, lambda: None)

    def hear(self, frame: Frame) -> None:
        if frame.kind == Kind.LIVE:
            self.live.append(json.loads(frame.head)["digests"])
        else:
            self.frames.append(frame)

    async def heard(self, kind: Kind, number: int = 0) -> Frame:
        """The newest frame of this kind for this number, which is then forgotten."""
        with fail_after(PATIENCE):
            while True:
                for frame in self.frames:
                    if frame[:2] == (kind, number) or (frame.kind == kind and not number):
                        self.frames.remove(frame)
                        return frame
                await asyncio.sleep(0.001)

    def begin(self, number: int, command: str, arguments: Any = None, **how: Any) -> None:
        text = arguments if isinstance(arguments, bytes) else json.dumps(arguments or {}).encode()
        self.link.send(Kind.CALL, number, json.dumps({"command": command, **how}).encode(), text)

    async def call(self, number: int, command: str, arguments: Any = None, **how: Any) -> tuple[dict, dict]:
        """`_meta` and the rest of a result."""
        self.begin(number, command, arguments, **how)
        frame = await self.heard(Kind.RESULT, number)
        return json.loads(frame.head), json.loads(frame.body)

    async def lingering(self) -> int:
        self.link.send(Kind.PING)
        return (await self.heard(Kind.PONG)).number


async def until(condition: Callable[[], Any]) -> None:
    with fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - it sends no event
            await asyncio.sleep(0.001)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncGenerator[Host]:
    """A worker in this loop, and the host it serves."""
    async with linked(tmp_path) as host:
        yield host


@contextlib.asynccontextmanager
async def linked(tmp_path: Path, mark: str = "", shares: str = "") -> AsyncGenerator[Host]:
    """The same, with the skills that are there by now."""
    loop = asyncio.get_running_loop()
    board = Board()
    async with Runtime.open(write(tmp_path, t=SKILL), flags={"api.key": "s3cr3t-key"}) as runtime:
        await runtime.find("t.say")  # calls begin in the order in which they come, once nothing has to be imported
        worker = LinkServer(runtime, board, mark=mark, shares=shares)
        host = Host(worker, board, runtime)
        ours, theirs = socket.socketpair()
        await loop.create_connection(lambda: host.link, sock=ours)
        await loop.create_connection(lambda: worker.link, sock=theirs)
        yield host
        host.link.close()
        with fail_after(PATIENCE):
            await worker.gone.wait()
    board.close()


async def test_a_call_gives_a_ready_made_result(host: Host):
    """`_meta` apart, so that it can be spliced."""
    meta, body = await host.call(1, "t.say", {"text": "x"})
    assert {} == meta
    assert {"content": [{"type": "text", "text": "x"}], "isError": False} == body
    assert host.board.started(1)


async def test_an_outcome_is_sent_whole_where_it_is_asked_for(host: Host):
    """With all its facts in the place of `_meta`, and under the id that the caller gave."""
    facts, body = await host.call(1, "t.say", {"text": "x"}, outcome=True, call_id="mine")
    assert ("ok", 1, False, "mine") == tuple(
        facts[f"prowess/{name}"] for name in ("kind", "attempts", "cached", "call_id")
    )
    assert facts["prowess/duration"] > 0
    assert ("x", "x", True) == (body["result"]["value"], body["result"]["text"], body["result"]["structured"])


async def test_a_resource_is_read_at_its_uri(host: Host):
    """The call says which one; and what a call has changed is said before its result."""
    _, body = await host.call(1, "t.note", {"id": "7"}, uri="notes://07")
    assert {"contents": [{"uri": "notes://07", "mimeType": "text/plain", "text": "7 at notes://07"}]} == body
    assert ("notes://other",) == told(await host.heard(Kind.UPDATED))
    facts, _ = await host.call(2, "t.note", {"id": "7"}, uri="notes://07", outcome=True)
    assert "notes://07" == facts["prowess/uri"]


async def test_an_argument_is_completed(host: Host):
    """The body is what was typed."""
    _, body = await host.call(1, "t.trip", {"value": "P", "arguments": {}}, completes="city")
    assert {"completion": {"values": ["Paris"], "total": 1, "hasMore": False}} == body


async def test_a_wire_without_boxes_gets_none(host: Host):
    assert 7 == (await host.call(1, "t.seven", {}, boxed=False, profile="portable"))[1]["structuredContent"]
    assert {"result": 7} == (await host.call(2, "t.seven", {}, profile="portable"))[1]["structuredContent"]


async def test_a_failure_says_its_kind(host: Host):
    meta, body = await host.call(1, "t.say", {"text": 5})
    assert ("input", True) == (meta["prowess/kind"], body["isError"])


@pytest.mark.parametrize("arguments", [b"[" * 5000, b"{", b'{"text":"\xff"}'])
async def test_arguments_that_cannot_be_read_are_an_input_failure(host: Host, arguments: bytes):
    """Deeper than anybody nests them, or no JSON at all."""
    meta, body = await host.call(1, "t.say", arguments)
    assert ("input", True) == (meta["prowess/kind"], body["isError"])


async def test_a_number_beyond_any_float_is_an_input_failure(host: Host):
    meta, _ = await host.call(1, "t.say", b'{"text":1e999}')
    assert "input" == meta["prowess/kind"]


async def test_a_result_that_is_too_large_comes_in_parts(host: Host):
    """Its beginning as the answer, and the whole of it for the host to keep, if it wants to; the arguments may be large."""
    text = "ab" * 100_000
    meta, result = await host.call(1, "t.say", {"text": text}, most=10, kept=1_000_000)
    whole = await host.heard(Kind.REST, 1)
    assert text == whole.body.decode()
    assert "ababababab" == result["content"][0]["text"]
    assert 200_000 == meta["prowess/cut"]["characters"]
    _, result = await host.call(2, "t.say", {"text": text}, most=10, kept=100)
    assert "too large to be kept" in result["content"][-1]["text"]
    assert not [frame for frame in host.frames if frame.kind == Kind.REST]


async def test_a_result_is_not_cut_for_the_bytes_around_its_text(host: Host):
    _, result = await host.call(1, "t.say", {"text": "ab" * 10}, most=20, kept=100)
    assert "ab" * 10 == result["content"][0]["text"]


async def test_an_unknown_command_is_refused(host: Host):
    host.begin(1, "t.no")
    assert "unknown" == json.loads((await host.heard(Kind.REFUSED, 1)).head)["kind"]


async def test_a_missing_capability_is_refused_where_the_wire_has_a_word_for_it(host: Host):
    host.begin(1, "t.needs", answers={})
    assert "sampling.tools" == json.loads((await host.heard(Kind.REFUSED, 1)).head)["name"]
    meta, _ = await host.call(2, "t.needs")
    assert "failed" == meta["prowess/kind"]


async def test_a_frame_of_no_meaning_is_ignored(host: Host):
    """It may be from a newer host."""
    host.link.send(Kind.READY, 1)
    host.link.send(Kind.FOUND, 1)
    assert 0 == await host.lingering()


async def test_a_worker_asks_for_results_of_other_hosts_where_there_may_be_some(tmp_path: Path) -> None:
    """The host says so. Others share nothing, and are asked nothing."""
    cached = """
        from prowess import skill_command

        @skill_command(cache_ttl=60)
        def three() -> int:
            return 3
    """
    async with linked(write(tmp_path, c=cached), shares="settings") as host:
        host.begin(1, "c.three", scopes='["a"]')
        asked = await host.heard(Kind.FIND)
        host.link.send(Kind.FOUND, asked.number)
        kept = await host.heard(Kind.KEEP, asked.number)
        assert 3 == json.loads((await host.heard(Kind.RESULT, 1)).body)["structuredContent"]["result"]
        assert ((60,), 3) == (told(kept), json.loads(kept.body)["value"])


async def test_a_retired_worker_begins_nothing(host: Host):
    """The call is run by another one, which it says, since the host may have seen its mark and taken it for begun."""
    await host.call(1, "t.say")  # the skill is loaded now, so that the next call gets as far as beginning
    host.board.retire()
    host.begin(2, "t.say")
    for _ in range(2):
        assert 0 == await host.lingering()
    assert [(Kind.UNBEGUN, 2)] == [(frame.kind, frame.number) for frame in host.frames]


async def test_what_a_command_is_told_of_its_caller(host: Host):
    _, body = await host.call(1, "t.who", client="c", capabilities={"x": {}}, trace="t")
    assert "c {'x': {}} t" == body["content"][0]["text"]


async def test_progress_and_logs_are_sent_where_they_are_wanted(host: Host):
    await host.call(1, "t.tell", progress=True, log=True)
    assert (1, 2.5, "m") == told(await host.heard(Kind.PROGRESS, 1))
    assert (2, None, None) == told(await host.heard(Kind.PROGRESS, 1))
    assert ("info", {"a": 1}) == told(await host.heard(Kind.LOG, 1))
    await host.call(2, "t.tell")
    assert [] == host.frames


async def test_a_host_that_does_not_read_gets_the_newest_progress_and_hears_of_lost_logs(host: Host):
    """The worker keeps one progress of each call, and no logs, until there is room."""
    transport = host.link._transport
    transport.pause_reading()  # type: ignore[union-attr]
    host.begin(1, "t.flood", {"count": 100_000}, progress=True, log=True)
    await until(lambda: host.worker.link.full)
    transport.resume_reading()  # type: ignore[union-attr]
    await host.heard(Kind.RESULT, 1)
    await host.call(2, "t.tell", log=True)
    progress = [told(frame)[0] for frame in host.frames if frame.kind == Kind.PROGRESS]
    logs = [told(frame) for frame in host.frames if frame.kind == Kind.LOG and frame.number == 1]
    assert (99_999, sorted(progress)) == (progress[-1], progress)
    assert len(progress) < 50_000
    assert 99_999 not in [data for _, data in logs]
    first, second = [told(frame) for frame in host.frames if frame.kind == Kind.LOG and frame.number == 2]
    assert (
        "warning",
        f"{100_001 - len(logs)} log messages were dropped: they came faster than the host could read",
    ) == first
    assert ("info", {"a": 1}) == second


async def test_progress_that_was_held_back_is_sent_before_the_answer(host: Host):
    """Also where there is still no room."""
    transport = host.link._transport
    transport.pause_reading()  # type: ignore[union-attr]
    host.begin(1, "t.flood", {"count": 100_000}, progress=True)
    await until(lambda: host.worker.link.full and not host.worker._calls)
    transport.resume_reading()  # type: ignore[union-attr]
    await host.heard(Kind.RESULT, 1)
    newest = [told(frame)[0] for frame in host.frames if frame.kind == Kind.PROGRESS][-1]
    assert 99_999 == newest


async def test_what_plugins_report_is_made_into_json(host: Host):
    """They reach the channel without the care that `Context` takes."""
    channel = host.worker._channel(1, _Head.of({"command": "t.f", "progress": True, "log": True}))
    channel.progress(float("nan"), None, None)
    channel.progress(10**400, None, None)
    channel.progress("many", None, None)  # type: ignore[arg-type]
    channel.progress(1.5, float("inf"), "\ud800")
    assert (10**400, None, None) == told(await host.heard(Kind.PROGRESS, 1))
    assert (1.5, None, "\\ud800") == told(await host.heard(Kind.PROGRESS, 1))
    channel.log("info", float("nan"))
    assert ("info", "nan") == told(await host.heard(Kind.LOG, 1))
    assert [] == host.frames


# What a record needs


async def test_an_injected_text_is_told_once_and_before_the_result(host: Host):
    """So that whoever keeps a record can leave it out. Most calls are given what earlier ones were."""
    for number in (1, 2):
        await host.call(number, "t.keyed")
    assert [{"texts": ["s3cr3t-key"]}] == secrets_told(host)


async def test_a_worker_does_not_remember_all_texts_that_it_has_told(host: Host, monkeypatch: pytest.MonkeyPatch):
    """Some are new with every call."""
    monkeypatch.setattr("prowess.worker.serving._MOST_SECRETS", 1)
    for texts in (["one", "two"], ["three"], ["two"]):
        host.worker._send_secrets(texts)
    assert 0 == await host.lingering()
    assert [["one", "two"], ["three"], ["two"]] == [told["texts"] for told in secrets_told(host)]


def secrets_told(host: Host) -> list[dict[str, list[str]]]:
    return [json.loads(frame.head) for frame in host.frames if frame.kind == Kind.SECRETS]


async def test_a_call_has_an_id_that_the_host_knows(tmp_path: Path):
    """The mark of the host, and the number of the call."""
    async with linked(tmp_path, mark="abc") as host:
        assert "abc1f" == (await host.call(31, "t.named"))[1]["content"][0]["text"]
        assert "mine" == (await host.call(32, "t.named", call_id="mine"))[1]["content"][0]["text"]


# Questions


async def test_a_question_waits_for_its_answer(host: Host):
    host.begin(1, "t.sure", asks=True)
    assert "Sure?" == json.loads((await host.heard(Kind.QUESTIONS, 1)).head)["sure"]["message"]
    answers = {"sure": {"action": "accept", "content": {"value": True}}}
    for _ in range(2):  # the second one finds nobody who asks
        host.link.send(Kind.ANSWERS, 1, json.dumps({"answers": answers}).encode())
    assert "True" == json.loads((await host.heard(Kind.RESULT, 1)).body)["content"][0]["text"]


async def test_nobody_waits_for_an_answer_after_the_end_of_the_call(tmp_path: Path):
    """The task that a call has left behind goes on with an error, and the host hears nothing of an ended call."""
    async with linked(tmp_path) as host:
        host.begin(1, "t.leaving_behind", asks=True)
        await host.heard(Kind.RESULT, 1)
        told = (await host.call(2, "t.left_behind"))[1]["content"][0]["text"]
    assert "the call ended before its question was answered; await the tasks that ask" == told
    assert [Kind.QUESTIONS] == [frame.kind for frame in host.frames if frame.number == 1]


async def test_a_question_that_nobody_could_be_asked_is_a_failure(host: Host):
    host.begin(1, "t.sure", asks=True)
    await host.heard(Kind.QUESTIONS, 1)
    host.link.send(Kind.ANSWERS, 1, b'{"error":"no window"}')
    assert "no window" in (await host.heard(Kind.RESULT, 1)).body.decode()


async def test_data_of_clients_may_be_nested_deeply(host: Host):
    """Deeper than pydantic reads. The worker and its other calls are none the worse for it."""
    deep = json.loads("[" * 300 + "]" * 300)
    _, payload = await host.call(1, "t.say", {"text": "served"}, capabilities={"experimental": deep})
    assert "served" == payload["content"][0]["text"]
    host.begin(2, "t.sure", asks=True)
    await host.heard(Kind.QUESTIONS, 2)
    answers = {"sure": {"action": "accept", "content": {"value": True, "more": deep}}}
    host.link.send(Kind.ANSWERS, 2, json.dumps({"answers": answers}).encode())
    assert (await host.heard(Kind.RESULT, 2)).body


async def test_what_cannot_be_read_at_all_is_answered(host: Host):
    """The head of a call, and an answer."""
    unreadable = b"[" * 100_000
    host.link.send(Kind.CALL, 1, unreadable, b"{}")
    assert "RecursionError" in (await host.heard(Kind.RESULT, 1)).body.decode()
    host.begin(2, "t.sure", asks=True)
    await host.heard(Kind.QUESTIONS, 2)
    host.link.send(Kind.ANSWERS, 2, unreadable)
    assert "the answer cannot be read: " in (await host.heard(Kind.RESULT, 2)).body.decode()


async def test_a_cancelled_call_withdraws_no_question(host: Host):
    """The host does that itself, as soon as it cancels the call."""
    host.begin(1, "t.sure", asks=True)
    await host.heard(Kind.QUESTIONS, 1)
    host.link.send(Kind.CANCEL, 1)
    await host.call(2, "t.say")
    await until_quiet(host)
    assert [] == [frame for frame in host.frames if frame.kind == Kind.UNASKED]


async def test_recorded_answers_end_the_run_with_what_is_missing(host: Host):
    host.begin(1, "t.sure", answers={})
    assert ["sure"] == list(json.loads((await host.heard(Kind.INPUT_REQUIRED, 1)).head))


async def test_a_call_in_the_background_waits_for_its_answers(host: Host):
    """In the stateless era as well. Each of its tasks gets the answers that it asked for."""
    host.begin(1, "t.leaving", answers={}, asks_for=["form"], background=True)
    await host.heard(Kind.BACKGROUND, 1)
    asked = [json.loads((await host.heard(Kind.QUESTIONS, 1)).head) for _ in range(2)]
    assert [["one"], ["two"]] == [list(questions) for questions in asked]
    one, two = ({key: {"action": "accept", "content": {"value": 1}}} for key in ("one", "two"))
    for answers in (one, one, two):
        host.link.send(Kind.ANSWERS, 1, json.dumps({"answers": answers}).encode())
    assert {"key": "page"} == json.loads((await host.heard(Kind.URL_DONE, 1)).head)
    assert "True 1 1" == json.loads((await host.heard(Kind.RESULT, 1)).body)["content"][0]["text"]


async def test_a_client_is_asked_for_nothing_that_the_host_did_not_name(host: Host):
    host.begin(1, "t.sure", asks=True, asks_for=["roots"])
    assert "elicitation" in (await host.heard(Kind.RESULT, 1)).body.decode()


# Cancelling


async def until_quiet(host: Host) -> None:
    """Until nothing runs on that nobody waits for."""
    with fail_after(PATIENCE):
        while await host.lingering():  # noqa: ASYNC110 - it is the worker's answer that counts
            await asyncio.sleep(0)


async def test_a_cancelled_call_is_not_answered(host: Host):
    host.begin(1, "t.wait")
    host.link.send(Kind.CANCEL, 1)
    host.link.send(Kind.CANCEL, 2)  # one that is over
    assert "x" == (await host.call(3, "t.say", {"text": "x"}))[1]["content"][0]["text"]
    assert 0 == await host.lingering()
    assert [] == host.frames


async def test_a_cancelled_call_knows_whether_its_time_is_up(host: Host):
    """The host says so in CANCEL; it is the message of the cancellation."""
    for number, head in enumerate([b"", b'{"late": true}', b'{"late": false}'], 1):
        host.begin(number, "t.reason")
        await host.call(10 + number, "t.say", {"text": "x"})
        host.link.send(Kind.CANCEL, number, head)
        await until_quiet(host)
    seen = (await host.call(20, "t.reasons_so_far"))[1]["structuredContent"]["result"]
    assert [[], ["timed out"], []] == seen


async def test_a_call_that_swallows_its_cancellation_lingers(host: Host):
    """It is cancelled again and again, and counted meanwhile."""
    host.begin(1, "t.stubborn", {"times": 3})
    await host.call(2, "t.say")
    host.link.send(Kind.CANCEL, 1)
    assert 1 == await host.lingering()
    await until_quiet(host)


async def test_a_thread_that_is_left_behind_is_told_and_counted(host: Host):
    """Once when it is left, and whenever the host asks."""
    host.begin(1, "t.hold")
    await host.call(2, "t.until_held")
    host.link.send(Kind.CANCEL, 1)
    assert 1 == (await host.heard(Kind.LINGERING)).number
    await host.call(3, "t.say")
    assert 1 == await host.lingering()
    await host.call(4, "t.release")
    await until_quiet(host)
    assert [] == [frame for frame in host.frames if frame.kind == Kind.LINGERING]


CLEANING = """
    import asyncio, threading, time
    import anyio
    from prowess import Context, hookimpl, skill_command

    class OnLoop: ...

    class InThread: ...

    class Endless: ...

    seen, may_close = [], threading.Event()

    async def clean_up():
        seen.append("closing")
        while not may_close.is_set():
            await asyncio.sleep(0.001)
        seen.append("closed")

    async def on_loop():
        yield OnLoop()
        await clean_up()

    def in_thread():
        yield InThread()
        seen.append("closing")
        may_close.wait()
        seen.append("closed")

    async def endless():
        yield Endless()
        while True:
            try:
                await clean_up()
                return
            except asyncio.CancelledError:
                pass

    @hookimpl
    def prowess_injectables(provide):
        for kind, factory in ((OnLoop, on_loop), (InThread, in_thread), (Endless, endless)):
            provide(kind, factory, lifetime="call")

    @skill_command
    async def on_the_loop(it: OnLoop) -> None:
        seen.append("begun")
        await asyncio.sleep(600)

    @skill_command
    async def beside_a_thread(it: InThread) -> None:
        seen.append("begun")
        await asyncio.sleep(600)

    @skill_command
    def in_a_thread(it: InThread, ctx: Context) -> None:
        seen.append("begun")
        while not ctx.cancelled:
            time.sleep(0.001)

    @skill_command
    async def endlessly(it: Endless) -> None:
        seen.append("begun")
        await asyncio.sleep(600)

    @skill_command(timeout=0.05)
    async def shielded() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            with anyio.CancelScope(shield=True):
                await clean_up()

    @skill_command
    async def so_far() -> list[str]:
        return seen

    @skill_command
    async def let_close() -> None:
        may_close.set()
"""


async def until_noted(host: Host, what: str) -> None:
    """Until a clean-up has come so far."""
    with fail_after(PATIENCE):
        for number in itertools.count(100):
            if what in (await host.call(number, "c.so_far"))[1]["structuredContent"]["result"]:
                return


@pytest.mark.parametrize("command", ["on_the_loop", "beside_a_thread", "in_a_thread"])
async def test_a_cancelled_call_closes_its_objects_undisturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
):
    """It is not cancelled again meanwhile, and does not count as stuck."""
    monkeypatch.setattr(serving, "_AGAIN", 0.001)
    async with linked(write(tmp_path, c=CLEANING)) as host:
        host.begin(1, f"c.{command}")
        await until_noted(host, "begun")
        host.link.send(Kind.CANCEL, 1)
        await until_noted(host, "closing")
        for number in range(10, 20):
            await host.call(number, "t.say")
        assert 0 == await host.lingering()
        await host.call(2, "c.let_close")
        await until_noted(host, "closed")
        await until_quiet(host)


async def test_a_clean_up_that_does_not_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """After its time, the call counts as stuck."""
    monkeypatch.setattr(serving, "_AGAIN", 0.001)
    monkeypatch.setattr(scopes, "_CLOSING", 0.05)
    async with linked(write(tmp_path, c=CLEANING)) as host:
        host.begin(1, "c.endlessly")
        await until_noted(host, "begun")
        host.link.send(Kind.CANCEL, 1)
        assert 1 == (await host.heard(Kind.LINGERING)).number
        await host.call(2, "c.let_close")
        await until_quiet(host)


async def test_a_clean_up_that_hangs_in_a_thread_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Although the worker has nothing else to do."""
    monkeypatch.setattr(serving, "_AGAIN", 0.001)
    monkeypatch.setattr(scopes, "_CLOSING", 0.5)
    async with linked(write(tmp_path, c=CLEANING)) as host:
        host.begin(1, "c.in_a_thread")
        await until_noted(host, "begun")
        host.link.send(Kind.CANCEL, 1)
        await until_noted(host, "closing")
        await until(lambda: host.worker._reported_left)
        assert 1 == (await host.heard(Kind.LINGERING)).number
        await host.call(2, "c.let_close")
        await until_quiet(host)


async def test_a_worker_that_ends_waits_for_clean_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """However long that takes within its time, but not for a cancelled call that goes on."""
    monkeypatch.setattr(serving, "_STOPPING", 0.0)
    async with linked(write(tmp_path, c=CLEANING)) as host:
        await host.worker.end_calls()
        host.begin(1, "c.on_the_loop")
        await until_noted(host, "begun")
        host.link.send(Kind.CANCEL, 1)
        await until_noted(host, "closing")
        ending = asyncio.ensure_future(host.worker.end_calls())
        await until_noted(host, "closing")
        assert not ending.done()
        await host.call(2, "c.let_close")
        with fail_after(PATIENCE):
            await ending
        await until_noted(host, "closed")

        host.begin(3, "t.hold")
        await host.call(4, "t.until_held")
        host.link.send(Kind.CANCEL, 3)
        await host.heard(Kind.LINGERING)
        with fail_after(PATIENCE):
            await host.worker.end_calls()
        assert 1 == await host.lingering()
        await host.call(5, "t.release")
        await until_quiet(host)


async def test_a_call_that_its_deadline_has_cancelled_may_shield_its_clean_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The CANCEL that follows would pass through the shield. It takes effect only if the call does not end soon."""
    monkeypatch.setattr(serving, "_AGAIN", PATIENCE)
    async with linked(write(tmp_path, c=CLEANING)) as host:
        host.begin(1, "c.shielded")
        await until_noted(host, "closing")
        host.link.send(Kind.CANCEL, 1, b'{"late": true}')
        await host.call(2, "c.let_close")
        await until_noted(host, "closed")
        await until_quiet(host)


# What even the runtime lets through


class Odd:
    """A runtime whose calls end in a way no runtime's should."""

    def __init__(self, root: Path, end: Callable[[], Any]) -> None:
        self.root = root
        self.end = end
        self.abandoned = set[int]()
        self.loaded: dict[str, Any] = {}
        self.may_wait = False

    def known(self, _command: str) -> Odd:
        return self

    async def call(self, *_: Any) -> Any:
        return self.end()

    def describe(self, _known: Any, **_: Any) -> Any:
        return self.end()


def raising(error: BaseException) -> Callable[[], Any]:
    def end() -> Any:
        raise error

    return end


class Unsayable:
    """An outcome that cannot be written as JSON."""

    kind = "ok"
    missing_capability = None

    def payload(self, *_: Any, **__: Any) -> Any:
        return {"content": object()}


ODD = [
    (raising(SystemExit(3)), "crashed"),
    (raising(asyncio.CancelledError()), "crashed"),
    (Unsayable, "output"),
]


@pytest.mark.parametrize("end, kind", ODD, ids=["exit", "cancelled", "unsayable"])
async def test_every_call_is_answered(host: Host, end: Callable[[], Any], kind: str):
    """Whatever happens in it; and the loop goes on."""
    host.worker._runtime = Odd(Path("/"), end)  # type: ignore[assignment]
    meta, body = await host.call(1, "t.say")
    assert (kind, True) == (meta["prowess/kind"], body["isError"])


# The catalog


async def test_the_description_leaves_out_what_is_known(host: Host):
    """And comes with the files that skills import."""
    for known, told in (([], ["t"]), (["t"], [])):
        host.link.send(Kind.DESCRIBE, 0, json.dumps({"known": known}).encode())
        description = Description.from_json(json.loads((await host.heard(Kind.CATALOG)).head))
        assert told == [name for name in description.skills if name not in known]
        assert ("t",) == description.names


async def test_parts_of_the_description_can_be_asked_for(host: Host):
    """First the names, and then some skills."""
    for told, skills in (({"known": [], "most": 9}, ["t"]), ({"known": [], "only": []}, [])):
        host.link.send(Kind.DESCRIBE, 0, json.dumps(told).encode())
        description = Description.from_json(json.loads((await host.heard(Kind.CATALOG)).head))
        assert skills == list(description.skills)
        assert ("t",) == description.names


async def test_the_host_hears_of_what_is_imported_for_a_call(host: Host):
    """Once, with what it promises, so that it can compare; not of what it had described."""
    await host.call(1, "t.say", {"text": "x"})
    await host.call(2, "t.say", {"text": "y"})
    assert [{"t": digest_of(host.worker._runtime.loaded["t"])}] == host.live
    host.link.send(Kind.DESCRIBE, 0, b'{"known":[]}')
    await host.heard(Kind.CATALOG)
    await host.call(3, "t.say", {"text": "x"})
    assert 1 == len(host.live)


async def test_the_host_hears_nothing_more_of_a_skill_that_is_gone(host: Host):
    """Which the worker has reported, and then dropped for another version."""
    host.worker._reported.add("gone")
    await host.call(1, "t.say", {"text": "x"})
    await host.call(2, "t.say", {"text": "y"})
    assert [{"t"}] == [digests.keys() for digests in host.live]


async def test_a_catalog_that_cannot_be_made_is_a_reason(host: Host):
    """The host does not wait for ever."""
    host.worker._runtime = Odd(Path("/"), raising(RuntimeError("no catalog")))  # type: ignore[assignment]
    host.link.send(Kind.DESCRIBE, 0, b'{"known":[]}')
    assert "RuntimeError: no catalog" == json.loads((await host.heard(Kind.FAILED)).head)["message"]


def test_files_of_the_project_are_those_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not what is installed into it, and not what is gone by now."""
    module = type(sys)
    for name in ("here.py", "gone.py", "site-packages/x.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.touch()
        made = module(f"files_{file.stem}")
        made.__file__ = str(file)
        monkeypatch.setitem(sys.modules, made.__name__, made)
    (tmp_path / "gone.py").unlink()
    assert [str(tmp_path / "here.py")] == list(project_files(tmp_path))


async def test_a_call_that_waits_for_the_loop_has_not_begun(tmp_path: Path):
    """An execution that identical calls share is a task of its own. While another call blocks the loop it can be taken back."""
    async with linked(tmp_path) as host:
        module = host.runtime.module("t")

        def withdraw() -> None:
            module.held.wait(PATIENCE)
            if not host.board.started(1):
                host.board.withdraw([1])
            module.gate.set()

        thread = threading.Thread(target=withdraw)
        thread.start()
        host.begin(1, "t.kept")
        host.begin(2, "t.hold_loop")
        await host.heard(Kind.UNBEGUN, 1)
        await host.heard(Kind.RESULT, 2)
        thread.join()
        assert "kept" == (await host.call(3, "t.kept"))[1]["content"][0]["text"]
        assert host.board.started(3)


async def test_a_call_that_waits_for_a_slot_has_not_begun(tmp_path: Path):
    """Nor does it take a slot when it was taken back."""
    async with linked(tmp_path) as host:
        for number in (1, 2, 3):
            host.begin(number, "t.alone")
        await host.lingering()
        assert [True, False, False] == [host.board.started(number) for number in (1, 2, 3)]
        host.board.withdraw([2])
        host.runtime.module("t").gate.set()
        await host.heard(Kind.UNBEGUN, 2)
        for number in (1, 3):
            assert "alone" in (await host.heard(Kind.RESULT, number)).body.decode()
        assert host.board.started(3)


async def test_an_import_goes_on_when_the_call_that_began_it_is_given_up(tmp_path: Path):
    """It is no call that lingers, and whoever calls next finds it done."""
    gate = tmp_path / "gate"
    wait = f"import os, time\nwhile not os.path.exists({str(gate)!r}):\n    time.sleep(0.001)\n"
    write(
        tmp_path, slow=f"{wait}from prowess import skill_command\n@skill_command\ndef say() -> str:\n    return 'x'\n"
    )
    async with linked(tmp_path) as host:
        host.begin(1, "slow.say")
        assert 0 == await host.lingering()
        host.link.send(Kind.CANCEL, 1)
        for _ in range(3):
            assert 0 == await host.lingering()
        gate.touch()
        assert "x" == (await host.call(2, "slow.say"))[1]["content"][0]["text"]


def test_imports_that_go_on_at_once_are_all_noted():
    """Each until it is over."""
    board = Board()
    imports = Imports(board)
    imports("a", "/a.py")
    imports("b", "/b.py")
    assert [("a", "/a.py"), ("b", "/b.py")] == [noted[1:] for noted in board.noted]
    imports("a", "/a2.py")
    assert {("a", "/a2.py"), ("b", "/b.py")} == {noted[1:] for noted in board.noted}
    imports("b", "")
    imports("a", "")
    assert () == board.noted
    board.close()


async def test_a_skill_is_imported_from_the_source_that_the_host_gives(host: Host):
    """Before its first call."""
    file = host.worker._runtime.root / "skills/t.py"
    told = {"skill": "t", "place": str(file), "own": [str(file)], "has_hooks": False, "kept": True}
    text = file.read_bytes()
    file.write_text("import prowess\n1 / 0\n")
    host.link.send(Kind.SOURCE, 0, json.dumps(told).encode(), pack({str(file): text}))
    meta, payload = (await host.call(1, "t.say", {"text": "x"}))[:2]
    assert not payload["isError"], (meta, payload)
