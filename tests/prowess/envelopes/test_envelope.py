"""Envelopes: whatever comes in, a valid response goes out, and it says what happened."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from patience import PATIENCE

from prowess import Runtime
from prowess.calls.outcome import Outcome, read_outcome
from prowess.envelopes.envelope import Request, diagnostics, finish, invoke, is_rfc3339
from prowess.errors import ProwessError, SettingsError
from prowess.results.published import get_schema_path
from prowess.settings.credentials import Caller

SKILL = '''
from __future__ import annotations
import threading
from typing import Any
from prowess import Context, Image, SkillError, skill_command

gate = threading.Event()

@skill_command(cache_ttl=60)
def search(query: str, max_results: int = 5) -> list[dict[str, str]]:
    """Search for papers."""
    return [{"title": query, "url": "https://example.org"}] * max_results

@skill_command
def nothing() -> None: ...

@skill_command
def picture() -> Image:
    return Image(b"\\x89PNG\\r\\n\\x1a\\n")

@skill_command
def told(ctx: Context) -> dict[str, Any]:
    return {"trace": ctx.trace_id, "context": ctx.context, "metadata": ctx.metadata}

@skill_command
def busy() -> str:
    raise SkillError("Come back later.", retryable=True, retry_after=1.5, data={"queue": 7})

@skill_command
def busy_too() -> str:
    raise SkillError("Later.", retryable=True, data=[1])

@skill_command
def broken() -> str:
    raise ValueError("no")

@skill_command
def wrong() -> int:
    return "x"

@skill_command(timeout=0.5)
async def slow() -> str:
    import anyio
    await anyio.sleep_forever()

@skill_command
def gated() -> str:
    gate.wait(240)
    return "through"

@skill_command
def open_gate() -> None:
    gate.set()
'''
RESPONSES = Draft7Validator(json.loads(get_schema_path("response.schema.json").read_text("utf-8")))
REQUESTS = Draft7Validator(json.loads(get_schema_path("request.schema.json").read_text("utf-8")))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "research.py").write_text(SKILL, "utf-8")
    return tmp_path


def request(tool: str = "research.search", payload: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "id": "r1",
        "version": "1.0.0",
        "timestamp": "2025-10-13T15:10:00Z",
        "tool": tool,
        "payload": payload if payload is not None else {},
        **more,
    }


async def answers(project: Path, *requests: Any) -> list[dict[str, Any]]:
    """The responses to some requests, each valid."""
    async with Runtime.open(project) as runtime:
        responses = [await invoke(runtime, each) for each in requests]
        await finish(runtime)
    for response in responses:
        RESPONSES.validate(response)
    return responses


async def test_success_holds_the_unboxed_value(project: Path) -> None:
    """`output` is what the command returned, without the box a wire would need."""
    first, again = await answers(project, *[request(payload={"query": "q", "max_results": 1})] * 2)
    assert {"code": "success", "http": 200} == first["status"]
    assert [{"title": "q", "url": "https://example.org"}] == first["output"]
    assert ("research.search", False, 1) == tuple(first["metadata"][key] for key in ("tool", "cached", "attempts"))
    assert again["metadata"]["cached"]


async def test_the_case_of_a_name_matters_only_where_it_decides(project: Path) -> None:
    """The response names the command as it is called."""
    (response,) = await answers(project, request("Research/Search", {"query": "q"}))
    assert ("success", "research.search") == (response["status"]["code"], response["metadata"]["tool"])


async def test_a_member_that_the_version_does_not_have_is_named(project: Path) -> None:
    """It may be a typing error; only a later minor version may bring some."""
    first, later = await answers(project, request(extra=1), request(extra=1, version="1.1.0", payload={"query": "q"}))
    (problem,) = first["errors"]
    assert (422, "unknown_member") == (first["status"]["http"], problem["code"])
    assert "extra" in problem["message"]
    assert "success" == later["status"]["code"]


async def test_nothing_is_a_null_output(project: Path) -> None:
    """A command that returns nothing has succeeded, and says so."""
    (response,) = await answers(project, request("research.nothing"))
    assert ("success", None) == (response["status"]["code"], response["output"])


async def test_content_is_given_as_blocks(project: Path) -> None:
    """An image is no JSON value; its block is."""
    (response,) = await answers(project, request("research.picture"))
    assert "image/png" == response["output"]["content"][0]["mimeType"]


async def test_trace_context_and_metadata_reach_the_command(project: Path) -> None:
    """What the caller says of its task is there for the command to see, and the trace id comes back."""
    sent = request("research.told", trace_id="t-1", context={"task": 1}, metadata={"priority": "high"})
    (response,) = await answers(project, sent)
    assert {"trace": "t-1", "context": {"task": 1}, "metadata": {"priority": "high"}} == response["output"]
    assert "t-1" == response["metadata"]["trace_id"]


@pytest.mark.parametrize(
    ("tool", "code", "http", "error"),
    [
        ("research.busy", "retry", 503, "retryable"),
        ("research.broken", "error", 500, "crashed"),
        ("research.wrong", "error", 502, "output"),
        ("research.slow", "error", 504, "timeout"),
        ("research.search", "error", 422, "invalid_input"),
        ("research.nope", "error", 404, "unknown_tool"),
    ],
)
async def test_failures_have_their_status(tool: str, code: str, http: int, error: str, project: Path) -> None:
    """Each kind of failure has one status code and one HTTP code."""
    (response,) = await answers(project, request(tool))
    assert (code, http) == (response["status"]["code"], response["status"]["http"])
    assert error == response["errors"][0]["code"]
    assert "output" not in response


async def test_a_tool_whose_skill_does_not_load_is_explained(project: Path) -> None:
    """By the reason of its own skill, and of no other."""
    (project / "skills" / "broken.py").write_text("import prowess\n1 / 0\n", "utf-8")
    broken, other = await answers(project, request("Broken/go"), request("research.nope"))
    assert "ZeroDivisionError" in broken["errors"][0]["message"]
    assert "unknown tool: research.nope" == other["errors"][0]["message"]


async def test_retry_says_when_and_why(project: Path) -> None:
    """`Retry-After` counts whole seconds, rounded up; what the command added is the detail."""
    known, unknown = await answers(project, request("research.busy"), request("research.busy_too"))
    assert ({"Retry-After": "2"}, {"queue": 7}) == (known["headers"], known["errors"][0]["detail"])
    assert {"data": [1]} == unknown["errors"][0]["detail"]
    assert "headers" not in unknown


@pytest.mark.parametrize(
    ("meta", "code", "http", "headers"),
    [({"prowess/retry_after": 0}, "retry", 503, {"Retry-After": "0"}), ({}, "error", 500, None)],
)
async def test_a_lost_call_says_whether_to_try_again(
    meta: Any, code: str, http: int, headers: Any, project: Path
) -> None:
    """A host that has lost a worker knows whether that is safe."""

    class LosesWorkers(Runtime):
        async def call(self, command: str, *_: Any, **__: Any) -> Outcome:
            return read_outcome(command, {"prowess/kind": "worker_lost", **meta}, {"content": [{"text": "lost"}]})

    async with LosesWorkers.open(project) as runtime:
        response = await invoke(runtime, request("research.nothing"))
    RESPONSES.validate(response)
    assert {"code": code, "http": http, "message": "lost"} == response["status"]
    assert headers == response.get("headers")


async def test_every_problem_of_the_arguments_is_an_error_of_its_own(project: Path) -> None:
    """Each has the path from the root of the envelope."""
    (response,) = await answers(project, request(payload={"max_results": "many", "quary": "q"}))
    assert {"payload.query", "payload.max_results", "payload.quary"} == {item["path"] for item in response["errors"]}


# Not waiting


async def test_a_caller_who_does_not_wait_gets_a_handle(project: Path) -> None:
    """The work goes on, and the handle is asked through the same envelope until there is an answer."""
    async with Runtime.open(project) as runtime:
        accepted = await invoke(runtime, request("research.gated", metadata={"wait": False}, trace_id="t"))
        handle = accepted["output"]["handle"]
        ask = request("research.gated", metadata={"handle": handle}) | {"id": "r2"}
        still = await invoke(runtime, ask)
        await invoke(runtime, request("research.open_gate"))
        with anyio.fail_after(PATIENCE):
            await finish(runtime)
        done = await invoke(runtime, ask)
    assert ("accepted", 202, "t") == (
        accepted["status"]["code"],
        accepted["status"]["http"],
        accepted["metadata"]["trace_id"],
    )
    assert ("accepted", {"handle": handle}) == (still["status"]["code"], still["output"])
    assert ("success", "through", "r2") == (done["status"]["code"], done["output"], done["id"])
    for response in (accepted, still, done):
        RESPONSES.validate(response)


class OtherProcesses:
    """What the others know of: the answers of work by handle."""

    mark = "here-"

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.on_lost: Any = None

    async def accepted(self, handle: str, owner: Any, command: str, on_lost: Any) -> None:
        self.known[handle] = (owner, command, None)
        self.on_lost = on_lost

    def over(self, handle: str, response: Any) -> None:
        owner, command, _ = self.known[handle]
        self.known[handle] = (owner, command, response)

    async def settle(self, handle: str) -> None:
        assert self.known[handle][2] is not None

    async def find(self, handle: str, owner: Any) -> Any:
        if handle == "here-hidden":
            raise ProwessError("nobody can be asked")
        found = self.known.get(handle)
        return (found[1], found[2]) if found is not None and found[0] == owner else None


async def test_other_processes_know_of_work_before_its_handle_is_given_out(project: Path) -> None:
    """They answer for it, and it ends where they have given it up."""
    others = OtherProcesses()
    async with Runtime.open(project) as runtime, Runtime.open(project) as second:
        runtime.others = second.others = others
        detached = request("research.nothing", metadata={"wait": False})
        handle = (await invoke(runtime, detached))["output"]["handle"]
        assert handle.startswith("here-")
        await finish(runtime)
        assert 200 == (await invoke(runtime, request(metadata={"handle": handle})))["status"]["http"]
        there = await invoke(second, request(metadata={"handle": handle}) | {"id": "r2"})
        assert ("success", "r2") == (there["status"]["code"], there["id"])
        unknown = await invoke(second, request(metadata={"handle": "here-unknown"}))
        assert 404 == unknown["status"]["http"]
        hidden = await invoke(second, request(metadata={"handle": "here-hidden"}))
        assert ("retry", 503, "busy") == (
            hidden["status"]["code"],
            hidden["status"]["http"],
            hidden["errors"][0]["code"],
        )
        accepted = await invoke(runtime, request("research.gated", metadata={"wait": False}))
        handle = accepted["output"]["handle"]
        others.known[handle] = (*others.known[handle][:2], {**there, "output": "given up"})
        others.on_lost()
        with anyio.fail_after(PATIENCE):
            await finish(runtime)
        assert "given up" == (await invoke(runtime, request(metadata={"handle": handle})))["output"]


async def test_work_of_a_caller_that_went_away_before_its_handle_was_known_is_over_at_its_end(project: Path) -> None:
    """Such callers do not use up the room of the others."""
    asked = asyncio.Event()

    class Slow(OtherProcesses):
        async def accepted(self, handle: str, owner: Any, command: str, on_lost: Any) -> None:
            await super().accepted(handle, owner, command, on_lost)
            asked.set()
            await anyio.sleep_forever()

    others = Slow()
    async with Runtime.open(project) as runtime:
        runtime.others = others
        asking = asyncio.ensure_future(invoke(runtime, request("research.nothing", metadata={"wait": False})))
        with anyio.fail_after(PATIENCE):
            await asked.wait()
            asking.cancel()
            await finish(runtime)
            ((_, _, response),) = others.known.values()
    assert 200 == response["status"]["http"]


@pytest.mark.parametrize("handle", ["nope", 5, ["x"]])
async def test_an_unknown_handle_is_not_found(handle: Any, project: Path) -> None:
    """Whatever it is."""
    (response,) = await answers(project, request(metadata={"handle": handle}))
    assert (404, "unknown_handle") == (response["status"]["http"], response["errors"][0]["code"])


async def test_nothing_is_detached_where_nobody_could_ask_again(project: Path) -> None:
    """The caller hears it at once, and nothing runs."""
    async with Runtime.open(project) as runtime:
        runtime.offers_tasks = False
        refused = await invoke(runtime, request("research.nothing", metadata={"wait": False}))
        assert (422, "cannot_detach") == (refused["status"]["http"], refused["errors"][0]["code"])
        assert 200 == (await invoke(runtime, request("research.nothing", metadata={"wait": True})))["status"]["http"]


async def test_the_oldest_finished_handles_are_forgotten(project: Path) -> None:
    """What is kept for callers who never come back is bounded."""
    async with Runtime.open(project) as runtime:
        first = await invoke(runtime, request("research.nothing", metadata={"wait": False}))
        for number in range(2001):
            await invoke(runtime, request("research.nothing", metadata={"wait": False}))
            if number % 100 == 0:  # fewer than may go on at a time
                await finish(runtime)
        gone = await invoke(runtime, request(metadata={"handle": first["output"]["handle"]}))
    assert 404 == gone["status"]["http"]


async def test_more_work_than_may_go_on_is_refused(project: Path) -> None:
    """With the time after which to try again; a handle that was given stays good, and other clients find room."""
    async with Runtime.open(project) as runtime:
        waiting = request("research.gated", metadata={"wait": False})
        first, *_ = [await invoke(runtime, waiting, client="here") for _ in range(1000)]
        refused = await invoke(runtime, waiting, client="here")
        assert "accepted" == (await invoke(runtime, waiting, client="there"))["status"]["code"]
        still = await invoke(runtime, request(metadata={"handle": first["output"]["handle"]}))
        await invoke(runtime, request("research.open_gate"))
        with anyio.fail_after(PATIENCE):
            await finish(runtime)
    assert ("retry", 429, "1") == (
        refused["status"]["code"],
        refused["status"]["http"],
        refused["headers"]["Retry-After"],
    )
    assert "accepted" == still["status"]["code"]
    RESPONSES.validate(refused)


# Reading


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"{", "not_json"),
        (b"\xff", "not_json"),
        (b'{"id": NaN}', "not_json"),
        ("[" * 100_000, "not_json"),
        ('{"id": "\\ud800"}', "not_json"),
        (b"5", "malformed"),
        ("[]", "malformed"),
        (b"{}", "missing"),
    ],
)
async def test_what_is_no_request_is_answered(raw: bytes | str, code: str, project: Path) -> None:
    """With an empty id, since there was none to read."""
    (response,) = await answers(project, raw)
    assert ("", code, 422) == (response["id"], response["errors"][0]["code"], response["status"]["http"])


@pytest.mark.parametrize(("sent", "told"), [(None, "null"), (True, "true"), ([None], "[null]"), ("a", '"a"')])
async def test_a_wrong_value_is_shown_as_it_was_sent(sent: Any, told: str, project: Path) -> None:
    """As JSON, because callers need not know Python."""
    whole, payload = await answers(project, json.dumps(sent), json.dumps({**request(), "payload": sent}))
    assert f"a request must be an object, not {told}" == whole["errors"][0]["message"]
    assert f"payload: expected an object, got {told}" == payload["errors"][0]["message"]


async def test_a_byte_order_mark_is_no_part_of_a_request(project: Path) -> None:
    """Some programs write one first."""
    (response,) = await answers(project, json.dumps(request(payload={"query": "a"})).encode("utf-8-sig"))
    assert "success" == response["status"]["code"]


async def test_all_problems_of_an_envelope_are_reported_at_once(project: Path) -> None:
    """And the id is repeated although everything else is wrong."""
    bad = {"id": "r9", "version": "1.0", "timestamp": "yesterday", "tool": "a b", "payload": [], "trace_id": ""}
    (response,) = await answers(project, json.dumps(bad))
    assert "r9" == response["id"]
    assert {"version", "timestamp", "tool", "payload", "trace_id"} == {item["path"] for item in response["errors"]}


async def test_another_major_version_is_refused_whatever_else_it_says(project: Path) -> None:
    """Its members mean nothing to us."""
    (response,) = await answers(project, {"id": "r1", "version": "2.0.0", "what": 1})
    assert ["unsupported_version"] == [item["code"] for item in response["errors"]]


@pytest.mark.parametrize("auth", ["s3cret", ["s3cret"], {"type": ["s3cret"]}, {"type": "bearer", "token": ["s3cret"]}])
async def test_a_secret_in_the_wrong_form_is_shown_to_nobody(auth: Any, project: Path, caplog: Any) -> None:
    """The log and whoever reads the response see where the mistake is, not what was sent."""
    (response,) = await answers(project, request(auth=auth))
    assert (422, "wrong_type") == (response["status"]["http"], response["errors"][0]["code"])
    assert "s3cret" not in json.dumps(response) + caplog.text


async def test_a_request_never_shows_its_secret(project: Path) -> None:
    """Neither in its repr nor in the errors about it."""
    assert "s3cret" not in repr(Request.model_validate(request(auth={"type": "bearer", "token": "s3cret"})))
    bad = {"type": "s3cret", "token": ["s3cret"], "scopes": "s3cret"}
    async with Runtime.open(project) as runtime:
        response = await invoke(runtime, request(auth=bad), Caller())
    assert "s3cret" not in json.dumps(response)
    assert 3 == len(response["errors"])


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("2025-10-13T15:10:00Z", True),
        ("2025-10-13t15:10:00.123456789z", True),
        ("2024-02-29T00:00:00+14:00", True),
        ("2016-12-31T23:59:60Z", True),
        ("2017-01-01T00:59:60+01:00", True),
        ("2016-12-31T18:59:60-05:00", True),
        ("2016-12-31T22:59:60Z", False),
        ("0001-01-01T00:59:60+01:00", False),
        ("2025-02-29T00:00:00Z", False),
        ("2025-10-13T24:00:00Z", False),
        ("2025-10-13T15:10:00", False),
        ("2025-10-13 15:10:00Z", False),
        ("2025-10-13T15:10:00+24:00", False),
        ("2025-10-13", False),
        ("yesterday", False),
        ("٢025-10-13T15:10:00Z", False),
    ],
)
def test_times_are_really_checked(text: str, good: bool) -> None:
    """RFC 3339, with days that exist and leap seconds where they may be."""
    assert good is is_rfc3339(text)


@given(st.datetimes(min_value=datetime(1, 1, 2), timezones=st.timezones()))
def test_every_time_that_python_writes_is_read(moment: datetime) -> None:
    """Where its offset is whole minutes, as the standard demands."""
    offset = moment.utcoffset()
    if offset is not None and not offset.total_seconds() % 60:
        assert is_rfc3339(moment.isoformat())


# Who may call

CREDENTIALS = """
[auth]
token = "t0ken-owner"

[[auth.credentials]]
type = "bearer"
token = "t0ken-reader"
scopes = ["search:read"]

[[auth.credentials]]
type = "api_key"
token = "k3y-all"
scopes = ["search:read", "admin"]

[[auth.credentials]]
type = "basic"
user = "ada"
password = "l0velace"

[auth.scopes]
"research.search" = ["search:read"]
"research.nothing" = ["admin"]
"""


def basic(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("auth", "tool", "http"),
    [
        ({"type": "bearer", "token": "t0ken-reader"}, "research.search", 200),
        ({"type": "bearer", "token": "t0ken-reader"}, "research.nothing", 403),
        ({"type": "bearer", "token": "t0ken-owner"}, "research.nothing", 200),
        ({"type": "bearer", "token": "t0ken-owner", "scopes": []}, "research.nothing", 403),
        ({"type": "api_key", "token": "k3y-all"}, "research.nothing", 200),
        ({"type": "api_key", "token": "k3y-all", "scopes": ["search:read"]}, "research.nothing", 403),
        ({"type": "api_key", "token": "k3y-all", "scopes": ["admin", "root"]}, "research.nothing", 200),
        ({"type": "bearer", "token": "k3y-all"}, "research.search", 401),
        ({"type": "basic", "token": basic("ada:l0velace")}, "research.told", 200),
        ({"type": "basic", "token": "ada:l0velace"}, "research.told", 200),
        ({"type": "basic", "token": "%%%"}, "research.told", 401),
        ({"type": "basic", "token": basic("ada:l0velace")}, "research.search", 403),
        ({"type": "api_key", "token": "k3y-all", "scopes": []}, "research.nothing", 403),
        ({"type": "api_key", "token": "k3y-all", "scopes": []}, "research.told", 200),
        ({"type": "bearer", "token": "t0ken-reader", "scopes": ["admin"]}, "research.nothing", 403),
        ({"type": "none"}, "research.told", 401),
        (None, "no.such", 401),
        ({"type": "bearer", "token": "wrong"}, "no.such", 401),
        ({"type": "bearer", "token": "t0ken-reader"}, "no.such", 404),
        (None, "research.told", 401),
    ],
)
async def test_credentials_and_scopes(auth: Any, tool: str, http: int, project: Path, caplog: Any) -> None:
    """With credentials configured a caller needs one, with the scopes that the command asks for."""
    (project / "prowess.toml").write_text(CREDENTIALS, "utf-8")
    more = {"auth": auth} if auth is not None else {}
    payload = {"query": "q"} if tool == "research.search" else {}
    with caplog.at_level(logging.DEBUG):
        (response,) = await answers(project, request(tool, payload, **more))
    assert http == response["status"]["http"]
    everything = json.dumps(response) + caplog.text
    assert not any(secret in everything for secret in ("t0ken", "k3y", "l0velace", basic("ada:l0velace")))


async def test_a_caller_may_be_known_already(project: Path) -> None:
    """Whoever brought the request has checked its credentials: then those in it are not looked at."""
    (project / "prowess.toml").write_text(CREDENTIALS, "utf-8")
    asked, reader = request("research.nothing", {}), Caller(1, frozenset({"search:read"}))
    async with Runtime.open(project) as runtime:
        assert 403 == (await invoke(runtime, asked, reader))["status"]["http"]
        assert 200 == (await invoke(runtime, asked, Caller(subject="somebody")))["status"]["http"]
        assert str(reader) == str(Caller(1)) != str(Caller(1, subject="somebody"))


async def test_a_stranger_learns_of_no_mistake(project: Path) -> None:
    """A malformed request without a credential is refused like any other; so is an `auth` that cannot be read."""
    (project / "prowess.toml").write_text(CREDENTIALS, "utf-8")
    responses = await answers(
        project,
        request(timestamp="x"),
        request(auth=5),
        request(version="1.2.0", auth={"type": "oauth"}),
        request("a b"),
    )
    assert [401] * 4 == [response["status"]["http"] for response in responses]


async def test_an_empty_list_of_scopes_narrows_anybody(project: Path) -> None:
    """Also where no credentials are configured, and everybody has all scopes."""
    (project / "prowess.toml").write_text('[auth.scopes]\n"research.nothing" = ["admin"]\n', "utf-8")
    none, every = await answers(
        project,
        request("research.nothing", auth={"type": "none", "scopes": []}),
        request("research.nothing", auth={"type": "none"}),
    )
    assert (403, 200) == (none["status"]["http"], every["status"]["http"])


async def test_a_handle_belongs_to_its_caller(project: Path) -> None:
    """For another credential it does not exist; with fewer scopes than the command needs it gives nothing."""
    (project / "prowess.toml").write_text(CREDENTIALS, "utf-8")
    mine = {"type": "api_key", "token": "k3y-all"}
    async with Runtime.open(project) as runtime:
        accepted = await invoke(runtime, request("research.nothing", metadata={"wait": False}, auth=mine))
        await finish(runtime)
        ask = request(metadata={"handle": accepted["output"]["handle"]})
        auths = [mine, {"type": "bearer", "token": "t0ken-reader"}, mine | {"scopes": []}]
        asked = [await invoke(runtime, ask | {"auth": auth}) for auth in auths]
    assert [200, 404, 403] == [response["status"]["http"] for response in asked]


@pytest.mark.parametrize(
    ("changed", "aside"),
    [
        ({"version": "1.2.0", "auth": {"type": "oauth"}}, ["auth.type"]),
        (
            {"version": "1.2.0", "auth": {"type": "none", "realm": {}}, "set_aside": 1, "color": 2},
            ["color", "set_aside"],
        ),
        ({"version": "1.10.0"}, None),
        ({"version": f"1.{'9' * 5000}.0"}, None),
    ],
)
async def test_additions_of_a_higher_minor_version_are_ignored(
    changed: dict[str, Any], aside: Any, project: Path
) -> None:
    """Wherever they are; the response names what 1.0 would have refused, and the schema agrees."""
    message = request("research.nothing") | changed
    (response,) = await answers(project, message)
    assert REQUESTS.is_valid(message)
    assert ("success", aside) == (response["status"]["code"], response["metadata"].get("set_aside"))


@pytest.mark.parametrize(
    "version", ["01.0.0", "1.00.0", "1.0.00", "1.0", "1.0.0\n", "1.0.0-rc1", "1.0.0+b", "02.0.0", "١.0.0"]
)
async def test_versions_are_strict(version: str, project: Path) -> None:
    """No leading zeros, no further parts, only ASCII digits."""
    (response,) = await answers(project, request(version=version))
    assert [("wrong_value", "version")] == [(item["code"], item["path"]) for item in response["errors"]]


@pytest.mark.parametrize("raw", [{"id": object()}, {"id": "\ud800"}, {("a",): 1}, 5])
async def test_a_mapping_that_is_not_json_is_answered(raw: Any, project: Path) -> None:
    """A response could not be written otherwise."""
    (response,) = await answers(project, raw)
    assert "not_json" == response["errors"][0]["code"]


def written(value: str, *, request_id: str = "abc") -> str:
    """A request as text, with a value that `json.dumps` would not write."""
    return json.dumps(request(id=request_id, trace_id="t1", payload={"x": 0})).replace('{"x": 0}', f'{{"x": {value}}}')


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (written("NaN"), "NaN is not JSON"),
        (written("[-Infinity]").encode(), "-Infinity is not JSON"),
        (written("9" * 5000), "an integer of 5000 digits is too long; send it as a string"),
        (written('"\\ud800"'), "surrogates not allowed"),
        (written("1e999"), "Out of range float values"),
        (request(id="abc", payload={"x": object()}), "object is not JSON serializable"),
        (request(id="abc", payload={"x": math.nan}), "NaN is not JSON"),
    ],
    ids=["nan", "infinity", "digits", "surrogate", "beyond a float", "object", "nan in a mapping"],
)
async def test_a_value_that_is_not_json_is_told_to_its_id(raw: Any, told: str, project: Path) -> None:
    """Whoever waits for this id must not wait for its own timeout."""
    (response,) = await answers(project, raw)
    assert ("abc", "not_json") == (response["id"], response["errors"][0]["code"])
    assert told in response["status"]["message"]


@pytest.mark.parametrize("raw", [written("NaN", request_id="\ud800"), "[NaN]", written("NaN")[:-1]])
async def test_an_id_that_cannot_be_read_is_left_out(raw: str, project: Path) -> None:
    """No guesses."""
    (response,) = await answers(project, raw)
    assert ("", "not_json") == (response["id"], response["errors"][0]["code"])


async def test_a_handle_needs_a_credential_too(project: Path) -> None:
    """Fetching a result is no way around."""
    (project / "prowess.toml").write_text(CREDENTIALS, "utf-8")
    auth = {"type": "bearer", "token": "t0ken-reader"}
    without, with_one = await answers(
        project, request(metadata={"handle": "x"}), request(metadata={"handle": "x"}, auth=auth)
    )
    assert (401, 404) == (without["status"]["http"], with_one["status"]["http"])


async def test_without_credentials_everybody_is_served(project: Path) -> None:
    """And what somebody sends all the same goes nowhere."""
    sent = request("research.told", auth={"type": "bearer", "token": "s3cret"})
    (response,) = await answers(project, sent)
    assert 200 == response["status"]["http"]
    assert "s3cret" not in json.dumps(response)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[auth]\ncredentials = 5", "auth.credentials must be a list"),
        ("[auth]\ncredentials = [5]", "entry 1: must be a table"),
        ('[[auth.credentials]]\ntype = "magic"', "entry 1: type must be one of"),
        ('[[auth.credentials]]\ntype = "bearer"', "bearer needs token"),
        ('[[auth.credentials]]\ntype = "basic"\nuser = "u"', "basic needs user and password"),
        ('[[auth.credentials]]\ntype = "bearer"\ntoken = "t"\nscopes = "s"', "entry 1, scopes: must be a list"),
        ("[auth]\nscopes = 5", "auth.scopes must be a table"),
        ("[auth]\ntoken = 5", "auth.token must be a non-empty string"),
        ('[auth]\ntoken = ""', "auth.token must be a non-empty string"),
        ('[auth.scopes]\n"x" = 5', "auth.scopes.x: must be a list"),
    ],
)
async def test_wrong_credentials_settings_are_named(text: str, named: str, project: Path) -> None:
    """Silence would let everybody in, or nobody."""
    (project / "prowess.toml").write_text(text, "utf-8")
    with pytest.raises(SettingsError, match=named):
        await answers(project, request())


# Diagnostics


async def test_mismatches_are_logged_with_the_trace_and_counted(project: Path, caplog: Any) -> None:
    """What did not fit can be looked up later."""
    async with Runtime.open(project) as runtime:
        await invoke(runtime, b"{")
        for _ in range(2):
            await invoke(runtime, request(trace_id="t-77"))
        assert {"not_json": 1, "input": 2} == diagnostics(runtime)
    assert "t-77" in caplog.text


# Properties

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = st.sampled_from(
    ["id", "version", "timestamp", "tool", "trace_id", "context", "auth", "metadata", "payload", "x"]
)
TOOLS = st.sampled_from(["research.search", "research/busy", "research.broken", "research.wrong", "nope", "a b"])


def serve(tmp: Path, raw: Any) -> dict[str, Any]:
    return asyncio.run(answers(tmp, raw))[0]


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "skills").mkdir()
    (folder / "skills" / "research.py").write_text(SKILL, "utf-8")
    return folder


@given(raw=st.binary(max_size=200) | st.text(max_size=200) | JSON.map(json.dumps))
def test_whatever_bytes_come_in_the_response_validates(raw: bytes | str, ready: Path) -> None:
    """Nothing a caller sends makes us raise."""
    serve(ready, raw)


@given(
    changes=st.dictionaries(MEMBERS, JSON, max_size=4), tool=TOOLS, payload=st.dictionaries(st.text(), JSON, max_size=3)
)
def test_whatever_the_request_the_response_validates(
    changes: dict[str, Any], tool: str, payload: dict[str, Any], ready: Path
) -> None:
    """Also for requests that are nearly right, and whatever outcome they have; the reader accepts what the schema does."""
    message = request(tool, payload) | changes
    response = serve(ready, message)
    malformed = {item["code"] for item in response.get("errors", [])} & {
        "malformed",
        "missing",
        "wrong_type",
        "wrong_value",
        "unknown_member",
        "unsupported_version",
    }
    if malformed and REQUESTS.is_valid(message):
        assert {"timestamp"} == {item["path"] for item in response["errors"]}


async def test_the_documents_samples_make_the_round_trip(tmp_path: Path) -> None:
    """On a skill named as there."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "research.py").write_text(SKILL, "utf-8")
    sample = {
        "id": "3fd7d2b1-79d1-4b8e-92c8-105c1ce9b6f7",
        "version": "1.0.0",
        "timestamp": "2025-10-13T15:10:00Z",
        "tool": "research.search",
        "trace_id": "trace-9ab213ef",
        "context": {"task_id": "task-123", "agent": "ResearchAgent"},
        "auth": {"type": "bearer", "token": "mcp-dev-token", "scopes": ["search:read"]},
        "metadata": {"priority": "high"},
        "payload": {"query": "latest transformer interpretability papers", "max_results": 5},
    }
    REQUESTS.validate(sample)
    (response,) = await answers(tmp_path, json.dumps(sample).encode())
    assert (sample["id"], "success", 5) == (response["id"], response["status"]["code"], len(response["output"]))
