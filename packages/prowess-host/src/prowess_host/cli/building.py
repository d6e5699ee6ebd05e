"""`prowess build`: writes the committed catalog, or says how it is out of date."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from prowess.errors import ProwessError
from prowess_host.cli.catalogs import Loaded, add_file_option, check_profile, failure_lines, load, shown_path
from prowess_host.cli.main import add_project_options
from prowess_host.review.snapshot import Snapshot, SnapshotError, is_damaged_catalog, read_snapshot, write_snapshot

__all__ = ["add"]

_FAILED: Final = 1
_DIFF_LINES: Final = 40


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser("build", help="write the catalog file for commit and review")
    add_project_options(parser)
    add_file_option(parser, "--output")
    parser.add_argument(
        "--profile",
        action="append",
        default=[],
        metavar="NAME",
        help="write the schemas in this profile; may be repeated (default: the profiles in the file, or the project's)",
    )
    parser.add_argument("--check", action="store_true", help="only compare; fail if the file is out of date")
    parser.add_argument("--allow-failures", action="store_true", help="leave out skills that fail to load")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    return asyncio.run(_build(options))


async def _build(options: argparse.Namespace) -> int:
    for name in options.profile:
        check_profile(name)
    loaded = await load(options)
    if loaded.catalog.failures:
        print("\n".join(failure_lines(loaded)), file=sys.stderr)
        if not options.allow_failures:
            print("prowess: not built; --allow-failures leaves these out", file=sys.stderr)
            return _FAILED
    file = loaded.file(options)
    committed = _committed(file, options)
    text = write_snapshot(loaded.catalog.contracts, _profiles(options, loaded, committed))
    before = committed.text if committed else None
    shown = shown_path(file, loaded.root)
    if text == before:
        print(f"{shown} is up to date: {_count(loaded)}.")
        return 0
    if options.check:
        print(_out_of_date(shown, before, text), file=sys.stderr)
        return _FAILED
    _write(file, text)
    print(f"{shown} {'written' if before is None else 'updated'}: {_count(loaded)}.")
    return 0


def _committed(file: Path, options: argparse.Namespace) -> Snapshot | None:
    """The file as it is. A damaged catalog fails a check and is replaced by a build; any other file is left alone."""
    try:
        return read_snapshot(file)
    except SnapshotError:
        if options.check or not is_damaged_catalog(file):
            raise
        return None


def _profiles(options: argparse.Namespace, loaded: Loaded, committed: Snapshot | None) -> Sequence[str]:
    """Those asked for; else those of the file, as long as the project's is among them."""
    if options.profile:
        return options.profile
    own = loaded.own.profile
    return committed.profiles if committed and own in committed.profiles else [own]


def _out_of_date(shown: str, before: str | None, text: str) -> str:
    if before is None:
        return f"{shown} is missing. Run prowess build, and commit what it writes."
    diff = list(
        difflib.unified_diff(
            before.splitlines(), text.splitlines(), f"{shown} (committed)", f"{shown} (the code)", n=2, lineterm=""
        )
    )
    more = len(diff) - _DIFF_LINES
    lines = diff[:_DIFF_LINES] + ([f"… and {more} more lines"] if more > 0 else [])
    return "\n".join([*lines, "", f"{shown} is out of date. Run prowess build, and commit what it writes."])


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8", newline="\n")
    except OSError as error:
        raise ProwessError(f"{file}: cannot be written ({error.strerror})") from error


def _count(loaded: Loaded) -> str:
    count = len(loaded.catalog)
    return f"{count} command{'' if count == 1 else 's'}"
