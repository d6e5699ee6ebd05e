"""`prowess call`: one command, from the shell."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any, Final

from prowess.contracts.contract import Contract
from prowess.errors import SettingsError
from prowess.jsontypes import JsonObject
from prowess_host.cli.main import add_project_options
from prowess_host.cli.projects import opened

__all__ = ["add"]

_WRONG_USE: Final = 2
_FROM_STDIN: Final = "-"


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser("call", help="call a command")
    add_project_options(parser)
    parser.add_argument("command", help="the id, the tool name or an alias")
    parser.add_argument(
        "arguments", nargs="*", metavar="KEY=VALUE", help="arguments; - reads them as JSON from the input"
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const="",
        metavar="ARGUMENTS",
        help="print the payload as JSON; a value here gives the arguments as JSON",
    )
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="run the command in this process, for a debugger: there is nothing between you and a crash",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    return asyncio.run(_call(options))


async def _call(options: argparse.Namespace) -> int:
    async with opened(options, in_process=options.in_process) as project:
        await project.load(options.command)
        contract = await project.contract_of(options.command)
        payload = await project.payload(options.command, _arguments(options, contract) if contract else {})
    if options.json is not None:
        print(json.dumps(payload, indent=2, ensure_ascii=False))
    else:
        print(_as_text(payload), file=sys.stderr if payload["isError"] else sys.stdout)
    if not payload["isError"]:
        return 0
    return _WRONG_USE if payload.get("_meta", {}).get("prowess/kind") == "input" else 1


def _arguments(options: argparse.Namespace, contract: Contract) -> JsonObject:
    """The arguments of the command line as JSON data."""
    given: JsonObject = {}
    if options.json:
        given.update(_object(options.json, "--json"))
    for item in options.arguments:
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
