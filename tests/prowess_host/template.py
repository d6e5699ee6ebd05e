"""A process that others are forked from: it has imported what all of them import, and runs nothing else.

As a program it is what workers are forked from (`forked`). It also imports what a worker would import for its settings, its
commands and its first call: most workers would take as long for that as for all else. A request is a JSON object and
descriptors, over a socket: a pipe for the exit code, and what the new process is given. The answer is its id.
"""

from __future__ import annotations

import concurrent.futures.thread
import ctypes
import gc
import importlib.metadata
import json
import os
import select
import signal
import socket
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import anyio._backends._asyncio
import anyio.to_thread
import pydantic

import prowess.command
import prowess.served
from prowess.worker import serving

__all__ = ["MARK", "as_started", "become_worker", "main", "name_of"]

MARK = "PIPED_MARK"
"""The variable by which the processes that come from a host are found."""

_LONGEST = 1 << 20


_IMPORTED = (
    concurrent.futures.thread,
    ctypes,
    importlib.metadata,
    tomllib,
    anyio.to_thread,
    prowess.command,
    prowess.served,
)
pydantic.TypeAdapter(int)  # looks for plugins of pydantic in all installed packages, once


def main(control: socket.socket, become: Callable[..., NoReturn]) -> None:
    """Fork processes, and tell how they end, until nobody asks any more. `become` gets the object and the descriptors."""
    waking, woken = socket.socketpair()
    for end in (waking, woken):
        end.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ends: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control, waking], [], [])
        if waking in ready:
            waking.recv(4096)
            tell_of_ended(ends)
        if control in ready:
            data, fds, _, _ = socket.recv_fds(control, _LONGEST, 8)
            if not data:
                return
            end, *others = fds
            pid = os.fork()
            if not pid:
                for each in (control, waking, woken):
                    each.close()
                for each in (end, *ends.values()):
                    os.close(each)
                become(json.loads(data), *others)
            ends[pid] = end
            for fd in others:
                os.close(fd)
            control.send(b"%d" % pid)


def tell_of_ended(ends: dict[int, int]) -> None:
    for pid in list(ends):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            end = ends.pop(pid)
            os.write(end, b"%d" % os.waitstatus_to_exitcode(status))
            os.close(end)


def name_of(role: str, mark: str) -> str:
    """The name that a forked process has in the system, where it comes from a host with this mark."""
    return f"{role}{mark}"[:15]


def as_started(folder: str, environ: dict[str, str], role: str) -> None:
    """Have the signals, the folder and the environment of a process that was started with a command line."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    if (mark := environ.get(MARK)) and Path("/proc/self/comm").exists():
        Path("/proc/self/comm").write_text(name_of(role, mark))  # the system goes on to show the first environment


def become_worker(told: dict[str, Any], link: int, output: int, board: int | None = None) -> NoReturn:
    """Be a worker."""
    as_started(told["root"], told["environ"], "w")
    os.setpgid(0, 0)
    for fd in (1, 2):
        os.dup2(output, fd)
    os.close(output)
    try:
        serving.main([str(link), "-" if board is None else str(board), told["root"], "labelled"])
    finally:
        os._exit(1)


if __name__ == "__main__":
    gc.freeze()  # a collection in a forked process neither walks nor copies what all of them share
    main(socket.socket(fileno=int(sys.argv[1])), become_worker)
