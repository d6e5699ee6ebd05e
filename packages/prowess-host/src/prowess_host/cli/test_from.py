"""`prowess test-from`: writes a pytest test of a recorded call."""

from __future__ import annotations

import asyncio
import json
import keyword
import pprint
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import click

from prowess.contracts.contract import Contract
from prowess.errors import ProwessError
from prowess.jsontypes import JsonObject
from prowess_host.cli.exit_codes import DONE
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import find, opened
from prowess_host.cli.records import CALL_ID, record_of, short_id
from prowess_host.cli.replay import completed_arguments
from prowess_host.cli.results import unboxed
from prowess_host.records.reading import RUNNING, RecordedCall
from prowess_host.records.redaction import MASK

__all__ = ["command", "written_test"]

_EPILOG: Final = """\b
Examples:
  prowess test-from last
  prowess test-from 3da8ed8d1 --to tests/test_grep.py
"""
_WIDTH: Final = 100


@click.command("test-from", epilog=_EPILOG)
@project_options
@click.argument("call")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--to", "target", metavar="FILE", type=click.Path(), help="The file. Default: tests/test_COMMAND_ID.py.")
def command(where: ProjectOptions, *, call: str, arguments: tuple[str, ...], target: str | None) -> int:
    """Write a pytest test that CALL (an id, its beginning, or `last`) gives the recorded result. Needs prowess-testkit."""
    return asyncio.run(_write(where, record_of(where).call(call), arguments, target))


async def _write(where: ProjectOptions, call: RecordedCall, words: Sequence[str], target: str | None) -> int:
    if call.kind in (RUNNING, "lost", "cancelled", "input_required"):
        raise ProwessError(f"{call.id} has no result to test for: it is {call.kind}")
    async with opened(where) as project:
        contract = await find(project, call.command)
    arguments = completed_arguments(call, words, contract, "prowess test-from")
    name = re.sub(r"\W", "_", f"{call.command}_{short_id(call)}")
    file = Path(target) if target else where.root / "tests" / f"test_{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as writing:
            writing.write(written_test(call, arguments, contract, where.root, file))
    except FileExistsError:
        raise ProwessError(f"{file} exists, and is left as it is: name another file with --to") from None
    print(f"{file} written. Run it with: python -m pytest {shlex.quote(str(file))}")
    return DONE


def written_test(call: RecordedCall, arguments: JsonObject, contract: Contract, root: Path, file: Path) -> str:
    """The text of the test."""
    up = _way_up(file, root)
    name = re.sub(r"\W", "_", call.command)
    plain = all(key.isidentifier() and not keyword.iskeyword(key) for key in arguments)
    named = [f"{key}={_literal(value)}" for key, value in arguments.items()] if plain else [f"**{_literal(arguments)}"]
    given = ", ".join([_literal(call.command), *(named if arguments else [])])
    checks = "\n".join(f"    {line}" for line in _checks(call, contract))
    return f'''"""Calls of {call.command}, made from the record by `prowess test-from`."""

from pathlib import Path

from prowess_testkit import Project

ROOT = {up}


def test_{name}(tmp_path: Path) -> None:
    """As {call.client or "a client"} called it: {call.kind}."""
    with Project(ROOT, flags={{"cache_dir": str(tmp_path)}}) as project:
        outcome = project.call({given})
{checks}
'''


def _way_up(file: Path, root: Path) -> str:
    """The expression with which the test finds the project."""
    inside = file.resolve().parent
    if not inside.is_relative_to(root.resolve()):
        return f"Path({str(root.resolve())!r})"
    return f"Path(__file__).resolve().parents[{len(inside.relative_to(root.resolve()).parts)}]"


def _checks(call: RecordedCall, contract: Contract) -> list[str]:
    """The assertions: the parts of the recorded result that do not differ between calls."""
    result = call.result or {}
    kind = f"assert {_literal(call.kind)} == outcome.kind, outcome.text"
    text = "\n".join(block["text"] for block in result.get("content", ()) if block.get("type") == "text")
    if call.kind != "ok":
        said = [part for part in re.split(r"\*\*\*", CALL_ID.sub(MASK, text)) if part.strip()]
        return [kind, *(f"assert {_literal(part)} in outcome.text" for part in said[:3])]
    if call.result is None or MASK in json.dumps(result, ensure_ascii=False):
        return [kind, "# the record does not keep the whole result"]
    if call.shortened:
        return [
            kind,
            f"assert outcome.text.startswith({_literal(text[: min(max(len(text) // 2, 1), 80)])})  # the record keeps the beginning",
        ]
    if "structuredContent" in result:
        return [kind, f"assert {_literal(unboxed(result['structuredContent'], contract))} == outcome.value"]
    return [kind, f"assert {_literal(text)} == outcome.text"]


def _literal(value: Any) -> str:
    """JSON data as a Python literal."""
    line = _on_one_line(value)
    return (
        line
        if len(line) <= _WIDTH
        else pprint.pformat(value, width=_WIDTH, sort_dicts=False).replace("\n", "\n        ")
    )


def _on_one_line(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=not value.isprintable())
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_on_one_line(key)}: {_on_one_line(item)}' for key, item in cast('JsonObject', value).items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_on_one_line, cast('list[Any]', value)))}]"
    return repr(value)
