"""Many clients of one project: all share its workers, and none harms another."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from memory import MemoryClient, Pipe, clients, served, text_of
from piped import HANDSHAKE, STATELESS, make_project, until, write_skill

MANY = 50
CHANGED = "notifications/tools/list_changed"
SKILL = """
    @skill_command
    async def where(text: str) -> str:
        return f"{text} {os.getpid()}"

    @skill_command
    def sync(text: str) -> str:
        return f"{text} {os.getpid()}"

    @skill_command
    async def steps(ctx: Context, text: str) -> str:
        for step in range(3):
            ctx.progress(step + 1, 3, f"{text} {step}")
        return text

    @skill_command
    async def sure(ctx: Context) -> str:
        answer = await ctx.ask("sure", "Sure?", bool)
        return f"{answer.action} {answer.value}"

    @skill_command
    async def hold(file: str) -> str:
        open(file + ".begun", "x").close()
        try:
            while not os.path.exists(file):
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            open(file + ".cancelled", "x").close()
            raise
        return "held"

    @skill_command
    async def flood(ctx: Context, file: str) -> str:
        for step in range(300):
            ctx.progress(step + 1, 300, "x" * 10_000)
            await asyncio.sleep(0)
        open(file, "x").close()
        return "over"
"""
RESOURCES = """
    from prowess import prompt, resource

    @prompt
    def told() -> str:
        return "told"

    @resource("told://{name}")
    def read(name: str) -> str:
        return name
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_project(tmp_path, t=SKILL)


async def use(client: MemoryClient, name: str, folder: Path) -> set[str]:
    """Everything that a client can do; gives the workers that have served it."""
    tools = [tool["name"] for tool in (await client.ask("tools/list"))["tools"]]
    assert ["t_flood", "t_hold", "t_steps", "t_sure", "t_sync", "t_where"] == sorted(tools)
    said = [await client.text("t_where", text=name), await client.text("t_sync", text=name)]
    assert [name, name] == [text.split()[0] for text in said]

    stepped = client.start_call("t_steps", text=name, extra={"_meta": {"progressToken": name}})
    assert name == text_of(await client.answer(stepped))
    progress = [note["params"] for note in client.notes("notifications/progress")]
    assert [(name, 1), (name, 2), (name, 3)] == [(each["progressToken"], each["progress"]) for each in progress]
    assert [f"{name} {step}" for step in range(3)] == [each["message"] for each in progress]

    await answer_question(client)
    if name[-1] in "01":  # one in five, of both eras: what a cancelled call does is told by files, and looking costs
        await cancel_call(client, folder / f"cancelled-{name}")
    return {text.split()[1] for text in said}


async def answer_question(client: MemoryClient) -> None:
    asked = client.start_call("t_sure")
    if client.version == STATELESS:
        told = (await client.answer(asked))["result"]
        given = {"sure": {"action": "accept", "content": {"value": True}}}
        again = client.start_call("t_sure", extra={"inputResponses": given, "requestState": told["requestState"]})
        assert "accept True" == text_of(await client.answer(again))
    else:
        question = await client.found(lambda message: message.get("method") == "elicitation/create")
        client.send({"id": question["id"], "result": {"action": "accept", "content": {"value": True}}})
        assert "accept True" == text_of(
            await client.found(lambda message: message.get("id") == asked and "result" in message)
        )


async def cancel_call(client: MemoryClient, file: Path) -> None:
    held = client.start_call("t_hold", file=str(file))
    await until(Path(f"{file}.begun").exists)
    client.send({"method": "notifications/cancelled", "params": {"requestId": held}})
    await until(Path(f"{file}.cancelled").exists)
    await client.ask("tools/list")
    assert not [message for message in client.pipe.messages if message.get("id") == held and "method" not in message]


def cancelled(root: Path) -> list[Path]:
    return sorted(root.glob("*.cancelled"))


async def test_many_connections_share_one_project(root: Path) -> None:
    """Clients of both eras list, call, see progress, cancel and are asked; all in one worker. A save reaches all."""
    async with served(root) as project:
        several = await clients(project, MANY)
        used = await asyncio.gather(*(use(client, f"c{number}", root) for number, client in enumerate(several)))
        assert 1 == len(set.union(*used)), "one set of workers"
        assert str(os.getpid()) not in used[0]
        assert not any(client.notes(CHANGED) for client in several)

        write_skill(root, "more.py", "@skill_command\ndef new() -> str:\n    return 'new'\n")
        await asyncio.gather(*(client.noted(CHANGED) for client in several))
        assert ["new"] * MANY == await asyncio.gather(*(client.text("more_new") for client in several))


async def test_closing_one_connection_ends_its_calls_alone(root: Path) -> None:
    """What the others have in flight goes on, and the closed one is written nothing more."""
    async with served(root) as project:
        several = await clients(project, 4)
        files = [root / f"held{number}" for number in range(4)]
        held = [client.start_call("t_hold", file=str(file)) for client, file in zip(several, files, strict=True)]
        for file in files:
            await until(Path(f"{file}.begun").exists)
        several[0].connection.close()
        several[0].connection.close()
        await until(Path(f"{files[0]}.cancelled").exists)
        for file in files:
            file.touch()
        rest = list(zip(several, held, strict=True))[1:]
        assert ["held"] * 3 == [text_of(await client.answer(number)) for client, number in rest]
        assert ["held0.cancelled"] == [path.name for path in cancelled(root)]
        assert "error" in await several[0].answer(held[0])
        written = len(several[0].pipe.messages)
        several[0].request("ping")
        write_skill(root, "more.py", "@skill_command\ndef new() -> None: ...\n")
        await asyncio.gather(*(client.noted(CHANGED) for client in several[1:]))
        assert written == len(several[0].pipe.messages)


async def test_what_concerns_a_message_goes_back_its_own_way(root: Path) -> None:
    """Its answer, its progress, its question, and what is said of a batch; what concerns nobody goes to the client."""
    async with served(root) as project:
        client = MemoryClient(project, "2025-11-25")
        await client.open()
        ways = [Pipe() for _ in range(3)]
        call = {"method": "tools/call", "params": {"name": "t_steps", "arguments": {"text": "x"}}}
        call["params"]["_meta"] = {"progressToken": 1}
        client.send_by(ways[0], {"id": "steps", **call})
        client.send_by(ways[1], {"id": "sure", "method": "tools/call", "params": {"name": "t_sure", "arguments": {}}})
        client.send_by(ways[2], {"id": "ping", "method": "ping"})
        assert ["ping"] == await said(ways[2], 1)
        assert ["notifications/progress"] * 3 + ["steps"] == await said(ways[0], 4)
        assert ["elicitation/create"] == await said(ways[1], 1)
        assert client.connection.owes(ways[1])
        assert not any(client.connection.owes(way) for way in (ways[0], ways[2], client.pipe))
        answered = Pipe()
        given = {"action": "accept", "content": {"value": True}}
        client.send_by(answered, {"id": ways[1].messages[0]["id"], "result": given})
        assert ["elicitation/create", "sure"] == await said(ways[1], 2)
        assert [] == answered.messages
        write_skill(root, "more.py", "@skill_command\ndef new() -> str:\n    return 'new'\n")
        await client.noted(CHANGED)
        assert [4, 2, 1] == [len(way.messages) for way in ways]


async def test_a_batch_goes_back_as_one(root: Path) -> None:
    """Each of its answers goes the way of the batch, also what was cancelled by another message."""
    async with served(root) as project:
        client = MemoryClient(project, "2025-03-26")
        await client.open()
        batch, other = Pipe(), Pipe()
        where = {"method": "tools/call", "params": {"name": "t_where", "arguments": {"text": "x"}}}
        held = {"method": "tools/call", "params": {"name": "t_hold", "arguments": {"file": str(root / "held")}}}
        client.send_by(batch, {"id": 1001, **where}, {"id": 1002, **held}, {"id": 1003, "method": "ping"})
        await until((root / "held.begun").exists)
        assert client.connection.owes(batch)
        client.send_by(other, {"method": "notifications/cancelled", "params": {"requestId": 1002}})
        await until(lambda: batch.messages)
        assert {1001, 1003} == {each["id"] for each in batch.messages[0]}
        assert not client.connection.owes(batch)
        assert [] == other.messages


async def said(way: Pipe, count: int) -> list[str]:
    """The ids and methods of what was written, once there is so much."""
    await until(lambda: len(way.messages) >= count)
    return [message.get("method") or message["id"] for message in way.messages]


async def test_a_client_that_does_not_read_is_spared_what_is_of_the_moment(root: Path) -> None:
    """Its progress is dropped above a limit, its answers are kept, and the others are served meanwhile."""
    async with served(root) as project:
        silent, other = await clients(project, 2)
        await silent.ask("tools/list")
        silent.pipe.is_read = False
        flood = silent.start_call("t_flood", file=str(root / "over"), extra={"_meta": {"progressToken": 1}})
        assert "x" == (await other.text("t_sync", text="x")).split()[0]
        await until((root / "over").exists)
        await until(lambda: not silent.connection.in_flight)
        assert silent.pipe.backlog < 2 * 1024 * 1024
        silent.pipe.is_read = True
        silent.pipe.read()
        assert "over" == text_of(await silent.answer(flood))


async def test_a_client_that_is_gone_harms_no_other(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither one that takes nothing more, nor one whose transport breaks its promise and raises."""

    def fail(line: bytes, *, more: bool = False) -> None:
        raise ConnectionError(f"cannot write {len(line)} bytes, more: {more}")

    async with served(root) as project:
        dead, broken, other = await clients(project, 3)
        await other.ask("tools/list")
        dead.pipe.is_dead = True
        broken.pipe.write = fail  # type: ignore[method-assign]
        for client in (dead, broken):
            client.start_call("t_where", text="x")
        write_skill(root, "more.py", "@skill_command\ndef new() -> str:\n    return 'new'\n")
        await other.noted(CHANGED)
        assert "new" == await other.text("more_new")
    assert "a client could not be notified of a change" in caplog.text


async def test_what_is_open_when_a_project_is_closed_is_answered(root: Path) -> None:
    """By the workers' end where a call was with them, and by the connection where it was not yet."""
    async with served(root) as project:
        (client,) = await clients(project, 1)
        held = client.start_call("t_hold", file=str(root / "held"))
        await until(Path(f"{root / 'held'}.begun").exists)
    told = await client.answer(held)
    assert told["result"]["isError"]
    assert "worker_lost" == told["result"]["_meta"]["prowess/kind"]


async def test_calls_before_the_first_listing_wait_for_it(root: Path) -> None:
    """Or are refused when the project is closed before."""
    async with served(root) as project:
        client = MemoryClient(project, HANDSHAKE)
        await client.open()
        first = client.request("tools/list")
        assert (1, 1, 0) == (client.connection.in_flight, client.connection.unbegun, client.connection.running)
    assert -32603 == (await client.answer(first))["error"]["code"]


async def test_whether_a_client_may_call_is_asked_when_its_command_is_known(root: Path) -> None:
    """A call that came before the listing runs nothing that its client may not have."""
    write_skill(root, "served.py", RESOURCES)
    async with served(root) as project:
        client = MemoryClient(project, HANDSHAKE, lambda _, *named: named == ("t.where",))
        await client.open()
        numbers = [
            client.start_call("t_sync", text="x"),
            client.request("prompts/get", name="served_told"),
            client.request("resources/read", uri="told://x"),
            client.request("resources/subscribe", uri="told://x"),
        ]
        allowed = client.start_call("t_where", text="x")
        for number in numbers:
            assert "needs scopes" in (await client.answer(number))["error"]["message"]
        assert text_of(await client.answer(allowed)).startswith("x ")


async def test_a_client_that_does_not_read_is_told_once_of_each_change(root: Path) -> None:
    """However often it changes meanwhile, and only of what it asked for."""
    write_skill(root, "served.py", RESOURCES)
    async with served(root) as project:
        client = MemoryClient(project, HANDSHAKE)
        await client.open()
        for uri in ("told://a", "told://b"):
            assert {} == await client.ask("resources/subscribe", uri=uri)
        client.pipe.is_read = False
        client.pipe.backlog = 2 * 1024 * 1024
        for _ in range(1000):
            for uri in ("told://a", "told://b", "told://c"):
                project.resource_updated(uri)
        assert 2 * 1024 * 1024 == client.pipe.backlog
        client.pipe.is_read, client.pipe.backlog = True, 0
        await client.found(lambda message: message.get("params", {}).get("uri") == "told://b")
        told = [each["params"]["uri"] for each in client.notes("notifications/resources/updated")]
        assert ["told://a", "told://b"] == told


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_a_client_that_reads_slowly_is_told_of_a_change_before_it_can_see_it(root: Path, version: str) -> None:
    """Although the notice was held back until it has read more."""
    async with served(root) as project:
        client = MemoryClient(project, version)
        await client.open()
        before = await client.ask("tools/list")
        client.pipe.is_read, client.pipe.backlog = False, 2 * 1024 * 1024
        write_skill(root, "more.py", "@skill_command\ndef more() -> None: ...\n")
        await until(lambda: project.listing["more.more"])
        number = client.request("tools/list")
        client.pipe.is_read = True
        client.pipe.read()
        assert before != (await client.answer(number))["result"]
        told = [
            message
            for message in client.pipe.messages
            if message.get("id") == number or message.get("method") == CHANGED
        ]
        assert [CHANGED, None] == [message.get("method") for message in told]


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_what_a_client_listens_to_is_bounded(root: Path, version: str) -> None:
    """In number and in length: it is kept for as long as the client stays."""
    write_skill(root, "served.py", RESOURCES)
    uris = [f"told://{number}{'x' * 8000}" for number in range(40)]
    async with served(root) as project:
        client = MemoryClient(project, version)
        await client.open()
        if version == STATELESS:
            number = client.request("subscriptions/listen", notifications={"resourceSubscriptions": uris})
            refused = await client.answer(number)
        else:
            *_, refused = [await client.answer(client.request("resources/subscribe", uri=uri)) for uri in uris]
        assert "characters, more than 262144" in refused["error"]["message"]


async def test_a_command_that_did_not_load_is_named_with_its_reason(tmp_path: Path) -> None:
    """A call of it is told the failure, and no guess at another name."""
    broken = "\n    @skill_command\n    def goods(x: object()): ...\n"
    async with served(make_project(tmp_path, t=SKILL, bad=broken)) as project:
        (client,) = await clients(project, 1)
        error = (await client.answer(client.start_call("bad_goods")))["error"]
    assert -32602 == error["code"]
    assert "Unknown tool: bad_goods. This could not be loaded: bad.goods" in error["message"]
    assert "did you mean" not in error["message"]
