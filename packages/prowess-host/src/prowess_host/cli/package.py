"""`prowess package`: a wheel, a bundle for desktop clients, and the entry of a registry, made from a project."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import click

from prowess.errors import ProwessError
from prowess_host.cli.catalogs import failure_lines, load
from prowess_host.cli.exit_codes import DONE, FAILED
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import check_project, settings_of

__all__ = ["command"]

_FORMS: Final = ("wheel", "mcpb", "server.json")
_EPILOG: Final = """\b
Examples:
  prowess package                                  a wheel and a bundle, in dist/
  prowess package --registry io.github.ada/sums    and server.json, to publish in the MCP registry
  prowess package --only wheel --version 1.2.0
"""


@click.command("package", epilog=_EPILOG)
@project_options
@click.option("--output", default="dist", metavar="FOLDER", help="Output folder. Default: dist in the project.")
@click.option("--name", help="Name of the package. Default: the name in pyproject.toml, else the name of the server.")
@click.option("--version", help="Version of the package. Default: the version in pyproject.toml, else 0.1.0.")
@click.option("--registry", metavar="NAME", help="Name in the MCP registry, like io.github.you/name. Adds server.json.")
@click.option("--only", type=click.Choice(_FORMS), help="Make only this.")
def command(
    where: ProjectOptions,
    *,
    output: str,
    name: str | None,
    version: str | None,
    registry: str | None,
    only: str | None,
) -> int:
    """Make packages from a project: a wheel, and a bundle (.mcpb) for desktop clients."""
    from prowess_host.clients.needs import needed_variables
    from prowess_host.packaging.archives import bundle, server_json, wheel
    from prowess_host.packaging.source import read_source

    if only == "server.json" and registry is None:
        raise ProwessError("server.json needs a registry name: --registry io.github.you/name")
    check_project(where)
    settings = settings_of(where)
    folder = Path(os.path.abspath(settings.root / output))  # noqa: PTH100 - as it was written
    source = read_source(settings, name, version, output=folder)
    loaded = asyncio.run(load(where))
    if loaded.catalog.failures:
        for line in failure_lines(loaded):
            click.echo(line, err=True)
        return FAILED
    made: list[tuple[str, bytes]] = []
    if only in (None, "wheel"):
        made.append(wheel(source, registry))
    if only in (None, "mcpb"):
        made.append(bundle(source, loaded.catalog))
    if registry is not None and only in (None, "server.json"):
        variables = needed_variables(settings.root, loaded.catalog, {})
        made.append(("server.json", server_json(source, registry, variables)))
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in made:
        (folder / file).write_bytes(data)
        click.echo(f"{folder / file}: {len(data):,} bytes")
    return DONE
