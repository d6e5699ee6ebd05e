"""The table of the commands of the `prowess` command line, and how one is run.

A command is a module of this folder with its name (`test_from` for `test-from`) and with a `click.Command` named `command`,
whose callback returns the exit code. The module is imported when the command is used: `prowess list` imports what `list`
needs, and help is printed from the table.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import groupby
from typing import Final, NamedTuple

import click

from prowess.errors import ProwessError, did_you_mean, extra_command
from prowess.logs import log_to_stderr
from prowess_host.cli.exit_codes import DONE, FAILED, INTERRUPTED, UNREAD, WRONG_USE, NotLoaded
from prowess_host.cli.list_table import forget_output
from prowess_host.cli.main import VERSION
from prowess_host.cli.terminal import Style, complain

__all__ = ["COMMANDS", "COMPLETE", "CommandEntry", "module_of", "prowess", "run"]

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of writing that name no file."""
_EXTRAS: Final = {
    "cryptography": "cluster",
    "httptools": "http",
    "nats": "cluster",
    "nkeys": "cluster",
    "uvicorn": "http",
}
"""Libraries that only an extra installs, and the extra."""
COMPLETE: Final = "_PROWESS_COMPLETE"
"""The variable in which a shell asks for completions."""


class CommandEntry(NamedTuple):
    """A command that is not imported yet."""

    help: str
    """One line, for `prowess --help`."""
    group: str


_NEAR: Final = 30
"""Characters that are shown on each side of one that cannot be written."""
_MAKE: Final = "Make skills"
_USE: Final = "Use commands"
_SERVE: Final = "Serve an agent"
_KEEP: Final = "Review changes"
_SEE: Final = "See what happened"
_SHELL: Final = "The shell"

COMMANDS: Final[dict[str, CommandEntry]] = {  # in the order of the help, by group
    "new": CommandEntry("Make a project or a skill, with a test that passes.", _MAKE),
    "sync": CommandEntry("Install the dependencies of skills before their first call.", _MAKE),
    "lock": CommandEntry("Write lock files with the exact versions of dependencies.", _MAKE),
    "clean": CommandEntry("Delete the environments that no project uses.", _MAKE),
    "package": CommandEntry("Make a wheel, a bundle and a registry entry of a project.", _MAKE),
    "list": CommandEntry("List the commands of a project.", _USE),
    "show": CommandEntry("Show one command: parameters, hints, schemas, an example.", _USE),
    "call": CommandEntry("Call a command.", _USE),
    "invoke": CommandEntry("Run JSON requests from stdin, for programs that do not speak MCP.", _USE),
    "host": CommandEntry("Serve a project to an MCP client. An IDE starts this.", _SERVE),
    "serve": CommandEntry("Serve a project over HTTP.", _SERVE),
    "cluster": CommandEntry("Start an engine, agents and servers on this machine, to try them.", _SERVE),
    "agent": CommandEntry("Run workers on this machine for the hosts of a cluster.", _SERVE),
    "connect": CommandEntry("Connect the project to an IDE or another MCP client.", _SERVE),
    "disconnect": CommandEntry("Remove the project from its MCP clients.", _SERVE),
    "status": CommandEntry("Show where the project is connected, and whether it works.", _SERVE),
    "doctor": CommandEntry("Find what is wrong, from Python to each client.", _SERVE),
    "approve": CommandEntry("Sign the code of a project for agents that run only approved code.", _SERVE),
    "trust": CommandEntry("Allow the skills of an installed package to run.", _SERVE),
    "build": CommandEntry("Write the catalog file for commit and review.", _KEEP),
    "check": CommandEntry("Report breaking changes, and schemas that clients reject.", _KEEP),
    "dev": CommandEntry("Watch a project in a browser: commands, calls, failures.", _SEE),
    "logs": CommandEntry("Show the record of calls, or one call.", _SEE),
    "replay": CommandEntry("Run a recorded call again, and show the difference.", _SEE),
    "test-from": CommandEntry("Write a pytest test of a recorded call.", _SEE),
    "completion": CommandEntry("Print the completion script of a shell.", _SHELL),
}

_EXAMPLES: Final = """\
Examples:
  prowess new --project                 make a project in this folder, with a first skill
  prowess list                          show its commands
  prowess call hello.greet name=Ada     call a command
  prowess connect claude-code           put the project into a client
"""


def module_of(command: str) -> str:
    """The module of a command."""
    return f"prowess_host.cli.{command.replace('-', '_')}"


class _Commands(click.Group):
    """Finds commands in the table, and imports only the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(module_of(cmd_name)).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"There is no command {args[0]!r}{did_you_mean(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        for group, entries in groupby(COMMANDS.items(), key=lambda item: item[1].group):
            with formatter.section(group):
                formatter.write_dl([(name, entry.help) for name, entry in entries])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        formatter.write(f"\n{_EXAMPLES}\n`prowess COMMAND --help` explains a command.\n")


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, "--version", message="prowess %(version)s")
@click.pass_context
def prowess(ctx: click.Context) -> int:
    """Run Python functions as tools for coding agents."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())
        return WRONG_USE
    return DONE


def run(argv: Sequence[str]) -> int:
    """Run one command and return the exit code. Wrong use gets a message without a traceback."""
    log_to_stderr()
    try:
        shell = os.environ.get(COMPLETE)
        code = _complete(shell) if shell else _run(argv)
        sys.stdout.flush()
    except click.UsageError as error:
        _explain(error, argv)
        return WRONG_USE
    except (ProwessError, click.ClickException) as error:
        complain(str(error))
        return FAILED if isinstance(error, NotLoaded) else WRONG_USE
    except (ValueError, ModuleNotFoundError) as error:
        problem = _problem_in(argv, error)
        if not problem:
            raise
        complain(problem)
        return WRONG_USE
    except ChildProcessError as error:
        complain(f"the project cannot be loaded: {error}")
        return FAILED
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        forget_output()
        return UNREAD
    except OSError as error:
        if error.filename is None and error.errno not in _FULL:
            raise
        place = error.filename or "the output"
        complain(f"{os.fsdecode(place)}: {error.strerror}; check the path, its permissions and the space on the disk")
        forget_output()
        return WRONG_USE
    return code


def _run(argv: Sequence[str]) -> int:
    try:
        with prowess.make_context("prowess", list(argv)) as context:
            return prowess.invoke(context) or DONE
    except click.exceptions.Exit as error:
        return error.exit_code


def _problem_in(argv: Sequence[str], error: ValueError | ModuleNotFoundError) -> str:
    """What is wrong with the words of the command line, or which extra they need, if an error is about that; else empty."""
    if isinstance(error, ModuleNotFoundError):
        library = str(error.name).partition(".")[0]
        install = extra_command(f"prowess[{_EXTRAS[library]}]") if library in _EXTRAS else ""
        return f"prowess {argv[0]} needs {library}, which is not installed: {install}" if install else ""
    from prowess_host.protocol.rpc import EncodeError

    if isinstance(error, UnicodeEncodeError) and error.object in argv:
        return f"{error.object!r} is not Unicode text"
    encoding = sys.getfilesystemencoding()
    if isinstance(error, UnicodeEncodeError) and encoding != "utf-8":
        near = error.object[max(error.start - _NEAR, 0) : error.end + _NEAR]
        return (
            f"a name cannot be written, at {near!r}: Python reads names of files as {encoding} here; set PYTHONUTF8=1"
        )
    if not isinstance(error, EncodeError):
        return ""
    strange = [word for word in argv if any("\ud800" <= letter <= "\udfff" for letter in word)]
    return f"{strange[0]!r} is not Unicode text" if strange else f"the arguments cannot be sent: {error}"


def _complete(shell: str) -> int:
    """Print the completions for the words that the shell has set in its variables."""
    from click.shell_completion import shell_complete

    return shell_complete(prowess, {}, "prowess", COMPLETE, shell)


def _explain(error: click.UsageError, argv: Sequence[str]) -> None:
    """Print the error in the command line, and where to find help."""
    complain(error.format_message())
    if isinstance(error, click.NoSuchOption) and error.ctx is not None and error.ctx.command is prowess:
        print(f"Write options after the command: `prowess list {error.option_name} …`.", file=sys.stderr)
    path = error.ctx.command_path if error.ctx is not None else f"prowess {argv[0]}"
    usage = f"{error.ctx.get_usage()}\n" if error.ctx is not None else ""
    print(Style.of(sys.stderr)(f"{usage}See `{path} --help`.", "dim"), file=sys.stderr)
