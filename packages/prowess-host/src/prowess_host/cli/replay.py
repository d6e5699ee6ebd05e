"""`prowess replay`: repeats a recorded call and shows the difference."""

from __future__ import annotations

import asyncio
import difflib
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from prowess.contracts.contract import Contract
from prowess.errors import ProwessError
from prowess.jsontypes import JsonObject
from prowess_host.cli.exit_codes import DONE, FAILED, WRONG_USE
from prowess_host.cli.options import ProjectOptions, json_option, project_options
from prowess_host.cli.parameters import merged
from prowess_host.cli.projects import find, opened
from prowess_host.cli.records import CALL_ID, content_lines, look, record_of, took
from prowess_host.cli.terminal import Style, complain, interruptible, pretty
from prowess_host.records.reading import RecordedCall

__all__ = ["command", "completed_arguments", "difference"]

_EPILOG: Final = """\b
Examples:
  prowess replay last
  prowess replay 3da8ed8d1 limit=5        with another argument
  prowess replay 3da8ed8d1 password=...   with a secret, which the record does not keep
"""


@click.command("replay", epilog=_EPILOG)
@project_options
@click.argument("call")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before a destructive command runs again.")
@json_option("Print the difference as JSON.")
def command(where: ProjectOptions, *, call: str, arguments: tuple[str, ...], yes: bool, as_json: bool) -> int:
    """Run CALL again (an id, its beginning, or `last`), and show how the result differs. The given arguments replace recorded ones."""
    return asyncio.run(_replay(where, record_of(where).call(call), arguments, yes=yes, as_json=as_json))


async def _replay(
    where: ProjectOptions, before: RecordedCall, words: Sequence[str], *, yes: bool, as_json: bool
) -> int:
    async with opened(where, client="prowess replay") as project:
        contract = await find(project, before.command)
        arguments = completed_arguments(before, words, contract, "prowess replay")
        if contract.hints.destructive and not yes and not _is_agreed(contract, arguments):
            return WRONG_USE
        outcome = await project.call(contract.id, arguments)
        payload = outcome.payload(project.own.profile)
    try:
        after = record_of(where).call(outcome.call_id)
    except ProwessError:  # the record was switched off
        after = None
    kept = after.result if after is not None and contract.is_tool else None  # other kinds: the record has the payload
    result = payload if kept is None else kept
    changes = difference(before.result, result)
    if as_json:
        found = {"before": before.to_json(), "after": after.to_json() if after else None, "result": result}
        print(pretty({**found, "difference": changes}))
    else:
        _show(before, outcome.kind, outcome.duration, result, changes)
    return DONE if outcome.ok else FAILED


def completed_arguments(call: RecordedCall, words: Sequence[str], contract: Contract, name: str) -> JsonObject:
    """The recorded arguments, with replacements. Raises `ProwessError` if the record lacks one."""
    given: JsonObject = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ProwessError(f"the argument {word!r} must have the form KEY=VALUE")
        given = merged(given, {key: _value(text, contract.input_schema.get("properties", {}).get(key, {}))})
    if call.arguments is None:
        if not given and contract.input_schema.get("required"):
            missing = " ".join(f"{each}=..." for each in contract.input_schema["required"])
            raise ProwessError(f"the record keeps no arguments of {call.id}: pass them, `{name} {call.id} {missing}`")
        return given
    lacking = sorted({path for path in call.withheld if path.partition(".")[0].partition("[")[0] not in given})
    if lacking:
        names = dict.fromkeys(path.partition(".")[0].partition("[")[0] for path in lacking)
        missing = " ".join(f"{each}=..." for each in names)
        raise ProwessError(
            f"the record does not keep secrets, here {', '.join(lacking)}: pass them, `{name} {call.id} {missing}`"
        )
    return {**call.arguments, **given}


def _value(text: str, schema: JsonObject) -> Any:
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _is_agreed(contract: Contract, arguments: JsonObject) -> bool:
    """Ask the person whether a destructive command may run again."""
    question = f"{contract.id} is destructive. Run it again with {json.dumps(arguments, ensure_ascii=False)}?"
    if not sys.stdin.isatty():
        complain(f"{contract.id} is destructive: use --yes to run it again")
        return False
    with interruptible():
        return click.confirm(question)


def difference(before: JsonObject | None, after: JsonObject) -> list[str]:
    """The difference in the form of `diff -u`; empty if the results are equal."""
    old, new = ([CALL_ID.sub("", line) for line in content_lines(each)] if each else [] for each in (before, after))
    return list(difflib.unified_diff(old, new, "recorded", "now", lineterm=""))


def _show(before: RecordedCall, kind: str, seconds: float, result: JsonObject, changes: list[str]) -> None:
    style = Style.of(sys.stdout)
    was = f"{style(before.kind, look(before.kind))} after {took(before.duration)}"
    print(f"{style(before.command, 'bold')}  recorded: {was}  now: {style(kind, look(kind))} after {took(seconds)}")
    if before.result is None:
        print("The record keeps no result to compare with. The result now:")
        print("\n".join(content_lines(result)))
    elif not changes:
        print("The result is the same.")
        return
    looks = {"+": "green", "-": "red", "@": "cyan"}
    for line in changes if before.result is not None else ():
        print(style(line, looks[line[0]]) if line[:1] in looks else line)
    if before.shortened:
        print(style("The record keeps only the beginning of the result.", "yellow"))
