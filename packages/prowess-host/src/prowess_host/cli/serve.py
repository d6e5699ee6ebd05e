"""`prowess serve`: serves the project over HTTP, in one process or in several."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from prowess.errors import ProwessError
from prowess.logs import log_to_stderr
from prowess_host.cli.exit_codes import DONE
from prowess_host.cli.main import VERSION, leave
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import settings_of
from prowess_host.stderr import complaints

if TYPE_CHECKING:
    from prowess_host.http.server import Address

__all__ = ["command"]

_EPILOG = """\b
Examples:
  prowess serve                                this machine alone, at http://127.0.0.1:8765/mcp
  prowess serve --port 9000 --workers 4        four processes at one port
  PROWESS_AUTH__TOKEN=… prowess serve --host 0.0.0.0
"""
_WHOLE = "prowess: max_result does not apply here: one process keeps the rest of a result, and the next request may reach another\n"


@click.command("serve", epilog=_EPILOG)
@project_options
@click.option("--host", help="Address to listen on. Default: 127.0.0.1, which only this machine can reach.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on, 0 for any free one. Default: 8765.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Number of server processes. Default: 1.")
@click.option("--replica", hidden=True, metavar="FDS", help="The socket and the lifeline of one of several processes.")
def command(
    where: ProjectOptions, *, host: str | None, port: int | None, workers: int | None, replica: str | None
) -> int:
    """Serve the commands of a project over HTTP: MCP, envelopes, health and metrics."""
    given = {"host": host, "port": port, "workers": workers}
    flags = {f"serve.{name}": str(value) for name, value in given.items() if value is not None}
    where = ProjectOptions(where.project, (*where.set, *(f"{name}={value}" for name, value in flags.items())))
    from prowess_host.http import server  # needs an extra

    settings = settings_of(where)
    server.check_safe(settings)
    log_to_stderr()
    if replica is not None:
        _serve(where, replica, lambda: None)
    own = settings.own.serve
    if settings.own.max_result is not None and (own.workers > 1 or not own.sessions):
        sys.stderr.write(_WHOLE)
    listening = server.bind(own)
    address, asks = server.address_of(own, listening), not server.is_open(settings)

    def ready() -> None:
        _print_address(address, own.workers, asks=asks)

    if own.workers > 1:
        from prowess_host.http.replicas import supervise

        sockname = listening.getsockname()
        command = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", "serve"]
        command += ["--project", str(settings.root), *(word for each in where.set for word in ("--set", each))]
        command += ["--set", f"serve.port={sockname[1]}", "--set", "serve.sessions=false"]
        with tempfile.TemporaryDirectory(prefix="prowess-", ignore_cleanup_errors=True) as folder:
            return supervise(command, listening, own.workers, own.drain, ready, folder=folder)
    _serve(where, f"{listening.fileno()}", ready)
    return DONE


def _serve(where: ProjectOptions, descriptors: str, ready: Callable[[], None]) -> NoReturn:
    """Serve on an open socket. Ends the process at once, so that no thread can keep it alive."""
    import socket

    from prowess.worker.loops import new_loop
    from prowess_host.http.server import serve_http
    from prowess_host.http.siblings import Siblings
    from prowess_host.workers.process_tree import adopt_orphans

    first, second, number, folder = (*descriptors.split(",", 3), "", "", "")[:4]
    sys.stderr = complaints()  # a reader that has stopped must not stop the server
    listening = socket.socket(fileno=int(first))
    listening.setblocking(False)
    adopt_orphans()
    serving = serve_http(
        settings_of(where),
        VERSION,
        where.flags,
        os.environ,
        listening,
        ready=ready,
        lifeline=int(second) if second else None,
        siblings=Siblings(Path(folder), int(number)) if folder else None,
    )
    try:
        code = asyncio.Runner(loop_factory=new_loop).run(serving)
    except ProwessError as error:
        sys.stderr.write(f"prowess: {error}\n")
        code = 2
    leave(code)


def _print_address(address: Address, workers: int, *, asks: bool) -> None:
    several = f", by {workers} processes" if workers > 1 else ""
    print(f"prowess: serving MCP at {address.mcp}{several}; Ctrl-C ends it")
    header = ' --header "Authorization: Bearer …"' if asks else ""
    print(f"prowess: to connect: claude mcp add --transport http prowess {address.mcp}{header}")
    print(f"prowess: API for other programs: {address.url}/openapi.json", flush=True)
