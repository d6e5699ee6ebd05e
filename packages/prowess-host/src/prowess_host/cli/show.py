"""`prowess show`: describes one command for a person, and its definition in each profile."""

from __future__ import annotations

import asyncio
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Final

import click

from prowess.contracts.contract import Contract
from prowess.jsontypes import JsonObject
from prowess.profiles.profile import BUILT_IN
from prowess.settings.limits import Limits
from prowess_host.cli.exit_codes import DONE
from prowess_host.cli.list_table import hints_of
from prowess_host.cli.options import CommandId, ProjectOptions, json_option, project_options
from prowess_host.cli.parameters import example_line, parameters_of, type_in_words
from prowess_host.cli.projects import find, opened
from prowess_host.cli.terminal import Style, console, pretty, table, width, wrapped

__all__ = ["command", "show_usage"]

_EPILOG: Final = """\b
Examples:
  prowess show text.search
  prowess show text.search --profile portable --profile full
  prowess show text.search --json | jq .profiles.full.input_schema
"""


@click.command("show", epilog=_EPILOG)
@project_options
@click.argument("name", metavar="COMMAND", type=CommandId())
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=click.Choice([*BUILT_IN, "all"]),
    help="Print the schemas that clients of this profile get. May be repeated.",
)
@json_option("Print the contract as JSON, with its schemas in each profile.")
def command(where: ProjectOptions, name: str, *, profiles: tuple[str, ...], as_json: bool) -> int:
    """Show COMMAND: its purpose, parameters, hints and policies, and a line that calls it."""
    chosen = tuple(BUILT_IN) if "all" in profiles else profiles
    contract, usual, limits = asyncio.run(_contract(where, name))
    if as_json:
        data = {
            **contract.to_json(),
            **({"limits": limits.to_json()} if limits else {}),
            "profiles": {each: _schemas(contract, each) for each in chosen or BUILT_IN},
        }
        print(pretty(data))
    elif chosen:
        _show_schemas(contract, chosen)
    else:
        print("\n".join(_as_lines(contract, usual, limits)))
    return DONE


async def show_usage(where: ProjectOptions, name: str) -> int:
    """The help of `prowess call` for one command."""
    contract, _, _ = await _contract(where, name)
    style = Style.of(sys.stdout)
    lines = [f"Usage: prowess call {contract.id} [KEY=VALUE | --KEY VALUE | '{{JSON}}' | -]...", ""]
    lines += wrapped(contract.summary or contract.id, style)
    lines += ["", *_parameters(contract, style), *_example(contract, style)]
    print(
        "\n".join(
            [*lines, "", f"`prowess show {contract.id}` shows more, `prowess call --help` lists the options of call."]
        )
    )
    return DONE


async def _contract(where: ProjectOptions, name: str) -> tuple[Contract, str, Limits | None]:
    """The contract, its profile in this project, and the limits of its skill."""
    async with opened(where) as project:
        contract = await find(project, name)
        return contract, project.own.profile, project.limits.get(contract.skill)


# --- text -----------------------------------------------------------------------------------------


def _as_lines(contract: Contract, usual: str, limits: Limits | None) -> Iterator[str]:
    style = Style.of(sys.stdout)
    yield style(contract.id, "bold") + (f"  {style(contract.title, 'dim')}" if contract.title else "")
    yield ""
    for line in _paragraphs(contract.description or contract.summary or contract.id):
        yield from wrapped(line, style, hanging=0) or [""]
    yield ""
    yield from _parameters(contract, style)
    yield ""
    facts = dict(_facts(contract, usual))
    if limits is not None:
        facts["Limits"] = limits.in_words()
    longest = max(map(len, facts))
    for name, value in facts.items():
        first, *more = textwrap.wrap(value, max(width(sys.stdout) - longest - 2, 20), break_on_hyphens=False) or [""]
        yield f"{style(name.ljust(longest), 'bold')}  {first}"
        yield from (" " * (longest + 2) + line for line in more)
    yield from _example(contract, style)


def _paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a text, each as one line that the terminal can wrap."""
    for number, part in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ""
        lines = part.splitlines()
        if any(re.match(r"\s|[-*>|#`]|\d+[.)]", line) for line in lines):
            yield from lines
        else:
            yield " ".join(lines)


def _parameters(contract: Contract, style: Style) -> list[str]:
    parameters = parameters_of(contract)
    if not parameters:
        return ["No parameters."]
    rows = [
        (each.name, each.type, "required" if each.required else each.default, each.description) for each in parameters
    ]
    looks = (("bold",), ("cyan",), ("yellow",), ())
    return table(
        [("PARAMETER", "TYPE", "DEFAULT", "DESCRIPTION"), *rows],
        width(sys.stdout),
        yields=3,
        wraps=True,
        looks=looks,
        style=style,
    )


def _facts(contract: Contract, usual: str) -> Iterator[tuple[str, str]]:
    output = contract.output.schema
    yield (
        "Returns",
        contract.returns.removeprefix("Returns: ") or (type_in_words(output, output) if output else "content"),
    )
    yield "Hints", ", ".join(hints_of(contract)) or "none declared: clients treat the tool as destructive"
    yield "Policies", ", ".join(_policies(contract)) or "default (see settings)"
    yield contract.kind.capitalize(), ", ".join(filter(None, (contract.wire_name, *contract.aliases)))
    if contract.uri:
        yield "URI", contract.uri
        yield "Type", contract.mime_type or "the type of the content"
    if contract.injected:
        yield "Injected", ", ".join(contract.injected)
    if contract.is_tool:
        yield "Profile", contract.profile or usual
    yield "Category", contract.category
    yield "Source", contract.source


def _policies(contract: Contract) -> Iterator[str]:
    policies = contract.policies
    if policies.timeout is not None:
        yield f"timeout {policies.timeout:g} s"
    if policies.max_attempts > 1:
        yield f"up to {policies.max_attempts} attempts on {', '.join(policies.retry_on)}"
    if policies.cache_ttl:
        yield f"cached for {policies.cache_ttl:g} s"
    if policies.concurrency is not None:
        yield f"{policies.concurrency} at once"
    if policies.thread is False:
        yield "runs on the event loop"
    if policies.run_on:
        yield f"runs on agents with {policies.run_on}"


def _example(contract: Contract, style: Style) -> list[str]:
    return ["", style("Example", "bold"), f"  {example_line(contract)}"]


# --- schemas --------------------------------------------------------------------------------------


def _schemas(contract: Contract, profile: str) -> JsonObject:
    shown = BUILT_IN[profile]
    return {"input_schema": shown.input_schema(contract), "output_schema": shown.output_schema(contract)}


def _show_schemas(contract: Contract, profiles: tuple[str, ...]) -> None:
    style = Style.of(sys.stdout)
    for profile in profiles:
        if len(profiles) > 1:
            print(style(profile, "bold"))
        text = pretty(_schemas(contract, profile))
        if style.colours:
            from rich.json import JSON

            console().print(JSON(text))
        else:
            print(text)
