"""`prowess call`: one command, from the shell, for a person or a script."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from prowess.contracts.contract import Contract
from prowess.frozen import frozen
from prowess.jsontypes import JsonObject
from prowess_host.cli.asking import LineReader, answer_questions, can_ask
from prowess_host.cli.exit_codes import DONE, FAILED, WRONG_USE
from prowess_host.cli.options import CommandId, ProjectOptions, project_options
from prowess_host.cli.parameters import as_object, example_of, merged, read_arguments
from prowess_host.cli.progress import LiveCall
from prowess_host.cli.projects import find, opened
from prowess_host.cli.results import Files, show_result
from prowess_host.cli.terminal import Style, complain, interruptible, pretty
from prowess_host.direct_calls import Audience
from prowess_host.protocol.kinds import as_content

__all__ = ["command"]

_KIND: Final = "prowess/kind"
_CALL_ID: Final = re.compile(r"\(call \S+\)$")
"""At the end of the error of a call whose traceback is in the log, which is on stderr, too."""
_EPILOG: Final = """\b
Examples:
  prowess call text.search pattern=TODO
  prowess call text.search --pattern TODO --no-regex
  prowess call text.search globs='["*.py"]' pattern=TODO
  echo '{"pattern": "TODO"}' | prowess call text.search -
  prowess call text.search pattern=TODO --json | jq .structuredContent
  prowess call text.search --help        the parameters of a command
"""


@frozen
class _Options:
    words: tuple[str, ...]
    as_json: str | None
    raw: bool
    save: Path | None
    verbose: bool
    in_process: bool

    @property
    def prints_payload(self) -> bool:
        return self.raw or self.as_json is not None


@click.command("call", epilog=_EPILOG, add_help_option=False, context_settings={"ignore_unknown_options": True})
@project_options
@click.argument("name", metavar="COMMAND", type=CommandId(), required=False)
@click.argument("words", nargs=-1, metavar="[KEY=VALUE | --KEY VALUE | '{JSON}' | -]...", type=click.UNPROCESSED)
@click.option(
    "--json",
    "as_json",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="['{JSON}']",
    help="Print the full result as JSON. A value is taken as the arguments.",
)
@click.option("--raw", is_flag=True, help="The same as --json without a value.")
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Folder for images and other files of the result. Default: a new temporary folder.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show what the command logs.")
@click.option(
    "--in-process",
    is_flag=True,
    help="Run the command in this process, for a debugger. A crash then ends this process.",
)
@click.option("-h", "--help", "helps", is_flag=True, help="Explain `call`, or the parameters of COMMAND.")
@click.pass_context
def command(ctx: click.Context, where: ProjectOptions, name: str | None, *, helps: bool, **options: Any) -> int:
    """Call COMMAND, by its id, tool name or an alias.

    A `-` reads the arguments as a JSON object from stdin. Pass a parameter with the name of an option of `call` as
    KEY=VALUE.
    """
    if name is None:
        if helps:
            print(ctx.get_help())
            return DONE
        raise click.UsageError("Missing argument 'COMMAND'. `prowess list` shows the commands.", ctx)
    if name.startswith("-"):  # unknown options after the command are its parameters
        options_of_call = [name for parameter in ctx.command.params for name in parameter.opts]
        raise click.NoSuchOption(name, possibilities=options_of_call, ctx=ctx)
    if helps:
        from prowess_host.cli.show import show_usage

        return asyncio.run(show_usage(where, name))
    return asyncio.run(_call(where, name, _Options(**options)))


async def _call(where: ProjectOptions, name: str, options: _Options) -> int:
    save = options.save.absolute() if options.save else None  # before the working directory changes
    async with opened(where, in_process=options.in_process, client="prowess call") as project:
        contract = await find(project, name)
        arguments = _arguments(options, contract)
        with LiveCall(contract.id, moves=_may_draw(options)) as live:
            payload = await project.payload(contract.id, arguments, _audience(live, options))
    if options.prints_payload:
        print(pretty(payload))
    elif payload.get("isError"):
        _show_failure(payload, contract)
    else:
        show_result(as_content(payload), contract, Files(contract.id, save))
    if not payload.get("isError"):
        return DONE
    return WRONG_USE if payload.get("_meta", {}).get(_KIND) == "input" else FAILED


def _may_draw(options: _Options) -> bool:
    """Whether to draw on the terminal. A debugger needs it for itself."""
    return sys.stderr.isatty() and not options.in_process


def _arguments(options: _Options, contract: Contract) -> JsonObject:
    """The arguments on the command line. click takes the first one as the value of a `--json` before it."""
    words: Sequence[str] = options.words
    given: JsonObject = {}
    if options.as_json and "=" in options.as_json and options.as_json[:1] not in "{[":
        words = (options.as_json, *words)
    elif options.as_json:
        given = as_object(options.as_json, "--json")
    return merged(given, read_arguments(words, contract, _input))


def _input() -> str:
    with interruptible():
        if sys.stdin.isatty():
            complain("waiting for the arguments as a JSON object on stdin (Ctrl-D ends it)")
        return sys.stdin.read()


def _audience(live: LiveCall, options: _Options) -> Audience:
    """What to report to the person, and whether a person can answer questions."""
    reader = LineReader(sys.stdin.fileno()) if can_ask() else None

    async def ask(questions: JsonObject) -> JsonObject:
        assert reader is not None  # noqa: S101 - see below
        try:
            with live.paused():
                return await answer_questions(questions, reader.line)
        except asyncio.CancelledError:
            print(file=sys.stderr)  # the cursor stands behind the question
            raise

    return Audience(
        progress=live.progress if _may_draw(options) else None,
        log=live.log if options.verbose else None,
        ask=ask if reader else None,
    )


def _show_failure(payload: JsonObject, contract: Contract) -> None:
    """Print the error, and what to type instead."""
    style = Style.of(sys.stderr)
    text = "\n".join(block.get("text", "") for block in payload["content"])
    kind = payload.get("_meta", {}).get(_KIND)
    is_logged = kind == "output" or _CALL_ID.search(text)
    print(f"{'A client gets: ' if is_logged else ''}{style(text, 'red')}", file=sys.stderr)
    if kind == "input":
        for line in _advice(text, contract):
            print(style(line, "dim"), file=sys.stderr)
    if "the capability 'elicitation'" in text:
        print("It asks a question: run it in a terminal, without piped input.", file=sys.stderr)


def _advice(text: str, contract: Contract) -> list[str]:
    """How to write the rejected values in a shell."""
    properties: JsonObject = contract.input_schema.get("properties", {})
    named = dict.fromkeys(re.findall(r"^(?:- |.*?: )?(\w+)(?:[.\[][^:]*)?: (?!unknown)", text, re.MULTILINE))
    wrong = [name for name in named if name in properties]
    lines = [f"  {name}={example_of(properties[name], contract.input_schema)}" for name in wrong]
    return (["For example:", *lines] if lines else []) + [
        f"See `prowess call {contract.id} --help` for all parameters."
    ]
