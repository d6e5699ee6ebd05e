"""`prowess host` with click, for `--help` and unusual spellings of options. `main` reads the usual ones itself."""

from __future__ import annotations

import click

from prowess_host.cli.main import PlainOptions, host
from prowess_host.cli.options import ProjectOptions, project_options

__all__ = ["command"]

_EPILOG = """\b
Example, in the configuration of a client:
  {"command": "prowess", "args": ["host", "--project", "/path/to/project"]}
"""


@click.command("host", epilog=_EPILOG)
@project_options
def command(where: ProjectOptions) -> int:
    """Serve the commands of a project to an MCP client over stdin and stdout. An IDE starts this."""
    host(PlainOptions(where.project, list(where.set)))
