"""The `prowess` command line. Each command imports what it needs, so that the host's start pays for nothing else."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["host"]:
        _host(given[1:])
    from prowess_host.commands import run  # noqa: PLC0415 - see the docstring of the module

    sys.exit(run(given))


def _host(argv: list[str]) -> None:
    """Serve a client on stdin and stdout. The wire is claimed before anything else is imported."""
    from prowess_host.wire import claim  # noqa: PLC0415 - nothing may print before this

    options = host_options(argv)
    wire = claim()
    import asyncio  # noqa: PLC0415
    import logging  # noqa: PLC0415

    from prowess.errors import SettingsError  # noqa: PLC0415
    from prowess.paths import find_project_root  # noqa: PLC0415
    from prowess.settings import Settings  # noqa: PLC0415
    from prowess_host.host import serve  # noqa: PLC0415

    logging.basicConfig(level=logging.WARNING, format="prowess: %(message)s", stream=sys.stderr)
    root = Path(options.project).resolve() if options.project else find_project_root(Path.cwd())
    flags = dict(item.split("=", 1) for item in options.set)
    try:
        settings = Settings.load(root, environ=os.environ, flags=flags)
    except SettingsError as error:
        print(f"prowess: {error}", file=sys.stderr)  # noqa: T201 - stdout is stderr here
        os._exit(2)
    code = asyncio.run(serve(wire, root, settings, "0.1.0", flags, os.environ))
    sys.stderr.flush()
    os._exit(code)  # a writer that is stuck with a client must not hold the process


def host_options(argv: list[str]) -> argparse.Namespace:
    """The options that every command takes."""
    parser = argparse.ArgumentParser(prog="prowess host", description="Serve the commands of a project over stdio.")
    add_project_options(parser)
    return parser.parse_args(argv)


def add_project_options(parser: argparse.ArgumentParser) -> None:
    """Which project, and settings that win over its files."""
    parser.add_argument("--project", metavar="FOLDER", help="the project; else the one the working directory is in")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a setting, like timeout=60")
