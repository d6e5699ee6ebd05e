"""`prowess call`: one command, from the shell."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any, Final

from prowess.contract import Contract
from prowess.errors import SettingsError, UnknownCommand
from prowess.jsontypes import JsonObject
from prowess_host.cli import add_project_options, setting_flags
from prowess_host.commands.projects import find, opened, project_root
from prowess_host.jobs import Job

__all__ = ["add"]

_WRONG_USE: Final = 2
_FROM_STDIN: Final = "-"


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser("call", help="call a command")
    add_project_options(parser)
    parser.add_argument("command", help="id, wire name or alias")
    parser.add_argument("arguments", nargs="*", metavar="KEY=VALUE", help="arguments; - reads them as JSON from input")
    parser.add_argument(
        "--json",
        nargs="?",
        const="",
        metavar="ARGUMENTS",
        help="print the payload as JSON; with a value, that is the arguments as JSON",
    )
    parser.add_argument("--in-process", action="store_true", help="run the command in this process, without a worker")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    return asyncio.run(_call(options))


async def _call(options: argparse.Namespace) -> int:
    payload = await (_in_process(options) if options.in_process else _in_worker(options))
    if options.json is not None:
        print(json.dumps(payload, indent=2, ensure_ascii=False))
    else:
        print(_as_text(payload), file=sys.stderr if payload["isError"] else sys.stdout)
    if not payload["isError"]:
        return 0
    return _WRONG_USE if payload.get("_meta", {}).get("prowess/kind") == "input" else 1


async def _in_worker(options: argparse.Namespace) -> JsonObject:
    async with opened(options) as project:
        catalog = await project.catalog()
        contract = find(catalog, options.command)
        if contract is None:
            raise UnknownCommand(options.command, [item.id for item in catalog])
        told = _Told()
        arguments = json.dumps(_arguments(options, contract)).encode()
        head = json.dumps({"command": contract.id, "profile": project.settings.own.profile}).encode()
        seconds = contract.policies.timeout or project.settings.own.timeout
        project.supervisor.submit(Job(contract, head, arguments, told, seconds))
        return await told.payload


async def _in_process(options: argparse.Namespace) -> JsonObject:
    from prowess import Runtime

    async with Runtime.open(project_root(options), flags=setting_flags(options.set)) as runtime:
        catalog = runtime.catalog()
        contract = find(catalog, options.command)
        if contract is None:
            raise UnknownCommand(options.command, [item.id for item in catalog])
        return (await runtime.call(contract.id, _arguments(options, contract))).payload(runtime.settings.own.profile)


class _Told:
    """Listens to the one job of this process."""

    def __init__(self) -> None:
        self.payload: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()

    def result(self, meta: bytes, body: bytes) -> None:
        payload: JsonObject = json.loads(body)
        if meta != b"{}":
            payload["_meta"] = json.loads(meta)
        self.payload.set_result(payload)

    def input_required(self, questions: JsonObject) -> None:  # pragma: no cover - only where answers were recorded
        raise NotImplementedError

    def refused(self, facts: JsonObject) -> None:
        content = [{"type": "text", "text": facts["message"]}]
        self.payload.set_result({"content": content, "isError": True})

    def questions(self, questions: JsonObject) -> None:  # pragma: no cover - a job that cannot ask is not asked
        raise NotImplementedError

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Nobody is shown progress here."""

    def log(self, level: str, data: Any) -> None:
        """Nobody is shown logs here."""


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
            raise SettingsError(f"the argument {item!r} is not of the form key=value")
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
        raise SettingsError(f"{source} is no JSON ({error})") from error
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
