"""`prowess call`: one command, from the shell."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from prowess.contracts.contract import Contract
from prowess.errors import SettingsError
from prowess.jsontypes import JsonObject
from prowess_host.cli.exit_codes import DONE, FAILED, WRONG_USE
from prowess_host.cli.options import CommandId, ProjectOptions, project_options
from prowess_host.cli.projects import opened

__all__ = ["command"]

_FROM_STDIN: Final = "-"


@click.command("call")
@project_options
@click.argument("name", metavar="COMMAND", type=CommandId())
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE | -]...")
@click.option(
    "--json",
    "as_json",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="ARGUMENTS",
    help="Print the payload as JSON. A value here gives the arguments as JSON.",
)
@click.option(
    "--in-process",
    is_flag=True,
    help="Run the command in this process, for a debugger: there is nothing between you and a crash.",
)
def command(
    where: ProjectOptions, name: str, arguments: tuple[str, ...], *, as_json: str | None, in_process: bool
) -> int:
    """Call COMMAND: an id, a tool name or an alias. A `-` among the arguments reads them as JSON from the input."""
    return asyncio.run(_call(where, name, arguments, as_json, in_process=in_process))


async def _call(
    where: ProjectOptions, name: str, arguments: Sequence[str], as_json: str | None, *, in_process: bool
) -> int:
    async with opened(where, in_process=in_process) as project:
        await project.load(name)
        contract = await project.contract_of(name)
        payload = await project.payload(name, _arguments(arguments, as_json, contract) if contract else {})
    if as_json is not None:
        print(json.dumps(payload, indent=2, ensure_ascii=False))
    else:
        print(_as_text(payload), file=sys.stderr if payload["isError"] else sys.stdout)
    if not payload["isError"]:
        return DONE
    return WRONG_USE if payload.get("_meta", {}).get("prowess/kind") == "input" else FAILED


def _arguments(words: Sequence[str], as_json: str | None, contract: Contract) -> JsonObject:
    """The arguments of the command line as JSON data."""
    given: JsonObject = {}
    if as_json:
        given.update(_object(as_json, "--json"))
    for item in words:
        if item == _FROM_STDIN:
            given.update(_object(sys.stdin.read(), "the input"))
            continue
        key, equals, value = item.partition("=")
        if not equals:
            raise SettingsError(f"the argument {item!r} must have the form key=value")
        given[key] = _value(value, contract.input_schema.get("properties", {}).get(key, {}))
    return given


def _value(text: str, schema: JsonObject) -> Any:
    """A value as the schema wants it: text stays text, everything else is JSON where it can be."""
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _object(text: str, source: str) -> JsonObject:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{source} must be JSON ({error})") from error
    if not isinstance(value, dict):
        raise SettingsError(f'{source} must be a JSON object, like {{"key": 1}}')
    return value  # pyright: ignore[reportUnknownVariableType]


def _as_text(payload: JsonObject) -> str:
    """What a person wants to see: structured results laid out, everything else as its text."""
    structured = payload.get("structuredContent")
    if isinstance(structured, (dict, list)) and set(structured) != {"result"}:  # pyright: ignore[reportUnknownArgumentType]
        return json.dumps(structured, indent=2, ensure_ascii=False)
    return "\n".join(_block(block) for block in payload["content"])


def _block(block: JsonObject) -> str:
    if block["type"] == "text":
        return block["text"]
    if block["type"] in ("image", "audio"):
        return f"[{block['type']}: {block['mimeType']}, {len(block['data']) * 3 // 4 - block['data'][-2:].count('=')} bytes]"
    return json.dumps(block, ensure_ascii=False)
