"""`prowess build`: writes the committed catalog, or reports how it is outdated."""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from prowess.errors import ProwessError
from prowess.frozen import frozen
from prowess_host.cli.catalogs import Loaded, catalog_option, check_profile, failure_lines, load, shown_profile
from prowess_host.cli.exit_codes import DONE, FAILED
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import check_project, shown_path
from prowess_host.cli.terminal import plural
from prowess_host.review.snapshot import Snapshot, SnapshotError, is_damaged_catalog, read_snapshot, write_snapshot

__all__ = ["command"]

_DIFF_LINES: Final = 40


@frozen
class _Options:
    file: str | None
    profile: tuple[str, ...]
    check: bool
    allow_failures: bool


@click.command("build")
@project_options
@catalog_option("--output")
@click.option(
    "--profile",
    multiple=True,
    metavar="NAME",
    help="Write the schemas in this profile. May be repeated. Default: the profiles in the file, or the project's.",
)
@click.option("--check", is_flag=True, help="Only compare; fail if the file is out of date.")
@click.option("--allow-failures", is_flag=True, help="Leave out skills that fail to load.")
def command(where: ProjectOptions, **options: Any) -> int:
    """Write the catalog file for commit and review."""
    return asyncio.run(_build(where, _Options(**options)))


async def _build(where: ProjectOptions, options: _Options) -> int:
    for name in options.profile:
        check_profile(name)
    check_project(where)
    loaded = await load(where)
    if loaded.catalog.failures:
        print("\n".join(failure_lines(loaded)), file=sys.stderr)
        if not options.allow_failures:
            print("prowess: no catalog was written; --allow-failures leaves these out", file=sys.stderr)
            return FAILED
    file = loaded.file(options.file)
    committed = _committed(file, options)
    text = write_snapshot(loaded.catalog.contracts, _profiles(options, loaded, committed), loaded.limits)
    before = committed.text if committed else None
    shown = shown_path(file, loaded.root)
    if text == before:
        print(f"{shown} is up to date: {_count(loaded)}.")
        return DONE
    if options.check:
        print(_out_of_date(shown, before, text), file=sys.stderr)
        return FAILED
    _write(file, text)
    print(f"{shown} {'written' if before is None else 'updated'}: {_count(loaded)}.")
    return DONE


def _committed(file: Path, options: _Options) -> Snapshot | None:
    """The current file. A damaged catalog fails a check and is replaced by a build; any other file is left alone."""
    try:
        return read_snapshot(file)
    except SnapshotError:
        if options.check or not is_damaged_catalog(file):
            raise
        return None


def _profiles(options: _Options, loaded: Loaded, committed: Snapshot | None) -> Sequence[str]:
    """The requested profiles; else those of the file, if the project's profile is among them."""
    if options.profile:
        return options.profile
    own = shown_profile(loaded.own.profile).name
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
    return plural(len(loaded.catalog), "command")
