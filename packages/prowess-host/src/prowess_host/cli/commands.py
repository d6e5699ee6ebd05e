"""The commands of the `prowess` command line, one file each: every one adds its parser and runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final

from prowess.errors import ProwessError
from prowess_host.cli import building, calling, checking, invoking, listing

__all__ = ["WRONG_USE", "parser", "run"]

WRONG_USE: Final = 2
_INTERRUPTED: Final = 130
_ADD: Final[tuple[Callable[[argparse._SubParsersAction[argparse.ArgumentParser]], None], ...]] = (  # pyright: ignore[reportPrivateUsage]
    listing.add,
    calling.add,
    invoking.add,
    building.add,
    checking.add,
)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    whole = argparse.ArgumentParser(prog="prowess", description="Run Python functions as tools for coding agents.")
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    commands.add_parser("host", help="serve the commands of a project over stdio; an IDE starts this")
    for add in _ADD:
        add(commands)
    return whole


def run(argv: Sequence[str]) -> int:
    """Run one command; gives the exit code."""
    options = parser().parse_args(argv)
    try:
        return options.run(options)
    except ProwessError as error:
        print(f"prowess: {error}", file=sys.stderr)
        return WRONG_USE
    except ChildProcessError as error:
        print(f"prowess: the project cannot be loaded: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
