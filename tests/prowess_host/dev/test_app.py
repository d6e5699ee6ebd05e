"""What the page can ask, and who may ask it. Without sockets: requests in, answers out."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after
from memory import MemoryClient, served
from patience import PATIENCE
from piped import HANDSHAKE, make_project, until, write_skill

from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess_host.dev.app import DevApp
from prowess_host.dev.messages import PageRequest, PageResponse, PageStream
from prowess_host.project import Project
from prowess_host.records.reading import RecordReader
from prowess_host.records.record_path import record_path

SKILL = """
    @skill_command(read_only=True)
    def add(one: int, two: int = 2) -> int:
        '''Add numbers.'''
        print("adding")
        return one + two

    @skill_command
    async def wait() -> None:
        await asyncio.sleep(600)

    @skill_command
    async def order(ctx: Context) -> str:
        told = await ctx.ask_all({"sure": ("Sure?", bool), "size": ("Which size?", int)})
        return ", ".join(f"{key} {answer.action} {answer.value}" for key, answer in told.items())
"""


class Page:
    """An app, and a browser that behaves."""

    def __init__(self, app: DevApp, project: Project) -> None:
        self.app = app
        self.project = project

    async def ask(self, path: str, *, method: str = "GET", told: Any = None, **headers: str) -> PageResponse:
        own = {
            "host": f"127.0.0.1:{self.app.port}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        if method == "POST":
            own = {"content-type": "application/json", **own}
        whole = path if path.startswith("/") else f"/{self.app.token}/{path}"
        body = told if isinstance(told, bytes) else json.dumps(told).encode()
        answer = await self.app.handle(
            PageRequest(method, whole, {name: value for name, value in own.items() if value}, body)
        )
        assert isinstance(answer, PageResponse)
        return answer

    async def json(self, path: str, **how: Any) -> Any:
        answer = await self.ask(path, **how)
        assert 200 == answer.status, answer.body
        return json.loads(answer.body)

    @contextlib.asynccontextmanager
    async def events(self, **headers: str) -> AsyncGenerator[Any]:
        """A function that waits for the next event of a kind."""
        request = PageRequest("GET", f"/{self.app.token}/api/events", {"host": f"127.0.0.1:{self.app.port}", **headers})
        stream = await self.app.handle(request)
        assert isinstance(stream, PageStream)

        async def heard(kind: str) -> Any:
            with fail_after(PATIENCE):
                async for part in stream.parts:
                    told = dict(line.split(": ", 1) for line in part.decode().strip().splitlines())
                    if told.get("event") == kind:
                        return json.loads(told["data"])
            raise AssertionError("the stream has ended")

        yield heard
        await stream.parts.aclose()  # type: ignore[attr-defined]


@pytest.fixture
async def page(tmp_path: Path) -> AsyncGenerator[Page]:
    root = make_project(tmp_path, t=SKILL)
    async with served(root) as project:
        app = DevApp(project, RecordReader(record_path(ConfigPaths.of(Settings.load(root, environ={}), {}))))
        app.port = 4242
        project.connect(app)
        yield Page(app, project)


# Who may ask


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:4242"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:4242"}, 403),
        ({"host": "127.0.0.1:1"}, 403),
        ({"host": ""}, 403),
        ({"origin": "http://127.0.0.1:4242"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": "https://127.0.0.1:4242"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
    ],
)
async def test_only_the_page_itself_may_ask(page: Page, headers: dict[str, str], status: int):
    """Not a page of another site, nor one whose name was made to lead to loopback (DNS rebinding)."""
    for path in ("", "api/state", "dev.js"):
        assert status == (await page.ask(path, **headers)).status


@pytest.mark.parametrize("path", ["/", "/api/state", "/wrong/api/state", "/é/", "//api/state"])
async def test_without_the_token_there_is_nothing(page: Page, path: str):
    answer = await page.ask(path)
    assert 404 == answer.status
    assert page.app.token.encode() not in answer.body


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_form_of_another_page_cannot_call(page: Page, kind: str):
    """A browser sends JSON to another origin only after it has asked, and nobody answers that."""
    told = {"command": "t.add", "arguments": {"one": 1}}
    assert 415 == (await page.ask("api/call", method="POST", told=told, content_type=kind)).status
    assert 405 == (await page.ask("api/call", method="OPTIONS")).status


def test_every_page_has_another_token():
    assert 2 == len({DevApp(None, None).token for _ in range(2)})  # type: ignore[arg-type]


# What there is


async def test_the_files_of_the_page(page: Page):
    assert b"<!doctype html>" in (await page.ask("")).body
    assert "text/javascript" in (await page.ask("dev.js")).type
    assert "text/css" in (await page.ask("dev.css")).type
    for path in ("../app.py", "index.html", "api/none", "api/calls/zzzz"):
        assert 404 == (await page.ask(path)).status


async def test_the_page_loads_nothing_from_elsewhere(page: Page):
    """It works offline."""
    for path in ("", "dev.js", "dev.css"):
        text = (await page.ask(path)).body.decode()
        assert "http://" not in text
        assert "https://" not in text
        assert "//cdn" not in text


async def test_commands_and_failures_are_told(page: Page):
    async with page.events() as heard:
        told = await heard("state")
        while not told["known"]:
            told = await heard("state")
        assert ["t.add", "t.order", "t.wait"] == [each["id"] for each in told["commands"]]
        first = told["commands"][0]
        assert ("Add numbers.", {"readOnlyHint": True}, ["one"]) == (
            first["summary"],
            first["hints"],
            first["schema"]["required"],
        )
        write_skill(page.project.settings.root, "bad.py", "\n1 / 0\n")
        told = await heard("state")
        while not told["failures"]:
            told = await heard("state")
        (failure,) = told["failures"]
        assert ("skills/bad.py", 5) == (failure["file"], failure["line"])
        assert "ZeroDivisionError" in failure["reason"]


async def test_a_command_is_called_and_its_story_told(page: Page):
    told = await page.json("api/call", method="POST", told={"command": "t.add", "arguments": {"one": 1}})
    assert ("ok", {"result": 3}) == (told["kind"], told["result"]["structuredContent"])
    await until(page.app._record.last_number)
    (call,) = await page.json("api/calls")
    assert ("t.add", "ok", '{"one": 1}') == (call["command"], call["kind"], call["arguments"])
    story = await page.json(f"api/calls/{told['id']}")
    assert ["adding"] == [event["data"] for event in story["events"]]


@pytest.mark.parametrize(
    "told",
    [
        b"{",
        b"[" * 100_000,
        [],
        {"command": "t.add"},
        {"command": 1, "arguments": {}},
        {"command": "t.add", "arguments": []},
    ],
)
async def test_what_is_no_call_is_refused(page: Page, told: Any):
    assert 400 == (await page.ask("api/call", method="POST", told=told)).status


async def test_an_unknown_command_says_so(page: Page):
    told = await page.json("api/call", method="POST", told={"command": "t.ad", "arguments": {}})
    assert "unknown" == told["kind"]


async def test_calls_of_others_are_heard_as_they_happen(page: Page):
    """While they run, and when they end. A browser that connects again hears what it has missed."""
    client = MemoryClient(page.project, HANDSHAKE)
    await client.open()
    async with page.events() as heard:
        await heard("state")
        number = client.start_call("t_wait")
        call = await heard("call")
        assert ("t.wait", "running", "memory") == (call["command"], call["kind"], call["client"])
        client.send({"method": "notifications/cancelled", "params": {"requestId": number}})
        assert "cancelled" == (await heard("call"))["kind"]
    async with page.events(**{"last-event-id": "0"}) as heard:
        assert "cancelled" == (await heard("call"))["kind"]
    async with page.events(**{"last-event-id": "9" * 5000}) as heard:
        await heard("state")


async def test_a_call_ends_when_nobody_waits_for_it(page: Page):
    """As when the page is closed."""
    asking = asyncio.ensure_future(page.ask("api/call", method="POST", told={"command": "t.wait", "arguments": {}}))
    await until(page.app._record.last_number)
    asking.cancel()

    async def kinds() -> list[str]:
        return [call["kind"] for call in await page.json("api/calls")]

    with fail_after(PATIENCE):
        while await kinds() != ["cancelled"]:  # noqa: ASYNC110 - a database sends no events
            await asyncio.sleep(0.01)


async def test_a_damaged_record_is_an_answer(page: Page):
    path = page.app._record.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no database" * 1000)
    answer = await page.ask("api/calls")
    assert (500, True) == (answer.status, b"damaged" in answer.body)


# Questions


ORDER = {"command": "t.order", "arguments": {}, "page": "mine"}


@contextlib.asynccontextmanager
async def asking(page: Page) -> AsyncGenerator[tuple[asyncio.Task[Any], Any]]:
    """A call that waits for its answers, and what the page is told of that."""
    async with page.events() as heard:
        call = asyncio.ensure_future(page.json("api/call", method="POST", told=ORDER))
        yield call, await heard("asked")
        call.cancel()
        await asyncio.wait([call])


async def answer(page: Page, number: Any, **answers: Any) -> tuple[int, Any]:
    got = await page.ask("api/answer", method="POST", told={"id": number, "answers": answers})
    return got.status, json.loads(got.body)


async def test_a_question_is_answered(page: Page):
    """Each with an action of its own. It carries the name of the page that called."""
    async with asking(page) as (call, asked):
        assert ("mine", "t.order", ["sure", "size"]) == (asked["page"], asked["command"], list(asked["questions"]))
        assert "Which size?" == asked["questions"]["size"]["message"]
        assert 200 == (await answer(page, asked["id"], sure=YES, size={"action": "decline"}))[0]
        with fail_after(PATIENCE):
            told = await call
        assert "sure accept True, size decline None" == told["result"]["content"][0]["text"]
        assert 404 == (await answer(page, asked["id"], sure=YES, size=YES))[0]


YES = {"action": "accept", "content": {"value": True}}


@pytest.mark.parametrize(
    ("answers", "status", "text"),
    [
        ({"sure": YES, "size": {"action": "accept", "content": {"value": "x"}}}, 200, "value: expected integer"),
        ({"sure": YES, "size": {"action": "accept"}}, 200, "expected object"),
        ({"sure": YES}, 400, "answer sure, size, each by accept, decline or cancel"),
        ({"sure": YES, "size": {"action": "maybe"}}, 400, "accept, decline or cancel"),
        ({"sure": YES, "size": {}}, 400, '"action"'),
    ],
)
async def test_an_answer_that_does_not_fit_can_be_mended(page: Page, answers: Any, status: int, text: str):
    """The call goes on waiting, and a page that opens now is told of the question."""
    async with asking(page) as (call, asked):
        got, told = await answer(page, asked["id"], **answers)
        assert status == got
        assert text in json.dumps(told, ensure_ascii=False).replace('\\"', '"')
        async with page.events() as heard:
            assert asked == await heard("asked")
        assert not call.done()


async def test_an_answer_to_nothing_is_refused(page: Page):
    """Whatever it is; and a call without a page to ask on fails and says why."""
    assert 404 == (await answer(page, "none"))[0]
    assert 404 == (await answer(page, ["none"]))[0]
    for text in (b"[", b"[" * 100_000):
        assert 400 == (await page.ask("api/answer", method="POST", told=text)).status
    told = await page.json("api/call", method="POST", told={"command": "t.order", "arguments": {}})
    assert "elicitation" in told["result"]["content"][0]["text"]


async def test_the_question_of_a_call_that_has_ended_is_gone(page: Page):
    """The page that asked has left."""
    async with asking(page) as (call, asked):
        call.cancel()
        await until(lambda: not page.app._asked)
        assert 404 == (await answer(page, asked["id"], sure=YES, size=YES))[0]
