"""The official Python client in both eras, and FastMCP's, over stdio and over HTTP: each lists, calls, gets an error, progress, an answer to a
question, a cancellation and a change of the list.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from patience import PATIENCE

mcp = pytest.importorskip("mcp")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of what it imports, on a new Python
    fastmcp = pytest.importorskip("fastmcp")
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: E402 - after the skip
from mcp_types import ElicitResult  # noqa: E402 - after the skip

LATER = """
from prowess import skill_command

@skill_command
def hello() -> str:
    return "hello"
"""
TOOLS = ["tools_add", "tools_confirm", "tools_count", "tools_fail", "tools_lap", "tools_wait"]


async def yes(*_: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": True})


@asynccontextmanager
async def official(target: list[str], heard: Callable[[Any], None], mode: str) -> AsyncGenerator[Any]:
    async def handler(message: Any) -> None:
        heard(message)

    server = stdio_client(StdioServerParameters(command=target[0], args=target[1:])) if target[1:] else target[0]
    async with mcp.Client(server, mode=mode, message_handler=handler, elicitation_callback=yes) as client:
        yield client


@pytest.fixture(params=["legacy", "auto"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both ways in which the official client opens a connection."""
    return request.param


async def test_official_client_speaks_the_era_it_asked_for(target: list[str], mode: str) -> None:
    """The handshake where it insists on it, else the newest revision."""
    with anyio.fail_after(PATIENCE):
        async with official(target, lambda _: None, mode) as client:
            assert {"legacy": "2025-11-25", "auto": "2026-07-28"}[mode] == client.protocol_version
            assert TOOLS == [tool.name for tool in (await client.list_tools()).tools]


async def test_official_client_calls(target: list[str], mode: str) -> None:
    """A value, a failure, an unknown tool, wrong arguments, progress and a question."""
    steps: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        steps.append((done, total, message))

    with anyio.fail_after(PATIENCE):
        async with official(target, lambda _: None, mode) as client:
            added = await client.call_tool("tools_add", {"a": 1, "b": 2})
            failed = await client.call_tool("tools_fail")
            wrong = await client.call_tool("tools_add", {"a": "x"})
            counted = await client.call_tool("tools_count", {}, progress_callback=progress)
            asked = await client.call_tool("tools_confirm")
            with pytest.raises(mcp.MCPError) as unknown:
                await client.call_tool("tools_ad")
    assert (False, "3") == (added.is_error, added.content[0].text)
    assert {"legacy": {"result": 3}, "auto": 3}[mode] == added.structured_content
    assert (True, "This one always fails.") == (failed.is_error, failed.content[0].text)
    assert wrong.is_error
    assert "b: required" in wrong.content[0].text
    assert "3" == counted.content[0].text
    assert [(1, 3, "at 1"), (2, 3, "at 2"), (3, 3, "at 3")] == steps
    assert "accept True" == asked.content[0].text
    assert -32602 == unknown.value.error.code


async def test_official_client_reads_resources_and_gets_prompts(target: list[str], mode: str) -> None:
    """Those of skills and of folders, by URI and by template, with completions; and what is not there is an error."""
    with anyio.fail_after(PATIENCE):
        async with official(target, lambda _: None, mode) as client:
            resources = {each.uri: each.name for each in (await client.list_resources()).resources}
            templates = (await client.list_resource_templates()).resource_templates
            read = (await client.read_resource("notes://7")).contents
            file = (await client.read_resource("docs://a.md")).contents
            prompts = (await client.list_prompts()).prompts
            got = await client.get_prompt("notes_review", {"code": "x"})
            ref = mcp.types.PromptReference(name="notes_review")
            done = await client.complete(ref, {"name": "language", "value": "py"})
            with pytest.raises(mcp.MCPError) as unknown:
                await client.read_resource("nobody://x")
    assert {"notes://today": "notes_today", "docs://a.md": "a.md"} == resources
    assert ["notes://{id}"] == [each.uri_template for each in templates]
    assert ["application/json", '{"id": 7}'] == [read[0].mime_type, read[0].text]
    assert "# A" == file[0].text
    assert [("code", True), ("language", False)] == [(each.name, each.required) for each in prompts[0].arguments]
    assert ["Review this python: x", "Sure."] == [message.content.text for message in got.messages]
    assert ["python"] == done.completion.values
    assert {"legacy": -32002, "auto": -32602}[mode] == unknown.value.error.code


async def test_official_client_hears_of_a_file_it_listens_for(target: list[str], project: Path) -> None:
    """As an event of its subscription."""
    with anyio.fail_after(PATIENCE):
        async with official(target, lambda _: None, "auto") as client:
            await client.list_resources()
            async with client.listen(resource_subscriptions=["docs://a.md"]) as events:
                (project / "docs" / "a.md").write_text("# B", "utf-8")
                async for _ in events:
                    break
            assert "# B" == (await client.read_resource("docs://a.md")).contents[0].text


async def test_official_client_cancels(target: list[str], mode: str, project: Path) -> None:
    """A call that its caller gives up really ends, and the connection goes on."""
    with anyio.fail_after(PATIENCE):
        async with official(target, lambda _: None, mode) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "tools_wait", {"mark": mode})
                await there(project / f"{mode}.begun")
                group.cancel_scope.cancel()
            await there(project / f"{mode}.cancelled")
            assert "3" == (await client.call_tool("tools_add", {"a": 1, "b": 2})).content[0].text


async def test_official_client_hears_of_a_change_by_handshake(target: list[str], project: Path) -> None:
    """As a notification that nobody asked for."""
    changed = anyio.Event()

    def heard(message: Any) -> None:
        if "ToolListChanged" in type(message).__name__ or "tools/list_changed" in str(message):
            changed.set()

    with anyio.fail_after(PATIENCE):
        async with official(target, heard, "legacy") as client:
            await client.list_tools()
            (project / "skills" / "later.py").write_text(LATER, "utf-8")
            await changed.wait()
            assert "later_hello" in [tool.name for tool in (await client.list_tools()).tools]


async def test_official_client_hears_of_a_change_it_listens_for(target: list[str], project: Path) -> None:
    """As an event of its subscription."""
    with anyio.fail_after(PATIENCE):
        async with official(target, lambda _: None, "auto") as client:
            await client.list_tools()
            async with client.listen(tools_list_changed=True) as events:
                (project / "skills" / "later.py").write_text(LATER, "utf-8")
                async for _ in events:
                    break
            assert "later_hello" in [tool.name for tool in (await client.list_tools()).tools]


async def test_fastmcp_client(target: list[str], mode: str, project: Path) -> None:
    """The same through FastMCP, which does not listen by itself in the newer era."""
    steps: list[float] = []
    changed = anyio.Event()

    async def progress(done: float, _total: float | None, _message: str | None) -> None:
        steps.append(done)

    async def heard(message: Any) -> None:
        if "list_changed" in str(message):
            changed.set()

    over_stdio = StdioTransport(command=target[0], args=target[1:], keep_alive=False)
    transport = over_stdio if target[1:] else StreamableHttpTransport(target[0])
    with anyio.fail_after(PATIENCE):
        async with fastmcp.Client(transport, message_handler=heard, progress_handler=progress, mode=mode) as client:
            assert TOOLS == [tool.name for tool in await client.list_tools()]
            assert '{"id": 7}' == (await client.read_resource("notes://7"))[0].text
            got = await client.get_prompt("notes_review", {"code": "x"})
            assert ["Review this python: x", "Sure."] == [message.content.text for message in got.messages]
            assert "3" == (await client.call_tool("tools_add", {"a": 1, "b": 2})).content[0].text
            failed = await client.call_tool("tools_fail", raise_on_error=False)
            assert (True, "This one always fails.") == (failed.is_error, failed.content[0].text)
            assert "3" == (await client.call_tool("tools_count", {})).content[0].text
            assert [1, 2, 3] == steps
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "tools_wait", {"mark": "fastmcp"})
                await there(project / "fastmcp.begun")
                group.cancel_scope.cancel()
            await there(project / "fastmcp.cancelled")
            if mode == "legacy":
                (project / "skills" / "later.py").write_text(LATER, "utf-8")
                await changed.wait()
                assert "later_hello" in [tool.name for tool in await client.list_tools()]


async def there(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await anyio.sleep(0.01)
