"""Several processes on one listening socket: starts them, restarts those that ended, and stops all of them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

__all__ = ["supervise"]

_LEAST: Final = 1.0
"""Seconds between two starts of a process that fails to start."""
_MOST: Final = 30.0
"""The longest pause, while processes end soon after their start."""
_SOON: Final = 10.0
_WRONG_SETTINGS: Final = 2
"""The exit code of a process that has reported the reason itself."""
_LOOK: Final = 0.2
_MORE: Final = 10.0
"""Seconds after the drain time, after which a process is killed."""


def supervise(
    command: list[str], listening: socket.socket, count: int, drain: float, ready: Callable[[], None], *, folder: str
) -> int:
    """Keep this many processes running until a signal, and return the exit code.

    Each process gets the socket, its number, the `folder` in which the processes find each other, and the reading end of a pipe, whose end shows that the supervisor is gone. `ready` is
    called once the signal handlers are set.
    """
    reading, writing = os.pipe()
    wake_reading, wake_writing = os.pipe()
    os.set_blocking(wake_writing, False)
    signal.set_wakeup_fd(wake_writing, warn_on_full_buffer=False)
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: received.append(number))
    signal.signal(signal.SIGCHLD, _wake)
    ready()
    started: dict[subprocess.Popen[bytes], tuple[int, float]] = {}
    due, wait = dict.fromkeys(range(count), 0.0), _LEAST
    while not received:
        now = time.monotonic()
        for process in [each for each in started if each.poll() is not None]:
            number, since = started.pop(process)
            lived = now - since
            if process.returncode == _WRONG_SETTINGS and not started:
                os.close(writing)
                return _WRONG_SETTINGS
            wait = min(wait * 2, _MOST) if lived < _SOON else _LEAST
            sys.stderr.write(f"prowess: a serving process has ended ({process.returncode}); another takes its place\n")
            due[number] = now + max(wait - lived, 0.0)
        for number in [number for number, moment in due.items() if moment <= now]:
            del due[number]
            replica = [*command, "--replica", f"{listening.fileno()},{reading},{number},{folder}"]
            process = subprocess.Popen(replica, pass_fds=(listening.fileno(), reading), start_new_session=True)
            started[process] = number, now
        pause = max(0.0, min(due.values(), default=now + 3600.0) - now)
        if select.select([wake_reading], [], [], pause)[0]:
            os.read(wake_reading, 4096)
    return _end(list(started), writing, received, drain)


def _wake(_number: int, _frame: object) -> None:
    """Does nothing: a signal also writes to the wake-up pipe."""


def _end(processes: list[subprocess.Popen[bytes]], writing: int, received: list[int], drain: float) -> int:
    """Stop all processes and wait; kill them after a second signal or a timeout."""
    for process in processes:
        with contextlib.suppress(OSError):
            process.send_signal(signal.SIGTERM)
    end = time.monotonic() + drain + _MORE
    while any(process.poll() is None for process in processes) and time.monotonic() < end and len(received) == 1:
        time.sleep(_LOOK)
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
    os.close(writing)
    return 0 if received[0] == signal.SIGTERM else 128 + received[0]
