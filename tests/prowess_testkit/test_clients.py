"""Both clients do the same on both wires: one in this process, one with a real host."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from prowess import mcp_schema
from prowess_testkit import (
    CANCEL,
    DECLINE,
    HANDSHAKE,
    STATELESS,
    WIRES,
    Client,
    HostEnded,
    Person,
    ProcessClient,
    Project,
    ProtocolError,
    RerunForever,
    Unanswered,
    connect,
    serve,
)
from prowess_testkit.client import Log, Progress

pytestmark = pytest.mark.usefixtures("forked_hosts")
Open = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(params=[connect, serve])
def opened(request: pytest.FixtureRequest) -> Open:
    return request.param


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_client_lists_and_calls(notes: Project, opened: Open, wire: str):
    """By wire name and by id; what one call changed the next one sees."""
    async with opened(notes, version=wire) as client:
        tools = {tool["name"]: tool for tool in await client.tools()}
        first = await client.call("notes_add", text="one")
        second = await client.call("notes.add", text="two")

    assert {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]} == {
        key: value for key, value in tools["notes_add"]["inputSchema"].items() if key != "additionalProperties"
    }
    assert "Add a line." == tools["notes_add"]["description"]
    assert ("1", "2") == (first.text, second.text)
    assert (False, {"result": 2} if wire == HANDSHAKE else 2) == (second.is_error, second.structured)
    mcp_schema.validate(first)
    mcp_schema.validate(second)


async def test_both_clients_see_the_same(notes: Project, wire: str):
    """Tools, payloads and what was told meanwhile."""
    seen: list[Any] = []
    for kind in (connect, serve):
        async with kind(notes, version=wire, person=Person(True, {"a": "x"})) as client:
            tools = await client.tools()
            payloads = [await client.call(name) for name in ("notes.chat", "notes.clear", "notes.fail", "notes.key")]
            payloads.append(await client.call("notes.add", txt="x"))
            seen.append((tools, payloads, client.progress, client.logs, client.person.asked))

    assert seen[0] == seen[1]


async def test_failure_of_a_command_is_a_payload(notes: Project, opened: Open, wire: str):
    """The model reads it; nothing is raised."""
    async with opened(notes, version=wire) as client:
        failed = await client.call("notes.fail")

    assert (True, "no such line", None) == (failed.is_error, failed.text, failed.structured)


async def test_unknown_tool_is_a_protocol_error(notes: Project, opened: Open, wire: str):
    """There is no result, so it is raised."""
    async with opened(notes, version=wire) as client:
        with pytest.raises(ProtocolError, match=r"Unknown tool: notes\.ad; did you mean \"notes.*\(-32602\)") as caught:
            await client.call("notes.ad")

    assert -32602 == caught.value.code


async def test_progress_and_logs_are_collected(notes: Project, opened: Open, wire: str):
    """In order, over all calls."""
    async with opened(notes, version=wire) as client:
        await client.call("notes.chat", steps=2)

    assert [Progress(1, 2, "step 1"), Progress(2, 2, "step 2")] == client.progress
    assert [Log("info", {"step": 1}), Log("info", {"step": 2})] == client.logs


async def test_person_answers_by_the_script(notes: Project, opened: Open, wire: str):
    """A single value fills the only field, a dict the form, a function decides when it is asked."""
    person = Person(True)
    person.replies(lambda question: {"a": question.message, "b": "because"})
    async with opened(notes, version=wire, person=person) as client:
        cleared = await client.call("notes.clear")

    assert "{'a': 'Why?', 'b': 'because'}" == cleared.text.partition(", started")[0]
    assert ["Remove all lines?", "Why?"] == [question.message for question in person.asked]
    assert (1 if wire == HANDSHAKE else 3) == client.runs


@pytest.mark.parametrize(("reply", "action"), [(DECLINE, "decline"), (CANCEL, "cancel")])
async def test_person_may_refuse(notes: Project, opened: Open, wire: str, reply: Any, action: str):
    """With and without a no."""
    async with opened(notes, version=wire, person=Person(reply)) as client:
        assert f"nothing was removed: {action}" == (await client.call("notes.clear")).text


async def test_rerun_starts_a_command_again_on_every_wire(notes: Project, opened: Open, wire: str):
    """Two questions: three runs, and the effects of what stands before the first question are there three times."""
    async with opened(notes, version=wire, person=Person(True, {})) as client:
        cleared = await client.rerun("notes.clear")

    assert "{}, started 3" == cleared.text
    assert 3 == client.runs
    assert 2 == len(client.person.asked)


async def test_question_without_a_reply_fails_the_test(notes: Project, opened: Open, wire: str):
    """Also where the command takes what happens for an answer."""
    async with opened(notes, version=wire) as client:
        with pytest.raises(Unanswered, match=r"asked 'Really\?', and the script is empty; add a reply"):
            await client.call("notes.careless")
        client.person.replies(True)
        assert "True" == (await client.call("notes.careless")).text


async def test_reply_that_does_not_fit_the_form_fails_the_test(notes: Project, opened: Open, wire: str):
    """A form of two fields takes a dict."""
    async with opened(notes, version=wire, person=Person(True, "because")) as client:
        with pytest.raises(
            TypeError, match=r"'because' cannot fill the form of 'Why\?', which has the fields \['a', 'b'\]"
        ):
            await client.call("notes.clear")


async def test_command_that_asks_something_new_in_every_run_is_found(notes: Project, opened: Open):
    """Its key changes from run to run, so no answer ever fits."""
    async with opened(notes, version=STATELESS, person=Person(*[True] * 40)) as client:
        with pytest.raises(RerunForever, match=r"notes\.forever still asks 'q3\d' in run number 32"):
            await client.call("notes.forever")


async def test_client_that_cannot_ask_is_not_asked(notes: Project, opened: Open, wire: str):
    """The command fails on a handshake wire, the request on the stateless one."""
    async with opened(notes, version=wire, capabilities={}) as client:
        if wire == HANDSHAKE:
            failed = await client.call("notes.clear")
            assert failed.is_error
            assert "elicitation" in failed.text
        else:
            with pytest.raises(ProtocolError, match="elicitation") as caught:
                await client.call("notes.clear")
            assert (-32021, {"requiredCapabilities": {"elicitation": {}}}) == (caught.value.code, caught.value.data)


async def test_missing_capability_is_told_as_on_the_wire(notes: Project, opened: Open, wire: str):
    """The whole path of it."""
    async with opened(notes, version=wire) as client:
        if wire == HANDSHAKE:
            assert "sampling.tools" in (await client.call("notes.needs_sampling")).text
        else:
            with pytest.raises(ProtocolError) as caught:
                await client.call("notes.needs_sampling")
            assert {"requiredCapabilities": {"sampling": {"tools": {}}}} == caught.value.data


async def test_settings_reach_both(notes: Project, opened: Open):
    """From a mapping, with the types they were given."""
    notes.configure({"api": {"key": "x"}, "api.limits": {"n": [1, 2]}, "timeout": 7})
    async with opened(notes) as client:
        assert '["x",{"n":[1,2]},7.0]' == (await client.call("notes.key")).text.replace(" ", "")


ASKING = '''
from prowess import Context, Roots, Sample, skill_command


@skill_command
async def everything(ctx: Context, away: bool = False) -> str:
    """Ask for all there is."""
    gone = away and ctx.background()
    page = await ctx.ask_url("page", "Look", "https://example.org")
    ctx.url_done("page")
    answers = await ctx.ask_all({"name": ("Who?", str), "city": Sample("City?"), "folders": Roots()})
    return " ".join([str(gone), page.action, *(str(answer.value) for answer in answers.values())])
'''


@pytest.mark.parametrize("away", [False, True])
async def test_client_answers_every_kind_of_question(notes: Project, opened: Open, wire: str, *, away: bool):
    """By one script, in a run, in reruns and in the background."""
    notes.write("skills/asking.py", ASKING)
    able = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
    able["extensions"] = {"io.modelcontextprotocol/tasks": {}}
    person = Person(True, "Ada", "Paris", ["file:///x"])
    async with opened(notes, version=wire, person=person, capabilities=able) as client:
        said = await client.call("asking_everything", away=away)
        runs = client.runs

    gone = away and wire == STATELESS
    assert f"{gone} accept Ada Paris ['file:///x']" == said.text
    assert runs == (3 if wire == STATELESS and not away else 1)
    assert ["https://example.org", "", "", ""] == [question.url for question in person.asked]


async def test_client_opens_a_folder(notes: Project, opened: Open):
    """What a test has is often a path."""
    async with opened(notes.root) as client:
        assert "1" == (await client.call("notes.add", text="one")).text


async def test_client_has_a_name(notes: Project, opened: Open, wire: str):
    """Some limits depend on it."""
    async with opened(notes, version=wire) as client, opened(notes.root, version=wire, client_name="zed") as zed:
        assert "prowess-testkit" == (await client.call("notes.who")).text
        assert "zed" == (await zed.call("notes.who")).text


# What only a process has


async def test_process_client_makes_any_request(notes: Project, wire: str):
    """Errors are raised here too."""
    async with serve(notes, version=wire) as client:
        assert "notes_add" in {tool["name"] for tool in (await client.request("tools/list"))["tools"]}
        with pytest.raises(ProtocolError, match="Method not found"):
            await client.request("no/such")


async def test_process_client_hears_notifications(notes: Project):
    """A saved file is announced."""
    async with serve(notes) as client:
        await client.tools()
        notes.write(
            "skills/more.py", "from prowess import skill_command\n\n@skill_command\ndef it() -> int:\n    return 5\n"
        )
        assert {} == await client.notified("notifications/tools/list_changed")
        assert "5" == (await client.call("more.it")).text


async def test_host_that_ends_is_told_with_its_stderr(notes: Project):
    """And nothing waits for answers that cannot come."""
    with pytest.raises(HostEnded, match="before it answered tools/call") as caught:  # noqa: PT012 - the last line raises
        async with serve(notes) as client:
            await client.tools()
            client.host.process.kill()
            await client.host.ended()
            await client.call("notes.add", text="x")

    assert "exit code -9" in str(caught.value)


async def test_error_in_a_test_carries_the_stderr_of_the_host(notes: Project):
    """What a skill printed is often the reason."""
    notes.write(
        "skills/loud.py",
        "from prowess import skill_command\n\n@skill_command\ndef it() -> None:\n    print('look here')\n",
    )
    with pytest.raises(ZeroDivisionError) as caught:  # noqa: PT012 - the last line raises
        async with serve(notes) as client:
            await client.call("loud.it")
            while "look here" not in client.stderr:
                await client.call("loud.it")
            raise ZeroDivisionError

    assert "look here" in "".join(caught.value.__notes__)


async def test_host_that_refuses_to_start_says_why(notes: Project):
    """The reason stands on its stderr."""
    notes.write("prowess.toml", "timeout = 'soon'")
    with pytest.raises(HostEnded, match="timeout must be a number"):
        async with serve(notes):
            pass


async def test_process_client_is_one_of_the_two(notes: Project):
    """They share what they can do."""
    assert issubclass(ProcessClient, Client)


NOTES = """
from typing import Literal
from prowess import prompt, resource

def ids(value):
    return [f"{value}1"]

@resource("notes://all")
def everything() -> str:
    return "all"

@resource("notes://{id}", complete={"id": ids})
def note(id: int) -> str | None:
    return f"note {id}" if id else None

@prompt
def review(code: str, language: Literal["python", "perl"] = "python") -> str:
    return f"Review this {language}: {code}"
"""


async def test_resources_and_prompts(project: Project, opened: Open, wire: str):
    """Listed, read, got and completed alike; and what is not there is an error of the wire."""
    project.write("skills/notes.py", NOTES)
    async with opened(project, version=wire) as client:
        assert ["notes://all"] == [each["uri"] for each in await client.resources()]
        assert ["notes://{id}"] == [each["uriTemplate"] for each in await client.templates()]
        assert ["notes_review"] == [each["name"] for each in await client.prompts()]
        assert [] == await client.tools() or opened is serve  # a host says that there is no command
        assert "note 7" == (await client.read("notes://7"))[0]["text"]
        (message,) = await client.prompt("notes_review", code="x")
        assert "Review this python: x" == message["content"]["text"]
        assert ["perl"] == await client.complete("notes_review", "language", "pe")
        assert ["51"] == await client.complete("notes://{id}", "id", "5")
        for uri in ("notes://0", "nobody://x"):
            with pytest.raises(ProtocolError) as missing:
                await client.read(uri)
            assert (-32602 if wire == STATELESS else -32002, uri) == (missing.value.code, missing.value.data["uri"])
        with pytest.raises(ProtocolError, match="code: required"):
            await client.prompt("notes_review")
        with pytest.raises(ProtocolError, match="Method not found"):
            await client.request("nothing/list")
