"""Tool definitions and lists of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prowess.contracts.contract import Contract, Hints
from prowess_host.protocol.eras import REVISIONS
from prowess_host.protocol.rpc import RpcError
from prowess_host.protocol.tool_list import ToolList, define_tool, render_tool

MODERN = REVISIONS["2026-07-28"]
LATEST = REVISIONS["2025-11-25"]
OBJECT = {"type": "object"}
CONTRACT = Contract(
    id="clock.now",
    wire_name="clock_now",
    skill="clock",
    name="now",
    description="Tells the time.",
    input_schema=OBJECT,
    title="Clock",
    hints=Hints(read_only=True),
    tags=("time",),
    icons=({"src": "data:,"},),
    meta={"com.example/x": 1},
    category="general",
)
WHOLE = define_tool(CONTRACT, OBJECT, OBJECT)


def named(name: str, **more: Any) -> dict[str, Any]:
    """A small definition."""
    return {"name": name, "description": "d", "inputSchema": OBJECT, **more}


def listed(tools: ToolList, cursor: str | None = None) -> tuple[list[str], str | None]:
    """Names on a page, and the cursor of the next."""
    page = json.loads(tools.page(cursor, MODERN))
    return [tool["name"] for tool in page["tools"]], page.get("nextCursor")


def test_a_definition_holds_all_that_the_author_gave() -> None:
    """Under the names of the wire."""
    assert {
        "name": "clock_now",
        "title": "Clock",
        "description": "Tells the time.",
        "icons": [{"src": "data:,"}],
        "inputSchema": OBJECT,
        "outputSchema": OBJECT,
        "annotations": {"readOnlyHint": True},
        "_meta": {"prowess/category": "general", "prowess/tags": ["time"], "com.example/x": 1},
    } == WHOLE


def test_a_definition_holds_nothing_that_the_author_did_not_give() -> None:
    """No hint nobody declared; but a description always, since clients drop a tool without one."""
    bare = Contract("a.b", "a_b", "a", "b", "", OBJECT)
    expected = {"name": "a_b", "description": "a.b", "inputSchema": OBJECT, "_meta": {"prowess/category": "general"}}
    assert expected == define_tool(bare, OBJECT, None)


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        ("2024-11-05", ["description", "inputSchema", "name"]),
        ("2025-03-26", ["annotations", "description", "inputSchema", "name"]),
        ("2025-06-18", ["_meta", "annotations", "description", "inputSchema", "name", "outputSchema", "title"]),
        ("2025-11-25", sorted([*WHOLE, "execution"])),
        ("2026-07-28", sorted(WHOLE)),
    ],
)
def test_a_tool_has_the_fields_of_the_revision(version: str, fields: list[str]) -> None:
    """A field is sent where it is known."""
    assert fields == sorted(render_tool({**WHOLE, "execution": {}}, REVISIONS[version]))


def test_where_a_tool_has_no_title_its_annotations_have() -> None:
    """Only that one revision puts it there, and an own title of the annotations wins."""
    assert {"title": "Clock", "readOnlyHint": True} == render_tool(WHOLE, REVISIONS["2025-03-26"])["annotations"]
    assert {"title": "x"} == render_tool(named("a", title="x"), REVISIONS["2025-03-26"])["annotations"]
    assert "annotations" not in render_tool(named("a"), REVISIONS["2025-03-26"])
    assert {"readOnlyHint": True} == render_tool(WHOLE, REVISIONS["2025-06-18"])["annotations"]


@pytest.mark.parametrize("schema", [{"type": "array"}, {"anyOf": []}, {"$ref": "#/$defs/x"}])
def test_an_output_schema_that_is_no_object_is_kept_from_a_handshake_client(schema: dict[str, Any]) -> None:
    """It would make the client refuse the whole list."""
    assert "outputSchema" not in render_tool(named("a", outputSchema=schema), LATEST)
    assert schema == render_tool(named("a", outputSchema=schema), MODERN)["outputSchema"]


def test_tools_are_listed_by_name_whatever_order_they_came_in() -> None:
    """The same list for everybody."""
    one, other = [named("b"), named("a")], [named("a"), named("b")]
    assert (["a", "b"], None) == listed(ToolList(one, one))
    assert ToolList(one, one).digest == ToolList(other, other).digest


def test_pages_follow_each_other_to_the_end() -> None:
    """Each tool once; the last page has no cursor, also when it is full."""
    tools = ToolList([], [named(name) for name in "abcd"], page_size=2)
    first, cursor = listed(tools)
    second, end = listed(tools, cursor)
    assert (["a", "b"], ["c", "d"], None) == (first, second, end)


def test_a_cursor_is_good_on_any_connection_until_the_list_changes() -> None:
    """The list is its only memory."""
    definitions = [named(name) for name in "abc"]
    _, cursor = listed(ToolList([], definitions, page_size=2))
    assert ["c"] == listed(ToolList([], definitions, page_size=2), cursor)[0]
    with pytest.raises(RpcError, match="list has changed"):
        listed(ToolList([], [*definitions, named("d")], page_size=2), cursor)


def test_each_era_is_shown_its_own_definitions() -> None:
    """Their schemas may differ."""
    tools = ToolList([named("old")], [named("new")])
    assert b'{"tools":[{"name":"old","description":"d","inputSchema":{"type":"object"}}]}' == tools.page(None, LATEST)
    assert tools.page(None, LATEST) == tools.page(None, LATEST)
    assert ["new"] == listed(tools)[0]


def test_an_empty_list_is_a_list() -> None:
    """No tools is no fault."""
    assert ([], None) == listed(ToolList([], []))
