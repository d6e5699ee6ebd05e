"""Commands whose contract is the point: an explicit schema, a capability the client must have, a list that changes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from prowess import Context, skill_command

PERSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
NEWCOMER = '''"""Written by contracts.test_trigger_tool_change."""

from __future__ import annotations

from prowess import skill_command


@skill_command(read_only=True)
def newcomer() -> str:
    """Say when this command was written: {stamp}."""
    return "{stamp}"
'''


@skill_command(read_only=True, input_schema=PERSON)
def json_schema_2020_12_tool(
    name: str | None = None,
    address: dict[str, Any] | None = None,
    contactMethod: str | None = None,  # noqa: N803 - the suite's name
    phone: str | None = None,
    email: str | None = None,
) -> str:
    """Take a person, by a schema that uses much of JSON Schema 2020-12."""
    return f"{name} of {address}, by {contactMethod}: {phone or email}"


@skill_command(read_only=True)
def test_missing_capability(ctx: Context) -> str:
    """Need a client that can sample."""
    ctx.require_capability("sampling")
    return "The client can sample."


@skill_command(inject_root=True)
def test_trigger_tool_change(project_root: Path) -> str:
    """Write a new skill file beside this one, so that the list of commands changes."""
    skills = Path(project_root) / "skills"
    draft = skills / ".newcomer.draft"
    draft.write_text(NEWCOMER.format(stamp=time.time_ns()))
    os.replace(draft, skills / "newcomer.py")  # noqa: PTH105 - the name of the system call says it: seen whole or not at all
    return "A skill file was written"


@skill_command(read_only=True)
def test_x_mcp_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Say which region was asked for. HTTP clients say it in a header as well."""
    return f"The region is {region}"
