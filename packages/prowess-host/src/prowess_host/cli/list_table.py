"""The table of `prowess list`, printed straight from the manifest while that is valid.

Imports neither click nor asyncio nor the workers, so that `prowess list` answers at once.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from prowess.contracts.catalog import Catalog, Failure
from prowess.errors import ProwessError
from prowess_host.cli.exit_codes import DONE, UNREAD
from prowess_host.cli.terminal import Style, table, width, wrapped

if TYPE_CHECKING:
    from prowess.contracts.contract import Contract
    from prowess_host.cli.main import PlainOptions

__all__ = ["NEXT", "catalog_lines", "forget_output", "hints_of", "list_at_once"]

NEXT: Final = """\
  In a folder of your own: prowess new --project       makes a project with a first skill
  In another folder:       prowess list --project FOLDER"""
"""The advice for a folder without commands."""
_FOR_SUMMARY: Final = 24
_GAPS: Final = 6
_LOOKS: Final = (("bold",), (), ("yellow",), ("dim",))
_HINTS: Final = {
    "readOnlyHint": ("read-only", ""),
    "destructiveHint": ("destructive", "harmless"),
    "idempotentHint": ("idempotent", ""),
    "openWorldHint": ("open-world", "closed-world"),
}


def list_at_once(options: PlainOptions) -> int | None:
    """Print the list from the manifest and return the exit code; `None` if the manifest is not enough."""
    from prowess.settings.paths import ConfigPaths
    from prowess.settings.settings import Settings
    from prowess_host.catalog.labels import with_warnings
    from prowess_host.catalog.manifest import read_manifest
    from prowess_host.catalog.manifest_path import manifest_path, shape_now
    from prowess_host.cli.main import project_root, setting_flags

    try:
        root = project_root(options.project)
        settings = Settings.load(root, environ=os.environ, flags=setting_flags(options.set))
    except ProwessError:
        return None
    paths, shape = ConfigPaths.of(settings, os.environ), shape_now(settings.own)
    manifest = read_manifest(manifest_path(paths.cache_dir, paths.project_root, shape))
    if (
        manifest is None
        or manifest.isolated
        or settings.own.sandbox
        or settings.own.cluster.url
        or not manifest.standing(shape).complete
    ):
        return None
    catalog = with_warnings(manifest.description.catalog(settings.own.hide, paths.project_root), settings.own)
    if catalog.failures or not catalog.contracts:
        return None
    try:
        print("\n".join(catalog_lines(catalog)))
        sys.stdout.flush()
    except BrokenPipeError:
        forget_output()
        return UNREAD
    except OSError:  # the whole command reports it
        return None
    return DONE


def forget_output() -> None:
    """Drop the output that is left after the reader has gone, so that the interpreter prints no error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def catalog_lines(catalog: Catalog) -> list[str]:
    """The table. Failures come last, where they are still on the screen."""
    style = Style.of(sys.stdout)
    lines: list[str] = []
    if catalog.contracts:
        rows = [("COMMAND", "SUMMARY", "HINTS", "SOURCE"), *(_row(contract) for contract in catalog)]
        lines = [*_table(rows, style), ""]
    for warning in catalog.warnings:
        lines += [style(f"warning: {warning}", "yellow")]
    if not catalog.failures:
        return lines if catalog.warnings else lines[:-1]
    lines += [""] if catalog.warnings else []
    lines.append(style(f"{len(catalog.failures)} could not be loaded:", "bold", "red"))
    for reason, failures in _by_reason(catalog).items():
        sources = ", ".join(str(replace(each, reason="")).removesuffix(": ") for each in failures)
        lines += wrapped(f"{sources}: {reason}", style, "red")
    return lines


def _table(rows: list[tuple[str, ...]], style: Style) -> list[str]:
    """The columns that fit. A narrow terminal would break each line in two, so the hints are omitted there."""
    columns = width(sys.stdout)
    name, summary, hints, source = (max(len(row[column]) for row in rows) for column in range(4))
    if name + min(summary, _FOR_SUMMARY) + hints + source + _GAPS <= columns:
        return table(rows, columns, looks=_LOOKS, style=style)
    return table([(*row[:2], row[3]) for row in rows], columns, looks=[*_LOOKS[:2], _LOOKS[3]], style=style)


def _by_reason(catalog: Catalog) -> dict[str, list[Failure]]:
    """Merge failures with one cause, such as a wrong setting."""
    found: dict[str, list[Failure]] = {}
    for failure in catalog.failures:
        found.setdefault(failure.reason, []).append(failure)
    return found


def _row(contract: Contract) -> tuple[str, ...]:
    said = hints_of(contract) if contract.is_tool else filter(None, [contract.kind, contract.uri])
    return contract.id, contract.summary, " ".join(said) if contract.uri else ", ".join(said), contract.source


def hints_of(contract: Contract) -> list[str]:
    """The declared hints in words."""
    words = [_HINTS[name][0 if value else 1] for name, value in contract.hints.to_mcp().items()]
    return [word for word in words if word]
