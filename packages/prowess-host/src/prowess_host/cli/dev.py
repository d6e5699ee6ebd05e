"""`prowess dev`: the project with a live view, in a browser or as text."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

import click

from prowess.errors import ProwessError
from prowess_host.cli.exit_codes import DONE, INTERRUPTED
from prowess_host.cli.main import leave
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import check_project, opened
from prowess_host.cli.records import call_line, record_of
from prowess_host.cli.terminal import Style, plural
from prowess_host.project import NotifiedClient, Project
from prowess_host.records.reading import CallFilter, RecordReader

if TYPE_CHECKING:
    from prowess_host.catalog.listing import Listing

__all__ = ["command"]

_LOOK_AGAIN: Final = 0.3


@click.command("dev")
@project_options
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port of the page. Default: any free one.")
@click.option("--no-browser", is_flag=True, help="Only print the address of the page.")
@click.option("--plain", is_flag=True, help="Show calls and failures as text, without a page.")
def command(where: ProjectOptions, *, port: int, no_browser: bool, plain: bool) -> int:
    """Watch a project: its commands with forms, calls as they happen (those of your IDE, too), failures on save."""
    check_project(where)
    code = DONE
    try:
        asyncio.run(_plain(where) if plain else _page(where, port, browser=not no_browser))
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.stdout.flush()
    leave(code)  # the thread that watches files may be in native code, which crashes when the interpreter ends under it


@contextlib.asynccontextmanager
async def _watched(where: ProjectOptions) -> AsyncGenerator[Project]:
    async with opened(where, client="prowess dev") as project:
        project.start()
        project.warm_up()
        yield project


async def _page(where: ProjectOptions, port: int, *, browser: bool) -> None:
    from prowess_host.dev.app import DevApp
    from prowess_host.dev.server import serving

    async with _watched(where) as project, contextlib.AsyncExitStack() as stack:
        app = DevApp(project, record_of(where))
        project.connect(app)
        try:
            app.port = await stack.enter_async_context(serving(app.handle, port))
        except OSError as error:
            way_out = "choose another one, or leave --port out for any free one"
            raise ProwessError(f"the page cannot be served at port {port}: {error.strerror}; {way_out}") from error
        print(f"{app.address}\nThe page runs commands: its address is secret. Ctrl-C ends it.", flush=True)
        if browser:
            await asyncio.to_thread(_open, app.address)
        await asyncio.Event().wait()


def _open(address: str) -> None:
    import webbrowser

    with contextlib.suppress(webbrowser.Error):
        webbrowser.open(address)


async def _plain(where: ProjectOptions) -> None:
    record = record_of(where)
    style = Style.of(sys.stdout)
    last = record.last_number()
    async with _watched(where) as project:
        project.connect(teller := _Teller(style))
        while True:
            teller.tell()
            last = _print_calls(record, last, style)
            await asyncio.sleep(_LOOK_AGAIN)


def _print_calls(record: RecordReader, last: int, style: Style) -> int:
    """Print the calls after this number. Returns the number of the last one."""
    if record.last_number() < last:  # it was deleted
        last = 0
    for call in record.after(last, CallFilter()):
        last = call.number
        print(call_line(call, style), flush=True)
    return last


class _Teller(NotifiedClient):
    """Reports changes in the terminal. An error of the output ends the command, and not just a notification."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self._lines: list[str] = []

    def tell(self) -> None:
        """Print the changes since the last time."""
        while self._lines:
            print(self._lines.pop(0), flush=True)

    def show(self, before: Listing, after: Listing) -> None:
        old, new = before.catalog, after.catalog
        for failure in new.failures:
            if failure not in old.failures:
                self._lines.append(self._style(str(failure), "red"))
        if old.failures and not new.failures:
            self._lines.append(self._style("everything loads again", "green"))
        if after.tools is not None and [each.id for each in old] != [each.id for each in new]:
            count = plural(len(new.contracts), "command")
            self._lines.append(self._style(f"{count}: {', '.join(each.id for each in new)}", "dim"))
