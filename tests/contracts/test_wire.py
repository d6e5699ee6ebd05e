"""Cases of the wire: on a real host over a pipe where they need one, else on the protocol core."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.contracts.conftest import Project, Wire, case, row

from prowess_host.protocol.codec import decode
from prowess_host.protocol.eras import REVISIONS
from prowess_host.protocol.identity import Server
from prowess_host.protocol.kinds import ROWS
from prowess_host.protocol.routing import Reply, route
from prowess_host.protocol.rpc import RpcError
from prowess_host.protocol.session import Session
from prowess_host.protocol.tool_list import ToolList

MODERN = "2026-07-28"
HANDSHAKES = [version for version in REVISIONS if version != MODERN]
CLIENT = {"name": "test", "version": "1"}

SKILL = """
    from prowess import skill_command

    @skill_command
    def length(text: str) -> int:
        return len(text)

    @skill_command
    def crash() -> None:
        raise ValueError("boom")
"""


def envelope(**more: Any) -> dict[str, Any]:
    """What every request of the stateless era carries."""
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": CLIENT,
        "io.modelcontextprotocol/clientCapabilities": {},
        **more,
    }


@pytest.fixture
def client(project: Project, wire: Callable[[], Wire]) -> Wire:
    """A client that has shaken hands with a host."""
    project.write("skills/words.py", SKILL)
    client = wire()
    client.initialize()
    return client


# --- on a real host -------------------------------------------------------------------------------


@case("O-68", "an unknown tool is an error of the protocol")
def test_an_unknown_tool(client: Wire) -> None:
    error = client.ask("tools/call", name="nope", arguments={})["error"]
    assert -32602 == error["code"]
    assert error["message"].startswith("Unknown tool: nope")


@case("U-33", "wrong arguments are none")
def test_wrong_arguments(client: Wire) -> None:
    result = client.ask("tools/call", name="words_length", arguments={"text": 5})["result"]
    assert result["isError"] is True
    assert "text: expected a string, got 5" in result["content"][0]["text"]


@case("M-33", "a ping is answered")
def test_a_ping_is_answered(client: Wire) -> None:
    """The handshake era demands it; the stateless one has no such method."""
    assert {} == client.ask("ping")["result"]
    assert -32601 == client.ask("ping", _meta=envelope())["error"]["code"]


@case("M-34", "every line has one answer, or none")
def test_every_line_has_one_answer_or_none(client: Wire) -> None:
    """`ask` checks that there is either a result or an error. A line without a readable id is answered without one."""
    client.write(b"{broken")
    answer = client.read()
    assert ("2.0", -32700, None) == (answer["jsonrpc"], answer["error"]["code"], answer.get("id"))
    assert -32601 == client.ask("no/such/method")["error"]["code"]
    client.notify("notifications/whatever")
    assert "result" in client.ask("ping")


@case("M-34", "an exception of a command is a result")
def test_an_exception_of_a_command(client: Wire) -> None:
    """One that says that it failed: the model can read it, where an error of the protocol may never reach it."""
    result = client.ask("tools/call", name="words_crash", arguments={})["result"]
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith("ValueError: boom")


@case("M-35", "a long line is served")
@pytest.mark.parametrize("length", [70_000, 1_000_000])
def test_a_long_line_is_served(client: Wire, length: int) -> None:
    result = client.ask("tools/call", name="words_length", arguments={"text": "x" * length})["result"]
    assert {"result": length} == result["structuredContent"]


@case("M-46", "a second handshake is answered like the first")
def test_a_second_handshake(client: Wire) -> None:
    """Nothing is started twice: the host has one catalog and one worker from the beginning."""
    again = client.initialize()["result"]
    assert "2025-11-25" == again["protocolVersion"]
    assert ["words_crash", "words_length"] == [tool["name"] for tool in client.ask("tools/list")["result"]["tools"]]


# --- on the protocol core -------------------------------------------------------------------------


def definition(number: int) -> dict[str, Any]:
    return {"name": f"tool{number:03}", "description": "d", "inputSchema": {"type": "object"}}


def page(tools: ToolList, cursor: str | None) -> tuple[int, str | None]:
    """How many tools there are on a page, and the cursor of the next."""
    listed = json.loads(tools.page(cursor, REVISIONS["2025-11-25"]))
    return len(listed["tools"]), listed.get("nextCursor")


DEFINITIONS = [definition(number) for number in range(120)]


@case("O-73", "pages of fifty")
def test_pages_of_fifty() -> None:
    """What a cursor looks like is our own affair."""
    tools = ToolList(DEFINITIONS, DEFINITIONS, page_size=50)
    first, cursor = page(tools, None)
    second, last = page(tools, cursor)
    assert [50, 50, (20, None)] == [first, second, page(tools, last)]


@case("O-73", "by default all are on one page")
def test_all_on_one_page() -> None:
    """Some clients never ask for a second."""
    assert (120, None) == page(ToolList(DEFINITIONS, DEFINITIONS), None)


@pytest.mark.parametrize("cursor", [row("O-73", "no cursor of ours", "oops"), row("O-73", "one past the end", "9999")])
def test_a_bad_cursor(cursor: str) -> None:
    """It is an error, and no empty page: a client that made it up has missed something."""
    with pytest.raises(RpcError) as raised:
        page(ToolList(DEFINITIONS, DEFINITIONS, page_size=50), cursor)
    assert -32602 == raised.value.code


def told(session: Session, method: str, **params: Any) -> list[dict[str, Any]]:
    """What the host answers at once."""
    message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
    action = route(decode(json.dumps(message).encode()), session, 0.0)
    return [json.loads(line) for line in action.line.splitlines()] if isinstance(action, Reply) else []


def changes(session: Session) -> list[str]:
    """The notifications that a change of the list sends."""
    return [json.loads(line)["method"] for line in session.list_changed(ROWS[:1])]


LIST_CHANGED = "notifications/tools/list_changed"


@pytest.mark.parametrize("version", HANDSHAKES)
@pytest.mark.parametrize((), [row("O-74", "after the handshake")])
def test_a_changed_list_after_the_handshake(version: str) -> None:
    """It is declared, and sent by the right name, but only to a client that is ready for it."""
    session = Session(Server("s", "1"))
    assert [] == changes(session)
    (answer,) = told(session, "initialize", protocolVersion=version, capabilities={}, clientInfo=CLIENT)
    assert {"listChanged": True} == answer["result"]["capabilities"]["tools"]
    assert [] == changes(session)
    route(decode(b'{"jsonrpc":"2.0","method":"notifications/initialized"}'), session, 0.0)
    assert [LIST_CHANGED] == changes(session)


@pytest.mark.parametrize(
    "wanted, sent",
    [
        row("O-74", "on, for who listens", {"toolsListChanged": True}, [LIST_CHANGED]),
        row("O-74", "off, for who does not", {}, []),
    ],
)
def test_a_changed_list_in_the_stateless_era(wanted: dict[str, Any], sent: list[str]) -> None:
    """A client asks for it, or is not told."""
    session = Session(Server("s", "1"))
    assert [] == changes(session)
    told(session, "subscriptions/listen", _meta=envelope(), notifications=wanted)
    assert sent == changes(session)
