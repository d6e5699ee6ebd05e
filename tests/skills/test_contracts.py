"""What a client sees of the shipped skills, before it calls any."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prowess.profiles.profile import BUILT_IN
from prowess_testkit import WIRES, connect

COMMANDS = [
    "fetch.get",
    *(f"git.{name}" for name in ("blame", "diff", "log", "read", "show", "status")),
    *(f"text.{name}" for name in ("find", "read", "search")),
]
PORTABLE = BUILT_IN["portable"]


@pytest.mark.parametrize("wire", WIRES)
async def test_client_lists_what_the_catalog_has(project: Any, wire: str):
    """Under flat names, in both eras."""
    async with project() as opened, connect(opened.runtime, version=wire) as client:
        assert [command.replace(".", "_") for command in COMMANDS] == [tool["name"] for tool in await client.tools()]


async def test_all_shipped_skills_load(project: Any):
    """Every command is there, and nothing failed on the way."""
    async with project() as opened:
        catalog = opened.runtime.catalog()

        assert COMMANDS == [contract.id for contract in catalog]
        assert () == tuple(catalog.failures)


@pytest.mark.parametrize("command", COMMANDS)
async def test_hints_say_what_a_command_does(project: Any, command: str):
    """Nothing that ships changes anything, and only fetching leaves the machine."""
    async with project() as opened:
        hints = opened.runtime.catalog()[command].hints.to_mcp()

    assert {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": command == "fetch.get"} == hints


@pytest.mark.parametrize("command", COMMANDS)
async def test_what_a_client_sees_is_short_and_complete(project: Any, command: str):
    """Every parameter is described, no injected one is shown, and all of it costs a model less than 600 tokens."""
    async with project() as opened:
        contract = opened.runtime.catalog()[command]
    schema = PORTABLE.input_schema(contract)
    shown = json.dumps({"description": contract.description, "inputSchema": schema})

    assert [] == [name for name, of in schema["properties"].items() if not of.get("description")]
    assert set() == {"paths", "settings", "ctx"} & set(schema["properties"])
    assert 10 < len(contract.summary) < 100
    assert "Args:" not in contract.description
    assert 2400 > len(shown)
    assert "object" == PORTABLE.output_schema(contract)["type"]
