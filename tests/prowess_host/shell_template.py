"""The process that the command line is forked from, with all its commands imported.

It becomes what a shell starts: descriptors, folder, environment and arguments are those of a program of its own. Its workers
are forked as well, unless a test wants started ones, by a copy of this process that it has made of itself before.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pkgutil
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent))

import forked
import template

import prowess_host.cli.main
import prowess_host.http
from prowess_host import stdio
from prowess_host.cli.main import main
from prowess_host.project import Project


def become_command(told: dict[str, Any], *fds: int) -> NoReturn:
    """Be `prowess` with these words."""
    template.as_started(told["folder"], told["environ"], "h")
    if "PYTHONPATH" in os.environ:
        sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    if told["forked_workers"]:
        fork_workers(*fds)
    if len(fds) == 1:
        os.login_tty(*fds)  # so that Ctrl-C reaches it
    else:
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
    sys.stdin, sys.stdout, sys.stderr = (
        open(fd, mode, buffering=buffering, closefd=False)  # noqa: SIM115 - as the interpreter has them
        for fd, mode, buffering in ((0, "r", -1), (1, "w", -1), (2, "w", 1))
    )
    os._exit(run(told["words"]))


def fork_workers(*fds: int) -> None:
    """Have workers forked by a copy of this process, without these descriptors."""
    workers = template_of_workers(*fds)
    forked.template = lambda: workers
    Project.__init__.__defaults__ = (forked.spawn,)
    stdio.spawner = lambda _ahead: forked.spawn  # `host` starts its first worker before it makes a project
    prowess_host.cli.main._worker_of_new_project = lambda _options: None  # noqa: SLF001
    prowess_host.cli.main._first_worker = lambda _settings: None  # noqa: SLF001


def template_of_workers(*fds: int) -> socket.socket:
    """The socket of a copy of this process, without these descriptors. It ends with this process, and is no child of it:
    a host ends what its workers have left behind.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if between := os.fork():
        theirs.close()
        os.waitpid(between, 0)
        return ours
    if os.fork():
        os._exit(0)
    for fd in (ours.detach(), *fds):
        os.close(fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command
    template.main(theirs, template.become_worker)
    os._exit(0)


def run(words: list[str]) -> int:
    """Run a command to its end as the interpreter does; gives the exit code."""
    code: Any = 1
    try:
        main(words)
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - it is shown
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # noqa: SLF001 - as below
    atexit._run_exitfuncs()  # noqa: SLF001 - what comes after that takes as long as the start
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


if __name__ == "__main__":
    for package in (prowess_host.cli, prowess_host.http):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    gc.freeze()
    template.main(socket.socket(fileno=int(sys.argv[1])), become_command)
