"""Replicas that share through the engine, and that go on without it. About 40 s, most of it waiting: servers start for the module, replicas die, one engine is killed."""

from __future__ import annotations

import asyncio
import hmac
import json
import random
import re
import socket
import subprocess
import threading
from asyncio import gather, sleep
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from anyio import fail_after
from anyio.from_thread import start_blocking_portal
from patience import PATIENCE
from piped import CAPABILITIES_KEY, make_project
from proxy import Proxy
from tests.prowess_host.cluster.failing import FailingEngine
from web import JSON, SERVE, Answer, Events, Web, served_over_http, stateless, until

from prowess.calls.handles import MOST_WORKS
from prowess.results.published import get_validator
from prowess.settings.settings import Settings
from prowess.worker.messages import Kind
from prowess_host.cluster import sharing
from prowess_host.cluster.engine import EngineConnection
from prowess_host.cluster.errors import EngineError
from prowess_host.cluster.handles import SharedHandles, _lost_response
from prowess_host.cluster.local import LocalEngine
from prowess_host.cluster.replicas import Replicas
from prowess_host.cluster.results import ClusterResults
from prowess_host.cluster.secret import Secret

SKILL = '''
    from pathlib import Path
    from prowess import Settings, resource

    @skill_command(cache_ttl=600)
    async def counted(place: str, wait: bool = False) -> str:
        """Leave a mark for each run, and perhaps wait for a file."""
        with open(f"{place}.runs", "a") as file:
            file.write("x")
        while wait and not os.path.exists(f"{place}.go"):
            await asyncio.sleep(0.01)
        return "counted"

    @skill_command(cache_ttl=600)
    async def failing(place: str) -> str:
        """Leave a mark, and fail."""
        with open(f"{place}.runs", "a") as file:
            file.write("x")
        raise SkillError("no")

    @skill_command(concurrency=1)
    async def alone(place: str, wait: bool = False) -> str:
        """Fail if another run goes on."""
        os.mkdir(place)
        try:
            await asyncio.sleep(0.02)
            while wait and not os.path.exists(f"{place}.go"):
                await asyncio.sleep(0.01)
        finally:
            os.rmdir(place)
        return "alone"

    @skill_command(concurrency=1)
    async def fatal(place: str) -> str:
        """End the worker."""
        os._exit(3)

    @skill_command
    async def sure(ctx: Context) -> str:
        """Ask."""
        answer = await ctx.ask("sure", "Sure?", bool)
        return f"{answer.action} {answer.value}"

    @skill_command
    async def later(ctx: Context) -> str:
        """Ask from the background."""
        ctx.background()
        return str((await ctx.ask("sure", "Sure?", bool)).value)

    @skill_command(read_only=True)
    async def later_again(ctx: Context) -> str:
        """Ask from the background, which may be repeated."""
        ctx.background()
        return str((await ctx.ask("sure", "Sure?", bool)).value)

    @skill_command
    async def soon(ctx: Context) -> str:
        """End in the background."""
        ctx.background()
        return "soon"

    @skill_command
    async def reporting(ctx: Context, place: str) -> str:
        """Report from the background, and wait for a file."""
        ctx.background()
        ctx.progress(1, 2, "half way")
        while not os.path.exists(f"{place}.go"):
            await asyncio.sleep(0.01)
        return "done"

    @resource("note://{name}")
    def note(name: str) -> str:
        """A note."""
        return name

    @skill_command
    def change(ctx: Context, uri: str) -> str:
        """Tell that a resource has changed."""
        ctx.updated(uri)
        return "changed"

    @skill_command
    async def echo(text: str) -> str:
        """Say it again."""
        return text
'''
SETTINGS = """
max_result = 3000

[auth]
state_key = "a secret text that all replicas have in common"

[[auth.credentials]]
type = "bearer"
token = "of-ada"
scopes = ["a"]

[[auth.credentials]]
type = "bearer"
token = "of-bob"
scopes = ["b"]

[[auth.credentials]]
type = "bearer"
token = "of-eve"
scopes = ["a"]

[my]
secret = "hunter2-and-more"
"""
TAKES_TASKS = {CAPABILITIES_KEY: {"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}}}
ASKABLE = {CAPABILITIES_KEY: {"elicitation": {}}}
YES = {"sure": {"action": "accept", "content": {"value": True}}}


def of(who: str) -> dict[str, str]:
    return {"Authorization": f"Bearer of-{who}"}


def options(engine: LocalEngine, cluster: str) -> list[str]:
    return ["--set", f"cluster.url={engine.url}", "--set", f"cluster.name={cluster}"]


@contextmanager
def replicas(root: Path, engine: LocalEngine, cluster: str, count: int = 2) -> Iterator[list[Web]]:
    with ExitStack() as stack:
        webs = [stack.enter_context(served_over_http(root, *options(engine, cluster))) for _ in range(count)]
        for web in webs:
            web.call("t_echo", of("ada"), text="ready")
            until(lambda web=web: "up" in web.ask("GET", "/readyz").json.get("engine", ""))
        yield webs


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("replicas"), SETTINGS, t=SKILL)


@pytest.fixture(scope="module")
def webs(root: Path, engine: LocalEngine) -> Iterator[list[Web]]:
    """Two replicas, for all tests that let the engine live."""
    with replicas(root, engine, "module") as running:
        yield running


def runs(place: Path) -> int:
    return len(Path(f"{place}.runs").read_text())


def is_cached(answer: Answer) -> bool:
    return bool(answer.json["result"].get("_meta", {}).get("prowess/cached"))


def begun(*calls: Callable[[], Answer]) -> tuple[ThreadPoolExecutor, list[Any]]:
    pool = ThreadPoolExecutor(len(calls))
    return pool, [pool.submit(call) for call in calls]


# Results


def test_result_of_one_replica_answers_the_others(webs: list[Web], tmp_path: Path) -> None:
    """Arguments are compared after validation."""
    place = tmp_path / "a"
    first = webs[0].call("t_counted", of("ada"), place=str(place))
    # The answer leaves before the engine has taken the result.
    again = until(
        lambda: (it := webs[1].call("t_counted", of("ada"), place=str(place), wait=False)) and is_cached(it) and it
    )

    assert (False, "counted", "counted") == (is_cached(first), first.text, again.text)
    assert 1 == runs(place)


def test_equal_calls_in_flight_share_one_run(webs: list[Web], tmp_path: Path) -> None:
    place = tmp_path / "a"

    def call(web: Web) -> Answer:
        return web.call("t_counted", of("ada"), place=str(place), wait=True)

    first = threading.Thread(target=call, args=(webs[0],))
    first.start()
    until(Path(f"{place}.runs").exists)
    pool, answers = begun(lambda: call(webs[1]))
    until(lambda: metric(webs[1], "prowess_shared_results_waiting") == 1)
    Path(f"{place}.go").touch()
    first.join()
    pool.shutdown()

    assert "counted" == answers[0].result().text
    assert 1 == runs(place)


def metric(web: Web, name: str) -> float:
    text = web.ask("GET", "/metrics", headers=of("ada")).body.decode()
    return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1])


def test_failure_is_nobody_elses(webs: list[Web], tmp_path: Path) -> None:
    place = tmp_path / "a"
    answers = [web.call("t_failing", of("ada"), place=str(place)) for web in webs]

    assert ["no", "no"] == [answer.text for answer in answers]
    assert 2 == runs(place)


def test_result_is_shared_only_between_callers_with_equal_scopes(webs: list[Web], tmp_path: Path) -> None:
    """Not even on one replica."""
    place = tmp_path / "a"
    webs[0].call("t_counted", of("ada"), place=str(place))
    webs[0].call("t_counted", of("bob"), place=str(place))
    assert 2 == runs(place)
    until(lambda: is_cached(webs[1].call("t_counted", of("eve"), place=str(place))))
    assert 2 == runs(place)


def test_results_and_handles_are_shared_only_between_equal_code_and_settings(
    webs: list[Web], root: Path, engine: LocalEngine, tmp_path: Path
) -> None:
    place = tmp_path / "a"
    webs[0].call("t_counted", of("ada"), place=str(place))
    until(lambda: is_cached(webs[1].call("t_counted", of("ada"), place=str(place))))
    other_code = make_project(tmp_path / "code", SETTINGS, t=SKILL.replace('return "counted"', 'return "other"'))
    copy = make_project(tmp_path / "copy", SETTINGS, t=SKILL)
    with (
        served_over_http(other_code, *options(engine, "module")) as code,
        served_over_http(root, *options(engine, "module"), "--set", "auth.token=of-somebody-else") as settings,
        served_over_http(copy, *options(engine, "module"), "--set", "host.grace=9") as same,
    ):
        for web in (code, settings, same):
            until(lambda web=web: "up" in web.ask("GET", "/readyz").json.get("engine", ""))
        assert "other" == code.call("t_counted", of("ada"), place=str(place)).text
        assert not is_cached(settings.call("t_counted", of("ada"), place=str(place)))
        assert 3 == runs(place)
        assert is_cached(same.call("t_counted", of("ada"), place=str(place)))
        created = webs[0].stateless("tools/call", of("ada"), name="t_later", arguments={}, _meta=TAKES_TASKS)
        task = created.json["result"]["taskId"]
        assert "result" in about(same, "tasks/get", task).json
        assert -32602 == about(settings, "tasks/get", task).json["error"]["code"]  # who is a caller there?


async def test_keys_say_nothing(webs: list[Web], engine: LocalEngine, tmp_path: Path) -> None:
    webs[0].call("t_counted", of("ada"), place=str(tmp_path / "hunter2"))
    connection = EngineConnection(Settings.of({"cluster.url": engine.url, "cluster.name": "module"}))
    assert await connection.ready(PATIENCE)
    keys = [key for name in ("results", "slots", "hosts") for key in await connection.bucket(name).keys()]
    await connection.close()

    assert keys
    assert [] == [key for key in keys if not re.fullmatch("[0-9a-f]{12,64}", key)]


async def test_hosts_without_a_key_agree_on_a_random_one(connect: Callable[..., Any]) -> None:
    """It is that of the engine, and nobody can guess it; a key of the settings is another one."""
    one, other, elsewhere = (
        await connect(),
        await connect(),
        await connect(**{"cluster.name": f"test-{uuid4().hex[:8]}"}),
    )
    told = await gather(*(Secret(each, None).digest("x") for each in (one, other, elsewhere)))
    own = [await Secret(each, key).digest("x") for each, key in ((one, b"a"), (other, b"a"), (other, b"b"))]

    assert told[0] == told[1]
    assert own[0] == own[1]
    assert 4 == len({*told, *own})
    assert hmac.digest(b"prowess", b"x", "sha256").hex() not in told


async def test_questions_are_answered_whatever_goes_wrong(connect: Callable[..., Any]) -> None:
    """A worker gets an empty answer, and another host an error."""

    async def broken(*_: Any) -> Any:
        raise RuntimeError

    engine = await connect()
    heard: list[Any] = []

    class Worker:
        def send(self, *frame: Any, **more: Any) -> None:
            heard.append((*frame, more))

    ClusterResults(engine, broken).find(Worker(), 7, "key")
    with fail_after(PATIENCE):
        while not heard:  # noqa: ASYNC110 - there is no event
            await sleep(0.01)
    assert [(Kind.FOUND, 7, {"body": b""})] == heard
    replica, asking = Replicas(engine), Replicas(engine)
    replica.start(broken)
    await engine.flush()
    with pytest.raises(EngineError, match="could not answer: RuntimeError"):
        await asking.ask(replica.me, {})
    await replica.close()


@pytest.mark.parametrize(("size", "kept"), [(30_000_000, 4), (10, MOST_WORKS)])
async def test_a_host_keeps_a_bounded_part_of_the_answers_that_the_engine_lacks(size: int, kept: int) -> None:
    """The engine may be gone for days. The newest are sent when it is back."""
    engine = EngineConnection(Settings.of({"cluster.url": "nats://127.0.0.1:9"}))  # never connected
    handles = SharedHandles(engine, "me", Secret(engine, b"key").digest, str)
    facts: Any = {"kind": "task", "command": "t.soon", "may_repeat": False}
    answer = bytes(size)
    for number in range(kept + 3):
        await handles.begin(str(number), None, facts, bool)
        handles.end(str(number), answer)
        await handles.close()

    assert [str(number) for number in range(3, kept + 3)] == list(handles._works)


async def test_question_waits_for_a_host_that_may_come_back(connect: Callable[..., Any]) -> None:
    """It is not there yet after a loss of the engine; only after ten seconds is it certain that it is gone."""

    async def echo(question: Any) -> Any:
        return question

    there, here = await connect(), await connect()
    replica, asking = Replicas(there), Replicas(here)
    answer = asyncio.ensure_future(asking.ask(replica.me, {"a": 1}))
    await sleep(0)
    await here.flush()  # the engine has said that nobody listens
    assert not answer.done()
    replica.start(echo)
    with fail_after(PATIENCE):
        assert {"a": 1} == await answer
    await replica.close()


# Limits


def test_limit_on_calls_at_once_holds_over_all_replicas(webs: list[Web], tmp_path: Path) -> None:
    place = str(tmp_path / "a")
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(webs[number % 2].call, "t_alone", of("ada"), place=place) for number in range(16)]

    assert ["alone"] * 16 == [answer.result().text for answer in answers]


def test_slot_of_a_worker_or_a_replica_that_died_is_free_again(
    webs: list[Web], root: Path, engine: LocalEngine, tmp_path: Path
) -> None:
    place = str(tmp_path / "a")
    assert "was lost" in webs[0].call("t_fatal", of("ada"), place=place).text
    with served_over_http(root, *options(engine, "module"), code=-9) as dying:
        until(lambda: "up" in dying.ask("GET", "/readyz").json.get("engine", ""))
        thread = threading.Thread(
            target=lambda: _ignored(lambda: dying.call("t_alone", of("ada"), place=place, wait=True))
        )
        thread.start()
        until(Path(place).exists)
        dying.process.kill()
        thread.join()
    until(lambda: not Path(place).exists() or _removed(place))

    answer = webs[1].call("t_alone", of("ada"), place=place)  # after five seconds it is a stream
    assert b'"text":"alone"' in answer.body


def _ignored(call: Callable[[], Any]) -> None:
    try:
        call()
    except OSError:
        return


def _removed(place: str) -> bool:
    """The worker died with its host, and could not tidy up."""
    Path(place).rmdir()
    return True


# Handles


def about(web: Web, method: str, task_id: str, who: str = "ada", **params: Any) -> Answer:
    return web.stateless(method, {**of(who), "Mcp-Name": task_id}, taskId=task_id, _meta=TAKES_TASKS, **params)


def test_any_replica_answers_for_a_task_and_only_to_its_owner(webs: list[Web]) -> None:
    created = webs[0].stateless("tools/call", of("ada"), name="t_later", arguments={}, _meta=TAKES_TASKS)
    task = created.json["result"]["taskId"]

    def state() -> dict[str, Any]:
        return about(webs[1], "tasks/get", task).json["result"]

    until(lambda: state()["status"] == "input_required")
    assert -32602 == about(webs[1], "tasks/get", task, "bob").json["error"]["code"]
    assert -32602 == about(webs[1], "tasks/cancel", task, "eve").json["error"]["code"]
    assert "result" in about(webs[1], "tasks/update", task, inputResponses=YES).json
    done = until(lambda: (it := state())["status"] == "completed" and it)
    assert "True" == done["result"]["content"][0]["text"]


def test_task_that_nobody_knows_is_unknown(webs: list[Web]) -> None:
    task = "0123456789ab-of-somebody"

    refused = about(webs[1], "tasks/get", task).json["error"]
    assert (-32602, True) == (refused["code"], "taskId" in refused["message"])


def task_of(web: Web, name: str, **arguments: Any) -> str:
    created = web.stateless("tools/call", of("ada"), name=name, arguments=arguments, _meta=TAKES_TASKS)
    return created.json["result"]["taskId"]


def test_work_of_a_replica_that_died_is_answered_by_the_others(
    webs: list[Web], root: Path, engine: LocalEngine, tmp_path: Path
) -> None:
    """What had ended has its result; what had not is lost, by the hints of its command. Only the owner hears of either."""
    with served_over_http(root, *options(engine, "module"), code=-9) as dying:
        until(lambda: "up" in dying.ask("GET", "/readyz").json.get("engine", ""))
        done, risky, safe = (task_of(dying, f"t_{name}") for name in ("soon", "later", "later_again"))
        handles = [
            envelope(dying, f"t.{tool}", payload=payload, wait=False).json["output"]["handle"]
            for tool, payload in (("echo", {"text": "kept"}), ("counted", {"place": str(tmp_path / "a"), "wait": True}))
        ]
        until(lambda: about(dying, "tasks/get", done).json["result"]["status"] == "completed")
        until(lambda: envelope(dying, "t.echo", handle=handles[0]).status == 200)
        host = done.partition("-")[0]
        until(
            lambda: ends_kept(engine, "module", host) == 2
        )  # the engine may have been too slow for the questions above
        dying.process.kill()
        dying.process.wait()

        def state(task: str, who: str = "ada") -> dict[str, Any]:
            return about(webs[1], "tasks/get", task, who).json

        def known(task: str) -> Any:
            """Its state. The engine may not have noticed yet that the replica is dead."""
            told = state(task)
            assert "result" in told or "try again" in told["error"]["message"]
            return told.get("result")

        ended = until(lambda: known(done))
        assert ("completed", "soon") == (ended["status"], ended["result"]["content"][0]["text"])
        for task, advice in ((risky, "It may have taken effect"), (safe, "Trying again is safe")):
            lost = state(task)["result"]
            assert ("completed", True, "worker_lost") == (
                lost["status"],
                lost["result"]["isError"],
                lost["result"]["_meta"]["prowess/kind"],
            )
            assert advice in lost["result"]["content"][0]["text"]
            assert (task == safe) == (lost["result"]["_meta"].get("prowess/retry_after") == 0)
            assert lost == about(webs[0], "tasks/get", task).json["result"]
            assert -32602 == state(task, "bob")["error"]["code"]
            assert "result" in about(webs[0], "tasks/cancel", task).json
        assert "kept" == envelope(webs[1], "t.echo", handle=handles[0]).json["output"]
        gone = envelope(webs[0], "t.counted", handle=handles[1])
        assert (500, "worker_lost") == (gone.status, gone.json["errors"][0]["code"])
        assert 404 == envelope(webs[1], "t.echo", "bob", handle=handles[0]).status


@pytest.mark.parametrize(("may_repeat", "code", "http"), [(True, "retry", 503), (False, "error", 500)])
def test_response_for_lost_work_is_an_envelope(may_repeat: bool, code: str, http: int) -> None:
    """By the hints of its command, like the response for a call that lost its worker."""
    response = json.loads(_lost_response({"command": "t.echo", "may_repeat": may_repeat}))
    get_validator("response.schema.json").validate(response)
    assert (code, http) == (response["status"]["code"], response["status"]["http"])
    assert (may_repeat, "headers" in response) == (http == 503, http == 503)


def ends_kept(engine: LocalEngine, cluster: str, host: str) -> int:
    """How many answers of ended work of a replica the engine has."""

    async def read() -> int:
        connection = EngineConnection(Settings.of({"cluster.url": engine.url, "cluster.name": cluster}))
        assert await connection.ready(PATIENCE)
        bucket = connection.bucket("handles", memory=False)
        entries = [await bucket.get(key) for key in await bucket.keys() if "." not in key]
        await connection.close()
        records = [json.loads(entry.value) for entry in entries if entry is not None]
        return sum(record["by"] == host and "parts" in record for record in records)

    return asyncio.run(read())


@contextmanager
def cut_off(engine: LocalEngine) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """An address of the engine, and what cuts and mends the way to it."""
    with start_blocking_portal() as portal:
        proxy = Proxy(engine.url)
        yield portal.call(proxy.start), partial(portal.call, proxy.cut), partial(portal.call, proxy.mend)
        portal.call(proxy.close)


def test_work_that_others_have_given_up_ends_when_its_replica_is_back(
    webs: list[Web], root: Path, engine: LocalEngine, tmp_path: Path
) -> None:
    """A replica was cut off, and others have said that its work is lost: everybody says so from then on.

    What it has accepted since is not unknown: nobody should submit that again.
    """
    place = tmp_path / "a"
    with (
        cut_off(engine) as (url, cut, mend),
        served_over_http(root, *options(engine, "module"), "--set", f"cluster.url={url}") as lonely,
    ):
        until(lambda: "up" in lonely.ask("GET", "/readyz").json.get("engine", ""))
        task = task_of(lonely, "t_later")
        handle = envelope(lonely, "t.counted", payload={"place": str(place), "wait": True}, wait=False).json["output"][
            "handle"
        ]
        until(Path(f"{place}.runs").exists)
        cut()
        lost = until(lambda: about(webs[0], "tasks/get", task).json.get("result"))
        assert "is gone" in lost["result"]["content"][0]["text"]
        assert 500 == envelope(webs[1], "t.counted", handle=handle).status
        assert "input_required" == about(lonely, "tasks/get", task).json["result"]["status"]
        since = envelope(lonely, "t.echo", payload={"text": "since"}, wait=False).json["output"]["handle"]
        task_since = task_of(lonely, "t_soon")
        about_it = {**REQUEST, "tool": "t.echo", "payload": {}, "metadata": {"handle": since}}
        forged = {**about_it, "auth": {"type": "bearer", "token": "forged"}}
        assert 401 == webs[1].ask("POST", "/v1/invoke", forged, JSON).status
        hidden = envelope(webs[1], "t.echo", handle=since)
        assert (503, "retry") == (hidden.status, hidden.json["status"]["code"])
        refused = about(webs[1], "tasks/get", task_since).json["error"]["message"]
        assert "try again" in refused
        assert "nats://" not in hidden.body.decode() + refused, "strangers learn no internal address"
        mend()
        assert (
            "since"
            == until(lambda: (it := envelope(webs[1], "t.echo", handle=since).json).get("output") and it)["output"]
        )
        assert "completed" == until(lambda: about(webs[1], "tasks/get", task_since).json.get("result"))["status"]
        until(lambda: about(lonely, "tasks/get", task).json["result"]["status"] == "completed")
        assert 500 == until(lambda: (it := envelope(lonely, "t.counted", handle=handle)).status != 202 and it).status


REQUEST = {"id": "1", "version": "1.0.0", "timestamp": "2026-01-31T12:00:00Z"}


def envelope(web: Web, tool: str, who: str = "ada", payload: Any = None, **metadata: Any) -> Answer:
    body = {**REQUEST, "tool": tool, "payload": payload or {}, "metadata": metadata}
    return web.ask("POST", "/v1/invoke", body, {**JSON, **of(who)})


def test_any_replica_answers_for_accepted_work(webs: list[Web]) -> None:
    accepted = envelope(webs[0], "t.echo", payload={"text": "done"}, wait=False).json
    assert "accepted" == accepted["status"]["code"]
    handle = accepted["output"]["handle"]
    done = until(lambda: (it := envelope(webs[1], "t.echo", handle=handle)).status == 200 and it)

    assert "done" == done.json["output"]
    question = json.dumps({**REQUEST, "tool": "t.echo", "payload": {}, "metadata": {"handle": handle}})
    for encoding, status in (("utf-8-sig", 200), ("utf-16", 422)):
        asked = webs[1].ask("POST", "/v1/invoke", question.encode(encoding), {**JSON, **of("ada")})
        assert status == asked.status
    large = "x" * 3_000_000  # more than a message of the engine carries
    handle = envelope(webs[0], "t.echo", payload={"text": large}, wait=False).json["output"]["handle"]
    done = until(lambda: (it := envelope(webs[1], "t.echo", handle=handle)).status == 200 and it)
    assert large == done.json["output"]
    assert 404 == envelope(webs[1], "t.echo", "bob", handle=handle).status


# News, and the rest of long results


def listening(web: Web, **wanted: Any) -> Events:
    body, fields = stateless("subscriptions/listen", notifications=wanted)
    stream = web.stream("POST", "/mcp", body, {**fields, **of("ada")})
    assert "acknowledged" in stream.message()["method"]
    return stream


def test_clients_hear_what_changes_on_another_replica(webs: list[Web], engine: LocalEngine, tmp_path: Path) -> None:
    """A resource that a command changed there, and a list that differs there: their next request may go there."""
    resources = listening(webs[0], resourceSubscriptions=["note://a"])
    lists = listening(webs[0], toolsListChanged=True)
    assert "changed" == webs[1].call("t_change", of("ada"), uri="note://a").text
    assert "note://a" == resources.message()["params"]["uri"]
    more = make_project(tmp_path / "more", SETTINGS, t=SKILL, more="@skill_command\ndef one() -> None: ...\n")
    with served_over_http(more, *options(engine, "module")) as web:
        assert "notifications/tools/list_changed" == lists.message()["method"]
        until(lambda: "up" in web.ask("GET", "/readyz").json.get("engine", ""))
    for stream in (resources, lists):
        stream.close()


def test_clients_hear_of_resources_that_changed_while_a_replica_was_cut_off(
    webs: list[Web], root: Path, engine: LocalEngine
) -> None:
    """Those of other replicas about its changes, and its own about those of others: any of their resources, since it has missed which."""
    with (
        cut_off(engine) as (url, cut, mend),
        served_over_http(root, *options(engine, "module"), "--set", f"cluster.url={url}") as lonely,
    ):
        until(lambda: "up" in lonely.ask("GET", "/readyz").json.get("engine", ""))
        there = listening(webs[0], resourceSubscriptions=["note://lonely", "note://quiet"])
        here = listening(lonely, resourceSubscriptions=["note://other"])
        cut()
        until(lambda: "gone" in lonely.ask("GET", "/readyz").json["engine"])
        assert "changed" == lonely.call("t_change", of("ada"), uri="note://lonely").text
        assert "changed" == webs[1].call("t_change", of("ada"), uri="note://other").text
        mend()
        assert "note://lonely" == there.message()["params"]["uri"]
        assert "note://other" == here.message()["params"]["uri"]
        for stream in (there, here):
            stream.close()


async def test_more_changes_than_a_host_keeps_count_as_all(
    connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_MOST_UPDATES", 3)
    heard: list[Any] = []
    one, other = [
        sharing.ClusterSharing(await connect(), Settings.of({}), b"", lambda: None, _nothing, on_news=hear)
        for hear in (heard.append, lambda _: None)
    ]
    for number in range(6):
        other.broadcast({"updated": f"note://{number}", "skill": ""})
    await other.engine.flush()
    one.start()
    await one.engine.flush()
    other._reconnected()
    with fail_after(PATIENCE):
        while not heard:  # noqa: ASYNC110 - there is no event
            await sleep(0.01)
    assert {"missed": True, "by": other.replicas.me} == heard[0]
    for each in (one, other):
        await each.close()


async def _nothing(*_: Any) -> Any:
    return {}


def test_progress_of_a_task_is_told_by_any_replica(webs: list[Web], tmp_path: Path) -> None:
    task = task_of(webs[0], "t_reporting", place=str(tmp_path / "a"))

    def state() -> dict[str, Any]:
        return about(webs[1], "tasks/get", task).json["result"]

    until(lambda: state().get("statusMessage") == "half way")
    Path(f"{tmp_path}/a.go").touch()
    until(lambda: state()["status"] == "completed")


def test_rest_of_a_long_result_is_read_from_any_replica(webs: list[Web]) -> None:
    """By whoever has called, and nobody else."""
    text = "".join(map(str, range(2000)))
    first = webs[0].call("t_echo", of("ada"), text=text).json["result"]
    read, cursor = first["content"][0]["text"], first["_meta"]["prowess/cut"]["cursor"]
    refused = webs[1].call("prowess_read_more", of("bob"), cursor=cursor)
    assert (True, "unknown" in refused.text) == (refused.json["result"]["isError"], True)
    while cursor:
        page = webs[1].call("prowess_read_more", of("ada"), cursor=cursor).json["result"]
        read, cursor = read + page["content"][0]["text"], page["_meta"]["prowess/cut"]["cursor"]
    assert text == read


# The record


def test_record_of_the_cluster_has_the_calls_of_all_replicas_and_no_secrets(
    webs: list[Web], root: Path, engine: LocalEngine
) -> None:
    for number, web in enumerate(webs):
        web.call("t_echo", of("ada"), text=f"recorded {number}")
        web.call("t_echo", of("ada"), text="the secret is hunter2-and-more")
    command = [
        *SERVE[:-1],
        "logs",
        "--cluster",
        "--json",
        "-n",
        "1000",
        "--project",
        str(root),
        *options(engine, "module"),
    ]

    def shown() -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def lines(told: str, words: str) -> int:
        return sum(words in line for line in told.splitlines())

    told = until(lambda: (it := shown()) and lines(it, "recorded ") == lines(it, "the secret is") == 2 and it)
    assert "hunter2-and-more" not in told
    failed = subprocess.run([*command, "--follow"], capture_output=True, text=True, check=False)
    assert (2, True) == (failed.returncode, "leave out --follow" in failed.stderr)


# Any replica, at random


def test_clients_behind_a_random_proxy_notice_nothing(webs: list[Web], tmp_path: Path) -> None:
    """Each request goes to another replica: questions with sealed states, tasks, accepted work, cached results, limits."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    pick = random.Random(seed)

    def story(number: int) -> None:
        text = f"{number}"
        assert text == pick.choice(webs).call("t_echo", of("ada"), text=text).text
        asked = pick.choice(webs).stateless("tools/call", of("ada"), name="t_sure", arguments={}, _meta=ASKABLE)
        sealed = asked.json["result"]["requestState"]
        told = {"requestState": sealed, "inputResponses": YES, "_meta": ASKABLE}
        assert (
            "accept True"
            == pick.choice(webs).stateless("tools/call", of("ada"), name="t_sure", arguments={}, **told).text
        )
        created = pick.choice(webs).stateless("tools/call", of("ada"), name="t_later", arguments={}, _meta=TAKES_TASKS)
        task = created.json["result"]["taskId"]
        until(lambda: about(pick.choice(webs), "tasks/get", task).json["result"]["status"] == "input_required")
        about(pick.choice(webs), "tasks/update", task, inputResponses=YES)
        until(lambda: about(pick.choice(webs), "tasks/get", task).json["result"]["status"] == "completed")
        handle = envelope(pick.choice(webs), "t.echo", payload={"text": text}, wait=False).json["output"]["handle"]
        assert (
            text
            == until(lambda: (it := envelope(pick.choice(webs), "t.echo", handle=handle)).status == 200 and it).json[
                "output"
            ]
        )
        assert "alone" == pick.choice(webs).call("t_alone", of("ada"), place=str(tmp_path / "alone")).text
        assert "counted" == pick.choice(webs).call("t_counted", of("ada"), place=str(tmp_path / "counted")).text

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(story, number) for number in range(8)]:
            done.result()
    assert 1 == runs(tmp_path / "counted")


# Without the engine


def test_replicas_go_on_when_the_engine_is_killed_and_share_again_when_it_is_back(root: Path, tmp_path: Path) -> None:
    """Nothing hangs, local limits hold, and a state that was sealed before is still good."""
    with FailingEngine(tmp_path / "engine") as own, replicas(root, own, "mortal") as webs:
        asked = webs[0].stateless("tools/call", of("ada"), name="t_sure", arguments={}, _meta=ASKABLE)
        created = webs[0].stateless("tools/call", of("ada"), name="t_later", arguments={}, _meta=TAKES_TASKS)
        task = created.json["result"]["taskId"]
        handle = envelope(webs[0], "t.echo", payload={"text": "kept"}, wait=False).json["output"]["handle"]
        in_flight = str(tmp_path / "in-flight")
        waiting = [
            lambda: webs[0].call("t_counted", of("ada"), place=in_flight, wait=True),
            lambda: webs[1].call("t_counted", of("ada"), place=in_flight, wait=True),
            lambda: webs[0].call("t_alone", of("ada"), place=in_flight, wait=True),
        ]
        pool, answers = begun(*waiting)
        until(lambda: Path(f"{in_flight}.runs").exists() and Path(in_flight).exists())
        own.kill()
        for web in webs:
            gone = until(lambda web=web: "gone" in (it := web.ask("GET", "/readyz")).json["engine"] and it)
            assert (200, "ok") == (gone.status, gone.json["status"])
            assert 0 == metric(web, "prowess_engine_up")
        place = str(tmp_path / "alone")
        assert ["alone", "alone"] == [
            web.call("t_alone", of("ada"), place=place + web.url[-5:]).text for web in webs[1:] * 2
        ]
        assert ["counted"] * 2 == [web.call("t_counted", of("ada"), place=str(tmp_path / "b")).text for web in webs]
        assert 2 == runs(tmp_path / "b")
        told = {"requestState": asked.json["result"]["requestState"], "inputResponses": YES, "_meta": ASKABLE}
        assert "accept True" == webs[1].stateless("tools/call", of("ada"), name="t_sure", arguments={}, **told).text
        refused = about(webs[1], "tasks/get", task).json["error"]
        assert (-32603, True) == (refused["code"], "cannot be reached; try again" in refused["message"])
        again = envelope(webs[1], "t.echo", handle=handle).json
        assert ("1", "retry", 503) == (again["id"], again["status"]["code"], again["status"]["http"])
        until(lambda: about(webs[0], "tasks/get", task).json["result"]["status"] == "input_required")
        Path(f"{in_flight}.go").touch()
        assert {"counted", "alone"} == {answer.result().text for answer in answers}
        pool.shutdown()

        own.start()
        for web in webs:
            until(lambda web=web: "up" in web.ask("GET", "/readyz").json["engine"])
        assert "input_required" == about(webs[1], "tasks/get", task).json["result"]["status"]
        webs[0].call("t_counted", of("ada"), place=str(tmp_path / "c"))
        until(lambda: is_cached(webs[1].call("t_counted", of("ada"), place=str(tmp_path / "c"))))
        assert "alone" == webs[0].call("t_alone", of("ada"), place=place).text

        own.pause()  # an engine that hangs keeps its connections
        assert b"alone" in webs[0].call("t_alone", of("ada"), place=place).body
        assert b"counted" in webs[1].call("t_counted", of("ada"), place=str(tmp_path / "d")).body
        own.resume()


def test_server_starts_without_its_engine(root: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{free.getsockname()[1]}"
    with served_over_http(root, "--set", f"cluster.url={url}") as web:
        assert "here" == web.call("t_echo", of("ada"), text="here").text
        ready = until(lambda: (it := web.ask("GET", "/readyz")).status == 200 and it)
        assert re.fullmatch(r"gone for \d+ s", ready.json["engine"])  # strangers do not get its address
