"""Resources, prompts, completions and tasks while files are saved and workers die: each request gets its one answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from inside import Inside, inside
from piped import CAPABILITIES_KEY, HANDSHAKE, STATELESS, Client, error, make_project, until, write_skill

from prowess_host.protocol.eras import TASKS

LISTS = {"tools": "toolsListChanged", "resources": "resourcesListChanged", "prompts": "promptsListChanged"}
HEAD = """
    from pathlib import Path
    from prowess import prompt, resource

    @skill_command
    def pid() -> int:
        return os.getpid()

    async def passing(gate: str) -> None:
        Path(f"{gate}.begun").touch()
        while not Path(gate).exists():
            await asyncio.sleep(0.01)
"""
ONE = f"""{HEAD}
    @resource("slow://{{+gate}}")
    async def slow(gate: str) -> str:
        await passing("/" + gate)
        return "one"

    @resource("dying://{{how}}")
    async def dying(how: str) -> str:
        os._exit(3)

    @resource("still://here")
    def still() -> str:
        return "one"

    @prompt
    async def asked(ctx: Context, gate: str = "") -> str:
        if gate == "die":
            os._exit(3)
        return f"one {{(await ctx.ask('sure', 'Sure?', bool)).action}}"

    def gone(value: str) -> list:
        os._exit(3)

    @prompt(complete={{"text": gone}})
    def completed(text: str) -> str:
        return text

    @skill_command
    async def behind(ctx: Context, gate: str, ask: bool = False) -> str:
        ctx.background()
        if ask:
            return f"one {{(await ctx.ask('sure', 'Sure?', bool)).action}}"
        await passing(gate)
        return "one"
"""
TWO = f"""{HEAD}
    @resource("slow://{{+gate}}")
    async def slow(gate: str) -> str:
        return "two"

    @resource("moved://here")
    def still() -> str:
        return "two"

    @prompt
    async def asked(ctx: Context, gate: str = "", more: str = "") -> str:
        return f"two {{(await ctx.ask('sure', 'Sure?', bool)).action}}"

    @resource("was://command")
    def behind() -> str:
        return "a resource now"
"""


@pytest.fixture(params=[HANDSHAKE, STATELESS])
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Inside]:
    """A client of each era, who listens to everything."""
    project = make_project(tmp_path, t=ONE)
    async with inside(project, version=request.param, capabilities={"elicitation": {}}) as client:
        client.root = project  # type: ignore[attr-defined]
        if request.param == STATELESS:
            client.request(
                "subscriptions/listen",
                notifications={**dict.fromkeys(LISTS.values(), True), "resourceSubscriptions": ["still://here"]},
            )
        await client.tools()
        yield client


async def read(host: Client, uri: str) -> str:
    return (await host.ask("resources/read", uri=uri))["contents"][0]["text"]


async def saved(host: Any, text: str) -> None:
    write_skill(host.root, "t.py", text)
    await host.noted("notifications/resources/list_changed")


async def test_a_read_ends_with_its_worker_and_the_next_one_is_served(host: Inside) -> None:
    """Whoever waits hears that the worker was lost, by an error; others are served by the next one."""
    for method, params in (
        ("resources/read", {"uri": "dying://now"}),
        ("prompts/get", {"name": "t_asked", "arguments": {"gate": "die"}}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "t_completed"}, "argument": {"name": "text", "value": "x"}},
        ),
    ):
        lost = await error(host.request(method, **params))
        assert (-32603, "worker_lost") == (lost["code"], lost["data"]["prowess/kind"]), method
        assert "one" == await read(host, "still://here")


async def test_a_read_in_flight_ends_on_the_old_generation(host: Inside, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    answer = host.request("resources/read", uri=f"slow:/{gate}")
    await until(gate.with_name("gate.begun").exists)
    await saved(host, TWO)
    assert "two" == await read(host, "moved://here")
    gate.touch()
    assert "one" == (await answer)["result"]["contents"][0]["text"]


async def test_lists_follow_a_save_of_each_kind(host: Inside) -> None:
    """What is gone is unknown, what was another kind is the new one."""
    await saved(host, TWO)
    uris = [each["uri"] for each in (await host.ask("resources/list"))["resources"]]
    assert ["moved://here", "was://command"] == sorted(uris)
    assert [-32002 if host.version == HANDSHAKE else -32602] == [
        (await error(host.request("resources/read", uri="still://here")))["code"]
    ]
    assert "a resource now" == await read(host, "was://command")
    assert -32602 == (await error(host.start_call("t_behind", gate="x")))["code"]
    (prompt,) = (await host.ask("prompts/list"))["prompts"]
    assert ["gate", "more"] == [each["name"] for each in prompt["arguments"]]
    for kind in LISTS:
        await host.noted(f"notifications/{kind}/list_changed")


async def test_a_broken_save_keeps_every_kind(host: Inside) -> None:
    write_skill(host.root, "t.py", "import nothing_of_this_name\n")  # type: ignore[attr-defined]
    await host.noted("notifications/tools/list_changed")
    assert "prowess_diagnostics" in await host.tools()
    assert "one" == await read(host, "still://here")
    templates = (await host.ask("resources/templates/list"))["resourceTemplates"]
    assert 2 == len(templates)
    assert 2 == len((await host.ask("prompts/list"))["prompts"])


@pytest.mark.parametrize("host", [HANDSHAKE], indirect=True)
async def test_who_subscribed_to_what_is_gone_can_leave(host: Inside) -> None:
    assert {} == await host.ask("resources/subscribe", uri="still://here")
    await saved(host, TWO)
    assert {} == await host.ask("resources/unsubscribe", uri="still://here")


async def test_a_question_outlives_a_save_or_is_asked_again(host: Inside) -> None:
    """A session waits with the worker that asked. A client without one is asked again, by the prompt as it is now."""
    if host.version == HANDSHAKE:
        answer = host.request("prompts/get", name="t_asked")
        question = await host.question()
        await saved(host, TWO)
        host.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        assert "one decline" == (await answer)["result"]["messages"][0]["content"]["text"]
        return
    first = await host.ask("prompts/get", name="t_asked")
    await saved(host, TWO)
    told = {"inputResponses": {"sure": {"action": "decline"}}, "requestState": first["requestState"]}
    second = await host.ask("prompts/get", name="t_asked", **told)
    assert "input_required" == second["resultType"]
    told["requestState"] = second["requestState"]
    assert "two decline" == (await host.ask("prompts/get", name="t_asked", **told))["messages"][0]["content"]["text"]


@pytest.mark.parametrize("host", [STATELESS], indirect=True)
async def test_a_task_outlives_a_save_and_ends_with_its_worker(host: Inside, tmp_path: Path) -> None:
    takes = {"_meta": {CAPABILITIES_KEY: {"extensions": {TASKS: {}}, "elicitation": {}}}}

    async def begun(**arguments: Any) -> str:
        return (await host.start_call("t_behind", extra=takes, **arguments))["result"]["taskId"]

    async def state(task: str, *until_status: str) -> dict[str, Any]:
        while True:
            found = await host.ask("tasks/get", taskId=task, **takes)
            if found["status"] in until_status:
                return found
            await asyncio.sleep(0.01)

    gate = tmp_path / "gate"
    waits, asks = await begun(gate=str(gate)), await begun(gate="", ask=True)
    await until(gate.with_name("gate.begun").exists)
    await state(asks, "input_required")
    await saved(host, TWO)
    assert "two" == await read(host, "moved://here")
    await host.ask("tasks/update", taskId=asks, inputResponses={"sure": {"action": "decline"}}, **takes)
    assert "one decline" == (await state(asks, "completed"))["result"]["content"][0]["text"]
    gate.touch()
    assert "one" == (await state(waits, "completed"))["result"]["content"][0]["text"]

    write_skill(host.root, "t.py", ONE)  # type: ignore[attr-defined]
    await host.noted("notifications/resources/list_changed", 2)
    lost = await begun(gate=str(tmp_path / "never"))
    await until((tmp_path / "never.begun").exists)
    assert "worker_lost" in str((await error(host.request("resources/read", uri="dying://x")))["data"])
    result = (await state(lost, "completed", "failed"))["result"]
    assert (True, "worker_lost") == (result["isError"], result["_meta"]["prowess/kind"])
    host.faults = [each for each in host.faults if "KeyError(('tasks/" not in each]  # the official types have no tasks
