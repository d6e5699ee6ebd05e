"""The record of whole projects: what is kept of calls, and that no call suffers from it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after
from memory import MemoryClient, served
from patience import PATIENCE
from piped import HANDSHAKE, STATELESS, hosted, make_project, result, until

from prowess.contracts.contract import Contract
from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess.worker.link import Frame
from prowess.worker.messages import Kind
from prowess_host.records import events, recording, writing
from prowess_host.records.record_path import record_path
from prowess_host.workers.jobs import Job, deliver

SKILL = """
    from pydantic import SecretStr
    from prowess import Image

    @skill_command
    async def echo(value: int) -> int:
        return value

    @skill_command
    def talk(ctx: Context, word: str) -> str:
        print("printed", word)
        print("half", end="")
        ctx.progress(1, 2, word)
        ctx.progress(2, 2)
        ctx.log("info", {"said": word})
        return word

    @skill_command
    def fail(text: str) -> None:
        raise SkillError(text)

    @skill_command
    def crash() -> None:
        raise ValueError("oh")

    @skill_command
    def login(password: SecretStr) -> str:
        print("password is", password.get_secret_value())
        return f"logged in with {password.get_secret_value()}"

    @skill_command
    def measure(text: str) -> int:
        return len(text)

    @skill_command
    def start_of(password: SecretStr, padding: str) -> str:
        return password.get_secret_value()

    @skill_command(inject_settings=["api.key:hidden"])
    def keyed(hidden: str) -> str:
        print("key is", hidden)
        return f"key {hidden}"

    @skill_command
    async def wait() -> None:
        await asyncio.sleep(600)

    @skill_command
    def large(size: int) -> str:
        return "x" * size

    @skill_command
    def flood(lines: int) -> None:
        for _ in range(lines):
            print("x" * 30)

    @skill_command
    async def sure(ctx: Context) -> str:
        return str((await ctx.ask("sure", "Sure?", bool)).value)

    @skill_command
    def end() -> None:
        os._exit(3)

    @skill_command(cache_ttl=60)
    async def cached() -> int:
        return 1
"""


def path_of(project: Path) -> Path:
    settings = Settings.load(project, environ={})
    return record_path(ConfigPaths.of(settings, {}))


def calls(project: Path) -> list[dict[str, Any]]:
    """All calls in the record, with their JSON read."""
    with contextlib.closing(sqlite3.connect(path_of(project))) as database:
        database.row_factory = sqlite3.Row
        found = [dict(each) for each in database.execute("SELECT * FROM calls ORDER BY began")]
    for each in found:
        for name in ("arguments", "withheld", "result", "events"):
            each[name] = each[name] and json.loads(each[name])
    return found


def said(call: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(kind, data) for _, kind, data in call["events"]]


async def session(
    root: Path, use: Callable[[MemoryClient], Any], version: str = HANDSHAKE, settings: str = ""
) -> list[dict[str, Any]]:
    """What the record holds after a client has used a project."""
    make_project(root, settings, t=SKILL)
    async with served(root) as project:
        client = MemoryClient(project, version)
        await client.open()
        await use(client)
        client.connection.close()
    return calls(root)


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_a_call_is_kept_with_all_that_is_known_of_it(tmp_path: Path, version: str):
    async def use(client: MemoryClient) -> None:
        await client.text("t_talk", word="hello")

    (call,) = await session(tmp_path, use, version)
    assert ("t.talk", "ok", 1, 0) == tuple(call[name] for name in ("command", "kind", "attempts", "cached"))
    assert ({"word": "hello"}, [], False) == (call["arguments"], call["withheld"], call["result"]["isError"])
    assert [{"type": "text", "text": "hello"}] == call["result"]["content"]
    assert call["duration"] > 0
    assert (os.getpid(), 0) == (call["host"], call["shortened"])
    assert call["worker"] not in (0, os.getpid())
    events = said(call)
    assert [("print", "printed hello"), ("print", "half")] == [each for each in events if each[0] == "print"]
    assert [("progress", [1, 2, "hello"]), ("progress", [2, 2, None])] == [
        each for each in events if each[0] == "progress"
    ]
    assert [("log", ["info", {"said": "hello"}])] == [each for each in events if each[0] == "log"]


async def test_the_client_and_the_id_are_known(tmp_path: Path):
    """The id stands in what a crash says, on stderr and to the client, too."""

    async def use(client: MemoryClient) -> None:
        client.text = await client.text("t_crash")  # type: ignore[method-assign,assignment]

    (call,) = await session(tmp_path, use)
    assert ("memory", "crashed") == (call["client"], call["kind"])
    assert f"(call {call['id']})" in call["result"]["content"][0]["text"]
    assert any("ValueError: oh" in str(data) for kind, data in said(call) if kind == "print")


async def test_failures_have_their_kinds(tmp_path: Path):
    async def use(client: MemoryClient) -> None:
        await client.text("t_fail", text="no")
        await client.text("t_echo", value="x")
        await client.text("t_end")
        await client.text("t_cached")
        await client.text("t_cached")

    found = await session(tmp_path, use)
    assert [("failed", 0), ("input", 0), ("worker_lost", 0), ("ok", 0), ("ok", 1)] == [
        (it["kind"], it["cached"]) for it in found
    ]


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_calls_of_unknown_names_are_kept(tmp_path: Path, version: str):
    """With what the client was told; without the arguments, since nobody knows which of them are secret."""
    project = make_project(tmp_path, t=SKILL)
    async with hosted(project, version=version, forked=True) as client:
        for name in ("t_ecko", "x" * 10_000):
            answer = await client.request("tools/call", name=name, arguments={"value": "s3cr3t"})
            assert -32602 == answer["error"]["code"]
    first, second = calls(project)

    assert ("t_ecko", "unknown", "piped", None) == tuple(
        first[key] for key in ("command", "kind", "client", "arguments")
    )
    assert 'Unknown tool: t_ecko; did you mean "t_echo"?' == first["result"]["content"][0]["text"]
    assert "x" * 200 == second["command"]


async def test_secrets_are_kept_nowhere(tmp_path: Path):
    """Marked parameters, injected values, and what a call prints and returns of them. Not in any file."""

    async def use(client: MemoryClient) -> None:
        assert "hunter2-hunter2" in await client.text("t_login", password="hunter2-hunter2")
        assert "key s3cr3t-0815" == await client.text("t_keyed")
        await client.text("t_echo", value="hunter2", token="tok-tok-tok")
        await client.text("t_talk", word="s3cr3t-0815")

    found = await session(tmp_path, use, settings='[api]\nkey = "s3cr3t-0815"\n')
    assert ["password"] == found[0]["withheld"]
    assert {"password": "***"} == found[0]["arguments"]
    assert "logged in with ***" == found[0]["result"]["content"][0]["text"]
    assert ("print", "password is ***") in said(found[0])
    assert "key ***" == found[1]["result"]["content"][0]["text"]
    assert ("print", "key is ***") in said(found[1])
    assert {"value": "hunter2", "token": "***"} == found[2]["arguments"]
    assert (["word"], {"word": "***"}) == (found[3]["withheld"], found[3]["arguments"])
    everything = b"".join(each.read_bytes() for each in path_of(tmp_path).parent.iterdir())
    for secret in (b"hunter2-hunter2", b"s3cr3t-0815", b"tok-tok-tok"):
        assert secret not in everything


async def test_the_words_that_secrets_are_found_by_are_none(tmp_path: Path):
    """The setting with the patterns has a name that says secret, and a pattern may be an ordinary word."""

    async def use(client: MemoryClient) -> None:
        await client.ask("tools/call", name="t_talk", arguments={"word": "authorization"})

    (call,) = await session(tmp_path, use)
    assert {"word": "authorization"} == call["arguments"]


async def test_a_running_call_is_shown_and_replaced_by_its_end(tmp_path: Path):
    """Also one that is cancelled."""
    make_project(tmp_path, t=SKILL)
    async with served(tmp_path) as project:
        client = MemoryClient(project, HANDSHAKE)
        await client.open()
        number = client.start_call("t_wait")
        await until(lambda: path_of(tmp_path).exists() and [it for it in shown(tmp_path) if it["kind"] == "running"])
        assert calls(tmp_path)[0]["duration"] is None
        client.send({"method": "notifications/cancelled", "params": {"requestId": number}})
        await until(lambda: [it for it in shown(tmp_path) if it["kind"] == "cancelled"])
    assert 1 == len(calls(tmp_path))


def shown(project: Path) -> list[dict[str, Any]]:
    """The same where the table may not be there yet."""
    try:
        return calls(project)
    except sqlite3.OperationalError:
        return []


async def test_a_question_is_kept_and_its_answer_is_not(tmp_path: Path):
    make_project(tmp_path, t=SKILL)
    async with served(tmp_path) as project:
        client = MemoryClient(project, HANDSHAKE)
        await client.open()
        number = client.start_call("t_sure")
        asked = await client.found(lambda message: message.get("method") == "elicitation/create")
        client.send({"id": asked["id"], "result": {"action": "accept", "content": {"value": True}}})
        await client.answer(number)
    (call,) = calls(tmp_path)
    assert [("asked", {"sure": "Sure?"})] == said(call)


async def test_a_run_that_ends_with_questions_says_so(tmp_path: Path):
    async def use(client: MemoryClient) -> None:
        await client.answer(client.start_call("t_sure"))

    (call,) = await session(tmp_path, use, STATELESS)
    assert ("input_required", "Sure?") == (call["kind"], call["result"]["content"][0]["text"])


def test_a_head_that_cannot_be_read_names_no_client() -> None:
    """It costs the other calls of its batch nothing."""
    assert ("", "") == writing._caller_in(b"[" * 100_000)


class Deaf:
    """Takes nothing but the reason why there is no result."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def result(self, meta: bytes, body: bytes) -> None:
        self.heard.append(json.loads(meta) and json.loads(body)["content"][0]["text"])

    def refused(self, facts: dict[str, Any]) -> None:
        self.heard.append(facts["message"])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Kind.RESULT, "t.say: the result cannot be passed on; see the log of the host"),
        (Kind.INPUT_REQUIRED, "the question cannot be sent to the client in this form"),
        (Kind.REFUSED, "the worker refused the call, and its reason cannot be read"),
        (Kind.LOG, None),
    ],
)
async def test_a_frame_that_cannot_be_read_ends_its_call_and_no_other(kind: Kind, reason: str | None) -> None:
    """Although the record has noted the end already, and the link to the worker stays."""
    listener: Any = Deaf()
    recorder = recording.Recorder(pytest.fail, lambda *_: True, keeps_output=False)
    job = Job(Contract("t.say", "t_say", "t", "say", "", {}), b"{}", b"{}", listener, 1)
    recorder.watch(job)
    assert not deliver(job, Frame(kind, 1, b"{", b"{"))
    assert ([reason] if reason else []) == listener.heard


@pytest.mark.parametrize(
    ("setting", "names"),
    [("arguments", ["arguments"]), ("results", ["result"]), ("max_value = 1 #", ["arguments", "result"])],
)
async def test_less_is_kept_where_the_settings_say_so(tmp_path: Path, setting: str, names: list[str]):
    async def use(client: MemoryClient) -> None:
        await client.text("t_talk", word="a word")

    value = "" if "=" in setting else " = false"
    (call,) = await session(tmp_path, use, settings=f"[record]\n{setting}{value}\n")
    assert "a word" not in json.dumps([call[name] for name in names])
    assert ["*"] == call["withheld"] or "arguments" not in names
    assert [("print", "printed a word")] == [each for each in said(call) if each[0] == "print"][:1]


async def test_no_output_is_kept_where_the_settings_say_so(tmp_path: Path):
    async def use(client: MemoryClient) -> None:
        await client.text("t_talk", word="a")

    (call,) = await session(tmp_path, use, settings="[record]\noutput = false\n")
    assert [] == call["events"]


async def test_nothing_is_kept_where_the_record_is_off(tmp_path: Path):
    make_project(tmp_path, "[record]\non = false\n", t=SKILL)
    async with served(tmp_path) as project:
        client = MemoryClient(project, HANDSHAKE)
        await client.open()
        assert "1" == await client.text("t_echo", value=1)
        assert not project.hears_all
    assert not path_of(tmp_path).exists()


async def test_a_large_result_is_kept_in_part(tmp_path: Path):
    """What is kept says so, and stays small."""

    async def use(client: MemoryClient) -> None:
        assert 1_000_000 == len(await client.text("t_large", size=1_000_000))

    (call,) = await session(tmp_path, use)
    assert 1 == call["shortened"]
    assert 10_000 < len(call["result"]["content"][0]["text"]) < 300_000


async def test_large_arguments_without_secrets_are_let_go_at_the_end_of_their_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The record would not keep them, so that their memory is there for the next call. Others are searched for secrets first."""
    monkeypatch.setattr(recording, "LARGE", 1000)
    large = "".join(map(str, range(1000)))
    make_project(tmp_path, "[record]\nmax_value = 1000\n", t=SKILL)
    async with served(tmp_path) as project:
        client = MemoryClient(project, HANDSHAKE)
        await client.open()
        assert str(len(large)) == await client.text("t_measure", text=large)
        assert project._recorder is not None
        assert [None] == [each.arguments for each in project._recorder._recent.values()]
        assert large[:100] == await client.text("t_start_of", password=large[:100], padding=large)
    for call in calls(tmp_path):
        assert (None, ["*"], "ok") == tuple(call[name] for name in ("arguments", "withheld", "kind"))
        assert large[:100] not in json.dumps(call["result"])


@pytest.mark.parametrize("size", [500, 2000])
async def test_secrets_in_large_wrong_arguments_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
):
    """A search in any names takes seconds, so beyond a limit the record keeps no result that could quote one."""
    monkeypatch.setattr(writing, "_MOST_SEARCHED", 1000)

    async def use(client: MemoryClient) -> None:
        await client.text("t_echo", value=1, password="hunter22", padding="x" * size)

    (call,) = await session(tmp_path, use, settings="[record]\nmax_value = 300\n")
    assert ("input", None, ["*"]) == (call["kind"], call["arguments"], call["withheld"])
    assert "hunter22" not in json.dumps(call)
    assert (call["result"] is None) == (size > 1000)


async def test_calls_without_a_client_are_kept_as_well(tmp_path: Path):
    """Those of envelopes and of the command line: with what clients would have been shown."""
    make_project(tmp_path, t=SKILL)
    async with served(tmp_path) as project:
        outcome = await project.call("t.talk", {"word": "a"})
        await project.payload("t.echo", {"value": 2})
    one, other = calls(tmp_path)
    assert (outcome.call_id, "a", ["content", "isError"]) == (
        one["id"],
        one["result"]["content"][0]["text"],
        sorted(one["result"]),
    )
    assert ("t.echo", {"result": 2}) == (other["command"], other["result"]["structuredContent"])
    assert ("progress", [2, 2, None]) in said(one)


# Whatever is wrong with the disk


async def test_calls_go_on_where_nothing_can_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """One warning says what to do."""
    make_project(tmp_path, t=SKILL)
    path_of(tmp_path).parent.parent.mkdir(exist_ok=True)
    path_of(tmp_path).parent.write_text("a file where the folder should be")
    async with served(tmp_path) as project:
        client = MemoryClient(project, HANDSHAKE)
        await client.open()
        for number in range(3):
            assert str(number) == await client.text("t_echo", value=number)
            await asyncio.sleep(0.3)
    (warning,) = [each.getMessage() for each in caplog.records if "not recorded" in each.getMessage()]
    assert str(path_of(tmp_path)) in warning
    assert "record.on = false" in warning


async def test_calls_go_on_with_a_damaged_database(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """It is set aside, and a new one begins."""
    path = path_of(make_project(tmp_path, t=SKILL))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database" * 1000)

    async def use(client: MemoryClient) -> None:
        assert "1" == await client.text("t_echo", value=1)

    (call,) = await session(tmp_path, use)
    assert {"value": 1} == call["arguments"]
    assert path.with_name(path.name + ".damaged").exists()
    assert "was damaged" in caplog.text


async def test_calls_go_on_while_the_database_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nobody waits for whoever holds it, also not at the end."""
    monkeypatch.setattr("prowess_host.records.store._BUSY", 0.05)
    make_project(tmp_path, t=SKILL)
    path_of(tmp_path).parent.mkdir(parents=True)
    holder = sqlite3.connect(path_of(tmp_path), isolation_level=None)
    holder.execute("PRAGMA journal_mode = WAL")
    holder.execute("BEGIN EXCLUSIVE")
    with fail_after(PATIENCE):
        async with served(tmp_path) as project:
            client = MemoryClient(project, HANDSHAKE)
            await client.open()
            assert "1" == await client.text("t_echo", value=1)
    holder.execute("ROLLBACK")
    holder.close()


async def test_a_full_disk_costs_records_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """And recording goes on when there is room again."""
    from prowess_host.records.store import RecordStore

    monkeypatch.setattr("prowess_host.records.writing._AGAIN", 0.0)
    real, full = RecordStore.write, True

    def write(self: RecordStore, *args: Any) -> None:
        if full:
            raise sqlite3.OperationalError("database or disk is full")
        real(self, *args)

    monkeypatch.setattr(RecordStore, "write", write)
    make_project(tmp_path, t=SKILL)
    async with served(tmp_path) as project:
        client = MemoryClient(project, HANDSHAKE)
        await client.open()
        assert "1" == await client.text("t_echo", value=1)
        await until(lambda: "disk is full" in caplog.text)
        full = False
        assert "2" == await client.text("t_echo", value=2)
    assert {"value": 2} == calls(tmp_path)[-1]["arguments"]


async def test_a_fault_of_ours_costs_records_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("prowess_host.records.writing._caller_in", lambda _: 1 / 0)
    make_project(tmp_path, t=SKILL)
    async with served(tmp_path) as project:
        client = MemoryClient(project, HANDSHAKE)
        await client.open()
        assert "1" == await client.text("t_echo", value=1)
    assert "calls could not be recorded" in caplog.text


async def test_calls_beyond_what_can_wait_are_not_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """They are run all the same."""
    monkeypatch.setattr(recording, "_MOST_CALLS", 0)

    async def use(client: MemoryClient) -> None:
        for number in range(2):
            assert str(number) == await client.text("t_echo", value=number)

    with pytest.raises(sqlite3.OperationalError):
        await session(tmp_path, use)
    assert "the record has gaps" in caplog.text


async def test_large_arguments_and_results_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of what is too much only the facts are kept."""
    monkeypatch.setattr(recording, "_MOST_WAITING", 10)

    async def use(client: MemoryClient) -> None:
        await client.text("t_talk", word="a long word")

    (call,) = await session(tmp_path, use)
    assert (None, ["*"], None, "ok") == tuple(call[name] for name in ("arguments", "withheld", "result", "kind"))
    assert 1 == call["shortened"]


async def test_what_a_call_says_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "_MOST_EVENTS", 3)
    monkeypatch.setattr(events, "_MOST_OF_ONE", 5)

    async def use(client: MemoryClient) -> None:
        await client.text("t_talk", word="a long word")

    (call,) = await session(tmp_path, use)
    assert 4 == len(call["events"])
    assert "dropped" == call["events"][-1][1]
    assert call["events"][-1][2] >= 1
    assert all(len(data) < 10 for kind, data in said(call) if kind == "print")


@pytest.mark.parametrize(("name", "arguments"), [("large", {"size": 5000}), ("flood", {"lines": 100})])
async def test_calls_that_have_ended_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, arguments: dict[str, int]
):
    """A call is kept for prints that come late, unless calls with large results or many prints follow it."""
    monkeypatch.setattr(recording, "_MOST_KEPT", 10_000)
    make_project(tmp_path, t=SKILL)
    async with served(tmp_path) as project:
        client = MemoryClient(project, HANDSHAKE)
        await client.open()
        recorder = project._recorder
        assert recorder is not None
        sizes: list[int] = []
        for _ in range(20):
            await client.text(f"t_{name}", **arguments)
            await asyncio.sleep(0)
            kept = [*recorder._recent.values(), *recorder._before.values()]
            sizes.append(sum(len(each.body or b"") + (each.events.size if each.events else 0) for each in kept))
        assert max(sizes) < 2 * 10_000 + 3 * 6000
    assert 20 == len(calls(tmp_path))


# Whole processes


async def test_a_host_imports_sqlite_after_the_first_answer_only(tmp_path: Path):
    """Its start pays nothing for the record."""
    make_project(tmp_path, t=SKILL)
    async with hosted(tmp_path, env={"PYTHONPROFILEIMPORTTIME": "1"}) as host:
        await host.tools()
        await host.barrier()
        before = host.stderr
        assert "1" == await host.text("t_echo", value=1)
        await until(lambda: "sqlite3" in host.stderr)
    assert "prowess_host.stdio" in before
    assert "sqlite3" not in before


async def test_what_two_hosts_and_a_killed_one_have_recorded_is_there(tmp_path: Path):
    make_project(tmp_path, t=SKILL)
    async with hosted(tmp_path, forked=True) as one, hosted(tmp_path, forked=True) as other:
        for number in range(5):
            await one.text("t_echo", value=number)
            await other.text("t_echo", value=number)
        await until(lambda: len(shown(tmp_path)) == 10)
        waiting = one.start_call("t_wait")
        await until(lambda: "running" in [call["kind"] for call in shown(tmp_path)])
        one.process.kill()
        await one.process.wait()
        waiting.cancel()
        assert "9" == await other.text("t_echo", value=9)
    found = calls(tmp_path)
    assert 12 == len(found)
    assert 2 == len({call["host"] for call in found})
    assert ["piped"] == list({call["client"] for call in found})


async def test_a_late_print_belongs_to_its_call(tmp_path: Path):
    """What is printed reaches the host by another way than the result, and may come later."""
    skill = """
    @skill_command
    def later() -> str:
        gone = threading.Event()
        def talk():
            gone.wait(0.3)
            print("late")
        import contextvars
        threading.Thread(target=contextvars.copy_context().run, args=(talk,)).start()
        return "done"
    """
    make_project(tmp_path, t=skill)
    async with served(tmp_path) as project:
        client = MemoryClient(project, HANDSHAKE)
        await client.open()
        assert "done" == await client.text("t_later")
        await until(lambda: [it for it in shown(tmp_path) if ("print", "late") in said(it)])


async def test_an_unbegun_call_that_moves_is_one_record(tmp_path: Path):
    """It gets another number with each worker. Whether it has begun when its first worker dies is a matter of luck."""
    begun = [tmp_path / "begun0", tmp_path / "begun1"]
    hang = "async def hang(file: str) -> None:\n    open(file, 'w').close()\n    await asyncio.sleep(600)\n"
    make_project(tmp_path, t=SKILL, u=f"@skill_command\n{hang}")
    async with hosted(tmp_path, forked=True) as host:
        await host.text("t_echo", value=1)
        waiting = [host.start_call("u_hang", file=str(file)) for file in begun]
        os.kill(await host.worker(), 9)
        await until(lambda: all(file.exists() for file in begun))
        for pid in host.workers():
            os.kill(pid, 9)
        for each in waiting:
            assert (await result(each))["isError"]
    assert ["ok", "worker_lost", "worker_lost"] == sorted(call["kind"] for call in calls(tmp_path))
