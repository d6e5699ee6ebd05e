"""The `prowess` command line. Each command imports what it needs, so that the host starts fast."""

from __future__ import annotations

import codecs
import gc
import os
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from prowess_host.cli.exit_codes import INTERRUPTED, WRONG_USE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from prowess.jsontypes import JsonObject
    from prowess.settings.settings import Settings
    from prowess_host.transports.claim import Claim
    from prowess_host.workers.launch import Launched

__all__ = [
    "EMPTY_PROJECT",
    "VERSION",
    "PlainOptions",
    "host",
    "leave",
    "main",
    "plain_options",
    "project_path",
    "project_root",
    "setting_flags",
]

VERSION: Final = "0.1.0"
_BY_HAND: Final = """\
prowess: clients start this command. It is now waiting for a client's messages on stdin (Ctrl-D ends it).
prowess: to connect a client: prowess connect. To call a command yourself: prowess call --help
prowess: the project is {root}
"""
_ON_WINDOWS: Final = "prowess: Prowess runs on Linux and macOS; on Windows, install and start it inside WSL"
EMPTY_PROJECT: Final = (
    "--project '' names no folder: is a variable empty? Leave the option out for the working directory"
)
_LAST_WORDS: Final = 1.5
"""Seconds that the reader of stderr gets to read the last lines."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit."""
    if sys.platform == "win32":
        sys.exit(_ON_WINDOWS)
    given = list(sys.argv[1:] if argv is None else argv)
    options = plain_options(given[1:]) if given[:1] in (["host"], ["list"]) else None
    if options is not None and given[0] == "host":
        host(options)
    _ready_streams()
    try:
        code = _run_command(given, options)
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


def _run_command(given: Sequence[str], options: PlainOptions | None) -> int:
    if options is not None:
        from prowess_host.cli.list_table import list_at_once

        code = list_at_once(options)
        if code is not None:
            return code
    from prowess_host.cli.commands import run  # see the docstring of the module

    return run(given)


def _ready_streams() -> None:
    """Make each standard stream usable: one that the parent has closed, and one whose encoding lacks some characters."""
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            from prowess_host.transports.claim import ensure_open

            ensure_open(fd)
            setattr(sys, name, open(fd, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - a descriptor
    codecs.register_error("prowess", _escaped)
    stdout: Any = sys.stdout
    if hasattr(stdout, "reconfigure"):
        stdout.reconfigure(errors="prowess")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Characters that an encoding lacks as escapes, which JSON has, too. Without this, `print` would raise."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    code = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4)), error.end


def host(options: PlainOptions) -> NoReturn:
    """Serve a client on stdin and stdout. The wire is claimed before anything else is imported."""
    gc.disable()  # as in a worker: imports make many objects and drop hardly any
    from prowess_host.stderr import complaints
    from prowess_host.transports.claim import claim  # nothing may print before this

    wire = claim()
    from prowess_host.workers.process_tree import adopt_orphans

    adopt_orphans()
    ahead = _worker_of_new_project(options)
    sys.stdout = sys.stderr = complaints()
    from prowess.errors import SettingsError
    from prowess.settings.settings import Settings

    try:
        root = project_root(options.project)
        flags = setting_flags(options.set)
        settings = Settings.load(root, environ=os.environ, flags=flags)
    except SettingsError as error:
        sys.stderr.write(f"prowess: {error}\n")
        leave(WRONG_USE)
    if os.isatty(wire.reading):
        sys.stderr.write(_BY_HAND.format(root=root))
    ahead = ahead or _first_worker(settings)
    from prowess.logs import log_to_stderr

    log_to_stderr()
    leave(_run(wire, settings, flags, ahead))


def _run(wire: Claim, settings: Settings, flags: JsonObject, ahead: Launched | None) -> int:
    """Import the host itself, and serve until the client leaves. Returns the exit code."""
    modules: dict[str, Any] = sys.modules
    modules.setdefault("ssl", None)  # saves 5 ms: asyncio works without it, and pipes need no TLS
    import asyncio

    from prowess.worker.heap import GARBAGE
    from prowess.worker.loops import new_loop
    from prowess_host.stdio import serve_stdio

    if modules["ssl"] is None:
        del modules["ssl"]
    gc.enable()
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    # The runner is never closed, so that a thread that is stuck with a client cannot keep the process alive.
    return asyncio.Runner(loop_factory=new_loop).run(serve_stdio(wire, settings, VERSION, flags, os.environ, ahead))


def _worker_of_new_project(options: PlainOptions) -> Launched | None:
    """Start a worker before anything else, if the project was probably never served.

    Nothing is known of its settings yet: if they ask for another interpreter, this worker is discarded, and another starts.
    """
    if not options.project:
        return None
    from prowess_host.catalog.manifest_names import seems_new

    root = os.path.realpath(os.path.expanduser(options.project))  # noqa: PTH111 - pathlib takes milliseconds to import
    return _launched(sys.executable, root, shared=True) if seems_new(root, os.environ, options.set) else None


def _first_worker(settings: Settings) -> Launched | None:
    """Start a worker before the host imports its own modules, if the first answer needs one."""
    from prowess.settings.paths import ConfigPaths
    from prowess_host.catalog.manifest_path import is_known

    paths, own = ConfigPaths.of(settings, os.environ), settings.own
    if is_known(paths, own):
        return None
    return _launched(own.python or sys.executable, paths.project_root, shared=own.host.shared_memory)


def _launched(python: str, root: Path | str, *, shared: bool) -> Launched | None:
    from prowess_host.workers.launch import Launched

    try:
        return Launched(python, root, shared=shared)
    except OSError:  # the host tries again, and reports the reason then
        return None


def leave(code: int) -> NoReturn:
    """End this process and all below it at once, after the reader of stderr has got the last lines."""
    from prowess_host.stderr import complaints
    from prowess_host.workers.process_tree import end_remaining

    end_remaining()
    complaints().finish(_LAST_WORDS)
    os._exit(code)


def project_root(named: str | None) -> Path:
    """The named project, or the one around the working directory."""
    from pathlib import Path

    from prowess.errors import SettingsError
    from prowess.settings.paths import find_project_root

    if named is None:
        try:
            here = Path.cwd()
        except FileNotFoundError:
            way_out = "change to another one, or name the project with --project FOLDER"
            raise SettingsError(f"the working directory no longer exists: {way_out}") from None
        return project_path(find_project_root(here))
    if not named:
        raise SettingsError(EMPTY_PROJECT)
    root = Path(os.path.expanduser(named)).resolve()  # noqa: PTH111 - Path.expanduser raises for an unknown user
    if not root.is_dir():
        wrong = "is a file, and a project is a folder" if root.exists() else "does not exist"
        raise SettingsError(f"--project {named}: {root} {wrong}")
    return project_path(root)


def project_path(root: Path) -> Path:
    """The folder of a project. Raises `SettingsError` if workers and clients could not get its path as JSON."""
    try:
        os.fsencode(root).decode()
    except UnicodeDecodeError:
        from prowess.errors import SettingsError

        raise SettingsError(f"the path of a project must be Unicode text: rename {str(root)!r}") from None
    return root


def setting_flags(given: Sequence[str]) -> dict[str, str]:
    """The settings from options `KEY=VALUE`."""
    from prowess.errors import SettingsError

    wrong = [item for item in given if "=" not in item]
    if wrong:
        raise SettingsError(f"--set {wrong[0]} must have the form KEY=VALUE, for example --set timeout=60")
    return dict(item.split("=", 1) for item in given)


class PlainOptions(NamedTuple):
    """The options of `host` and `list`."""

    project: str | None
    set: list[str]


def plain_options(argv: Sequence[str]) -> PlainOptions | None:
    """The options of `host` or `list` in the usual spelling; `None` for others, which click reads in 50 ms."""
    project: str | None = None
    given: list[str] = []
    for name, value in zip(argv[::2], argv[1::2], strict=False):
        if name == "--project":
            project = value
        elif name == "--set":
            given.append(value)
        else:
            return None
    return PlainOptions(project, given) if len(argv) % 2 == 0 else None
